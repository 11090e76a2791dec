//! Storage format of the embedded log: names of keyspaces, keys, and the bytes of a record.
//!
//! A change here needs a new format number.

use bytes::Bytes;
use tidegate_schemas::ids::Millis;

use crate::{
    record::{FetchedRecord, Headers, Record},
    topics::{NextOffset, Offset, Partition, Position, Topic},
};

/// Format written by this program. Data of a newer format is refused.
pub(super) const FORMAT: u32 = 1;

pub(super) const META: &str = "log.meta";
pub(super) const FORMAT_KEY: &[u8] = b"format";
pub(super) const PARTITIONS_KEY: &[u8] = b"partitions";

/// Returns the keyspace name of a partition. Each partition has its own, so that flushed tables never overlap and compaction
/// moves them without rewriting.
pub(super) fn keyspace(partition: Partition) -> String {
    format!("log.{}.{}", partition.topic.label(), partition.index)
}

pub(super) fn parse_keyspace(name: &str) -> Option<Partition> {
    let (topic, index) = name.strip_prefix("log.")?.rsplit_once('.')?;
    Some(Partition::new(Topic::from_label(topic)?, index.parse().ok()?))
}

pub(super) const fn offset_key(offset: i64) -> [u8; 8] {
    // Offsets are never negative, so big-endian bytes order as the numbers do.
    offset.to_be_bytes()
}

pub(super) fn parse_offset(key: &[u8]) -> Option<i64> {
    key.try_into().ok().map(i64::from_be_bytes)
}

/// Kind of entry of a partition in the meta keyspace.
#[derive(Clone, Copy)]
pub(super) enum MetaKey {
    /// First stored offset, and the append time of the last removed record.
    Start,
    /// Closed segment, by its end: its bytes and its last append time.
    Segment,
}

impl MetaKey {
    pub(super) fn prefix(self, partition: Partition) -> Vec<u8> {
        let kind = match self {
            Self::Start => b's',
            Self::Segment => b'x',
        };
        let mut key = vec![kind];
        push_partition(&mut key, partition);
        key
    }

    pub(super) fn key(self, partition: Partition, offset: i64) -> Vec<u8> {
        let mut key = self.prefix(partition);
        if let Self::Segment = self {
            key.extend_from_slice(&offset_key(offset));
        }
        key
    }
}

const GROUP: u8 = b'g';

pub(super) const fn group_prefix() -> [u8; 1] {
    [GROUP]
}

pub(super) fn group_key(group: &str, partition: Partition) -> Vec<u8> {
    let mut key = vec![GROUP];
    key.extend_from_slice(group.as_bytes());
    key.push(0);
    push_partition(&mut key, partition);
    key
}

pub(super) fn parse_group_key(key: &[u8]) -> Option<(String, Partition)> {
    let key = key.strip_prefix(&[GROUP])?;
    let end = key.iter().position(|byte| *byte == 0)?;
    let group = std::str::from_utf8(&key[..end]).ok()?;
    Some((group.to_owned(), parse_partition(&key[end + 1..])?))
}

fn push_partition(key: &mut Vec<u8>, partition: Partition) {
    key.extend_from_slice(partition.topic.label().as_bytes());
    key.push(0);
    key.extend_from_slice(&partition.index.to_be_bytes());
}

fn parse_partition(key: &[u8]) -> Option<Partition> {
    let end = key.iter().position(|byte| *byte == 0)?;
    let topic = Topic::from_label(std::str::from_utf8(&key[..end]).ok()?)?;
    Some(Partition::new(topic, u32::from_be_bytes(key[end + 1..].try_into().ok()?)))
}

/// Encodes two numbers as a meta value.
pub(super) fn pair(first: i64, second: i64) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&first.to_be_bytes());
    value[8..].copy_from_slice(&second.to_be_bytes());
    value
}

pub(super) fn parse_pair(value: &[u8]) -> Option<(i64, i64)> {
    let (first, second) = value.split_first_chunk::<8>()?;
    Some((i64::from_be_bytes(*first), i64::from_be_bytes(second.try_into().ok()?)))
}

pub(super) fn parse_number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

pub(super) fn parse_count(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_be_bytes)
}

pub(super) fn parse_next(value: &[u8]) -> Option<NextOffset> {
    parse_offset(value).map(NextOffset)
}

