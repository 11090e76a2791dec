//! Record of topic `reports`.

use super::parts::{ContextItem, ItemEntry, Mention};
use crate::ids::{ConfigVersion, ItemKey, Millis, OrgId, ReportId};

record! {
    /// User's report of an item.
    pub struct Report: "report" = 9 {
        /// Organisation of the credential.
        pub org: OrgId,
        /// Configuration version of the sender. Readers load at least this version.
        pub config_version: ConfigVersion,
        /// Id of the report.
        pub report_id: ReportId,
        /// True if the request had an idempotency key.
        pub keyed: bool,
        /// Arrival time of the request.
        pub received_at: Millis,
        /// The `x-request-id` of the request.
        pub request_id: String,
        /// Time of the report, as stated by the platform.
        pub reported_at: Millis,
        /// Reporting user.
        pub reporter: ItemKey,
        /// Reported item.
        pub item: ItemEntry,
        /// Policy that is violated according to the user.
        pub policy_id: Option<Mention>,
        /// Reason in the user's words.
        pub reason: Option<String> => length,
        /// True if the item is reported as child sexual abuse material.
        pub csam: bool,
        /// Thread around the item, oldest entry first.
        pub thread: Vec<ContextItem>,
        /// Entries of the thread that the user marked.
        pub reported_in_thread: Vec<ItemKey>,
        /// Further items for context.
        pub additional: Vec<ContextItem>,
    }
}
