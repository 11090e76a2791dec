//! The second reading: keys that were passed by because they came in order until then.
//!
//! What becomes of them is `unique`'s.

use super::{
    content::Content,
    faults::Faults,
    places::{ID, response, rest},
    row::Row,
    walk::{Part, Sink},
};
use crate::json::Stop;

/// What has to be brought again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(super) responses: u64,
    pub(super) outcomes: u64,
    pub(super) answers: u64,
}

impl Lost {
    pub(crate) fn is_nothing(self) -> bool {
        self == Self { responses: 0, outcomes: 0, answers: 0 }
    }
}

/// Brings the keys that were passed by because they came in order until then.
pub(crate) struct Bringing<'c> {
    pub(crate) content: &'c mut Content,
    pub(crate) lost: Lost,
}

impl Sink for Bringing<'_> {
    fn entry(
        &mut self,
        part: Part,
        row: &Row,
        _counts: Option<&Row>,
        _faults: &mut Faults,
    ) -> Result<(), Stop> {
        let content = &mut *self.content;
        let (ids, lost) = match part {
            Part::Responses => (&mut content.response_ids, &mut self.lost.responses),
            Part::Outcomes => (&mut content.outcome_ids, &mut self.lost.outcomes),
            _ => return Ok(()),
        };
        if *lost > 0
            && let Some(id) = row.text(ID)
        {
            ids.bring(id, rest(row, row.place(ID)))?;
            *lost -= 1;
        }
        if part == Part::Responses && self.lost.answers > 0 {
            let phase = row.text(response::PHASE).and_then(|id| content.phase_names.get(id));
            let subject = row.text(response::SUBJECT).and_then(|id| content.item_names.get(id));
            let object = row.text(response::OBJECT).map(|id| content.item_names.get(id));
            if let (Some(phase), Some(subject), Some(participant)) =
                (phase, subject, row.text(response::PARTICIPANT))
                && object != Some(None)
            {
                let object = object.flatten().map_or(0, |object| object + 1);
                let head = [*phase, *subject, object].map(u32::to_be_bytes);
                let key = [head.as_flattened(), participant].concat();
                content.answers.bring(&key, rest(row, row.at))?;
                self.lost.answers -= 1;
            }
        }
        if self.lost.is_nothing() { Err(Stop::Enough) } else { Ok(()) }
    }
}
