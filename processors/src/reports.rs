//! Consumes reports.
//!
//! What one leads to is `tidegate_moderation::review::reports`.

use std::sync::Arc;

use tidegate_catalog::Live;
use tidegate_moderation::{self as moderation, review::reports};
use tidegate_schemas::{ids::SubmissionId, records::Report};

use crate::{
    error::Fault,
    handler::{Handler, Job},
    lanes::Key,
    place::Place,
};

pub(crate) struct Reports(pub(crate) moderation::Deps);

impl Handler for Reports {
    type Record = Report;

    fn parts(record: &Report) -> Vec<(Key, usize)> {
        vec![(Key { org: record.org.clone(), item: record.item.key() }, record.item.data.len())]
    }

    fn live(&self) -> &Live {
        &self.0.live
    }

    fn submission(record: &Report, _part: usize) -> Option<SubmissionId> {
        Some(record.item.submission_id)
    }

    async fn handle(
        &self,
        job: Arc<Job<Report>>,
        _part: usize,
        _again: bool,
        _place: &Place,
    ) -> Result<(), Fault> {
        Ok(reports::accept(&self.0, &job.record, job.written_at, job.is_resent).await?)
    }
}
