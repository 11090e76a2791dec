//! Reads stored items: the newest submission, a named one, and the answer that the platform gets about it.
//!
//! It evaluates and stores nothing.

use std::{collections::HashSet, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    ids::{
        ActionId, EventId, ItemId, ItemKey, Millis, OrgId, PolicyId, ReportId, RuleId, SubmissionId, TypeId,
    },
    records::{self, JobClass},
};
use tidegate_store::{
    At, Store,
    tables::{
        callbacks::deliveries::Delivery,
        items::items::{EVALUATED, Item},
        review::{jobs::JobCause, reports::Report},
    },
};

use crate::{Deps, Error, context, events::Named};

/// Re-sent submissions make rows of their own; so many rows of an item are searched for the first of one.
const SEARCHED: usize = 1_000;

/// The row of a submission: its first one, wherever later ones of the same submission stand.
pub async fn find(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    submission: Option<SubmissionId>,
) -> Result<Option<Item>, Error> {
    let rows = submissions(store, org, item).await?;
    Ok(match submission {
        Some(wanted) => rows.into_iter().find(|row| row.submission_id == wanted),
        None => rows.into_iter().next_back(),
    })
}

/// The first row of each submission, the oldest submission first.
async fn submissions(store: &Store, org: &OrgId, item: &ItemKey) -> Result<Vec<Item>, Error> {
    let partition = (org.clone(), item.type_id.clone(), item.id.clone());
    let mut rows = store.scan::<Item>(&partition, At::all().limit(SEARCHED)).all().await?;
    rows.sort_unstable_by_key(coordinates);
    let mut seen = HashSet::with_capacity(rows.len());
    rows.retain(|row| seen.insert(row.submission_id));
    Ok(rows)
}

/// Where the log put a row's first record.
pub fn coordinates(row: &Item) -> (Millis, i64, i64) {
    (row.append_ms, row.offset, row.position)
}

/// The newest whole version of an item; a partial refresh never replaces an original.
pub async fn newest(store: &Store, org: &OrgId, item: &ItemKey) -> Result<Option<Item>, Error> {
    let rows = submissions(store, org, item).await?;
    let original = records::Variant::Original.symbol();
    Ok(rows.into_iter().max_by_key(|row| (row.variant == original, coordinates(row))))
}

/// Who is struck for a decision on an item: its creator, or the user that it is.
///
/// The item's newest version says so; before a processor stored it, the report that opened the job does.
pub(crate) async fn struck_user(
    deps: &Deps,
    config: &Compiled,
    decision: &records::Decision,
) -> Result<Option<ItemKey>, Error> {
    let Some(item_type) = config.item_type(&decision.item.type_id) else { return Ok(None) };
    let data = match newest(&deps.store, &decision.org, &decision.item).await? {
        Some(row) => Some(row.data),
        None => reported_data(&deps.store, decision).await?,
    };
    Ok(item_type.creator(&decision.item, data.as_deref().unwrap_or(b"{}")))
}

async fn reported_data(store: &Store, decision: &records::Decision) -> Result<Option<bytes::Bytes>, Error> {
    if decision.class == JobClass::Appeal {
        return Ok(None);
    }
    let partition = (decision.org.clone(), decision.job_id);
    let causes = store.scan::<JobCause>(&partition, At::all()).all().await?;
    let Some(report_id) = causes.iter().find_map(|cause| cause.report_id) else { return Ok(None) };
    let report = store.get::<Report>(&(decision.org.clone(), report_id)).await?;
    Ok(report.map(|report| report.data))
}

/// What the platform is told about an item.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub id: ItemId,
    pub type_id: TypeId,
    pub submission_id: SubmissionId,
    pub state: String,
    pub source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_version: Option<String>,
    pub type_schema_variant: String,
    pub data: Box<RawValue>,
    pub config_version: i64,
    pub received_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluated_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_id: Option<ReportId>,
    pub matched_rules: Vec<Named<RuleId>>,
    pub errored_rules: Box<RawValue>,
    pub actions: Vec<ListedAction>,
    pub media: Box<RawValue>,
    pub deliveries: Vec<DeliveryState>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedAction {
    pub id: ActionId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_id: Option<EventId>,
    pub rules: Vec<RuleId>,
    pub policies: Vec<PolicyId>,
    /// Why the action was not taken.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub suppressed: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryState {
    pub event_id: EventId,
    pub state: String,
}

#[derive(Deserialize)]
struct MatchedRule {
    rule: RuleId,
    name: String,
}

/// The answer about a submission, or about the newest one; `None` until a processor stored it.
pub async fn answer(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    submission: Option<SubmissionId>,
) -> Result<Option<Answer>, Error> {
    match find(store, org, item, submission).await? {
        Some(row) => Ok(Some(render(store, row).await?)),
        None => Ok(None),
    }
}

/// As `answer`, but waits until the submission is evaluated, or gives the present state when the time is over.
pub async fn answer_when_evaluated(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    submission: Option<SubmissionId>,
    wait: Duration,
) -> Result<Option<Answer>, Error> {
    let give_up = tokio::time::Instant::now() + wait;
    let mut pause = Duration::from_millis(5);
    loop {
        let row = find(store, org, item, submission).await?;
        let evaluated = row.as_ref().is_some_and(|row| row.state == EVALUATED);
        let now = tokio::time::Instant::now();
        if evaluated || now >= give_up {
            return match row {
                Some(row) => Ok(Some(render(store, row).await?)),
                None => Ok(None),
            };
        }
        tokio::time::sleep(pause.min(give_up - now)).await;
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}

async fn render(store: &Store, row: Item) -> Result<Answer, Error> {
    let matched: Vec<MatchedRule> = serde_json::from_str(&row.matched).map_err(Error::corrupt("item"))?;
    let actions: Vec<ListedAction> = serde_json::from_str(&row.actions).map_err(Error::corrupt("item"))?;
    let events: Vec<_> =
        actions.iter().filter_map(|action| action.event_id).map(|id| (row.org.clone(), id)).collect();
    let deliveries = store.get_many::<Delivery>(&events).await?;
    Ok(Answer {
        id: row.item_id,
        type_id: row.type_id,
        submission_id: row.submission_id,
        state: row.state,
        source: row.source,
        type_version: row.type_version,
        type_schema_variant: row.variant,
        data: context::raw(&row.data)?,
        config_version: row.config_version.0,
        received_at: row.received_at.iso(),
        evaluated_at: row.evaluated_at.map(Millis::iso),
        report_id: row.report_id,
        matched_rules: matched
            .into_iter()
            .map(|matched| Named { id: matched.rule, name: matched.name })
            .collect(),
        errored_rules: context::raw(row.errored.as_bytes())?,
        actions,
        media: context::raw(row.media.as_bytes())?,
        deliveries: deliveries
            .into_iter()
            .flatten()
            .map(|delivery| DeliveryState { event_id: delivery.event_id, state: delivery.state })
            .collect(),
    })
}
