//! State machine of one schedule in one process: decides the next step, without I/O.
//!
//! The stored row has the progress and a lease. A day is exported again until the row names the next one, so a crash at any step only
//! repeats work. `runner` carries the steps out.

use std::{collections::VecDeque, mem, time::Duration};

use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_store::tables::history::export_schedules::ExportSchedule;

use super::{
    cron::RunTimes,
    manifest::{FileSummary, count_rows},
};

/// Longest sleep. Then the row is read again, for the metrics and for progress of other processes.
const MAX_SLEEP: Duration = Duration::from_secs(60);
/// Longest stored error.
const MAX_ERROR_CHARS: usize = 1_000;

/// Fixed properties of a schedule and its process.
#[derive(Clone, Debug)]
pub(crate) struct RunRules {
    /// Random id of the process.
    pub(crate) owner: String,
    pub(crate) org: OrgId,
    pub(crate) name: String,
    pub(crate) run_times: RunTimes,
    pub(crate) since: Option<i64>,
    pub(crate) retention_days: Option<i64>,
    pub(crate) lease: Duration,
    pub(crate) retry_min: Duration,
    pub(crate) retry_max: Duration,
}

/// Work of the runner. Each step has one effect and may be repeated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    ReadRow,
    InsertRow(ExportSchedule),
    /// Replaces the row at the version that the value holds.
    ReplaceRow(ExportSchedule),
    SleepUntil(Millis),
    /// Writes the files of a day into the work folder.
    ExportDay(i64),
    /// Deletes the manifest of an earlier attempt, so that no reader sees it beside files that are being replaced.
    RemoveManifest(i64),
    PutFile(FileSummary),
    PutManifest {
        day: i64,
        files: Vec<FileSummary>,
    },
    /// Deletes a file of an earlier attempt that is not part of the day any more.
    DeleteFile(String),
    /// Lists the exported days before this one.
    ListDaysBefore(i64),
    /// Deletes the files of a day; its manifest stays until all are deleted.
    DeleteFiles(i64),
    DeleteManifest(i64),
}

/// Result of a step.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Row(Option<ExportSchedule>),
    /// A row was written, or an object put or deleted, or the sleep is over.
    Done,
    /// The row is at another version.
    Conflict(Option<ExportSchedule>),
    /// The store failed; a write may have happened.
    StoreFailed,
    Files(Vec<FileSummary>),
    /// Names of the files in a deleted manifest.
    RemovedNames(Vec<String>),
    Days(Vec<i64>),
    /// The day cannot be exported yet.
    Postponed(String),
    Failed(String),
}

#[derive(Debug)]
enum Phase {
    Reading,
    /// The row is known.
    Deciding,
    Sleeping(Millis),
    /// The row is being written; the phase follows on success.
    Writing(ExportSchedule, Box<Self>),
    Exporting,
    RemovingManifest(Vec<FileSummary>),
    Uploading {
        files: Vec<FileSummary>,
        next: usize,
        old_names: Vec<String>,
    },
    PuttingManifest {
        files: Vec<FileSummary>,
        old_names: Vec<String>,
    },
    DeletingOldFiles {
        files: Vec<FileSummary>,
        old_names: Vec<String>,
    },
    Advancing(Vec<FileSummary>),
    ListingExpired,
    DeletingExpired {
        days: VecDeque<i64>,
        are_files_deleted: bool,
    },
    Failing(String),
    Releasing,
}

/// Progress of a schedule as one process sees it.
#[derive(Debug)]
pub(crate) struct RunState {
    rules: RunRules,
    row: Option<ExportSchedule>,
    phase: Phase,
    /// Day that is being exported. Fixed at its start, because the first day to keep moves at midnight.
    day: i64,
    /// Failures since the last exported day.
    failures: u32,
    /// True once expired days were deleted under the present lease.
    has_expired: bool,
}

impl RunState {
    pub(crate) fn new(rules: RunRules) -> Self {
        Self { rules, row: None, phase: Phase::Reading, day: 0, failures: 0, has_expired: false }
    }

