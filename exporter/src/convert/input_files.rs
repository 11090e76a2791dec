//! Roles of the given files, their names in the bundle, and notes about those left out.

use super::{Format, Job, adapter::format_of};
use crate::{
    error::{ConvertError, ErrorKind},
    input::{
        self, FileDigest, Input, Member, Role, TOLD, is_called_as_any, named, role, role_in_part, tools_name,
    },
    model::Artifact,
    plural::{counted, were},
    privacy::Profile,
};

pub(super) fn roles(input: &mut Input, job: &Job) -> Result<Vec<(Member, Role)>, ConvertError> {
    let (mut files, mut broken) = (Vec::new(), std::mem::take(&mut input.broken));
    for member in &input.members {
        match role(member, &job.limits) {
            Err(error) if error.is_damage() => broken.push((member.clone(), error)),
            role => files.push((member.clone(), role?)),
        }
    }
    let is_asked_for = |format: Format| job.from.is_none_or(|from| from == format);
    let is_export = files.iter().any(|(_, role)| format_of(*role).is_some_and(is_asked_for));
    for at in 0..broken.len() {
        let (member, error) = &broken[at];
        if !is_export || is_called_as_any(member) || begins_as_one(member, error, job, is_asked_for)? {
            return Err(broken.swap_remove(at).1);
        }
    }
    files.extend(broken.into_iter().map(|(member, _)| (member.as_it_lies(), Role::Broken)));
    for (member, role) in files.iter_mut().filter(|_| job.profile == Profile::Public) {
        *member = member.called(shared_name(&member.name, role.name()));
    }
    Ok(files)
}

/// True if the readable beginning of a broken file looks like an input file. Nothing is known of a broken archive.
fn begins_as_one(
    member: &Member,
    error: &ConvertError,
    job: &Job,
    is_asked_for: impl Fn(Format) -> bool,
) -> Result<bool, ConvertError> {
    if matches!(error, ConvertError::Content { wrong: ErrorKind::Archive, .. }) {
        return Ok(false);
    }
    let role = match role_in_part(member, &job.limits) {
        Err(error) if error.is_damage() => return Ok(false),
        role => role?,
    };
    let is_asked_for = format_of(role).is_some_and(is_asked_for);
    Ok(role == Role::PolisFormat || role.is_used() && is_asked_for)
}

/// A name for everybody: that which the tools have for it, or else the part that it plays.
pub(super) fn shared_name(name: &str, role: &str) -> String {
    tools_name(name).unwrap_or_else(|| role.to_owned())
}

/// Every file, read to its end; that of the rows is read later.
pub(super) fn artifacts(
    input: &Input,
    files: &[(Member, Role)],
    rows: Option<&Member>,
    known: &[(Role, u64)],
    job: &Job,
) -> Result<Vec<Artifact>, ConvertError> {
    let archives = input.archives.iter().map(|archive| (archive, None, None));
    let members = files.iter().map(|(member, role)| {
        let rows = known.iter().find(|known| known.0 == *role).map(|known| known.1);
        (member, Some(*role), rows)
    });
    let mut found = Vec::new();
    for (member, role, known) in archives.chain(members) {
        let later =
            rows.is_some_and(|rows| rows.name == member.name && rows.archive_name() == member.archive_name());
        let ended = if later { None } else { ended(member, role, job)? };
        found.push(Artifact {
            role: role.map_or("archive", Role::name),
            name: member.name.clone(),
            within: member.archive_name(),
            ended,
            rows: known,
        });
    }
    Ok(found)
}

/// Size and digest of a file that is not used; `None` for a broken archive.
fn ended(member: &Member, role: Option<Role>, job: &Job) -> Result<Option<FileDigest>, ConvertError> {
    let read = |member: &Member| member.open(&job.limits, None)?.finish().map(Some);
    if role.is_none_or(Role::is_used) {
        return read(member);
    }
    match read(&member.as_it_lies()) {
        Err(error) if error.is_damage() => Ok(None),
        read => read,
    }
}

/// Files that were given and of which nothing is in the bundle.
pub(super) fn unused(files: &[(Member, Role)]) -> Option<String> {
    let (told, count) = named(files, |role| !role.is_used() && role != Role::Broken);
    (count > 0).then(|| format!("{} {} not used: {told}.", counted(count, "file"), were(count)))
}

/// Files that were not looked into.
pub(super) fn broken(files: &[(Member, Role)]) -> Option<String> {
    let (told, count) = input::broken(files);
    let files = || counted(count, "file");
    (count > 0).then(|| format!("{} that cannot be unpacked {} passed over: {told}.", files(), were(count)))
}

/// Note about entries of a given folder that are not files.
pub(super) fn skipped(names: &[String], job: &Job) -> Option<String> {
    let count = names.len() as u64;
    let folders = format!("{} in what was given {}", counted(count, "folder"), were(count));
    // What folders are called may tell of somebody.
    let told = match job.profile {
        Profile::Public => String::new(),
        Profile::Private => {
            let more = if names.len() > TOLD { ", ..." } else { "" };
            let first = &names[..names.len().min(TOLD)];
            format!(": {}{more}", first.join(", "))
        }
    };
    (count > 0).then(|| format!("{folders} not looked into{told}."))
}
