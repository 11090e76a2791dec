//! Interface between the consumer and the work that a topic's records lead to.

use std::{future::ready, sync::Arc};

use bytes::Bytes;
use tidegate_schemas::{
    ids::{Millis, SubmissionId},
    records::Record,
};
use tidegate_stream::{consumer::ticket::Ticket, topics::Position};
use uuid::Uuid;

use super::{error::TaskError, key_queues::NewPart, slot::ConcurrencySlot};

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
    /// True if the media of the record's items are not fetched.
    pub(crate) is_without_media: bool,
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

/// One part of a batch, with the guard of its start.
pub(crate) struct BatchPart<R, G> {
    pub(crate) job: Arc<Job<R>>,
    pub(crate) index: usize,
    pub(crate) guard: G,
}

/// Parts of a batch that are left to `Handler::handle`. The others are done.
pub(crate) struct BatchOutcome {
    /// Positions in the batch, ascending.
    pub(crate) left: Vec<usize>,
    /// True if some of what the left parts lead to may be stored already.
    pub(crate) is_retry: bool,
}

impl BatchOutcome {
    /// Leaves all of a batch, of which nothing was stored.
    pub(crate) fn leave_all(parts: usize) -> Self {
        Self { left: (0..parts).collect(), is_retry: false }
    }

    /// Leaves all of a batch that may be stored in part.
    pub(crate) fn retry_all(parts: usize) -> Self {
        Self { is_retry: true, ..Self::leave_all(parts) }
    }
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

    /// Returns the parts of the record. Parts of one key run one after another.
    fn parts(job: &Job<Self::Record>) -> Vec<NewPart>;

    fn dead_part(job: &Job<Self::Record>, part: usize) -> DeadPart;

    /// Called in the order in which parts start, before they are handled on another task.
    fn start(&self, job: &Job<Self::Record>, part: usize) -> Self::Guard;

    /// Processes batchable parts of one org together, as far as that goes. Retries, dead letters and waits are for `handle`.
    fn handle_batch(
        &self,
        parts: Vec<BatchPart<Self::Record, Self::Guard>>,
    ) -> impl Future<Output = BatchOutcome> + Send {
        ready(BatchOutcome::leave_all(parts.len()))
    }

    /// Processes one part. Returns when everything that the part leads to is durable.
    fn handle(&self, part: Part<'_, Self::Record>) -> impl Future<Output = Result<(), TaskError>> + Send;
}
