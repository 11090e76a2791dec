//! What is known of the media that an item names: each is fetched and hashed.
//!
//! It decides nothing about the item; rules do, by what is found here.

mod background_fetches;
mod bank_matching;
mod body;
mod body_memory;
mod fetch;
mod fetch_scheduler;
mod fingerprint_cache;
mod host_breaker;
mod lru;
mod recall;
mod retry;
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
    background_fetches::Left,
    fetch::{Fetcher, Flight},
};
pub use self::{
    bank_matching::{Judged, judge, pending},
    fetch_scheduler::{Shares, Taken},
    recall::recall,
    settings::{Settings, SettingsError},
};

/// How much is wanted of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Depth {
    /// Digests of its bytes.
    Exact,
    /// The hashes of its picture as well.
    Picture,
}

/// A medium that an item names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub url: String,
    pub depth: Depth,
}

/// How a look at a medium ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    Seen(Arc<Fingerprint>),
    TooLarge,
    BlockedAddress,
    /// Why, as the item shows it.
    FetchFailed(Cow<'static, str>),
}

impl Look {
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::Seen(print) => print.state.tag(),
            Self::TooLarge => "too_large",
            Self::BlockedAddress => "blocked_address",
            Self::FetchFailed(_) => "fetch_failed",
        }
    }
}

/// A medium that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    pub url: String,
    pub look: Look,
}

/// Where media are looked at; cheap to clone, and one a process, so that its bounds hold for all of it.
#[derive(Clone)]
pub struct Signals {
    fetcher: Fetcher,
    per_item: usize,
    left: Left,
}

/// The media of an item in the order of its fields, each address once.
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

/// Each address once, where it comes first, and as deep as it is wanted anywhere.
pub(crate) fn each_once(all: impl IntoIterator<Item = Wanted>) -> Vec<Wanted> {
    let mut places = HashMap::new();
    let mut once: Vec<Wanted> = Vec::new();
    for wanted in all {
        match places.entry(wanted.url.clone()) {
            Entry::Vacant(place) => {
                place.insert(once.len());
                once.push(wanted);
            }
            Entry::Occupied(place) => {
                let first = &mut once[*place.get()];
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
            left: Left::new(settings.left_running),
        }
    }

    /// Whether the host gave the org a medium and has not rested since.
    pub fn is_known(&self, org: &OrgId, host: &Arc<str>) -> bool {
        self.fetcher.is_known(org, host)
    }

    /// Looks at media for an org; nothing happens before it is waited for, and dropping it ends what nobody else
    /// waits for.
    pub fn gather(&self, org: &OrgId, wanted: &[Wanted]) -> Search {
        let sought = wanted.iter().enumerate().map(|(nth, wanted)| Sought {
            url: wanted.url.clone(),
            state: if nth < self.per_item {
                Progress::UnderWay(self.fetcher.look(org, &wanted.url, wanted.depth))
            } else {
                Progress::Ended(Look::too_many())
            },
        });
        Search { sought: sought.collect(), org: org.clone(), left: self.left.clone() }
    }
}

/// Media that are being looked at.
pub struct Search {
    sought: Vec<Sought>,
    org: OrgId,
    left: Left,
}

struct Sought {
    url: String,
    state: Progress,
}

enum Progress {
    UnderWay(Flight),
    Ended(Look),
}

impl Search {
    /// Done when each has ended. May be dropped and called again.
    pub async fn settle(&mut self) {
        join_all(self.sought.iter_mut().map(async |sought| {
            if let Progress::UnderWay(flight) = &sought.state {
                let look = flight.clone().await;
                sought.state = Progress::Ended(look);
            }
        }))
        .await;
    }

    /// The hosts, each once, that something is still to be seen of.
    pub fn awaited_hosts(&self) -> Vec<Arc<str>> {
        let awaited = self.sought.iter().filter(|sought| matches!(sought.state, Progress::UnderWay(_)));
        let targets = awaited.filter_map(|sought| Target::parse(&sought.url).ok());
        let hosts: BTreeSet<Arc<str>> = targets.map(|target| target.host().into()).collect();
        hosts.into_iter().collect()
    }

    /// What was found; what has not ended failed for want of time.
    pub fn end(self) -> Vec<Signal> {
        let ended = |sought: Sought| Signal {
            url: sought.url,
            look: match sought.state {
                Progress::Ended(look) => look,
                Progress::UnderWay(_) => Look::given_up(),
            },
        };
        self.sought.into_iter().map(ended).collect()
    }

    /// What was found so far; what has not ended goes on for a while although nobody waits for it: somebody will ask for
    /// it soon. Where too much does, it begins anew then.
    pub fn leave_running(self, longest: Duration) -> Vec<(String, Option<Look>)> {
        let found = |sought: Sought| match sought.state {
            Progress::Ended(look) => (sought.url, Some(look)),
            Progress::UnderWay(flight) => {
                self.left.leave(&self.org, flight, longest);
                (sought.url, None)
            }
        };
        self.sought.into_iter().map(found).collect()
    }
}
