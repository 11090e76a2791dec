//! First-in-first-out buffer in memory and, beyond a limit, on disk; and rows deferred in it.
//!
//! Rows are deferred until what they refer to is known: other writers may put responses before items.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek as _, Write as _},
};

use super::row::Row;
use crate::storage::spill::{SpillOptions, temporary};

#[derive(Debug)]
pub(crate) struct Spool {
    room: SpillOptions,
    held: Vec<u8>,
    file: Option<BufWriter<File>>,
}

impl Spool {
    pub(crate) fn new(room: SpillOptions) -> Self {
        Self { room, held: Vec::new(), file: None }
    }

    /// `write` appends.
    #[inline]
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
        write(&mut self.held)?;
        if self.held.len() > self.room.memory { self.flush() } else { Ok(()) }
    }

    #[cold]
    fn flush(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(temporary(&self.room.folder)?),
        };
        file.write_all(&self.held)?;
        self.held.clear();
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
        Ok(MaybeReader(file).chain(io::Cursor::new(self.held)))
    }
}

/// Reader that may be absent, and is then at its end.
struct MaybeReader<R>(Option<R>);

impl<R: Read> Read for MaybeReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.as_mut().map_or(Ok(0), |from| from.read(into))
    }
}

/// Rows that wait until what they refer to is known.
#[derive(Debug)]
pub(crate) struct DeferredRows {
    spool: Spool,
    count: u64,
}

impl DeferredRows {
    pub(crate) fn new(room: SpillOptions) -> Self {
        Self { spool: Spool::new(room), count: 0 }
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

    /// Gives the rows back in the order in which they came.
    pub(crate) fn replay<E: From<io::Error>>(
        self,
        with_counts: bool,
        mut each: impl FnMut(&Row, Option<&Row>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from = self.spool.into_reader()?;
        let (mut row, mut counts) = (Row::default(), Row::default());
        for _ in 0..self.count {
            row.load(&mut from)?;
            if with_counts {
                counts.load(&mut from)?;
            }
            each(&row, with_counts.then_some(&counts))?;
        }
        Ok(())
    }
}
