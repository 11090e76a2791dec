//! Checks that each member of a group has an answer in the phase of the group. Members and participants are joined in a
//! [`Spill`], which uses the disk beyond its memory.

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

/// Groups of the outcomes, with their members.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Records by participant reference: first the phases with an answer of the participant, then their group
    /// memberships.
    references: Spill,
    /// Phase of each outcome that is a group, by index.
    phases: HashMap<u64, u32>,
}

/// First byte of a record with a phase. Smaller than `MEMBERSHIP`, so that phases are sorted before memberships.
const ANSWERED_PHASE: u8 = 0;
/// First byte of a record with a membership.
const MEMBERSHIP: u8 = 1;

impl Groups {
    pub(crate) fn new(spill_options: SpillOptions) -> Self {
        Self { references: Spill::new(spill_options), phases: HashMap::new() }
    }

    /// Adds an entry of the `members` of an outcome. Its type is not known yet, so the outcome may turn out not to be a
    /// group.
    pub(crate) fn add_member(
        &mut self,
        outcome: u64,
        index: u64,
        at: Position,
        reference: &[u8],
    ) -> io::Result<()> {
        let location = [at.offset, at.line, outcome, index].map(u64::to_be_bytes);
        self.references.push(reference, &[&[MEMBERSHIP][..], location.as_flattened()].concat())
    }

    pub(crate) fn add_group(&mut self, outcome: u64, phase: u32) {
        self.phases.insert(outcome, phase);
    }

    /// True if there are no groups. The caller then need not add phases.
    pub(crate) fn is_empty(&self) -> bool {
        self.phases.is_empty()
    }

    pub(crate) fn add_answered_phase(&mut self, phase: u32, reference: &[u8]) -> io::Result<()> {
        self.references.push(reference, &[&[ANSWERED_PHASE][..], &phase.to_be_bytes()].concat())
    }

    pub(crate) fn check_members(self, findings: &mut Findings) -> io::Result<()> {
        let mut answered_phases = Vec::new();
        self.references.finish(|reference, record, is_first| {
            if is_first {
                answered_phases.clear();
            }
            let Some((&kind, location)) = record.split_first() else { return Ok(()) };
            if kind == ANSWERED_PHASE {
                answered_phases.extend(location.first_chunk().map(|phase| u32::from_be_bytes(*phase)));
                return Ok(());
            }
            // Phases are sorted before memberships, so all phases of this participant are known here.
            let word = |at: usize| location.as_chunks().0.get(at).map_or(0, |word| u64::from_be_bytes(*word));
            let [offset, line, outcome, index] = [0, 1, 2, 3].map(word);
            // Members of an outcome that is no group are not checked.
            if self.phases.get(&outcome).is_some_and(|phase| !answered_phases.contains(phase)) {
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
