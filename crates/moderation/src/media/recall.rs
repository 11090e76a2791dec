//! Restores the fetch results of a stored item's media without fetching them again: from the item's row and the stored
//! fingerprints. `bank_matching` compares them with the present banks.

use std::sync::Arc;

use tidegate_media::{Digests, Fingerprint, Frame, PdqHash, State, banks::Hash, fingerprint::Reason};
use tidegate_schemas::{banks::HashKind, wire::answers::Media};
use tidegate_store::Store;

use super::{Inspection, Signal, fingerprint_cache};
use crate::Error;

/// Returns the results that an item's row shows, without those that were pending when it was written.
pub async fn recall(store: &Store, shown: &str) -> Result<Vec<Signal>, Error> {
    let shown: Vec<Media> = serde_json::from_str(shown).map_err(Error::corrupt("media"))?;
    let mut signals = Vec::with_capacity(shown.len());
    for medium in shown {
        if let Some(inspection) = inspection_of(store, &medium).await? {
            signals.push(Signal { url: medium.url, inspection });
        }
    }
    Ok(signals)
}

async fn inspection_of(store: &Store, medium: &Media) -> Result<Option<Inspection>, Error> {
    Ok(match medium.state.as_str() {
        "blocked_address" => Some(Inspection::BlockedAddress),
        "fetch_failed" => {
            let why = medium.reason.clone().unwrap_or_default();
            Some(Inspection::FetchFailed(why.into()))
        }
        // A medium that was too large to fetch has no digests; one that was too large to decode has.
        "too_large" if medium.sha256.is_none() => Some(Inspection::TooLarge),
        state => match (state.parse::<State>().ok(), digests(medium)) {
            (Some(state), Some(digests)) => {
                Some(Inspection::Hashed(seen(store, medium, state, digests).await?))
            }
            _ => None,
        },
    })
}

async fn seen(
    store: &Store,
    medium: &Media,
    state: State,
    digests: Digests,
) -> Result<Arc<Fingerprint>, Error> {
    if let Some(kept) = fingerprint_cache::stored(store, &digests).await? {
        return Ok(Arc::new(kept));
    }
    // The row shows less than the fingerprint had: one of several frames, and no Gradient.
    let pdq = medium.pdq.as_deref().and_then(|text| Hash::parse(HashKind::Pdq, text));
    let pdq = pdq.and_then(|hash| hash.bytes().try_into().ok()).map(PdqHash);
    let frame =
        pdq.map(|pdq| Frame { at: 0, pdq, quality: medium.quality.unwrap_or_default(), turned: Vec::new() });
    let frames = frame.into_iter().collect();
    let why = medium.reason.as_deref().and_then(|text| text.parse::<Reason>().ok());
    Ok(Arc::new(Fingerprint { frames, ..Fingerprint::unhashed(state, why, digests) }))
}

fn digests(medium: &Media) -> Option<Digests> {
    fn bytes<const N: usize>(kind: HashKind, text: Option<&String>) -> Option<[u8; N]> {
        Hash::parse(kind, text?)?.bytes().try_into().ok()
    }
    Some(Digests {
        md5: bytes(HashKind::Md5, medium.md5.as_ref())?,
        sha1: bytes(HashKind::Sha1, medium.sha1.as_ref())?,
        sha256: bytes(HashKind::Sha256, medium.sha256.as_ref())?,
    })
}
