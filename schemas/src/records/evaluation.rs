//! Record of topic `evaluations`.

use crate::ids::{ConfigVersion, ItemKey, Millis, OrgId, SubmissionId};

record! {
    /// Results of the rules for a submission.
    pub struct Evaluation: "evaluation" = 11 {
        /// Organisation of the credential.
        pub org: OrgId,
        /// Evaluated submission.
        pub submission_id: SubmissionId,
        /// Item of the submission.
        pub item: ItemKey,
        /// Time of the evaluation.
        pub evaluated_at: Millis,
        /// Configuration version of the sender. Readers load at least this version.
        pub config_version: ConfigVersion,
        /// Matched rules with their explanations, as JSON.
        pub matched: String => length,
        /// Failed rules with the reasons, as JSON.
        pub errored: String => length,
        /// Parts that were not searched, counted or listed because they exceeded the limits of an evaluation, as JSON.
        pub left_out: Option<String>,
    }
}
