//! Requests for items as the admin API shows them.

use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_schemas::ids::{ItemKey, JobId, Millis, OrgId};
use tidegate_store::{
    At, Store,
    tables::review::partial_requests::{PartialRequest, PartialRequestOfJob},
};
use uuid::Uuid;

use super::fetcher::Found;
use crate::{
    Error,
    items::{context, stored},
};

/// Requests and fetched items that the answer about a job shows.
const REQUESTS: usize = 10;
const ITEMS: usize = 100;

/// A request for items.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestView {
    /// Names the request in addresses: its time and its own id.
    pub id: String,
    pub requested_at: String,
    pub trigger: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    pub state: &'static str,
    pub asked: Box<RawValue>,
    pub found: Box<RawValue>,
    pub missing: Box<RawValue>,
    pub dropped: i64,
    pub invalid: Box<RawValue>,
    pub attempts: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<String>,
    pub took_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
}

#[derive(Debug, Serialize)]
pub struct ErrorView {
    pub name: String,
    pub detail: String,
}

/// Requests for a job, and the items that came back.
#[derive(Debug, Serialize)]
pub struct OfJob {
    pub requests: Vec<RequestView>,
    /// Newest data of each item that came back.
    pub items: Vec<stored::Answer>,
}

pub fn request(row: PartialRequest) -> Result<RequestView, Error> {
    let list = |text: &str| context::raw(text.as_bytes());
    let error = row.error.map(|name| ErrorView { name, detail: row.error_detail.unwrap_or_default() });
    Ok(RequestView {
        id: public_id(row.requested_at, row.request_id),
        requested_at: row.requested_at.iso(),
        trigger: row.trigger.as_str(),
        job_id: row.job_id,
        state: row.state.as_str(),
        asked: list(&row.asked)?,
        found: list(&row.found)?,
        missing: list(&row.missing)?,
        dropped: row.dropped,
        invalid: list(&row.invalid)?,
        attempts: row.attempts,
        next_attempt_at: row.next_at.map(Millis::iso),
        settled_at: row.settled_at.map(Millis::iso),
        took_ms: row.took_ms,
        http_status: row.http_status,
        error,
    })
}

/// `<milliseconds>-<uuid>`: the row's key without the org.
pub fn public_id(requested_at: Millis, id: Uuid) -> String {
    format!("{}-{id}", requested_at.0)
}

/// Returns the request that a public id names.
pub async fn find(store: &Store, org: &OrgId, id: &str) -> Result<Option<PartialRequest>, Error> {
    let parsed = id.split_once('-').and_then(|(at, id)| Some((Millis(at.parse().ok()?), id.parse().ok()?)));
    let Some((at, id)) = parsed else { return Ok(None) };
    Ok(store.get::<PartialRequest>(&(org.clone(), at.day(), at, id)).await?)
}

/// Returns the newest requests for a job, and the items that they brought.
pub(crate) async fn of_job(store: &Store, org: &OrgId, job: JobId) -> Result<Option<OfJob>, Error> {
    let range = At::all().limit(REQUESTS);
    let pointers = store.scan::<PartialRequestOfJob>(&(org.clone(), job), range).all().await?;
    if pointers.is_empty() {
        return Ok(None);
    }
    let (mut requests, mut items) = (Vec::new(), Vec::new());
    let mut seen = std::collections::HashSet::new();
    for pointer in pointers {
        let at = pointer.requested_at;
        let key = (org.clone(), at.day(), at, pointer.request_id);
        let Some(row) = store.get::<PartialRequest>(&key).await? else { continue };
        let found: Vec<Found> =
            serde_json::from_str(&row.found).map_err(Error::corrupt("partial request"))?;
        for Found { type_id, id, submission_id, .. } in found {
            let item = ItemKey { type_id, id };
            // The newest request comes first, so the first answer about an item is the newest.
            if items.len() < ITEMS && seen.insert(item.clone()) {
                items.extend(stored::answer(store, org, &item, Some(submission_id)).await?);
            }
        }
        requests.push(request(row)?);
    }
    Ok(Some(OfJob { requests, items }))
}
