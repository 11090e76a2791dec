//! `POST /admin/v1/routing/explain`: where a routing list sends a job, and why the other entries do not take it.

use std::sync::Arc;

use axum::{Json, extract::State};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};
use tidegate_catalog::routing::Routed;
use tidegate_moderation::{
    Error,
    items::{
        evaluate::{self, Prepared},
        stored,
    },
    review::report_routing,
    routing,
};
use tidegate_rules::{Explained, Facts};
use tidegate_schemas::{
    documents::RoutingList,
    ids::{ConfigVersion, ItemId, ItemKey, Millis, QueueId, SubmissionId, TypeId},
    records::{ItemEntry, Source, Variant},
};
use tidegate_web::Problem;

use crate::admin::{
    Api,
    caller::Caller,
    child_safety,
    config::Named,
    extract::{Body, invalid},
    faults,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wanted {
    list: String,
    item: WantedItem,
    /// Facts of the cause, by the names that conditions use. Those of a stored item stand for what is left out.
    #[serde(default)]
    report: Option<Map<String, Value>>,
    #[serde(default)]
    appeal: Option<Map<String, Value>>,
    #[serde(default)]
    rules: Option<Map<String, Value>>,
    #[serde(default)]
    media: Option<Map<String, Value>>,
    /// Documents to try in the place of the live ones.
    #[serde(default)]
    files: Vec<Named>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WantedItem {
    type_id: TypeId,
    /// Id of a stored item; not needed with `data`.
    #[serde(default)]
    id: Option<ItemId>,
    #[serde(default)]
    data: Option<Box<RawValue>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    queue: QueueId,
    #[serde(skip_serializing_if = "Option::is_none")]
    routed_by: Option<String>,
    /// The live version, also where other documents were tried.
    config_version: ConfigVersion,
    /// Facts of the cause that the conditions were compared with.
    known: Value,
    entries: Vec<Entry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: String,
    queue: QueueId,
    matches: bool,
    /// True if the entry is for other item types.
    is_no_concern: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<Explained>,
}

pub(crate) async fn explain(
    State(api): State<Api>,
    caller: Caller,
    Body(wanted): Body<Wanted>,
) -> Result<Json<Answer>, Problem> {
    let (org, deps) = (&caller.org, &api.deps.moderation);
    let Wanted { list, item, report, appeal, rules, media, files } = wanted;
    let list: RoutingList =
        list.parse().map_err(|_| invalid("/list", "A routing list is reports, rules or appeals."))?;
    let live = deps.live.latest(org).await.map_err(faults::catalog)?;
    let config_version = live.version();
    let config = if files.is_empty() {
        live
    } else {
        let _turn = api.trials.org_turn(org, api.settings.turn_wait()).await?;
        api.trials.find(&api, org, live, files, false).await?.candidate()
    };
    let key = ItemKey { type_id: item.type_id, id: item.id.unwrap_or_else(|| ItemId::new("example")) };
    let now = Millis::now();
    let (entry, mut known) = match item.data {
        Some(data) => {
            let data = Bytes::copy_from_slice(data.get().as_bytes());
            (entry(&key, data, Variant::Original, None), json!({}))
        }
        None => {
            child_safety::check_and_record_explained(&api, &caller, &key, "/routing/explain").await?;
            let row = stored::newest(&deps.store, org, &key).await.map_err(faults::moderation)?;
            let row = row.ok_or_else(|| {
                let ItemKey { type_id, id } = &key;
                Problem::not_found(format!("There is no stored item `{id}` of type `{type_id}`."))
            })?;
            let known = routing::findings(&row).map_err(faults::moderation)?;
            let variant = row.variant.parse().unwrap_or(Variant::Partial);
            (entry(&key, row.data.clone(), variant, row.type_version), known)
        }
    };
    if list == RoutingList::Reports {
        report_routing::add_rules_of_submitted(&config, entry.clone(), now, &mut known).await;
    }
    for (name, given) in [("report", report), ("appeal", appeal), ("rules", rules), ("media", media)] {
        if let Some(given) = given {
            known[name] = Value::Object(given);
        }
    }
    if list == RoutingList::Reports && known["report"].get("source").is_none() {
        known["report"]["source"] = json!(report_routing::SOURCE);
    }
    let prepared =
        evaluate::prepare(Arc::clone(&config), Source::Report, &entry, now).map_err(|error| match error {
            Error::Content { detail, .. } => {
                invalid("/item", format!("The item does not fit its type: {detail}"))
            }
            error => faults::moderation(error),
        })?;
    let router = config.router(list);
    let facts = match router {
        Some(router) => {
            let needs = report_routing::needed_scores(router, &prepared, &known, now);
            report_routing::kept_scores(&deps.store, &prepared, needs)
                .await
                .map_err(faults::moderation)?
                .facts
        }
        None => Facts::new(),
    };
    let values = Some(Prepared::fields(&prepared));
    let cause = Routed { item: &key, values, known: &known, facts: &facts, now };
    let entries = router.map(|router| router.explain(cause)).unwrap_or_default();
    let choice = router.map(|router| router.choose(cause).choice);
    let (queue, routed_by) =
        choice.map_or_else(|| (list.default_queue(), None), |choice| (choice.queue, choice.routed_by));
    let entries = entries.into_iter().map(|entry| Entry {
        name: entry.name,
        queue: entry.queue,
        matches: entry.matches,
        is_no_concern: !entry.concerns,
        tree: entry.tree,
    });
    Ok(Json(Answer { queue, routed_by, config_version, entries: entries.collect(), known }))
}

fn entry(key: &ItemKey, data: Bytes, variant: Variant, type_version: Option<String>) -> ItemEntry {
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
