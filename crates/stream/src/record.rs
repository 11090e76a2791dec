//! Records that are appended to the log and read from it. The codec frames and unframes their values.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use tidegate_schemas::{
    ids::Millis,
    records::{self, RecordDecodeError},
};

use crate::topics::{Partition, Position};

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

    /// Makes a record with the datum of `content` as its value.
    pub fn from_content<R: records::Record>(key: &'a [u8], content: &R) -> Self {
        let mut datum = Vec::new();
        content.encode(&mut datum);
        Self::new(key, datum)
    }

    #[must_use]
    pub fn with_headers(self, headers: &'a [(&'a str, &'a [u8])]) -> Self {
        Self { headers, ..self }
    }

    /// Size for budgets and size limits: key, value and headers.
    pub fn bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.key.len() + self.value.len() + headers
    }
}

/// A record to append and its partition.
pub type AddressedRecord<'a> = (Partition, Record<'a>);

/// Headers of a fetched record. Records without headers, as most are, need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Option<Arc<[Header]>>);

type Header = (Box<str>, Bytes);

impl Headers {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().flat_map(|headers| headers.iter()).map(|(name, value)| (&**name, value))
    }

    /// Returns the last header of the name, as Kafka's clients do.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0
            .iter()
            .flat_map(|headers| headers.iter())
            .rev()
            .find(|(header_name, _)| &**header_name == name)
            .map(|(_, value)| value)
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
        let header_list: Arc<[_]> = headers.into_iter().collect();
        // Without headers no allocation is kept.
        Self((!header_list.is_empty()).then_some(header_list))
    }
}

/// Record read by an engine, still framed.
#[derive(Clone, Debug)]
pub(crate) struct FetchedRecord {
    pub(crate) at: Position,
    pub(crate) key: Bytes,
    pub(crate) framed: Bytes,
    pub(crate) headers: Headers,
    pub(crate) written_at: Millis,
}

impl FetchedRecord {
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.framed.len() + self.headers.bytes()
    }
}

/// Record of a page. Pages are read without a group, so it has no ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRecord {
    pub at: Position,
    pub key: Bytes,
    pub value: Bytes,
    pub headers: Headers,
    pub written_at: Millis,
}

impl PageRecord {
    /// Decodes the value. `Bytes` of the result are slices of it.
    pub fn decode<R: records::Record>(&self) -> Result<R, RecordDecodeError> {
        R::decode(&self.value)
    }
}
