//! Rows that must wait until what they refer to is known: a foreign writer may put responses before items.
//!
//! They wait on disk beyond a little memory.

use std::io;

use super::{row::Row, spool::Tape};
use crate::storage::spill::Room;

#[derive(Debug)]
pub(crate) struct Later {
    tape: Tape,
    count: u64,
}

impl Later {
    pub(crate) fn new(room: Room) -> Self {
        Self { tape: Tape::new(room), count: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn push(&mut self, row: &Row, counts: Option<&Row>) -> io::Result<()> {
        self.count += 1;
        self.tape.push(|into| {
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
        let mut from = self.tape.play()?;
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
