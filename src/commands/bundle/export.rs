//! `tidegate bundle export`: writes a bundle of the service's own moderation.

use std::{num::NonZero, path::PathBuf, process::ExitCode, thread};

use clap::Args;
use tidegate_exporter::{
    convert::{Job, Limits, Overrides},
    deliberation::{HistoryFolder, Snapshot, export_bundle},
    form::K_DEFAULT,
    timestamp::Timestamp,
};

use super::convert::{
    bytes, export_time, moment,
    option_values::{Profile, SidecarArg, Text, sidecars},
    output_target,
    progress::{Progress, ProgressForm},
    read_key, run_job,
};

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Bundle to write; `-` writes to standard output
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Folder with the datasets reports, decisions, appeals and actions as `tidegate export` writes them
    /// (`reports.ndjson`, or a folder `reports`), and `policies.json`
    #[arg(long, value_name = "DIR")]
    events: PathBuf,
    /// Organisation of the rows; pseudonyms of different organisations differ
    #[arg(long, value_name = "ID", default_value = "default")]
    org: String,
    /// Start of the period, such as 2026-11-01T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Timestamp,
    /// End of the period, which is not part of it
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Timestamp,
    /// Creation time of the bundle; default: `SOURCE_DATE_EPOCH`, otherwise the current time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    as_of: Option<Timestamp>,
    /// Title of the bundle
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Address of the platform or its transparency page
    #[arg(long, value_name = "URL")]
    source_url: Option<String>,
    /// Further format to write beside the bundle: `parquet` (without outcomes; the default above 16 MiB), `ndjson` or
    /// `none`
    #[arg(long, value_name = "FORM", value_delimiter = ',')]
    sidecar: Vec<SidecarArg>,
    #[command(flatten)]
    privacy: Privacy,
    #[command(flatten)]
    running: ExecutionOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Privacy of participants")]
struct Privacy {
    /// Write each report, answer and appeal under a pseudonym, or only counts that may be public
    #[arg(long, value_name = "PROFILE", default_value = "private")]
    profile: Profile,
    /// Minimum number of people behind each figure of a public bundle, whose counts are multiples of it
    #[arg(long, value_name = "COUNT", default_value_t = K_DEFAULT)]
    k: u64,
    /// Treatment of participants' texts. Reasons and payloads are never written, so the bundle is the same for each value
    #[arg(long, value_name = "TREATMENT")]
    text: Option<Text>,
    /// Key file for pseudonyms, so that bundles made with the same key can be linked; default: a fresh key
    #[arg(long, value_name = "FILE")]
    linkage_key_file: Option<PathBuf>,
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
    /// Report progress on standard error; default: only on a terminal
    #[arg(long, value_name = "FORM")]
    progress: Option<Progress>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Export {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let (json, progress_form) = (self.running.json, ProgressForm::new(self.running.progress));
        let (events, org) = (self.events.clone(), self.org.clone());
        let snapshot = Snapshot { since: self.since, until: self.until };
        let job = self.into_job()?;
        run_job(&job, json, &progress_form, |meter| {
            let mut folder = HistoryFolder::open(&events, &job.limits, meter)?;
            let job = Job { inputs: folder.files(), ..job.clone() };
            let policies = folder.policies()?;
            export_bundle(&job, &org, snapshot, &policies, &mut folder, meter)
        })
    }

    fn into_job(self) -> anyhow::Result<Job> {
        let (privacy, running) = (self.privacy, self.running);
        Ok(Job {
            exported_at: export_time(self.as_of)?,
            profile: privacy.profile.into(),
            k: privacy.k,
            texts: privacy.text.map(Into::into),
            key: privacy.linkage_key_file.as_deref().map(read_key).transpose()?,
            key_file: privacy.linkage_key_file,
            overrides: Overrides { title: self.title, url: self.source_url, ..Overrides::default() },
            limits: Limits { sort_memory: bytes(running.memory), ..Limits::default() },
            threads: running
                .threads
                .unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZero::get)),
            force: running.force,
            dry_run: running.dry_run,
            sidecars: sidecars(&self.sidecar)?,
            ..Job::new(Vec::new(), output_target(self.out)?)
        })
    }
}
