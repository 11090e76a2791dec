//! `tidegate bundle convert`: converts another tool's export to a bundle, or a bundle to tables.

pub(super) mod option_values;
pub(super) mod progress;

use std::{
    env, fs, io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    thread,
};

use anyhow::{Context as _, bail};
use clap::Args;
use tidegate_exporter::{
    convert::{self, Format, Job, Limits, Overrides, Report, Target},
    error::ConvertError,
    form::K_DEFAULT,
    meter::Meter,
    plural::format_count,
    privacy::Key,
    sources::{
        aoi,
        polis::{self, VoteSign},
    },
    tables::Cells,
    timestamp::Timestamp,
};

use self::{
    option_values::{
        OutputFormat, Package, Participants, Profile, SidecarArg, SourceFormat, Text, Variant, VoterIds,
        sidecars, table_format, vote_sign,
    },
    progress::{Progress, ProgressForm},
};
use super::schema::Constants;
use crate::output::{print_error, print_line};

#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// Files, a folder or a zip archive, optionally compressed with gzip or zstd; `-` reads standard input
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Bundle to write; `-` writes to standard output
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Tool that the export comes from; detected by default
    #[arg(long, value_name = "FORMAT")]
    from: Option<SourceFormat>,
    /// Polis: variant of the export; detected by default
    #[arg(long, value_name = "A-F", ignore_case = true)]
    variant: Option<Variant>,
    /// Polis: value that means agreement, overriding the declaration of the export
    #[arg(long, value_name = "agree=+1|agree=-1", value_parser = vote_sign)]
    vote_sign: Option<VoteSign>,
    /// Polis: id of the participant that the organizer's statements belong to; may be repeated
    #[arg(long, value_name = "ID")]
    organizer: Vec<String>,
    /// All Our Ideas: skip reason that means that both ideas are equal, instead of the known ones
    #[arg(long, value_name = "TEXT")]
    equal_reason: Vec<String>,
    /// Write this format instead of a bundle; `-o` then names a folder
    #[arg(long, value_name = "SHAPE")]
    to: Option<OutputFormat>,
    /// Tables: do not escape cells that a spreadsheet could run as formulas
    #[arg(long, requires = "to")]
    exact_cells: bool,
    /// Tables of votes: naming of participants
    #[arg(long, value_name = "IDS", default_value = "numbers")]
    voter_ids: VoterIds,
    /// Further format to write beside the bundle: `parquet` (without outcomes; the default above 16 MiB), `ndjson` or
    /// `none`
    #[arg(long, value_name = "FORM", value_delimiter = ',')]
    sidecar: Vec<SidecarArg>,
    /// Write `datapackage.json` and `manifest-sha256.txt`, which describe the bundle and its sidecars
    #[arg(long, value_name = "KIND")]
    package: Option<Package>,
    /// Package: license as an SPDX id, `LicenseRef-` and a name, or a URI
    #[arg(long, value_name = "ID|URI", requires = "package")]
    license: Option<String>,
    /// Keep every answer, not only the latest of each participant
    #[arg(long)]
    events: bool,
    #[command(flatten)]
    privacy: Privacy,
    #[command(flatten)]
    constants: Constants,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    running: ExecutionOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Privacy of participants")]
