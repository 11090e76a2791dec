//! `tidegate export`: writes a dataset of the history to files.

mod period;

use std::{
    fs::File,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use tidegate_exporter::{
    error::ConvertError,
    flat::{
        Export, ExportOptions, ExportTarget, FlatFormat, Partition, RowFilter, join_parts,
        progress::{ExportProgress, ProgressForm},
    },
    meter::Meter,
    plural::format_count,
    tables::Cells,
};
use tidegate_history::{Dataset, Part};
use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_store::Store;

pub(crate) use self::period::Period;
use crate::{
    client::Server,
    history_source::{HistorySource, Pace, SourceRequest, copy_rows, time_of},
    output::{REFUSED, print_error, print_line},
    settings::StoreEngine,
};

#[derive(Debug, Subcommand)]
pub(crate) enum ExportCommand {
    /// Submissions of items; their data only with `--columns`
    Items(Box<DatasetExport>),
    /// Results of rules and media of evaluated submissions
    Evaluations(Box<DatasetExport>),
    /// Reports of users
    Reports(Box<DatasetExport>),
    /// Review jobs in their present state
    Jobs(Box<DatasetExport>),
    /// Decisions of moderators and of the platform
    Decisions(Box<DatasetExport>),
    /// Appeals of users
    Appeals(Box<DatasetExport>),
    /// Actions by rules, moderators, thresholds and the platform
    Actions(Box<DatasetExport>),
    /// Strikes of users and their reversals
    Strikes(Box<DatasetExport>),
    /// Callbacks of the last 30 days
    Deliveries(Box<DatasetExport>),
    /// Requests that changed or exported data
    Audit(Box<DatasetExport>),
    /// Check the parts that several processes wrote into a folder, and write their common manifest
    Join {
        /// Folder with all parts
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DatasetExport {
    #[command(flatten)]
    period: Period,
    /// Format of the files
    #[arg(long, default_value = "ndjson", value_parser = parse_format)]
    format: FlatFormat,
    /// File to write; `-` writes to standard output; with --partition-by or --part a folder
    #[arg(short, long, value_name = "FILE|DIR")]
    out: PathBuf,
    /// Write one file a day into the folder, as DIR/day=2026-11-01/...
    #[arg(long, value_name = "UNIT", value_parser = ["day"])]
    partition_by: Option<String>,
    /// Columns to write, separated by commas; default: all columns of the dataset but those with content of users
    #[arg(long, value_name = "NAMES")]
    columns: Option<String>,
    /// Write only rows with this value, such as queue=default; may be repeated
    #[arg(long = "where", value_name = "COLUMN=VALUE")]
    conditions: Vec<String>,
    /// `dsa`: write statements of reasons for the transparency database of the European Union
    #[arg(long, value_name = "PROFILE", value_parser = ["dsa"])]
    profile: Option<String>,
    /// In CSV, put an apostrophe before texts that a spreadsheet would run as formulas
    #[arg(long)]
    safe_cells: bool,
    /// Write only this part of the export, such as 1/4; other processes write the others into the same folder
    #[arg(long, value_name = "N/COUNT", default_value = "1/1")]
    part: Part,
    /// Replace an existing export
    #[arg(long)]
    force: bool,
    /// Count rows and estimate the size, without writing files
    #[arg(long)]
    dry_run: bool,
    /// Progress on standard error: text, json or none; default: text on a terminal
    #[arg(long, value_name = "FORM", value_parser = parse_progress)]
    progress: Option<ProgressForm>,
    #[command(flatten)]
    source: SourceArgs,
}

/// Place to read from.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    server: Server,
    /// Read the tables of the cluster that the settings file names, without a running process
    #[arg(long)]
    direct: bool,
    /// With --direct: include child-safety material
    #[arg(long, requires = "direct")]
    child_safety: bool,
    /// With --direct: greatest number of rows to read in a second, so that the service keeps its speed
    #[arg(long, value_name = "COUNT", requires = "direct")]
    rows_per_second: Option<u32>,
    /// Settings file; default: ./tidegate.toml if it exists
    #[arg(long, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

fn parse_format(text: &str) -> Result<FlatFormat, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn parse_progress(text: &str) -> Result<ProgressForm, String> {
    text.parse().map_err(|error| format!("{error}"))
}

impl ExportCommand {
    /// Returns the exit code: 0 for success, 1 for invalid content, 2 for all other errors.
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let (dataset, export) = match self {
            Self::Join { folder } => return Ok(exit_code(join(&folder))),
            Self::Items(export) => (Dataset::Items, export),
            Self::Evaluations(export) => (Dataset::Evaluations, export),
            Self::Reports(export) => (Dataset::Reports, export),
            Self::Jobs(export) => (Dataset::Jobs, export),
            Self::Decisions(export) => (Dataset::Decisions, export),
            Self::Appeals(export) => (Dataset::Appeals, export),
            Self::Actions(export) => (Dataset::Actions, export),
            Self::Strikes(export) => (Dataset::Strikes, export),
            Self::Deliveries(export) => (Dataset::Deliveries, export),
            Self::Audit(export) => (Dataset::Audit, export),
        };
        let result = export.run(dataset).await;
        Ok(exit_code(result))
    }
}

/// Prints an error and returns the exit code of the result.
pub(crate) fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    print_error(format!("error: {error:#}"));
    match error.downcast_ref::<ConvertError>() {
        Some(ConvertError::Content { .. }) => ExitCode::FAILURE,
        _ => ExitCode::from(REFUSED),
    }
}

fn join(folder: &Path) -> anyhow::Result<()> {
    let manifest = join_parts(folder, &Meter::default())?;
    print_line(format!(
        "{}: {} in {} of {}",
        folder.display(),
        format_count(manifest.rows, "row"),
        format_count(manifest.files.len() as u64, "file"),
        format_count(manifest.parts.into(), "part")
    ));
    Ok(())
}

impl SourceArgs {
    /// Returns the organisation of the option `--org`.
    pub(crate) fn org(&self) -> Option<&str> {
        self.server.org()
    }

    pub(crate) async fn open(self) -> anyhow::Result<(HistorySource, Option<Pace>)> {
        let Self { server, direct, child_safety, rows_per_second, config } = self;
        if !direct {
            return Ok((HistorySource::Server(server.open(config.as_deref())?), None));
        }
        let settings = crate::settings::load(config.as_deref(), Vec::new())?.settings;
        if settings.store.engine == StoreEngine::Embedded {
            bail!(
                "--direct reads a cluster, and store.engine is `embedded`, which only one process can open: leave \
                 --direct out while `tidegate up` runs"
            );
        }
        let org = OrgId::new(server.org().unwrap_or("default"));
        let store = Store::open_cql(settings.store.cql).await?;
        let catalog = Box::new(settings.catalog);
        let source = HistorySource::Tables { store, org, with_child_safety: child_safety, catalog };
        Ok((source, rows_per_second.map(Pace::new)))
    }
}

impl DatasetExport {
    async fn run(self, dataset: Dataset) -> anyhow::Result<()> {
        let now = Millis::now();
        let since = self.period.parse_since(now)?;
        let until = self.period.parse_until(since, now)?;
        if self.part != Part::WHOLE && until.is_none() {
            bail!("--part needs --until, and an instant in --since, so that all parts have the same period");
        }
        let mut options = self.options(dataset)?;
        let dry_run = self.dry_run;
        let progress_form = ProgressForm::detect(self.progress);
        let part = self.part;
        let (source, pace) = self.source.open().await?;
        let until = source.resolve_until(until).await?;
        (options.since, options.until) = (since, until);
        let request = SourceRequest { dataset, since, until, part, with_child_safety: true };
        let stop = listen_for_stop()?;
        let run = async {
            if dry_run {
                return estimate(&source, request, &options).await;
            }
            let mut export = Export::open(options)?;
            let progress = ExportProgress::start(progress_form, since, until);
            copy_rows(&source, request, pace, |row| {
                export.write_row(row)?;
                progress.record_row(time_of(row));
                Ok(())
            })
            .await?;
            drop(progress);
            let summary = export.finish()?;
            let manifest = &summary.manifest;
            // Standard output may be the exported file.
            print_error(format!(
                "{}, {}",
                format_count(manifest.rows, "row"),
                format_count(manifest.bytes, "byte")
            ));
            Ok(())
        };
        let result = tokio::select! {
            result = run => result,
            // Dropping the export removes its unfinished files.
            () = stop => Err(anyhow::anyhow!("stopped by a signal; no file was written")),
        };
        source.close().await?;
        result
    }

    fn options(&self, dataset: Dataset) -> anyhow::Result<ExportOptions> {
        let partition = if self.partition_by.is_some() { Partition::Day } else { Partition::Whole };
        let is_folder = self.partition_by.is_some() || self.part != Part::WHOLE || self.out.is_dir();
        let target = if self.out.as_os_str() == "-" {
            let stdout = std::io::stdout().as_fd().try_clone_to_owned().context("standard output")?;
            ExportTarget::Stream(Arc::new(File::from(stdout)))
        } else if is_folder {
            ExportTarget::Folder { path: self.out.clone(), partition }
        } else {
            ExportTarget::File(self.out.clone())
        };
        let mut options = ExportOptions {
            filter: RowFilter::parse(dataset.columns(), &self.conditions)?,
            dsa: self.profile.is_some(),
            cells: if self.safe_cells { Cells::Guarded } else { Cells::Exact },
            part: self.part,
            force: self.force,
            ..ExportOptions::new(dataset, target, self.format)
        };
        options.select_columns(self.columns.as_deref())?;
        Ok(options)
    }
}

/// Counts the rows and their bytes as NDJSON, without writing them.
async fn estimate(
    source: &HistorySource,
    request: SourceRequest,
    options: &ExportOptions,
) -> anyhow::Result<()> {
    let (mut rows, mut bytes, mut line) = (0_u64, 0_u64, Vec::new());
    let mut days = std::collections::BTreeSet::new();
    copy_rows(source, request, None, |row| {
        if options.filter.matches(row) {
            line.clear();
            tidegate_history::ndjson::write_row(request.dataset.columns(), row, &mut line);
            rows += 1;
            bytes += line.len() as u64;
            days.insert(time_of(row).day());
        }
        Ok(())
    })
    .await?;
    print_line(format!(
        "{} on {}, about {} as NDJSON with all columns",
        format_count(rows, "row"),
        format_count(days.len() as u64, "day"),
        format_count(bytes, "byte")
    ));
    Ok(())
}

/// Returns a future that ends with the first SIGTERM or SIGINT.
pub(crate) fn listen_for_stop() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
