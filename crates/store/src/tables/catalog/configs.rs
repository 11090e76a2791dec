//! Configurations: immutable snapshots, the head that names the current one, and the row that tells every process that
//! some head moved.
//!
//! It does not read documents; `tidegate-catalog` does.

use tidegate_schemas::ids::{ConfigVersion, Millis, OrgId};
use uuid::Uuid;

use crate::table;

table! {
    /// Current snapshot of an organisation. The version grows by one with each change.
    Versioned ConfigHead in "config_heads" ttl None;
    partition { org: OrgId }
    values { config_version: ConfigVersion, snapshot_id: Uuid, changed_at: Millis, author: String }
}

table! {
    /// A piece of a snapshot: its text is cut because a large configuration exceeds what one row should hold.
    ///
    /// Two writers of one version have snapshots of their own; the head names the one that won.
    Fact ConfigSnapshot in "config_snapshots" ttl None;
    partition { org: OrgId, config_version: ConfigVersion }
    cluster { snapshot_id: Uuid [Asc], part: i64 [Asc] }
    values { parts: i64, documents: String, author: String, created_at: Millis }
}

table! {
    /// One row whose version grows whenever a head moved, so that one read tells whether any did.
    Versioned CatalogEpoch in "catalog_epoch" ttl None;
    partition { name: String }
    values { changed_at: Millis }
}

/// The name of the only row of [`CatalogEpoch`].
pub const EPOCH: &str = "configs";
