//! One answer of one participant, packed into 32 bytes so that millions can be sorted.

#![allow(
    clippy::cast_possible_truncation,
    reason = "fields are taken out of the words that they were packed into"
)]

pub(crate) mod latest;
pub(crate) mod order;
pub(crate) mod sorter;

use self::order::Flow;
use crate::{
    form::Answer,
    input::FileDigest,
    timestamp::{self, Timestamp},
};

/// 32 bytes. Items are named by their place in the list of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) who: u128,
    pub(crate) subject: u32,
    /// `NO_OBJECT` if there is no second item.
    pub(crate) object: u32,
    /// Bit fields from the top: time (49 bits, 0 for none), group (11 bits, 0 for none), fraction (1 bit), answer (3
    /// bits).
    packed: u64,
}

/// Result of reading an adapter's rows.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) flow: Flow,
    pub(crate) rows: u64,
    /// The file of the rows, if it was read to its end.
    pub(crate) ended: Option<FileDigest>,
}

pub(crate) const NO_OBJECT: u32 = u32::MAX;
/// The first moment that there can be is 1.
const OFFSET: i64 = 1 - timestamp::FIRST;
const TIME: u32 = 15;
const GROUP: u32 = 4;
const GROUPS: u64 = (1 << (TIME - GROUP)) - 1;
/// Number of groups that a row can tell apart.
pub(crate) const MOST_GROUPS: usize = GROUPS as usize;

const _: () =
    assert!((timestamp::LAST + OFFSET).cast_unsigned() < 1 << (u64::BITS - TIME), "each has a place");

impl Row {
    /// Stands where a row will be.
    pub(crate) const NONE: Self = Self { who: 0, subject: 0, object: NO_OBJECT, packed: 0 };

    pub(crate) fn new(
        who: u128,
        subject: u32,
        object: u32,
        answer: Answer,
        at: Option<Timestamp>,
        group: u16,
    ) -> Self {
        let time = at.map_or(0, |at| (at.millis + OFFSET).cast_unsigned());
        let fine = u64::from(at.is_some_and(|at| at.fine));
        let packed =
            time << TIME | (u64::from(group) & GROUPS) << GROUP | fine << 3 | u64::from(answer as u8);
        Self { who, subject, object, packed }
    }

    /// Same answer by this participant and group.
    #[inline]
    pub(crate) fn by(self, who: u128, group: u16) -> Self {
        let others = self.packed & !(GROUPS << GROUP);
        Self { who, packed: others | (u64::from(group) & GROUPS) << GROUP, ..self }
    }

    pub(crate) fn answer(self) -> Answer {
        Answer::ALL[(self.packed & 7) as usize % Answer::ALL.len()]
    }

    /// 0 for none, else one more than its place among the groups.
    pub(crate) fn group(self) -> usize {
        (self.packed >> GROUP & GROUPS) as usize
    }

    pub(crate) fn at(self) -> Option<Timestamp> {
        let time = self.packed >> TIME;
        (time != 0).then(|| Timestamp { millis: time.cast_signed() - OFFSET, fine: self.packed & 8 != 0 })
    }

    /// Rows of one participant about one thing.
    pub(crate) fn same_question(&self, other: &Self) -> bool {
        self.who == other.who && self.subject == other.subject && self.object == other.object
    }

    /// The order of a bundle; rows that are equal in it keep that of their file.
    pub(crate) fn sort_key(&self) -> (u32, u32, u128, u64) {
        // No object comes first.
        (self.subject, self.object.wrapping_add(1), self.who, self.packed >> TIME)
    }

    pub(crate) fn to_bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..16].copy_from_slice(&self.who.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.subject.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.object.to_le_bytes());
        bytes[24..].copy_from_slice(&self.packed.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; SIZE]) -> Self {
        let whole = u128::from_le_bytes(half(bytes, 0));
        let rest = u128::from_le_bytes(half(bytes, 16));
        Self { who: whole, subject: rest as u32, object: (rest >> 32) as u32, packed: (rest >> 64) as u64 }
    }
}

pub(crate) const SIZE: usize = 32;

fn half(bytes: &[u8; SIZE], from: usize) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&bytes[from..from + 16]);
    half
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_what_it_was_made_of() {
        let ends = ["0000-01-01T00:00:00Z", "6429-10-17T02:45:55.328Z", "9999-12-31T23:59:59.999Z"];
        let ends = ends.map(|text| Some(Timestamp::parse(text).unwrap()));
        let most = u16::try_from(MOST_GROUPS).unwrap();
        for at in [None, Timestamp::from_epoch(1_658_933_760_180), Timestamp::from_epoch(-5)]
            .into_iter()
            .chain(ends)
        {
            for answer in Answer::ALL {
                let row = Row::new(u128::MAX - 7, 3, 9, answer, at, most).by(u128::MAX - 7, most);
                let back = Row::from_bytes(&row.to_bytes());
                assert_eq!(row, back);
                assert_eq!((back.answer(), back.at(), back.group()), (answer, at, MOST_GROUPS));
            }
        }
    }

    #[test]
    fn later_rows_come_later_whatever_they_answer() {
        let at = |seconds| Timestamp::from_epoch(seconds);
        let early = Row::new(1, 0, NO_OBJECT, Answer::Equal, at(10), 7);
        let late = Row::new(1, 0, NO_OBJECT, Answer::Agree, at(11), 0);
        assert!(early.sort_key() < late.sort_key());
        let unknown = Row::new(1, 0, NO_OBJECT, Answer::Equal, None, 7);
        assert!(unknown.sort_key() < early.sort_key());
        let twin = Row::new(1, 0, NO_OBJECT, Answer::Disagree, at(10), 0);
        assert_eq!(early.sort_key(), twin.sort_key());
    }
}