    /// Returns the next step. The runner carries it out and reports the outcome.
    pub(crate) fn next_step(&mut self, now: Millis) -> Step {
        if self.needs_lease() && !self.holds_lease(now) {
            self.forget_row();
        }
        loop {
            let day = self.day;
            match &self.phase {
                Phase::Reading => return Step::ReadRow,
                Phase::Sleeping(until) => return Step::SleepUntil(*until),
                Phase::Writing(row, _) if row.version == 0 => return Step::InsertRow(row.clone()),
                Phase::Writing(row, _) => return Step::ReplaceRow(row.clone()),
                Phase::Exporting => return Step::ExportDay(day),
                Phase::RemovingManifest(_) => return Step::RemoveManifest(day),
                Phase::Uploading { files, next, .. } => {
                    if let Some(file) = files.get(*next) {
                        return Step::PutFile(file.clone());
                    }
                }
                Phase::PuttingManifest { files, .. } => {
                    return Step::PutManifest { day, files: files.clone() };
                }
                Phase::DeletingOldFiles { old_names, .. } => {
                    if let Some(name) = old_names.last() {
                        return Step::DeleteFile(name.clone());
                    }
                }
                Phase::ListingExpired => {
                    return Step::ListDaysBefore(self.oldest_day(now).unwrap_or(i64::MIN));
                }
                Phase::DeletingExpired { days, are_files_deleted } => {
                    if let Some(day) = days.front() {
                        return if *are_files_deleted {
                            Step::DeleteManifest(*day)
                        } else {
                            Step::DeleteFiles(*day)
                        };
                    }
                }
                Phase::Deciding | Phase::Advancing(_) | Phase::Failing(_) | Phase::Releasing => {}
            }
            self.leave_phase(now);
        }
    }

    /// Moves on from a phase without a step of its own.
    fn leave_phase(&mut self, now: Millis) {
        let Some(row) = self.row.clone() else {
            self.phase = Phase::Reading;
            return;
        };
        let held_until = Some(now.plus(self.rules.lease));
        self.phase = match mem::replace(&mut self.phase, Phase::Reading) {
            Phase::Uploading { files, old_names, .. } => Phase::PuttingManifest { files, old_names },
            Phase::DeletingOldFiles { files, .. } => Phase::Advancing(files),
            Phase::Advancing(files) => {
                let rows = i64::try_from(count_rows(&files)).unwrap_or(i64::MAX);
                let advanced_row = ExportSchedule {
                    next_day: self.day.saturating_add(1),
                    lease_until: held_until,
                    last_success_at: Some(now),
                    last_error: None,
                    rows: row.rows.saturating_add(rows),
                    updated_at: now,
                    ..row
                };
                Phase::Writing(advanced_row, Box::new(Phase::Deciding))
            }
            Phase::DeletingExpired { .. } => {
                self.has_expired = true;
                Phase::Deciding
            }
            Phase::Failing(text) => {
                self.failures = self.failures.saturating_add(1);
                let last_error = Some(text.chars().take(MAX_ERROR_CHARS).collect());
                let failed_row = ExportSchedule {
                    last_error,
                    lease_owner: None,
                    lease_until: None,
                    updated_at: now,
                    ..row
                };
                Phase::Writing(failed_row, Box::new(Phase::Sleeping(now.plus(self.backoff()))))
            }
            Phase::Releasing => {
                let released_row =
                    ExportSchedule { lease_owner: None, lease_until: None, updated_at: now, ..row };
                Phase::Writing(released_row, Box::new(Phase::Deciding))
            }
            _ => self.decide(row, now),
        };
    }

