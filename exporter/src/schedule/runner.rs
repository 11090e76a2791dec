//! Runs schedules: carries out the steps of `run_state` on the store and the destination.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use tidegate_schemas::ids::{Millis, SubmissionId};
use tidegate_store::{
    Clock, InsertOutcome, ReplaceOutcome, Store, tables::history::export_schedules::ExportSchedule,
};
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    cron::format_day,
    manifest::{DayManifest, FileSummary, MANIFEST_FOLDER, day_of_manifest, is_data_key, manifest_key},
    metrics,
    run_state::{Outcome, RunRules, RunState, Step},
    settings::{Schedule, Settings},
};

/// Days of different schedules that one process writes at once. Each needs memory and shares the store with the live service.
const CONCURRENT_EXPORTS: usize = 2;
/// Fractions of the lease: interval between two looks at the lease during a long step, and its remainder at which the step ends.
const LEASE_CHECKS: u32 = 10;

/// Writes the rows of one day.
pub trait DayExport: Send + Sync {
    /// Writes the files of the day (days since 1970, UTC) into the empty folder. Names in the summaries are paths below it, and
    /// become keys of the destination. The same rows have to get the same names.
    fn export_day<'a>(
        &'a self,
        schedule: &'a Schedule,
        day: i64,
        folder: &'a Path,
    ) -> BoxFuture<'a, Result<Vec<FileSummary>, DayExportError>>;
}

/// Reason why a day was not written. The day is repeated after a pause.
#[derive(Debug, thiserror::Error)]
pub enum DayExportError {
    /// Events of the day are still being processed.
    #[error("{0}")]
    Early(String),
    #[error("{0}")]
    Failed(String),
}

/// Panic of a schedule. All other failures are repeated.
#[derive(Debug, thiserror::Error)]
#[error("a scheduled export panicked")]
pub struct SchedulePanic;

/// Parts of the process that schedules use.
#[derive(Clone)]
pub struct Deps {
    pub store: Store,
    pub exporter: Arc<dyn DayExport>,
    pub clock: Clock,
    /// Folder for files before they are sent, if the settings name none.
    pub work_folder: PathBuf,
}

/// Runs all schedules until `stop` is cancelled. A day in work is then dropped, and exported again later.
pub fn run(
    deps: Deps,
    settings: Settings,
    schedules: Vec<Schedule>,
    stop: CancellationToken,
) -> BoxFuture<'static, Result<(), SchedulePanic>> {
    async move {
        let work_folder = settings.work_folder.clone().unwrap_or_else(|| deps.work_folder.clone());
        let owner = SubmissionId::random().0.simple().to_string();
        let export_slots = Arc::new(Semaphore::new(CONCURRENT_EXPORTS));
        let mut tasks = JoinSet::new();
        for schedule in schedules {
            let state = RunState::new(rules_of(&schedule, &settings, &owner));
            let folder = work_folder.join(&schedule.settings.name);
            let worker = ScheduleWorker {
                deps: deps.clone(),
                schedule,
                folder,
                export_slots: Arc::clone(&export_slots),
            };
            tasks.spawn(worker.run(state, stop.clone()));
        }
        // Without schedules the role waits for the stop signal, because a role that ends by itself counts as failed.
        while let Some(result) = tasks.join_next().await {
            result.map_err(|_| SchedulePanic)?;
        }
        stop.cancelled().await;
        Ok(())
    }
    .boxed()
}

fn rules_of(schedule: &Schedule, settings: &Settings, owner: &str) -> RunRules {
    RunRules {
        owner: owner.to_owned(),
        org: schedule.settings.org.clone(),
        name: schedule.settings.name.clone(),
        run_times: schedule.run_times.clone(),
        since: schedule.since,
        retention_days: schedule.settings.retention_days.map(i64::from),
        lease: settings.lease(),
        retry_min: Duration::from_millis(settings.retry_min_ms),
        retry_max: Duration::from_millis(settings.retry_max_ms),
    }
}

struct ScheduleWorker {
    deps: Deps,
    schedule: Schedule,
    /// Work folder of the schedule. The folder of this process is below it.
    folder: PathBuf,
    export_slots: Arc<Semaphore>,
}

