//! Explains one rule on one item with all of its conditions: the reasons for which it does or does not match. Has no
//! effects.

use std::sync::Arc;

use tidegate_schemas::ids::{RuleId, WindowId};

use super::{EvaluatedRule, PendingLeaf, Plan, Scan, searched_paths};
use crate::{
    compile::Rule,
    engine::{index::Index, windows::WindowAdditions},
    facts::{Facts, Need},
    item::Item,
    leaves::{self, Explained},
    limits::{OutOfSteps, Steps},
    logic::Mask,
    outcome::Omissions,
};

/// Conditions of a rule as far as the item decides them, and the needs of the others.
#[derive(Debug)]
pub struct PendingExplanation {
    rule: EvaluatedRule,
    /// True if an evaluation of the item includes the rule.
    pub is_triggered: bool,
    /// Texts and windows of its conditions that the evaluation read only in part.
    pub omissions: Omissions,
}

impl PendingExplanation {
    pub fn pending_needs(&self) -> impl Iterator<Item = &Need> {
        self.rule.pending_leaves.iter().flat_map(|leaf| &leaf.needs)
    }
}

impl Plan {
    /// Evaluates the conditions with the item alone. `None` if the plan has no such rule.
    pub fn begin_explanation(&self, item: &Item<'_>, rule: &RuleId) -> Option<PendingExplanation> {
        let place = *self.rule_numbers.get(rule)?;
        let rule = &self.rules[place as usize];
        // If the search for this rule alone takes too many steps, the joint search of the index can still decide it, as in
        // an evaluation.
        let text_paths = searched_paths(&[place], &self.rules, &self.predicates);
        let (mut evaluation, ran_out) = self.evaluate_conditions(item, rule, &text_paths, None);
        if ran_out {
            evaluation = self.evaluate_conditions(item, rule, &text_paths, Some(self.index_of(item))).0;
        }
        let concerns = self.is_triggered(place, item) && rule.applies_to_type(item.type_id);
        evaluation.map(|(rule, omissions)| PendingExplanation { rule, is_triggered: concerns, omissions })
    }

    /// Evaluates each condition. The flag is true if one takes more steps than are left.
    fn evaluate_conditions(
        &self,
        item: &Item<'_>,
        rule: &Arc<Rule>,
        text_paths: &[usize],
        joint: Option<&Index>,
    ) -> (Option<(EvaluatedRule, Omissions)>, bool) {
        let (mut evaluated_rule, mut ran_out) = (None, false);
        let empty_index = Index::default();
        let scan = self.run_evaluation(item, joint.unwrap_or(&empty_index), text_paths, None, |run| {
            // Only the search is of interest here, because it decides predicates below. The candidates are not used.
            if joint.is_some() {
                let candidates = run.candidates();
                run.scratch.candidates.give_back(candidates);
            }
            run.steps.next_rule();
            let (mut masks, mut explained, mut pending_leaves) = (Vec::new(), Vec::new(), Vec::new());
            for (leaf, predicate) in rule.leaves.iter().enumerate() {
                let mask = run.mask(*predicate).unwrap_or_else(|OutOfSteps| {
                    ran_out = true;
                    Mask::ERRORED
                });
                let predicate = &self.predicates[*predicate as usize];
                if mask.is_pending() {
                    pending_leaves.push(PendingLeaf { leaf, needs: predicate.collect_needs(run.input) });
                }
                explained.push(predicate.explain(mask, None, run.input, &mut run.steps));
                masks.push(mask);
            }
            let is_needed = |window: &WindowId| {
                let mut pending_needs = pending_leaves.iter().flat_map(|leaf| &leaf.needs);
                pending_needs.any(|need| matches!(need, Need::Count { window: needed_window, .. } if needed_window == window))
            };
            let mut added = WindowAdditions::default();
            for place in self.windows_by_type.get(item.type_id).into_iter().flatten() {
                let counting = &self.windows[*place];
                if is_needed(&counting.window.key) {
                    counting.add(item, run, &mut added);
                }
            }
            evaluated_rule = Some(EvaluatedRule { rule: Arc::clone(rule), masks, explanations: explained, pending_leaves });
            Scan { window_additions: added, ..Scan::default() }
        });
        let omissions = Omissions {
            uncounted: scan.window_additions.1,
            truncated: scan.truncated,
            ..Omissions::default()
        };
        (evaluated_rule.map(|rule| (rule, omissions)), ran_out)
    }

    /// Decides each condition with the facts, even if the rule does not match or the item does not trigger it. A need
    /// without an answer counts as failed.
    pub fn finish_explanation(&self, pending: PendingExplanation, facts: &Facts) -> Explained {
        let mut rule = pending.rule;
        rule.decide(self, facts, &mut Steps::new(&self.limits));
        leaves::build_tree(&rule.rule.when, &rule.rule.uses, rule.explanations)
    }

    /// Returns the parts of the item and of the facts that the explanation leaves out.
    pub fn omissions(&self, pending: &PendingExplanation, facts: &Facts) -> Omissions {
        let mut omissions = pending.omissions.clone();
        pending.rule.add_truncated_texts(self, facts, &mut omissions.truncated);
        omissions
    }
}
