//! `/admin/v1/dead-letters`: what could not be processed, and sending it back.
//!
//! Lists show where a letter comes from and why it failed, never its content.

use axum::{
    Json, Router,
    extract::State,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use tidegate_stream::Topic;
use tidegate_web::{Problem, Query};

use super::{
    Api, List,
    caller::Caller,
    extract::{Body, invalid, not_a_cursor},
    faults,
    job_list::limit,
};
use crate::dead_letters::{Fault, Replayed, Which};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/dead-letters", get(list)).route("/dead-letters/replay", post(replay))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The topic that a letter comes from.
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
struct Selected {
    #[serde(default)]
    topic: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    id: Option<String>,
    /// Without it, one of the others must be named: nobody sends everything back by a slip.
    #[serde(default)]
    all: bool,
    /// Also those that were sent back before; one that is named by its `id` always is.
    #[serde(default)]
    again: bool,
}

#[derive(Serialize)]
struct Answer {
    replayed: u64,
    /// Letters that were sent back before.
    skipped: u64,
    /// Letters that cannot be sent back: their topic or their framing is not known here.
    refused: u64,
}

async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<List<serde_json::Value>>, Problem> {
    let limit = limit(&api, wanted.limit)?;
    let which = which(&caller, wanted.topic.as_deref(), wanted.reason, wanted.id)?;
    let page = api.deps.dead_letters.list(which, limit, wanted.cursor).await.map_err(told)?;
    Ok(Json(List { items: page.items, next: page.next }))
}

async fn replay(
    State(api): State<Api>,
    caller: Caller,
    Body(selected): Body<Selected>,
) -> Result<Json<Answer>, Problem> {
    let Selected { topic, reason, id, all, again } = selected;
    if !all && topic.is_none() && reason.is_none() && id.is_none() {
        return Err(invalid("", "Name an `id`, a `topic` or a `reason`, or say `all`."));
    }
    let which = which(&caller, topic.as_deref(), reason, id)?;
    let by = caller.name.to_string();
    let named = which.id.clone();
    let done = api.deps.dead_letters.replay(which, by, again).await.map_err(told)?;
    let Replayed { replayed, skipped, refused } = done;
    if let (Some(id), 0) = (named, replayed + refused) {
        return Err(Problem::not_found(format!("There is no such dead letter: `{id}`.")));
    }
    tracing::info!(
        target: "audit", org = %caller.org, by = %caller.name, replayed, "sent dead letters back"
    );
    Ok(Json(Answer { replayed, skipped, refused }))
}

fn which(
    caller: &Caller,
    topic: Option<&str>,
    reason: Option<String>,
    id: Option<String>,
) -> Result<Which, Problem> {
    let topic = topic.map(|label| {
        Topic::from_label(label).ok_or_else(|| invalid("", format!("There is no topic `{label}`.")))
    });
    let (org, or_nobodys) = (caller.org.clone(), caller.is_operator);
    Ok(Which { org, or_nobodys, topic: topic.transpose()?, reason, id })
}

fn told(fault: Fault) -> Problem {
    match fault {
        Fault::Cursor => not_a_cursor(),
        Fault::Failed { is_outage, tag, detail } => faults::told(is_outage, tag, &detail),
    }
}
