//! Holds the record of topic `appeals`. What is done with one is decided by its readers.

use super::parts::{ContextItem, ItemEntry, Mention};
use crate::ids::{AppealId, ConfigVersion, ItemKey, Millis, OrgId};

record! {
    /// A user's appeal against an action.
    pub struct Appeal: "appeal" = 10 {
        /// The organisation, from the credential.
        pub org: OrgId,
        /// The configuration that the sender worked with; a reader loads at least this one first.
        pub config_version: ConfigVersion,
        /// The platform's id of the appeal.
        pub appeal_id: AppealId,
        /// Time at which the request arrived.
        pub received_at: Millis,
        /// The `x-request-id` of the request.
        pub request_id: String,
        /// Time at which the user appealed, as the platform says.
        pub appealed_at: Millis,
        /// User who appealed.
        pub appealed_by: ItemKey,
        /// The item that was acted upon.
        pub item: ItemEntry,
        /// The actions that the appeal is against.
        pub actions_taken: Vec<Mention>,
        /// The policies that the platform gave as the reason.
        pub violating_policies: Vec<Mention>,
        /// The user's words.
        pub reason: Option<String> => length,
        /// Further items for context.
        pub additional: Vec<ContextItem>,
    }
}
