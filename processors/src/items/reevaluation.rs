//! Evaluates a stored item again under the rules that an operator has named.

use tidegate_moderation::{
    effects::{LimitRefusals, Repetition},
    items::submissions,
    reevaluation::retroact,
};

use super::pipeline::ItemRun;
use crate::consumer::error::TaskError;

impl ItemRun<'_> {
    /// Evaluates the item in its original state and lets the named rules act on it.
    pub(super) async fn reevaluate(self) -> Result<(), TaskError> {
        let (pipeline, submission) = (self.pipeline, &self.submission);
        let (deps, store, org) = (&pipeline.deps, &pipeline.deps.store, &submission.header.org);
        let repeat = retroact::load_repeat(deps, submission).await?;
        let (prepared, outcome) = {
            let config = std::sync::Arc::clone(&self.config);
            retroact::evaluate(deps, config, submission, &repeat, pipeline.facts.window_rows()).await?
        };
        let taken_actions = retroact::load_taken_events(store, org, &prepared.key).await?;
        let repetition = Repetition { original: repeat.original, taken_events: &taken_actions };
        let is_superseded = retroact::is_superseded(store, org, &prepared.key, &repeat).await?;
        // A superseded plan has no effects, so it must not use up limits.
        let refused_rules = if is_superseded {
            LimitRefusals::new()
        } else {
            let claims = submissions::limit_requests(
                submission,
                &prepared,
                &outcome,
                self.no_review_reason,
                Some(repetition),
            );
            pipeline.limits.request_claims(self.limit_request(), &claims).await?
        };
        let mut plan = submissions::plan(
            submission,
            &prepared,
            &outcome,
            self.no_review_reason,
            &refused_rules,
            Some(repetition),
        );
        if is_superseded {
            plan.supersede()?;
        }
        self.carry_out(plan).await
    }
}
