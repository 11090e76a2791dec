//! Entries of an organisation's list banks, which rules hold in full.
//!
//! Banks of hashes are not in the plan; see `hashes`.

use std::{collections::HashMap, sync::Arc};

use tidegate_schemas::ids::{BankId, Millis, OrgId};
use tidegate_store::Store;

use super::{held::Held, ledger};
use crate::{Error, compile::BankEntries, content::Content};

/// Entries of an organisation's banks.
pub(crate) type AllHeld = HashMap<BankId, Arc<Held>>;

/// All banks of a configuration, read anew.
pub(crate) async fn all(store: &Store, org: &OrgId, content: &Content) -> Result<AllHeld, Error> {
    catch_up(store, org, content, &AllHeld::new()).await
}

/// All banks of a configuration, from what is held of them already.
pub(crate) async fn catch_up(
    store: &Store,
    org: &OrgId,
    content: &Content,
    held: &AllHeld,
) -> Result<AllHeld, Error> {
    let mut all = AllHeld::new();
    let lists = content.set.banks.iter().filter(|(_, (_, document))| document.kind.hash().is_none());
    for (bank, _) in lists {
        all.insert(bank.clone(), ledger::catch_up(store, org, bank, held.get(bank)).await?);
    }
    Ok(all)
}

/// Returns the entries that compile, and the time when the first of them expires.
pub(crate) fn entries(held: &AllHeld, now: Millis) -> (BankEntries, Option<Millis>) {
    let mut expires = None;
    let counting = held.iter().map(|(bank, held)| {
        if !held.enabled {
            return (bank.clone(), None);
        }
        let (entries, first) = held.counting(now);
        expires = expires.into_iter().chain(first).min();
        (bank.clone(), Some(entries))
    });
    let counting = counting.collect();
    (counting, expires)
}
