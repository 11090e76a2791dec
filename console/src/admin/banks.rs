//! `/admin/v1/banks`: the entries of banks, which come and go without a new configuration.
//!
//! Banks themselves are documents, in the configuration.

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
use tidegate_catalog::banks::{BankError, Entry, Given, Origin, Place, Withdrawn};
use tidegate_media::banks::{Hash, LookupScope, MediaHashes};
use tidegate_schemas::{
    banks::{BankKind, HashKind},
    ids::{BankId, Millis, OrgId},
    item_types::datetime,
};
use tidegate_web::{Path, Problem, Query};
use uuid::Uuid;

use super::{
    Api, List,
    audit::AuditDetail,
    caller::Caller,
    extract::{Body, Page, WholeList, id, invalid},
    faults, long_answers,
};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/banks", get(list))
        .route("/banks/match", post(find))
        .route("/banks/{bank}/entries", get(entries).post(add))
        .route("/banks/{bank}/entries/remove", post(remove))
        .route("/banks/{bank}/entries/withdraw", post(withdraw))
        .route("/banks/{bank}/entries/enable", post(enable))
        .route("/banks/{bank}/entries/disable", post(disable))
        .route("/banks/{bank}/enable", post(enable_bank))
        .route("/banks/{bank}/disable", post(disable_bank))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bank {
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
struct Shown {
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

impl From<Entry> for Shown {
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

/// A value that the bank's document holds; it counts whatever is done to an entry of its id.
#[derive(Serialize)]
struct Held {
    id: Uuid,
    value: String,
}

#[derive(Serialize)]
struct Entries {
    #[serde(flatten)]
    list: List<Shown>,
    /// Entries of the bank's document, on the first page only.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Vec<Held>>,
}

/// Bytes of an entry in an answer without its value, and of one of a document.
const ENTRY_BYTES: usize = 200;
const HELD_BYTES: usize = 60;

const PAGE: usize = 100;
const LARGEST_PAGE: usize = 1_000;

/// An entry: its value, or its value with what stands beside it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Wanted {
    Value(String),
    Entry(WantedEntry),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WantedEntry {
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
struct Added {
    entries: Vec<Wanted>,
}

/// Entries of one request; each of them may be long, and the rules are compiled with them before it is answered.
const MOST_ENTRIES: usize = 20_000;

#[derive(Serialize)]
struct Taken {
    added: usize,
    changed: usize,
    unchanged: usize,
    rejected: Vec<Rejected>,
    warnings: Vec<String>,
    revision: i64,
}

#[derive(Serialize)]
struct Rejected {
    index: usize,
    reason: String,
}

/// Entries by id or by value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    #[serde(default)]
    ids: Vec<String>,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    found: usize,
    missing: usize,
    /// Those that the bank's document holds: they count whatever becomes of them as entries.
    in_document: usize,
}

async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<WholeList>,
) -> Result<Json<List<Bank>>, Problem> {
    let banks = api.deps.banks.list(&caller.org).await.map_err(bank_problem)?;
    let banks = banks.into_iter().map(|bank| Bank {
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
    Ok(Json(List::whole(banks.collect())))
}

async fn entries(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    Query(page): Query<Page>,
) -> Result<Response, Problem> {
    let limit = page.limit.unwrap_or(PAGE);
    if !(1..=LARGEST_PAGE).contains(&limit) {
        return Err(invalid("", format!("`limit` is between 1 and {LARGEST_PAGE}.")));
    }
    let (after, bank): (Option<Place>, _) = (page.after()?, BankId::from(bank));
    let page = api.deps.banks.entries(&caller.org, &bank, after, limit).await.map_err(bank_problem)?;
    let held = |(id, value)| Held { id, value };
    let of_document = page.document.iter().flatten().map(|(_, value)| value.len() + HELD_BYTES);
    let bytes = page.entries.iter().map(|entry| entry.value.len() + ENTRY_BYTES).chain(of_document).sum();
    let entries = move || Entries {
        list: List {
            items: page.entries.into_iter().map(Shown::from).collect(),
            next: page.next.map(|cursor| cursor.to_string()),
        },
        document: page.document.map(|document| document.into_iter().map(held).collect()),
    };
    long_answers::write(&api, &caller.org, bytes, entries).await
}

async fn add(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    Body(wanted): Body<Added>,
) -> Result<(Extension<AuditDetail>, Json<Taken>), Problem> {
    if wanted.entries.len() > MOST_ENTRIES {
        return Err(invalid("/entries", format!("One request adds at most {MOST_ENTRIES} entries.")));
    }
    let mut given = Vec::with_capacity(wanted.entries.len());
    for (index, entry) in wanted.entries.into_iter().enumerate() {
        given.push(match entry {
            Wanted::Value(value) => Given { value, ..Given::default() },
            Wanted::Entry(entry) => Given {
                value: entry.value,
                labels: entry.labels,
                source: entry.source,
                expires_at: instant(entry.expires_at, index)?,
                distance: entry.distance,
                reference: entry.reference,
                note: entry.note,
                disabled: entry.disabled,
            },
        });
    }
    let bank = BankId::from(bank);
    let taken = api.deps.banks.add(&caller.org, &bank, given, &caller.name).await.map_err(bank_problem)?;
    let detail = AuditDetail(json!({"added": taken.added, "changed": taken.changed}));
    let rejected = taken.rejected.into_iter().map(|(index, reason)| Rejected { index, reason });
    let answer = Json(Taken {
        added: taken.added,
        changed: taken.changed,
        unchanged: taken.unchanged,
        rejected: rejected.collect(),
        warnings: taken.warnings,
        revision: taken.revision,
    });
    Ok((Extension(detail), answer))
}

fn instant(text: Option<String>, index: usize) -> Result<Option<Millis>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let at = datetime::parse(&text).ok_or_else(|| {
        invalid(&format!("/entries/{index}/expiresAt"), "An instant such as 2026-12-31T00:00:00Z is needed.")
    });
    at.map(Some)
}

async fn remove(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    Body(named): Body<Named>,
) -> Result<Json<Found>, Problem> {
    let bank = BankId::from(bank);
    let (ids, no_entries) = ids(&api, &caller, &bank, &named).await?;
    let touched =
        api.deps.banks.remove(&caller.org, &bank, &ids, &caller.name).await.map_err(bank_problem)?;
    let found = touched.found;
    Ok(Json(Found { found, missing: no_entries + ids.len() - found, in_document: touched.written.len() }))
}

/// Entries that their sources withdraw.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Withdrawals {
    entries: Vec<Withdrawal>,
}

/// A value from a source, under the name that it has there if it has one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Withdrawal {
    value: String,
    source: String,
    reference: Option<String>,
}

#[derive(Serialize)]
struct Outcomes {
    outcomes: Vec<Withdrawn>,
}

async fn withdraw(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    Body(wanted): Body<Withdrawals>,
) -> Result<(Extension<AuditDetail>, Json<Outcomes>), Problem> {
    if wanted.entries.len() > MOST_ENTRIES {
        return Err(invalid("/entries", format!("One request names at most {MOST_ENTRIES} entries.")));
    }
    let bank = BankId::from(bank);
    let (values, origins): (Vec<_>, Vec<_>) = wanted
        .entries
        .into_iter()
        .map(|it| (it.value, Origin { source: Some(it.source), reference: it.reference }))
        .unzip();
    let ids = api.deps.banks.ids_of(&caller.org, &bank, &values).await.map_err(bank_problem)?;
    let mut withdrawals = Vec::with_capacity(ids.len());
    for (index, (id, origin)) in ids.into_iter().zip(origins).enumerate() {
        let id = id.ok_or_else(|| {
            invalid(&format!("/entries/{index}/value"), "It cannot be an entry of the bank.")
        })?;
        withdrawals.push((id, origin));
    }
    let outcomes = api
        .deps
        .banks
        .withdraw(&caller.org, &bank, &withdrawals, &caller.name)
        .await
        .map_err(bank_problem)?;
    let of = |what| outcomes.iter().filter(|it| **it == what).count();
    let detail = AuditDetail(json!({"removed": of(Withdrawn::Removed), "changed": of(Withdrawn::Changed)}));
    Ok((Extension(detail), Json(Outcomes { outcomes })))
}

async fn enable(
    api: State<Api>,
    caller: Caller,
    bank: Path<String>,
    named: Body<Named>,
) -> Result<Json<Found>, Problem> {
    switch(api, caller, bank, named, true).await
}

async fn disable(
    api: State<Api>,
    caller: Caller,
    bank: Path<String>,
    named: Body<Named>,
) -> Result<Json<Found>, Problem> {
    switch(api, caller, bank, named, false).await
}

async fn switch(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    Body(named): Body<Named>,
    enabled: bool,
) -> Result<Json<Found>, Problem> {
    let bank = BankId::from(bank);
    let (ids, no_entries) = ids(&api, &caller, &bank, &named).await?;
    let banks = &api.deps.banks;
    let touched =
        banks.switch(&caller.org, &bank, &ids, enabled, &caller.name).await.map_err(bank_problem)?;
    let found = touched.found;
    Ok(Json(Found { found, missing: no_entries + ids.len() - found, in_document: touched.written.len() }))
}

async fn enable_bank(api: State<Api>, caller: Caller, bank: Path<String>) -> Result<Json<Bank>, Problem> {
    switch_bank(api, caller, bank, true).await
}

async fn disable_bank(api: State<Api>, caller: Caller, bank: Path<String>) -> Result<Json<Bank>, Problem> {
    switch_bank(api, caller, bank, false).await
}

async fn switch_bank(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    enabled: bool,
) -> Result<Json<Bank>, Problem> {
    let bank = BankId::from(bank);
    let banks = &api.deps.banks;
    banks.switch_bank(&caller.org, &bank, enabled, &caller.name).await.map_err(bank_problem)?;
    let listed = list(State(api), caller, Query(WholeList::default())).await?;
    let found = listed.0.items.into_iter().find(|it| it.id == bank);
    found.map(Json).ok_or_else(|| Problem::not_found("There is no such bank."))
}

/// Query: the hashes of one medium, by kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wish {
    hashes: BTreeMap<HashKind, Texts>,
    /// Banks to look in.
    #[serde(default)]
    banks: Vec<BankId>,
    /// Decides in which samples it is; without it, it is in all.
    item_id: Option<String>,
}

