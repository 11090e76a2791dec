//! Stores items that the service fetched from a platform, with their media. Rules do not act on them: they act on items
//! that platforms submit.

use tidegate_moderation::items::submissions;

use super::pipeline::ItemRun;
use crate::consumer::error::TaskError;

impl ItemRun<'_> {
    pub(super) async fn store_fetched(mut self) -> Result<(), TaskError> {
        let evaluation = self.prepare().await?;
        let Some(evaluation) = self.await_media(evaluation).await? else { return Ok(()) };
        let plan = submissions::plan_fetched(&self.submission, &evaluation.prepared)?;
        submissions::carry_out(&self.pipeline.deps, &self.submission, plan).await?;
        Ok(())
    }
}
