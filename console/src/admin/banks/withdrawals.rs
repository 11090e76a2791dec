//! Withdraws entries that their sources no longer list.

use axum::{Extension, Json, extract::State};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_catalog::banks::{Origin, WithdrawalResult};
use tidegate_schemas::ids::BankId;
use tidegate_web::{Path, Problem};

use super::{MAX_ENTRIES, bank_problem};
use crate::{
    admin::{
        access::audit::AuditDetail,
        request::{Body, Caller, invalid},
    },
    api::Api,
};

/// Entries that their sources no longer list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WithdrawRequest {
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
pub(super) struct WithdrawResponse {
    outcomes: Vec<WithdrawalResult>,
}

pub(super) async fn withdraw_entries(
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
