//! Output of an adapter apart from the rows: source, phase, items and notes.

#![allow(clippy::cast_possible_truncation, reason = "a list of items in memory is shorter than 2^32")]

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::{Map, Value};

use crate::{
    error::{ConvertError, ErrorKind},
    form::{Answer, ELIGIBLE_STATUSES, ORIGIN_MODEL, ORIGIN_ORGANIZER, ORIGIN_PARTICIPANT},
    input::{FileDigest, Role, table::canonical_number},
    timestamp::Timestamp,
};

/// Prefix of generated names for sources without a URL.
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

/// Phase of a conversion. Tools have exactly one, the service's own moderation has several.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) id: &'static str,
    pub(crate) kind: &'static str,
    /// Title; `None` for the title of the source.
    pub(crate) title: Option<&'static str>,
    /// Type of the items of this phase.
    pub(crate) item_type: &'static str,
    /// Answers that are possible in this phase, if items are answered one by one.
    pub(crate) answers: &'static [Answer],
}

/// Answers to a single item.
pub(crate) const SINGLE: &[Answer] = &[Answer::Agree, Answer::Disagree, Answer::Pass];

/// Author of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Participant,
    Organizer,
    /// Rule or other program.
    Model,
}

impl Origin {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Participant => ORIGIN_PARTICIPANT,
            Self::Organizer => ORIGIN_ORGANIZER,
            Self::Model => ORIGIN_MODEL,
        }
    }

    pub(crate) fn organizer_if(is_organizer: bool) -> Self {
        if is_organizer { Self::Organizer } else { Self::Participant }
    }
}

/// Item in a phase, as the subject of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    /// Index of the phase.
    pub(crate) phase: u16,
    /// Index of the item.
    pub(crate) item: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Id in the source file.
    pub(crate) key: String,
    /// Row in the source file.
    pub(crate) row: u64,
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) status: String,
    pub(crate) origin: Origin,
    /// Index of the item's phase.
    pub(crate) phase: u16,
    pub(crate) created: Option<Timestamp>,
    /// Pseudonym of the author; never exported.
    pub(crate) author: Option<u128>,
    /// Outcomes published by the source for this item.
    pub(crate) outcomes: Vec<PublishedOutcome>,
}

impl Item {
    pub(crate) fn is_eligible(&self) -> bool {
        ELIGIBLE_STATUSES.contains(&self.status.as_str())
    }
}

/// Outcome published by the source.
#[derive(Clone, Debug)]
pub(crate) struct PublishedOutcome {
    pub(crate) kind: &'static str,
    /// Index of the outcome's phase.
    pub(crate) phase: u16,
    /// Distinguishes outcomes of one kind for one item.
    pub(crate) number: Option<String>,
    /// True if the outcome has no data of people, so that public bundles contain it.
    pub(crate) is_public: bool,
    pub(crate) rank: Option<u64>,
    pub(crate) score: Option<f64>,
    pub(crate) observations: Option<u64>,
    pub(crate) counts: Map<String, Value>,
    /// Additional members of the outcome object.
    pub(crate) other_members: Map<String, Value>,
}

impl PublishedOutcome {
    pub(crate) fn counts(kind: &'static str, counts: Map<String, Value>) -> Self {
        Self {
            kind,
            phase: 0,
            number: None,
            is_public: false,
            rank: None,
            score: None,
            observations: None,
            counts,
            other_members: Map::new(),
        }
    }
}

/// Input file listed in the bundle's provenance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Artifact {
    pub(crate) role: &'static str,
    pub(crate) name: String,
    pub(crate) archive_name: Option<String>,
    /// Size and digest, available once the file is read. `None` in public bundles: a digest lets a reader test
    /// guesses about hidden values.
    pub(crate) file_digest: Option<FileDigest>,
    pub(crate) rows: Option<u64>,
}

/// Content of a bundle except responses and outcomes.
#[derive(Clone, Debug)]
pub(crate) struct BundleHeader {
    pub(crate) adapter: String,
    pub(crate) source: Source,
    pub(crate) phases: Vec<Phase>,
    /// Items in output order.
    pub(crate) items: Vec<Item>,
    /// Questions in output order, which rows refer to as subjects; `None` if each item is one question in the only
    /// phase.
    pub(crate) questions: Option<Vec<Question>>,
    /// True if bundles of overlapping periods are made from one source. Public counts are lowered to multiples of k
    /// then, so that two bundles cannot be subtracted from each other.
    pub(crate) is_recurring: bool,
    /// Names of the participant groups.
    pub(crate) groups: Vec<String>,
    /// True if items are compared in pairs instead of answered one by one.
    pub(crate) pairwise: bool,
    /// Row counts of the files read before the response file.
    pub(crate) rows: Vec<(Role, u64)>,
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) notes: Vec<String>,
}

