//! Lists what could not be processed, without its content, and sends it back to where it came from.
//!
//! It removes nothing: dead letters are kept, and those that were sent back are marked.
//!
//! An item goes back with the coordinates of its first record, so it fills its own place among the versions of the
//! item; if a newer version is stored by then, no effects are taken of it.

use bytes::Bytes;
use serde::Serialize;
use tidegate_moderation::items::stored::RESENT;
use tidegate_schemas::{
    ids::{Millis, OrgId, SubmissionId},
    records::DeadLetter,
};
use tidegate_store::{Store, WriteTime, tables::items::replays::Replay};
use tidegate_stream::{
    AppendError, Cursor, Headers, Log, NotACursor, Order as From, Query, Record, TailError, Tailed, Topic,
};

/// Letters that are read at once.
const PAGE: usize = 100;

/// Which letters are meant; what is not named is not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub org: Option<OrgId>,
    /// Those as well of which nobody could read whose they are.
    pub or_nobodys: bool,
    pub topic: Option<Topic>,
    pub reason: Option<String>,
    /// One letter: its `id` in the list.
    pub id: Option<String>,
}

/// A letter as it is listed: nothing of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Where it stands among the dead letters: partition and offset.
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
    /// The size of what failed.
    pub bytes: usize,
    /// When it was sent back, the last time, and by whom.
    pub replayed_at: Option<String>,
    pub replayed_by: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    pub items: Vec<Summary>,
    pub next: Option<String>,
}

/// Who sends letters back, and whether also those that were sent back before. A letter that is named by its id always
/// is.
#[derive(Clone, Debug)]
pub struct Order {
    pub by: String,
    pub again: bool,
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    pub replayed: u64,
    /// Letters that were left out, for they had been sent back before.
    pub skipped: u64,
    /// Letters that cannot be sent back: their topic or their framing is not known here.
    pub refused: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Tail(#[from] TailError),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Cursor(#[from] NotACursor),
    #[error(transparent)]
    Store(#[from] tidegate_store::Error),
}

impl Error {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Tail(error) => error.tag(),
            Self::Append(error) => error.tag(),
            Self::Cursor(_) => "cursor",
            Self::Store(error) => error.tag(),
        }
    }
}

/// The newest letters first.
pub async fn list(
    log: &Log,
    store: &Store,
    which: &Selection,
    limit: usize,
    after: Option<&str>,
) -> Result<Page, Error> {
    let mut after: Option<Cursor> = after.map(str::parse).transpose()?;
    let mut items = Vec::new();
    loop {
        let query = Query {
            topic: Topic::DeadLetters,
            order: From::Newest,
            limit: PAGE.min(limit.saturating_sub(items.len()).max(1)),
            after,
        };
        let page = log.tail(query).await?;
        for (tailed, letter, replay) in meant(store, which, &page.records).await? {
            items.push(summary(tailed, letter, replay));
        }
        after = page.next;
        if after.is_none() || items.len() >= limit {
            return Ok(Page { items, next: after.map(|cursor| cursor.to_string()) });
        }
    }
}

/// Sends the letters back to their topics, the oldest first. Sending one back twice is harmless: its ids are the same.
pub async fn replay(log: &Log, store: &Store, which: &Selection, order: &Order) -> Result<Replayed, Error> {
    let again = order.again || which.id.is_some();
    let mut replayed = Replayed::default();
    let mut after = None;
    loop {
        let query = Query { topic: Topic::DeadLetters, order: From::Oldest, limit: PAGE, after };
        let page = log.tail(query).await?;
        for (tailed, letter, replay) in meant(store, which, &page.records).await? {
            if replay.is_some() && !again {
                replayed.skipped += 1;
                continue;
            }
            match open(log, tailed, &letter) {
                Some((topic, datum)) => {
                    send_back(log, topic, &letter, &datum).await?;
                    // Afterwards: one that is sent back twice does no harm, one that is only marked is forgotten.
                    mark(store, tailed, &letter, &order.by).await?;
                    replayed.replayed += 1;
                }
                None => replayed.refused += 1,
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(replayed);
        }
    }
}

impl Selection {
    fn holds(&self, tailed: &Tailed, letter: &DeadLetter) -> bool {
        let is_theirs = |org| letter.org.as_ref().map_or(self.or_nobodys, |own| own == org);
        self.org.as_ref().is_none_or(is_theirs)
            && self.topic.is_none_or(|topic| letter.topic == topic.label())
            && self.reason.as_ref().is_none_or(|reason| letter.reason == *reason)
            && self.id.as_ref().is_none_or(|id| *id == id_of(tailed))
    }
}

/// The letters that are meant, each with the last time that it was sent back.
async fn meant<'t>(
    store: &Store,
    which: &Selection,
    tailed: &'t [Tailed],
) -> Result<Vec<(&'t Tailed, DeadLetter, Option<Replay>)>, Error> {
    let letters = tailed.iter().filter_map(|tailed| Some((tailed, read(tailed)?)));
    let letters: Vec<_> = letters.filter(|(tailed, letter)| which.holds(tailed, letter)).collect();
    let keys: Vec<_> =
        letters.iter().map(|(tailed, letter)| Replay::key(org_of(letter), id_of(tailed))).collect();
    let replays = store.get_many::<Replay>(&keys).await?;
    Ok(letters.into_iter().zip(replays).map(|((tailed, letter), replay)| (tailed, letter, replay)).collect())
}

async fn mark(store: &Store, tailed: &Tailed, letter: &DeadLetter, by: &str) -> Result<(), Error> {
    let (now, org) = (Millis::now(), org_of(letter));
    let row = Replay { org, letter: id_of(tailed), replayed_at: now, replayed_by: by.to_owned() };
    Ok(store.put(WriteTime::after(None, now), &[row]).await?)
}

/// What is of no organisation is so under none.
fn org_of(letter: &DeadLetter) -> OrgId {
    letter.org.clone().unwrap_or_else(|| OrgId::new(""))
}

fn id_of(tailed: &Tailed) -> String {
    format!("{}-{}", tailed.at.partition.index, tailed.at.offset)
}

fn read(tailed: &Tailed) -> Option<DeadLetter> {
    tailed
        .decode::<DeadLetter>()
        .inspect_err(|error| tracing::error!(position = %tailed.at, "a dead letter cannot be read: {error}"))
        .ok()
}

fn summary(tailed: &Tailed, letter: DeadLetter, replay: Option<Replay>) -> Summary {
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

fn open(log: &Log, tailed: &Tailed, letter: &DeadLetter) -> Option<(Topic, Bytes)> {
    let topic = Topic::from_label(&letter.topic)?;
    log.unframe(tailed.at, topic, &letter.value)
        .inspect_err(|error| tracing::error!("a dead letter cannot be sent back: {error}"))
        .ok()
        .map(|datum| (topic, datum))
}

async fn send_back(log: &Log, topic: Topic, letter: &DeadLetter, datum: &[u8]) -> Result<(), AppendError> {
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
