//! Lists dead letters without their content, and replays them into their original topic.
//!
//! Dead letters are never removed. A replay is recorded with time and caller.
//!
//! A replayed item keeps the coordinates of its first record, and thereby its position among the versions of the
//! item. If a newer version is stored, it has no effects.

use async_recursion::async_recursion as boxed;
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
    child_safety::{Clearance, find_restricted},
    items::stored::RESENT,
};

/// Number of dead letters per read.
const PAGE_SIZE: usize = 100;

/// Conditions for dead letters. The default matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    pub org: Option<OrgId>,
    /// Also matches letters without a readable org.
    pub include_unowned: bool,
    pub topic: Option<Topic>,
    pub reason: Option<String>,
    /// `id` of a [`DeadLetterResponse`].
    pub id: Option<String>,
    /// Letters about child-safety material only match with clearance. Letters with an unreadable record always match.
    pub clearance: Clearance,
}

/// Dead letter in a list, without its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterResponse {
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
pub struct DeadLetterPage {
    pub items: Vec<DeadLetterResponse>,
    pub next: Option<String>,
}

#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Name of the caller, stored with each replay.
    pub by: String,
    /// Also replays letters with an earlier replay. A letter selected by `id` is always replayed.
    pub include_replayed: bool,
}

/// Numbers of dead letters by outcome of the replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayResponse {
    pub replayed: u64,
    /// Letters with an earlier replay.
    pub skipped: u64,
    /// Letters that cannot be replayed: this version does not know their topic or framing.
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

    /// True if the cursor does not belong to this list.
    pub fn is_cursor(&self) -> bool {
        matches!(self, Self::Cursor(_) | Self::Tail(PageError::Cursor { .. }))
    }

    /// True if the log or the store was unavailable, so that a later call may succeed.
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
#[boxed]
pub async fn list_letters(
    log: &Log,
    store: &Store,
    filter: &DeadLetterFilter,
    limit: usize,
    cursor: Option<&str>,
) -> Result<DeadLetterPage, DeadLetterError> {
    let mut after: Option<Cursor> = cursor.map(str::parse).transpose()?;
    let mut items = Vec::new();
    loop {
        let query = Query {
            topic: Topic::DeadLetters,
            order: Order::Newest,
            // At most the missing number, because the cursor marks the end of the page.
            limit: PAGE_SIZE.min(limit.saturating_sub(items.len()).max(1)),
            after,
        };
        let page = log.read_page(query).await?;
        for (page_record, letter, replay) in find_matching(log, store, filter, &page.records).await? {
            items.push(summarize(page_record, letter, replay));
        }
        after = page.next;
        if after.is_none() || items.len() >= limit {
            return Ok(DeadLetterPage { items, next: after.map(|cursor| cursor.to_string()) });
        }
    }
}

