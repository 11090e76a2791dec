//! Dispatches to the adapters in `sources`, and detects the input format.

use std::sync::Arc;

use super::{Format, Job};
use crate::{
    error::{ConvertError, ErrorKind},
    input::{Limits, Member, Role, explain_nearest, list_files},
    meter::Meter,
    model::BundleHeader,
    privacy::participants::{ParticipantRegistry, RegistryFor},
    sources::{aoi::Ideas, pocket_polis::PocketPolis, polis::Polis, sensemaking::Sensemaking},
    storage::rows::{ReadResult, Row, order::Flow, spool::SpooledRows},
    tally::CountTable,
    unpack::Compression,
};

#[derive(Debug)]
pub(super) enum Adapter {
    Polis(Polis),
    Ideas(Ideas),
    Pocket(PocketPolis),
    Sensemaking(Sensemaking),
    /// Rows of a source without input files.
    Spooled(SpooledRows),
}

impl Adapter {
    pub(super) fn open(
        format: Format,
        files: &[(Member, Role)],
        job: &Job,
        registry_for: &mut RegistryFor<'_>,
    ) -> Result<(Self, BundleHeader, ParticipantRegistry), ConvertError> {
        let id = job.overrides.id.as_deref();
        match format {
            Format::Polis => {
                let (polis, head, people) = Polis::open(files, &job.limits, &job.polis, id, registry_for)?;
                Ok((Self::Polis(polis), head, people))
            }
            Format::AllOurIdeas => {
                let (ideas, head, people) = Ideas::open(files, &job.limits, &job.aoi, id, registry_for)?;
                Ok((Self::Ideas(ideas), head, people))
            }
            Format::PocketPolis => {
                let (pocket, head, people) = PocketPolis::open(files, &job.limits, id, registry_for)?;
                Ok((Self::Pocket(pocket), head, people))
            }
            Format::Bundle => Err(ConvertError::Refused(
                "the input is already a bundle: choose an output format with --to".to_owned(),
            )),
            Format::Moderation => Err(ConvertError::Refused(
                "the service's own moderation is exported by `tidegate bundle export`".to_owned(),
            )),
            Format::Sensemaking => {
                let (tallies, head, people) = Sensemaking::open(files, &job.limits, id, registry_for)?;
                Ok((Self::Sensemaking(tallies), head, people))
            }
        }
    }

    pub(super) fn format(&self) -> Format {
        match self {
            Self::Polis(_) => Format::Polis,
            Self::Ideas(_) => Format::AllOurIdeas,
            Self::Pocket(_) => Format::PocketPolis,
            Self::Sensemaking(_) => Format::Sensemaking,
            Self::Spooled(_) => Format::Moderation,
        }
    }

    pub(super) fn variant(&self) -> Option<&'static str> {
        match self {
            Self::Polis(polis) => Some(polis.variant.name()),
            Self::Ideas(_) | Self::Pocket(_) | Self::Sensemaking(_) | Self::Spooled(_) => None,
        }
    }

    pub(super) fn is_sorted_by_item(&self) -> bool {
        match self {
            Self::Polis(polis) => polis.is_sorted_by_item(),
            Self::Ideas(_) | Self::Pocket(_) | Self::Sensemaking(_) | Self::Spooled(_) => false,
        }
    }

    pub(super) fn rows_file(&self) -> Option<&Member> {
        match self {
            Self::Polis(polis) => polis.rows_file(),
            Self::Ideas(ideas) => Some(ideas.rows_file()),
            Self::Pocket(pocket) => Some(pocket.rows_file()),
            Self::Sensemaking(_) | Self::Spooled(_) => None,
        }
    }

    /// Counts of an export without individual answers; `None` for other formats.
    pub(super) fn tallies(&self) -> Option<&[CountTable]> {
        match self {
            Self::Sensemaking(tallies) => Some(tallies.tallies()),
            Self::Polis(_) | Self::Ideas(_) | Self::Pocket(_) | Self::Spooled(_) => None,
        }
    }

    pub(super) fn read_rows(
        &self,
        limits: &Limits,
        meter: &Arc<Meter>,
        people: &mut ParticipantRegistry,
        notes: &mut Vec<String>,
        on_row: impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<ReadResult, ConvertError> {
        match self {
            Self::Polis(polis) => polis.read_rows(limits, meter, people, notes, on_row),
            Self::Ideas(ideas) => ideas.read_rows(limits, meter, people, notes, on_row),
            Self::Pocket(pocket) => pocket.read_rows(limits, meter, people, on_row),
            Self::Spooled(rows) => rows.read(people, on_row),
            Self::Sensemaking(_) => Ok(ReadResult { flow: Flow::Continue, rows: 0, file_digest: None }),
        }
    }
}

pub(super) fn choose_format(files: &[(Member, Role)], job: &Job) -> Result<Format, ConvertError> {
    job.input_format.map_or_else(|| detect_format(files, &job.limits), Ok)
}

fn detect_format(files: &[(Member, Role)], limits: &Limits) -> Result<Format, ConvertError> {
    let mut formats: Vec<_> = files.iter().filter_map(|(_, role)| format_of(*role)).collect();
    formats.dedup();
    match formats.as_slice() {
        [] => Err(describe_unknown(files, limits)?),
        // Files with different roles of one format form one export.
        [first, rest @ ..] if rest.iter().all(|format| format == first) => Ok(*first),
        _ => Err(ConvertError::Refused(
            "the input has files of several formats: choose one with --from".to_owned(),
        )),
    }
}

/// Describes input of no known format.
fn describe_unknown(files: &[(Member, Role)], limits: &Limits) -> Result<ConvertError, ConvertError> {
    let mut all_empty = true;
    for (member, _) in files {
        let detection = Compression::detect(&mut member.open(limits, None)?);
        let (compression, first_bytes) =
            detection.map_err(|error| ConvertError::from_io(&member.name, error))?;
        all_empty &= first_bytes.is_empty();
        // A nested archive would otherwise be reported as an unknown table.
        if compression == Compression::Zip {
            let detail =
                "it is an archive within an archive, which is not supported: extract it and pass it as input";
            return Ok(ConvertError::content(&member.name, None, ErrorKind::Format, detail));
        }
    }
    let nearest = explain_nearest(files, limits)?;
    let (names, count) = list_files(files, |_| true);
    let (file, detail) = match (count, all_empty) {
        (1, true) => (names.as_str(), "the file is empty".to_owned()),
        (1, false) => (names.as_str(), "its format is unknown".to_owned()),
        (_, true) => ("the input", format!("all files are empty: {names}")),
        (_, false) => ("the input", format!("no file has a known format: {names}")),
    };
    Ok(nearest.unwrap_or_else(|| ConvertError::content(file, None, ErrorKind::Format, detail)))
}

pub(super) fn format_of(role: Role) -> Option<Format> {
    match role {
        Role::PolisVotes
        | Role::PolisComments
        | Role::PolisMatrix
        | Role::PolisGroups
        | Role::PolisSummary
        | Role::PolisStats => Some(Format::Polis),
        Role::PocketStatements | Role::PocketVotes => Some(Format::PocketPolis),
        Role::IdeasVotes | Role::Ideas | Role::IdeasNonVotes => Some(Format::AllOurIdeas),
        Role::Tallies => Some(Format::Sensemaking),
        Role::Bundle => Some(Format::Bundle),
        // A file may have this role by its name alone, which proves no format.
        Role::PolisFormat | Role::Unknown | Role::Broken => None,
    }
}
