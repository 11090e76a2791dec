//! Lists and adds the entries of a bank.

use axum::{Extension, Json, extract::State, response::Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_catalog::banks::{Entry, EntryInput, Origin, PageCursor};
use tidegate_schemas::{
    ids::{BankId, Millis},
    item_types::datetime,
};
use tidegate_web::{Path, Problem, Query};
use uuid::Uuid;

use super::{MAX_ENTRIES, bank_problem};
use crate::{
    admin::{
        access::audit::AuditDetail,
        request::{Body, Caller, PageQuery, invalid, long_answers},
    },
    api::{Api, ListResponse},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryResponse {
    id: Uuid,
    value: String,
    enabled: bool,
    labels: Vec<String>,
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    distance: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also: Vec<Origin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quarantined_at: Option<String>,
    added_at: String,
    expires_at: Option<String>,
    author: String,
}

impl From<Entry> for EntryResponse {
    fn from(entry: Entry) -> Self {
        Self {
            id: entry.id,
            value: entry.value,
            enabled: entry.enabled,
            labels: entry.labels,
            source: entry.source,
            distance: entry.distance,
            reference: entry.reference,
            also: entry.also,
            note: entry.note,
            quarantined_at: entry.quarantined_at.map(Millis::iso),
            added_at: entry.added_at.iso(),
            expires_at: entry.expires_at.map(Millis::iso),
            author: entry.author,
        }
    }
}

/// Value listed in the bank's document. Cannot be removed or disabled through this API.
#[derive(Serialize)]
struct DocumentEntry {
    id: Uuid,
    value: String,
}

#[derive(Serialize)]
struct EntriesResponse {
    #[serde(flatten)]
    list: ListResponse<EntryResponse>,
    /// Entries of the bank's document, on the first page only.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Vec<DocumentEntry>>,
}

/// Size of an entry in the answer without its value, in bytes. Used to estimate the answer's size.
const ENTRY_OVERHEAD_BYTES: usize = 200;
/// The same for an entry of the bank's document.
const DOCUMENT_ENTRY_OVERHEAD_BYTES: usize = 60;

const DEFAULT_PAGE_ENTRIES: usize = 100;
const MAX_PAGE_ENTRIES: usize = 1_000;

/// Bank entry in a request: a value alone, or a value with labels, source and expiry.
#[derive(Deserialize)]
#[serde(untagged)]
enum NewEntryRequest {
    Value(String),
    Described(DescribedEntryRequest),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DescribedEntryRequest {
    value: String,
    labels: Option<Vec<String>>,
    source: Option<String>,
    expires_at: Option<String>,
    distance: Option<u32>,
    reference: Option<String>,
    note: Option<String>,
    disabled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AddEntriesRequest {
    entries: Vec<NewEntryRequest>,
}

#[derive(Serialize)]
pub(super) struct AddEntriesResponse {
    added: usize,
    changed: usize,
    unchanged: usize,
    rejected: Vec<RejectedEntry>,
    warnings: Vec<String>,
    revision: i64,
}

#[derive(Serialize)]
struct RejectedEntry {
    index: usize,
    reason: String,
}

pub(super) async fn list_entries(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    Query(page): Query<PageQuery>,
) -> Result<Response, Problem> {
    let limit = page.limit.unwrap_or(DEFAULT_PAGE_ENTRIES);
    if !(1..=MAX_PAGE_ENTRIES).contains(&limit) {
        return Err(invalid("", format!("`limit` is between 1 and {MAX_PAGE_ENTRIES}.")));
    }
    let (after, bank): (Option<PageCursor>, _) = (page.parse_cursor()?, BankId::from(bank));
    let page = api.deps.banks.entries(&caller.org, &bank, after, limit).await.map_err(bank_problem)?;
    let document_entry = |(id, value)| DocumentEntry { id, value };
    let document_sizes =
        page.document.iter().flatten().map(|(_, value)| value.len() + DOCUMENT_ENTRY_OVERHEAD_BYTES);
    let bytes =
        page.entries.iter().map(|entry| entry.value.len() + ENTRY_OVERHEAD_BYTES).chain(document_sizes).sum();
    let entries = move || EntriesResponse {
        list: ListResponse {
            items: page.entries.into_iter().map(EntryResponse::from).collect(),
            next: page.next.map(|cursor| cursor.to_string()),
        },
        document: page.document.map(|document| document.into_iter().map(document_entry).collect()),
    };
    // The entries are serialized in the org's turn if the page is long, so one org cannot occupy all threads.
    long_answers::write_json(&api, &caller.org, bytes, entries).await
}

pub(super) async fn add_entries(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    Body(request): Body<AddEntriesRequest>,
) -> Result<(Extension<AuditDetail>, Json<AddEntriesResponse>), Problem> {
    // Each entry can be long, and all of them are held until the rules compile.
    if request.entries.len() > MAX_ENTRIES {
        return Err(invalid("/entries", format!("One request adds at most {MAX_ENTRIES} entries.")));
    }
    let mut new_entries = Vec::with_capacity(request.entries.len());
    for (index, entry) in request.entries.into_iter().enumerate() {
        new_entries.push(match entry {
            NewEntryRequest::Value(value) => EntryInput { value, ..EntryInput::default() },
            NewEntryRequest::Described(entry) => EntryInput {
                value: entry.value,
                labels: entry.labels,
                source: entry.source,
                expires_at: parse_expiry(entry.expires_at, index)?,
                distance: entry.distance,
                reference: entry.reference,
                note: entry.note,
                disabled: entry.disabled,
            },
        });
    }
    let bank = BankId::from(bank);
    let outcome =
        api.deps.banks.add(&caller.org, &bank, new_entries, &caller.name).await.map_err(bank_problem)?;
    let detail = AuditDetail(json!({"added": outcome.added, "changed": outcome.changed}));
    let rejected_entries =
        outcome.rejected.into_iter().map(|(index, reason)| RejectedEntry { index, reason });
    let answer = Json(AddEntriesResponse {
        added: outcome.added,
        changed: outcome.changed,
        unchanged: outcome.unchanged,
        rejected: rejected_entries.collect(),
        warnings: outcome.warnings,
        revision: outcome.revision,
    });
    Ok((Extension(detail), answer))
}

fn parse_expiry(text: Option<String>, index: usize) -> Result<Option<Millis>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let expiry = datetime::parse(&text).ok_or_else(|| {
        invalid(&format!("/entries/{index}/expiresAt"), "An instant such as 2026-12-31T00:00:00Z is needed.")
    });
    expiry.map(Some)
}
