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

// Indexes of the fields of the summary.
const PARTICIPANTS: usize = 0;
const ITEMS: usize = 1;
const RESPONSES: usize = 2;
const COVERAGE: usize = 3;

/// Allowed difference of coverages, for other orders of division and rounding.
const TOLERANCE: f64 = 1e-9;

/// Numbers of the entries of a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundleCounts {
    pub phases: u64,
    pub items: u64,
    /// Entries of the list. Each can count several answers.
    pub responses: u64,
    pub outcomes: u64,
    /// Sum of the responses' counts.
    pub answers: u128,
    pub participants: u64,
    /// Entries of responses without a participant.
    pub unlinked: u64,
}

/// Item, as the checks of totals need it.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) phase: u32,
    pub(crate) is_eligible: bool,
    pub(crate) at: Position,
    pub(crate) index: u64,
}

/// Figures of a phase's responses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Phase {
    pub(crate) participants: u64,
    pub(crate) compared_pairs: u64,
    /// True if a response has no participant.
    pub(crate) has_unlinked_responses: bool,
    pub(crate) is_pairwise: bool,
}

/// Responses to an item in a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) phase: u32,
    pub(crate) item: u32,
    /// Counts by answer, with the item as the subject.
    pub(crate) counts: [u64; 6],
    /// Counts of responses without a second item. A subset of `counts`.
    pub(crate) single_item_counts: [u64; 6],
    /// Responses with a participant and without a second item, and the repeated ones among them.
    pub(crate) answered_count: u64,
    pub(crate) repeated_count: u64,
    /// True if an outcome has the counts of all three opinions and suppresses none.
    pub(crate) shows_all_opinions: bool,
}

impl Tally {
    pub(crate) fn new(phase: u32, item: u32) -> Self {
        Self {
            phase,
            item,
            counts: [0; 6],
            single_item_counts: [0; 6],
            answered_count: 0,
            repeated_count: 0,
            shows_all_opinions: false,
        }
    }
}

/// Values of the summary, with their positions.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    values: [Option<(Number, Position)>; 4],
}

impl Summary {
    pub(crate) fn read_summary(&mut self, row: &Row) {
        for (field, value) in self.values.iter_mut().enumerate() {
            *value = row.number(field).map(|number| (number, row.position(field)));
        }
    }

    pub(crate) fn check(
        &self,
        counts: &BundleCounts,
        phases: &[Phase],
        items: &[Item],
        tallies: &[Tally],
        findings: &mut Findings,
    ) {
        let mut require = |field: usize, rule: Rule, holds: &dyn Fn(Number) -> bool| {
            if let Some((value, at)) = self.values[field]
                && !holds(value)
            {
                let steps = [Step::Name(Part::Summary.name()), Step::Name(SUMMARY.fields[field].name)];
                findings.add(rule, at, &steps, Some(value.double.to_string().as_bytes()));
            }
        };
        let named_participants = u128::from(counts.participants);
        require(PARTICIPANTS, Rule::Participants, &|value| match counts.unlinked {
            0 => value.saturating_count() == named_participants,
            // Responses without a participant can be from further people.
            _ => value.saturating_count() >= named_participants,
        });
        require(ITEMS, Rule::Items, &|value| value.saturating_count() == u128::from(counts.items));
        require(RESPONSES, Rule::Responses, &|value| value.saturating_count() == counts.answers);
        if let Some(coverage) = compute_coverage(phases, items, tallies) {
            require(COVERAGE, Rule::Coverage, &|value| (value.double - coverage).abs() <= TOLERANCE);
        }
    }
}

/// Coverage of the bundle; `None` if it is unknown because of responses without participants.
fn compute_coverage(phases: &[Phase], items: &[Item], tallies: &[Tally]) -> Option<f64> {
    if phases.iter().any(|phase| phase.has_unlinked_responses && !phase.is_pairwise) {
        return None;
    }
    let mut eligible = vec![0_u64; phases.len()];
    for item in items.iter().filter(|item| item.is_eligible) {
        if let Some(eligible) = eligible.get_mut(item.phase as usize) {
            *eligible += 1;
        }
    }
    let mut answered = vec![0_u64; phases.len()];
    for tally in tallies {
        let item = &items[tally.item as usize];
        // A repeated answer covers no further item.
        if item.is_eligible && item.phase == tally.phase {
            answered[tally.phase as usize] += tally.answered_count.saturating_sub(tally.repeated_count);
        }
    }
    let phase_coverages = phases.iter().zip(eligible).zip(answered).map(|((phase, eligible), answered)| {
        if phase.is_pairwise {
            coverage::Phase::Pairwise { eligible, compared: phase.compared_pairs }
        } else {
            coverage::Phase::Single { participants: phase.participants, eligible, answered }
        }
    });
    Some(coverage::of(phase_coverages))
}
