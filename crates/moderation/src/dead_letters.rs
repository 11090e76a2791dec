//! Lists dead letters without their content and replays them into the topic that they came from.
//!
//! Dead letters are never removed. A replayed one is marked with the time and the caller.
//!
//! A replayed item keeps the coordinates of its first record, so it takes its own place among the versions of the item.
//! If a newer version is stored by then, the replayed one causes no effects.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_schemas::{
    ids::{ItemKey, Millis, OrgId, SubmissionId},
    records::{self, DeadLetter, ItemEntry, JobClass, Record as _},
};
use tidegate_store::{Store, WriteTime, tables::items::replays::Replay};
use tidegate_stream::{
    Log, Record, Topic,
    error::{AppendError, PageError},
    page_reader::{Cursor, InvalidCursor, Order, Query},
    record::{Headers, PageRecord},
};

use crate::{
    child_safety::{Clearance, restricted},
    items::stored::RESENT,
};

/// Number of dead letters that are read at once.
const PAGE_SIZE: usize = 100;

/// Conditions that a dead letter must meet. The default matches all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub org: Option<OrgId>,
    /// Also matches letters whose org could not be read from the failed record.
    pub include_unowned: bool,
    pub topic: Option<Topic>,
    pub reason: Option<String>,
    /// The `id` of a `Summary`.
    pub id: Option<String>,
    /// Letters about child-safety material that it does not cover do not match. One whose record cannot be read matches.
    pub clearance: Clearance,
}

/// A dead letter as lists show it: without its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Partition and offset in the topic of dead letters.
    pub id: String,
    pub org: Option<OrgId>,
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub written_at: String,
    pub submission_id: Option<SubmissionId>,
    pub stage: String,
    pub reason: String,
    pub detail: String,
    pub failed_at: String,
    /// Size of the failed record's value.
    pub bytes: usize,
    /// Time and caller of the last replay.
    pub replayed_at: Option<String>,
    pub replayed_by: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    pub items: Vec<Summary>,
    pub next: Option<String>,
}

#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Name of the caller, stored with each replayed letter.
    pub by: String,
    /// Also replays letters that were replayed before. A letter that the filter names by `id` is always replayed.
    pub again: bool,
}

/// Numbers of dead letters by what a replay did with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayCounts {
    pub replayed: u64,
    /// Letters that had been replayed before.
    pub skipped: u64,
    /// Letters that cannot be replayed: this version does not know their topic or their framing.
    pub refused: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum DeadLetterError {
    #[error(transparent)]
    Tail(#[from] PageError),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Cursor(#[from] InvalidCursor),
    #[error(transparent)]
    Store(#[from] tidegate_store::Error),
}

impl DeadLetterError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Tail(error) => error.tag(),
            Self::Append(error) => error.tag(),
            Self::Cursor(_) => "cursor",
            Self::Store(error) => error.tag(),
        }
    }

    /// True if the caller sent a cursor that this list did not hand out.
    pub fn is_cursor(&self) -> bool {
        matches!(self, Self::Cursor(_) | Self::Tail(PageError::Cursor { .. }))
    }

    /// True if the log or the store could not be reached, so that a later call may succeed.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Tail(error) => matches!(error, PageError::Unavailable { .. }),
            Self::Append(error) => error.is_retriable(),
            Self::Cursor(_) => false,
            Self::Store(error) => error.is_outage(),
        }
    }
}

/// Returns up to `limit` matching dead letters, newest first.
pub async fn list(
    log: &Log,
    store: &Store,
    filter: &Filter,
    limit: usize,
    cursor: Option<&str>,
) -> Result<Page, DeadLetterError> {
    let mut after: Option<Cursor> = cursor.map(str::parse).transpose()?;
    let mut items = Vec::new();
    loop {
        let query = Query {
            topic: Topic::DeadLetters,
            order: Order::Newest,
            limit: PAGE_SIZE.min(limit.saturating_sub(items.len()).max(1)),
            after,
        };
        let page = log.read_page(query).await?;
        for (tailed, letter, replay) in matching(log, store, filter, &page.records).await? {
            items.push(summary(tailed, letter, replay));
        }
        after = page.next;
        if after.is_none() || items.len() >= limit {
            return Ok(Page { items, next: after.map(|cursor| cursor.to_string()) });
        }
    }
}

