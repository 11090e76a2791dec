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
        /// Source of the items.
        pub source: Source,
        /// Time at which the request arrived.
        pub received_at: Millis,
        /// The `x-request-id` of the request.
        pub request_id: String,
        /// The report that brought the item, with source `report`.
        pub report_id: Option<ReportId>,
        /// The items, in the order of the request.
        pub items: Vec<ItemEntry>,
    }
}

impl Items {
    /// Other items of the same request.
    pub fn with(&self, items: Vec<ItemEntry>) -> Self {
        Self {
            org: self.org.clone(),
            config_version: self.config_version,
            source: self.source,
            received_at: self.received_at,
            request_id: self.request_id.clone(),
            report_id: self.report_id,
            items,
        }
    }
}
