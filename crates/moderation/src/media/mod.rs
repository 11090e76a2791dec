//! Media of items: fetches and hashes them, and compares the hashes with the banks. Rules then read the results.

mod background_fetches;
mod bank_matching;
mod body;
mod body_memory;
pub(crate) mod fetch;
mod fetch_scheduler;
mod fingerprint_cache;
pub(crate) mod host_breaker;
mod lru;
mod recall;
pub(crate) mod retry;
mod settings;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use tidegate_egress::{Client, target::Target};
use tidegate_media::{Decoders, Fingerprint};
use tidegate_schemas::{
    ids::OrgId,
    item_types::{Scalar, Values},
};
use tidegate_store::Store;

pub(crate) use self::bank_matching::judge_again;
use self::{
    background_fetches::BackgroundFetches,
    fetch::{Fetcher, InspectionFlight},
};
pub use self::{
    bank_matching::{Judged, judge, pending},
    recall::recall,
    settings::{Settings, SettingsError},
};

/// Kinds of hashes that are wanted of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Depth {
    /// Digests of its bytes only.
    Exact,
    /// Also the perceptual hashes of its picture.
    Picture,
}

/// A medium that an item names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub url: String,
    pub depth: Depth,
}

/// Result of fetching and hashing a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspection {
    Hashed(Arc<Fingerprint>),
    TooLarge,
    BlockedAddress,
    /// The reason, as the item shows it.
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

/// A medium and the result of its fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    pub url: String,
    pub inspection: Inspection,
}

/// Fetches and hashes media. One per process, so that its limits hold for all of it; cheap to clone.
#[derive(Clone)]
pub struct Signals {
    fetcher: Fetcher,
    per_item: usize,
    background: BackgroundFetches,
}

/// Returns the media of an item in the order of its fields, each address once.
pub fn wanted(values: &Values) -> Vec<Wanted> {
    let media = values.media().into_iter();
    each_once(media.map(|medium| Wanted {
        url: medium.url.to_owned(),
        depth: match medium.scalar {
            Scalar::Audio | Scalar::Video => Depth::Exact,
            _ => Depth::Picture,
        },
    }))
}

/// Keeps each address once, at its first position and with the deepest hashing that any entry wants.
pub(crate) fn each_once(all: impl IntoIterator<Item = Wanted>) -> Vec<Wanted> {
    let mut positions = HashMap::new();
    let mut once: Vec<Wanted> = Vec::new();
    for wanted in all {
        match positions.entry(wanted.url.clone()) {
            Entry::Vacant(position) => {
                position.insert(once.len());
                once.push(wanted);
            }
            Entry::Occupied(position) => {
                let first = &mut once[*position.get()];
                first.depth = first.depth.max(wanted.depth);
            }
        }
    }
    once
}

impl Signals {
    pub fn new(client: Client, decoders: Decoders, store: Store, settings: &Settings) -> Self {
        Self {
            fetcher: Fetcher::new(client, decoders, store, settings),
            per_item: settings.per_item,
            background: BackgroundFetches::new(settings.left_running),
        }
    }

    /// True if the host gave the org a medium and has not rested since.
    pub fn is_known(&self, org: &OrgId, host: &Arc<str>) -> bool {
        self.fetcher.is_known(org, host)
    }

    /// Starts to fetch media for an org. Nothing runs before the search is polled, and dropping it ends the fetches that
    /// nobody else waits for.
    pub fn gather(&self, org: &OrgId, wanted: &[Wanted]) -> Search {
        let sought = wanted.iter().enumerate().map(|(nth, wanted)| Sought {
            url: wanted.url.clone(),
            state: if nth < self.per_item {
                Progress::UnderWay(self.fetcher.inspect(org, &wanted.url, wanted.depth))
            } else {
                Progress::Ended(Inspection::too_many())
            },
        });
        Search { sought: sought.collect(), org: org.clone(), background: self.background.clone() }
    }
}

/// Media that are being fetched.
pub struct Search {
    sought: Vec<Sought>,
    org: OrgId,
    background: BackgroundFetches,
}

struct Sought {
    url: String,
    state: Progress,
}

enum Progress {
    UnderWay(InspectionFlight),
    Ended(Inspection),
}

impl Search {
    /// Completes when every fetch has ended. May be dropped and called again.
    pub async fn settle(&mut self) {
        join_all(self.sought.iter_mut().map(async |sought| {
            if let Progress::UnderWay(flight) = &sought.state {
                let inspection = flight.clone().await;
                sought.state = Progress::Ended(inspection);
            }
        }))
        .await;
    }

    /// Returns the hosts, each once, whose media are still being fetched.
    pub fn awaited_hosts(&self) -> Vec<Arc<str>> {
        let awaited = self.sought.iter().filter(|sought| matches!(sought.state, Progress::UnderWay(_)));
        let targets = awaited.filter_map(|sought| Target::parse(&sought.url).ok());
        let hosts: BTreeSet<Arc<str>> = targets.map(|target| target.host().into()).collect();
        hosts.into_iter().collect()
    }

    /// Returns the results. Fetches that have not ended count as failed for want of time.
    pub fn end(self) -> Vec<Signal> {
        let ended = |sought: Sought| Signal {
            url: sought.url,
            inspection: match sought.state {
                Progress::Ended(inspection) => inspection,
                Progress::UnderWay(_) => Inspection::given_up(),
            },
        };
        self.sought.into_iter().map(ended).collect()
    }

    /// Returns the results so far. The other fetches continue in the background for at most `longest`, because the item
    /// asks for them again soon; those beyond the limit are dropped and start anew then.
    pub fn leave_running(self, longest: Duration) -> Vec<(String, Option<Inspection>)> {
        let found = |sought: Sought| match sought.state {
            Progress::Ended(inspection) => (sought.url, Some(inspection)),
            Progress::UnderWay(flight) => {
                self.background.spawn(&self.org, flight, longest);
                (sought.url, None)
            }
        };
        self.sought.into_iter().map(found).collect()
    }
}