/// Replays all matching dead letters, oldest first. Replaying one twice is harmless: its ids are the same.
pub async fn replay(
    log: &Log,
    store: &Store,
    filter: &Filter,
    options: &ReplayOptions,
) -> Result<ReplayCounts, DeadLetterError> {
    let again = options.again || filter.id.is_some();
    let mut counts = ReplayCounts::default();
    let mut after = None;
    loop {
        let query = Query { topic: Topic::DeadLetters, order: Order::Oldest, limit: PAGE_SIZE, after };
        let page = log.read_page(query).await?;
        for (tailed, letter, replay) in matching(log, store, filter, &page.records).await? {
            if replay.is_some() && !again {
                counts.skipped += 1;
                continue;
            }
            match open(log, tailed, &letter) {
                Some((topic, datum)) => {
                    append(log, topic, &letter, &datum).await?;
                    // Marked after the append: a crash in between repeats a harmless replay, while the other order
                    // would lose the letter.
                    mark_replayed(store, tailed, &letter, &options.by).await?;
                    counts.replayed += 1;
                }
                None => counts.refused += 1,
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(counts);
        }
    }
}

impl Filter {
    fn matches(&self, tailed: &PageRecord, letter: &DeadLetter) -> bool {
        let is_owned_by = |org| letter.org.as_ref().map_or(self.include_unowned, |own| own == org);
        self.org.as_ref().is_none_or(is_owned_by)
            && self.topic.is_none_or(|topic| letter.topic == topic.label())
            && self.reason.as_ref().is_none_or(|reason| letter.reason == *reason)
            && self.id.as_ref().is_none_or(|id| *id == id_of(tailed))
    }
}

/// Returns the matching letters, each with its last replay.
async fn matching<'t>(
    log: &Log,
    store: &Store,
    filter: &Filter,
    tailed: &'t [PageRecord],
) -> Result<Vec<(&'t PageRecord, DeadLetter, Option<Replay>)>, DeadLetterError> {
    let letters = tailed.iter().filter_map(|tailed| Some((tailed, decode(tailed)?)));
    let mut letters: Vec<_> = letters.filter(|(tailed, letter)| filter.matches(tailed, letter)).collect();
    if !filter.clearance.covers_child_safety() {
        letters = without_child_safety(log, store, letters).await?;
    }
    let keys: Vec<_> =
        letters.iter().map(|(tailed, letter)| Replay::key(owner_of(letter), id_of(tailed))).collect();
    let replays = store.get_many::<Replay>(&keys).await?;
    Ok(letters.into_iter().zip(replays).map(|((tailed, letter), replay)| (tailed, letter, replay)).collect())
}

/// Leaves out the letters about child-safety material.
async fn without_child_safety<'t>(
    log: &Log,
    store: &Store,
    letters: Vec<(&'t PageRecord, DeadLetter)>,
) -> Result<Vec<(&'t PageRecord, DeadLetter)>, DeadLetterError> {
    let mut visible = Vec::with_capacity(letters.len());
    for (tailed, letter) in letters {
        let subject = open(log, tailed, &letter).and_then(|(topic, datum)| Subject::read(topic, &datum));
        let is_restricted = match (&letter.org, &subject) {
            (_, Some(Subject { is_child_safety: true, .. })) => true,
            (Some(org), Some(Subject { items, .. })) => !restricted(store, org, items).await?.is_empty(),
            _ => false,
        };
        if !is_restricted {
            visible.push((tailed, letter));
        }
    }
    Ok(visible)
}

/// Items that the record of a dead letter is about.
struct Subject {
    items: Vec<ItemKey>,
    /// True if the record itself says that it is about child-safety material.
    is_child_safety: bool,
}

