//! Record of topic `items`.

use super::parts::{ItemEntry, Source};
use crate::ids::{ConfigVersion, Millis, OrgId, ReportId};

record! {
    /// Items of one request that share a partition.
    pub struct Items: "items" = 1 {
        /// Organisation of the credential.
        pub org: OrgId,
        /// Configuration version of the sender. Readers load at least this version.
        pub config_version: ConfigVersion,
        /// Source of the items.
        pub source: Source,
        /// Arrival time of the request.
        pub received_at: Millis,
        /// The `x-request-id` of the request.
        pub request_id: String,
        /// Report of the item, with source `report`.
        pub report_id: Option<ReportId>,
        /// Items, in the order of the request.
        pub items: Vec<ItemEntry>,
    }
}

impl Items {
    /// Creates a record of the same request with other items.
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