struct Privacy {
    /// Write each answer under a pseudonym, or only counts that may be public
    #[arg(long, value_name = "PROFILE", default_value = "private")]
    profile: Profile,
    /// Minimum number of people behind each figure of a public bundle
    #[arg(long, value_name = "COUNT", default_value_t = K_DEFAULT)]
    k: u64,
    /// Treatment of participants' texts; default: `keep` in a private bundle, `redact` in a public one
    #[arg(long, value_name = "TREATMENT")]
    text: Option<Text>,
    /// Name of the reviewer of the texts in a public bundle
    #[arg(long, value_name = "NAME")]
    text_reviewed_by: Option<String>,
    /// Naming of participants in a private bundle
    #[arg(long, value_name = "IDS", default_value = "pseudonyms")]
    participants: Participants,
    /// Key file for pseudonyms, so that bundles made with the same key can be linked; default: a fresh key
    #[arg(long, value_name = "FILE")]
    linkage_key_file: Option<PathBuf>,
    /// Mark the bundle as not to be shared, even if its content would allow it
    #[arg(long)]
    not_for_sharing: bool,
    /// Limitation to add to the bundle's data card
    #[arg(long, value_name = "TEXT")]
    limitation: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Description of the source")]
struct Source {
    /// Id of the source; pseudonyms of different sources differ
    #[arg(long, value_name = "ID")]
    source_id: Option<String>,
    /// Title, instead of the one in the export
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Description, instead of the one in the export
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Address of the source, instead of the one in the export
    #[arg(long, value_name = "URL")]
    source_url: Option<String>,
    /// Truncate a title or description that is too long
    #[arg(long)]
    truncate_metadata: bool,
    /// Creation time of the bundle; default: `SOURCE_DATE_EPOCH`, otherwise the current time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    as_of: Option<Timestamp>,
    /// Id of the bundle; default: derived from its content
    #[arg(long, value_name = "ID")]
    bundle_id: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Execution")]
struct ExecutionOptions {
    /// Print the content of the bundle, or the reason against it, without writing files
    #[arg(long)]
    dry_run: bool,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    /// Number of threads: with 1, one thread sorts and writes rows, otherwise two; default: the number of cores
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    /// Memory in megabytes for sorting rows; larger inputs are sorted on disk
    #[arg(long, value_name = "MB", default_value_t = Limits::default().sort_memory >> 20)]
    memory: usize,
    /// Maximum size in megabytes of one input row
    #[arg(long, value_name = "MB", default_value_t = Limits::default().max_row_bytes >> 20)]
    max_record: usize,
    /// Maximum ratio of a large file's unpacked to its packed size
    #[arg(long, value_name = "TIMES", default_value_t = Limits::default().max_expansion)]
    max_expansion: u64,
    /// Maximum number of files in one folder or archive
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().max_files)]
    max_files: usize,
    /// Report progress on standard error; default: only on a terminal
    #[arg(long, value_name = "FORM")]
    progress: Option<Progress>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Convert {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let (json, progress_form) = (self.running.json, ProgressForm::new(self.running.progress));
        let job = self.into_job()?;
        run_job(&job, json, &progress_form, |meter| convert::convert(&job, meter))
    }

    fn into_job(self) -> anyhow::Result<Job> {
        let target = output_target(self.out)?;
        let exported_at = export_time(self.source.as_of)?;
        let (privacy, source, running) = (self.privacy, self.source, self.running);
        let key = privacy.linkage_key_file.as_deref().map(read_key).transpose()?;
        let mut aoi_options = aoi::Options::default();
        // The option replaces the known reasons, so without it they must stay.
        if !self.equal_reason.is_empty() {
            aoi_options.equal_reasons = self.equal_reason;
        }
        Ok(Job {
            exported_at,
            input_format: self.from.map(Into::into),
            polis: polis::Options {
                variant: self.variant.map(Into::into),
                vote_sign: self.vote_sign,
                organizers: self.organizer,
            },
            aoi: aoi_options,
            profile: privacy.profile.into(),
            k: privacy.k,
            texts: privacy.text.map(Into::into),
            text_reviewed_by: privacy.text_reviewed_by,
            not_for_sharing: privacy.not_for_sharing,
            limitations: privacy.limitation,
            participants: privacy.participants.into(),
            key,
            key_file: privacy.linkage_key_file,
            events: self.events,
            naming: self.constants.naming(),
            schema_url: self.constants.schema_url,
            bundle_id: source.bundle_id,
            overrides: Overrides {
                id: source.source_id,
                title: source.title,
                description: source.description,
                url: source.source_url,
            },
            truncate_metadata: source.truncate_metadata,
            limits: Limits {
                // A limit of zero would refuse every row.
                max_row_bytes: bytes(running.max_record.max(1)),
                max_expansion: running.max_expansion,
                max_files: running.max_files,
                sort_memory: bytes(running.memory),
            },
            threads: running
                .threads
                .unwrap_or_else(|| thread::available_parallelism().map_or(1, std::num::NonZero::get)),
            force: running.force,
            dry_run: running.dry_run,
            sidecars: sidecars(&self.sidecar)?,
            package: self.package.is_some(),
            license: self.license,
            table_format: self.to.and_then(table_format),
            cells: if self.exact_cells { Cells::Exact } else { Cells::Guarded },
            voter_ids: self.voter_ids.into(),
            ..Job::new(self.inputs, target)
        })
    }
}

