//! Configurations: immutable snapshots, the head that names the current one, and an epoch that counts changes of heads.
//!
//! `tidegate-catalog` reads the documents.

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
    /// Part of a snapshot. The text of a large configuration can exceed the size of one row and is split.
    ///
    /// Two writers of one version write separate snapshots; the head names the winner.
    Fact ConfigSnapshot in "config_snapshots" ttl None;
    partition { org: OrgId, config_version: ConfigVersion }
    cluster { snapshot_id: Uuid [Asc], part: i64 [Asc] }
    values { parts: i64, documents: String, author: String, created_at: Millis }
}

table! {
    /// Single row. Its version grows with every change of a head, so that one read detects changes of all organisations.
    Versioned CatalogEpoch in "catalog_epoch" ttl None;
    partition { name: String }
    values { changed_at: Millis }
}

/// The name of the only row of [`CatalogEpoch`].
pub const EPOCH: &str = "configs";
