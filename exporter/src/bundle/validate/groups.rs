//! Checks that each member of a group has answered something in the phase of the group.
//!
//! Members and participants meet in sorted runs on disk once they exceed a little memory.

use std::{collections::HashMap, io};

use super::{
    findings::{Findings, Step},
    locations::outcome::MEMBERS,
    rules::Rule,
    sink::Part,
};
use crate::{
    form::OUTCOME,
    json::Position,
    storage::spill::{Spill, SpillOptions},
};

#[derive(Debug)]
pub(crate) struct Groups {
    /// Records by reference: first the phases in which the participant has answered, then the lists that name them.
    references: Spill,
    /// Phase of each outcome that is a group, by index.
    phases: HashMap<u64, u32>,
}

const ANSWERED: u8 = 0;
const NAMED: u8 = 1;

impl Groups {
    pub(crate) fn new(room: SpillOptions) -> Self {
        Self { references: Spill::new(room), phases: HashMap::new() }
    }

    /// A member of the list of an outcome, which may turn out to be no group.
    pub(crate) fn member(
        &mut self,
        outcome: u64,
        index: u64,
        at: Position,
        reference: &[u8],
    ) -> io::Result<()> {
        let location = [at.offset, at.line, outcome, index].map(u64::to_be_bytes);
        self.references.push(reference, &[&[NAMED][..], location.as_flattened()].concat())
    }

    pub(crate) fn group(&mut self, outcome: u64, phase: u32) {
        self.phases.insert(outcome, phase);
    }

    /// True if there are no groups, so that answers need not be recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.phases.is_empty()
    }

    pub(crate) fn answered(&mut self, phase: u32, reference: &[u8]) -> io::Result<()> {
        self.references.push(reference, &[&[ANSWERED][..], &phase.to_be_bytes()].concat())
    }

    pub(crate) fn judge(self, findings: &mut Findings) -> io::Result<()> {
        let mut answered = Vec::new();
        self.references.finish(|reference, rest, new| {
            if new {
                answered.clear();
            }
            let Some((&side, rest)) = rest.split_first() else { return Ok(()) };
            if side == ANSWERED {
                answered.extend(rest.first_chunk().map(|phase| u32::from_be_bytes(*phase)));
                return Ok(());
            }
            let word = |at: usize| rest.as_chunks().0.get(at).map_or(0, |word| u64::from_be_bytes(*word));
            let [offset, line, outcome, index] = [0, 1, 2, 3].map(word);
            if self.phases.get(&outcome).is_some_and(|phase| !answered.contains(phase)) {
                let steps = [
                    Step::Name(Part::Outcomes.name()),
                    Step::Index(outcome),
                    Step::Name(OUTCOME.fields[MEMBERS].name),
                    Step::Index(index),
                ];
                findings.add(Rule::Member, Position { offset, line }, &steps, Some(reference));
            }
            Ok(())
        })
    }
}
