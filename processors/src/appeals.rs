//! Consumes appeals.
//!
//! What one leads to is `tidegate_moderation::review::appeals`.

use std::sync::Arc;

use tidegate_catalog::Live;
use tidegate_moderation::{self as moderation, review::appeals};
use tidegate_schemas::{ids::SubmissionId, records::Appeal};

use crate::{
    error::Fault,
    handler::{Handler, Job},
    lanes::Key,
    place::Place,
};

pub(crate) struct Appeals(pub(crate) moderation::Deps);

impl Handler for Appeals {
    type Record = Appeal;

    fn parts(record: &Appeal) -> Vec<(Key, usize)> {
        vec![(Key { org: record.org.clone(), item: record.item.key() }, record.item.data.len())]
    }

    fn live(&self) -> &Live {
        &self.0.live
    }

    fn submission(_record: &Appeal, _part: usize) -> Option<SubmissionId> {
        None
    }

    async fn handle(
        &self,
        job: Arc<Job<Appeal>>,
        _part: usize,
        _again: bool,
        _place: &Place,
    ) -> Result<(), Fault> {
        Ok(appeals::accept(&self.0, &job.record, job.written_at).await?)
    }
}
