//! Counts of an import, which add up to the number of entries in the file.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::{AddResult, WithdrawResult};
use crate::output::print_line;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImportCounts {
    added: usize,
    pub(super) changed: usize,
    unchanged: usize,
    pub(super) removed: usize,
    /// Withdrawals of entries that the withdrawing source had not listed.
    pub(super) missing: usize,
    /// Hashes of another kind.
    pub(super) others: usize,
    pub(super) rejected: usize,
}

impl ImportCounts {
    pub(super) fn from_result(result: &AddResult) -> Self {
        let AddResult { added, changed, unchanged, rejected, .. } = result;
        let rejected = rejected.len();
        Self { added: *added, changed: *changed, unchanged: *unchanged, rejected, ..Self::default() }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.added += other.added;
        self.changed += other.changed;
        self.unchanged += other.unchanged;
        self.removed += other.removed;
        self.missing += other.missing;
        self.others += other.others;
        self.rejected += other.rejected;
    }

    pub(super) fn add_outcome(&mut self, outcome: WithdrawResult) {
        match outcome {
            WithdrawResult::Removed => self.removed += 1,
            WithdrawResult::Changed => self.changed += 1,
            WithdrawResult::Missing => self.missing += 1,
        }
    }

    pub(super) fn print(&self) -> ExitCode {
        let Self { added, changed, unchanged, removed, missing, others, rejected } = self;
        let total = added + changed + unchanged + removed + missing + others + rejected;
        let mut text = format!(
            "{total} entries: {added} added, {changed} changed, {unchanged} there already, {rejected} refused"
        );
        for (count, label) in
            [(removed, "removed"), (missing, "not there to remove"), (others, "of another kind")]
        {
            if *count > 0 {
                text.push_str(&format!(", {count} {label}"));
            }
        }
        print_line(text);
        if *rejected == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
