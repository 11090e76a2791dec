//! Lists what could not be processed, without its content, and sends it back to where it came from.
//!
//! It removes nothing: dead letters are kept.
//!
//! An item goes back with the coordinates of its first record, so it fills its own place among the versions of the
//! item; if a newer version is stored by then, no effects are taken of it.

use bytes::Bytes;
use serde::Serialize;
use tidegate_moderation::submissions::RESENT;
use tidegate_schemas::{
    ids::{OrgId, SubmissionId},
    records::DeadLetter,
};
use tidegate_stream::{
    AppendError, Cursor, Headers, Log, NotACursor, Order, Query, Record, TailError, Tailed, Topic,
};

/// Letters that are read at once.
const PAGE: usize = 100;

/// Which letters are meant; what is not named is not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub org: Option<OrgId>,
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
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    pub items: Vec<Summary>,
    pub next: Option<String>,
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    pub replayed: u64,
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
}

impl Error {
    pub const fn tag(&self) -> &'static str {
        match self {
            Self::Tail(error) => error.tag(),
            Self::Append(error) => error.tag(),
            Self::Cursor(_) => "cursor",
        }
    }
}

/// The newest letters first.
pub async fn list(log: &Log, which: &Selection, limit: usize, after: Option<&str>) -> Result<Page, Error> {
    let mut after: Option<Cursor> = after.map(str::parse).transpose()?;
    let mut items = Vec::new();
    loop {
        let query = Query {
            topic: Topic::DeadLetters,
            order: Order::Newest,
            limit: PAGE.min(limit.saturating_sub(items.len()).max(1)),
            after,
        };
        let page = log.tail(query).await?;
        items.extend(page.records.iter().filter_map(|tailed| {
            let letter = read(tailed)?;
            which.holds(tailed, &letter).then(|| summary(tailed, letter))
        }));
        after = page.next;
        if after.is_none() || items.len() >= limit {
            return Ok(Page { items, next: after.map(|cursor| cursor.to_string()) });
        }
    }
}

/// Sends the letters back to their topics, the oldest first. Sending one back twice is harmless: its ids are the same.
pub async fn replay(log: &Log, which: &Selection) -> Result<Replayed, Error> {
    let mut replayed = Replayed::default();
    let mut after = None;
    loop {
        let query = Query { topic: Topic::DeadLetters, order: Order::Oldest, limit: PAGE, after };
        let page = log.tail(query).await?;
        for tailed in &page.records {
            let Some(letter) = read(tailed).filter(|letter| which.holds(tailed, letter)) else { continue };
            match open(log, tailed, &letter) {
                Some((topic, datum)) => {
                    send_back(log, topic, &letter, &datum).await?;
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
        self.org.as_ref().is_none_or(|org| letter.org.as_ref() == Some(org))
            && self.topic.is_none_or(|topic| letter.topic == topic.label())
            && self.reason.as_ref().is_none_or(|reason| letter.reason == *reason)
            && self.id.as_ref().is_none_or(|id| *id == id_of(tailed))
    }
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

fn summary(tailed: &Tailed, letter: DeadLetter) -> Summary {
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
