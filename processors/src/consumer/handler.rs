//! Interface between the consumer and the handler of a topic's records.

use std::{future::ready, sync::Arc};

use bytes::Bytes;
use tidegate_schemas::{
    ids::{Millis, SubmissionId},
    records::Record,
};
use tidegate_stream::{consumer::ticket::Ticket, record::Headers, topics::Position};

use super::{error::TaskError, key_queues::NewPart, slot::ConcurrencySlot};

/// Record in processing, with its ticket.
#[derive(Debug)]
pub(crate) struct Job<R, H> {
    pub(crate) record: R,
    /// Facts that the handler has read from the record's headers.
    pub(crate) headers: H,
    pub(crate) value: Bytes,
    pub(crate) position: Position,
    pub(crate) written_at: Millis,
    pub(crate) maybe_replayed: bool,
    pub(crate) ticket: Ticket,
}

/// Job of the handler `H`.
pub(crate) type HandlerJob<H> = Job<<H as Handler>::Record, <H as Handler>::Headers>;

/// Part of a batch of the handler `H`.
pub(crate) type HandlerBatchPart<H> = BatchPart<HandlerJob<H>, <H as Handler>::Guard>;

/// One part of a record, such as one item, passed to a handler.
pub(crate) struct Part<'a, H: Handler> {
    pub(crate) job: Arc<HandlerJob<H>>,
    pub(crate) index: usize,
    /// True if this process has tried the part before.
    pub(crate) is_retry: bool,
    /// Start guard of the part, shared by all its attempts.
    pub(crate) guard: &'a mut H::Guard,
    /// Slot of the part. A handler may release it during a wait.
    pub(crate) slot: &'a ConcurrencySlot,
}

/// One part of a batch with its start guard.
pub(crate) struct BatchPart<J, G> {
    pub(crate) job: Arc<J>,
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
pub(crate) trait Handler: Sized + Send + Sync + 'static {
    type Record: Record + Send + Sync + 'static;

    /// Facts from the headers of a record. `()` for records without headers.
    type Headers: Send + Sync + 'static;

    /// Guard that lives from the start of a part to its end. `()` for handlers without an order of starts.
    type Guard: Send;

    fn parse_headers(headers: &Headers) -> Self::Headers;

    /// Returns the parts of the record. Parts of one key run one after another.
    fn parts(job: &HandlerJob<Self>) -> Vec<NewPart>;

    fn dead_letter_content(job: &HandlerJob<Self>, part: usize) -> DeadLetterContent;

    /// Called in the order of starts, before the part is handled on another task.
    fn start(&self, job: &HandlerJob<Self>, part: usize) -> Self::Guard;

    /// Called after a failed attempt, before the pause. Releases the waiters that must not wait for the next attempt.
    fn release_waiters(_guard: &mut Self::Guard) {}

    /// Processes batchable parts of one org together. Parts that need a retry, a dead letter or a wait remain for `handle`.
    fn handle_batch(&self, parts: Vec<HandlerBatchPart<Self>>) -> impl Future<Output = BatchOutcome> + Send {
        ready(BatchOutcome::all_remaining(parts.len()))
    }

    /// Processes one part. Returns when all effects of the part are durable.
    fn handle(&self, part: Part<'_, Self>) -> impl Future<Output = Result<(), TaskError>> + Send;
}