/// Runs a job with progress and stop signals, and prints its report.
pub(super) fn run_job(
    job: &Job,
    json: bool,
    progress_form: &ProgressForm,
    run: impl FnOnce(&Arc<Meter>) -> Result<Report, ConvertError>,
) -> anyhow::Result<ExitCode> {
    let to_stdout = matches!(job.target, Target::Stream(_));
    let meter = Arc::new(Meter::default());
    stop_on_signal(&meter)?;
    let progress_thread = progress_form.watch(&meter);
    let result = run(&meter);
    // Ends the line of the progress before the report is printed below it.
    drop(progress_thread);
    match result {
        // Standard output carries the bundle, so the report is printed on standard error.
        Ok(report) if to_stdout && !job.dry_run => {
            report_lines(&report, job.dry_run).iter().for_each(print_error);
            Ok(ExitCode::SUCCESS)
        }
        Ok(report) => {
            if json {
                print_line(serde_json::to_string(&report)?);
            } else {
                report_lines(&report, job.dry_run).iter().for_each(print_line);
            }
            Ok(ExitCode::SUCCESS)
        }
        // Faults of the content have exit code 1, all other errors have code 2.
        Err(error @ ConvertError::Content { .. }) => {
            print_error(format!("error: {error}"));
            Ok(ExitCode::FAILURE)
        }
        Err(error @ ConvertError::Stopped { .. }) => {
            bail!("{error}; no output was kept: run the same command again")
        }
        Err(error) => Err(error.into()),
    }
}

/// Output of a bundle; `-` is standard output.
pub(super) fn output_target(out: PathBuf) -> anyhow::Result<Target> {
    if out.as_os_str() != "-" {
        return Ok(Target::File(out));
    }
    // Not `io::stdout()` itself, which flushes at each end of a line.
    let stream = io::stdout().as_fd().try_clone_to_owned().context("standard output")?;
    Ok(Target::Stream(Arc::new(stream.into())))
}

/// Time of an export from `--as-of` or the environment; `None` for the current time.
pub(super) fn export_time(as_of: Option<Timestamp>) -> anyhow::Result<Option<Timestamp>> {
    match as_of {
        Some(at) => Ok(Some(at)),
        // Reproducible builds set the time of their outputs with `SOURCE_DATE_EPOCH`.
        None => source_date_epoch(),
    }
}

/// Reads the key of the pseudonyms, and warns if other users can read its file.
pub(super) fn read_key(path: &Path) -> anyhow::Result<Key> {
    let contents = fs::read(path).and_then(|bytes| Ok((bytes, fs::metadata(path)?)));
    let (bytes, file) = contents.with_context(|| format!("reading {}", path.display()))?;
    if let Some(mode) = Key::exposed_mode(&file) {
        print_error(format!(
            "warning: {} has mode {mode:04o}, so other users can read the key: run chmod 600",
            path.display()
        ));
    }
    Key::from_bytes(bytes).context("--linkage-key-file: a key has at least 16 bytes")
}

/// Converts megabytes to bytes; a number that overflows means no limit.
pub(super) fn bytes(megabytes: usize) -> usize {
    megabytes.saturating_mul(1 << 20)
}

/// Ends the conversion at its next block on the first signal, and the process at once on the second.
fn stop_on_signal(meter: &Arc<Meter>) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt) = {
        // Registered before the conversion starts, so that an early signal is not missed.
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let meter = Arc::clone(meter);
    // A thread of its own: the conversion is synchronous and occupies the main one.
    thread::spawn(move || {
        runtime.block_on(async {
            for is_second in [false, true] {
                tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () }
                if is_second {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "the second signal asks not to wait for anything"
                    )]
                    std::process::exit(crate::output::REFUSED.into());
                }
                meter.stop();
            }
        });
    });
    Ok(())
}

fn report_lines(report: &Report, dry_run: bool) -> Vec<String> {
    let summary = format!("{} {}", if dry_run { "would write" } else { "wrote" }, report.files.join(", "));
    if report.format == Format::Bundle.name() {
        let notes = report.notes.iter().map(|note| format!("note: {note}"));
        return notes.chain([summary]).chain(dry_run.then(|| "no files were written".to_owned())).collect();
    }
    let variant = report.variant.map_or_else(String::new, |variant| format!(", variant {variant}"));
    let mut lines = vec![
        format!("read as {}{variant}", report.format),
        format!(
            "{}, {}, {}, coverage {:.6}",
            format_count(report.items, "item"),
            format_count(report.participants, "participant"),
            format_count(report.responses, "response"),
            report.coverage
        ),
        format!(
            "publication status {}; suitable for public sharing: {}",
            report.publication,
            yes_no(report.suitable)
        ),
    ];
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    if let Some(id) = &report.bundle_id {
        lines.push(format!("{id}, {}", format_count(report.bytes, "byte")));
    }
    if !report.files.is_empty() {
        lines.push(summary);
    }
    if dry_run {
        lines.push("no files were written".to_owned());
    }
    lines
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn source_date_epoch() -> anyhow::Result<Option<Timestamp>> {
    let Ok(seconds) = env::var("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let seconds = seconds.parse().ok().and_then(Timestamp::from_seconds);
    seconds.map(Some).context("SOURCE_DATE_EPOCH is not a count of seconds")
}

pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).ok_or_else(|| "not a time such as 2026-01-02T03:04:05Z".to_owned())
}
