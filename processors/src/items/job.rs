//! Records of items on their way, and single items of them.

use tidegate_moderation::{items::stored::Submission, rules::windows::Moment};
use tidegate_schemas::records::{self, Coordinates};
use tidegate_stream::Topic;

use super::window_order::WindowGuard;
use crate::consumer::handler::{BatchPart, Job};

pub(crate) type ItemJob = Job<records::Items>;
pub(super) type ItemBatchPart = BatchPart<records::Items, Option<WindowGuard>>;

/// The item of a record, at the coordinates of the first record that held it.
pub(super) fn submission(job: &ItemJob, index: usize) -> Submission<'_> {
    let here = Coordinates {
        append_ms: job.written_at,
        offset: job.at.offset.0,
        position: i32::try_from(index).unwrap_or(i32::MAX),
    };
    let submission = Submission::new(&job.record, &job.record.items[index], here);
    Submission { is_late: job.at.partition.topic == Topic::ItemsSlow, ..submission }
}

pub(super) fn moment(job: &ItemJob, index: usize) -> Moment {
    let submission = submission(job, index);
    Moment::new(submission.at, submission.entry.submission_id)
}
