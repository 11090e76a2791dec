//! The files that were given: what each is, what it is called in the bundle, and which were left out.
//!
//! What is in them is the adapters' to know.

use super::Job;
use crate::{
    fault::Fault,
    form::Hand,
    input::{Input, Member, Role, role},
    model::Artifact,
    privacy::{Profile, text::identifies},
    words::{counted, were},
};

pub(super) fn roles(input: &Input, job: &Job) -> Result<Vec<(Member, Role)>, Fault> {
    let named = |member: &Member| {
        let role = role(member, &job.limits)?;
        let public = job.profile == Profile::Public;
        let name = if public { shared_name(&member.name, role.name()) } else { member.name.clone() };
        Ok((member.called(name), role))
    };
    input.members.iter().map(named).collect()
}

/// A name for everybody: without folders, and the part that it plays where the name would tell of somebody.
pub(super) fn shared_name(name: &str, role: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    if identifies(last, Hand::Tool) { role.to_owned() } else { last.to_owned() }
}

/// Every file, read to its end; that of the rows is read later.
pub(super) fn artifacts(
    input: &Input,
    files: &[(Member, Role)],
    rows: Option<&Member>,
    known: &[(Role, u64)],
    job: &Job,
) -> Result<Vec<Artifact>, Fault> {
    let archives = input.archives.iter().map(|archive| (archive, "archive", None));
    let members = files.iter().map(|(member, role)| {
        let rows = known.iter().find(|known| known.0 == *role).map(|known| known.1);
        (member, role.name(), rows)
    });
    let mut found = Vec::new();
    for (member, role, known) in archives.chain(members) {
        let later =
            rows.is_some_and(|rows| rows.name == member.name && rows.archive_name() == member.archive_name());
        let ended = if later { None } else { Some(member.open(&job.limits, None)?.finish()?) };
        found.push(Artifact {
            role,
            name: member.name.clone(),
            within: member.archive_name(),
            ended,
            rows: known,
        });
    }
    Ok(found)
}

/// More names of files are not told; all of them are among the artifacts.
const TOLD: usize = 5;

/// Files that were given and of which nothing is in the bundle.
pub(super) fn unused(files: &[(Member, Role)]) -> Option<String> {
    let unused = files.iter().filter(|(_, role)| !role.is_used());
    let names: Vec<_> = unused.map(|(member, _)| member.name.as_str()).collect();
    let more = if names.len() > TOLD { ", ..." } else { "" };
    let told = names.iter().take(TOLD).copied().collect::<Vec<_>>().join(", ");
    let count = names.len() as u64;
    (count > 0).then(|| format!("{} {} not used: {told}{more}.", counted(count, "file"), were(count)))
}

/// What lies in a folder that was given, and is no file itself.
pub(super) fn passed_over(names: &[String], job: &Job) -> Option<String> {
    let told = names.iter().take(TOLD).map(|name| match job.profile {
        Profile::Public => shared_name(name, "folder"),
        Profile::Private => name.clone(),
    });
    let told = told.collect::<Vec<_>>().join(", ");
    let more = if names.len() > TOLD { ", ..." } else { "" };
    let count = names.len() as u64;
    let folders = || format!("{} in what was given {}", counted(count, "folder"), were(count));
    (count > 0).then(|| format!("{} not looked into: {told}{more}.", folders()))
}
