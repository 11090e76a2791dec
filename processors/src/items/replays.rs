//! Replayed items: finishes the work of an earlier run.

use tidegate_moderation::{
    effects,
    items::{
        stored::{self, Submission},
        submissions::{self, ReplayState},
    },
    reevaluation::retroact,
};
use tidegate_schemas::records::Source;

use super::{job::ItemJob, pipeline::ItemPipeline};
use crate::consumer::error::TaskError;

impl ItemPipeline {
    /// Finishes the work that an earlier run of the submission left open.
    pub(super) async fn finish_earlier_run(
        &self,
        job: &ItemJob,
        submission: &Submission<'_>,
        state: ReplayState,
    ) -> Result<(), TaskError> {
        match state {
            ReplayState::Fresh => {}
            // The earlier run may have ended before its last step, the rerouting.
            ReplayState::Evaluated => self.reroute_job(submission, false).await?,
            ReplayState::HandedOver => {
                submissions::hand_over(&self.deps, submission, job.headers.is_resent).await?;
            }
            ReplayState::Planned { plan, is_begun } => {
                // Effects that have begun must be completed, even if the item is superseded.
                let may_set_aside = job.headers.is_resent && !is_begun && plan.has_effects();
                let plan = if may_set_aside && self.is_superseded(submission).await? {
                    effects::replace_superseded(&self.deps.store, *plan).await?
                } else {
                    *plan
                };
                submissions::finish(&self.deps, submission, &plan).await?;
                self.reroute_job(submission, !plan.reviews.is_empty()).await?;
            }
        }
        Ok(())
    }

    /// True if a newer version of the item is stored. Acting on the older version now would replace the newer effects.
    pub(super) async fn is_superseded(&self, submission: &Submission<'_>) -> Result<bool, TaskError> {
        let (org, key) = (&submission.header.org, submission.entry.key());
        if submission.header.source == Source::Retroact {
            let repeat = retroact::load_repeat(&self.deps, submission).await?;
            return Ok(retroact::is_superseded(&self.deps.store, org, &key, &repeat).await?);
        }
        let newest_row = stored::find_newest_place(&self.deps.store, org, &key).await?;
        let at = submission.at;
        let own_coordinates = (at.append_ms, at.offset, i64::from(at.position));
        Ok(newest_row.is_some_and(|row| stored::coordinates(&row) > own_coordinates))
    }
}
