//! Makes a bundle of the service's own moderation from rows of its history.
//!
//! The unit is the claim "this item breaks this policy": users agree with it by reports and disagree by appeals,
//! moderators answer it by decisions. `convert` writes the bundle, `privacy` decides about pseudonyms and suppression.

mod claims;
mod event;
mod folder;
mod header;
mod rows;

use std::{ops::Range, path::Path, sync::Arc};

use serde::Deserialize;
use tidegate_history::Dataset;
use tidegate_schemas::ids::Millis;

pub use self::folder::HistoryFolder;
use self::{claims::ClaimCollector, header::SourceDescription};
use crate::{
    convert::{Job, PreparedConversion, PreparedSource, Report},
    error::ConvertError,
    meter::Meter,
    privacy::{
        ParticipantNaming,
        participants::{ParticipantRegistry, scope},
    },
    timestamp::Timestamp,
};

/// Datasets that a bundle is made of.
pub const DATASETS: [Dataset; 4] = [Dataset::Reports, Dataset::Decisions, Dataset::Appeals, Dataset::Actions];

const TOOL: &str = "tidegate";

/// Period of a bundle. Rows are selected by the time of their record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// First time of the period.
    pub since: Timestamp,
    /// End of the period, which is not part of it.
    pub until: Timestamp,
}

impl Snapshot {
    /// Returns `None` for times beyond the years 0 to 9999.
    pub fn of(period: &Range<Millis>) -> Option<Self> {
        let (since, until) = (Timestamp::from_millis(period.start)?, Timestamp::from_millis(period.end)?);
        Some(Self { since, until })
    }

    fn contains(self, recorded_at: Timestamp) -> bool {
        (self.since.millis..self.until.millis).contains(&recorded_at.millis)
    }
}

/// Policy of the organisation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub parent_id: Option<String>,
}

/// One row of a dataset as a line of NDJSON.
#[derive(Clone, Copy, Debug)]
pub struct Line<'l> {
    pub text: &'l [u8],
    /// Name of the line's source, for errors.
    pub source: &'l str,
    /// Number of the line in its source, for errors.
    pub number: u64,
}

/// Source of the lines of all datasets.
pub trait LineSource {
    /// Calls `on_line` with each line of a dataset. The order of lines does not matter.
    fn read_lines(
        &mut self,
        dataset: Dataset,
        on_line: &mut dyn FnMut(Line<'_>) -> Result<(), ConvertError>,
    ) -> Result<(), ConvertError>;
}

/// Bundle under construction. Lines are collected in bounded memory, and written by [`BundleExport::finish`].
pub struct BundleExport {
    job: Job,
    org: String,
    snapshot: Snapshot,
    output: PreparedConversion,
    claims: ClaimCollector,
    meter: Arc<Meter>,
}

impl BundleExport {
    /// Checks the options and opens the output. The job's inputs are only protected from being overwritten.
    pub fn open(job: &Job, org: &str, snapshot: Snapshot, meter: &Arc<Meter>) -> Result<Self, ConvertError> {
        check_options(job, org, snapshot)?;
        let output = PreparedConversion::open(job)?;
        let claims = ClaimCollector::new(
            &output.key,
            &scope(TOOL, org),
            snapshot,
            job.limits.sort_memory,
            output.folder(),
        );
        let (job, meter) = (job.clone(), Arc::clone(meter));
        Ok(Self { job, org: org.to_owned(), snapshot, output, claims, meter })
    }

    /// Adds a row.
    pub fn push(&mut self, dataset: Dataset, line: Line<'_>) -> Result<(), ConvertError> {
        self.meter.count_row();
        self.meter.check_stop()?;
        self.claims.push(dataset, line)
    }

    /// Writes the bundle.
    pub fn finish(mut self, policies: &[Policy]) -> Result<Report, ConvertError> {
        let folder = self.output.folder().to_owned();
        let claims = self.claims.finish(&folder, &self.meter)?;
        let description = SourceDescription {
            org: &self.org,
            snapshot: self.snapshot,
            profile: self.job.profile,
            policies,
        };
        let (head, rows) = header::describe(&description, claims)?;
        self.job.limitations.splice(0..0, header::LIMITATIONS.map(str::to_owned));
        let people = ParticipantRegistry::new(
            &self.output.key,
            &scope(TOOL, &self.org),
            ParticipantNaming::Pseudonyms,
        )
        .hiding_below(self.job.hidden_below());
        self.output.write(&self.job, PreparedSource { rows, head, people }, &self.meter)
    }
}

/// Makes a bundle from all lines of a source.
pub fn export_bundle(
    job: &Job,
    org: &str,
    snapshot: Snapshot,
    policies: &[Policy],
    lines: &mut dyn LineSource,
    meter: &Arc<Meter>,
) -> Result<Report, ConvertError> {
    let mut export = BundleExport::open(job, org, snapshot, meter)?;
    for dataset in DATASETS {
        lines.read_lines(dataset, &mut |line| export.push(dataset, line))?;
    }
    export.finish(policies)
}

/// Reads a list of policies from a file: a JSON array, or an object with the member `policies`.
pub fn read_policies(path: &Path) -> Result<Vec<Policy>, ConvertError> {
    folder::read_policies(path)
}

fn check_options(job: &Job, org: &str, snapshot: Snapshot) -> Result<(), ConvertError> {
    if snapshot.since.millis >= snapshot.until.millis {
        return Err(ConvertError::Refused(format!(
            "--since {} is not before --until {}: swap them, or choose a later end",
            snapshot.since, snapshot.until
        )));
    }
    if org.is_empty() {
        return Err(ConvertError::Refused("--org is empty".to_owned()));
    }
    if job.events || job.table_format.is_some() || job.participants != ParticipantNaming::Pseudonyms {
        return Err(ConvertError::Refused(
            "a bundle of moderation holds latest answers under pseudonyms, and is no table".to_owned(),
        ));
    }
    Ok(())
}
