//! Role `export`: runs the exports of `export.schedules`.

use std::{
    fs::{self, File},
    io::Read as _,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use futures::{FutureExt as _, future::BoxFuture};
use sha2::{Digest as _, Sha256};
use tidegate_exporter::{
    convert::{Job, Target},
    deliberation::{self, Snapshot},
    flat::{Export, ExportOptions, ExportTarget, FlatFormat, Partition},
    meter::Meter,
    privacy::{Key, Profile},
    schedule::{
        self, BundleProfile, BundleSettings, ColumnProfile, DayExport, DayExportError, Deps, FileFormat,
        FileSummary, Schedule,
    },
};
use tidegate_history::{Dataset, Part, snapshot::SnapshotError};
use tidegate_schemas::ids::{DAY_MS, Millis};
use tidegate_store::{Store, system_clock};
use tidegate_stream::consumer::inbox::DrainResult;
use tokio::runtime::Handle;

use crate::{
    history_source::{HistoryLines, HistorySource, SourceRequest, copy_rows},
    roles::{Phase, Role},
    settings::Settings,
};

pub(crate) const ROLE_NAME: &str = "export";

/// Folder for files before they are sent, below the data folder.
const WORK_FOLDER: &str = "export";

/// Writes single days from the store. Child-safety material is left out.
struct StoreDayExport {
    store: Store,
    catalog: tidegate_catalog::Settings,
}

impl DayExport for StoreDayExport {
    fn export_day<'a>(
        &'a self,
        schedule: &'a Schedule,
        day: i64,
        folder: &'a Path,
    ) -> BoxFuture<'a, Result<Vec<FileSummary>, DayExportError>> {
        async move {
            let period = Millis(day * DAY_MS)..Millis((day + 1) * DAY_MS);
            let snapshot = match tidegate_history::load_snapshot_time(&self.store).await {
                Ok(snapshot) => snapshot,
                // As right after a start, when the processors have not reported yet.
                Err(error @ SnapshotError::NotProcessed { .. }) => {
                    return Err(DayExportError::Early(error.to_string()));
                }
                Err(error) => return Err(to_failure(error)),
            };
            if snapshot.time < period.end {
                let reason =
                    format!("events until {} are all stored, and the day is not over", snapshot.time.iso());
                return Err(DayExportError::Early(snapshot.describe_delay(Millis::now()).unwrap_or(reason)));
            }
            let source = HistorySource::Tables {
                store: self.store.clone(),
                org: schedule.settings.org.clone(),
                with_child_safety: false,
                catalog: Box::new(self.catalog.clone()),
            };
            let mut files = Vec::new();
            for dataset in &schedule.settings.datasets {
                files.extend(
                    export_dataset(&source, schedule, *dataset, &period, folder).await.map_err(to_failure)?,
                );
            }
            if let Some(bundle) = &schedule.settings.bundle {
                files.extend(export_bundle(source, bundle, day, period, folder).await.map_err(to_failure)?);
            }
            Ok(files)
        }
        .boxed()
    }
}

fn to_failure(error: impl Into<anyhow::Error>) -> DayExportError {
    DayExportError::Failed(format!("{:#}", error.into()))
}

/// Writes a dataset as `<dataset>/day=...`.
async fn export_dataset(
    source: &HistorySource,
    schedule: &Schedule,
    dataset: Dataset,
    period: &Range<Millis>,
    folder: &Path,
) -> anyhow::Result<Vec<FileSummary>> {
    let settings = &schedule.settings;
    let format = match settings.format {
        FileFormat::Parquet => FlatFormat::Parquet,
        FileFormat::Ndjson => FlatFormat::Ndjson,
        FileFormat::Csv => FlatFormat::Csv,
    };
    let path = folder.join(dataset.as_str());
    let target = ExportTarget::Folder { path, partition: Partition::Day };
    let mut options = ExportOptions {
        dsa: settings.profile == Some(ColumnProfile::Dsa),
        since: period.start,
        until: period.end,
        ..ExportOptions::new(dataset, target, format)
    };
    let columns = (!settings.columns.is_empty()).then(|| settings.columns.join(","));
    options.select_columns(columns.as_deref())?;
    let mut export = Export::open(options)?;
    let request = SourceRequest {
        dataset,
        since: period.start,
        until: period.end,
        part: Part::WHOLE,
        with_child_safety: false,
    };
    copy_rows(source, request, None, |row| {
        export.write_row(row)?;
        Ok(())
    })
    .await?;
    let files = export.finish()?.manifest.files.into_iter().map(|file| FileSummary {
        name: format!("{dataset}/{}", file.name),
        rows: file.rows,
        bytes: file.bytes,
        sha256: file.sha256,
    });
    Ok(files.collect())
}

