//! Appeals as sent by the platform, and the claims on their ids. `jobs` holds the job of an appeal.

use bytes::Bytes;
use tidegate_schemas::{
    ids::{AppealId, ConfigVersion, ItemKey, Millis, OrgId},
    records::Variant,
};

use crate::{OpenEnum, table};

table! {
    /// An appeal. Lists of items and mentions are JSON texts.
    Fact Appeal in "appeals" ttl None;
    partition { org: OrgId, appeal_id: AppealId }
    cluster {}
    values {
        item: ItemKey,
        type_version: Option<String>,
        variant: OpenEnum<Variant>,
        data: Bytes,
        appealed_by: ItemKey,
        appealed_at: Millis,
        received_at: Millis,
        written_at: Millis,
        request_id: String,
        config_version: ConfigVersion,
        actions_taken: String,
        violating_policies: String,
        reason: Option<String>,
        additional: String,
    }
}

table! {
    /// Owner of an appeal id: the first body sent with it, by the digest of its key-sorted JSON.
    Versioned AppealClaim in "appeal_claims" ttl None;
    partition { org: OrgId, appeal_id: AppealId }
    cluster {}
    values { digest: Bytes, claimed_at: Millis }
}
