//! `/admin/v1/banks`: lists, adds and changes bank entries, which take effect without a new configuration. The banks
//! themselves are documents of the configuration (`config`).

use std::{
    collections::{BTreeMap, BTreeSet},
    slice,
};

use axum::{
    Extension, Json, Router,
    extract::State,
    response::Response,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_catalog::banks::{BankError, Entry, EntryInput, Origin, PageCursor, WithdrawalResult};
use tidegate_media::banks::{Hash, LookupScope, MediaHashes};
use tidegate_schemas::{
    banks::{BankKind, HashKind},
    ids::{BankId, Millis, OrgId},
    item_types::datetime,
};
use tidegate_web::{Path, Problem, Query};
use uuid::Uuid;

use super::{
    Api, ListResponse,
    audit::AuditDetail,
    caller::Caller,
    extract::{Body, PageQuery, UnpagedQuery, invalid, parse_id},
    faults, long_answers,
};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/banks", get(list_banks))
        .route("/banks/match", post(match_hashes))
        .route("/banks/{bank}/entries", get(list_entries).post(add_entries))
        .route("/banks/{bank}/entries/remove", post(remove_entries))
        .route("/banks/{bank}/entries/withdraw", post(withdraw_entries))
        .route("/banks/{bank}/entries/enable", post(enable_entries))
        .route("/banks/{bank}/entries/disable", post(disable_entries))
        .route("/banks/{bank}/enable", post(enable_bank))
        .route("/banks/{bank}/disable", post(disable_bank))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BankResponse {
    id: BankId,
    org: OrgId,
    org_since: Option<String>,
    kind: BankKind,
    name: String,
    enabled: bool,
    revision: i64,
    changed_at: Option<String>,
    author: Option<String>,
}

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
struct AddEntriesRequest {
    entries: Vec<NewEntryRequest>,
}

/// Entries of one request. Bounded because the rules are compiled with them before the request is answered.
const MAX_ENTRIES: usize = 20_000;

#[derive(Serialize)]
struct AddEntriesResponse {
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

/// Entries selected by id or by value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntrySelection {
    #[serde(default)]
    ids: Vec<String>,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SelectionResponse {
    found: usize,
    missing: usize,
    /// Selected entries that the bank's document lists as well. They keep matching after a removal here.
    in_document: usize,
}

async fn list_banks(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<UnpagedQuery>,
) -> Result<Json<ListResponse<BankResponse>>, Problem> {
    let banks = api.deps.banks.list(&caller.org).await.map_err(bank_problem)?;
    let banks = banks.into_iter().map(|bank| BankResponse {
        id: bank.bank,
        org: caller.org.clone(),
        org_since: bank.org_since.map(Millis::iso),
        kind: bank.kind,
        name: bank.name,
        enabled: bank.enabled,
        revision: bank.revision,
        changed_at: bank.changed_at.map(Millis::iso),
        author: bank.author,
    });
    Ok(Json(ListResponse::unpaged(banks.collect())))
}

async fn list_entries(
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

async fn add_entries(
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

async fn remove_entries(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    Body(selection): Body<EntrySelection>,
) -> Result<Json<SelectionResponse>, Problem> {
    let bank = BankId::from(bank);
    let (ids, invalid_count) = resolve_ids(&api, &caller, &bank, &selection).await?;
    let change = api.deps.banks.remove(&caller.org, &bank, &ids, &caller.name).await.map_err(bank_problem)?;
    // Values that cannot be entries of the bank are reported as missing, like unknown ids.
    let found_count = change.existing_count;
    Ok(Json(SelectionResponse {
        found: found_count,
        missing: invalid_count + ids.len() - found_count,
        in_document: change.document_ids.len(),
    }))
}

/// Entries that their sources no longer list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WithdrawRequest {
    entries: Vec<Withdrawal>,
}

/// Value of a source, with the source's own name for it where one exists.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Withdrawal {
    value: String,
    source: String,
    reference: Option<String>,
}

#[derive(Serialize)]
struct WithdrawResponse {
    outcomes: Vec<WithdrawalResult>,
}

async fn withdraw_entries(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    Body(request): Body<WithdrawRequest>,
) -> Result<(Extension<AuditDetail>, Json<WithdrawResponse>), Problem> {
    if request.entries.len() > MAX_ENTRIES {
        return Err(invalid("/entries", format!("One request names at most {MAX_ENTRIES} entries.")));
    }
    let bank = BankId::from(bank);
    let (values, origins): (Vec<_>, Vec<_>) = request
        .entries
        .into_iter()
        .map(|withdrawal| {
            (withdrawal.value, Origin { source: Some(withdrawal.source), reference: withdrawal.reference })
        })
        .unzip();
    let ids = api.deps.banks.derive_ids(&caller.org, &bank, &values).await.map_err(bank_problem)?;
    let mut withdrawals = Vec::with_capacity(ids.len());
    for (index, (id, origin)) in ids.into_iter().zip(origins).enumerate() {
        // Outcomes are reported by position, so an invalid value cannot be left out of the list.
        let id = id.ok_or_else(|| {
            invalid(&format!("/entries/{index}/value"), "It cannot be an entry of the bank.")
        })?;
        withdrawals.push((id, origin));
    }
    let outcomes = api
        .deps
        .banks
        .withdraw_entries(&caller.org, &bank, &withdrawals, &caller.name)
        .await
        .map_err(bank_problem)?;
    let count_of = |outcome| outcomes.iter().filter(|result| **result == outcome).count();
    let detail = AuditDetail(
        json!({"removed": count_of(WithdrawalResult::Removed), "changed": count_of(WithdrawalResult::Changed)}),
    );
    Ok((Extension(detail), Json(WithdrawResponse { outcomes })))
}

async fn enable_entries(
    api: State<Api>,
    caller: Caller,
    bank: Path<String>,
    selection: Body<EntrySelection>,
) -> Result<Json<SelectionResponse>, Problem> {
    set_entries_enabled(api, caller, bank, selection, true).await
}

async fn disable_entries(
    api: State<Api>,
    caller: Caller,
    bank: Path<String>,
    selection: Body<EntrySelection>,
) -> Result<Json<SelectionResponse>, Problem> {
    set_entries_enabled(api, caller, bank, selection, false).await
}

async fn set_entries_enabled(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    Body(selection): Body<EntrySelection>,
    enabled: bool,
) -> Result<Json<SelectionResponse>, Problem> {
    let bank = BankId::from(bank);
    let (ids, invalid_count) = resolve_ids(&api, &caller, &bank, &selection).await?;
    let banks = &api.deps.banks;
    let change =
        banks.switch_entries(&caller.org, &bank, &ids, enabled, &caller.name).await.map_err(bank_problem)?;
    let found_count = change.existing_count;
    Ok(Json(SelectionResponse {
        found: found_count,
        missing: invalid_count + ids.len() - found_count,
        in_document: change.document_ids.len(),
    }))
}

async fn enable_bank(
    api: State<Api>,
    caller: Caller,
    bank: Path<String>,
) -> Result<Json<BankResponse>, Problem> {
    set_bank_enabled(api, caller, bank, true).await
}

async fn disable_bank(
    api: State<Api>,
    caller: Caller,
    bank: Path<String>,
) -> Result<Json<BankResponse>, Problem> {
    set_bank_enabled(api, caller, bank, false).await
}

async fn set_bank_enabled(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    enabled: bool,
) -> Result<Json<BankResponse>, Problem> {
    let bank = BankId::from(bank);
    let banks = &api.deps.banks;
    banks.switch_bank(&caller.org, &bank, enabled, &caller.name).await.map_err(bank_problem)?;
    // The change returns no row, so the answer is read from the list.
    let bank_list = list_banks(State(api), caller, Query(UnpagedQuery::default())).await?;
    let bank_response = bank_list.0.items.into_iter().find(|candidate| candidate.id == bank);
    bank_response.map(Json).ok_or_else(|| Problem::not_found("There is no such bank."))
}

/// Hashes of one medium to look up in the banks, by kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MatchRequest {
    hashes: BTreeMap<HashKind, HashTexts>,
    /// Restricts the search to these banks; empty: all banks.
    #[serde(default)]
    banks: Vec<BankId>,
    /// Item id, which selects the sampled banks that take part. Left out: all banks take part.
    item_id: Option<String>,
}

/// Hashes of one kind. A video has one for each sampled frame.
#[derive(Deserialize)]
#[serde(untagged)]
enum HashTexts {
    One(String),
    All(Vec<String>),
}

impl HashTexts {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(text) => slice::from_ref(text),
            Self::All(texts) => texts,
        }
    }
}

