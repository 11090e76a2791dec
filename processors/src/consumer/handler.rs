//! Interface between the consumer and the handler of a topic's records.

use std::{future::ready, sync::Arc};

use bytes::Bytes;
use tidegate_schemas::{
    ids::{Millis, SubmissionId},
    records::Record,
};
use tidegate_stream::{consumer::ticket::Ticket, topics::Position};
use uuid::Uuid;

use super::{error::TaskError, key_queues::NewPart, slot::ConcurrencySlot};

/// Record in processing, with its ticket.
#[derive(Debug)]
pub(crate) struct Job<R> {
    pub(crate) record: R,
    pub(crate) value: Bytes,
    pub(crate) position: Position,
    pub(crate) written_at: Millis,
    pub(crate) maybe_replayed: bool,
    /// True if an operator has sent the record back from the dead letters.
    pub(crate) is_resent: bool,
    /// True if the media of the record's items are not fetched.
    pub(crate) is_without_media: bool,
    /// Cause of the review job that needs the media of these items. The items themselves are not evaluated.
    pub(crate) context_of: Option<Uuid>,
    pub(crate) ticket: Ticket,
}

/// One part of a record, such as one item, passed to a handler.
pub(crate) struct Part<'a, R> {
    pub(crate) job: Arc<Job<R>>,
    pub(crate) index: usize,
    /// True if this process has tried the part before.
    pub(crate) is_retry: bool,
    /// Slot of the part. A handler may release it during a wait.
    pub(crate) slot: &'a ConcurrencySlot,
}

/// One part of a batch with its start guard.
pub(crate) struct BatchPart<R, G> {
    pub(crate) job: Arc<Job<R>>,
    pub(crate) index: usize,
    pub(crate) guard: G,
}

/// Result of a batch: the parts that remain for `Handler::handle`. The others are done.
pub(crate) struct BatchOutcome {
    /// Positions in the batch, ascending.
    pub(crate) remaining_positions: Vec<usize>,
    /// True if effects of the remaining parts may be stored already.
    pub(crate) is_retry: bool,
}

impl BatchOutcome {
    /// All parts remain, and none of their effects is stored.
    pub(crate) fn all_remaining(part_count: usize) -> Self {
        Self { remaining_positions: (0..part_count).collect(), is_retry: false }
    }

    /// All parts remain, and some of their effects may be stored.
    pub(crate) fn all_for_retry(part_count: usize) -> Self {
        Self { is_retry: true, ..Self::all_remaining(part_count) }
    }
}

/// Content of the dead letter of one part.
pub(crate) struct DeadLetterContent {
    /// Encoded record with this part and as little else as possible.
    pub(crate) datum: Vec<u8>,
    pub(crate) submission_id: Option<SubmissionId>,
}

/// Processes the records of one topic.
pub(crate) trait Handler: Send + Sync + 'static {
    type Record: Record + Send + Sync + 'static;

    /// Guard that lives from the start of a part to its end. `()` for handlers without an order of starts.
    type Guard: Send;

    /// Returns the parts of the record. Parts of one key run one after another.
    fn parts(job: &Job<Self::Record>) -> Vec<NewPart>;

    fn dead_letter_content(job: &Job<Self::Record>, part: usize) -> DeadLetterContent;

    /// Called in the order of starts, before the part is handled on another task.
    fn start(&self, job: &Job<Self::Record>, part: usize) -> Self::Guard;

    /// Processes batchable parts of one org together. Parts that need a retry, a dead letter or a wait remain for `handle`.
    fn handle_batch(
        &self,
        parts: Vec<BatchPart<Self::Record, Self::Guard>>,
    ) -> impl Future<Output = BatchOutcome> + Send {
        ready(BatchOutcome::all_remaining(parts.len()))
    }

    /// Processes one part. Returns when all effects of the part are durable.
    fn handle(&self, part: Part<'_, Self::Record>) -> impl Future<Output = Result<(), TaskError>> + Send;
}
