//! Writes Polis' participant table, with a row per participant and a column per statement.
//!
//! Columns without data in a bundle stay empty: the number of comments, and ids of the embedding site.

#![allow(clippy::cast_possible_truncation, reason = "an item's place was put where it is taken from")]

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    rc::Rc,
};

use super::{Cells, FinishedFile, PartialFile, VoterIds, csv_row};
use crate::{
    error::ConvertError,
    form::Answer,
    meter::Meter,
    storage::rows::{NO_OBJECT, Row, sorter::Sorter},
    timestamp::Timestamp,
};

/// Columns before those of the statements.
pub(super) const COLUMNS: [&str; 8] =
    ["participant", "xid", "group-id", "n-comments", "n-votes", "n-agree", "n-disagree", "n-pass"];
/// Statement key that would make the table look like one of comments or votes.
pub(super) const RESERVED_KEY: &str = "comment-id";

/// Collects votes in any order.
pub(super) struct Matrix {
    /// Transposed rows (participant as item, item as participant), so that the sorter returns them by participant.
    votes: Sorter,
    participants: Vec<Rc<str>>,
}

impl Matrix {
    pub(super) fn new(folder: &Path, memory: usize) -> Self {
        Self { votes: Sorter::new(folder, memory), participants: Vec::new() }
    }

    /// Adds a participant, and returns its row index.
    pub(super) fn add_participant(&mut self, reference: Rc<str>) -> u32 {
        self.participants.push(reference);
        self.participants.len() as u32 - 1
    }

    pub(super) fn add_vote(
        &mut self,
        participant: u32,
        item: u32,
        answer: Answer,
        at: Option<Timestamp>,
    ) -> Result<(), ConvertError> {
        self.votes.push(Row::new(u128::from(item), participant, NO_OBJECT, answer, at, 0))
    }

    pub(super) fn write(
        self,
        path: PathBuf,
        columns: &[&str],
        (voters, cells): (VoterIds, Cells),
        groups: &HashMap<String, String>,
        meter: &Meter,
    ) -> Result<FinishedFile, ConvertError> {
        let mut file = PartialFile::create(path)?;
        let header = [&COLUMNS[..], columns].concat();
        csv_row(&mut file, &header, cells)?;
        let mut matrix_row = MatrixRow { file, votes: vec![None; columns.len()], cells };
        let id_and_group = |at: u32| {
            let reference = &*self.participants[at as usize];
            let id = match voters {
                VoterIds::References => reference.to_owned(),
                VoterIds::Numbers => at.to_string(),
            };
            (id, groups.get(reference).map_or("", String::as_str))
        };
        let mut last_participant = None;
        self.votes.finish(|row| {
            // The previous participant is complete once another one begins.
            if let Some(previous) = last_participant.replace(row.subject)
                && previous != row.subject
            {
                meter.check_stop()?;
                let (id, group) = id_and_group(previous);
                matrix_row.finish_row(&id, group)?;
            }
            // Repeated answers are sorted by time, so the latest one wins.
            matrix_row.votes[row.pseudonym as usize] = Some(row.answer());
            Ok(())
        })?;
        if let Some(participant) = last_participant {
            let (id, group) = id_and_group(participant);
            matrix_row.finish_row(&id, group)?;
        }
        matrix_row.file.finish()
    }
}

/// Row of one participant.
struct MatrixRow {
    file: PartialFile,
    votes: Vec<Option<Answer>>,
    cells: Cells,
}

impl MatrixRow {
    fn finish_row(&mut self, id: &str, group: &str) -> Result<(), ConvertError> {
        let count = |answer| self.votes.iter().filter(|vote| **vote == Some(answer)).count();
        let counts = [Answer::Agree, Answer::Disagree, Answer::Pass].map(count);
        let [agrees, disagrees, passes] = counts.map(|count| count.to_string());
        let total = counts.iter().sum::<usize>().to_string();
        let mut row = vec![id, "", group, "", &total, &agrees, &disagrees, &passes];
        row.extend(self.votes.iter().map(|vote| match vote {
            Some(Answer::Agree) => "1",
            Some(Answer::Disagree) => "-1",
            Some(_) => "0",
            None => "",
        }));
        csv_row(&mut self.file, &row, self.cells)?;
        self.votes.fill(None);
        Ok(())
    }
}
