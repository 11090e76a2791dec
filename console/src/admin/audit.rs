//! `/admin/v1/audit`: what was asked of this API, by whom, and how it ended.
//!
//! Every request that may change something is recorded here, whatever its route, before it is carried out; handlers only
//! add details. A request whose row cannot be written is refused, so nothing happens without one.

use axum::{
    Json, Router,
    extract::{MatchedPath, Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_schemas::{
    ids::{CauseId, Millis},
    item_types::datetime,
    records::JobClass,
};
use tidegate_store::{At, Cursor, Row as _, WriteTime, tables::catalog::audit::AuditEntry};
use tidegate_web::{Problem, Query, RequestId};

use super::{
    Api, List, audit_clearance,
    caller::Caller,
    extract::{invalid, not_a_cursor},
    faults,
    job_list::limit,
};
use crate::day_place::DayPlace;

/// Paths of the API and of the console's settings, which actions and objects leave out: the same change has the same
/// action, wherever it was asked for.
const PREFIXES: [&str; 2] = ["/admin/v1", "/settings"];

/// POSTs that only read: their bodies do not fit into a query.
const READS: [&str; 5] =
    ["/banks/match", "/config/validate", "/routing/explain", "/rules/backtest", "/rules/explain"];

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/audit", get(list))
}

/// Details of what a request did, for its row. A handler puts them into its answer.
#[derive(Clone, Debug)]
pub(crate) struct AuditDetail(pub(crate) Value);

impl AuditDetail {
    /// Details of work on a job. Those of a child-safety job name its class, and are listed only for callers with its scope.
    pub(crate) fn of_job(class: JobClass, mut detail: Value) -> Self {
        if class == JobClass::ChildSafety {
            detail["class"] = json!(class);
        }
        Self(detail)
    }
}

/// Records the request if it may change something or shows a secret.
pub(crate) async fn record(State(api): State<Api>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let route = without_prefix(route);
    if is_read(request.method(), route) {
        return next.run(request).await;
    }
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return Problem::internal().into_response();
    };
    let object = without_prefix(request.uri().path()).to_owned();
    let mut row = AuditEntry {
        request_id: request.extensions().get::<RequestId>().map_or_else(String::new, ToString::to_string),
        ..entry(&caller, format!("{} {route}", request.method()), object)
    };
    let (store, at) = (&api.deps.moderation.store, row.at);
    if let Err(error) = store.put(WriteTime::of(at, 0), std::slice::from_ref(&row)).await {
        return faults::store(error).into_response();
    }
    let answer = next.run(request).await;
    row.status = Some(answer.status().as_u16().into());
    row.detail = answer.extensions().get::<AuditDetail>().map(|detail| detail.0.to_string());
    // The row of the beginning stays: it says that the request was made, and not how it ended.
    if let Err(error) = store.put(WriteTime::of(at, 1), std::slice::from_ref(&row)).await {
        tracing::warn!(tag = error.tag(), org = %row.org, action = row.action, "an audited request's end is not recorded");
    }
    tracing::info!(
        target: "audit", org = %row.org, by = row.actor, action = row.action, status = row.status,
        detail = row.detail, "audited"
    );
    answer
}

/// Records that content of child safety is shown to the caller, before it is: `route` and the object's path. The answer's
/// status is not known by then.
pub(super) async fn record_view(
    api: &Api,
    caller: &Caller,
    action: String,
    object: String,
) -> Result<(), Problem> {
    let detail = Some(view_detail());
    put(api, AuditEntry { detail, ..entry(caller, action, object) }).await
}

/// Detail that marks the view of child-safety material.
fn view_detail() -> String {
    json!({ "class": JobClass::ChildSafety }).to_string()
}

/// Records that the caller begins a session of the console, before it does.
pub(crate) async fn record_sign_in(api: &Api, caller: &Caller) -> Result<(), Problem> {
    put(api, entry(caller, "POST /sign-in".to_owned(), "/sign-in".to_owned())).await
}

/// Row of a request whose end is not known yet.
fn entry(caller: &Caller, action: String, object: String) -> AuditEntry {
    let at = Millis::now();
    AuditEntry {
        org: caller.org.clone(),
        day: at.day(),
        at,
        entry_id: CauseId::random().0,
        actor: caller.name.to_string(),
        action,
        object,
        request_id: caller.request_id.to_string(),
        status: None,
        detail: None,
    }
}

async fn put(api: &Api, row: AuditEntry) -> Result<(), Problem> {
    let put = api.deps.moderation.store.put(WriteTime::of(row.at, 0), &[row]).await;
    put.map_err(faults::store)
}

fn without_prefix(path: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path)
}

fn is_read(method: &Method, route: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
        || (*method == Method::POST && READS.contains(&route))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    since: Option<String>,
    until: Option<String>,
    actor: Option<String>,
    /// Method and route, or the route alone.
    action: Option<String>,
    /// Beginning of the path that was called.
    object: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    #[serde(rename = "org")]
    _org: Option<String>,
}