/// Replays all matching dead letters, oldest first. Repeating a replay is harmless, because its ids are the same.
#[boxed]
pub async fn replay(
    log: &Log,
    store: &Store,
    filter: &DeadLetterFilter,
    options: &ReplayOptions,
) -> Result<ReplayResponse, DeadLetterError> {
    // A request for one id is an explicit request to repeat its replay.
    let include_replayed = options.include_replayed || filter.id.is_some();
    let mut counts = ReplayResponse::default();
    let mut after = None;
    loop {
        let query = Query { topic: Topic::DeadLetters, order: Order::Oldest, limit: PAGE_SIZE, after };
        let page = log.read_page(query).await?;
        for (page_record, letter, replay) in find_matching(log, store, filter, &page.records).await? {
            if replay.is_some() && !include_replayed {
                counts.skipped += 1;
                continue;
            }
            match unframe_record(log, page_record, &letter) {
                Some((topic, datum)) => {
                    append_letter(log, topic, &letter, &datum).await?;
                    // Recorded after the append: a crash in between repeats a harmless replay, while the reverse
                    // order would lose the letter.
                    mark_replayed(store, page_record, &letter, &options.by).await?;
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

impl DeadLetterFilter {
    fn matches(&self, page_record: &PageRecord, letter: &DeadLetter) -> bool {
        let is_owned_by =
            |org| letter.org.as_ref().map_or(self.include_unowned, |letter_org| letter_org == org);
        self.org.as_ref().is_none_or(is_owned_by)
            && self.topic.is_none_or(|topic| letter.topic == topic.label())
            && self.reason.as_ref().is_none_or(|reason| letter.reason == *reason)
            && self.id.as_ref().is_none_or(|id| *id == letter_id(page_record))
    }
}

/// Returns the matching letters, each with its last replay.
async fn find_matching<'t>(
    log: &Log,
    store: &Store,
    filter: &DeadLetterFilter,
    page_records: &'t [PageRecord],
) -> Result<Vec<(&'t PageRecord, DeadLetter, Option<Replay>)>, DeadLetterError> {
    let letters = page_records.iter().filter_map(|page_record| Some((page_record, decode(page_record)?)));
    let mut letters: Vec<_> =
        letters.filter(|(page_record, letter)| filter.matches(page_record, letter)).collect();
    if !filter.clearance.covers_child_safety() {
        letters = retain_unrestricted(log, store, letters).await?;
    }
    let keys: Vec<_> = letters
        .iter()
        .map(|(page_record, letter)| Replay::key(replay_org(letter), letter_id(page_record)))
        .collect();
    let replays = store.get_many::<Replay>(&keys).await?;
    Ok(letters
        .into_iter()
        .zip(replays)
        .map(|((page_record, letter), replay)| (page_record, letter, replay))
        .collect())
}

/// Removes the letters about child-safety material.
async fn retain_unrestricted<'t>(
    log: &Log,
    store: &Store,
    letters: Vec<(&'t PageRecord, DeadLetter)>,
) -> Result<Vec<(&'t PageRecord, DeadLetter)>, DeadLetterError> {
    let mut visible = Vec::with_capacity(letters.len());
    for (page_record, letter) in letters {
        let subject = unframe_record(log, page_record, &letter)
            .and_then(|(topic, datum)| LetterSubject::read(topic, &datum));
        let is_restricted = match (&letter.org, &subject) {
            (_, Some(LetterSubject { is_child_safety: true, .. })) => true,
            // An item can become restricted after the letter was written.
            (Some(org), Some(LetterSubject { items, .. })) => {
                !find_restricted(store, org, items).await?.is_empty()
            }
            // A letter without org or readable record shows no item.
            _ => false,
        };
        if !is_restricted {
            visible.push((page_record, letter));
        }
    }
    Ok(visible)
}

/// Items of a dead letter's record.
struct LetterSubject {
    items: Vec<ItemKey>,
    /// True if the record itself is marked as child-safety material.
    is_child_safety: bool,
}

impl LetterSubject {
    /// Returns `None` for an unreadable record. Its list entry then has no content to withhold.
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
    page_record: &PageRecord,
    letter: &DeadLetter,
    by: &str,
) -> Result<(), DeadLetterError> {
    let (now, org) = (Millis::now(), replay_org(letter));
    let row = Replay { org, letter: letter_id(page_record), replayed_at: now, replayed_by: by.to_owned() };
    Ok(store.put_rows(WriteTime::after(None, now), &[row]).await?)
}

/// Org of the replay row; empty for letters without an org.
fn replay_org(letter: &DeadLetter) -> OrgId {
    letter.org.clone().unwrap_or_else(|| OrgId::new(""))
}

fn letter_id(page_record: &PageRecord) -> String {
    format!("{}-{}", page_record.at.partition.index, page_record.at.offset)
}

fn decode(page_record: &PageRecord) -> Option<DeadLetter> {
    page_record
        .decode::<DeadLetter>()
        .inspect_err(
            |error| tracing::error!(position = %page_record.at, "a dead letter cannot be read: {error}"),
        )
        .ok()
}

fn summarize(page_record: &PageRecord, letter: DeadLetter, replay: Option<Replay>) -> DeadLetterResponse {
    let (replayed_at, replayed_by) =
        replay.map(|replay| (replay.replayed_at.iso(), replay.replayed_by)).unzip();
    DeadLetterResponse {
        id: letter_id(page_record),
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

/// Returns topic and datum of the original record. `None` if this version cannot read the letter's framing.
fn unframe_record(log: &Log, page_record: &PageRecord, letter: &DeadLetter) -> Option<(Topic, Bytes)> {
    let topic = Topic::from_label(&letter.topic)?;
    log.unframe(page_record.at, topic, &letter.value)
        .inspect_err(
            |error| tracing::error!(position = %page_record.at, "a dead letter cannot be replayed: {error}"),
        )
        .ok()
        .map(|datum| (topic, datum))
}

async fn append_letter(
    log: &Log,
    topic: Topic,
    letter: &DeadLetter,
    datum: &[u8],
) -> Result<(), AppendError> {
    let headers: Headers = letter
        .headers
        .iter()
        .map(|header| (header.name.clone().into_boxed_str(), header.value.clone()))
        .collect();
    let mut record_headers: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (name, value.as_ref())).collect();
    // A letter of an earlier replay has the header already.
    if headers.get(RESENT).is_none() {
        record_headers.push((RESENT, b"1"));
    }
    let record = Record::new(&letter.key, datum).with_headers(&record_headers);
    log.append(&[(log.partition(topic, &letter.key), record)]).await
}
