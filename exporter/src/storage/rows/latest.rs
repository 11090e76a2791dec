//! Keeps the latest of several answers to one question, or numbers them. Rows have to arrive in the order of a bundle.

use super::Row;

/// Filter that returns the last row of each question, or numbers all rows of a question if `events` is set.
#[derive(Debug)]
pub(crate) struct LatestAnswers {
    events: bool,
    previous_row: Option<Row>,
    number: u32,
    /// Number of rows that were replaced by a later row.
    pub(crate) superseded: u64,
}

impl LatestAnswers {
    pub(crate) fn new(events: bool) -> Self {
        Self { events, previous_row: None, number: 0, superseded: 0 }
    }

    /// Returns the previous row unless `row` replaces it, with its number among the rows of its question (1 if only the
    /// latest counts).
    pub(crate) fn push(&mut self, row: Row) -> Option<(Row, u32)> {
        let previous_row = self.previous_row.replace(row)?;
        let is_same_question = previous_row.is_same_question(&row);
        if !self.events {
            self.superseded += u64::from(is_same_question);
            return (!is_same_question).then_some((previous_row, 1));
        }
        self.number += 1;
        let number = self.number;
        // The next row belongs to another question, with numbers from 1.
        if !is_same_question {
            self.number = 0;
        }
        Some((previous_row, number))
    }

    pub(crate) fn finish(&mut self) -> Option<(Row, u32)> {
        let number = if self.events { self.number + 1 } else { 1 };
        self.previous_row.take().map(|row| (row, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{form::Answer, storage::rows::NO_OBJECT, timestamp::Timestamp};

    fn row(pseudonym: u128, seconds: i64, answer: Answer) -> Row {
        Row::new(pseudonym, 0, NO_OBJECT, answer, Timestamp::from_epoch(seconds), 0)
    }

    fn collect_answers(events: bool, rows: &[Row]) -> (Vec<(Row, u32)>, u64) {
        let mut latest = LatestAnswers::new(events);
        let mut answers: Vec<_> = rows.iter().filter_map(|row| latest.push(*row)).collect();
        answers.extend(latest.finish());
        (answers, latest.superseded)
    }

    #[test]
    fn last_row_with_equal_time_is_kept() {
        let rows = [row(1, 5, Answer::Agree), row(1, 5, Answer::Pass), row(2, 1, Answer::Disagree)];
        assert_eq!(collect_answers(false, &rows), (vec![(rows[1], 1), (rows[2], 1)], 1));
    }

    #[test]
    fn events_are_all_kept_and_numbered() {
        let rows = [row(1, 4, Answer::Agree), row(1, 5, Answer::Pass), row(2, 1, Answer::Disagree)];
        assert_eq!(collect_answers(true, &rows), (vec![(rows[0], 1), (rows[1], 2), (rows[2], 1)], 0));
    }
}
