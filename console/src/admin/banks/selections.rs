//! Removes, enables and disables selected entries of a bank.

use std::collections::BTreeSet;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::BankId;
use tidegate_web::{Path, Problem};
use uuid::Uuid;

use super::{MAX_ENTRIES, bank_problem};
use crate::{
    admin::request::{Body, Caller, invalid, parse_id},
    api::Api,
};

/// Entries selected by id or by value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntrySelectionRequest {
    #[serde(default)]
    ids: Vec<String>,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SelectionResponse {
    found: usize,
    missing: usize,
    /// Selected entries that the bank's document lists as well. They keep matching after a removal here.
    in_document: usize,
}

pub(super) async fn remove_entries(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    Body(selection): Body<EntrySelectionRequest>,
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

pub(super) async fn enable_entries(
    api: State<Api>,
    caller: Caller,
    bank: Path<String>,
    selection: Body<EntrySelectionRequest>,
) -> Result<Json<SelectionResponse>, Problem> {
    set_entries_enabled(api, caller, bank, selection, true).await
}

pub(super) async fn disable_entries(
    api: State<Api>,
    caller: Caller,
    bank: Path<String>,
    selection: Body<EntrySelectionRequest>,
) -> Result<Json<SelectionResponse>, Problem> {
    set_entries_enabled(api, caller, bank, selection, false).await
}

async fn set_entries_enabled(
    State(api): State<Api>,
    caller: Caller,
    Path(bank): Path<String>,
    Body(selection): Body<EntrySelectionRequest>,
    enabled: bool,
) -> Result<Json<SelectionResponse>, Problem> {
    let bank = BankId::from(bank);
    let (ids, invalid_count) = resolve_ids(&api, &caller, &bank, &selection).await?;
    let banks = &api.deps.banks;
    let change =
        banks.switch_entries(&caller.org, &bank, &ids, enabled, &caller.name).await.map_err(bank_problem)?;
    // As for a removal, values that cannot be entries of the bank count as missing.
    let found_count = change.existing_count;
    Ok(Json(SelectionResponse {
        found: found_count,
        missing: invalid_count + ids.len() - found_count,
        in_document: change.document_ids.len(),
    }))
}

/// Returns the distinct ids of a selection, and the number of values that cannot be entries of the bank.
async fn resolve_ids(
    api: &Api,
    caller: &Caller,
    bank: &BankId,
    selection: &EntrySelectionRequest,
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
