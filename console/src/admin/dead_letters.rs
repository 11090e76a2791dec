//! `/admin/v1/dead-letters`: lists dead letters and replays them.
//!
//! Lists show where a letter comes from and why it failed, never its content.

use axum::{
    Extension, Json, Router,
    extract::State,
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::json;
use tidegate_moderation::dead_letters::{
    self, DeadLetterError, Filter, ReplayCounts, ReplayOptions, Summary,
};
use tidegate_stream::Topic;
use tidegate_web::{Problem, Query};

use super::{
    Api, List,
    audit::AuditDetail,
    caller::Caller,
    extract::{Body, invalid, not_a_cursor},
    faults,
    job_list::limit,
};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/dead-letters", get(list)).route("/dead-letters/replay", post(replay))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Topic of the record that failed.
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
struct ReplayBody {
    #[serde(default)]
    topic: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    id: Option<String>,
    /// Required if no other condition is given, so that nobody replays everything by mistake.
    #[serde(default)]
    all: bool,
    /// Also replays letters that were replayed before. One that is named by its `id` always is.
    #[serde(default)]
    again: bool,
}

async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<List<Summary>>, Problem> {
    let limit = limit(&api, query.limit)?;
    let filter = filter(&caller, query.topic.as_deref(), query.reason, query.id)?;
    let deps = &api.deps.moderation;
    let page = dead_letters::list(&deps.log, &deps.store, &filter, limit, query.cursor.as_deref());
    let page = page.await.map_err(|error| problem(&error))?;
    Ok(Json(List { items: page.items, next: page.next }))
}

async fn replay(
    State(api): State<Api>,
    caller: Caller,
    Body(body): Body<ReplayBody>,
) -> Result<(Extension<AuditDetail>, Json<ReplayCounts>), Problem> {
    let ReplayBody { topic, reason, id, all, again } = body;
    if !all && topic.is_none() && reason.is_none() && id.is_none() {
        return Err(invalid("", "Name an `id`, a `topic` or a `reason`, or say `all`."));
    }
    let filter = filter(&caller, topic.as_deref(), reason, id)?;
    let options = ReplayOptions { by: caller.name.to_string(), again };
    let deps = &api.deps.moderation;
    let counts = dead_letters::replay(&deps.log, &deps.store, &filter, &options)
        .await
        .map_err(|error| problem(&error))?;
    if let (Some(id), 0) = (&filter.id, counts.replayed + counts.refused) {
        return Err(Problem::not_found(format!("There is no such dead letter: `{id}`.")));
    }
    let detail =
        json!({"topic": topic, "reason": filter.reason, "id": filter.id, "replayed": counts.replayed});
    Ok((Extension(AuditDetail(detail)), Json(counts)))
}

fn filter(
    caller: &Caller,
    topic: Option<&str>,
    reason: Option<String>,
    id: Option<String>,
) -> Result<Filter, Problem> {
    let topic = topic.map(|label| {
        Topic::from_label(label).ok_or_else(|| invalid("", format!("There is no topic `{label}`.")))
    });
    let (org, include_unowned) = (Some(caller.org.clone()), caller.is_operator);
    let clearance = caller.clearance();
    Ok(Filter { org, include_unowned, topic: topic.transpose()?, reason, id, clearance })
}

fn problem(error: &DeadLetterError) -> Problem {
    if error.is_cursor() {
        return not_a_cursor();
    }
    faults::failed(error.is_outage(), error.tag(), error)
}
