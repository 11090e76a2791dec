//! Loads the entries of an organisation's list banks, all of which the rule plan contains.
//!
//! Hash banks are compared outside of the plan; see `hashes`.

use std::{collections::HashMap, sync::Arc};

use tidegate_schemas::ids::{BankId, Millis, OrgId};
use tidegate_store::Store;

use super::{held::LoadedBank, ledger};
use crate::{Error, compile::BankEntries, content::Content};

/// Loaded list banks of an organisation.
pub(crate) type LoadedBanks = HashMap<BankId, Arc<LoadedBank>>;

/// Loads all list banks of a configuration.
pub(crate) async fn load_all(store: &Store, org: &OrgId, content: &Content) -> Result<LoadedBanks, Error> {
    load_current(store, org, content, &LoadedBanks::new()).await
}

/// Loads all list banks of a configuration, reusing the loaded ones.
pub(crate) async fn load_current(
    store: &Store,
    org: &OrgId,
    content: &Content,
    loaded_banks: &LoadedBanks,
) -> Result<LoadedBanks, Error> {
    let mut current_banks = LoadedBanks::new();
    let lists = content.set.banks.iter().filter(|(_, (_, document))| document.kind.hash_kind().is_none());
    for (bank, _) in lists {
        current_banks
            .insert(bank.clone(), ledger::load_current_bank(store, org, bank, loaded_banks.get(bank)).await?);
    }
    Ok(current_banks)
}

/// Returns the active entries of each bank, and the time at which the first of them expires.
pub(crate) fn active_entries(loaded_banks: &LoadedBanks, now: Millis) -> (BankEntries, Option<Millis>) {
    let mut earliest_expiry = None;
    let entries_by_bank = loaded_banks.iter().map(|(bank, loaded_bank)| {
        // `None` switches off the values of the bank's document as well.
        if !loaded_bank.enabled {
            return (bank.clone(), None);
        }
        let (entries, first_expiry) = loaded_bank.active_entries(now);
        earliest_expiry = earliest_expiry.into_iter().chain(first_expiry).min();
        (bank.clone(), Some(entries))
    });
    let entries_by_bank = entries_by_bank.collect();
    (entries_by_bank, earliest_expiry)
}
