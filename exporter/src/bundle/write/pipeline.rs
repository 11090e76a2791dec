//! Formats, hashes and writes rows in order, on this thread or on one of its own.
//!
//! The bytes are the same either way. Formatting has no thread of its own: it costs less than handing lines from core
//! to core.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use super::{
    output::{Mark, Output},
    row_lines::{LineCache, RowFormatter},
};
use crate::{
    error::ConvertError,
    meter::Meter,
    privacy::participants::ReferenceNames,
    storage::rows::{Row, order::Sink},
    tally::Tally,
};

/// Rows that are passed on together; their lines fit into the cache next to a core, where they are formatted, hashed and
/// written one after the other.
const BLOCK: usize = 1_024;
/// Blocks that may wait for the writing thread.
const WAITING: usize = 8;
/// Bytes reserved for a line.
const LINE: usize = 240;

/// Everything that rows need on their way to the file.
pub(crate) struct Pipeline<'p> {
    pub(crate) shape: &'p RowFormatter,
    pub(crate) names: Option<ReferenceNames>,
    pub(crate) out: &'p mut Output,
    /// Mark at which the responses begin.
    pub(crate) start: Mark,
    /// Formatting, hashing and writing have a thread of their own.
    pub(crate) apart: bool,
    pub(crate) meter: &'p Arc<Meter>,
}

enum Task {
    Rows { rows: Vec<(Row, u32)>, first: bool },
    Again,
}

impl Pipeline<'_> {
    /// Calls `produce` with the sink for its rows; when it returns, all of them are written.
    pub(crate) fn run<T>(
        self,
        tally: &mut Tally,
        produce: impl for<'p> FnOnce(&mut RowPipe<'p>) -> Result<T, ConvertError>,
    ) -> Result<T, ConvertError> {
        let mut writer = Writer {
            shape: self.shape,
            names: self.names,
            lines: Vec::with_capacity(BLOCK * LINE),
            out: self.out,
            start: self.start,
        };
        if !self.apart {
            return through(RowPipe::new(WriterHandle::Here(Box::new(writer)), self.meter, tally), produce);
        }
        thread::scope(|scope| {
            let (task, tasks) = sync_channel(WAITING);
            let writing = scope.spawn(move || tasks.into_iter().try_for_each(|task| writer.take(task)));
            let made = through(RowPipe::new(WriterHandle::Apart(task), self.meter, tally), produce);
            let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // A fault in writing is told before others: it is what the others follow from.
            written.and(made)
        })
    }
}

/// Produces all rows and passes on the last of them.
fn through<'p, T>(
    mut pipe: RowPipe<'p>,
    produce: impl FnOnce(&mut RowPipe<'p>) -> Result<T, ConvertError>,
) -> Result<T, ConvertError> {
    let made = produce(&mut pipe)?;
    pipe.flush()?;
    Ok(made)
}

/// Takes rows in the order of the bundle.
pub(crate) struct RowPipe<'p> {
    way: WriterHandle<'p>,
    rows: Vec<(Row, u32)>,
    /// Rows so far.
    count: u64,
    meter: &'p Meter,
    tally: &'p mut Tally,
}

enum WriterHandle<'p> {
    Here(Box<Writer<'p>>),
    Apart(SyncSender<Task>),
}

impl Sink for RowPipe<'_> {
    #[inline]
    fn take(&mut self, row: Row, number: u32) -> Result<(), ConvertError> {
        self.tally.add(row, number);
        self.count += 1;
        self.rows.push((row, number));
        if self.rows.len() == BLOCK {
            self.flush()?;
            if self.meter.stopped() {
                return Err(ConvertError::Stopped { rows: self.count });
            }
        }
        Ok(())
    }

    fn again(&mut self) -> Result<(), ConvertError> {
        self.rows.clear();
        self.count = 0;
        self.tally.clear();
        self.send(Task::Again)
    }
}

impl<'p> RowPipe<'p> {
    fn new(way: WriterHandle<'p>, meter: &'p Meter, tally: &'p mut Tally) -> Self {
        Self { way, rows: Vec::with_capacity(BLOCK), count: 0, meter, tally }
    }

