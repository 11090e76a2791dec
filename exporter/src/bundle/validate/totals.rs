//! Checks a bundle's summary against its content.

use super::{
    findings::{Findings, Step},
    row::Row,
    rules::Rule,
    sink::Part,
};
use crate::{
    form::{SUMMARY, coverage},
    json::{Number, Position},
};

const PARTICIPANTS: usize = 0;
const ITEMS: usize = 1;
const RESPONSES: usize = 2;
const COVERAGE: usize = 3;

/// Written coverages differ by how they were divided and rounded, not by more.
const TOLERANCE: f64 = 1e-9;

/// Numbers of everything in a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub phases: u64,
    pub items: u64,
    /// Entries; each may count for several.
    pub responses: u64,
    pub outcomes: u64,
    /// The sum of the responses' counts.
    pub answers: u128,
    pub participants: u64,
    /// Responses that name no participant.
    pub unlinked: u64,
}

#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) phase: u32,
    pub(crate) eligible: bool,
    pub(crate) at: Position,
    pub(crate) index: u64,
}

/// Figures of a phase's responses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Phase {
    pub(crate) participants: u64,
    pub(crate) compared: u64,
    /// Some response names no participant.
    pub(crate) unlinked: bool,
    pub(crate) pairwise: bool,
}

/// Responses to an item in a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) phase: u32,
    pub(crate) item: u32,
    /// Counts by answer, with the item as the subject.
    pub(crate) counts: [u64; 6],
    /// Counts of responses without a second item.
    pub(crate) single: [u64; 6],
    /// Responses of participants to it by itself, and how many of them repeat another.
    pub(crate) answered: u64,
    pub(crate) repeated: u64,
    /// An outcome says of each opinion how many have it, and hides none.
    pub(crate) whole: bool,
}

impl Tally {
    pub(crate) fn new(phase: u32, item: u32) -> Self {
        Self { phase, item, counts: [0; 6], single: [0; 6], answered: 0, repeated: 0, whole: false }
    }
}

/// Values of the summary.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    said: [Option<(Number, Position)>; 4],
}

impl Summary {
    pub(crate) fn take(&mut self, row: &Row) {
        for (field, said) in self.said.iter_mut().enumerate() {
            *said = row.number(field).map(|number| (number, row.position(field)));
        }
    }

    pub(crate) fn judge(
        &self,
        counted: &Counted,
        phases: &[Phase],
        items: &[Item],
        tallies: &[Tally],
        findings: &mut Findings,
    ) {
        let mut judge = |field: usize, rule: Rule, holds: &dyn Fn(Number) -> bool| {
            if let Some((said, at)) = self.said[field]
                && !holds(said)
            {
                let steps = [Step::Name(Part::Summary.name()), Step::Name(SUMMARY.fields[field].name)];
                findings.add(rule, at, &steps, Some(said.double.to_string().as_bytes()));
            }
        };
        let known = u128::from(counted.participants);
        judge(PARTICIPANTS, Rule::Participants, &|said| match counted.unlinked {
            0 => said.count() == known,
            // There may be more behind the responses that name nobody.
            _ => said.count() >= known,
        });
        judge(ITEMS, Rule::Items, &|said| said.count() == u128::from(counted.items));
        judge(RESPONSES, Rule::Responses, &|said| said.count() == counted.answers);
        if let Some(coverage) = covered(phases, items, tallies) {
            judge(COVERAGE, Rule::Coverage, &|said| (said.double - coverage).abs() <= TOLERANCE);
        }
    }
}

/// Coverage of the bundle; `None` if responses without participants leave it unknown.
fn covered(phases: &[Phase], items: &[Item], tallies: &[Tally]) -> Option<f64> {
    if phases.iter().any(|phase| phase.unlinked && !phase.pairwise) {
        return None;
    }
    let mut eligible = vec![0_u64; phases.len()];
    for item in items.iter().filter(|item| item.eligible) {
        if let Some(eligible) = eligible.get_mut(item.phase as usize) {
            *eligible += 1;
        }
    }
    let mut answered = vec![0_u64; phases.len()];
    for tally in tallies {
        let item = &items[tally.item as usize];
        if item.eligible && item.phase == tally.phase {
            answered[tally.phase as usize] += tally.answered.saturating_sub(tally.repeated);
        }
    }
    let each = phases.iter().zip(eligible).zip(answered).map(|((phase, eligible), answered)| {
        if phase.pairwise {
            coverage::Phase::Pairwise { eligible, compared: phase.compared }
        } else {
            coverage::Phase::Single { participants: phase.participants, eligible, answered }
        }
    });
    Some(coverage::of(each))
}
