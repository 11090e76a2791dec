//! Compares published counts by group with the votes. Counts that follow from votes and groups need no column; the
//! others are omitted.

use std::collections::HashMap;

use serde_json::Value;

use super::opinions::{ANSWERS, Opinions, has_other_answers, is_nonzero};

struct GroupCounts {
    item: String,
    phase: String,
    groups: Value,
    /// True if hidden counts make the outcome differ from the votes.
    has_suppressed: bool,
}

/// Counts in the order of [`ANSWERS`].
type Counts = [u64; 3];

#[derive(Default)]
pub(super) struct GroupCountCheck {
    published: Vec<GroupCounts>,
    /// Votes of each item, by group.
    votes_by_item: HashMap<String, HashMap<String, Counts>>,
}

impl GroupCountCheck {
    pub(super) fn add_outcome(&mut self, outcome: &Value) {
        let text = |name: &str| outcome[name].as_str().unwrap_or_default().to_owned();
        let (item, phase) = (text("itemRef"), text("phaseId"));
        // Only items with published counts are counted.
        self.votes_by_item.entry(item.clone()).or_default();
        let has_suppressed = is_nonzero(&outcome["suppressed"]);
        self.published.push(GroupCounts { item, phase, groups: outcome["groups"].clone(), has_suppressed });
    }

    pub(super) fn count_vote(&mut self, item: &str, group: &str, answer: usize) {
        let Some(votes_by_group) = self.votes_by_item.get_mut(item) else { return };
        match votes_by_group.get_mut(group) {
            Some(counts) => counts[answer] += 1,
            None => votes_by_group.entry(group.to_owned()).or_default()[answer] += 1,
        }
    }

    pub(super) fn count_all(&self) -> u64 {
        self.published.len() as u64
    }

    /// Number of outcomes that differ from the votes.
    pub(super) fn count_differing(&self, opinions: &Opinions) -> u64 {
        self.published.iter().filter(|outcome| !self.follows_from_votes(outcome, opinions)).count() as u64
    }

    fn follows_from_votes(&self, outcome: &GroupCounts, opinions: &Opinions) -> bool {
        let votes_of = |group: &str| -> Counts {
            let counts = self.votes_by_item.get(&outcome.item).and_then(|by_group| by_group.get(group));
            counts.copied().unwrap_or_default()
        };
        let matches_votes = |(group, cells): (&String, &Value)| {
            let mut answers = ANSWERS.iter().zip(votes_of(group));
            !has_other_answers(cells)
                && answers.all(|(answer, count)| {
                    cells.get(answer).is_none_or(|stated_count| stated_count.as_u64() == Some(count))
                })
        };
        !outcome.has_suppressed
            && opinions.belongs_to_answers(&outcome.item, &outcome.phase)
            && outcome.groups.as_object().is_some_and(|groups| groups.iter().all(matches_votes))
    }
}
