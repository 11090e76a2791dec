//! Bytes that are set aside and read once, in the order in which they came: in memory at first, on disk beyond.
//!
//! What they mean is the caller's.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek as _, Write as _},
};

use crate::storage::spill::{Room, temporary};

#[derive(Debug)]
pub(crate) struct Tape {
    room: Room,
    held: Vec<u8>,
    file: Option<BufWriter<File>>,
}

impl Tape {
    pub(crate) fn new(room: Room) -> Self {
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

    pub(crate) fn play(self) -> io::Result<impl Read> {
        let file = match self.file {
            Some(file) => {
                let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.rewind()?;
                Some(BufReader::with_capacity(64 << 10, file))
            }
            None => None,
        };
        Ok(Maybe(file).chain(io::Cursor::new(self.held)))
    }
}

/// Reader that may be absent, and is then at its end.
struct Maybe<R>(Option<R>);

impl<R: Read> Read for Maybe<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.as_mut().map_or(Ok(0), |from| from.read(into))
    }
}
