//! Interface between the walk and the checks: names of the containers of a bundle, and the receiver of their content.

use super::{findings::Findings, row::Row};
use crate::{
    form::TextAuthor,
    json::{Number, Position, Stop},
};

/// Container of a bundle. The value is the index of its field in the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Source = 4,
    Phases,
    Items,
    Responses,
    Outcomes,
    Summary,
    Provenance,
    DataCard,
}

impl Part {
    const ALL: [Self; 8] = [
        Self::Source,
        Self::Phases,
        Self::Items,
        Self::Responses,
        Self::Outcomes,
        Self::Summary,
        Self::Provenance,
        Self::DataCard,
    ];

    pub(super) fn at(field: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|part| *part as usize == field)
    }

    pub(crate) fn name(self) -> &'static str {
        crate::form::Naming::Service.bundle().fields[self as usize].name
    }
}

/// Receiver of a bundle's content, called in the order of the file.
pub(crate) trait Sink {
    /// Receives an entry of a list. `counts` is set for outcomes.
    fn on_entry(
        &mut self,
        part: Part,
        row: &Row,
        counts: Option<&Row>,
        findings: &mut Findings,
    ) -> Result<(), Stop>;

    /// Reports the end of a list.
    fn on_list_end(&mut self, _part: Part) {}

    /// Receives a single object: source, summary, provenance or data card.
    fn on_part(&mut self, _part: Part, _row: &Row) {}

    /// Receives an entry of `provenance.sourceArtifacts`.
    fn on_artifact(&mut self, _row: &Row) {}

    /// Receives a participant reference from the `members` of an outcome, before the outcome itself.
    fn on_member(
        &mut self,
        _outcome: u64,
        _index: u64,
        _at: Position,
        _reference: &[u8],
    ) -> Result<(), Stop> {
        Ok(())
    }

    /// Receives an entry of a list of texts.
    fn on_list_text(&mut self, _part: Part, _field: usize, _text: &[u8]) {}

    /// Receives a text or member name outside the fields for participants, which can still refer to one.
    fn on_free_text(&mut self, _text: &[u8]) {}

    /// True if the text would identify a person. The walk reports this at the text's position.
    fn identifies(&self, _text: &[u8], _hand: TextAuthor) -> bool {
        false
    }

    /// True if the text is a date with a time of day, which must not be shared.
    fn is_finer_than_day(&self, _time: &[u8]) -> bool {
        false
    }

    /// True if the text is a time of day without a date.
    fn is_clock(&self, _time: &[u8]) -> bool {
        false
    }

    /// True if the number is a time of day in seconds or milliseconds since 1970.
    fn is_epoch_finer_than_day(&self, _count: u128) -> bool {
        false
    }

    /// True if a number that counts people is too small to be shared.
    fn is_below_k(&self, _number: Number) -> bool {
        false
    }

    /// Receives the fields of the document itself.
    fn on_document(&mut self, _row: &Row) {}
}