impl BundleHeader {
    /// Header for statements that are answered one by one.
    pub(crate) fn of_statements(adapter: impl Into<String>, source: Source, items: Vec<Item>) -> Self {
        Self {
            adapter: adapter.into(),
            source,
            phases: vec![Phase {
                id: "phase-opinion",
                kind: "opinion",
                title: None,
                item_type: "statement",
                answers: SINGLE,
            }],
            items,
            questions: None,
            is_recurring: false,
            groups: Vec::new(),
            pairwise: false,
            rows: Vec::new(),
            artifacts: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Header for options that are compared in pairs.
    pub(crate) fn of_options(adapter: impl Into<String>, source: Source, items: Vec<Item>) -> Self {
        Self {
            phases: vec![Phase {
                id: "phase-prioritize",
                kind: "prioritize",
                title: None,
                item_type: "option",
                answers: SINGLE,
            }],
            pairwise: true,
            ..Self::of_statements(adapter, source, items)
        }
    }

    pub(crate) fn question_count(&self) -> usize {
        self.questions.as_ref().map_or(self.items.len(), Vec::len)
    }

    pub(crate) fn question(&self, at: usize) -> Question {
        match &self.questions {
            Some(questions) => questions[at],
            None => Question { phase: 0, item: at as u32 },
        }
    }

    /// Item of a question.
    pub(crate) fn question_item(&self, at: usize) -> &Item {
        &self.items[self.question(at).item as usize]
    }

    /// Key of a question for ids of responses and outcomes. It contains the phase if there are several.
    pub(crate) fn question_key(&self, at: usize) -> Cow<'_, str> {
        let key = self.question_item(at).key.as_str();
        match &self.questions {
            Some(questions) => {
                Cow::Owned(format!("{}:{key}", self.phases[usize::from(questions[at].phase)].kind))
            }
            None => Cow::Borrowed(key),
        }
    }
}

/// Index of items by source key. Small numeric keys, the usual case, are looked up without hashing.
#[derive(Debug, Default)]
pub(crate) struct ItemIndex {
    direct: Vec<u32>,
    by_number: BTreeMap<u64, u32>,
    by_text: BTreeMap<Vec<u8>, u32>,
}

const NO_ITEM: u32 = u32::MAX;
/// Numeric keys below this are looked up in a vector of at most 4 MiB.
const DIRECT_KEYS: u64 = 1 << 20;

impl ItemIndex {
    /// Sorts the items into their output order and indexes them.
    pub(crate) fn sort_items(items: &mut [Item], file: &str) -> Result<Self, ConvertError> {
        items.sort_by(by_key);
        Self::from_sorted(items, file)
    }

    /// Indexes items that are already in output order.
    pub(crate) fn from_sorted(items: &[Item], file: &str) -> Result<Self, ConvertError> {
        let mut index = Self::default();
        for (at, item) in items.iter().enumerate() {
            if !index.add(item.key.as_bytes(), at as u32) {
                // Ids can be arbitrarily long.
                let id: String = item.key.chars().take(40).collect();
                let detail = format!("the item id {id} occurs twice");
                return Err(ConvertError::content(file, item.row, ErrorKind::Duplicate, detail));
            }
        }
        Ok(index)
    }

    /// Adds a key; returns false if it exists already.
    fn add(&mut self, key: &[u8], at: u32) -> bool {
        match canonical_number(key) {
            Some(key) if key < DIRECT_KEYS => {
                let index = usize::try_from(key).unwrap_or_default();
                if self.direct.len() <= index {
                    self.direct.resize(index + 1, NO_ITEM);
                }
                std::mem::replace(&mut self.direct[index], at) == NO_ITEM
            }
            // Larger numbers would make the vector too long.
            Some(key) => self.by_number.insert(key, at).is_none(),
            None => self.by_text.insert(key.to_vec(), at).is_none(),
        }
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        match canonical_number(key) {
            Some(key) if key < DIRECT_KEYS => {
                let index = usize::try_from(key).unwrap_or_default();
                self.direct.get(index).copied().filter(|at| *at != NO_ITEM)
            }
            Some(key) => self.by_number.get(&key).copied(),
            None => self.by_text.get(key).copied(),
        }
    }
}

/// Order of items: numeric keys by value, then other keys by their bytes.
pub(crate) fn by_key(left: &Item, right: &Item) -> std::cmp::Ordering {
    let order = |item: &Item| {
        (canonical_number(item.key.as_bytes()).is_none(), canonical_number(item.key.as_bytes()))
    };
    order(left).cmp(&order(right)).then_with(|| left.key.cmp(&right.key))
}
