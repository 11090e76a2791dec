//! One rule on one item with all of its conditions, for people who ask why it matches or does not.
//!
//! It has no effects; a submission is evaluated by `scan` and `finish`.

use std::sync::Arc;

use tidegate_schemas::ids::{RuleId, WindowId};

use super::{Open, Plan, Scan, Waiting, texts};
use crate::{
    compile::Rule,
    engine::{index::Index, windows::Added},
    facts::{Facts, Need},
    item::Item,
    leaves::{self, Explained},
    limits::{OutOfSteps, Steps},
    logic::Mask,
    outcome::Omissions,
};

/// A rule's conditions as far as the item decides them, and the facts that are still needed.
#[derive(Debug)]
pub struct PendingExplanation {
    open: Open,
    /// True if the rule is evaluated for such an item at all.
    pub concerns: bool,
    /// Texts that its conditions search and windows that they ask, of which the item has more than is looked at.
    pub left_out: Omissions,
}

impl PendingExplanation {
    pub fn needs(&self) -> impl Iterator<Item = &Need> {
        self.open.waiting.iter().flat_map(|waiting| &waiting.needs)
    }
}

impl Plan {
    /// `None`: there is no such rule.
    pub fn begin_explanation(&self, item: &Item<'_>, rule: &RuleId) -> Option<PendingExplanation> {
        let place = *self.places.get(rule)?;
        let rule = &self.rules[place as usize];
        // Where the rule's own search takes too many steps, the joint one may have refuted it, as in an evaluation.
        let searched = texts(&[place], &self.rules, &self.predicates);
        let (mut evaluated, spent) = self.evaluate_conditions(item, rule, &searched, None);
        if spent {
            evaluated = self.evaluate_conditions(item, rule, &searched, Some(self.index_of(item))).0;
        }
        let concerns = self.concerns(place, item) && rule.speaks_of(item.type_id);
        evaluated.map(|(open, left_out)| PendingExplanation { open, concerns, left_out })
    }

    /// Evaluates each condition; and whether one takes more steps than there are.
    fn evaluate_conditions(
        &self,
        item: &Item<'_>,
        rule: &Arc<Rule>,
        searched: &[usize],
        joint: Option<&Index>,
    ) -> (Option<(Open, Omissions)>, bool) {
        let (mut open, mut spent) = (None, false);
        let none = Index::default();
        let scan = self.run(item, joint.unwrap_or(&none), searched, None, |run| {
            if joint.is_some() {
                let candidates = run.candidates();
                run.scratch.candidates.give_back(candidates);
            }
            run.steps.next_rule();
            let (mut leaves, mut explained, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
            for (leaf, predicate) in rule.leaves.iter().enumerate() {
                let known = run.mask(*predicate).unwrap_or_else(|OutOfSteps| {
                    spent = true;
                    Mask::ERRORED
                });
                let predicate = &self.predicates[*predicate as usize];
                if known.is_pending() {
                    waiting.push(Waiting { leaf, needs: predicate.needs(run.input) });
                }
                explained.push(predicate.explain(known, None, run.input, &mut run.steps));
                leaves.push(known);
            }
            let asks = |window: &WindowId| {
                let mut needs = waiting.iter().flat_map(|waiting| &waiting.needs);
                needs.any(|need| matches!(need, Need::Count { window: asked, .. } if asked == window))
            };
            let mut added = Added::default();
            for place in self.counted.get(item.type_id).into_iter().flatten() {
                let counting = &self.windows[*place];
                if asks(&counting.window.key) {
                    counting.add(item, run, &mut added);
                }
            }
            open = Some(Open { rule: Arc::clone(rule), leaves, explained, waiting });
            Scan { added, ..Scan::default() }
        });
        let left_out =
            Omissions { uncounted: scan.added.1, truncated: scan.truncated, ..Omissions::default() };
        (open.map(|open| (open, left_out)), spent)
    }

    /// Decides each condition with the facts, whether or not the rule matches or concerns the item. A need
    /// without an answer counts as failed.
    pub fn finish_explanation(&self, pending: PendingExplanation, facts: &Facts) -> Explained {
        let mut open = pending.open;
        open.settle(self, facts, &mut Steps::new(&self.limits));
        leaves::tree(&open.rule.when, &open.rule.uses, open.explained)
    }

    /// Returns what an explanation leaves out of the item and of the facts.
    pub fn left_out(&self, pending: &PendingExplanation, facts: &Facts) -> Omissions {
        let mut left_out = pending.left_out.clone();
        pending.open.add_cut_texts(self, facts, &mut left_out.truncated);
        left_out
    }
}
