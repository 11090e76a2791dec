//! Holds the record of topic `reports`. What is done with one is decided by its readers.

use super::parts::{ContextItem, ItemEntry, Mention};
use crate::ids::{ConfigVersion, ItemKey, Millis, OrgId, ReportId};

record! {
    /// A user's report of an item.
    pub struct Report: "report" = 9 {
        /// The organisation, from the credential.
        pub org: OrgId,
        /// The configuration that the sender worked with; a reader loads at least this one first.
        pub config_version: ConfigVersion,
        /// The report.
        pub report_id: ReportId,
        /// Came with an idempotency key.
        pub keyed: bool,
        /// Time at which the request arrived.
        pub received_at: Millis,
        /// The `x-request-id` of the request.
        pub request_id: String,
        /// Time at which the user reported, as the platform says.
        pub reported_at: Millis,
        /// User who reported.
        pub reporter: ItemKey,
        /// The reported item.
        pub item: ItemEntry,
        /// The policy that the user says is violated.
        pub policy_id: Option<Mention>,
        /// The user's words.
        pub reason: Option<String> => length,
        /// Reported as child sexual abuse material.
        pub csam: bool,
        /// The thread around the item, oldest first.
        pub thread: Vec<ContextItem>,
        /// The entries of the thread that the user marked.
        pub reported_in_thread: Vec<ItemKey>,
        /// Further items for context.
        pub additional: Vec<ContextItem>,
    }
}
