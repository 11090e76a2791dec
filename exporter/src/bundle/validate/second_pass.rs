//! Second pass over a bundle: reads again the keys that were skipped while they came in order, and those that may be
//! equal.

use std::io;

use super::{
    content::{Content, KeysToReread},
    findings::Findings,
    locations::{ID, response, rest},
    row::Row,
    sink::{Part, Sink},
    unique::Unique,
};
use crate::json::Stop;

/// Keys that a second pass looks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// Keys that were skipped because they came in order until then.
    Reread(KeysToReread),
    /// Keys that may be equal: all of them, to be compared whole.
    Equal,
}

/// Shows keys again.
pub(crate) struct SecondPass<'c> {
    pub(crate) content: &'c mut Content,
    pub(crate) wanted: Wanted,
}

impl Sink for SecondPass<'_> {
    fn entry(
        &mut self,
        part: Part,
        row: &Row,
        _counts: Option<&Row>,
        _findings: &mut Findings,
    ) -> Result<(), Stop> {
        if !matches!(part, Part::Responses | Part::Outcomes) {
            return Ok(());
        }
        match &mut self.wanted {
            Wanted::Reread(lost) => self.content.show_lost(part, row, lost),
            Wanted::Equal => Ok(self.content.bring(part, row)?),
        }
    }
}

impl Content {
    fn show_lost(&mut self, part: Part, row: &Row, lost: &mut KeysToReread) -> Result<(), Stop> {
        let left = if part == Part::Outcomes { &mut lost.outcomes } else { &mut lost.responses };
        if *left > 0
            && let Some(id) = row.text(ID)
        {
            self.ids(part).see(id)?;
            *left -= 1;
        }
        if part == Part::Responses && lost.answers > 0 && self.answer_key(row) {
            self.answers.see(&self.key)?;
            lost.answers -= 1;
        }
        if lost.is_nothing() { Err(Stop::Enough) } else { Ok(()) }
    }

    fn bring(&mut self, part: Part, row: &Row) -> io::Result<()> {
        if let Some(id) = row.text(ID) {
            self.ids(part).bring(id, || rest(row, row.position(ID)))?;
        }
        if part == Part::Responses && self.answer_key(row) {
            self.answers.bring(&self.key, || rest(row, row.at))?;
        }
        Ok(())
    }

    fn ids(&mut self, part: Part) -> &mut Unique {
        if part == Part::Outcomes { &mut self.outcome_ids } else { &mut self.response_ids }
    }

    /// Rebuilds the key of the question that a response answers; false if a reference in it was unknown.
    fn answer_key(&mut self, row: &Row) -> bool {
        let phase = row.text(response::PHASE).and_then(|id| self.phase_names.get(id));
        let subject = row.text(response::SUBJECT).and_then(|id| self.item_names.get(id));
        let object = row.text(response::OBJECT).map(|id| self.item_names.get(id).copied());
        let (Some(phase), Some(subject), Some(participant)) =
            (phase, subject, row.text(response::PARTICIPANT))
        else {
            return false;
        };
        if object == Some(None) {
            return false;
        }
        let (phase, subject, object) = (*phase, *subject, object.flatten());
        self.put_key(phase, subject, object, participant);
        true
    }
}
