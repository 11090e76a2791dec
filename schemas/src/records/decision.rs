//! Holds the record of topic `decisions`. What is done with one is decided by its readers.

use super::parts::{JobClass, Verdict};
use crate::ids::{ActionId, AppealId, ConfigVersion, DecisionId, ItemKey, JobId, Millis, OrgId, PolicyId};

record! {
    /// A moderator's decision of a job, released after the time to undo it.
    pub struct Decision: "decision" = 13 {
        /// The organisation, from the credential.
        pub org: OrgId,
        /// The configuration that the sender worked with; a reader loads at least this one first.
        pub config_version: ConfigVersion,
        /// The decision.
        pub decision_id: DecisionId,
        /// The job that it closes; all zeros if the platform took the actions itself.
        pub job_id: JobId,
        /// The kind of the job.
        pub class: JobClass,
        /// The subject of the job.
        pub item: ItemKey,
        /// The appeal, if the job is one.
        pub appeal_id: Option<AppealId>,
        /// Time at which the moderator decided.
        pub decided_at: Millis,
        /// The moderator.
        pub decided_by: String,
        /// Verdict of the decision.
        pub verdict: Verdict,
        /// The actions to take.
        pub actions: Vec<ActionId>,
        /// The policies that are violated.
        pub policies: Vec<PolicyId>,
        /// The moderator's words.
        pub reason: Option<String> => length,
        /// Values of the actions' parameters: a JSON object of objects, by the action's id.
        pub parameters: Option<String> => length,
        /// Further items that the actions are about.
        pub reported_items: Vec<ItemKey>,
        /// Actions on items that belong to the job.
        pub related: Vec<RelatedActions>,
    }
}

record! {
    /// Actions of a decision on an item that belongs to its job.
    pub struct RelatedActions {
        /// The item.
        pub item: ItemKey,
        /// The user who receives the strikes.
        pub user: Option<ItemKey>,
        /// The actions to take.
        pub actions: Vec<ActionId>,
        /// The policies that are violated.
        pub policies: Vec<PolicyId>,
        /// Values of the actions' parameters: a JSON object of objects, by the action's id.
        pub parameters: Option<String> => length,
    }
}
