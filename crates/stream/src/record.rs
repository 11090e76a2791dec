//! What goes into the log and what comes out of it.
//!
//! It does not frame values with a schema id: that is the codec's, on the way in and on the way out.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use tidegate_schemas::{
    ids::{Millis, OrgId, SubmissionId},
    records::{self, Malformed},
};

use crate::{
    ticket::Ticket,
    topics::{Partition, Position},
};

/// A record to append. The log adds the framing of the topic's schema to `value`.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    pub key: &'a [u8],
    pub value: Cow<'a, [u8]>,
    pub headers: &'a [(&'a str, &'a [u8])],
}

impl<'a> Record<'a> {
    pub fn new(key: &'a [u8], datum: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { key, value: datum.into(), headers: &[] }
    }

    /// A record whose value is the datum of `of`.
    pub fn of<R: records::Record>(key: &'a [u8], of: &R) -> Self {
        let mut datum = Vec::new();
        of.encode(&mut datum);
        Self::new(key, datum)
    }

    #[must_use]
    pub fn with_headers(self, headers: &'a [(&'a str, &'a [u8])]) -> Self {
        Self { headers, ..self }
    }

    /// What a budget and a size limit count: everything the record brings along.
    pub fn bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.key.len() + self.value.len() + headers
    }
}

/// The headers of a record that was read. Most have none, and then nothing is allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Option<Arc<[Header]>>);

type Header = (Box<str>, Bytes);

impl Headers {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().flat_map(|all| all.iter()).map(|(name, value)| (&**name, value))
    }

    /// The last header of the name, as Kafka's clients read them.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0.iter().flat_map(|all| all.iter()).rev().find(|(own, _)| &**own == name).map(|(_, value)| value)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

impl FromIterator<(Box<str>, Bytes)> for Headers {
    fn from_iter<T: IntoIterator<Item = (Box<str>, Bytes)>>(headers: T) -> Self {
        let all: Arc<[_]> = headers.into_iter().collect();
        Self((!all.is_empty()).then_some(all))
    }
}

/// A record that an engine read, still in its framing.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    pub(crate) at: Position,
    pub(crate) key: Bytes,
    pub(crate) framed: Bytes,
    pub(crate) headers: Headers,
    pub(crate) written_at: Millis,
}

impl Fetched {
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.framed.len() + self.headers.bytes()
    }
}

/// A record handed to a consumer, with the ticket that it owes.
#[derive(Debug)]
pub struct Received {
    pub at: Position,
    pub key: Bytes,
    /// The datum in the reader's schema, without framing.
    pub value: Bytes,
    pub headers: Headers,
    /// When the log took it: never going backwards within a partition.
    pub written_at: Millis,
    /// An earlier owner may have worked on it already: its effects may exist.
    pub maybe_replayed: bool,
    pub ticket: Ticket,
}

impl Received {
    /// The record as its type. Its `Bytes` are slices of `value`.
    pub fn decode<R: records::Record>(&self) -> Result<R, Malformed> {
        R::decode(&self.value)
    }
}

/// A record read without a group: nothing is owed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tailed {
    pub at: Position,
    pub key: Bytes,
    pub value: Bytes,
    pub headers: Headers,
    pub written_at: Millis,
}

impl Tailed {
    /// The record as its type. Its `Bytes` are slices of `value`.
    pub fn decode<R: records::Record>(&self) -> Result<R, Malformed> {
        R::decode(&self.value)
    }
}

/// Why a part of a record goes to the dead letters.
#[derive(Clone, Debug)]
pub struct Reason {
    /// Which step of the pipeline gave up.
    pub stage: &'static str,
    /// The stable name of the fault.
    pub tag: &'static str,
    /// For the operator; never a payload, key or URL query.
    pub detail: String,
    pub org: Option<OrgId>,
    pub submission_id: Option<SubmissionId>,
}

/// Where a batch goes: each record with its partition.
pub type Addressed<'a> = (Partition, Record<'a>);
