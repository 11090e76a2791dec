//! Jobs as stored: opening, priority, queue choice and counts, and the JSON columns of a job's row. `review` works on
//! them.

pub(crate) mod job_moves;
pub(crate) mod job_skips;
mod opening;
pub mod priority;
pub mod queue_counts;
pub(crate) mod reviewed_policies;
pub mod routing;
pub mod stored_decision;
pub mod summary;
pub(crate) mod user_history;

pub use self::opening::{BuiltInQueue, Cause, JobRequest, Placement, open_for_appeal, open_or_join};
pub(crate) use self::opening::{
    appeal_job_id, choose_entry_time, count_reporters, has_cause, parse_policies, put_entry, report_cause_id,
    signals_to_json, subject_key,
};
