//! `/admin/v1/exports`: lists the datasets of the history, and streams the rows of one as lines of JSON.

mod dictionary;
mod query;
mod row_stream;

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde::Serialize;
use serde_json::json;
use tidegate_catalog::orgs;
use tidegate_history::{Dataset, RowReader, Visibility};
use tidegate_moderation::child_safety::find_restricted;
use tidegate_schemas::{
    ids::Millis,
    nearest::{hint, truncate_name},
    validation_error::tag,
};
use tidegate_store::tables::catalog::orgs::Org;
use tidegate_web::{Path, Problem, Query};

use self::{dictionary::DatasetResponse, query::ExportQuery, row_stream::RowStream};
use crate::{
    admin::{
        access::audit,
        request::{Caller, UnpagedQuery, faults},
    },
    api::Api,
};

/// Concurrent exports of an organisation in one process.
pub(crate) const EXPORTS_PER_ORG: usize = 2;

/// Exports take minutes, so a refused client waits longer than for a short request.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Time after which all rows of an instant are stored.
const SETTLING_TIME: Duration = Duration::from_secs(60);

/// End of the exported period. A client that continues an export sends it as `until`.
const UNTIL_HEADER: HeaderName = HeaderName::from_static("x-export-until");

const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/exports", get(list_datasets)).route("/exports/{dataset}", get(export_dataset))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DatasetListResponse {
    /// End of an export that begins now: all earlier rows are stored.
    settled_until: String,
    items: Vec<DatasetResponse>,
}

async fn list_datasets(Query(_): Query<UnpagedQuery>) -> Json<DatasetListResponse> {
    let items = Dataset::ALL.iter().map(|dataset| DatasetResponse::new(*dataset)).collect();
    Json(DatasetListResponse { settled_until: resolve_until(None).iso(), items })
}

async fn export_dataset(
    State(api): State<Api>,
    caller: Caller,
    Path(dataset): Path<String>,
    Query(query): Query<ExportQuery>,
) -> Result<Response, Problem> {
    let dataset = parse_dataset(&dataset)?;
    if dictionary::needs_child_safety(dataset) {
        caller.require_child_safety()?;
    }
    let org = load_org(&api, &caller).await?;
    let export = query.parse(&org, dataset, build_visibility(&api, &caller))?;
    let permit = api.exports.try_acquire(&caller.org).ok_or_else(too_many_exports)?;
    let until_value = HeaderValue::try_from(export.request.until.iso()).map_err(|_| Problem::internal())?;
    let detail = json!({
        "since": export.request.since.iso(),
        "until": export.request.until.iso(),
        "part": export.request.part.to_string(),
        "after": query.after,
        "columns": export.columns.iter().map(|column| column.name).collect::<Vec<_>>(),
        "childSafety": caller.may_see_child_safety(),
    });
    // Recorded before the first row is read: without its entry in the audit, no row is sent.
    let entry = audit::record_export(&api, &caller, format!("/exports/{dataset}"), detail).await?;
    let reader = RowReader::new(&api.deps.moderation.store, export.request);
    let body = RowStream::new(api, dataset, reader, &export.columns, entry, permit).into_body();
    Ok(([(header::CONTENT_TYPE, NDJSON), (UNTIL_HEADER, until_value)], body).into_response())
}

async fn load_org(api: &Api, caller: &Caller) -> Result<Org, Problem> {
    let org = orgs::get(&api.deps.moderation.store, &caller.org).await.map_err(faults::catalog_problem)?;
    org.ok_or_else(|| Problem::not_found(format!("There is no organisation `{}`.", caller.org)))
}

fn parse_dataset(name: &str) -> Result<Dataset, Problem> {
    name.parse().map_err(|_| {
        let names = Dataset::ALL.iter().map(|dataset| dataset.as_str());
        let hint = hint(name, names);
        Problem::not_found(format!("There is no dataset `{}`.{hint}", truncate_name(name)))
    })
}

/// Returns the end of an export: the requested one, but at most the time up to which all rows are stored.
fn resolve_until(requested_until: Option<Millis>) -> Millis {
    let settled_until = Millis::now().minus(SETTLING_TIME);
    requested_until.map_or(settled_until, |requested_until| requested_until.min(settled_until))
}

fn build_visibility(api: &Api, caller: &Caller) -> Visibility {
    if caller.may_see_child_safety() {
        return Visibility::All;
    }
    let (store, org) = (api.deps.moderation.store.clone(), caller.org.clone());
    Visibility::WithoutChildSafety(Arc::new(move |items| {
        let (store, org) = (store.clone(), org.clone());
        Box::pin(async move { find_restricted(&store, &org, &items).await })
    }))
}

fn too_many_exports() -> Problem {
    Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        tag::RATE_LIMITED,
        "Too many requests.",
        format!(
            "The organisation has {EXPORTS_PER_ORG} exports under way. Send the next one when one of them has ended."
        ),
    )
    .retry_after(RETRY_AFTER)
}
