//! Result of an adapter before there are rows: source, phase, items and notes.

#![allow(clippy::cast_possible_truncation, reason = "a list of items in memory is shorter than 2^32")]

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    error::{Fault, Wrong},
    form::ELIGIBLE_STATUSES,
    input::{Ended, Role, table::canonical_number},
    timestamp::Moment,
};

/// Prefix of names that are made up for sources without an address.
pub(crate) const URN: &str = "urn:tidegate:source:";

/// Origin of the data.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Source {
    pub(crate) tool: String,
    pub(crate) schema: String,
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) url: String,
}

/// The one phase of the tools that are converted.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) id: &'static str,
    pub(crate) kind: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Id in the source.
    pub(crate) key: String,
    /// Row in the source file.
    pub(crate) row: u64,
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) status: String,
    pub(crate) organizer: bool,
    pub(crate) created: Option<Moment>,
    /// The pseudonym of whoever wrote it; never exported.
    pub(crate) author: Option<u128>,
    /// Outcomes that the source has published for the item.
    pub(crate) outcomes: Vec<Published>,
}

impl Item {
    pub(crate) fn eligible(&self) -> bool {
        ELIGIBLE_STATUSES.contains(&self.status.as_str())
    }
}

/// An outcome as the source published it.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) kind: &'static str,
    pub(crate) rank: Option<u64>,
    pub(crate) score: Option<f64>,
    pub(crate) observations: Option<u64>,
    pub(crate) counts: Map<String, Value>,
    /// Further members.
    pub(crate) more: Map<String, Value>,
}

impl Published {
    pub(crate) fn counts(kind: &'static str, counts: Map<String, Value>) -> Self {
        Self { kind, rank: None, score: None, observations: None, counts, more: Map::new() }
    }
}

/// A file that went into the bundle.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Artifact {
    pub(crate) role: &'static str,
    pub(crate) name: String,
    pub(crate) within: Option<String>,
    /// Known at its end, and not told of what is hidden in a bundle: with it, a guess could be checked.
    pub(crate) ended: Option<Ended>,
    pub(crate) rows: Option<u64>,
}

/// Everything but the rows.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) adapter: String,
    pub(crate) source: Source,
    pub(crate) phase: Phase,
    pub(crate) item_type: &'static str,
    /// Items in the order in which they are written.
    pub(crate) items: Vec<Item>,
    /// Names of the groups that participants were sorted into.
    pub(crate) groups: Vec<String>,
    /// Items are compared in pairs, not answered one by one.
    pub(crate) pairwise: bool,
    /// Rows of the files that were read before those of the answers.
    pub(crate) rows: Vec<(Role, u64)>,
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) notes: Vec<String>,
}

impl Head {
    /// Statements that people answer one by one.
    pub(crate) fn of_statements(adapter: impl Into<String>, source: Source, items: Vec<Item>) -> Self {
        Self {
            adapter: adapter.into(),
            source,
            phase: Phase { id: "phase-opinion", kind: "opinion" },
            item_type: "statement",
            items,
            groups: Vec::new(),
            pairwise: false,
            rows: Vec::new(),
            artifacts: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Options that people choose from two by two.
    pub(crate) fn of_options(adapter: impl Into<String>, source: Source, items: Vec<Item>) -> Self {
        Self {
            phase: Phase { id: "phase-prioritize", kind: "prioritize" },
            item_type: "option",
            pairwise: true,
            ..Self::of_statements(adapter, source, items)
        }
    }
}

/// Items by the keys that rows name them with. Sources number theirs, so that most are found without hashing.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    few: Vec<u32>,
    numbers: BTreeMap<u64, u32>,
    others: BTreeMap<Vec<u8>, u32>,
}

const NONE: u32 = u32::MAX;
/// Keys up to here are found by their place; it is never larger than a few megabytes.
const PLACES: u64 = 1 << 20;

impl Keys {
    /// Brings the items into their final order.
    pub(crate) fn sort(items: &mut [Item], file: &str) -> Result<Self, Fault> {
        items.sort_by(by_key);
        Self::of(items, file)
    }

    /// Indexes items that are in their final order.
    pub(crate) fn of(items: &[Item], file: &str) -> Result<Self, Fault> {
        let mut keys = Self::default();
        for (at, item) in items.iter().enumerate() {
            if !keys.add(item.key.as_bytes(), at as u32) {
                let id: String = item.key.chars().take(40).collect();
                let detail = format!("the item id {id} stands there twice");
                return Err(Fault::content(file, item.row, Wrong::Duplicate, detail));
            }
        }
        Ok(keys)
    }

    /// False if the key is there already.
    fn add(&mut self, key: &[u8], at: u32) -> bool {
        match canonical_number(key) {
            Some(key) if key < PLACES => {
                let place = usize::try_from(key).unwrap_or_default();
                if self.few.len() <= place {
                    self.few.resize(place + 1, NONE);
                }
                std::mem::replace(&mut self.few[place], at) == NONE
            }
            Some(key) => self.numbers.insert(key, at).is_none(),
            None => self.others.insert(key.to_vec(), at).is_none(),
        }
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        match canonical_number(key) {
            Some(key) if key < PLACES => {
                let place = usize::try_from(key).unwrap_or_default();
                self.few.get(place).copied().filter(|at| *at != NONE)
            }
            Some(key) => self.numbers.get(&key).copied(),
            None => self.others.get(key).copied(),
        }
    }
}

/// Numbers by size, then everything else by its bytes.
pub(crate) fn by_key(left: &Item, right: &Item) -> std::cmp::Ordering {
    let place = |item: &Item| {
        (canonical_number(item.key.as_bytes()).is_none(), canonical_number(item.key.as_bytes()))
    };
    place(left).cmp(&place(right)).then_with(|| left.key.cmp(&right.key))
}
