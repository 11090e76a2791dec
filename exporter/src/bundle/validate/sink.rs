//! Interface between the walk and the checks: the containers of a bundle by name, and the sink for their content.

use super::{findings::Findings, row::Row};
use crate::{
    form::Hand,
    json::{Number, Position, Stop},
};

/// The containers of a bundle, by their place in its form.
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

/// Receiver of a bundle's content.
pub(crate) trait Sink {
    /// An object of a list; `counts` are an outcome's.
    fn entry(
        &mut self,
        part: Part,
        row: &Row,
        counts: Option<&Row>,
        findings: &mut Findings,
    ) -> Result<(), Stop>;

    /// A list is over.
    fn ended(&mut self, _part: Part) {}

    /// Takes an object that occurs once.
    fn part(&mut self, _part: Part, _row: &Row) {}

    /// A file that went into the bundle.
    fn artifact(&mut self, _row: &Row) {}

    /// An entry of the list of an outcome that names participants, before the outcome itself.
    fn member(&mut self, _outcome: u64, _index: u64, _at: Position, _reference: &[u8]) -> Result<(), Stop> {
        Ok(())
    }

    /// An entry of a list of texts.
    fn text(&mut self, _part: Part, _field: usize, _text: &[u8]) {}

    /// A text or name where participants may be referred to without being asked for.
    fn said(&mut self, _text: &[u8]) {}

    /// True if the text would identify a person; the walk reports that at its location.
    fn identifies(&self, _text: &[u8], _hand: Hand) -> bool {
        false
    }

    /// True if the text is a time of day that must not be shared.
    fn is_fine(&self, _time: &[u8]) -> bool {
        false
    }

    /// True if the text is a time of day without a date.
    fn is_clock(&self, _time: &[u8]) -> bool {
        false
    }

    /// True if the number is a time of day in seconds or milliseconds since 1970.
    fn is_fine_count(&self, _count: u128) -> bool {
        false
    }

    /// True if a number that counts people is too small to be shared.
    fn is_small(&self, _number: Number) -> bool {
        false
    }

    /// The fields of the bundle itself.
    fn top(&mut self, _row: &Row) {}
}
