//! Compares fetched media with the hash banks, for the item's row and for its rules. Pure; runs on the compute pool.

use std::collections::HashMap;

use tidegate_media::{
    Fingerprint, State,
    banks::{self, BankMatches, HashBanks},
};
use tidegate_rules::{BankMatch, Media as Known, MediaState};
use tidegate_schemas::{
    hex,
    wire::answers::{Media, MediaMatch},
};

use super::{Inspection, Signal};

/// The media of an item with their bank matches.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// The media in the form of the item's row.
    pub shown: Vec<Media>,
    known: HashMap<String, Known>,
}

impl Judged {
    /// Returns the facts for rules about the medium at an address of the item.
    pub fn known(&self, url: &str) -> Option<&Known> {
        self.known.get(url)
    }
}

/// Compares media with the banks. The item's id decides whether a bank that samples items applies.
pub fn judge(banks: &HashBanks, item: &str, signals: &[Signal]) -> Judged {
    judge_by(signals, |print| banks.find(item, print))
}

/// Compares the media of a past item, whose matches do not count in the statistics of bank entries.
pub(crate) fn judge_again(banks: &HashBanks, item: &str, signals: &[Signal]) -> Judged {
    judge_by(signals, |print| banks.find_past(item, print))
}

fn judge_by(signals: &[Signal], find: impl Fn(&Fingerprint) -> BankMatches) -> Judged {
    let mut judged = Judged::default();
    for Signal { url, inspection } in signals {
        let matches: Vec<BankMatch> = match inspection {
            Inspection::Hashed(print) => find(print).matches.into_iter().map(known_match).collect(),
            Inspection::TooLarge | Inspection::BlockedAddress | Inspection::FetchFailed(_) => Vec::new(),
        };
        let shown = Media { matches: matches.iter().map(shown_match).collect(), ..shown(url, inspection) };
        judged.known.insert(url.clone(), Known { state: state(inspection), matches });
        judged.shown.push(shown);
    }
    judged
}

/// Returns the media in the form of the item's row while some of them are pending.
pub fn pending(inspections: Vec<(String, Option<Inspection>)>) -> Vec<Media> {
    let one = |(url, inspection): (String, Option<Inspection>)| match inspection {
        Some(inspection) => shown(&url, &inspection),
        None => Media { state: "pending".to_owned(), ..blank(url) },
    };
    inspections.into_iter().map(one).collect()
}

fn state(inspection: &Inspection) -> MediaState {
    match inspection {
        Inspection::Hashed(print) => match print.state {
            State::Ok => MediaState::Ok,
            // A picture that is too small says as little as a plain one.
            State::LowQuality | State::TooSmall => MediaState::LowQuality,
            State::TooLarge => MediaState::TooLarge,
            State::Undecodable => MediaState::Undecodable,
        },
        Inspection::TooLarge => MediaState::TooLarge,
        Inspection::BlockedAddress => MediaState::BlockedAddress,
        Inspection::FetchFailed(_) => MediaState::FetchFailed,
    }
}

fn blank(url: String) -> Media {
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

fn shown(url: &str, inspection: &Inspection) -> Media {
    let blank = Media { state: inspection.tag().to_owned(), ..blank(url.to_owned()) };
    match inspection {
        Inspection::Hashed(print) => {
            // An animation is shown by its most telling frame.
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

fn known_match(found: banks::BankMatch) -> BankMatch {
    BankMatch {
        bank: found.bank,
        entry: found.entry.to_string(),
        kind: found.kind.name().to_owned(),
        distance: found.distance,
        labels: found.labels,
    }
}

fn shown_match(found: &BankMatch) -> MediaMatch {
    MediaMatch {
        bank: found.bank.to_string(),
        entry: found.entry.clone(),
        kind: found.kind.clone(),
        distance: found.distance,
        labels: found.labels.clone(),
    }
}