impl Subject {
    /// Returns `None` if the record cannot be decoded. Its list entry then has no content that could be withheld.
    fn read(topic: Topic, datum: &Bytes) -> Option<Self> {
        let (items, is_child_safety) = match topic {
            Topic::Items | Topic::ItemsSlow => {
                let record = records::Items::decode(datum).ok()?;
                (record.items.iter().map(ItemEntry::key).collect(), false)
            }
            Topic::Reports => {
                let record = records::Report::decode(datum).ok()?;
                (vec![record.item.key()], record.csam)
            }
            Topic::Appeals => (vec![records::Appeal::decode(datum).ok()?.item.key()], false),
            Topic::Decisions => {
                let record = records::Decision::decode(datum).ok()?;
                let related = record.related.into_iter().map(|related| related.item);
                let items = related.chain(record.reported_items).chain([record.item]);
                (items.collect(), record.class == JobClass::ChildSafety)
            }
            Topic::Strikes => {
                let record = records::Strike::decode(datum).ok()?;
                (vec![record.item, record.user], false)
            }
            Topic::Callbacks => (vec![records::Callback::decode(datum).ok()?.subject], false),
            Topic::Evaluations | Topic::DeadLetters => return None,
        };
        Some(Self { items, is_child_safety })
    }
}

async fn mark_replayed(
    store: &Store,
    tailed: &PageRecord,
    letter: &DeadLetter,
    by: &str,
) -> Result<(), DeadLetterError> {
    let (now, org) = (Millis::now(), owner_of(letter));
    let row = Replay { org, letter: id_of(tailed), replayed_at: now, replayed_by: by.to_owned() };
    Ok(store.put(WriteTime::after(None, now), &[row]).await?)
}

/// The org whose replay rows mark the letter; the empty one for letters without an org.
fn owner_of(letter: &DeadLetter) -> OrgId {
    letter.org.clone().unwrap_or_else(|| OrgId::new(""))
}

fn id_of(tailed: &PageRecord) -> String {
    format!("{}-{}", tailed.at.partition.index, tailed.at.offset)
}

fn decode(tailed: &PageRecord) -> Option<DeadLetter> {
    tailed
        .decode::<DeadLetter>()
        .inspect_err(|error| tracing::error!(position = %tailed.at, "a dead letter cannot be read: {error}"))
        .ok()
}

fn summary(tailed: &PageRecord, letter: DeadLetter, replay: Option<Replay>) -> Summary {
    let (replayed_at, replayed_by) = replay.map(|it| (it.replayed_at.iso(), it.replayed_by)).unzip();
    Summary {
        id: id_of(tailed),
        org: letter.org,
        topic: letter.topic,
        partition: letter.partition,
        offset: letter.offset,
        written_at: letter.written_at.iso(),
        submission_id: letter.submission_id,
        stage: letter.stage,
        reason: letter.reason,
        detail: letter.detail,
        failed_at: letter.failed_at.iso(),
        bytes: letter.value.len(),
        replayed_at,
        replayed_by,
    }
}

/// Returns the topic and the datum to append, or `None` if this version cannot read the letter's framing.
fn open(log: &Log, tailed: &PageRecord, letter: &DeadLetter) -> Option<(Topic, Bytes)> {
    let topic = Topic::from_label(&letter.topic)?;
    log.unframe(tailed.at, topic, &letter.value)
        .inspect_err(
            |error| tracing::error!(position = %tailed.at, "a dead letter cannot be replayed: {error}"),
        )
        .ok()
        .map(|datum| (topic, datum))
}

async fn append(log: &Log, topic: Topic, letter: &DeadLetter, datum: &[u8]) -> Result<(), AppendError> {
    let headers: Headers = letter
        .headers
        .iter()
        .map(|header| (header.name.clone().into_boxed_str(), header.value.clone()))
        .collect();
    let mut sent: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (name, value.as_ref())).collect();
    if headers.get(RESENT).is_none() {
        sent.push((RESENT, b"1"));
    }
    let record = Record::new(&letter.key, datum).with_headers(&sent);
    log.append(&[(log.partition(topic, &letter.key), record)]).await
}
