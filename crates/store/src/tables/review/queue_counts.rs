//! Jobs that enter and leave queues, and their counts by hour.
//!
//! An event is written before the change of its job, so it counts only if the job's row confirms it.

use tidegate_schemas::{
    ids::{JobId, Millis, OrgId, QueueId},
    string_enum,
};

use crate::{string_column, table};

string_enum! {
    /// Change of a queue by a job.
    pub enum QueueChange {
        /// The job was opened in the queue or moved into it; `created_at` of its row or one of its moves has the event's time.
        Opened = "opened",
        /// The job was decided, closed or moved out; `closed_at` of its row or one of its moves has the event's time.
        Closed = "closed",
    }
}

string_column!(QueueChange);

table! {
    /// A job that is about to enter or leave a queue.
    Fact QueueEvent in "queue_events" ttl Some(400 days);
    partition { org: OrgId, queue: QueueId, hour: i64 }
    cluster { at: Millis [Asc], job_id: JobId [Asc], change: QueueChange [Asc] }
    values { priority: i64 }
}

table! {
    /// Counts of a finished hour, and the number of open jobs at its end.
    Fact QueueHour in "queue_hours" ttl Some(800 days);
    partition { org: OrgId, queue: QueueId }
    cluster { hour: i64 [Desc] }
    values { opened: i64, closed: i64, open: i64 }
}

table! {
    /// Claim of a job, by hour, written before the job's row. The claim counts only if the job's row confirms it.
    Fact QueueClaim in "queue_claims" ttl Some(40 days);
    partition { org: OrgId, queue: QueueId, hour: i64 }
    cluster { job_id: JobId [Asc] }
    values { at: Millis }
}
