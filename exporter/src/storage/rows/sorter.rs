//! External merge sort of rows.
//!
//! It is stable: rows with equal keys keep the order in which they came.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use super::{Row, SIZE};
use crate::error::ConvertError;

/// Collects rows, and gives them back in order.
#[derive(Debug)]
pub(crate) struct Sorter {
    folder: PathBuf,
    rows: Vec<Row>,
    most: usize,
    runs: Vec<File>,
}

/// More runs than this are merged into one before there are more: each costs a file and a buffer.
const MOST_RUNS: usize = 128;
const LEAST_ROWS: usize = 1_024;
const BUFFER: usize = 64 << 10;

impl Sorter {
    /// `memory` bounds the bytes held; runs lie in unnamed files of the folder, which vanish with the process.
    pub(crate) fn new(folder: &Path, memory: usize) -> Self {
        // The sort itself needs half as much again.
        let most = (memory / SIZE * 2 / 3).max(LEAST_ROWS);
        Self { folder: folder.to_owned(), rows: Vec::new(), most, runs: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: Row) -> Result<(), ConvertError> {
        if self.rows.len() == self.most {
            self.spill()?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Calls with each row in order.
    pub(crate) fn finish(
        mut self,
        mut each: impl FnMut(Row) -> Result<(), ConvertError>,
    ) -> Result<(), ConvertError> {
        if self.runs.is_empty() {
            self.rows.sort_by_key(Row::sort_key);
            return self.rows.into_iter().try_for_each(each);
        }
        self.spill()?;
        self.rows = Vec::new();
        merge(&mut self.runs, &self.folder, &mut each)
    }

    fn spill(&mut self) -> Result<(), ConvertError> {
        self.rows.sort_by_key(Row::sort_key);
        let mut file = self.run()?;
        let written = self.rows.iter().try_for_each(|row| file.write_all(&row.to_bytes()));
        let run = written.and_then(|()| file.into_inner().map_err(io::IntoInnerError::into_error));
        self.runs.push(run.map_err(|error| self.failed(error))?);
        self.rows.clear();
        if self.runs.len() == MOST_RUNS {
            let mut whole = self.run()?;
            let mut runs = std::mem::take(&mut self.runs);
            let folder = self.folder.clone();
            merge(&mut runs, &folder, &mut |row| {
                whole.write_all(&row.to_bytes()).map_err(|error| failed(&folder, error))
            })?;
            let whole = whole.into_inner().map_err(io::IntoInnerError::into_error);
            self.runs.push(whole.map_err(|error| self.failed(error))?);
        }
        Ok(())
    }

    fn run(&self) -> Result<BufWriter<File>, ConvertError> {
        let file = tempfile::tempfile_in(&self.folder).map_err(|error| self.failed(error))?;
        Ok(BufWriter::with_capacity(BUFFER, file))
    }

    fn failed(&self, error: io::Error) -> ConvertError {
        failed(&self.folder, error)
    }
}

fn failed(folder: &Path, error: io::Error) -> ConvertError {
    ConvertError::io("sorting rows in", folder, error)
}

fn merge(
    runs: &mut [File],
    folder: &Path,
    each: &mut impl FnMut(Row) -> Result<(), ConvertError>,
) -> Result<(), ConvertError> {
    let mut readers = Vec::with_capacity(runs.len());
    let mut next = BinaryHeap::with_capacity(runs.len());
    for (at, run) in runs.iter_mut().enumerate() {
        run.rewind().map_err(|error| failed(folder, error))?;
        let mut reader = BufReader::with_capacity(BUFFER, run);
        if let Some(row) = read(&mut reader).map_err(|error| failed(folder, error))? {
            next.push(Reverse(RunHead { row, at }));
        }
        readers.push(reader);
    }
    while let Some(Reverse(RunHead { row, at })) = next.pop() {
        if let Some(row) = read(&mut readers[at]).map_err(|error| failed(folder, error))? {
            next.push(Reverse(RunHead { row, at }));
        }
        each(row)?;
    }
    Ok(())
}

fn read(from: &mut impl Read) -> io::Result<Option<Row>> {
    let mut bytes = [0; SIZE];
    match from.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(Row::from_bytes(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs were filled in the order of the input, so the earlier run goes first.
struct RunHead {
    row: Row,
    at: usize,
}

impl Ord for RunHead {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.row.sort_key(), self.at).cmp(&(other.row.sort_key(), other.at))
    }
}

impl PartialOrd for RunHead {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RunHead {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RunHead {}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
mod tests {
    use super::*;
    use crate::{form::Answer, storage::rows::NO_OBJECT};

    #[test]
    fn many_runs_give_the_same_order_as_memory_alone() {
        let folder = tempfile::tempdir().unwrap();
        let rows: Vec<_> = (0..300_000_u32)
            .map(|at| {
                let mixed = at.wrapping_mul(2_654_435_761);
                let answer = Answer::ALL[(at % 6) as usize];
                Row::new(u128::from(mixed % 5_000), mixed >> 27, NO_OBJECT, answer, None, (at % 4_000) as u16)
            })
            .collect();
        let mut expected = rows.clone();
        expected.sort_by_key(Row::sort_key);
        // 1,024 rows a run: more runs than are merged at once.
        let mut sorter = Sorter::new(folder.path(), 0);
        rows.iter().for_each(|row| sorter.push(*row).unwrap());
        let mut found = Vec::new();
        sorter
            .finish(|row| {
                found.push(row);
                Ok(())
            })
            .unwrap();
        assert!(found == expected);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
