//! Keeps the latest of several answers to one question, or numbers them.
//!
//! Rows are expected in the order of a bundle.

use super::Row;

/// Lets the last row of each question pass, or numbers them all.
#[derive(Debug)]
pub(crate) struct Latest {
    events: bool,
    held: Option<Row>,
    number: u32,
    /// Rows that a later one has replaced.
    pub(crate) superseded: u64,
}

impl Latest {
    pub(crate) fn new(events: bool) -> Self {
        Self { events, held: None, number: 0, superseded: 0 }
    }

    /// The row that is due, with its number among those of its question (1 if only the latest counts).
    pub(crate) fn push(&mut self, row: Row) -> Option<(Row, u32)> {
        let held = self.held.replace(row)?;
        let same = held.same_question(&row);
        if !self.events {
            self.superseded += u64::from(same);
            return (!same).then_some((held, 1));
        }
        self.number += 1;
        let number = self.number;
        if !same {
            self.number = 0;
        }
        Some((held, number))
    }

    pub(crate) fn finish(&mut self) -> Option<(Row, u32)> {
        let number = if self.events { self.number + 1 } else { 1 };
        self.held.take().map(|row| (row, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{form::Answer, storage::rows::NO_OBJECT, timestamp::Timestamp};

    fn row(who: u128, seconds: i64, answer: Answer) -> Row {
        Row::new(who, 0, NO_OBJECT, answer, Timestamp::from_epoch(seconds), 0)
    }

    fn all(events: bool, rows: &[Row]) -> (Vec<(Row, u32)>, u64) {
        let mut latest = Latest::new(events);
        let mut out: Vec<_> = rows.iter().filter_map(|row| latest.push(*row)).collect();
        out.extend(latest.finish());
        (out, latest.superseded)
    }

    #[test]
    fn the_last_of_equal_times_wins() {
        let rows = [row(1, 5, Answer::Agree), row(1, 5, Answer::Pass), row(2, 1, Answer::Disagree)];
        assert_eq!(all(false, &rows), (vec![(rows[1], 1), (rows[2], 1)], 1));
    }

    #[test]
    fn events_are_all_kept_and_numbered() {
        let rows = [row(1, 4, Answer::Agree), row(1, 5, Answer::Pass), row(2, 1, Answer::Disagree)];
        assert_eq!(all(true, &rows), (vec![(rows[0], 1), (rows[1], 2), (rows[2], 1)], 0));
    }
}
