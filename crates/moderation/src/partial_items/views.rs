//! JSON views of requests for items.

use std::{cmp::Reverse, collections::HashSet, fmt, str::FromStr};

use async_recursion::async_recursion as boxed;
use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_schemas::ids::{ItemKey, JobId, Millis, OrgId, SubmissionId};
use tidegate_store::{
    RowRange, Store,
    tables::review::partial_requests::{PartialRequest, PartialRequestOfJob},
};
use uuid::Uuid;

use super::fetcher::FoundItem;
use crate::{
    Error,
    child_safety::AuthorizedJob,
    items::{context, stored},
};

/// Number of requests in the answer about a job, and of rows per read.
const MAX_REQUESTS: usize = 10;

/// Request for items.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartialRequestResponse {
    /// Id in URLs: the request's time and its own id.
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

/// Requests of a job with the received items.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRequestsView {
    /// The newest requests.
    pub requests: Vec<PartialRequestResponse>,
    /// Number of older requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub requests_more: usize,
    /// Newest data of each received item.
    pub items: Vec<stored::ItemResponse>,
    /// Number of items beyond the limits of this answer.
    #[serde(skip_serializing_if = "is_zero")]
    pub items_more: usize,
    /// Cursor of the items beyond the limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_item: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Limits of the received items in one answer. The first item is always included.
#[derive(Clone, Copy, Debug)]
pub struct ItemLimits {
    pub items: usize,
    /// Bytes of the items' data.
    pub bytes: usize,
}

/// Position of a received item: by request, newest first, then in the order of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemCursor {
    requested_at: Reverse<Millis>,
    request_id: Uuid,
    index: usize,
}

impl fmt::Display for ItemCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", public_id(self.requested_at.0, self.request_id), self.index)
    }
}

/// Error for a text that is not a cursor of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text is no cursor of fetched items")]
pub struct InvalidCursor;

impl FromStr for ItemCursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let (request_part, index) = text.split_once('~').ok_or(InvalidCursor)?;
        let (requested_at, request_id) = request_key(request_part).ok_or(InvalidCursor)?;
        let index = index.parse().map_err(|_| InvalidCursor)?;
        Ok(Self { requested_at: Reverse(requested_at), request_id, index })
    }
}

/// Received items of a job. `more` counts the items after the last one; it is zero without `next`.
#[derive(Debug)]
pub struct ItemPage {
    pub items: Vec<stored::ItemResponse>,
    pub more: usize,
    pub next: Option<ItemCursor>,
}

