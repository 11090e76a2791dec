//! Fast path for typical rows of votes: canonical numbers without quotes, parsed eight bytes at a time.
//!
//! Returns `None` for any other row, which the caller then parses field by field.

use memchr::{memchr, memchr_iter, memchr2};

use crate::form::Answer;

/// Meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Timestamp,
    Comment,
    Voter,
    Vote,
    Other,
}

/// Columns up to the last one that is needed.
#[derive(Debug)]
pub(super) struct Columns {
    columns: Vec<Column>,
    /// Number of columns after the needed ones.
    trailing: usize,
}

impl Columns {
    /// Returns `None` if one column has two meanings.
    pub(super) fn new(
        count: usize,
        total: usize,
        assignments: impl Iterator<Item = (usize, Column)>,
    ) -> Option<Self> {
        let mut columns = vec![Column::Other; count];
        for (at, column) in assignments {
            match columns.get_mut(at) {
                Some(column_slot @ Column::Other) => *column_slot = column,
                _ => return None,
            }
        }
        Some(Self { columns, trailing: total.saturating_sub(count) })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FastRow {
    pub(super) timestamp: Option<i64>,
    pub(super) comment: u64,
    pub(super) voter: u64,
    pub(super) answer: Answer,
}

impl FastRow {
    /// Parses the row at the start of `text`. Returns it with its length, including the end of line.
    #[inline]
    pub(super) fn parse(text: &[u8], columns: &Columns) -> Option<(Self, usize)> {
        let mut row = Self { timestamp: None, comment: 0, voter: 0, answer: Answer::Pass };
        let mut at = 0;
        let (last, leading) = columns.columns.split_last()?;
        for column in leading {
            at = row.parse_field(text, at, *column)?;
            if *text.get(at)? != b',' {
                return None;
            }
            at += 1;
        }
        at = row.parse_field(text, at, *last)?;
        let end = match text.get(at..at + 2)? {
            [b'\n', _] => at + 1,
            b"\r\n" => at + 2,
            // More columns follow. Only their number matters.
            [b',', _] => {
                let line = memchr(b'\n', &text[at..])?;
                if memchr_iter(b',', &text[at..at + line]).count() > columns.trailing {
                    return None;
                }
                at + 1 + line
            }
            _ => return None,
        };
        Some((row, end))
    }

    /// Parses one field, and returns its end.
    #[inline]
    fn parse_field(&mut self, text: &[u8], at: usize, column: Column) -> Option<usize> {
        match column {
            Column::Timestamp => {
                let (count, end) = parse_digits(text, at)?;
                self.timestamp = Some(count.cast_signed());
                Some(end)
            }
            Column::Comment => {
                let (number, end) = parse_canonical(text, at)?;
                self.comment = number;
                Some(end)
            }
            Column::Voter => {
                let (number, end) = parse_canonical(text, at)?;
                self.voter = number;
                Some(end)
            }
            Column::Vote => {
                let (answer, length) = match text.get(at..at + 2)? {
                    [b'1', _] => (Answer::Agree, 1),
                    [b'0', _] => (Answer::Pass, 1),
                    b"-1" => (Answer::Disagree, 2),
                    _ => return None,
                };
                self.answer = answer;
                Some(at + length)
            }
            Column::Other => {
                let end = at + memchr2(b',', b'\n', text.get(at..)?)?;
                // A line end here means a missing column.
                (text[end] == b',').then_some(end)
            }
        }
    }
}

/// Parses a number without leading zeros.
#[inline]
fn parse_canonical(text: &[u8], at: usize) -> Option<(u64, usize)> {
    let (number, end) = parse_digits(text, at)?;
    (text[at] != b'0' || end == at + 1).then_some((number, end))
}

const TENS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Parses one to fifteen digits, and returns the number and its end.
#[inline]
fn parse_digits(text: &[u8], at: usize) -> Option<(u64, usize)> {
    let (high, count) = parse_eight_digits(text, at)?;
    match count {
        0 => None,
        1..8 => Some((high, at + count)),
        _ => {
            // All eight bytes are digits: the number may continue in the next eight.
            let (low, low_count) = parse_eight_digits(text, at + 8)?;
            let scale = TENS.get(low_count)?;
            Some((high * scale + low, at + 8 + low_count))
        }
    }
}

/// Parses the digits among the next eight bytes. Returns their value and number.
#[inline]
fn parse_eight_digits(text: &[u8], at: usize) -> Option<(u64, usize)> {
    let chunk = text.get(at..at + 8)?.first_chunk()?;
    // Each byte becomes the value of its digit, or at least ten for other characters.
    let values = u64::from_le_bytes(*chunk) ^ 0x3030_3030_3030_3030;
    let non_digits =
        (((values & 0x7f7f_7f7f_7f7f_7f7f) + 0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
    let count = (non_digits.trailing_zeros() / 8) as usize;
    if count == 0 {
        return Some((0, 0));
    }
    // Shifts the digits to the high bytes (zeros in front), and joins neighbours: single digits, pairs, groups of
    // four.
    let ones = values << (64 - 8 * count);
    let twos = (ones.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (twos.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    Some((fours.wrapping_mul(10_000 << 32 | 1) >> 32, count))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn columns() -> Columns {
        let assignments =
            [(0, Column::Timestamp), (2, Column::Comment), (3, Column::Voter), (4, Column::Vote)];
        Columns::new(5, 7, assignments.into_iter()).unwrap()
    }

    /// Parses a row that is followed by more text.
    fn parse_row(row: &str) -> Option<(FastRow, usize)> {
        FastRow::parse(format!("{row}\n1600000000000,").as_bytes(), &columns())
    }

    proptest! {
        #[test]
        fn canonical_numbers_are_parsed(number in (0..50_u32).prop_flat_map(|bits| 0..1_u64 << bits), suffix in "[^0-9].{20}") {
            prop_assume!(number < 1_000_000_000_000_000);
            let text = format!("{number}{suffix}");
            prop_assert_eq!(parse_canonical(text.as_bytes(), 0), Some((number, number.to_string().len())));
        }

        #[test]
        fn text_without_digits_is_no_number(text in "[^0-9].{20}") {
            prop_assert_eq!(parse_digits(text.as_bytes(), 0), None);
        }

        #[test]
        fn arbitrary_text_never_panics(text in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some((_, length)) = FastRow::parse(&text, &columns()) {
                prop_assert!(length <= text.len() && text[length - 1] == b'\n');
            }
        }
    }

    #[test]
    fn typical_rows_take_the_fast_path() {
        for (vote, answer) in [("1", Answer::Agree), ("-1", Answer::Disagree), ("0", Answer::Pass)] {
            for end in ["", "\r", ",more,columns"] {
                let row = format!("1600000000123,Wed Jul 27 21:56:00 WIB 2022,17,384000,{vote}{end}");
                let parsed =
                    FastRow { timestamp: Some(1_600_000_000_123), comment: 17, voter: 384_000, answer };
                assert_eq!(parse_row(&row), Some((parsed, row.len() + 1)), "{row}");
            }
        }
    }

    #[test]
    fn other_rows_are_left_to_the_slow_path() {
        for row in [
            "1600000000123,x,17,3,2",
            "1600000000123,x,17,3,11",
            "1600000000123,x,17,3,-",
            "1600000000123,x,17,03,1",
            "1600000000123,x,17,p3,1",
            "1600000000123,x,17,,1",
            "1600000000123,x,17,3x,1",
            "1600000000123,x,17a,3,1",
            "1600000000123,17,3,1",
            "1600000000.5,x,17,3,1",
            "1600000000123,x,17,3,1,more,columns,than",
            ",x,17,3,1",
            "-5,x,17,3,1",
            "1234567890123456,x,17,3,1",
            "",
        ] {
            assert_eq!(parse_row(row), None, "{row}");
        }
        // Without a following byte, the block may end in the middle of a line.
        assert_eq!(FastRow::parse(b"1600000000123,x,17,3,1", &columns()), None);
    }
}
