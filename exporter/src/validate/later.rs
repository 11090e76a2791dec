//! Rows that must wait until what they refer to is known: a foreign writer may put responses before items.
//!
//! They wait on disk beyond a little memory.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek as _, Write as _},
};

use super::row::Row;
use crate::spill::{Room, temporary};

#[derive(Debug)]
pub(crate) struct Later {
    room: Room,
    held: Vec<u8>,
    file: Option<BufWriter<File>>,
    count: u64,
}

impl Later {
    pub(crate) fn new(room: Room) -> Self {
        Self { room, held: Vec::new(), file: None, count: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn push(&mut self, row: &Row, counts: Option<&Row>) -> io::Result<()> {
        row.store(&mut self.held)?;
        if let Some(counts) = counts {
            counts.store(&mut self.held)?;
        }
        self.count += 1;
        if self.held.len() > self.room.memory {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(temporary(&self.room.folder)?),
            };
            file.write_all(&self.held)?;
            self.held.clear();
        }
        Ok(())
    }

    /// Gives the rows back in the order in which they came.
    pub(crate) fn replay<E: From<io::Error>>(
        self,
        with_counts: bool,
        mut each: impl FnMut(&Row, Option<&Row>) -> Result<(), E>,
    ) -> Result<(), E> {
        let file = match self.file {
            Some(file) => {
                let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.rewind()?;
                Some(BufReader::new(file))
            }
            None => None,
        };
        let mut from: Box<dyn Read + '_> = match file {
            Some(file) => Box::new(file.chain(&*self.held)),
            None => Box::new(&*self.held),
        };
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
