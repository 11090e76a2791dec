//! Types of item records in processing, and the evaluation of a batch.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use tidegate_catalog::Compiled;
use tidegate_moderation::{
    items::{
        batch::{self, BatchItem},
        context_media::{self, CONTEXT},
        stored::{RESENT, Submission, WITHOUT_MEDIA},
    },
    rules::windows::SubmissionPosition,
};
use tidegate_rules::Interrupt;
use tidegate_schemas::records::{self, Coordinates};
use tidegate_stream::{Topic, record::Headers};
use uuid::Uuid;

use super::window_order::WindowGuard;
use crate::consumer::handler::{BatchPart, Job};

pub(crate) type ItemJob = Job<records::Items, ItemHeaders>;
pub(super) type ItemBatchPart = BatchPart<ItemJob, Option<Arc<WindowGuard>>>;

/// Computing time of a batch. The items beyond it are handled one by one, so slow rules do not occupy a thread for a full
/// batch.
const BATCH_COMPUTE_TIME: Duration = Duration::from_millis(10);

/// Facts from the headers of an item record.
#[derive(Debug)]
pub(crate) struct ItemHeaders {
    /// True if an operator has sent the record back from the dead letters.
    pub(super) is_resent: bool,
    /// True if the media of the record's items are not fetched.
    pub(super) is_without_media: bool,
    /// Cause of the review job that needs the media of these items. The items themselves are not evaluated.
    pub(super) context_of: Option<Uuid>,
}

impl ItemHeaders {
    pub(super) fn parse(headers: &Headers) -> Self {
        Self {
            is_resent: headers.get(RESENT).is_some(),
            is_without_media: headers.get(WITHOUT_MEDIA).is_some(),
            context_of: headers.get(CONTEXT).and_then(|cause| context_media::cause_of(cause)),
        }
    }
}

/// True if an earlier run may have stored rows of the item.
pub(super) fn may_be_replay(job: &ItemJob, index: usize) -> bool {
    let entry = &job.record.items[index];
    // Clients may repeat a keyed item, and an item with an origin was in an earlier record.
    job.maybe_replayed || entry.keyed || entry.origin.is_some()
}

/// Returns an item of the record with the coordinates of the first record that contained it.
pub(super) fn submission(job: &ItemJob, index: usize) -> Submission<'_> {
    let coordinates = Coordinates {
        append_ms: job.written_at,
        offset: job.position.offset.0,
        position: i32::try_from(index).unwrap_or(i32::MAX),
    };
    let submission = Submission::new(&job.record, &job.record.items[index], coordinates);
    Submission { is_late: job.position.partition.topic == Topic::ItemsSlow, ..submission }
}

pub(super) fn moment(job: &ItemJob, index: usize) -> SubmissionPosition {
    let submission = submission(job, index);
    SubmissionPosition::new(submission.at, submission.entry.submission_id)
}

/// Evaluates the items in turn. `None` for an item that failed, panicked, or was not decided within `BATCH_COMPUTE_TIME`;
/// it is evaluated again alone.
pub(super) fn evaluate_batch(
    parts: &[ItemBatchPart],
    config: &Arc<Compiled>,
    interrupt: &Interrupt,
) -> Vec<Option<BatchItem>> {
    let interrupt = interrupt.with_deadline(Instant::now() + BATCH_COMPUTE_TIME);
    let evaluate = |part: &ItemBatchPart| {
        let submission = submission(&part.job, part.index);
        let item = AssertUnwindSafe(|| batch::evaluate(config, &submission, &interrupt));
        catch_unwind(item).ok().and_then(Result::ok).flatten()
    };
    // Ends with the computing time, so the result may be shorter than the batch.
    parts.iter().map_while(|part| (!interrupt.is_due()).then(|| evaluate(part))).collect()
}