/// Encodes a record: append time, key length, header count, the headers' lengths and bytes, key, framed value. The time
/// comes first and is zero here, because only the writer knows it.
pub(super) fn encode(record: &Record<'_>, frame: impl FnOnce(&[u8], &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(record.bytes() + 8 + 4 + 2 + 6 * record.headers.len() + 8);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&length(record.key.len()).to_be_bytes());
    let headers = u16::try_from(record.headers.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&headers.to_be_bytes());
    for (name, value) in record.headers.iter().take(usize::from(headers)) {
        out.extend_from_slice(&length(name.len()).to_be_bytes());
        out.extend_from_slice(&length(value.len()).to_be_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(value);
    }
    out.extend_from_slice(record.key);
    // The value stands last, so that its length need not be stored.
    frame(&record.value, &mut out);
    out
}

pub(super) fn stamp(stored: &mut [u8], written_at: Millis) {
    stored[..8].copy_from_slice(&written_at.0.to_be_bytes());
}

pub(super) fn written_at(stored: &[u8]) -> Option<Millis> {
    stored.first_chunk::<8>().map(|at| Millis(i64::from_be_bytes(*at)))
}

/// Decodes a record as slices of `stored`. Only header names are copied.
pub(super) fn decode(partition: Partition, offset: i64, stored: &Bytes) -> Option<FetchedRecord> {
    let written_at = written_at(stored)?;
    let key_length = size(stored.get(8..12)?)?;
    let header_count = u16::from_be_bytes(stored.get(12..14)?.try_into().ok()?);
    let mut position = 14;
    let mut decoded_headers = Vec::new();
    for _ in 0..header_count {
        let name_length = size(stored.get(position..position + 4)?)?;
        let value_length = size(stored.get(position + 4..position + 8)?)?;
        position += 8;
        let text = std::str::from_utf8(stored.get(position..position.checked_add(name_length)?)?).ok()?;
        position += name_length;
        let end = position.checked_add(value_length)?;
        stored.get(position..end)?;
        decoded_headers.push((text.into(), stored.slice(position..end)));
        position = end;
    }
    let end = position.checked_add(key_length)?;
    stored.get(position..end)?;
    Some(FetchedRecord {
        at: Position { partition, offset: Offset(offset) },
        key: stored.slice(position..end),
        framed: stored.slice(end..),
        headers: if decoded_headers.is_empty() {
            Headers::default()
        } else {
            Headers::from_iter(decoded_headers)
        },
        written_at,
    })
}

fn length(bytes: usize) -> u32 {
    // Larger records than 12 MiB are refused before they are encoded.
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn size(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(bytes.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn record_encoding_round_trips(
            key in prop::collection::vec(any::<u8>(), 0..40),
            value in prop::collection::vec(any::<u8>(), 0..200),
            headers in prop::collection::vec(("[a-z-]{0,12}", prop::collection::vec(any::<u8>(), 0..20)), 0..4),
        ) {
            let borrowed: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
            let record = Record::new(&key, value.as_slice()).with_headers(&borrowed);
            let mut stored = encode(&record, |datum, out| out.extend_from_slice(datum));
            stamp(&mut stored, Millis(77));
            let partition = Partition::new(Topic::Items, 3);
            let back = decode(partition, 9, &stored.into()).unwrap();
            prop_assert_eq!(&back.key[..], &key[..]);
            prop_assert_eq!(&back.framed[..], &value[..]);
            prop_assert_eq!(back.written_at, Millis(77));
            prop_assert_eq!(back.headers.iter().map(|(name, value)| (name, &value[..])).collect::<Vec<_>>(), borrowed);
        }

        #[test]
        fn damaged_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _maybe = decode(Partition::new(Topic::Items, 0), 0, &bytes.into());
        }
    }

    #[test]
    fn meta_keyspace_names_and_keys_round_trip() {
        for topic in Topic::ALL {
            let partition = Partition::new(topic, 13);
            assert_eq!(parse_keyspace(&keyspace(partition)), Some(partition));
            assert_eq!(
                parse_group_key(&group_key("items", partition)),
                Some(("items".to_owned(), partition))
            );
        }
        assert_eq!(parse_keyspace(META), None);
        assert_eq!(parse_pair(&pair(-1, 7)), Some((-1, 7)));
    }
}
