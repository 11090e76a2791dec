//! File of rows with provisional subjects: items are sorted after their rows were written, and each reading of the rows
//! replaces the subjects.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use super::{ROW_BYTES, ReadResult, Row, order::Flow};
use crate::{
    error::ConvertError, privacy::participants::ParticipantRegistry, storage::spill::create_temporary_file,
};

/// Rows under construction.
#[derive(Debug)]
pub(crate) struct RowSpooler {
    file: BufWriter<File>,
    folder: PathBuf,
    rows: u64,
}

/// Finished file of rows. It is unnamed, so the operating system removes it when the process ends.
#[derive(Debug)]
pub(crate) struct SpooledRows {
    file: File,
    folder: PathBuf,
    rows: u64,
    /// Final subject of each provisional one.
    subjects: Vec<u32>,
}

impl RowSpooler {
    pub(crate) fn new(folder: &Path) -> Result<Self, ConvertError> {
        let file = create_temporary_file(folder).map_err(|error| spool_error(folder, error))?;
        Ok(Self { file, folder: folder.to_owned(), rows: 0 })
    }

    pub(crate) fn push(&mut self, row: Row) -> io::Result<()> {
        self.rows += 1;
        self.file.write_all(&row.to_bytes())
    }

    /// Finishes the file. `subjects` holds the final subject of each provisional one.
    pub(crate) fn finish(self, subjects: Vec<u32>) -> Result<SpooledRows, ConvertError> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error);
        let file = file.map_err(|error| spool_error(&self.folder, error))?;
        Ok(SpooledRows { file, folder: self.folder, rows: self.rows, subjects })
    }
}

impl SpooledRows {
    /// Reads all rows, and registers their participants.
    pub(crate) fn read(
        &self,
        people: &mut ParticipantRegistry,
        mut on_row: impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<ReadResult, ConvertError> {
        let io_error = |error| spool_error(&self.folder, error);
        let mut file = &self.file;
        file.rewind().map_err(io_error)?;
        let mut reader = BufReader::with_capacity(1 << 18, file);
        let mut bytes = [0; ROW_BYTES];
        for _ in 0..self.rows {
            reader.read_exact(&mut bytes).map_err(io_error)?;
            let row = Row::from_bytes(&bytes);
            people.register_pseudonym(row.pseudonym);
            let subject = self.subjects[row.subject as usize];
            if on_row(Row { subject, ..row })? == Flow::Stop {
                return Ok(ReadResult { flow: Flow::Stop, rows: self.rows, file_digest: None });
            }
        }
        Ok(ReadResult { flow: Flow::Continue, rows: self.rows, file_digest: None })
    }
}

fn spool_error(folder: &Path, error: io::Error) -> ConvertError {
    ConvertError::io("storing rows in", folder, error)
}
