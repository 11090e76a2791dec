//! `/admin/v1/exports`: lists the datasets of the history, and streams the rows of one as lines of JSON.

mod dictionary;
mod query;
mod row_stream;

use std::time::Duration;

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
use tidegate_history::{Dataset, RowReader, Visibility, load_snapshot_time, snapshot::SnapshotError};
use tidegate_moderation::child_safety::find_restricted;
use tidegate_schemas::{
    ids::{Millis, OrgId, PolicyId},
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
    org: OrgId,
    items: Vec<DatasetResponse>,
    /// Names of the policies, for the ids in the rows.
    policies: Vec<PolicyName>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyName {
    id: PolicyId,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_id: Option<PolicyId>,
}

async fn list_datasets(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<UnpagedQuery>,
) -> Result<Json<DatasetListResponse>, Problem> {
    let settled_until = load_settled_time(&api).await?.iso();
    let config = api.deps.moderation.live.load_latest(&caller.org).await.map_err(faults::catalog_problem)?;
    let policies = config.policies().iter().map(|policy| PolicyName {
        id: policy.id.clone(),
        name: policy.name.clone(),
        parent_id: policy.parent_id.clone(),
    });
    let policies = policies.collect();
    let items = Dataset::ALL.iter().map(|dataset| DatasetResponse::new(*dataset)).collect();
    Ok(Json(DatasetListResponse { settled_until, org: caller.org, items, policies }))
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
    let shows_child_safety = caller.may_see_child_safety() && query.child_safety != Some(false);
    let visibility = choose_visibility(shows_child_safety);
    let export = query.parse(&org, dataset, visibility, load_settled_time(&api).await?)?;
    let permit = api.exports.try_acquire(&caller.org).ok_or_else(too_many_exports)?;
    let until_value = HeaderValue::try_from(export.request.until.iso()).map_err(|_| Problem::internal())?;
    let detail = json!({
        "since": export.request.since.iso(),
        "until": export.request.until.iso(),
        "part": export.request.part.to_string(),
        "after": query.after,
        "columns": export.columns.iter().map(|column| column.name).collect::<Vec<_>>(),
        "childSafety": shows_child_safety,
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

/// Loads the time before which every event is stored.
async fn load_settled_time(api: &Api) -> Result<Millis, Problem> {
    match load_snapshot_time(&api.deps.moderation.store).await {
        Ok(snapshot) => Ok(snapshot.time),
        Err(SnapshotError::Store(error)) => Err(faults::store_problem(error)),
        // Processors have not reported yet, as after a first start, or some have no owner.
        Err(error) => Err(Problem::unavailable(error.to_string(), RETRY_AFTER)),
    }
}

fn choose_visibility(shows_child_safety: bool) -> Visibility {
    if shows_child_safety {
        return Visibility::All;
    }
    Visibility::WithoutChildSafety(|store, org, items| find_restricted(store, org, items))
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
