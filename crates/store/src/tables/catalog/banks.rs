//! Entries of banks and the feed of their changes. `tidegate-catalog` orders the writes of a change.

use tidegate_schemas::ids::{BankId, Millis, OrgId};
use uuid::Uuid;

use crate::table;

table! {
    /// Head of a bank. Revision `revision` is the change `change_id`; the entries' rows hold all changes up to
    /// `settled`, which is that revision or the one before.
    Versioned BankHead in "bank_heads" ttl None;
    partition { org: OrgId, bank: BankId }
    values {
        revision: i64,
        settled: i64,
        change_id: Uuid,
        enabled: bool,
        changed_at: Millis,
        author: String,
    }
}

table! {
    /// An entry; its id is derived from its value. Its write time is the revision that wrote it.
    Fact BankEntry in "bank_entries" ttl None;
    partition { org: OrgId, bank: BankId }
    cluster { entry: Uuid [Asc] }
    values {
        value: String,
        enabled: bool,
        labels: String,
        source: Option<String>,
        added_at: Millis,
        expires_at: Option<Millis>,
        author: String,
    }
}

table! {
    /// An entry of a bank of hashes, of which there may be millions: `bucket` is the first six bits of its id, so that
    /// no partition holds more than a 64th of a bank. Its write time is the revision that wrote it.
    Fact BankHash in "bank_hashes" ttl None;
    partition { org: OrgId, bank: BankId, bucket: i64 }
    cluster { entry: Uuid [Asc] }
    values {
        value: String,
        enabled: bool,
        distance: Option<i64>,
        labels: String,
        source: Option<String>,
        reference: Option<String>,
        also: Option<String>,
        note: Option<String>,
        added_at: Millis,
        expires_at: Option<Millis>,
        quarantined_at: Option<Millis>,
        author: String,
    }
}

table! {
    /// Part of a change. The text of an import can exceed the size of one row and is split. Several changes may compete
    /// for a revision; the head or `bank_revisions` names the winner.
    Fact BankChange in "bank_changes" ttl Some(35 days);
    partition { org: OrgId, bank: BankId, revision: i64 }
    cluster { change_id: Uuid [Asc], part: i64 [Asc] }
    values { parts: i64, operations: String }
}

table! {
    /// Change that became a revision.
    Fact BankRevision in "bank_revisions" ttl Some(35 days);
    partition { org: OrgId, bank: BankId }
    cluster { revision: i64 [Asc] }
    values { change_id: Uuid }
}
