//! Holds the record of topic `dead-letters`. What is done with one is decided by its readers.

use bytes::Bytes;

use super::parts::Header;
use crate::ids::{Millis, OrgId, SubmissionId};

record! {
    /// A part of a record that cannot be processed, with its origin.
    pub struct DeadLetter: "dead_letter" = 8 {
        /// The organisation, where it is known.
        pub org: Option<OrgId>,
        /// The topic of the record, without prefix.
        pub topic: String,
        /// Its partition.
        pub partition: i32,
        /// Its offset.
        pub offset: i64,
        /// Time at which the log took it.
        pub written_at: Millis,
        /// Its key.
        pub key: Bytes,
        /// A framed record that holds only the failing part.
        pub value: Bytes,
        /// Its headers.
        pub headers: Vec<Header>,
        /// The submission, if it was one.
        pub submission_id: Option<SubmissionId>,
        /// Stage at which it failed.
        pub stage: String,
        /// Why: a stable tag.
        pub reason: String,
        /// Why, for a person; no content.
        pub detail: String,
        /// Time at which it failed.
        pub failed_at: Millis,
    }
}
