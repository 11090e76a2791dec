//! Record of topic `dead-letters`.

use bytes::Bytes;

use super::parts::Header;
use crate::ids::{Millis, OrgId, SubmissionId};

record! {
    /// Part of a record that cannot be processed, with its origin.
    pub struct DeadLetter: "dead_letter" = 8 {
        /// Organisation, if known.
        pub org: Option<OrgId>,
        /// Topic of the record, without prefix.
        pub topic: String,
        /// Partition of the record.
        pub partition: i32,
        /// Offset of the record.
        pub offset: i64,
        /// Append time of the record.
        pub written_at: Millis,
        /// Key of the record.
        pub key: Bytes,
        /// Framed record with only the failing part.
        pub value: Bytes,
        /// Headers of the record.
        pub headers: Vec<Header>,
        /// Submission, if the part is an item.
        pub submission_id: Option<SubmissionId>,
        /// Processing stage of the failure.
        pub stage: String,
        /// Reason as a stable tag.
        pub reason: String,
        /// Reason for people, without content of the record.
        pub detail: String,
        /// Time of the failure.
        pub failed_at: Millis,
    }
}
