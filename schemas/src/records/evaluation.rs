//! Holds the record of topic `evaluations`. What is done with one is decided by its readers.

use crate::ids::{ConfigVersion, ItemKey, Millis, OrgId, SubmissionId};

record! {
    /// Result of the rules for a submission.
    pub struct Evaluation: "evaluation" = 11 {
        /// The organisation, from the credential.
        pub org: OrgId,
        /// The submission.
        pub submission_id: SubmissionId,
        /// The item.
        pub item: ItemKey,
        /// Time at which it was evaluated.
        pub evaluated_at: Millis,
        /// The configuration that the sender worked with; a reader loads at least this one first.
        pub config_version: ConfigVersion,
        /// The rules that matched, with their explanation: JSON.
        pub matched: String => length,
        /// The rules that failed, with the reason: JSON.
        pub errored: String => length,
        /// Parts that were not searched, counted or listed because they exceeded an evaluation's bounds: JSON.
        pub left_out: Option<String>,
    }
}
