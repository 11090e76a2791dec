//! Finds the configuration of a caller's org.

use std::sync::Arc;

use tidegate_catalog::Compiled;
use tidegate_web::Problem;

use super::{caller::Caller, faults};
use crate::api::Api;

/// Returns the live configuration of this process, or else the newest stored one.
pub(crate) async fn load_config(api: &Api, caller: &Caller) -> Result<Arc<Compiled>, Problem> {
    let live = &api.deps.moderation.live;
    match live.org(&caller.org) {
        // The live configuration costs no read. Only an org that this process has not loaded yet is looked up.
        Some(config) => Ok(config),
        None => live.load_latest(&caller.org).await.map_err(faults::catalog_problem),
    }
}
