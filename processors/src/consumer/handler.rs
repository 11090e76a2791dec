//! What a consumer is given to do, and who does it.
//!
//! It neither orders nor retries; `worker` and `trying` do.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_catalog::Live;
use tidegate_schemas::{
    ids::{Millis, SubmissionId},
    records::Record,
};
use tidegate_stream::{consumer::ticket::Ticket, topics::Position};
use uuid::Uuid;

use crate::{
    consumer::error::Fault, consumer::key_queues::Key, consumer::slot::Place, items::window_order::Turn,
};

/// A record that is worked on.
#[derive(Debug)]
pub(crate) struct Job<R> {
    pub(crate) record: R,
    pub(crate) value: Bytes,
    pub(crate) at: Position,
    pub(crate) written_at: Millis,
    pub(crate) maybe_replayed: bool,
    /// It was a dead letter.
    pub(crate) is_resent: bool,
    /// Only the media of its items are wanted, for the job that has this cause.
    pub(crate) context_of: Option<Uuid>,
    pub(crate) ticket: Ticket,
}

/// What the records of a topic lead to.
pub(crate) trait Handler: Send + Sync + 'static {
    type Record: Record + Send + Sync + 'static;

    /// The key and the size of each part.
    fn parts(record: &Self::Record) -> Vec<(Key, usize)>;

    fn submission(record: &Self::Record, part: usize) -> Option<SubmissionId>;

    /// Whose configurations run here.
    fn live(&self) -> &Live;

    /// The datum of a record that holds nothing but the part.
    fn alone(job: &Job<Self::Record>, part: usize) -> Vec<u8> {
        let _ = part;
        job.value.to_vec()
    }

    /// Called in the order in which parts start; held until the part has ended.
    fn line_up(&self, job: &Job<Self::Record>, part: usize) -> Option<Turn> {
        let _ = (job, part);
        None
    }

    /// Done when everything that the part leads to is durable. `again`: this process has tried it before. It may leave
    /// its place while it waits for others.
    fn handle(
        &self,
        job: Arc<Job<Self::Record>>,
        part: usize,
        again: bool,
        place: &Place,
    ) -> impl Future<Output = Result<(), Fault>> + Send;
}
