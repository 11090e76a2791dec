//! `/admin/v1/queues`: lists the review queues with their settings and job counts. Removed queues are listed while they have
//! open jobs. The size of a page is bounded because each queue costs several reads.

use axum::{Json, Router, extract::State, routing::get};
use serde::Serialize;
use tidegate_catalog::Queue;
use tidegate_moderation::{
    jobs::queue_counts::{self, QueueFlow},
    review::queues,
};
use tidegate_schemas::{
    documents::{Access, DecisionRequirements, Period, QueueClass, QueueOrder},
    ids::{ActionId, Millis, QueueId},
};
use tidegate_web::{Problem, Query};

use crate::{
    admin::request::{Caller, PageQuery, faults, page_limit},
    api::{Api, ListResponse},
};

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/queues", get(list_queues))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueResponse {
    pub(crate) key: QueueId,
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    pub(crate) class: QueueClass,
    /// True if the queue was removed from the configuration while jobs still wait in it.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) removed: bool,
    pub(crate) access: Access,
    pub(crate) hidden_actions: Vec<ActionId>,
    pub(crate) require: DecisionRequirements,
    pub(crate) order: QueueOrder,
    /// Absent, like all counts and ages, if the caller may not see the jobs of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) open: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claimed: Option<usize>,
    /// Opening time of the oldest open job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_age_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target_age_seconds: Option<u64>,
    /// Age at which an unclaimed job is closed without a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auto_close_after_seconds: Option<u64>,
    /// True if the oldest open job is younger than the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) within_target: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_hour: Option<FlowResponse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_day: Option<FlowResponse>,
}

#[derive(Serialize)]
pub(crate) struct FlowResponse {
    pub(crate) opened: i64,
    pub(crate) closed: i64,
}

impl From<QueueFlow> for FlowResponse {
    fn from(flow: QueueFlow) -> Self {
        Self { opened: flow.opened, closed: flow.closed }
    }
}

async fn list_queues(
    State(api): State<Api>,
    caller: Caller,
    Query(page): Query<PageQuery>,
) -> Result<Json<ListResponse<QueueResponse>>, Problem> {
    let after: Option<String> = page.parse_cursor()?;
    load_page(&api, &caller, page.limit, after).await.map(Json)
}

/// Loads a page of queues, ordered by key.
pub(crate) async fn load_page(
    api: &Api,
    caller: &Caller,
    limit: Option<usize>,
    after: Option<String>,
) -> Result<ListResponse<QueueResponse>, Problem> {
    let config = api.deps.moderation.live.load_latest(&caller.org).await.map_err(faults::catalog_problem)?;
    let limit = page_limit(api, limit)?;
    // Ordered by key, so that a cursor stays valid while queues are added and removed.
    let configured = config.queues().iter().map(|queue| (queue, false));
    let mut queues: Vec<_> =
        configured.chain(config.removed_queues().iter().map(|queue| (queue, true))).collect();
    queues.sort_by_key(|(queue, _)| &queue.key);
    let start = queues.partition_point(|(queue, _)| after.as_deref() >= Some(queue.key.as_str()));
    let counted_at = Millis::now();
    let page = &queues[start..queues.len().min(start.saturating_add(limit))];
    // Each queue costs several reads, so the limit is applied before they are loaded.
    let mut items = Vec::new();
    for (queue, removed) in page {
        let view = load_view(api, caller, queue, counted_at).await.map_err(faults::moderation_problem)?;
        // The count comes from events, the oldest job from the index. Either one shows that jobs are left.
        if !removed || view.open.is_some_and(|open| open > 0) || view.oldest_at.is_some() {
            items.push(QueueResponse { removed: *removed, ..view });
        }
    }
    // Computed from the queues, because removed queues without jobs leave a page shorter than its limit.
    let has_more = start + page.len() < queues.len();
    let next = page.last().filter(|_| has_more).map(|(queue, _)| queue.key.to_string());
    Ok(ListResponse { items, next })
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(value: &bool) -> bool {
    !value
}

async fn load_view(
    api: &Api,
    caller: &Caller,
    queue: &Queue,
    now: Millis,
) -> Result<QueueResponse, tidegate_moderation::Error> {
    let (store, org) = (&api.deps.moderation.store, &caller.org);
    let document = queue.document.clone();
    let target = document.target_age().map(Period::duration);
    let mut view = QueueResponse {
        class: document.class(),
        removed: false,
        key: document.key,
        name: queue.name.clone(),
        description: document.description,
        access: document.access,
        hidden_actions: document.hidden_actions,
        require: document.require,
        order: document.order,
        open: None,
        claimed: None,
        oldest_at: None,
        oldest_age_seconds: None,
        target_age_seconds: target.map(|age| age.as_secs()),
        auto_close_after_seconds: document.auto_close_after.map(Period::seconds),
        within_target: None,
        last_hour: None,
        last_day: None,
    };
    // The counts reveal when a report or a decision opens or closes a job, so they need the scope as well.
    if view.class == QueueClass::ChildSafety && !caller.may_see_child_safety() {
        return Ok(view);
    }
    let counts = queue_counts::load_counts(store, org, &queue.key, now).await?;
    let claimed_count =
        queue_counts::count_claimed(store, org, &queue.key, api.settings.lease(), now).await?;
    let oldest = queues::find_oldest(store, org, &queue.key, now).await?;
    view.open = Some(counts.open);
    view.claimed = Some(claimed_count);
    view.oldest_at = oldest.map(Millis::iso);
    view.oldest_age_seconds = oldest.map(|at| (now.0 - at.0).max(0) / 1_000);
    view.within_target = target.map(|age| oldest.is_none_or(|at| at.plus(age) >= now));
    view.last_hour = Some(counts.last_hour.into());
    view.last_day = Some(counts.last_day.into());
    Ok(view)
}
