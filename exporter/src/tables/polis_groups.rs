//! Checks counts by group against the votes: those that follow from votes and groups need no column, others have
//! none.

use std::collections::HashMap;

use serde_json::Value;

use super::opinions::{ANSWERS, Opinions, says_more, says_something};

struct GroupCounts {
    item: String,
    phase: String,
    groups: Value,
    /// Something that votes do not say, whatever they are.
    more: bool,
}

/// Counts in the order of [`ANSWERS`].
type Counts = [u64; 3];

#[derive(Default)]
pub(super) struct ByGroup {
    said: Vec<GroupCounts>,
    /// Counts of each item, by group.
    counted: HashMap<String, HashMap<String, Counts>>,
}

impl ByGroup {
    pub(super) fn say(&mut self, outcome: &Value) {
        let text = |name: &str| outcome[name].as_str().unwrap_or_default().to_owned();
        let (item, phase) = (text("itemRef"), text("phaseId"));
        self.counted.entry(item.clone()).or_default();
        let more = says_something(&outcome["suppressed"]);
        self.said.push(GroupCounts { item, phase, groups: outcome["groups"].clone(), more });
    }

    pub(super) fn vote(&mut self, item: &str, group: &str, answer: usize) {
        let Some(counted) = self.counted.get_mut(item) else { return };
        match counted.get_mut(group) {
            Some(counts) => counts[answer] += 1,
            None => counted.entry(group.to_owned()).or_default()[answer] += 1,
        }
    }

    pub(super) fn all(&self) -> u64 {
        self.said.len() as u64
    }

    /// Number of outcomes that differ from the votes.
    pub(super) fn others(&self, opinions: &Opinions) -> u64 {
        self.said.iter().filter(|said| !self.follows(said, opinions)).count() as u64
    }

    fn follows(&self, said: &GroupCounts, opinions: &Opinions) -> bool {
        let counted = |group: &str| -> Counts {
            let counted = self.counted.get(&said.item).and_then(|counted| counted.get(group));
            counted.copied().unwrap_or_default()
        };
        let holds = |(group, cells): (&String, &Value)| {
            let mut answers = ANSWERS.iter().zip(counted(group));
            !says_more(cells)
                && answers
                    .all(|(answer, count)| cells.get(answer).is_none_or(|said| said.as_u64() == Some(count)))
        };
        !said.more
            && opinions.is_of(&said.item, &said.phase)
            && said.groups.as_object().is_some_and(|groups| groups.iter().all(holds))
    }
}
