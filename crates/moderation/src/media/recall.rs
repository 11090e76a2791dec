//! Restores fetch results of stored media from the item's row and the stored fingerprints, without fetching.
//! `bank_matching` compares them with the present banks.

use std::sync::Arc;

use tidegate_image_decode::Reason;
use tidegate_media::{Digests, Fingerprint, Frame, PdqHash, State, banks::Hash};
use tidegate_schemas::{banks::HashKind, wire::answers::Media};
use tidegate_store::Store;

use super::{InspectedMedium, Inspection, fingerprint_cache};
use crate::Error;

/// Returns the results in an item's row. Media that were pending when the row was written are omitted.
pub async fn recall(store: &Store, row_media: &str) -> Result<Vec<InspectedMedium>, Error> {
    let media: Vec<Media> = serde_json::from_str(row_media).map_err(Error::corrupt("media"))?;
    let mut signals = Vec::with_capacity(media.len());
    for medium in media {
        if let Some(inspection) = restore_inspection(store, &medium).await? {
            signals.push(InspectedMedium { url: medium.url, inspection });
        }
    }
    Ok(signals)
}

async fn restore_inspection(store: &Store, medium: &Media) -> Result<Option<Inspection>, Error> {
    Ok(match medium.state.as_str() {
        "blocked_address" => Some(Inspection::BlockedAddress),
        "fetch_failed" => {
            let reason = medium.reason.clone().unwrap_or_default();
            Some(Inspection::FetchFailed(reason.into()))
        }
        // Without digests the body was too large to fetch; with digests it was only too large to decode.
        "too_large" if medium.sha256.is_none() => Some(Inspection::TooLarge),
        state => match (state.parse::<State>().ok(), parse_digests(medium)) {
            (Some(state), Some(digests)) => {
                Some(Inspection::Hashed(load_fingerprint(store, medium, state, digests).await?))
            }
            _ => None,
        },
    })
}

async fn load_fingerprint(
    store: &Store,
    medium: &Media,
    state: State,
    digests: Digests,
) -> Result<Arc<Fingerprint>, Error> {
    if let Some(print) = fingerprint_cache::load_print(store, &digests).await? {
        return Ok(Arc::new(print));
    }
    // The row holds less than the fingerprint did: one of several frames, and no Gradient.
    let pdq = medium.pdq.as_deref().and_then(|text| Hash::parse(HashKind::Pdq, text));
    let pdq = pdq.and_then(|hash| hash.bytes().try_into().ok()).map(PdqHash);
    let frame =
        pdq.map(|pdq| Frame { at: 0, pdq, quality: medium.quality.unwrap_or_default(), turned: Vec::new() });
    let frames = frame.into_iter().collect();
    let reason = medium.reason.as_deref().and_then(|text| text.parse::<Reason>().ok());
    Ok(Arc::new(Fingerprint { frames, ..Fingerprint::unhashed(state, reason, digests) }))
}

fn parse_digests(medium: &Media) -> Option<Digests> {
    fn bytes<const N: usize>(kind: HashKind, text: Option<&String>) -> Option<[u8; N]> {
        Hash::parse(kind, text?)?.bytes().try_into().ok()
    }
    Some(Digests {
        md5: bytes(HashKind::Md5, medium.md5.as_ref())?,
        sha1: bytes(HashKind::Sha1, medium.sha1.as_ref())?,
        sha256: bytes(HashKind::Sha256, medium.sha256.as_ref())?,
    })
}