    fn flush(&mut self) -> Result<(), ConvertError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::replace(&mut self.rows, Vec::with_capacity(BLOCK));
        let first = self.count == rows.len() as u64;
        self.send(Task::Rows { rows, first })
    }

    fn send(&mut self, task: Task) -> Result<(), ConvertError> {
        match &mut self.way {
            WriterHandle::Here(writer) => writer.take(task),
            // The writer has ended, and its own fault is what will be told.
            WriterHandle::Apart(tasks) => {
                tasks.send(task).map_err(|_| ConvertError::Refused("the bundle cannot be written".to_owned()))
            }
        }
    }
}

struct Writer<'w> {
    shape: &'w RowFormatter,
    names: Option<ReferenceNames>,
    /// Lines of the block that is written.
    lines: Vec<u8>,
    out: &'w mut Output,
    start: Mark,
}

impl Writer<'_> {
    fn take(&mut self, task: Task) -> Result<(), ConvertError> {
        match task {
            Task::Rows { rows, first } => {
                self.format(&rows, first);
                self.out.write(&self.lines)
            }
            Task::Again => self.out.cut(&self.start),
        }
    }

    fn format(&mut self, rows: &[(Row, u32)], first: bool) {
        let named = self.names.as_ref().map(|names| names.read().unwrap_or_else(PoisonError::into_inner));
        let names: Option<&HashMap<u128, String>> = named.as_deref();
        self.lines.clear();
        let mut before = LineCache::default();
        for (at, (row, number)) in rows.iter().enumerate() {
            self.lines.extend_from_slice(if first && at == 0 { b"\n" } else { b",\n" });
            self.shape.row(&mut self.lines, *row, *number, names, &mut before);
        }
    }
}

/// Rows are counted whether or not anything is written.
pub(crate) struct Counting<'c> {
    pub(crate) tally: &'c mut Tally,
    pub(crate) meter: &'c Meter,
    rows: u64,
    measure: Option<Measure<'c>>,
}

/// Counts the bytes that rows would take, up to a limit.
struct Measure<'m> {
    shape: &'m RowFormatter,
    names: Option<ReferenceNames>,
    line: Vec<u8>,
    bytes: u64,
    upto: u64,
}

impl<'c> Counting<'c> {
    pub(crate) fn new(tally: &'c mut Tally, meter: &'c Meter) -> Self {
        Self { tally, meter, rows: 0, measure: None }
    }

    /// Also measures the rows, until they exceed this many bytes.
    pub(crate) fn measuring(self, shape: &'c RowFormatter, names: Option<ReferenceNames>, upto: u64) -> Self {
        Self { measure: Some(Measure { shape, names, line: Vec::new(), bytes: 0, upto }), ..self }
    }

    /// Bytes of the rows that were measured.
    pub(crate) fn measured(&self) -> u64 {
        self.measure.as_ref().map_or(0, |measure| measure.bytes)
    }
}

impl Measure<'_> {
    fn take(&mut self, row: Row, number: u32) {
        if self.bytes > self.upto {
            return;
        }
        let named = self.names.as_ref().map(|names| names.read().unwrap_or_else(PoisonError::into_inner));
        self.line.clear();
        self.shape.row(&mut self.line, row, number, named.as_deref(), &mut LineCache::default());
        // A line end, and a comma before all but the first.
        self.bytes += self.line.len() as u64 + if self.bytes == 0 { 1 } else { 2 };
    }
}

impl Sink for Counting<'_> {
    fn take(&mut self, row: Row, number: u32) -> Result<(), ConvertError> {
        self.tally.add(row, number);
        self.rows += 1;
        if let Some(measure) = &mut self.measure {
            measure.take(row, number);
        }
        if self.rows.is_multiple_of(BLOCK as u64) && self.meter.stopped() {
            return Err(ConvertError::Stopped { rows: self.rows });
        }
        Ok(())
    }

    fn again(&mut self) -> Result<(), ConvertError> {
        self.rows = 0;
        self.tally.clear();
        if let Some(measure) = &mut self.measure {
            measure.bytes = 0;
        }
        Ok(())
    }
}
