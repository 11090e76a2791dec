//! The words that options of a conversion take, and what they mean to the exporter.
//!
//! Which options there are is the command's.

use anyhow::ensure;
use clap::ValueEnum;
use tidegate_exporter::{
    convert::{Format, Sidecar},
    privacy,
    sources::polis::{self, VoteSign},
    tables::{self, Shape},
};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum From {
    Polis,
    Aoi,
    Sensemaking,
    PocketPolis,
    /// A bundle, with `--to`
    Bundle,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum To {
    Bundle,
    PolisCsv,
    SensemakingCsv,
    Ndjson,
    /// Items and responses: outcomes are not in it
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
pub(super) enum Beside {
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
pub(super) enum Profile {
    Private,
    Public,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Text {
    Keep,
    Redact,
    Omit,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Participants {
    Pseudonyms,
    /// Pseudonyms that the input has from an earlier bundle stay as they are
    KeepPseudonyms,
    /// The ids of the site that the tool was embedded in: a direct identifier
    ExternalIds,
    /// The tool's own ids: a direct identifier
    SourceIds,
}

pub(super) fn shape(to: To) -> Option<Shape> {
    match to {
        To::Bundle => None,
        To::PolisCsv => Some(Shape::PolisCsv),
        To::SensemakingCsv => Some(Shape::SensemakingCsv),
        To::Ndjson => Some(Shape::Ndjson),
        To::Parquet => Some(Shape::Parquet),
    }
}

pub(super) fn sidecars(asked: &[Beside]) -> anyhow::Result<Option<Vec<Sidecar>>> {
    let one = |beside: &Beside| match beside {
        Beside::Parquet => Some(Sidecar::Parquet),
        Beside::Ndjson => Some(Sidecar::Ndjson),
        Beside::None => None,
    };
    let wanted: Vec<_> = asked.iter().filter_map(one).collect();
    ensure!(wanted.is_empty() || wanted.len() == asked.len(), "--sidecar none goes with no other");
    ensure!(!wanted.is_empty() || asked.len() <= 1, "--sidecar: none is named twice");
    Ok((!asked.is_empty()).then_some(wanted))
}

pub(super) fn vote_sign(text: &str) -> Result<VoteSign, String> {
    match text {
        "agree=+1" | "agree=1" => Ok(VoteSign::AgreeIsPlus),
        "agree=-1" => Ok(VoteSign::AgreeIsMinus),
        _ => Err("agree=+1 or agree=-1".to_owned()),
    }
}

impl std::convert::From<From> for Format {
    fn from(from: From) -> Self {
        match from {
            From::Polis => Self::Polis,
            From::Aoi => Self::AllOurIdeas,
            From::Sensemaking => Self::Sensemaking,
            From::PocketPolis => Self::PocketPolis,
            From::Bundle => Self::Bundle,
        }
    }
}

impl std::convert::From<Variant> for polis::Variant {
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

impl std::convert::From<Profile> for privacy::Profile {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Private => Self::Private,
            Profile::Public => Self::Public,
        }
    }
}

impl std::convert::From<Text> for privacy::Texts {
    fn from(text: Text) -> Self {
        match text {
            Text::Keep => Self::Keep,
            Text::Redact => Self::Redact,
            Text::Omit => Self::Omit,
        }
    }
}

impl std::convert::From<Participants> for privacy::Participants {
    fn from(participants: Participants) -> Self {
        match participants {
            Participants::Pseudonyms => Self::Pseudonyms,
            Participants::KeepPseudonyms => Self::KeepPseudonyms,
            Participants::ExternalIds => Self::ExternalIds,
            Participants::SourceIds => Self::SourceIds,
        }
    }
}

impl std::convert::From<VoterIds> for tables::VoterIds {
    fn from(ids: VoterIds) -> Self {
        match ids {
            VoterIds::Numbers => Self::Numbers,
            VoterIds::References => Self::References,
        }
    }
}
