//! Values of the options of a conversion, converted to those of the exporter.

use anyhow::ensure;
use clap::ValueEnum;
use tidegate_exporter::{
    convert::{Format, Sidecar},
    privacy,
    sources::polis::{self, VoteSign},
    tables::{self, TableFormat},
};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum SourceFormat {
    Polis,
    Aoi,
    Sensemaking,
    PocketPolis,
    /// A bundle, with `--to`
    Bundle,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum OutputFormat {
    Bundle,
    PolisCsv,
    SensemakingCsv,
    Ndjson,
    /// Items and responses, without outcomes
    Parquet,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum VoterIds {
    /// Numbers from 0, in the order of first appearance
    Numbers,
    /// References of the bundle
    References,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(in crate::commands::bundle) enum SidecarArg {
    Parquet,
    Ndjson,
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Package {
    Frictionless,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Variant {
    A,
    B,
    C,
    D,
    E,
    F,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(in crate::commands::bundle) enum Profile {
    Private,
    Public,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(in crate::commands::bundle) enum Text {
    Keep,
    Redact,
    Omit,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Participants {
    Pseudonyms,
    /// Pseudonyms of an earlier bundle in the input stay as they are
    KeepPseudonyms,
    /// Ids of the site that the tool was embedded in: a direct identifier
    ExternalIds,
    /// Ids of the tool itself: a direct identifier
    SourceIds,
}

pub(super) fn table_format(to: OutputFormat) -> Option<TableFormat> {
    match to {
        OutputFormat::Bundle => None,
        OutputFormat::PolisCsv => Some(TableFormat::PolisCsv),
        OutputFormat::SensemakingCsv => Some(TableFormat::SensemakingCsv),
        OutputFormat::Ndjson => Some(TableFormat::Ndjson),
        OutputFormat::Parquet => Some(TableFormat::Parquet),
    }
}

pub(in crate::commands::bundle) fn sidecars(options: &[SidecarArg]) -> anyhow::Result<Option<Vec<Sidecar>>> {
    let sidecar_of = |option: &SidecarArg| match option {
        SidecarArg::Parquet => Some(Sidecar::Parquet),
        SidecarArg::Ndjson => Some(Sidecar::Ndjson),
        SidecarArg::None => None,
    };
    // `none` turns sidecars off, so it contradicts every format.
    let formats: Vec<_> = options.iter().filter_map(sidecar_of).collect();
    ensure!(
        formats.is_empty() || formats.len() == options.len(),
        "--sidecar none cannot be combined with another format"
    );
    ensure!(!formats.is_empty() || options.len() <= 1, "--sidecar none is given twice");
    Ok((!options.is_empty()).then_some(formats))
}

pub(super) fn vote_sign(text: &str) -> Result<VoteSign, String> {
    match text {
        "agree=+1" | "agree=1" => Ok(VoteSign::AgreeIsPlus),
        "agree=-1" => Ok(VoteSign::AgreeIsMinus),
        _ => Err("agree=+1 or agree=-1".to_owned()),
    }
}

impl From<SourceFormat> for Format {
    fn from(from: SourceFormat) -> Self {
        match from {
            SourceFormat::Polis => Self::Polis,
            SourceFormat::Aoi => Self::AllOurIdeas,
            SourceFormat::Sensemaking => Self::Sensemaking,
            SourceFormat::PocketPolis => Self::PocketPolis,
            SourceFormat::Bundle => Self::Bundle,
        }
    }
}

impl From<Variant> for polis::Variant {
    fn from(variant: Variant) -> Self {
        match variant {
            Variant::A => Self::A,
            Variant::B => Self::B,
            Variant::C => Self::C,
            Variant::D => Self::D,
            Variant::E => Self::E,
            Variant::F => Self::F,
        }
    }
}

impl From<Profile> for privacy::Profile {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Private => Self::Private,
            Profile::Public => Self::Public,
        }
    }
}

impl From<Text> for privacy::TextTreatment {
    fn from(text: Text) -> Self {
        match text {
            Text::Keep => Self::Keep,
            Text::Redact => Self::Redact,
            Text::Omit => Self::Omit,
        }
    }
}

impl From<Participants> for privacy::ParticipantNaming {
    fn from(participants: Participants) -> Self {
        match participants {
            Participants::Pseudonyms => Self::Pseudonyms,
            Participants::KeepPseudonyms => Self::KeepPseudonyms,
            Participants::ExternalIds => Self::ExternalIds,
            Participants::SourceIds => Self::SourceIds,
        }
    }
}

impl From<VoterIds> for tables::VoterIds {
    fn from(ids: VoterIds) -> Self {
        match ids {
            VoterIds::Numbers => Self::Numbers,
            VoterIds::References => Self::References,
        }
    }
}