/// Hashes of one kind in a request.
const MAX_HASHES: usize = 1_000;

/// Cost of one hash look-up in large banks, as the number of JSON bytes with the same parsing time.
const LOOK_UP_BYTES: usize = 2 << 10;

#[derive(Serialize)]
struct MatchResponse {
    matches: Vec<BankMatch>,
    truncated: bool,
    suppressed: Vec<BankId>,
}

#[derive(Serialize)]
struct BankMatch {
    bank: BankId,
    entry: Uuid,
    kind: HashKind,
    distance: u32,
    labels: Vec<String>,
}

/// Looks hashes up in the banks that this process has loaded.
async fn match_hashes(
    State(api): State<Api>,
    caller: Caller,
    Body(request): Body<MatchRequest>,
) -> Result<Json<MatchResponse>, Problem> {
    let live = &api.deps.moderation.live;
    let config = live.load_latest(&caller.org).await.map_err(faults::catalog_problem)?;
    let banks = config.hash_banks();
    if let Some(unknown) = request.banks.iter().find(|id| !banks.banks().iter().any(|bank| bank.id == **id)) {
        // Without this check, a misspelled bank would look like a bank without matches.
        return Err(Problem::not_found(format!("There is no bank of hashes `{unknown}`.")));
    }
    let mut hashes = Vec::new();
    for (kind, texts) in &request.hashes {
        let (texts, pointer) = (texts.as_slice(), format!("/hashes/{}", kind.name()));
        // Only PDQ is computed for each frame; the other kinds have one hash a medium.
        let max_hashes = if *kind == HashKind::Pdq { MAX_HASHES } else { 1 };
        if texts.len() > max_hashes {
            return Err(invalid(&pointer, format!("A medium has at most {max_hashes} of them.")));
        }
        for text in texts {
            let text = kind
                .canonical(text.trim())
                .map_err(|reason| invalid(&pointer, format!("Invalid hash: {reason}.")))?;
            hashes.extend(Hash::parse(*kind, &text));
        }
    }
    let bytes = hashes.len() * LOOK_UP_BYTES;
    // Distance search in large banks takes long, so it runs in the org's turn on a thread that serves no requests.
    let look_up = move || {
        let scope = LookupScope { item: request.item_id.as_deref(), banks: &request.banks };
        banks.inspect(&scope, &MediaHashes::from_hashes(&hashes))
    };
    let result =
        api.deps.changes.work().run(&caller.org, bytes, look_up).await.map_err(faults::catalog_problem)?;
    let matches = result.matches.into_iter().map(|hit| BankMatch {
        bank: hit.bank,
        entry: hit.entry,
        kind: hit.kind,
        distance: hit.distance,
        labels: hit.labels,
    });
    Ok(Json(MatchResponse {
        matches: matches.collect(),
        truncated: result.truncated,
        suppressed: result.suppressed,
    }))
}

