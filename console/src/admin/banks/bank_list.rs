//! Lists banks, and enables and disables them.

use axum::{Json, extract::State};
use serde::Serialize;
use tidegate_schemas::{
    banks::BankKind,
    ids::{BankId, Millis, OrgId},
};
use tidegate_web::{Path, Problem, Query};

use super::bank_problem;
use crate::{
    admin::request::{Caller, UnpagedQuery},
    api::{Api, ListResponse},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BankResponse {
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

pub(super) async fn list_banks(
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

pub(super) async fn enable_bank(
    api: State<Api>,
    caller: Caller,
    bank: Path<String>,
) -> Result<Json<BankResponse>, Problem> {
    set_bank_enabled(api, caller, bank, true).await
}

pub(super) async fn disable_bank(
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
