//! Looks hashes up in the banks of an org.

use std::{collections::BTreeMap, slice};

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use tidegate_media::banks::{Hash, LookupScope, MediaHashes};
use tidegate_schemas::{banks::HashKind, ids::BankId};
use tidegate_web::Problem;
use uuid::Uuid;

use crate::{
    admin::request::{Body, Caller, faults, invalid},
    api::Api,
};

/// Hashes of one medium to look up in the banks, by kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct MatchRequest {
    hashes: BTreeMap<HashKind, HashTexts>,
    /// Restricts the search to these banks; empty: all banks.
    #[serde(default)]
    banks: Vec<BankId>,
    /// Item id, which selects the sampled banks that take part. Left out: all banks take part.
    item_id: Option<String>,
}

/// Hashes of one kind. A video has one for each sampled frame.
#[derive(Deserialize)]
#[serde(untagged)]
enum HashTexts {
    One(String),
    All(Vec<String>),
}

impl HashTexts {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(text) => slice::from_ref(text),
            Self::All(texts) => texts,
        }
    }
}

/// Hashes of one kind in a request.
const MAX_HASHES: usize = 1_000;

/// Cost of one hash look-up in large banks, as the number of JSON bytes with the same parsing time.
const LOOK_UP_BYTES: usize = 2 << 10;

#[derive(Serialize)]
pub(super) struct MatchResponse {
    matches: Vec<BankMatch>,
    truncated: bool,
    suppressed: Vec<BankId>,
}

#[derive(Serialize)]
struct BankMatch {
    bank: BankId,
    entry: Uuid,
    kind: HashKind,
    distance: u32,
    labels: Vec<String>,
}

/// Looks hashes up in the banks that this process has loaded.
pub(super) async fn match_hashes(
    State(api): State<Api>,
    caller: Caller,
    Body(request): Body<MatchRequest>,
) -> Result<Json<MatchResponse>, Problem> {
    let live = &api.deps.moderation.live;
    let config = live.load_latest(&caller.org).await.map_err(faults::catalog_problem)?;
    let banks = config.hash_banks();
    if let Some(unknown) = request.banks.iter().find(|id| !banks.banks().iter().any(|bank| bank.id == **id)) {
        // Without this check, a misspelled bank would look like a bank without matches.
        return Err(Problem::not_found(format!("There is no bank of hashes `{unknown}`.")));
    }
    let mut hashes = Vec::new();
    for (kind, texts) in &request.hashes {
        let (texts, pointer) = (texts.as_slice(), format!("/hashes/{}", kind.name()));
        // Only PDQ is computed for each frame; the other kinds have one hash a medium.
        let max_hashes = if *kind == HashKind::Pdq { MAX_HASHES } else { 1 };
        if texts.len() > max_hashes {
            return Err(invalid(&pointer, format!("A medium has at most {max_hashes} of them.")));
        }
        for text in texts {
            let text = kind
                .canonical(text.trim())
                .map_err(|reason| invalid(&pointer, format!("Invalid hash: {reason}.")))?;
            // Parsed in the canonical form, so that equal hashes have one form.
            hashes.extend(Hash::parse(*kind, &text));
        }
    }
    let bytes = hashes.len() * LOOK_UP_BYTES;
    // Distance search in large banks takes long, so it runs in the org's turn on a thread that serves no requests.
    let look_up = move || {
        let scope = LookupScope { item: request.item_id.as_deref(), banks: &request.banks };
        banks.inspect(&scope, &MediaHashes::from_hashes(&hashes))
    };
    let result =
        api.deps.changes.work().run(&caller.org, bytes, look_up).await.map_err(faults::catalog_problem)?;
    let matches = result.matches.into_iter().map(|hit| BankMatch {
        bank: hit.bank,
        entry: hit.entry,
        kind: hit.kind,
        distance: hit.distance,
        labels: hit.labels,
    });
    Ok(Json(MatchResponse {
        matches: matches.collect(),
        truncated: result.truncated,
        suppressed: result.suppressed,
    }))
}
