//! Progress of an import, kept in a file beside the imported one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use tidegate_bank_exchange::Format;

use super::counts::ImportCounts;

/// Target and file of an import; progress of another subject is not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImportTarget {
    pub(super) server: String,
    pub(super) org: String,
    pub(super) bank: String,
    pub(super) format: Format,
    /// SHA-256 of the file.
    pub(super) file: String,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Progress {
    subject: ImportTarget,
    /// Revision of the bank after the finished part. A recreated bank has a lower one.
    pub(super) revision: i64,
    /// Number of processed entries, from the beginning of the file.
    pub(super) done: u64,
    pub(super) sum: ImportCounts,
    pub(super) withdrawn: Withdrawn,
}

/// Withdrawn references of the finished part, by source and reference, with the values that were listed again later.
pub(super) type Withdrawn = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

impl Progress {
    pub(super) fn new(subject: ImportTarget, revision: i64) -> Self {
        Self { subject, revision, done: 0, sum: ImportCounts::default(), withdrawn: Withdrawn::new() }
    }

    /// Reads the saved progress. Returns `None` if the file is missing; fails if it belongs to another import.
    pub(super) fn read(path: &Path, subject: &ImportTarget, revision: i64) -> anyhow::Result<Option<Self>> {
        let display_path = path.display();
        let Ok(content) = fs::read(path) else { return Ok(None) };
        let progress: Self = serde_json::from_slice(&content).with_context(|| {
            format!("{display_path} is damaged or of another version: remove it to start over")
        })?;
        let saved_subject = &progress.subject;
        let mismatch = [
            (saved_subject.server == subject.server, "server"),
            (saved_subject.org == subject.org, "organisation"),
            (saved_subject.bank == subject.bank, "bank"),
            (saved_subject.format == subject.format, "format"),
            (saved_subject.file == subject.file, "file"),
        ]
        .into_iter()
        .find_map(|(is_same, field)| (!is_same).then_some(field));
        if let Some(field) = mismatch {
            bail!(
                "{display_path} is of another {field}: continue with the same one, or remove {display_path} to start over"
            );
        }
        // Entries that were sent before would be missing in a recreated or restored bank.
        if revision < progress.revision {
            bail!(
                "{display_path} is of revision {} of the bank, which is at {revision} now: the bank was recreated or restored; \
                 remove {display_path} to start over",
                progress.revision
            );
        }
        Ok(Some(progress))
    }

    /// Saves the progress through a temporary file: a half-written one would be worse than an old one.
    pub(super) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let describe_error = || format!("cannot write {}", path.display());
        let temporary_path = path.with_extension("resume-new");
        fs::write(&temporary_path, serde_json::to_vec(self)?).with_context(describe_error)?;
        fs::rename(&temporary_path, path).with_context(describe_error)
    }
}
