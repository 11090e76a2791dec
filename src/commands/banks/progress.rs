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
    /// The SHA-256 of the file.
    pub(super) file: String,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Progress {
    subject: ImportTarget,
    /// Revision of the bank after the finished part. A bank that was created anew begins before it.
    pub(super) revision: i64,
    /// Entries that are done with, from the file's beginning.
    pub(super) done: u64,
    pub(super) sum: ImportCounts,
    pub(super) withdrawn: Withdrawn,
}

/// Withdrawn names of the finished part, by source and reference, with the values that were listed again since.
pub(super) type Withdrawn = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

impl Progress {
    pub(super) fn new(subject: ImportTarget, revision: i64) -> Self {
        Self { subject, revision, done: 0, sum: ImportCounts::default(), withdrawn: Withdrawn::new() }
    }

    /// `None`: there is none. What is of another import is refused.
    pub(super) fn read(beside: &Path, subject: &ImportTarget, revision: i64) -> anyhow::Result<Option<Self>> {
        let shown = beside.display();
        let Ok(kept) = fs::read(beside) else { return Ok(None) };
        let kept: Self = serde_json::from_slice(&kept)
            .with_context(|| format!("{shown} is broken or of another version: remove it to begin anew"))?;
        let of = &kept.subject;
        let other = [
            (of.server == subject.server, "server"),
            (of.org == subject.org, "organisation"),
            (of.bank == subject.bank, "bank"),
            (of.format == subject.format, "format"),
            (of.file == subject.file, "file"),
        ]
        .into_iter()
        .find_map(|(is_same, what)| (!is_same).then_some(what));
        if let Some(what) = other {
            bail!("{shown} is of another {what}: go on with the same one, or remove {shown} to begin anew");
        }
        if revision < kept.revision {
            bail!(
                "{shown} is of revision {} of the bank, which is at {revision} now: it was made anew or restored; \
                 remove {shown} to begin anew",
                kept.revision
            );
        }
        Ok(Some(kept))
    }

    /// A half-written file would be worse than an old one.
    pub(super) fn keep(&self, beside: &Path) -> anyhow::Result<()> {
        let cannot = || format!("cannot write {}", beside.display());
        let new = beside.with_extension("resume-new");
        fs::write(&new, serde_json::to_vec(self)?).with_context(cannot)?;
        fs::rename(&new, beside).with_context(cannot)
    }
}
