//! Consumes the decisions that were released.
//!
//! What one leads to is `tidegate_moderation::review::decisions`; `decision_due` releases them.

use std::sync::Arc;

use tidegate_catalog::Live;
use tidegate_moderation::{self as moderation, review::decisions};
use tidegate_schemas::{ids::SubmissionId, records::Decision};

use crate::{
    error::Fault,
    handler::{Handler, Job},
    lanes::Key,
    place::Place,
};

pub(crate) struct Decisions(pub(crate) moderation::Deps);

impl Handler for Decisions {
    type Record = Decision;

    fn parts(record: &Decision) -> Vec<(Key, usize)> {
        vec![(Key { org: record.org.clone(), item: record.item.clone() }, 0)]
    }

    fn live(&self) -> &Live {
        &self.0.live
    }

    fn submission(_record: &Decision, _part: usize) -> Option<SubmissionId> {
        None
    }

    async fn handle(
        &self,
        job: Arc<Job<Decision>>,
        _part: usize,
        _again: bool,
        _place: &Place,
    ) -> Result<(), Fault> {
        Ok(decisions::accept(&self.0, &job.record, job.written_at).await?)
    }
}