/// Returns the distinct ids of a selection, and the number of values that cannot be entries of the bank.
async fn resolve_ids(
    api: &Api,
    caller: &Caller,
    bank: &BankId,
    selection: &EntrySelection,
) -> Result<(Vec<Uuid>, usize), Problem> {
    if selection.ids.len() + selection.values.len() > MAX_ENTRIES {
        return Err(invalid("", format!("One request names at most {MAX_ENTRIES} entries.")));
    }
    // A set, because an entry may be selected by its id and by its value.
    let mut ids = BTreeSet::new();
    for text in &selection.ids {
        ids.insert(parse_id(text)?);
    }
    let value_ids =
        api.deps.banks.derive_ids(&caller.org, bank, &selection.values).await.map_err(bank_problem)?;
    let invalid_count = value_ids.iter().filter(|id| id.is_none()).count();
    ids.extend(value_ids.into_iter().flatten());
    Ok((ids.into_iter().collect(), invalid_count))
}

fn bank_problem(error: BankError) -> Problem {
    match error {
        BankError::NoSuchBank(bank) => Problem::not_found(format!("There is no bank `{bank}`.")),
        BankError::Unusable(reason) => {
            invalid("/entries", format!("The rules would not compile with these entries: {reason}"))
        }
        BankError::Catalog(error) => faults::catalog_problem(error),
    }
}
