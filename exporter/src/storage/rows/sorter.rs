//! External merge sort of rows. Stable: rows with equal keys keep their order of arrival.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use super::{ROW_BYTES, Row};
use crate::error::ConvertError;

/// Collects rows, and returns them in order.
#[derive(Debug)]
pub(crate) struct Sorter {
    folder: PathBuf,
    rows: Vec<Row>,
    max_rows: usize,
    runs: Vec<File>,
}

/// Number of runs at which all are merged into one. Each run costs an open file and a read buffer.
const MAX_RUNS: usize = 128;
const MIN_ROWS: usize = 1_024;
const BUFFER_BYTES: usize = 64 << 10;

impl Sorter {
    /// `memory` is the limit in bytes. Runs are unnamed files in `folder`, which the operating system removes when the
    /// process ends.
    pub(crate) fn new(folder: &Path, memory: usize) -> Self {
        // A stable sort allocates a buffer of half the rows' size.
        let max_rows = (memory / ROW_BYTES * 2 / 3).max(MIN_ROWS);
        Self { folder: folder.to_owned(), rows: Vec::new(), max_rows, runs: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: Row) -> Result<(), ConvertError> {
        if self.rows.len() == self.max_rows {
            self.write_run()?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Calls `visit` with each row in order.
    pub(crate) fn finish(
        mut self,
        mut visit: impl FnMut(Row) -> Result<(), ConvertError>,
    ) -> Result<(), ConvertError> {
        if self.runs.is_empty() {
            self.rows.sort_by_key(Row::sort_key);
            return self.rows.into_iter().try_for_each(visit);
        }
        self.write_run()?;
        // Releases the memory of the rows before the merge allocates its buffers.
        self.rows = Vec::new();
        merge_runs(&mut self.runs, &self.folder, &mut visit)
    }

    fn write_run(&mut self) -> Result<(), ConvertError> {
        self.rows.sort_by_key(Row::sort_key);
        let mut run = self.create_run()?;
        let write_result = self.rows.iter().try_for_each(|row| run.write_all(&row.to_bytes()));
        let finished_run =
            write_result.and_then(|()| run.into_inner().map_err(io::IntoInnerError::into_error));
        self.runs.push(finished_run.map_err(|error| self.sort_error(error))?);
        self.rows.clear();
        if self.runs.len() == MAX_RUNS {
            let mut merged_run = self.create_run()?;
            let mut runs = std::mem::take(&mut self.runs);
            let folder = self.folder.clone();
            merge_runs(&mut runs, &folder, &mut |row| {
                merged_run.write_all(&row.to_bytes()).map_err(|error| sort_error(&folder, error))
            })?;
            let finished_run = merged_run.into_inner().map_err(io::IntoInnerError::into_error);
            self.runs.push(finished_run.map_err(|error| self.sort_error(error))?);
        }
        Ok(())
    }

    fn create_run(&self) -> Result<BufWriter<File>, ConvertError> {
        let file = tempfile::tempfile_in(&self.folder).map_err(|error| self.sort_error(error))?;
        Ok(BufWriter::with_capacity(BUFFER_BYTES, file))
    }

    fn sort_error(&self, error: io::Error) -> ConvertError {
        sort_error(&self.folder, error)
    }
}

fn sort_error(folder: &Path, error: io::Error) -> ConvertError {
    ConvertError::io("sorting rows in", folder, error)
}

fn merge_runs(
    runs: &mut [File],
    folder: &Path,
    visit: &mut impl FnMut(Row) -> Result<(), ConvertError>,
) -> Result<(), ConvertError> {
    let mut readers = Vec::with_capacity(runs.len());
    let mut heads = BinaryHeap::with_capacity(runs.len());
    for (run, file) in runs.iter_mut().enumerate() {
        file.rewind().map_err(|error| sort_error(folder, error))?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
        if let Some(row) = read_row(&mut reader).map_err(|error| sort_error(folder, error))? {
            heads.push(Reverse(RunHead { row, run }));
        }
        readers.push(reader);
    }
    while let Some(Reverse(RunHead { row, run })) = heads.pop() {
        if let Some(row) = read_row(&mut readers[run]).map_err(|error| sort_error(folder, error))? {
            heads.push(Reverse(RunHead { row, run }));
        }
        visit(row)?;
    }
    Ok(())
}

fn read_row(from: &mut impl Read) -> io::Result<Option<Row>> {
    let mut bytes = [0; ROW_BYTES];
    match from.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(Row::from_bytes(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Next row of a run. Among equal rows the earlier run is first, since runs were written in the order of the input.
struct RunHead {
    row: Row,
    run: usize,
}

impl Ord for RunHead {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.row.sort_key(), self.run).cmp(&(other.row.sort_key(), other.run))
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
    fn sort_with_many_runs_equals_sort_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let rows: Vec<_> = (0..300_000_u32)
            .map(|index| {
                let scattered = index.wrapping_mul(2_654_435_761);
                let answer = Answer::ALL[(index % 6) as usize];
                Row::new(
                    u128::from(scattered % 5_000),
                    scattered >> 27,
                    NO_OBJECT,
                    answer,
                    None,
                    (index % 4_000) as u16,
                )
            })
            .collect();
        let mut expected_rows = rows.clone();
        expected_rows.sort_by_key(Row::sort_key);
        // 1,024 rows a run: more runs than `MAX_RUNS`.
        let mut sorter = Sorter::new(folder.path(), 0);
        rows.iter().for_each(|row| sorter.push(*row).unwrap());
        let mut sorted_rows = Vec::new();
        sorter
            .finish(|row| {
                sorted_rows.push(row);
                Ok(())
            })
            .unwrap();
        assert!(sorted_rows == expected_rows);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
