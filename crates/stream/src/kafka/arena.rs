//! Copies the records of one poll from librdkafka into shared buffers, and slices them.
//!
//! One allocation serves many small records. A record keeps its whole buffer in memory, so buffers are small.

use bytes::Bytes;
use rdkafka::message::{Headers as _, Message};
use tidegate_schemas::ids::Millis;

use crate::{
    consumer::budget::Amount,
    record::{FetchedRecord, Headers},
    topics::{Offset, Partition, Position},
};

/// Size at which a buffer is closed, in bytes. A larger record has its own buffer.
const BUFFER_BYTES: usize = 256 << 10;

/// Record with its bytes in the current buffer.
struct PendingRecord {
    at: Position,
    written_at: Millis,
    /// Start of the key, and ends of key and value. Each part begins at the end of the part before it.
    start: usize,
    key_end: usize,
    value_end: usize,
    /// Name and end of the value of each header.
    headers: Vec<(Box<str>, usize)>,
}

#[derive(Default)]
pub(super) struct Arena {
    buffer: Vec<u8>,
    pending_records: Vec<PendingRecord>,
    finished_records: Vec<FetchedRecord>,
    amount: Amount,
}

impl Arena {
    pub(super) fn push(&mut self, partition: Partition, message: &impl Message) {
        let key = message.key().unwrap_or_default();
        let value = message.payload().unwrap_or_default();
        let fits_buffer = self.buffer.len() + key.len() + value.len() <= BUFFER_BYTES;
        if !fits_buffer {
            self.close();
        }
        if self.buffer.capacity() == 0 {
            self.buffer.reserve((key.len() + value.len()).max(if fits_buffer {
                0
            } else {
                BUFFER_BYTES / 8
            }));
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(key);
        let key_end = self.buffer.len();
        self.buffer.extend_from_slice(value);
        let value_end = self.buffer.len();
        let mut headers = Vec::new();
        for header in message.headers().iter().flat_map(|headers| headers.iter()) {
            self.buffer.extend_from_slice(header.value.unwrap_or_default());
            headers.push((header.key.into(), self.buffer.len()));
        }
        let name_bytes: usize = headers.iter().map(|(name, _): &(Box<str>, usize)| name.len()).sum();
        self.amount += Amount::one(self.buffer.len() - start + name_bytes);
        self.pending_records.push(PendingRecord {
            at: Position { partition, offset: Offset(message.offset()) },
            written_at: Millis(message.timestamp().to_millis().unwrap_or(0)),
            start,
            key_end,
            value_end,
            headers,
        });
    }

    pub(super) const fn amount(&self) -> Amount {
        self.amount
    }

    pub(super) fn into_records(mut self) -> Vec<FetchedRecord> {
        self.close();
        self.finished_records
    }

    fn close(&mut self) {
        let buffer = Bytes::from(std::mem::take(&mut self.buffer));
        self.finished_records.extend(self.pending_records.drain(..).map(|record| {
            let mut start = record.value_end;
            let headers = record.headers.into_iter().map(|(name, end)| {
                let value = buffer.slice(start..end);
                start = end;
                (name, value)
            });
            FetchedRecord {
                at: record.at,
                key: buffer.slice(record.start..record.key_end),
                framed: buffer.slice(record.key_end..record.value_end),
                headers: Headers::from_iter(headers),
                written_at: record.written_at,
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rdkafka::{
        Timestamp,
        message::{Header, OwnedHeaders, OwnedMessage},
    };

    use super::*;
    use crate::topics::Topic;

    fn message(offset: i64, value: Option<Vec<u8>>) -> OwnedMessage {
        let headers = OwnedHeaders::new()
            .insert(Header { key: "a", value: Some("1") })
            .insert(Header { key: "b", value: None::<&str> })
            .insert(Header { key: "c", value: Some("23") });
        let headers = (offset == 1).then_some(headers);
        OwnedMessage::new(
            value,
            Some(b"key".to_vec()),
            "t".to_owned(),
            Timestamp::LogAppendTime(7),
            0,
            offset,
            headers,
        )
    }

    #[test]
    fn small_records_share_a_buffer_and_keep_their_parts() {
        let mut arena = Arena::default();
        let partition = Partition::new(Topic::Items, 0);
        for (offset, value) in [(0, Some(b"one".to_vec())), (1, Some(b"two".to_vec())), (2, None)] {
            arena.push(partition, &message(offset, value));
        }
        let amount = arena.amount();
        let records = arena.into_records();
        assert_eq!(amount, Amount { records: 3, bytes: records.iter().map(FetchedRecord::bytes).sum() });
        let parts: Vec<_> =
            records.iter().map(|record| (record.at.offset.0, &*record.key, &*record.framed)).collect();
        assert_eq!(parts, [(0, &b"key"[..], &b"one"[..]), (1, b"key", b"two"), (2, b"key", b"")]);
        assert_eq!(records[1].headers.get("c").map(|value| &**value), Some(&b"23"[..]));
        assert_eq!(records[1].headers.get("b").map(|value| &**value), Some(&b""[..]));
        assert!(records[0].headers.is_empty());
        // The second record's key begins right behind the first record's value: one buffer.
        assert_eq!(records[0].framed.as_ptr().wrapping_add(3), records[1].key.as_ptr());
        assert_eq!(records[0].written_at, Millis(7));
    }

    #[test]
    fn a_large_record_does_not_pin_the_small_ones_before_it() {
        let mut arena = Arena::default();
        let partition = Partition::new(Topic::Items, 0);
        arena.push(partition, &message(0, Some(b"small".to_vec())));
        arena.push(partition, &message(2, Some(vec![7; BUFFER_BYTES])));
        let records = arena.into_records();
        assert!(
            records[0].framed.is_unique() || records[0].key.len() == 3,
            "only its own key shares its buffer"
        );
        assert_eq!(records[1].framed.len(), BUFFER_BYTES);
        assert_eq!(records.len(), 2);
    }
}
