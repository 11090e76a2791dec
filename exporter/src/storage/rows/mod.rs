//! Packs one answer of one participant into 32 bytes, so that millions of rows can be sorted.

#![allow(
    clippy::cast_possible_truncation,
    reason = "fields are taken out of the words that they were packed into"
)]

pub(crate) mod latest;
pub(crate) mod order;
pub(crate) mod sorter;
pub(crate) mod spool;

use self::order::Flow;
use crate::{
    form::Answer,
    input::FileDigest,
    timestamp::{self, Timestamp},
};

/// Answer of one participant. Items are identified by their index in the list of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) pseudonym: u128,
    pub(crate) subject: u32,
    /// Second item of a comparison, or [`NO_OBJECT`].
    pub(crate) object: u32,
    /// Bit fields from the highest bit: time (49 bits, 0 for none), group (11 bits, 0 for none), time has a fraction
    /// (1 bit), answer (3 bits).
    packed: u64,
}

/// Result of reading an adapter's rows.
#[derive(Debug)]
pub(crate) struct ReadResult {
    pub(crate) flow: Flow,
    pub(crate) rows: u64,
    /// Size and digest of the file, if it was read to its end.
    pub(crate) file_digest: Option<FileDigest>,
}

pub(crate) const NO_OBJECT: u32 = u32::MAX;
/// Maps the earliest possible time to 1, because 0 means no time.
const TIME_OFFSET: i64 = 1 - timestamp::MIN_MILLIS;
const TIME_SHIFT: u32 = 15;
const GROUP_SHIFT: u32 = 4;
const GROUP_MASK: u64 = (1 << (TIME_SHIFT - GROUP_SHIFT)) - 1;
/// Maximum number of groups, limited by the bits of a row.
pub(crate) const MAX_GROUPS: usize = GROUP_MASK as usize;

const _: () = assert!(
    (timestamp::MAX_MILLIS + TIME_OFFSET).cast_unsigned() < 1 << (u64::BITS - TIME_SHIFT),
    "all times fit into their bits"
);

impl Row {
    /// Placeholder for a slot that is filled later.
    pub(crate) const PLACEHOLDER: Self = Self { pseudonym: 0, subject: 0, object: NO_OBJECT, packed: 0 };

    pub(crate) fn new(
        pseudonym: u128,
        subject: u32,
        object: u32,
        answer: Answer,
        at: Option<Timestamp>,
        group: u16,
    ) -> Self {
        let time = at.map_or(0, |at| (at.millis + TIME_OFFSET).cast_unsigned());
        let has_fraction = u64::from(at.is_some_and(|at| at.has_millis));
        let packed = time << TIME_SHIFT
            | (u64::from(group) & GROUP_MASK) << GROUP_SHIFT
            | has_fraction << 3
            | u64::from(answer as u8);
        Self { pseudonym, subject, object, packed }
    }

    /// Copy of the row with another participant and group.
    #[inline]
    pub(crate) fn with_participant(self, pseudonym: u128, group: u16) -> Self {
        let bits_without_group = self.packed & !(GROUP_MASK << GROUP_SHIFT);
        Self {
            pseudonym,
            packed: bits_without_group | (u64::from(group) & GROUP_MASK) << GROUP_SHIFT,
            ..self
        }
    }

    pub(crate) fn answer(self) -> Answer {
        // Three bits could be 6 or 7, which `new` never stores; the remainder makes the index valid for the compiler.
        Answer::ALL[(self.packed & 7) as usize % Answer::ALL.len()]
    }

    /// Index of the group plus one; 0 for none.
    pub(crate) fn group(self) -> usize {
        (self.packed >> GROUP_SHIFT & GROUP_MASK) as usize
    }

    pub(crate) fn time(self) -> Option<Timestamp> {
        let time = self.packed >> TIME_SHIFT;
        (time != 0)
            .then(|| Timestamp { millis: time.cast_signed() - TIME_OFFSET, has_millis: self.packed & 8 != 0 })
    }

    /// True if both rows are answers of one participant to one item or pair.
    pub(crate) fn is_same_question(&self, other: &Self) -> bool {
        self.pseudonym == other.pseudonym && self.subject == other.subject && self.object == other.object
    }

    /// Key of the bundle order. The answer is not part of it: rows with equal keys keep the order of their file.
    pub(crate) fn sort_key(&self) -> (u32, u32, u128, u64) {
        // Wrapping turns `NO_OBJECT` into 0, so that single answers are before comparisons.
        (self.subject, self.object.wrapping_add(1), self.pseudonym, self.packed >> TIME_SHIFT)
    }

    pub(crate) fn to_bytes(self) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        bytes[..16].copy_from_slice(&self.pseudonym.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.subject.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.object.to_le_bytes());
        bytes[24..].copy_from_slice(&self.packed.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; ROW_BYTES]) -> Self {
        let pseudonym = u128::from_le_bytes(read_half(bytes, 0));
        let packed_fields = u128::from_le_bytes(read_half(bytes, 16));
        Self {
            pseudonym,
            subject: packed_fields as u32,
            object: (packed_fields >> 32) as u32,
            packed: (packed_fields >> 64) as u64,
        }
    }
}

pub(crate) const ROW_BYTES: usize = 32;

fn read_half(bytes: &[u8; ROW_BYTES], from: usize) -> [u8; 16] {
    let mut bytes_of_half = [0; 16];
    bytes_of_half.copy_from_slice(&bytes[from..from + 16]);
    bytes_of_half
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn packed_row_keeps_its_fields() {
        let ends = ["0000-01-01T00:00:00Z", "6429-10-17T02:45:55.328Z", "9999-12-31T23:59:59.999Z"];
        let ends = ends.map(|text| Some(Timestamp::parse(text).unwrap()));
        let last_group = u16::try_from(MAX_GROUPS).unwrap();
        for at in [None, Timestamp::from_epoch(1_658_933_760_180), Timestamp::from_epoch(-5)]
            .into_iter()
            .chain(ends)
        {
            for answer in Answer::ALL {
                let row = Row::new(u128::MAX - 7, 3, 9, answer, at, last_group)
                    .with_participant(u128::MAX - 7, last_group);
                let decoded = Row::from_bytes(&row.to_bytes());
                assert_eq!(row, decoded);
                assert_eq!((decoded.answer(), decoded.time(), decoded.group()), (answer, at, MAX_GROUPS));
            }
        }
    }

    #[test]
    fn sort_key_orders_by_time_and_ignores_answer_and_group() {
        let at = |seconds| Timestamp::from_epoch(seconds);
        let early_row = Row::new(1, 0, NO_OBJECT, Answer::Equal, at(10), 7);
        let late_row = Row::new(1, 0, NO_OBJECT, Answer::Agree, at(11), 0);
        assert!(early_row.sort_key() < late_row.sort_key());
        let timeless_row = Row::new(1, 0, NO_OBJECT, Answer::Equal, None, 7);
        assert!(timeless_row.sort_key() < early_row.sort_key());
        let same_time_row = Row::new(1, 0, NO_OBJECT, Answer::Disagree, at(10), 0);
        assert_eq!(early_row.sort_key(), same_time_row.sort_key());
    }
}
