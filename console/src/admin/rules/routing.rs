//! `POST /admin/v1/routing/explain`: explains the queue that a routing list chooses for a job, entry by entry.

use std::sync::Arc;

use axum::{Json, extract::State};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};
use tidegate_catalog::routing::RoutingInput;
use tidegate_moderation::{
    Error,
    items::{
        evaluate::{self, PreparedItem},
        stored,
    },
    jobs::routing,
    review::report_routing,
};
use tidegate_rules::{Explained, Facts};
use tidegate_schemas::{
    documents::RoutingList,
    ids::{ConfigVersion, ItemId, ItemKey, Millis, QueueId, SubmissionId, TypeId},
    records::{ItemEntry, Source, Variant},
};
use tidegate_web::Problem;

use super::backtest::compile_candidate;
use crate::{
    admin::{
        access::child_safety,
        config::documents::NamedFile,
        request::{Body, Caller, faults, invalid},
    },
    api::Api,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExplainRoutingRequest {
    list: String,
    item: RoutedItemRequest,
    /// Facts of the cause under their names in conditions. Missing ones are taken from the stored item.
    #[serde(default)]
    report: Option<Map<String, Value>>,
    #[serde(default)]
    appeal: Option<Map<String, Value>>,
    #[serde(default)]
    rules: Option<Map<String, Value>>,
    #[serde(default)]
    media: Option<Map<String, Value>>,
    /// Documents to use instead of the live ones.
    #[serde(default)]
    files: Vec<NamedFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RoutedItemRequest {
    type_id: TypeId,
    /// Id of a stored item; not needed with `data`.
    #[serde(default)]
    id: Option<ItemId>,
    #[serde(default)]
    data: Option<Box<RawValue>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainRoutingResponse {
    queue: QueueId,
    #[serde(skip_serializing_if = "Option::is_none")]
    routed_by: Option<String>,
    /// Live version, also if other documents were used.
    config_version: ConfigVersion,
    /// Facts of the cause that the conditions were evaluated with.
    known: Value,
    entries: Vec<EntryResponse>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryResponse {
    name: String,
    queue: QueueId,
    matches: bool,
    /// True if the entry applies to other item types only.
    is_no_concern: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<Explained>,
}

pub(crate) async fn explain_routing(
    State(api): State<Api>,
    caller: Caller,
    Body(request): Body<ExplainRoutingRequest>,
) -> Result<Json<ExplainRoutingResponse>, Problem> {
    let (org, deps) = (&caller.org, &api.deps.moderation);
    let ExplainRoutingRequest { list, item, report, appeal, rules, media, files } = request;
    let list: RoutingList =
        list.parse().map_err(|_| invalid("/list", "A routing list is reports, rules or appeals."))?;
    let live = deps.live.load_latest(org).await.map_err(faults::catalog_problem)?;
    let config_version = live.version();
    let config =
        if files.is_empty() { live } else { compile_candidate(&api, org, live, files).await?.candidate() };
    let key = ItemKey { type_id: item.type_id, id: item.id.unwrap_or_else(|| ItemId::new("example")) };
    let evaluated_at = Millis::now();
    let (entry, mut facts_of_cause) = match item.data {
        Some(data) => {
            let data = Bytes::copy_from_slice(data.get().as_bytes());
            (build_item_entry(&key, data, Variant::Original, None), json!({}))
        }
        None => {
            child_safety::authorize_explained_item(&api, &caller, &key, "/routing/explain").await?;
            let row =
                stored::load_newest(&deps.store, org, &key).await.map_err(faults::moderation_problem)?;
            let row = row.ok_or_else(|| {
                let ItemKey { type_id, id } = &key;
                Problem::not_found(format!("There is no stored item `{id}` of type `{type_id}`."))
            })?;
            let findings = routing::findings(&row).map_err(faults::moderation_problem)?;
            let variant = row.variant.as_known().unwrap_or(Variant::Partial);
            (build_item_entry(&key, row.data.clone(), variant, row.type_version), findings)
        }
    };
    if list == RoutingList::Reports {
        report_routing::add_rules_of_submitted(&config, entry.clone(), evaluated_at, &mut facts_of_cause)
            .await;
    }
    // Facts of the request replace those of the stored item, group by group.
    for (name, group) in [("report", report), ("appeal", appeal), ("rules", rules), ("media", media)] {
        if let Some(members) = group {
            facts_of_cause[name] = Value::Object(members);
        }
    }
    // Conditions on the source have a value for every real report, so an example gets one as well.
    if list == RoutingList::Reports && facts_of_cause["report"].get("source").is_none() {
        facts_of_cause["report"]["source"] = json!(report_routing::SOURCE);
    }
    let prepared =
        evaluate::prepare(Arc::clone(&config), Source::Report, &entry, evaluated_at).map_err(|error| {
            match error {
                Error::Content { detail, .. } => {
                    invalid("/item", format!("The item does not fit its type: {detail}"))
                }
                error => faults::moderation_problem(error),
            }
        })?;
    let router = config.router(list);
    let facts = match router {
        Some(router) => {
            let scores_needed =
                report_routing::needed_scores(router, &prepared, &facts_of_cause, evaluated_at);
            report_routing::load_kept_scores(&deps.store, &prepared, scores_needed)
                .await
                .map_err(faults::moderation_problem)?
                .facts
        }
        None => Facts::new(),
    };
    let values = Some(PreparedItem::fields(&prepared));
    let cause =
        RoutingInput { item: &key, values, cause_facts: &facts_of_cause, facts: &facts, now: evaluated_at };
    let entries = router.map(|router| router.explain(cause)).unwrap_or_default();
    let choice = router.map(|router| router.choose(cause).choice);
    let (queue, routed_by) =
        choice.map_or_else(|| (list.default_queue(), None), |choice| (choice.queue, choice.routed_by));
    let entries = entries.into_iter().map(|entry| EntryResponse {
        name: entry.name,
        queue: entry.queue,
        matches: entry.matches,
        is_no_concern: !entry.concerns,
        tree: entry.tree,
    });
    Ok(Json(ExplainRoutingResponse {
        queue,
        routed_by,
        config_version,
        entries: entries.collect(),
        known: facts_of_cause,
    }))
}

fn build_item_entry(key: &ItemKey, data: Bytes, variant: Variant, type_version: Option<String>) -> ItemEntry {
    ItemEntry {
        submission_id: SubmissionId(uuid::Uuid::nil()),
        type_id: key.type_id.clone(),
        id: key.id.clone(),
        type_version,
        variant,
        data,
        origin: None,
        keyed: false,
    }
}
