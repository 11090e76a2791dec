//! `/admin/v1/banks`: lists, adds and changes bank entries, which take effect without a new configuration. The banks
//! themselves are documents of the configuration (`config`).

mod bank_list;
mod entries;
mod matching;
mod selections;
mod withdrawals;

use axum::{
    Router,
    routing::{get, post},
};
use tidegate_catalog::banks::BankError;
use tidegate_web::Problem;

use crate::{
    admin::request::{faults, invalid},
    api::Api,
};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/banks", get(bank_list::list_banks))
        .route("/banks/match", post(matching::match_hashes))
        .route("/banks/{bank}/entries", get(entries::list_entries).post(entries::add_entries))
        .route("/banks/{bank}/entries/remove", post(selections::remove_entries))
        .route("/banks/{bank}/entries/withdraw", post(withdrawals::withdraw_entries))
        .route("/banks/{bank}/entries/enable", post(selections::enable_entries))
        .route("/banks/{bank}/entries/disable", post(selections::disable_entries))
        .route("/banks/{bank}/enable", post(bank_list::enable_bank))
        .route("/banks/{bank}/disable", post(bank_list::disable_bank))
}

/// Entries of one request. Bounded because the rules are compiled with them before the request is answered.
const MAX_ENTRIES: usize = 20_000;

fn bank_problem(error: BankError) -> Problem {
    match error {
        BankError::NoSuchBank(bank) => Problem::not_found(format!("There is no bank `{bank}`.")),
        BankError::Unusable(reason) => {
            invalid("/entries", format!("The rules would not compile with these entries: {reason}"))
        }
        BankError::Catalog(error) => faults::catalog_problem(error),
    }
}
