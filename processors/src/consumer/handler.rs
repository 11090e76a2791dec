//! Interface between the consumer and the work that a topic's records lead to.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_schemas::{
    ids::{Millis, SubmissionId},
    records::Record,
};
use tidegate_stream::{consumer::ticket::Ticket, topics::Position};
use uuid::Uuid;

use super::{error::TaskError, key_queues::Key, slot::ConcurrencySlot};

/// A record that is being processed.
#[derive(Debug)]
pub(crate) struct Job<R> {
    pub(crate) record: R,
    pub(crate) value: Bytes,
    pub(crate) at: Position,
    pub(crate) written_at: Millis,
    pub(crate) maybe_replayed: bool,
    /// True if the record was a dead letter that an operator has sent back.
    pub(crate) is_resent: bool,
    /// Cause of the review job that only wants the media of these items. The items themselves are not evaluated.
    pub(crate) context_of: Option<Uuid>,
    pub(crate) ticket: Ticket,
}

/// One part of a record that is to be processed, such as one item.
pub(crate) struct Part<'a, R> {
    pub(crate) job: Arc<Job<R>>,
    pub(crate) index: usize,
    /// True if this process has tried the part before.
    pub(crate) is_retry: bool,
    /// Slot that the part holds. A handler may release it while it waits for something outside.
    pub(crate) slot: &'a ConcurrencySlot,
}

/// Content of a dead letter for one part of a record.
pub(crate) struct DeadPart {
    /// Encoded record that holds the part, and as little else as possible.
    pub(crate) datum: Vec<u8>,
    pub(crate) submission_id: Option<SubmissionId>,
}

/// Processes the records of one topic.
pub(crate) trait Handler: Send + Sync + 'static {
    type Record: Record + Send + Sync + 'static;

    /// Held from the start of a part to its end. `()` where the order of starts does not matter.
    type Guard: Send;

    /// Returns the key and the size in bytes of each part of the record. Parts of one key run one after another.
    fn parts(record: &Self::Record) -> Vec<(Key, usize)>;

    fn dead_part(job: &Job<Self::Record>, part: usize) -> DeadPart;

    /// Called in the order in which parts start, before `handle` runs on another task.
    fn start(&self, job: &Job<Self::Record>, part: usize) -> Self::Guard;

    /// Processes one part. Returns when everything that the part leads to is durable.
    fn handle(&self, part: Part<'_, Self::Record>) -> impl Future<Output = Result<(), TaskError>> + Send;
}
