//! Entries of an organisation's list banks, which rules hold in full.
//!
//! Banks of hashes are not in the plan; see `hashes`.

use std::{collections::HashMap, sync::Arc};

use tidegate_schemas::ids::{BankId, Millis, OrgId};
use tidegate_store::Store;

use super::ledger::{self, Held};
use crate::{
    Error,
    compile::{BankEntries, Labelled},
    content::Content,
};

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
        let known = held.get(bank);
        let newer = ledger::catch_up(store, org, bank, known.map(|held| &**held)).await?;
        let kept = known.filter(|known| known.revision == newer.revision).cloned();
        all.insert(bank.clone(), kept.unwrap_or_else(|| Arc::new(newer)));
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
        let entries = held.entries.values().filter(|entry| entry.counts(now));
        let entries: Vec<_> = entries
            .map(|entry| {
                let sooner = |end: Millis| expires.is_none_or(|first| end < first);
                if let Some(end) = entry.expires_at.filter(|end| sooner(*end)) {
                    expires = Some(end);
                }
                let labels = entry.labels.clone().into();
                (entry.id, Labelled { value: entry.value.clone(), labels })
            })
            .collect();
        (bank.clone(), Some(entries))
    });
    let counting = counting.collect();
    (counting, expires)
}
