//! Record of topic `appeals`.

use super::parts::{ContextItem, ItemEntry, Mention};
use crate::ids::{AppealId, ConfigVersion, ItemKey, Millis, OrgId};

record! {
    /// A user's appeal against an action.
    pub struct Appeal: "appeal" = 10 {
        /// Organisation of the credential.
        pub org: OrgId,
        /// Configuration version of the sender. Readers load at least this version.
        pub config_version: ConfigVersion,
        /// Id of the appeal, assigned by the platform.
        pub appeal_id: AppealId,
        /// Arrival time of the request.
        pub received_at: Millis,
        /// The `x-request-id` of the request.
        pub request_id: String,
        /// Time of the appeal, as stated by the platform.
        pub appealed_at: Millis,
        /// Appealing user.
        pub appealed_by: ItemKey,
        /// Item of the actions.
        pub item: ItemEntry,
        /// Disputed actions.
        pub actions_taken: Vec<Mention>,
        /// Policies that the platform stated as the reason of the actions.
        pub violating_policies: Vec<Mention>,
        /// Reason in the user's words.
        pub reason: Option<String> => length,
        /// Further items for context.
        pub additional: Vec<ContextItem>,
    }
}
