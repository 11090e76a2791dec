//! `/admin/v1/audit`: records requests with their caller and outcome, and lists the records.
//!
//! `record_request` writes a row for every request that may change something, before the request is carried out; handlers only add
//! details. A request is refused if its row cannot be written.

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
use tidegate_store::{Cursor, DayCursor, Row as _, RowRange, WriteTime, tables::catalog::audit::AuditEntry};
use tidegate_web::{Problem, Query, RequestId};

use super::audit_clearance;
use crate::{
    admin::request::{Caller, faults, invalid, not_a_cursor, page_limit},
    api::{Api, ListResponse},
};

/// Path prefixes of the API and of the console's settings. Actions and objects omit them, so that a change has the same action
/// on both ways.
const PATH_PREFIXES: [&str; 2] = ["/admin/v1", "/settings"];

/// Routes that take a POST and change no data: their input is too large for a query.
const READ_ONLY_POSTS: [&str; 5] =
    ["/banks/match", "/config/validate", "/routing/explain", "/rules/backtest", "/rules/explain"];

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/audit", get(list_entries))
}

/// Details of a request's effect, for its audit row. A handler attaches them to its answer as an extension.
#[derive(Clone, Debug)]
pub(crate) struct AuditDetail(pub(crate) Value);

impl AuditDetail {
    /// Details of work on a job. Details of a child-safety job carry its class and are listed only for callers with its scope.
    pub(crate) fn of_job(class: JobClass, mut detail: Value) -> Self {
        if class == JobClass::ChildSafety {
            detail["class"] = json!(class);
        }
        Self(detail)
    }
}

/// Records the request if it may change something or shows a secret.
pub(crate) async fn record_request(State(api): State<Api>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let route = strip_path_prefix(route);
    // Requests that only read are not recorded. Views of child-safety material are, by `record_view`, and exports, by
    // `record_export`.
    if is_read(request.method(), route) {
        return next.run(request).await;
    }
    // `authenticate` runs before this layer, so a request without a caller is a defect.
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return Problem::internal().into_response();
    };
    let object = strip_path_prefix(request.uri().path()).to_owned();
    let mut row = AuditEntry {
        request_id: request.extensions().get::<RequestId>().map_or_else(String::new, ToString::to_string),
        ..new_entry(&caller, format!("{} {route}", request.method()), object)
    };
    // Written before the request runs: a crash in the middle leaves a row without a status instead of no trace.
    if let Err(problem) = insert_entry(&api, &row).await {
        return problem.into_response();
    }
    let answer = next.run(request).await;
    row.status = Some(answer.status().as_u16().into());
    row.detail = answer.extensions().get::<AuditDetail>().map(|detail| detail.0.to_string());
    record_outcome(&api, &row).await;
    tracing::info!(
        target: "audit", org = %row.org, by = row.actor, action = row.action, status = row.status,
        detail = row.detail, "audited"
    );
    answer
}

/// Records a view of child-safety content before the content is shown. The status stays empty, as the answer does not exist
/// yet.
pub(crate) async fn record_view(
    api: &Api,
    caller: &Caller,
    action: String,
    object: String,
) -> Result<(), Problem> {
    let detail = Some(build_view_detail());
    insert_entry(api, &AuditEntry { detail, ..new_entry(caller, action, object) }).await
}

/// Records an export before its first row is read. Returns the entry, whose outcome is not known yet.
pub(crate) async fn record_export(
    api: &Api,
    caller: &Caller,
    object: String,
    detail: Value,
) -> Result<AuditEntry, Problem> {
    let entry = new_entry(caller, "GET /exports/{dataset}".to_owned(), object);
    let entry = AuditEntry { detail: Some(detail.to_string()), ..entry };
    insert_entry(api, &entry).await?;
    Ok(entry)
}

/// Detail that marks a view of child-safety material.
fn build_view_detail() -> String {
    json!({ "class": JobClass::ChildSafety }).to_string()
}

/// Records the start of a console session before it exists. Returns the entry, whose outcome is not known yet.
pub(crate) async fn record_sign_in(api: &Api, caller: &Caller) -> Result<AuditEntry, Problem> {
    let entry = new_entry(caller, "POST /sign-in".to_owned(), "/sign-in".to_owned());
    insert_entry(api, &entry).await?;
    Ok(entry)
}

/// Stores the outcome of a recorded request. A failure is only logged: the first row already shows that the request was made.
pub(crate) async fn record_outcome(api: &Api, row: &AuditEntry) {
    // The second write has the same key and a later stage, so it replaces the first row.
    let written = api
        .deps
        .moderation
        .store
        .put_rows(WriteTime::from_append(row.at, 1), std::slice::from_ref(row))
        .await;
    if let Err(error) = written {
        tracing::warn!(tag = error.tag(), org = %row.org, action = row.action, "the outcome of an audited request is not recorded");
    }
}

/// Creates the row of a request without its outcome.
fn new_entry(caller: &Caller, action: String, object: String) -> AuditEntry {
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

async fn insert_entry(api: &Api, row: &AuditEntry) -> Result<(), Problem> {
    let row_time = WriteTime::from_append(row.at, 0);
    let result = api.deps.moderation.store.put_rows(row_time, std::slice::from_ref(row)).await;
    result.map_err(faults::store_problem)
}

fn strip_path_prefix(path: &str) -> &str {
    PATH_PREFIXES.iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path)
}