/// A moving picture has several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    All(Vec<String>),
}

impl Texts {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(text) => slice::from_ref(text),
            Self::All(texts) => texts,
        }
    }
}

/// Greatest number of hashes of one medium.
const MOST_HASHES: usize = 1_000;

/// Bytes whose reading takes about as long as to look for one hash in large banks.
const LOOK_UP_BYTES: usize = 2 << 10;

#[derive(Serialize)]
struct Matches {
    matches: Vec<Match>,
    truncated: bool,
    suppressed: Vec<BankId>,
}

#[derive(Serialize)]
struct Match {
    bank: BankId,
    entry: Uuid,
    kind: HashKind,
    distance: u32,
    labels: Vec<String>,
}

/// Finds hashes in the banks as this process has them now.
async fn find(
    State(api): State<Api>,
    caller: Caller,
    Body(wish): Body<Wish>,
) -> Result<Json<Matches>, Problem> {
    let live = &api.deps.moderation.live;
    let here = live.latest(&caller.org).await.map_err(faults::catalog)?;
    let banks = here.hash_banks();
    if let Some(unknown) = wish.banks.iter().find(|id| !banks.banks().iter().any(|bank| bank.id == **id)) {
        return Err(Problem::not_found(format!("There is no bank of hashes `{unknown}`.")));
    }
    let mut all = Vec::new();
    for (kind, texts) in &wish.hashes {
        let (texts, pointer) = (texts.as_slice(), format!("/hashes/{}", kind.name()));
        let most = if *kind == HashKind::Pdq { MOST_HASHES } else { 1 };
        if texts.len() > most {
            return Err(invalid(&pointer, format!("A medium has at most {most} of them.")));
        }
        for text in texts {
            let text =
                kind.canonical(text.trim()).map_err(|why| invalid(&pointer, format!("No hash: {why}.")))?;
            all.extend(Hash::parse(*kind, &text));
        }
    }
    let bytes = all.len() * LOOK_UP_BYTES;
    let look_up = move || {
        let scope = LookupScope { item: wish.item_id.as_deref(), banks: &wish.banks };
        banks.inspect(&scope, &MediaHashes::from_hashes(&all))
    };
    let found = api.deps.changes.work().run(&caller.org, bytes, look_up).await.map_err(faults::catalog)?;
    let matches = found.matches.into_iter().map(|it| Match {
        bank: it.bank,
        entry: it.entry,
        kind: it.kind,
        distance: it.distance,
        labels: it.labels,
    });
    Ok(Json(Matches { matches: matches.collect(), truncated: found.truncated, suppressed: found.suppressed }))
}

/// Each once, and how many of the values cannot be entries.
async fn ids(
    api: &Api,
    caller: &Caller,
    bank: &BankId,
    named: &Named,
) -> Result<(Vec<Uuid>, usize), Problem> {
    if named.ids.len() + named.values.len() > MOST_ENTRIES {
        return Err(invalid("", format!("One request names at most {MOST_ENTRIES} entries.")));
    }
    let mut ids = BTreeSet::new();
    for text in &named.ids {
        ids.insert(id(text)?);
    }
    let of_values = api.deps.banks.ids_of(&caller.org, bank, &named.values).await.map_err(bank_problem)?;
    let no_entries = of_values.iter().filter(|id| id.is_none()).count();
    ids.extend(of_values.into_iter().flatten());
    Ok((ids.into_iter().collect(), no_entries))
}

fn bank_problem(error: BankError) -> Problem {
    match error {
        BankError::NoSuchBank(bank) => Problem::not_found(format!("There is no bank `{bank}`.")),
        BankError::Unusable(why) => {
            invalid("/entries", format!("The rules would not compile with these entries: {why}"))
        }
        BankError::Catalog(error) => faults::catalog(error),
    }
}
