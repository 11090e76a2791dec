//! Repeated evaluation of a stored item under the rules that an operator has named.

use tidegate_moderation::{
    effects::{Again, Refused},
    items::submissions,
    reevaluation::retroact,
};

use super::pipeline::ItemRun;
use crate::consumer::error::TaskError;

impl ItemRun<'_> {
    /// Lets the named rules act on what the stored item was when it came in.
    pub(super) async fn reevaluate(self) -> Result<(), TaskError> {
        let (pipeline, submission) = (self.pipeline, &self.submission);
        let (deps, store, org) = (&pipeline.deps, &pipeline.deps.store, &submission.header.org);
        let repeat = retroact::repeat_of(deps, submission).await?;
        let (prepared, outcome) = {
            let config = std::sync::Arc::clone(&self.config);
            retroact::evaluate(deps, config, submission, &repeat, pipeline.facts.window_rows()).await?
        };
        let taken = retroact::taken(store, org, &prepared.key).await?;
        let again = Again { original: repeat.original, taken: &taken };
        let superseded = retroact::is_superseded(store, org, &prepared.key, &repeat).await?;
        let refused = if superseded {
            Refused::new()
        } else {
            let claims = submissions::claims(submission, &prepared, &outcome, self.no_reviews, Some(again));
            pipeline.limits.request(self.applicant(), &claims).await?
        };
        let mut plan =
            submissions::plan(submission, &prepared, &outcome, self.no_reviews, &refused, Some(again));
        if superseded {
            plan.supersede()?;
        }
        self.carry_out(plan).await
    }
}
