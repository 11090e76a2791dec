//! Privacy rules for bundles: pseudonyms, redaction, suppression of small counts, and the data card.

pub(crate) mod data_card;
pub(crate) mod identifying_text;
pub(crate) mod participants;
pub(crate) mod suppression;

pub use self::participants::Key;

/// Audience of a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Each answer, under a pseudonym.
    #[default]
    Private,
    /// Counts only, with small ones left out.
    Public,
}

/// Treatment of texts that participants wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextTreatment {
    Keep,
    Redact,
    Omit,
}

/// Naming of participants in a private bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParticipantNaming {
    #[default]
    Pseudonyms,
    /// Pseudonyms that the input has from this exporter are kept, others are made.
    KeepPseudonyms,
    /// The ids of the embedding site, where there are any.
    ExternalIds,
    /// The source's own ids.
    SourceIds,
}

impl ParticipantNaming {
    pub(crate) fn identifies(self) -> bool {
        matches!(self, Self::ExternalIds | Self::SourceIds)
    }
}