    /// Chooses the next phase by the row.
    fn decide(&mut self, row: ExportSchedule, now: Millis) -> Phase {
        let day = self.day_to_export(&row, now);
        let due_at = self.rules.run_times.due_at(day);
        if self.holds_lease(now) {
            return if due_at <= now {
                self.day = day;
                Phase::Exporting
            } else if self.rules.retention_days.is_some() && !self.has_expired {
                Phase::ListingExpired
            } else {
                Phase::Releasing
            };
        }
        let wake_at = now.plus(MAX_SLEEP);
        let leased_until = row.lease_until.filter(|_| row.lease_owner.is_some()).unwrap_or(Millis(i64::MIN));
        if due_at > now {
            return Phase::Sleeping(due_at.min(wake_at));
        }
        if leased_until > now {
            return Phase::Sleeping(leased_until.min(wake_at));
        }
        self.has_expired = false;
        let leased_row = ExportSchedule {
            lease_owner: Some(self.rules.owner.clone()),
            lease_until: Some(now.plus(self.rules.lease)),
            updated_at: now,
            ..row
        };
        Phase::Writing(leased_row, Box::new(Phase::Deciding))
    }

    /// Takes the outcome of the last step.
    pub(crate) fn apply(&mut self, outcome: Outcome, now: Millis) {
        let phase = mem::replace(&mut self.phase, Phase::Reading);
        self.phase = match (phase, outcome) {
            (_, Outcome::StoreFailed) => {
                self.failures = self.failures.saturating_add(1);
                self.row = None;
                Phase::Sleeping(now.plus(self.backoff()))
            }
            (_, Outcome::Failed(text) | Outcome::Postponed(text)) => Phase::Failing(text),
            (_, Outcome::Row(Some(row))) => {
                self.row = Some(row);
                Phase::Deciding
            }
            (_, Outcome::Row(None)) => Phase::Writing(self.first_row(now), Box::new(Phase::Deciding)),
            (_, Outcome::Conflict(_)) | (Phase::Sleeping(_), _) => {
                self.row = None;
                Phase::Reading
            }
            (Phase::Writing(row, next), Outcome::Done) => {
                let is_advance = self.row.as_ref().is_some_and(|stored| stored.next_day < row.next_day);
                if is_advance {
                    self.failures = 0;
                }
                self.row = Some(ExportSchedule { version: row.version + 1, ..row });
                *next
            }
            (Phase::Exporting, Outcome::Files(files)) => Phase::RemovingManifest(files),
            (Phase::RemovingManifest(files), Outcome::RemovedNames(mut old_names)) => {
                old_names.retain(|name| files.iter().all(|file| file.name != *name));
                Phase::Uploading { files, next: 0, old_names }
            }
            (Phase::Uploading { files, next, old_names }, Outcome::Done) => {
                Phase::Uploading { files, next: next + 1, old_names }
            }
            (Phase::PuttingManifest { files, old_names }, Outcome::Done) => {
                Phase::DeletingOldFiles { files, old_names }
            }
            (Phase::DeletingOldFiles { files, mut old_names }, Outcome::Done) => {
                old_names.pop();
                Phase::DeletingOldFiles { files, old_names }
            }
            (Phase::ListingExpired, Outcome::Days(days)) => {
                Phase::DeletingExpired { days: days.into(), are_files_deleted: false }
            }
            (Phase::DeletingExpired { mut days, are_files_deleted }, Outcome::Done) => {
                if are_files_deleted {
                    days.pop_front();
                }
                Phase::DeletingExpired { days, are_files_deleted: !are_files_deleted }
            }
            // Outcome of another step, after the row was forgotten.
            _ => Phase::Reading,
        };
    }

    /// True while the lease of this process lasts.
    pub(crate) fn holds_lease(&self, now: Millis) -> bool {
        self.row.as_ref().is_some_and(|row| {
            row.lease_owner.as_ref() == Some(&self.rules.owner)
                && row.lease_until.is_some_and(|until| until > now)
        })
    }

