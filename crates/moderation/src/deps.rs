//! Dependencies of the crate's operations.

use std::sync::Arc;

use tidegate_catalog::LiveConfigs;
use tidegate_egress::settings::PartialItemsEndpoints;
use tidegate_store::Store;
use tidegate_stream::Log;

/// Dependencies of every operation: log, store and live configurations.
#[derive(Clone)]
pub struct Deps {
    pub log: Log,
    pub store: Store,
    pub live: Arc<LiveConfigs>,
    /// Endpoints of platforms that deliver items on request, by org.
    pub partial_items: Arc<PartialItemsEndpoints>,
}
