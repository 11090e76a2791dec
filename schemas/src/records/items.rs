//! Holds the record of topic `items`. What is done with one is decided by its readers.

use super::parts::{ItemEntry, Source};
use crate::ids::{ConfigVersion, Millis, OrgId, ReportId};

record! {
    /// Items of one request that share a partition.
    pub struct Items: "items" = 1 {
        /// The organisation, from the credential.
        pub org: OrgId,
        /// The configuration that the sender worked with; a reader loads at least this one first.
        pub config_version: ConfigVersion,
        /// Where the items came from.
        pub source: Source,
        /// When the request arrived.
        pub received_at: Millis,
        /// The `x-request-id` of the request.
        pub request_id: String,
        /// The report that brought the item, with source `report`.
        pub report_id: Option<ReportId>,
        /// The items, in the order of the request.
        pub items: Vec<ItemEntry>,
    }
}
