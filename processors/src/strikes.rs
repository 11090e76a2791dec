//! Consumes strikes, in the order of each user.
//!
//! What one leads to is `tidegate_moderation::strikes`.

use std::sync::Arc;

use tidegate_catalog::Live;
use tidegate_moderation::{self as moderation, strikes};
use tidegate_schemas::{ids::SubmissionId, records::Strike};

use crate::{
    error::Fault,
    handler::{Handler, Job},
    lanes::Key,
    place::Place,
};

pub(crate) struct Strikes(pub(crate) moderation::Deps);

impl Handler for Strikes {
    type Record = Strike;

    fn parts(record: &Strike) -> Vec<(Key, usize)> {
        vec![(Key { org: record.org.clone(), item: record.user.clone() }, 0)]
    }

    fn live(&self) -> &Live {
        &self.0.live
    }

    fn submission(_record: &Strike, _part: usize) -> Option<SubmissionId> {
        None
    }

    async fn handle(
        &self,
        job: Arc<Job<Strike>>,
        _part: usize,
        _again: bool,
        _place: &Place,
    ) -> Result<(), Fault> {
        Ok(strikes::accept(&self.0, &job.record, job.at.offset.0).await?)
    }
}