impl ListQuery {
    fn wants(&self, entry: &AuditEntry, until: Millis) -> bool {
        let is_action = |wanted: &String| {
            entry.action == *wanted || entry.action.split_once(' ').is_some_and(|(_, route)| route == wanted)
        };
        entry.at < until
            && self.actor.as_ref().is_none_or(|actor| *actor == entry.actor)
            && self.action.as_ref().is_none_or(is_action)
            && self.object.as_ref().is_none_or(|object| entry.object.starts_with(object.as_str()))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    at: String,
    actor: String,
    action: String,
    object: String,
    /// Status of the answer; `null` if the end of the request is not known.
    status: Option<i64>,
    detail: Option<Value>,
    request_id: String,
}

impl Entry {
    fn new(row: AuditEntry, may_child_safety: bool) -> Self {
        let detail: Option<Value> = row.detail.and_then(|detail| serde_json::from_str(&detail).ok());
        let class = json!({ "class": JobClass::ChildSafety });
        let is_restricted = detail.as_ref().is_some_and(|detail| detail["class"] == class["class"]);
        Self {
            at: row.at.iso(),
            actor: row.actor,
            action: row.action,
            object: row.object,
            status: row.status,
            detail: if is_restricted && !may_child_safety { Some(class) } else { detail },
            request_id: row.request_id,
        }
    }
}

/// Lists entries, the newest first.
async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<List<Entry>>, Problem> {
    let most = limit(&api, query.limit)?;
    let now = Millis::now();
    let instant = |text: &Option<String>| match text {
        Some(text) => datetime::parse(text).map(Some).ok_or_else(|| {
            invalid("", format!("`{text}` is no time: expected one such as 2026-01-31T12:00:00Z."))
        }),
        None => Ok(None),
    };
    let (since, until) = (instant(&query.since)?, instant(&query.until)?);
    let kept = now.minus(AuditEntry::TABLE.ttl.unwrap_or_default());
    let since = since.unwrap_or(kept).max(kept);
    // Clocks of other processes may be ahead by a little.
    let until = until.unwrap_or_else(|| now.plus(CLOCKS));
    let from = query.cursor.as_deref().map(str::parse).transpose().map_err(|()| not_a_cursor())?;
    let place = from.unwrap_or(DayPlace { day: until.day(), after: None });
    let (items, next) = page(&api, &caller, &query, (since, until), most, place).await?;
    Ok(Json(List { items, next: next.map(|place| place.to_string()) }))
}

/// Difference of clocks up to which the newest entries are listed.
const CLOCKS: std::time::Duration = std::time::Duration::from_secs(60);

async fn page(
    api: &Api,
    caller: &Caller,
    query: &ListQuery,
    (since, until): (Millis, Millis),
    most: usize,
    mut place: DayPlace,
) -> Result<(Vec<Entry>, Option<DayPlace>), Problem> {
    let store = &api.deps.moderation.store;
    // Views of child-safety material are themselves withheld.
    let view = view_detail();
    let mut rows_left = api.settings.rows_per_page;
    let mut found = Vec::new();
    while place.day >= since.day() {
        let step = rows_left.min(most);
        if step == 0 || found.len() >= most {
            return Ok((found, Some(place)));
        }
        let range = At::all().limit(step).after(place.after.clone());
        let mut entries = store.scan::<AuditEntry>(&(caller.org.clone(), place.day), range);
        let listed = entries.all().await.map_err(faults::store)?;
        // A day without entries costs a read as well.
        rows_left = rows_left.saturating_sub(listed.len().max(1));
        let withheld = audit_clearance::withheld_entries(api, caller, &listed).await?;
        for (nth, entry) in listed.iter().enumerate() {
            let is_withheld = withheld.contains(&entry.entry_id)
                || (!caller.may_child_safety() && entry.detail.as_ref() == Some(&view));
            if entry.at < since || !query.wants(entry, until) || is_withheld {
                continue;
            }
            if found.len() >= most {
                let after = listed[..nth].last().map(Cursor::after).or(place.after);
                return Ok((found, Some(DayPlace { day: place.day, after })));
            }
            found.push(Entry::new(entry.clone(), caller.may_child_safety()));
        }
        place = match entries.cursor() {
            Some(after) => DayPlace { day: place.day, after: Some(after) },
            None => DayPlace { day: place.day - 1, after: None },
        };
    }
    Ok((found, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_that_read_are_left_out() {
        assert!(is_read(&Method::GET, "/keys") && is_read(&Method::POST, "/rules/backtest"));
        assert!(!is_read(&Method::POST, "/keys") && !is_read(&Method::DELETE, "/keys/{id}"));
        assert!(
            !is_read(&Method::PUT, "/config") && !is_read(&Method::POST, "/endpoints/{key}/secret/reveal")
        );
    }
}