fn is_read(method: &Method, route: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
        || (*method == Method::POST && READ_ONLY_POSTS.contains(&route))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListEntriesQuery {
    since: Option<String>,
    until: Option<String>,
    actor: Option<String>,
    /// Method and route, or the route alone.
    action: Option<String>,
    /// Prefix of the request path.
    object: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    #[serde(rename = "org")]
    _org: Option<String>,
}

impl ListEntriesQuery {
    fn matches(&self, entry: &AuditEntry, until: Millis) -> bool {
        let is_action = |action: &String| {
            entry.action == *action || entry.action.split_once(' ').is_some_and(|(_, route)| route == action)
        };
        entry.at < until
            && self.actor.as_ref().is_none_or(|actor| *actor == entry.actor)
            && self.action.as_ref().is_none_or(is_action)
            && self.object.as_ref().is_none_or(|object| entry.object.starts_with(object.as_str()))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryResponse {
    at: String,
    actor: String,
    action: String,
    object: String,
    /// Status of the answer; `null` if the outcome was not recorded.
    status: Option<i64>,
    detail: Option<Value>,
    request_id: String,
}

impl EntryResponse {
    fn new(row: AuditEntry, may_see_child_safety: bool) -> Self {
        let detail: Option<Value> = row.detail.and_then(|detail| serde_json::from_str(&detail).ok());
        let class = json!({ "class": JobClass::ChildSafety });
        let is_restricted = detail.as_ref().is_some_and(|detail| detail["class"] == class["class"]);
        Self {
            at: row.at.iso(),
            actor: row.actor,
            action: row.action,
            object: row.object,
            status: row.status,
            // Without the scope, the entry is listed, but only the class remains of its details.
            detail: if is_restricted && !may_see_child_safety { Some(class) } else { detail },
            request_id: row.request_id,
        }
    }
}

/// Lists entries, the newest first.
async fn list_entries(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<ListEntriesQuery>,
) -> Result<Json<ListResponse<EntryResponse>>, Problem> {
    let limit = page_limit(&api, query.limit)?;
    let listed_at = Millis::now();
    let parse_instant = |text: &Option<String>| match text {
        Some(text) => datetime::parse(text).map(Some).ok_or_else(|| {
            invalid("", format!("`{text}` is not an instant; expected the form 2026-01-31T12:00:00Z."))
        }),
        None => Ok(None),
    };
    let (since, until) = (parse_instant(&query.since)?, parse_instant(&query.until)?);
    // Older rows have expired; scanning their days would only cost reads.
    let oldest_kept = listed_at.minus(AuditEntry::TABLE.ttl.unwrap_or_default());
    let start = since.unwrap_or(oldest_kept).max(oldest_kept);
    // Another process's clock may run ahead, so entries slightly in the future are listed as well.
    let end = until.unwrap_or_else(|| listed_at.plus(MAX_CLOCK_SKEW));
    let cursor = query.cursor.as_deref().map(str::parse).transpose().map_err(|_| not_a_cursor())?;
    let place = cursor.unwrap_or(DayCursor::start_of(end.day()));
    let (items, next) = load_page(&api, &caller, &query, (start, end), limit, place).await?;
    Ok(Json(ListResponse { items, next: next.map(|place| place.to_string()) }))
}

/// Clock difference between processes that the listing tolerates.
const MAX_CLOCK_SKEW: std::time::Duration = std::time::Duration::from_secs(60);

async fn load_page(
    api: &Api,
    caller: &Caller,
    query: &ListEntriesQuery,
    (since, until): (Millis, Millis),
    limit: usize,
    mut place: DayCursor,
) -> Result<(Vec<EntryResponse>, Option<DayCursor>), Problem> {
    let store = &api.deps.moderation.store;
    // Without the scope, a listed view would reveal that a child-safety job exists.
    let view = build_view_detail();
    let mut rows_left = api.settings.rows_per_page;
    let mut matching_entries = Vec::new();
    while place.partition >= since.day() {
        let batch_limit = rows_left.min(limit);
        if batch_limit == 0 || matching_entries.len() >= limit {
            return Ok((matching_entries, Some(place)));
        }
        let range = RowRange::all().limit(batch_limit).after(place.after.clone());
        let mut entries = store.scan::<AuditEntry>(&(caller.org.clone(), place.partition), range);
        let rows = entries.all().await.map_err(faults::store_problem)?;
        // A day without entries costs one read; counting it bounds a query over a long empty period.
        rows_left = rows_left.saturating_sub(rows.len().max(1));
        let withheld = audit_clearance::find_withheld_entries(api, caller, &rows).await?;
        for (row_index, entry) in rows.iter().enumerate() {
            let is_withheld = withheld.contains(&entry.entry_id)
                || (!caller.may_see_child_safety() && entry.detail.as_ref() == Some(&view));
            // The first and the last day of the period are read as a whole.
            if entry.at < since || !query.matches(entry, until) || is_withheld {
                continue;
            }
            if matching_entries.len() >= limit {
                // The cursor stands before this entry, which becomes the first of the next page.
                let after = rows[..row_index].last().map(Cursor::after).or(place.after);
                return Ok((matching_entries, Some(DayCursor { partition: place.partition, after })));
            }
            matching_entries.push(EntryResponse::new(entry.clone(), caller.may_see_child_safety()));
        }
        place = match entries.cursor() {
            Some(after) => DayCursor { partition: place.partition, after: Some(after) },
            None => DayCursor::start_of(place.partition - 1),
        };
    }
    Ok((matching_entries, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_read_requests_are_not_recorded() {
        assert!(is_read(&Method::GET, "/keys") && is_read(&Method::POST, "/rules/backtest"));
        assert!(!is_read(&Method::POST, "/keys") && !is_read(&Method::DELETE, "/keys/{id}"));
        assert!(
            !is_read(&Method::PUT, "/config") && !is_read(&Method::POST, "/endpoints/{key}/secret/reveal")
        );
    }
}