pub fn request_view(row: PartialRequest) -> Result<PartialRequestResponse, Error> {
    let list = |text: &str| context::raw(text.as_bytes());
    let error = row.error.map(|name| ErrorView { name, detail: row.error_detail.unwrap_or_default() });
    Ok(PartialRequestResponse {
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

fn request_key(id: &str) -> Option<(Millis, Uuid)> {
    let (at, id) = id.split_once('-')?;
    Some((Millis(at.parse().ok()?), id.parse().ok()?))
}

/// Finds the request with a public id.
#[boxed]
pub async fn find_request(store: &Store, org: &OrgId, id: &str) -> Result<Option<PartialRequest>, Error> {
    let Some((at, id)) = request_key(id) else { return Ok(None) };
    Ok(store.get::<PartialRequest>(&(org.clone(), at.day(), at, id)).await?)
}

/// Returns the newest requests of a job, and the items received for all of its requests.
pub(crate) async fn load_for_job(
    store: &Store,
    job: &AuthorizedJob,
    limits: ItemLimits,
) -> Result<Option<JobRequestsView>, Error> {
    let rows = load_requests(store, job).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let page = load_page(store, job.org(), &rows, None, limits).await?;
    let requests_more = rows.len().saturating_sub(MAX_REQUESTS);
    Ok(Some(JobRequestsView {
        requests: rows.into_iter().take(MAX_REQUESTS).map(request_view).collect::<Result<_, Error>>()?,
        requests_more,
        items: page.items,
        items_more: page.more,
        next_item: page.next.map(|cursor| cursor.to_string()),
    }))
}

/// Returns the items received for a job, each once with its newest data.
#[boxed]
pub async fn load_items_of_job(
    store: &Store,
    job: &AuthorizedJob,
    after: Option<ItemCursor>,
    limits: ItemLimits,
) -> Result<ItemPage, Error> {
    load_page(store, job.org(), &load_requests(store, job).await?, after, limits).await
}

/// Loads the stored requests of a job, newest first. Few rows: a claim adds at most one per
/// `review.refresh_after_ms`, a report or an appeal one in total.
async fn load_requests(store: &Store, job: &AuthorizedJob) -> Result<Vec<PartialRequest>, Error> {
    let pointers = store.scan::<PartialRequestOfJob>(&job.key(), RowRange::all()).all().await?;
    let key = |pointer: &PartialRequestOfJob| {
        (job.org().clone(), pointer.requested_at.day(), pointer.requested_at, pointer.request_id)
    };
    let keys: Vec<_> = pointers.iter().map(key).collect();
    let mut rows = Vec::with_capacity(keys.len());
    for keys in keys.chunks(MAX_REQUESTS) {
        rows.extend(store.get_many::<PartialRequest>(keys).await?.into_iter().flatten());
    }
    Ok(rows)
}

async fn load_page(
    store: &Store,
    org: &OrgId,
    requests: &[PartialRequest],
    after: Option<ItemCursor>,
    limits: ItemLimits,
) -> Result<ItemPage, Error> {
    let found_items = newest_items(requests)?;
    let start = found_items.partition_point(|(place, ..)| after.is_some_and(|after| *place <= after));
    let (mut items, mut bytes, mut consumed) = (Vec::new(), 0, start);
    for (_, item, submission_id) in found_items.get(start..).unwrap_or_default() {
        // The item may not be processed yet.
        if let Some(answer) = stored::load_answer(store, org, item, Some(*submission_id)).await? {
            bytes += answer.data.get().len();
            // The first item is always included, so that pages advance.
            if !items.is_empty() && (items.len() == limits.items || bytes > limits.bytes) {
                break;
            }
            items.push(answer);
        }
        consumed += 1;
    }
    let remaining = found_items.len() - consumed;
    let last = consumed.checked_sub(1).and_then(|last| found_items.get(last)).map(|(place, ..)| *place);
    Ok(ItemPage { items, more: remaining, next: last.filter(|_| remaining > 0) })
}

/// Returns the newest version of each received item, by position.
fn newest_items(requests: &[PartialRequest]) -> Result<Vec<(ItemCursor, ItemKey, SubmissionId)>, Error> {
    let (mut seen_items, mut newest) = (HashSet::new(), Vec::new());
    for row in requests {
        let found_items: Vec<FoundItem> =
            serde_json::from_str(&row.found).map_err(Error::corrupt("partial request"))?;
        let (requested_at, request_id) = (Reverse(row.requested_at), row.request_id);
        for (index, FoundItem { type_id, id, submission_id, .. }) in found_items.into_iter().enumerate() {
            let item = ItemKey { type_id, id };
            // Requests are sorted newest first, so the first occurrence is the newest one.
            if seen_items.insert(item.clone()) {
                newest.push((ItemCursor { requested_at, request_id, index }, item, submission_id));
            }
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_cursor_round_trips_through_text() {
        let place = ItemCursor {
            requested_at: Reverse(Millis(1_795_834_800_000)),
            request_id: Uuid::from_u128(7),
            index: 99,
        };
        assert_eq!(place.to_string().parse(), Ok(place));
        for text in ["", "1", "1~2", "1-x~2", "1-00000000-0000-0000-0000-000000000007~-1"] {
            assert_eq!(text.parse::<ItemCursor>(), Err(InvalidCursor), "{text}");
        }
    }
}
