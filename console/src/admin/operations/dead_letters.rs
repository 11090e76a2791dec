//! `/admin/v1/dead-letters`: lists dead letters without their content, and replays them.

use axum::{
    Extension, Json, Router,
    extract::State,
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::json;
use tidegate_moderation::dead_letters::{
    self, DeadLetterError, DeadLetterFilter, DeadLetterResponse, ReplayOptions, ReplayResponse,
};
use tidegate_stream::Topic;
use tidegate_web::{Problem, Query};

use crate::{
    admin::{
        access::audit::AuditDetail,
        request::{Body, Caller, faults, invalid, not_a_cursor, page_limit},
    },
    api::{Api, ListResponse},
};

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/dead-letters", get(list_dead_letters))
        .route("/dead-letters/replay", post(replay_dead_letters))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListDeadLettersQuery {
    /// Topic of the failed record.
    topic: Option<String>,
    reason: Option<String>,
    id: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    #[serde(rename = "org")]
    _org: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayRequest {
    #[serde(default)]
    topic: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    id: Option<String>,
    /// Required if no other condition is given, so that leaving out a filter does not replay all letters by mistake.
    #[serde(default)]
    all: bool,
    /// Also replays letters that were replayed before. A letter selected by `id` is always replayed.
    #[serde(default)]
    again: bool,
}

async fn list_dead_letters(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<ListDeadLettersQuery>,
) -> Result<Json<ListResponse<DeadLetterResponse>>, Problem> {
    let limit = page_limit(&api, query.limit)?;
    let filter = build_filter(&caller, query.topic.as_deref(), query.reason, query.id)?;
    let deps = &api.deps.moderation;
    let page = dead_letters::list_letters(&deps.log, &deps.store, &filter, limit, query.cursor.as_deref());
    let page = page.await.map_err(|error| dead_letter_problem(&error))?;
    Ok(Json(ListResponse { items: page.items, next: page.next }))
}

async fn replay_dead_letters(
    State(api): State<Api>,
    caller: Caller,
    Body(body): Body<ReplayRequest>,
) -> Result<(Extension<AuditDetail>, Json<ReplayResponse>), Problem> {
    let ReplayRequest { topic, reason, id, all, again } = body;
    if !all && topic.is_none() && reason.is_none() && id.is_none() {
        return Err(invalid("", "Select letters by `id`, `topic` or `reason`, or set `all`."));
    }
    let filter = build_filter(&caller, topic.as_deref(), reason, id)?;
    let options = ReplayOptions { by: caller.name.to_string(), include_replayed: again };
    let deps = &api.deps.moderation;
    let counts = dead_letters::replay(&deps.log, &deps.store, &filter, &options)
        .await
        .map_err(|error| dead_letter_problem(&error))?;
    // Only an id names one letter, so only then is an empty result an error.
    if let (Some(id), 0) = (&filter.id, counts.replayed + counts.refused) {
        return Err(Problem::not_found(format!("There is no such dead letter: `{id}`.")));
    }
    let detail =
        json!({"topic": topic, "reason": filter.reason, "id": filter.id, "replayed": counts.replayed});
    Ok((Extension(AuditDetail(detail)), Json(counts)))
}

fn build_filter(
    caller: &Caller,
    topic: Option<&str>,
    reason: Option<String>,
    id: Option<String>,
) -> Result<DeadLetterFilter, Problem> {
    let topic = topic.map(|label| {
        Topic::from_label(label).ok_or_else(|| invalid("", format!("There is no topic `{label}`.")))
    });
    // A letter without an org may belong to any org, so only the operator sees it.
    let (org, include_unowned) = (Some(caller.org.clone()), caller.is_operator);
    let clearance = caller.clearance();
    Ok(DeadLetterFilter { org, include_unowned, topic: topic.transpose()?, reason, id, clearance })
}

fn dead_letter_problem(error: &DeadLetterError) -> Problem {
    if error.is_cursor() {
        return not_a_cursor();
    }
    faults::log_failure(error.is_outage(), error.tag(), error)
}
