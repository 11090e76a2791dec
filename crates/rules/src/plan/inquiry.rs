//! One rule on one item with all of its conditions, for people who ask why it matches or does not.
//!
//! It leads to nothing: an outcome is what `scan` and `finish` say.

use std::sync::Arc;

use tidegate_schemas::ids::RuleId;

use super::{Open, Plan, Scan, Waiting};
use crate::{
    engine::index::Index,
    evaluate::Mask,
    explain::{self, Explained},
    facts::{Facts, Need},
    item::Item,
};

/// What the item says of a rule's conditions, and what is still to be looked up.
#[derive(Debug)]
pub struct Inquiry {
    open: Open,
    /// Whether the rule is evaluated for such an item at all.
    pub concerns: bool,
}

impl Inquiry {
    pub fn needs(&self) -> impl Iterator<Item = &Need> {
        self.open.waiting.iter().flat_map(|waiting| &waiting.needs)
    }
}

impl Plan {
    /// `None`: there is no such rule.
    pub fn inquire(&self, item: &Item<'_>, rule: &RuleId) -> Option<Inquiry> {
        let place = *self.places.get(rule)?;
        let rule = &self.rules[place as usize];
        let mut open = None;
        self.run(item, &Index::default(), &[], |run| {
            run.steps.next_rule();
            let (mut leaves, mut explained, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
            for (leaf, predicate) in rule.leaves.iter().enumerate() {
                let known = run.mask(*predicate).unwrap_or(Mask::ERRORED);
                let predicate = &self.predicates[*predicate as usize];
                if known.is_pending() {
                    waiting.push(Waiting { leaf, needs: predicate.needs(run.scene) });
                }
                explained.push(predicate.explain(known, None, run.scene, &mut run.steps));
                leaves.push(known);
            }
            open = Some(Open { rule: Arc::clone(rule), leaves, explained, waiting });
            Scan::default()
        });
        open.map(|open| Inquiry { open, concerns: self.concerns(place, item) })
    }

    /// What each condition comes to, whether or not the rule matches or concerns the item. Those that wait for facts are
    /// shown as skipped.
    pub fn explain(&self, item: &Item<'_>, rule: &RuleId) -> Option<Explained> {
        self.inquire(item, rule).map(|inquiry| inquiry.open.tree())
    }

    /// The same with what was looked up. A need without an answer counts as failed.
    pub fn answer(&self, inquiry: Inquiry, facts: &Facts) -> Explained {
        let mut open = inquiry.open;
        open.settle(self, facts);
        open.tree()
    }
}

impl Open {
    fn tree(self) -> Explained {
        explain::tree(&self.rule.when, &mut self.explained.into_iter())
    }
}
