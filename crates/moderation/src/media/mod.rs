//! Media of items: fetches and hashes them, and matches the hashes against the banks. Rules then read the results.

mod background_fetches;
mod bank_matching;
mod body;
mod fetch;
mod fetch_scheduler;
mod fingerprint_cache;
mod lru;
mod recall;
mod settings;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use async_recursion::async_recursion as boxed;
use futures::future::join_all;
use tidegate_egress::{Client, target::Target};
use tidegate_media::{Decoders, Fingerprint};
use tidegate_schemas::{
    ids::OrgId,
    item_types::{Scalar, Values},
};
use tidegate_store::Store;

pub(crate) use self::bank_matching::match_past_media;
use self::{
    background_fetches::BackgroundFetches,
    fetch::{Fetcher, InspectionFlight},
};
pub use self::{
    bank_matching::{MatchedMedia, match_media, pending_rows},
    recall::recall,
    settings::{Settings, SettingsError},
};

/// Kinds of hashes that a medium needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashDepth {
    /// Digests of the bytes only.
    Exact,
    /// Digests and perceptual hashes.
    Picture,
}

/// Medium named by an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediumRequest {
    pub url: String,
    pub depth: HashDepth,
}

/// Result of fetching and hashing a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspection {
    Hashed(Arc<Fingerprint>),
    TooLarge,
    BlockedAddress,
    /// Reason in the form of the item's row.
    FetchFailed(Cow<'static, str>),
}

impl Inspection {
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::Hashed(print) => print.state.as_str(),
            Self::TooLarge => "too_large",
            Self::BlockedAddress => "blocked_address",
            Self::FetchFailed(_) => "fetch_failed",
        }
    }
}

/// Medium with the result of its fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedMedium {
    pub url: String,
    pub inspection: Inspection,
}

/// Fetches and hashes media. Shared by the whole process, so that its limits hold for all items; cheap to clone.
#[derive(Clone)]
pub struct MediaInspector {
    fetcher: Fetcher,
    per_item: usize,
    background: BackgroundFetches,
}

/// Lists the media of an item in the order of its fields, each URL once.
pub fn list_media(values: &Values) -> Vec<MediumRequest> {
    let media = values.media().into_iter();
    merge_by_url(media.map(|medium| MediumRequest {
        url: medium.url.to_owned(),
        depth: match medium.scalar {
            // Sound and moving pictures are not decoded, so only their bytes are compared.
            Scalar::Audio | Scalar::Video => HashDepth::Exact,
            _ => HashDepth::Picture,
        },
    }))
}

/// Merges entries with the same URL: the first position and the deepest hashing are kept.
pub(crate) fn merge_by_url(media: impl IntoIterator<Item = MediumRequest>) -> Vec<MediumRequest> {
    let mut positions = HashMap::new();
    let mut merged: Vec<MediumRequest> = Vec::new();
    for medium in media {
        match positions.entry(medium.url.clone()) {
            Entry::Vacant(position) => {
                position.insert(merged.len());
                merged.push(medium);
            }
            Entry::Occupied(position) => {
                let first = &mut merged[*position.get()];
                first.depth = first.depth.max(medium.depth);
            }
        }
    }
    merged
}

impl MediaInspector {
    pub fn new(client: Client, decoders: Decoders, store: Store, settings: &Settings) -> Self {
        Self {
            fetcher: Fetcher::new(client, decoders, store, settings),
            per_item: settings.per_item,
            background: BackgroundFetches::new(settings.left_running),
        }
    }

    /// True if the host has delivered a medium to the org and has not rested since.
    pub fn is_known(&self, org: &OrgId, host: &Arc<str>) -> bool {
        self.fetcher.is_known(org, host)
    }

    /// Prepares fetches of media for an org. They start when the result is polled. Dropping it ends the fetches that
    /// no other item waits for.
    pub fn gather(&self, org: &OrgId, media: &[MediumRequest]) -> MediaFetches {
        let fetches = media.iter().enumerate().map(|(nth, medium)| MediumFetch {
            url: medium.url.clone(),
            state: if nth < self.per_item {
                FetchProgress::UnderWay(self.fetcher.inspect(org, &medium.url, medium.depth))
            } else {
                // Bounds the work for one item.
                FetchProgress::Ended(Inspection::too_many())
            },
        });
        MediaFetches { fetches: fetches.collect(), org: org.clone(), background: self.background.clone() }
    }
}

/// Fetches of one item's media.
pub struct MediaFetches {
    fetches: Vec<MediumFetch>,
    org: OrgId,
    background: BackgroundFetches,
}

struct MediumFetch {
    url: String,
    state: FetchProgress,
}

enum FetchProgress {
    UnderWay(InspectionFlight),
    Ended(Inspection),
}

impl MediaFetches {
    /// Completes when every fetch has ended. Can be dropped and called again.
    #[boxed]
    pub async fn settle(&mut self) {
        join_all(self.fetches.iter_mut().map(async |fetch| {
            if let FetchProgress::UnderWay(flight) = &fetch.state {
                let inspection = flight.clone().await;
                fetch.state = FetchProgress::Ended(inspection);
            }
        }))
        .await;
    }

    /// Lists the distinct hosts with unfinished fetches.
    pub fn awaited_hosts(&self) -> Vec<Arc<str>> {
        let awaited = self.fetches.iter().filter(|fetch| matches!(fetch.state, FetchProgress::UnderWay(_)));
        let targets = awaited.filter_map(|fetch| Target::parse(&fetch.url).ok());
        let hosts: BTreeSet<Arc<str>> = targets.map(|target| target.host().into()).collect();
        hosts.into_iter().collect()
    }

    /// Returns the results. Unfinished fetches count as failed with reason `deadline`.
    pub fn end(self) -> Vec<InspectedMedium> {
        let result_of = |fetch: MediumFetch| InspectedMedium {
            url: fetch.url,
            inspection: match fetch.state {
                FetchProgress::Ended(inspection) => inspection,
                FetchProgress::UnderWay(_) => Inspection::deadline_exceeded(),
            },
        };
        self.fetches.into_iter().map(result_of).collect()
    }

    /// Returns the results so far. Unfinished fetches continue in the background for at most `longest`, because the
    /// item soon asks for them again. Fetches beyond the limit are dropped and restarted at that time.
    pub fn leave_running(self, longest: Duration) -> Vec<(String, Option<Inspection>)> {
        let result_so_far = |fetch: MediumFetch| match fetch.state {
            FetchProgress::Ended(inspection) => (fetch.url, Some(inspection)),
            FetchProgress::UnderWay(flight) => {
                self.background.spawn(&self.org, flight, longest);
                (fetch.url, None)
            }
        };
        self.fetches.into_iter().map(result_so_far).collect()
    }
}
