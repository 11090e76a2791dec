//! Assigns roles to the input files, names them in the bundle, and notes the unused ones.

use super::{Format, Job, adapter::format_of};
use crate::{
    error::{ConvertError, ErrorKind},
    input::{
        self, FileDigest, Input, MAX_LISTED_FILES, Member, Role, detect_damaged_role, detect_role,
        has_known_name, list_files, tool_file_name,
    },
    model::Artifact,
    plural::{format_count, was_or_were},
    privacy::Profile,
};

pub(super) fn assign_roles(input: &mut Input, job: &Job) -> Result<Vec<(Member, Role)>, ConvertError> {
    let (mut files, mut broken_members) = (Vec::new(), std::mem::take(&mut input.broken));
    for member in &input.members {
        match detect_role(member, &job.limits) {
            Err(error) if error.is_damage() => broken_members.push((member.clone(), error)),
            role => files.push((member.clone(), role?)),
        }
    }
    let is_asked_for = |format: Format| job.input_format.is_none_or(|from| from == format);
    // If no file is recognised, the damaged one is the likely cause, and its error the best message.
    let is_export = files.iter().any(|(_, role)| format_of(*role).is_some_and(is_asked_for));
    for at in 0..broken_members.len() {
        let (member, error) = &broken_members[at];
        if !is_export || has_known_name(member) || begins_like_input(member, error, job, is_asked_for)? {
            // A damaged file that may be part of the export must fail the conversion: without it the bundle would be
            // incomplete.
            return Err(broken_members.swap_remove(at).1);
        }
    }
    files.extend(broken_members.into_iter().map(|(member, _)| (member.without_unpacking(), Role::Broken)));
    // File names end up in provenance and notes of the bundle.
    for (member, role) in files.iter_mut().filter(|_| job.profile == Profile::Public) {
        *member = member.with_name(public_name(&member.name, role.name()));
    }
    Ok(files)
}

/// True if the readable beginning of a damaged file looks like an input file. False for a damaged archive.
fn begins_like_input(
    member: &Member,
    error: &ConvertError,
    job: &Job,
    is_asked_for: impl Fn(Format) -> bool,
) -> Result<bool, ConvertError> {
    if matches!(error, ConvertError::Content { kind: ErrorKind::Archive, .. }) {
        return Ok(false);
    }
    let role = match detect_damaged_role(member, &job.limits) {
        Err(error) if error.is_damage() => return Ok(false),
        role => role?,
    };
    let is_requested = format_of(role).is_some_and(is_asked_for);
    Ok(role == Role::PolisFormat || role.is_used() && is_requested)
}

/// Name for a public bundle: the tool's own file name, or else the role. An arbitrary name may identify a person.
pub(super) fn public_name(name: &str, role: &str) -> String {
    tool_file_name(name).unwrap_or_else(|| role.to_owned())
}

/// Describes every input file. The response file has no digest yet: it is read once, later.
pub(super) fn describe_artifacts(
    input: &Input,
    files: &[(Member, Role)],
    rows: Option<&Member>,
    row_counts: &[(Role, u64)],
    job: &Job,
) -> Result<Vec<Artifact>, ConvertError> {
    let archives = input.archives.iter().map(|archive| (archive, None, None));
    let members = files.iter().map(|(member, role)| {
        let rows = row_counts.iter().find(|entry| entry.0 == *role).map(|entry| entry.1);
        (member, Some(*role), rows)
    });
    let mut artifacts = Vec::new();
    for (member, role, row_count) in archives.chain(members) {
        let is_rows_file =
            rows.is_some_and(|rows| rows.name == member.name && rows.archive_name() == member.archive_name());
        let digest = if is_rows_file { None } else { read_digest(member, role, job)? };
        artifacts.push(Artifact {
            role: role.map_or("archive", Role::name),
            name: member.name.clone(),
            archive_name: member.archive_name(),
            file_digest: digest,
            rows: row_count,
        });
    }
    Ok(artifacts)
}

/// Size and digest of a file without responses; `None` for a damaged archive.
fn read_digest(member: &Member, role: Option<Role>, job: &Job) -> Result<Option<FileDigest>, ConvertError> {
    let digest_of = |member: &Member| member.open(&job.limits, None)?.finish().map(Some);
    if role.is_none_or(Role::is_used) {
        return digest_of(member);
    }
    // An unused file is not unpacked: damage in it must not fail the conversion.
    match digest_of(&member.without_unpacking()) {
        Err(error) if error.is_damage() => Ok(None),
        read => read,
    }
}

/// Note about input files that contribute no content.
pub(super) fn note_unused_files(files: &[(Member, Role)]) -> Option<String> {
    let (names, count) = list_files(files, |role| !role.is_used() && role != Role::Broken);
    (count > 0).then(|| format!("{} {} not used: {names}.", format_count(count, "file"), was_or_were(count)))
}

/// Note about damaged files that were skipped.
pub(super) fn note_broken_files(files: &[(Member, Role)]) -> Option<String> {
    let (names, count) = input::list_broken(files);
    let files = || format_count(count, "file");
    (count > 0)
        .then(|| format!("{} that cannot be unpacked {} skipped: {names}.", files(), was_or_were(count)))
}

/// Note about skipped entries of an input folder.
pub(super) fn note_skipped_folders(names: &[String], job: &Job) -> Option<String> {
    let count = names.len() as u64;
    let folders = format!("{} within the input {}", format_count(count, "folder"), was_or_were(count));
    // A folder name may identify a person, so a public note only counts them.
    let listing = match job.profile {
        Profile::Public => String::new(),
        Profile::Private => {
            let ellipsis = if names.len() > MAX_LISTED_FILES { ", ..." } else { "" };
            let listed_names = &names[..names.len().min(MAX_LISTED_FILES)];
            format!(": {}{ellipsis}", listed_names.join(", "))
        }
    };
    (count > 0).then(|| format!("{folders} not read{listing}."))
}
