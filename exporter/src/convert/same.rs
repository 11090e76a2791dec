//! What a conversion was begun with, so that it goes on with the same, or says what differs.
//!
//! What changes neither the result nor what stands beside it (threads, bounds, the terminal) is left out; the moment is
//! held by itself. Of values there are only digests.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use sha2::{Digest as _, Sha256};

use super::{Job, Target};
use crate::{error::Fault, input::name_of, json::write::hex_of};

/// By name of an option, or of an input.
pub(super) type Identity = BTreeMap<String, String>;

const INPUT: &str = "input ";
const KEY: &str = "--linkage-key-file";

pub(super) fn identity(job: &Job) -> Identity {
    let option = |name: &str, value: &dyn Debug| (name.to_owned(), digest(format!("{value:?}").as_bytes()));
    let source = &job.overrides;
    let mut identity = Identity::from([
        option("--from", &job.from),
        option("--variant", &job.polis.variant),
        option("--vote-sign", &job.polis.vote_sign),
        option("--organizer", &job.polis.organizers),
        option("--equal-reason", &job.aoi.equal_reasons),
        option("--profile", &job.profile),
        option("--k", &job.k),
        option("--text", &job.texts()),
        option("--text-reviewed-by", &job.text_reviewed_by),
        option("--not-for-sharing", &job.withheld),
        option("--limitation", &job.limitations),
        option("--participants", &job.participants),
        option(KEY, &job.key.as_ref().map(|key| &key.0)),
        option("--events", &job.events),
        option("--rename-constants", &job.naming),
        option("--schema-url", &job.schema_url),
        option("--bundle-id", &job.bundle_id),
        option("--source-id", &source.id),
        option("--title", &source.title),
        option("--description", &source.description),
        option("--source-url", &source.url),
        option("--truncate-metadata", &job.truncate_metadata),
        option("--sidecar", &job.sidecars),
        option("--package", &job.package),
        option("--license", &job.license),
        option("--to", &job.to),
        option("--exact-cells", &job.cells),
        option("--voter-ids", &job.voter_ids),
    ]);
    let mut add = |path: &Path, file: &Metadata| {
        let seen = format!("{} {} {}", file.len(), file.mtime(), file.mtime_nsec());
        identity.insert(format!("{INPUT}{}", name_of(path)), digest(seen.as_bytes()));
    };
    for path in &job.inputs {
        for path in fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if let Ok(file) = fs::metadata(&path)
                && file.is_file()
                && !is_ours(job, &path)
            {
                add(&path, &file);
            }
        }
        // What comes through a pipe is known by its rows alone.
        if let Ok(file) = fs::metadata(path)
            && file.is_file()
        {
            add(path, &file);
        }
    }
    identity
}

/// The output may lie beside its inputs.
fn is_ours(job: &Job, path: &Path) -> bool {
    let Target::File(out) = &job.target else { return false };
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    let name = name_of(path);
    name.starts_with('.') || name.starts_with(&*name_of(out)) || name.starts_with(&format!("{stem}."))
}

pub(super) fn hold(before: &Identity, now: &Identity) -> Result<(), Fault> {
    let names = before.keys().chain(now.keys().filter(|name| !before.contains_key(*name)));
    let differing = names.filter(|name| before.get(*name) != now.get(*name));
    let (inputs, options): (Vec<_>, Vec<_>) = differing.partition(|name| name.starts_with(INPUT));
    let mut said = Vec::new();
    if !inputs.is_empty() {
        let names: Vec<_> = inputs.iter().map(|name| &name[INPUT.len()..]).collect();
        said.push(format!("another input ({})", names.join(", ")));
    }
    let (keys, options): (Vec<_>, Vec<_>) = options.into_iter().partition(|name| *name == KEY);
    if !keys.is_empty() {
        said.push(format!("another key ({KEY})"));
    }
    if !options.is_empty() {
        let names: Vec<_> = options.iter().map(|name| name.as_str()).collect();
        said.push(format!("other options ({})", names.join(", ")));
    }
    if said.is_empty() {
        return Ok(());
    }
    Err(Fault::Refused(format!(
        "what is to be gone on with was begun with {}: with the same as before it goes on, --force begins anew",
        said.join(" and ")
    )))
}

fn digest(value: &[u8]) -> String {
    let digest: [u8; 32] = Sha256::digest(value).into();
    hex_of(&digest)
}