    /// Returns the row with a longer lease, once a third of the lease has passed.
    pub(crate) fn renewal(&self, now: Millis) -> Option<ExportSchedule> {
        let row = self.row.as_ref().filter(|_| self.needs_lease() && self.holds_lease(now))?;
        let renew_at = row.lease_until?.minus(self.rules.lease * 2 / 3);
        (renew_at <= now).then(|| ExportSchedule {
            lease_until: Some(now.plus(self.rules.lease)),
            updated_at: now,
            ..row.clone()
        })
    }

    /// Takes the outcome of a renewal. After a failure of the store the lease ends unless a later renewal succeeds.
    pub(crate) fn apply_renewal(&mut self, row: ExportSchedule, outcome: Outcome) {
        match outcome {
            Outcome::Done => self.row = Some(ExportSchedule { version: row.version + 1, ..row }),
            // An earlier renewal was written although the store reported a failure.
            Outcome::Conflict(Some(stored)) if stored.lease_owner.as_ref() == Some(&self.rules.owner) => {
                self.row = Some(stored);
            }
            Outcome::Conflict(_) => self.forget_row(),
            _ => {}
        }
    }

    /// Returns the row without the lease, for an orderly stop.
    pub(crate) fn release(&self, now: Millis) -> Option<ExportSchedule> {
        let row = self.row.clone().filter(|_| self.holds_lease(now))?;
        Some(ExportSchedule { lease_owner: None, lease_until: None, updated_at: now, ..row })
    }

    /// Starts again from the stored row, after the lease was lost.
    pub(crate) fn forget_row(&mut self) {
        self.row = None;
        self.phase = Phase::Reading;
    }

    /// Last known progress: the time of the last success, and the number of days that wait.
    pub(crate) fn progress(&self, now: Millis) -> Option<(Option<Millis>, i64)> {
        let row = self.row.as_ref()?;
        Some((row.last_success_at, now.day().saturating_sub(self.day_to_export(row, now))))
    }

    /// Time until the end of the lease; zero without a lease.
    pub(crate) fn lease_left(&self, now: Millis) -> Duration {
        let lease_until = self.row.as_ref().filter(|_| self.holds_lease(now)).and_then(|row| row.lease_until);
        lease_until.map_or(Duration::ZERO, |until| {
            Duration::from_millis(u64::try_from(until.0.saturating_sub(now.0)).unwrap_or(0))
        })
    }

    pub(crate) const fn lease(&self) -> Duration {
        self.rules.lease
    }

    pub(crate) fn owner(&self) -> &str {
        &self.rules.owner
    }

    /// True in phases with effects that only one process may have.
    fn needs_lease(&self) -> bool {
        match &self.phase {
            Phase::Reading | Phase::Deciding | Phase::Sleeping(_) | Phase::Writing(..) => false,
            Phase::Exporting
            | Phase::RemovingManifest(_)
            | Phase::Uploading { .. }
            | Phase::PuttingManifest { .. }
            | Phase::DeletingOldFiles { .. }
            | Phase::Advancing(_)
            | Phase::ListingExpired
            | Phase::DeletingExpired { .. }
            | Phase::Failing(_)
            | Phase::Releasing => true,
        }
    }

    /// First day to keep.
    fn oldest_day(&self, now: Millis) -> Option<i64> {
        Some(now.day().saturating_sub(self.rules.retention_days?))
    }

    /// Next day. Days that would be deleted at once are skipped.
    fn day_to_export(&self, row: &ExportSchedule, now: Millis) -> i64 {
        row.next_day.max(self.oldest_day(now).unwrap_or(i64::MIN))
    }

    fn first_row(&self, now: Millis) -> ExportSchedule {
        ExportSchedule {
            org: self.rules.org.clone(),
            name: self.rules.name.clone(),
            next_day: self.rules.since.unwrap_or(now.day() - 1),
            lease_owner: None,
            lease_until: None,
            last_success_at: None,
            last_error: None,
            rows: 0,
            updated_at: now,
            version: 0,
        }
    }

    fn backoff(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(20);
        self.rules.retry_min.saturating_mul(1 << doublings).min(self.rules.retry_max)
    }
}

#[cfg(test)]
mod tests;
