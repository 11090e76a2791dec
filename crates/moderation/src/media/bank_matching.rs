//! Matches fetched media against the hash banks, for the item's row and for rules. Pure; runs on the compute pool.

use std::collections::HashMap;

use tidegate_media::{
    Fingerprint, State,
    banks::{self, BankMatches, HashBanks},
};
use tidegate_rules::{BankMatch, Media as MediaFacts, MediaState};
use tidegate_schemas::{
    hex,
    wire::answers::{Media, MediaMatch},
};

use super::{InspectedMedium, Inspection};

/// Media of an item with their bank matches.
#[derive(Clone, Debug, Default)]
pub struct MatchedMedia {
    /// Media in the form of the item's row.
    pub rows: Vec<Media>,
    facts: HashMap<String, MediaFacts>,
}

impl MatchedMedia {
    /// Returns the facts for rules about the medium at a URL of the item.
    pub fn facts_for(&self, url: &str) -> Option<&MediaFacts> {
        self.facts.get(url)
    }
}

/// Matches media against the banks. The item's id decides whether a bank that samples items applies.
pub fn match_media(banks: &HashBanks, item: &str, signals: &[InspectedMedium]) -> MatchedMedia {
    match_with(signals, |print| banks.find(item, print))
}

/// Matches the media of a past item without counting in the statistics of bank entries.
pub(crate) fn match_past_media(banks: &HashBanks, item: &str, signals: &[InspectedMedium]) -> MatchedMedia {
    match_with(signals, |print| banks.find_past(item, print))
}

fn match_with(signals: &[InspectedMedium], find: impl Fn(&Fingerprint) -> BankMatches) -> MatchedMedia {
    let mut media = MatchedMedia::default();
    for InspectedMedium { url, inspection } in signals {
        let matches: Vec<BankMatch> = match inspection {
            Inspection::Hashed(print) => find(print).matches.into_iter().map(rule_match).collect(),
            Inspection::TooLarge | Inspection::BlockedAddress | Inspection::FetchFailed(_) => Vec::new(),
        };
        let row = Media { matches: matches.iter().map(row_match).collect(), ..medium_row(url, inspection) };
        media.facts.insert(url.clone(), MediaFacts { state: state(inspection), matches });
        media.rows.push(row);
    }
    media
}

/// Returns the rows of media while some of them are pending.
pub fn pending_rows(inspections: Vec<(String, Option<Inspection>)>) -> Vec<Media> {
    let row_of = |(url, inspection): (String, Option<Inspection>)| match inspection {
        Some(inspection) => medium_row(&url, &inspection),
        None => Media { state: "pending".to_owned(), ..empty_row(url) },
    };
    inspections.into_iter().map(row_of).collect()
}

fn state(inspection: &Inspection) -> MediaState {
    match inspection {
        Inspection::Hashed(print) => match print.state {
            State::Ok => MediaState::Ok,
            // A picture that is too small is as unreliable as a plain one.
            State::LowQuality | State::TooSmall => MediaState::LowQuality,
            State::TooLarge => MediaState::TooLarge,
            State::Undecodable => MediaState::Undecodable,
        },
        Inspection::TooLarge => MediaState::TooLarge,
        Inspection::BlockedAddress => MediaState::BlockedAddress,
        Inspection::FetchFailed(_) => MediaState::FetchFailed,
    }
}

fn empty_row(url: String) -> Media {
    Media {
        url,
        state: String::new(),
        reason: None,
        pdq: None,
        quality: None,
        md5: None,
        sha1: None,
        sha256: None,
        matches: Vec::new(),
    }
}

fn medium_row(url: &str, inspection: &Inspection) -> Media {
    let blank = Media { state: inspection.tag().to_owned(), ..empty_row(url.to_owned()) };
    match inspection {
        Inspection::Hashed(print) => {
            // The row has room for one hash: that of the animation's best frame.
            let frame = print.frames.iter().max_by_key(|frame| frame.quality);
            Media {
                reason: print.reason.map(|reason| reason.as_str().to_owned()),
                pdq: frame.map(|frame| frame.pdq.to_string()),
                quality: frame.map(|frame| frame.quality),
                md5: Some(hex(&print.digests.md5)),
                sha1: Some(hex(&print.digests.sha1)),
                sha256: Some(hex(&print.digests.sha256)),
                ..blank
            }
        }
        Inspection::FetchFailed(reason) => Media { reason: Some(reason.clone().into_owned()), ..blank },
        Inspection::TooLarge | Inspection::BlockedAddress => blank,
    }
}

fn rule_match(bank_match: banks::BankMatch) -> BankMatch {
    BankMatch {
        bank: bank_match.bank,
        entry: bank_match.entry.to_string(),
        kind: bank_match.kind.name().to_owned(),
        distance: bank_match.distance,
        labels: bank_match.labels,
    }
}

fn row_match(rule_match: &BankMatch) -> MediaMatch {
    MediaMatch {
        bank: rule_match.bank.to_string(),
        entry: rule_match.entry.clone(),
        kind: rule_match.kind.clone(),
        distance: rule_match.distance,
        labels: rule_match.labels.clone(),
    }
}
