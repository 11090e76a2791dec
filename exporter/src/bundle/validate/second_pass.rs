//! Second pass over a bundle, for keys that were skipped as ascending and for keys with equal hashes.

use std::io;

use super::{
    content::{Content, KeysToReread},
    findings::Findings,
    locations::{ID, encode_location, response},
    row::Row,
    sink::{Part, Sink},
    unique::RepeatFinder,
};
use crate::json::Stop;

/// Keys that a second pass reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RereadMode {
    /// Keys at the start of the lists, which were skipped because they were ascending.
    SkippedKeys(KeysToReread),
    /// All keys, to compare those with equal hashes.
    Candidates,
}

/// Sink that passes keys to the repeat finders of `content`.
pub(crate) struct SecondPass<'c> {
    pub(crate) content: &'c mut Content,
    pub(crate) mode: RereadMode,
}

impl Sink for SecondPass<'_> {
    fn on_entry(
        &mut self,
        part: Part,
        row: &Row,
        _counts: Option<&Row>,
        _findings: &mut Findings,
    ) -> Result<(), Stop> {
        // Ids of phases and items are few, and the first pass keeps them all.
        if !matches!(part, Part::Responses | Part::Outcomes) {
            return Ok(());
        }
        match &mut self.mode {
            RereadMode::SkippedKeys(remaining) => self.content.add_skipped_keys(part, row, remaining),
            RereadMode::Candidates => Ok(self.content.add_candidate_keys(part, row)?),
        }
    }
}

impl Content {
    fn add_skipped_keys(&mut self, part: Part, row: &Row, remaining: &mut KeysToReread) -> Result<(), Stop> {
        let remaining_ids =
            if part == Part::Outcomes { &mut remaining.outcomes } else { &mut remaining.responses };
        if *remaining_ids > 0
            && let Some(id) = row.text(ID)
        {
            self.finder_of_ids(part).add_skipped(id)?;
            *remaining_ids -= 1;
        }
        if part == Part::Responses && remaining.answers > 0 && self.rebuild_answer_key(row) {
            self.answers.add_skipped(&self.answer_key)?;
            remaining.answers -= 1;
        }
        // The rest of the document has no skipped keys, so the pass ends here.
        if remaining.is_empty() { Err(Stop::StoppedByCaller) } else { Ok(()) }
    }

    fn add_candidate_keys(&mut self, part: Part, row: &Row) -> io::Result<()> {
        if let Some(id) = row.text(ID) {
            self.finder_of_ids(part).add_candidate(id, || encode_location(row, row.position(ID)))?;
        }
        if part == Part::Responses && self.rebuild_answer_key(row) {
            self.answers.add_candidate(&self.answer_key, || encode_location(row, row.at))?;
        }
        Ok(())
    }

    fn finder_of_ids(&mut self, part: Part) -> &mut RepeatFinder {
        if part == Part::Outcomes { &mut self.outcome_ids } else { &mut self.response_ids }
    }

    /// Sets `answer_key` as the first pass did for this response; false if a reference is unresolved, since such
    /// responses have no key.
    fn rebuild_answer_key(&mut self, row: &Row) -> bool {
        let phase = row.text(response::PHASE).and_then(|id| self.phase_indexes.get(id));
        let subject = row.text(response::SUBJECT).and_then(|id| self.item_indexes.get(id));
        let object = row.text(response::OBJECT).map(|id| self.item_indexes.get(id).copied());
        let (Some(phase), Some(subject), Some(participant)) =
            (phase, subject, row.text(response::PARTICIPANT))
        else {
            return false;
        };
        // The second item is not in the bundle.
        if object == Some(None) {
            return false;
        }
        let (phase, subject, object) = (*phase, *subject, object.flatten());
        self.set_answer_key(phase, subject, object, participant);
        true
    }
}