impl ScheduleWorker {
    async fn run(self, mut state: RunState, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let now = (self.deps.clock)();
            if let Some((last_success, behind_days)) = state.progress(now) {
                metrics::record_progress(&self.schedule.settings, last_success, behind_days);
            }
            if let Some(row) = state.renewal(now) {
                self.renew_lease(&mut state, row).await;
                continue;
            }
            let step = state.next_step(now);
            let outcome = match &step {
                Step::ReadRow | Step::InsertRow(_) | Step::ReplaceRow(_) => self.access_row(&step).await,
                Step::SleepUntil(until) => {
                    let pause = Duration::from_millis(u64::try_from(until.0 - now.0).unwrap_or(0));
                    let _stopped = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                    Outcome::Done
                }
                _ => {
                    let work_folder = self.folder.join(state.owner());
                    let effect = self.carry_out(&step, &work_folder, now);
                    match self.keep_lease(&mut state, effect, &stop).await {
                        Some(outcome) => outcome,
                        None => continue,
                    }
                }
            };
            self.log_outcome(&step, &outcome);
            state.apply(outcome, (self.deps.clock)());
        }
        if let Some(row) = state.release((self.deps.clock)()) {
            // Without the release another process only waits for the end of the lease.
            let _released = self.access_row(&Step::ReplaceRow(row)).await;
        }
        let _removed = fs::remove_dir_all(&self.folder);
    }

    fn log_outcome(&self, step: &Step, outcome: &Outcome) {
        let settings = &self.schedule.settings;
        let (org, schedule) = (settings.org.as_str(), settings.name.as_str());
        match (step, outcome) {
            (Step::PutManifest { day, files }, Outcome::Done) => {
                let rows = super::manifest::count_rows(files);
                metrics::count_rows(settings, rows);
                let day = format_day(*day);
                tracing::info!(org, schedule, day, rows, files = files.len(), "a day is exported");
            }
            (Step::DeleteManifest(day), Outcome::Done) => {
                tracing::info!(org, schedule, day = format_day(*day), "an expired day is deleted");
            }
            (_, Outcome::Postponed(reason)) => {
                tracing::info!(org, schedule, reason, "a scheduled export waits");
            }
            (_, Outcome::Failed(error)) => {
                metrics::count_failure(settings);
                tracing::warn!(org, schedule, error, "a scheduled export failed; it is repeated");
            }
            _ => {}
        }
    }

    async fn access_row(&self, step: &Step) -> Outcome {
        let store = &self.deps.store;
        let result = match step {
            Step::InsertRow(row) => store.insert_new(row).await.map(|outcome| match outcome {
                InsertOutcome::New => Outcome::Done,
                InsertOutcome::Existing(row) => Outcome::Conflict(Some(row)),
            }),
            Step::ReplaceRow(row) => store.replace(row, row.version).await.map(|outcome| match outcome {
                ReplaceOutcome::Done => Outcome::Done,
                ReplaceOutcome::Conflict(row) => Outcome::Conflict(Some(row)),
                ReplaceOutcome::Missing => Outcome::Conflict(None),
            }),
            _ => {
                let settings = &self.schedule.settings;
                let key = ExportSchedule::key(settings.org.clone(), settings.name.clone());
                store.get::<ExportSchedule>(&key).await.map(Outcome::Row)
            }
        };
        result.unwrap_or_else(|error| {
            let schedule = &self.schedule.settings.name;
            tracing::warn!(schedule, %error, "the progress of a scheduled export cannot be read or stored");
            Outcome::StoreFailed
        })
    }

    async fn renew_lease(&self, state: &mut RunState, row: ExportSchedule) {
        let lease = row.lease_until.unwrap_or_default().0 - row.updated_at.0;
        let limit = Duration::from_millis(u64::try_from(lease).unwrap_or(0)) / LEASE_CHECKS;
        let step = Step::ReplaceRow(row.clone());
        // A slow answer must not hide the end of the lease.
        let outcome = timeout(limit, self.access_row(&step)).await.unwrap_or(Outcome::StoreFailed);
        if matches!(outcome, Outcome::StoreFailed) {
            tokio::time::sleep(limit / 2).await;
        }
        state.apply_renewal(row, outcome);
    }

    /// Waits for an effect and renews the lease. `None` if the lease is lost or the process stops; the effect is dropped then.
    async fn keep_lease(
        &self,
        state: &mut RunState,
        effect: BoxFuture<'_, Outcome>,
        stop: &CancellationToken,
    ) -> Option<Outcome> {
        let mut effect = effect;
        loop {
            let lease_left = state.lease_left((self.deps.clock)());
            let margin = state.lease() / LEASE_CHECKS;
            if lease_left <= margin {
                let schedule = &self.schedule.settings.name;
                tracing::warn!(schedule, "the lease of a scheduled export is lost; its process starts again");
                state.forget_row();
                return None;
            }
            tokio::select! {
                outcome = &mut effect => return Some(outcome),
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(margin) => {}
            }
            if let Some(row) = state.renewal((self.deps.clock)()) {
                self.renew_lease(state, row).await;
            }
        }
    }

    fn carry_out<'a>(&'a self, step: &'a Step, work_folder: &'a Path, now: Millis) -> BoxFuture<'a, Outcome> {
        async move {
            let result = match step {
                Step::ExportDay(day) => self.export_day(*day, work_folder).await,
                Step::RemoveManifest(day) => self.remove_manifest(*day).await.map(Outcome::RemovedNames),
                Step::PutFile(file) => self.put_file(file, work_folder).await,
                Step::PutManifest { day, files } => self.put_manifest(*day, files, now).await,
                Step::DeleteFile(name) => self.delete(name).await,
                Step::ListDaysBefore(before) => self.list_days_before(*before).await.map(Outcome::Days),
                Step::DeleteFiles(day) => self.delete_files(*day).await,
                Step::DeleteManifest(day) => self.delete(&manifest_key(*day)).await,
                Step::ReadRow | Step::InsertRow(_) | Step::ReplaceRow(_) | Step::SleepUntil(_) => {
                    Ok(Outcome::Done)
                }
            };
            result.unwrap_or_else(Outcome::Failed)
        }
        .boxed()
    }

    async fn export_day(&self, day: i64, work_folder: &Path) -> Result<Outcome, String> {
        // Closed only with the process.
        let Ok(_slot) = self.export_slots.acquire().await else { return Err("the process stops".to_owned()) };
        let work_error = |error: io::Error| {
            format!(
                "the work folder {} cannot be used: {error}: check its disk, or name another one as export.work_folder",
                work_folder.display()
            )
        };
        // Files of a crashed process are removed as well, because the lease has ended.
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(work_error(error)),
            _ => {}
        }
        create_work_folder(work_folder).map_err(work_error)?;
        let files = self.deps.exporter.export_day(&self.schedule, day, work_folder).await;
        let files = match files {
            Ok(files) => files,
            Err(error) => {
                let text = format!("day {}: {error}", format_day(day));
                return if matches!(error, DayExportError::Early(_)) {
                    Ok(Outcome::Postponed(text))
                } else {
                    Err(text)
                };
            }
        };
        for (at, file) in files.iter().enumerate() {
            let is_repeated = files[..at].iter().any(|other| other.name == file.name);
            let bytes = fs::metadata(work_folder.join(&file.name)).map(|metadata| metadata.len());
            if is_repeated || !is_data_key(&file.name) || !bytes.is_ok_and(|bytes| bytes == file.bytes) {
                let day = format_day(day);
                return Err(format!("day {day}: the exported file {:?} differs from its summary", file.name));
            }
        }
        Ok(Outcome::Files(files))
    }

    async fn remove_manifest(&self, day: i64) -> Result<Vec<String>, String> {
        let key = manifest_key(day);
        let destination = &self.schedule.destination;
        let Some(bytes) = destination.get(&key).await.map_err(|error| error.to_string())? else {
            return Ok(Vec::new());
        };
        // An unreadable manifest is replaced; its files have the same names.
        let names =
            DayManifest::parse(&bytes).map(|manifest| manifest.files.into_iter().map(|file| file.name));
        let names = names.map(Iterator::collect).unwrap_or_default();
        self.delete(&key).await?;
        Ok(names)
    }

    async fn put_file(&self, file: &FileSummary, work_folder: &Path) -> Result<Outcome, String> {
        let put_result = self.schedule.destination.put_file(&file.name, &work_folder.join(&file.name)).await;
        put_result.map(|()| Outcome::Done).map_err(|error| error.to_string())
    }

    async fn put_manifest(&self, day: i64, files: &[FileSummary], now: Millis) -> Result<Outcome, String> {
        let settings = &self.schedule.settings;
        let manifest = DayManifest::new(&settings.name, settings.org.as_str(), day, now, files);
        let mut bytes = serde_json::to_vec_pretty(&manifest).map_err(|error| error.to_string())?;
        bytes.push(b'\n');
        let put_result = self.schedule.destination.put_bytes(&manifest_key(day), Bytes::from(bytes)).await;
        put_result.map_err(|error| error.to_string())?;
        // The files are at the destination now.
        let _removed = fs::remove_dir_all(&self.folder);
        Ok(Outcome::Done)
    }

    async fn delete(&self, key: &str) -> Result<Outcome, String> {
        let deleted = self.schedule.destination.delete(key).await;
        deleted.map(|()| Outcome::Done).map_err(|error| error.to_string())
    }

    async fn list_days_before(&self, before: i64) -> Result<Vec<i64>, String> {
        let keys =
            self.schedule.destination.list(MANIFEST_FOLDER).await.map_err(|error| error.to_string())?;
        Ok(keys.iter().filter_map(|key| day_of_manifest(key)).filter(|day| *day < before).collect())
    }

    async fn delete_files(&self, day: i64) -> Result<Outcome, String> {
        let key = manifest_key(day);
        let bytes = self.schedule.destination.get(&key).await.map_err(|error| error.to_string())?;
        let Some(bytes) = bytes else { return Ok(Outcome::Done) };
        let manifest = DayManifest::parse(&bytes).map_err(|reason| {
            format!(
                "the expired day {} is kept, because {key} is no manifest: {reason}: delete it and its files",
                format_day(day)
            )
        })?;
        for file in &manifest.files {
            self.delete(&file.name).await?;
        }
        Ok(Outcome::Done)
    }
}

/// Creates a folder that only its owner may read, because it holds data of platforms.
fn create_work_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
