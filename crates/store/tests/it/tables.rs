//! The tables of the contract suite: between them every column type, both modes, both orders, and a ttl.
//!
//! No table of Tidegate is among them.

use bytes::Bytes;
use tidegate_schemas::{
    ids::{
        ActionId, ApiKeyId, AppealId, CauseId, ConfigVersion, DecisionId, EndpointId, EventId, ItemId,
        ItemKey, JobId, Millis, OrgId, PolicyId, QueueId, ReportId, RuleId, SubmissionId, TypeId,
    },
    string_enum,
};
use tidegate_store::{string_column, table};
use uuid::Uuid;

string_enum! {
    pub(crate) enum Colour {
        Red = "red",
        Green = "green",
    }
}

string_column!(Colour);

table! { /// Every type as a value, present and null.
    Fact Everything in "everything" ttl None;
    partition { org: OrgId }
    cluster { at: Millis [Desc], id: SubmissionId [Asc] }
    values {
        text: String, long: i64, short: i32, yes: bool, real: f64, uuid: Uuid, instant: Millis, blob: Bytes,
        shared: std::sync::Arc<str>, colour: Colour,
        no_text: Option<String>, no_long: Option<i64>, no_short: Option<i32>, no_yes: Option<bool>,
        no_real: Option<f64>, no_uuid: Option<Uuid>, no_instant: Option<Millis>, no_blob: Option<Bytes>,
        type_id: TypeId, item_id: ItemId, item: ItemKey, policy: PolicyId, action: ActionId, rule: RuleId,
        endpoint: EndpointId, queue: QueueId, appeal: AppealId, event: EventId, cause: CauseId, job: JobId,
        report: ReportId, decision: DecisionId, api_key: ApiKeyId, config: ConfigVersion, no_item: Option<ItemKey>
    }
}

table! { /// Every type that can be a key, in both orders.
    Fact Keyed in "keyed" ttl None;
    partition { org: OrgId, day: i32, user: ItemKey }
    cluster { name: String [Desc], short: i32 [Asc], long: i64 [Desc], yes: bool [Asc], cause: CauseId [Desc] }
    values { n: i64 }
}

table! { /// Many rows of one partition.
    Fact Event in "events" ttl None;
    partition { org: OrgId }
    cluster { at: i64 [Asc], seq: i64 [Desc] }
    values { payload: Bytes, note: Option<String> }
}

table! { /// An event without its payload.
    View EventNote in "events" ttl None;
    partition { org: OrgId }
    cluster { at: i64 [Asc], seq: i64 [Desc] }
    values { note: Option<String> }
}

table! { /// Row that expires an hour after its write time.
    Fact Fleeting in "fleeting" ttl Some(1 hours), window 1 hours;
    partition { org: OrgId }
    cluster { seq: i64 [Asc] }
    values { n: i64 }
}

table! { /// Row with competing writers.
    Versioned Counter in "counters" ttl None;
    partition { org: OrgId }
    cluster { name: String [Asc] }
    values { n: i64, holder: Option<String>, payload: Bytes }
}

table! { /// Claim that expires.
    Versioned Claim in "claims" ttl Some(2 seconds);
    partition { org: OrgId, name: String }
    values { holder: String }
}
