//! Record of topic `decisions`.

use super::parts::{JobClass, Verdict};
use crate::ids::{ActionId, AppealId, ConfigVersion, DecisionId, ItemKey, JobId, Millis, OrgId, PolicyId};

record! {
    /// Moderator's decision of a job, released after the time to undo it.
    pub struct Decision: "decision" = 13 {
        /// Organisation of the credential.
        pub org: OrgId,
        /// Configuration version of the sender. Readers load at least this version.
        pub config_version: ConfigVersion,
        /// Id of the decision.
        pub decision_id: DecisionId,
        /// Closed job; all zeros if the platform took the actions itself.
        pub job_id: JobId,
        /// Class of the job.
        pub class: JobClass,
        /// Subject of the job.
        pub item: ItemKey,
        /// Appeal, if the job is an appeal.
        pub appeal_id: Option<AppealId>,
        /// Time of the decision.
        pub decided_at: Millis,
        /// Moderator.
        pub decided_by: String,
        /// Verdict.
        pub verdict: Verdict,
        /// Actions to take.
        pub actions: Vec<ActionId>,
        /// Violated policies.
        pub policies: Vec<PolicyId>,
        /// Reason in the moderator's words.
        pub reason: Option<String> => length,
        /// Arguments of the actions: a JSON object of objects, by action id.
        pub parameters: Option<String> => length,
        /// Further items of the actions.
        pub reported_items: Vec<ItemKey>,
        /// Actions on related items of the job.
        pub related: Vec<RelatedActions>,
    }
}

record! {
    /// Actions of a decision on a related item of its job.
    pub struct RelatedActions {
        /// Related item.
        pub item: ItemKey,
        /// User for the strikes.
        pub user: Option<ItemKey>,
        /// Actions to take.
        pub actions: Vec<ActionId>,
        /// Violated policies.
        pub policies: Vec<PolicyId>,
        /// Arguments of the actions: a JSON object of objects, by action id.
        pub parameters: Option<String> => length,
    }
}