/// Writes a bundle and its tables as `bundle/day=.../bundle.json`.
async fn export_bundle(
    source: HistorySource,
    settings: &BundleSettings,
    day: i64,
    period: Range<Millis>,
    folder: &Path,
) -> anyhow::Result<Vec<FileSummary>> {
    let day_folder = format!("bundle/day={}", &Millis(day * DAY_MS).iso()[..10]);
    let path = folder.join(&day_folder);
    fs::create_dir_all(&path)?;
    let job = bundle_job(settings, path.join("bundle.json"))?;
    let snapshot = Snapshot::of(&period).context("the day is out of range")?;
    let (org, policies) = (source.load_org().await?, source.load_policies().await?);
    let handle = Handle::current();
    let write = move || {
        let (since, until) = (period.start, period.end);
        let mut lines = HistoryLines { handle, source: &source, pace: None, since, until };
        deliberation::export_bundle(
            &job,
            org.as_str(),
            snapshot,
            &policies,
            &mut lines,
            &Arc::new(Meter::default()),
        )
    };
    // Building a bundle sorts and writes without a pause, which would hold a worker.
    let report = tokio::task::spawn_blocking(write).await??;
    let mut files = Vec::new();
    for entry in fs::read_dir(&path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push(FileSummary {
            name: format!("{day_folder}/{name}"),
            rows: report.responses,
            bytes: entry.metadata()?.len(),
            sha256: digest_file(&entry.path())?,
        });
    }
    files.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(files)
}

fn bundle_job(settings: &BundleSettings, path: PathBuf) -> anyhow::Result<Job> {
    let key = match &settings.linkage_key_file {
        Some(file) => {
            let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
            Some(
                Key::from_bytes(bytes)
                    .context("export.schedules.bundle.linkage_key_file: a key has at least 16 bytes")?,
            )
        }
        None => None,
    };
    let job = Job::new(Vec::new(), Target::File(path));
    Ok(Job {
        profile: match settings.profile {
            BundleProfile::Private => Profile::Private,
            BundleProfile::Public => Profile::Public,
        },
        k: settings.k.map_or(job.k, u64::from),
        key,
        key_file: settings.linkage_key_file.clone(),
        // Rows hold no texts of participants, so there are none to treat.
        texts: None,
        ..job
    })
}

fn digest_file(path: &Path) -> anyhow::Result<String> {
    let mut hasher = Sha256::new();
    let (mut file, mut block) = (File::open(path)?, vec![0; 1 << 16]);
    loop {
        let length = file.read(&mut block)?;
        if length == 0 {
            break;
        }
        hasher.update(&block[..length]);
    }
    Ok(tidegate_schemas::hex(&hasher.finalize()))
}

/// Creates the role. The destinations are opened again, because their variables and files may have changed since the check.
pub(crate) fn create_role(settings: &Settings, store: &Store) -> anyhow::Result<Role> {
    let schedules = settings.export.open(|name| std::env::var(name).ok())?;
    let deps = Deps {
        store: store.clone(),
        exporter: Arc::new(StoreDayExport { store: store.clone(), catalog: settings.catalog.clone() }),
        clock: system_clock(),
        work_folder: settings.data.folder.join(WORK_FOLDER),
    };
    let export_settings = settings.export.clone();
    Ok(Role::new(ROLE_NAME, Phase::Worker, move |stop| async move {
        schedule::run(deps, export_settings, schedules, stop).await?;
        // A day in work is dropped at a stop and exported again later, so no work is lost.
        Ok(DrainResult::Clean)
    }))
}
