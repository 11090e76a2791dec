//! First-in-first-out buffer in memory and, beyond a limit, on disk, with a queue of deferred rows on top. Rows are
//! deferred until the targets of their references are read: other tools may write responses before items.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek as _, Write as _},
};

use super::row::Row;
use crate::storage::spill::{SpillOptions, create_temporary_file};

/// Byte buffer that is written to disk each time it exceeds its memory.
#[derive(Debug)]
pub(crate) struct Spool {
    spill_options: SpillOptions,
    buffer: Vec<u8>,
    file: Option<BufWriter<File>>,
}

impl Spool {
    pub(crate) fn new(spill_options: SpillOptions) -> Self {
        Self { spill_options, buffer: Vec::new(), file: None }
    }

    /// Calls `write` to append bytes to the buffer.
    #[inline]
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
        write(&mut self.buffer)?;
        if self.buffer.len() > self.spill_options.memory { self.flush() } else { Ok(()) }
    }

    #[cold]
    fn flush(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(create_temporary_file(&self.spill_options.folder)?),
        };
        file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    pub(crate) fn into_reader(self) -> io::Result<impl Read> {
        let file = match self.file {
            Some(file) => {
                let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.rewind()?;
                Some(BufReader::with_capacity(64 << 10, file))
            }
            None => None,
        };
        // The file has the earlier bytes, the buffer those since the last flush.
        Ok(MaybeReader(file).chain(io::Cursor::new(self.buffer)))
    }
}

/// Reader that is empty if it is `None`.
struct MaybeReader<R>(Option<R>);

impl<R: Read> Read for MaybeReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.as_mut().map_or(Ok(0), |reader| reader.read(into))
    }
}

/// Queue of rows with references that cannot be resolved yet.
#[derive(Debug)]
pub(crate) struct DeferredRows {
    spool: Spool,
    count: u64,
}

impl DeferredRows {
    pub(crate) fn new(spill_options: SpillOptions) -> Self {
        Self { spool: Spool::new(spill_options), count: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn push(&mut self, row: &Row, counts: Option<&Row>) -> io::Result<()> {
        self.count += 1;
        self.spool.push(|into| {
            row.store(into)?;
            counts.map_or(Ok(()), |counts| counts.store(into))
        })
    }

    /// Calls `visit` with the rows in their order of arrival.
    pub(crate) fn replay<E: From<io::Error>>(
        self,
        with_counts: bool,
        mut visit: impl FnMut(&Row, Option<&Row>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from = self.spool.into_reader()?;
        let (mut row, mut counts) = (Row::default(), Row::default());
        for _ in 0..self.count {
            row.load(&mut from)?;
            if with_counts {
                counts.load(&mut from)?;
            }
            visit(&row, with_counts.then_some(&counts))?;
        }
        Ok(())
    }
}
