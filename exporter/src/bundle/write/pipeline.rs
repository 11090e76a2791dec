//! From rows in order to bytes in the file: formatted, hashed and written here or by a thread of its own.
//!
//! The bytes do not depend on it. Formatting costs less than handing lines from core to core, so that it has no thread.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use super::{
    output::{Mark, Out},
    parts::{Journal, Run, Segment},
    row_lines::{Before, Shape},
};
use crate::{
    error::{Fault, Wrong},
    meter::Meter,
    privacy::participants::Names,
    storage::rows::{Row, order::Sink},
    tally::Tally,
};

/// Rows that are passed on together; their lines fit into the cache next to a core, where they are formatted, hashed and
/// written one after the other.
const BLOCK: usize = 1_024;
/// Blocks that may wait for the writing thread.
const WAITING: usize = 8;
/// Of a line; only to have room at once.
const LINE: usize = 240;

/// What the rows need on their way.
pub(crate) struct Pipeline<'p> {
    pub(crate) shape: &'p Shape,
    pub(crate) names: Option<Names>,
    pub(crate) out: &'p mut Out,
    pub(crate) journal: Option<Journal>,
    pub(crate) run: Run,
    /// Where the responses begin.
    pub(crate) start: Mark,
    /// Where an earlier process has ended.
    pub(crate) resumed: Option<Segment>,
    /// Rows of a segment.
    pub(crate) segment: u64,
    /// Formatting, hashing and writing have a thread of their own.
    pub(crate) apart: bool,
    pub(crate) meter: &'p Arc<Meter>,
}

enum Task {
    Rows { rows: Vec<(Row, u32)>, first: bool, upto: Upto },
    Again,
}

/// Rows so far, and the sum over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Upto {
    rows: u64,
    sum: u64,
}

impl Pipeline<'_> {
    /// Calls `produce` with the sink for its rows; when it returns, all of them are written.
    pub(crate) fn run<T>(
        self,
        tally: &mut Tally,
        produce: impl for<'p> FnOnce(&mut Pipe<'p>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let skip = self.resumed.as_ref().map(|segment| Upto { rows: segment.rows, sum: segment.sum });
        let mut writer = Writer {
            shape: self.shape,
            names: self.names,
            lines: Vec::with_capacity(BLOCK * LINE),
            out: self.out,
            journal: self.journal,
            run: self.run,
            start: self.start,
            segment: self.segment.max(1),
            kept: self.resumed.map_or(0, |segment| segment.rows),
            upto: skip.unwrap_or_default(),
        };
        if !self.apart {
            let way = Way::Here(Box::new(writer));
            return through(Pipe::new(way, skip, self.meter, tally), produce);
        }
        thread::scope(|scope| {
            let (task, tasks) = sync_channel(WAITING);
            let writing = scope.spawn(move || {
                tasks.into_iter().try_for_each(|task| writer.take(task))?;
                writer.finish()
            });
            let made = through(Pipe::new(Way::Apart(task), skip, self.meter, tally), produce);
            let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written.and(made)
        })
    }
}

/// All rows, and the end of the writing, if that is not another thread's. A fault in writing is told before others.
fn through<'p, T>(
    mut pipe: Pipe<'p>,
    produce: impl FnOnce(&mut Pipe<'p>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let made = produce(&mut pipe).and_then(|made| pipe.flush().map(|()| made));
    match pipe.way {
        Way::Here(writer) => writer.finish().and(made),
        Way::Apart(_) => made,
    }
}

/// Takes rows in the order of the bundle.
pub(crate) struct Pipe<'p> {
    way: Way<'p>,
    rows: Vec<(Row, u32)>,
    upto: Upto,
    skip: Option<Upto>,
    meter: &'p Meter,
    tally: &'p mut Tally,
}

enum Way<'p> {
    Here(Box<Writer<'p>>),
    Apart(SyncSender<Task>),
}

impl Sink for Pipe<'_> {
    #[inline]
    fn take(&mut self, row: Row, number: u32) -> Result<(), Fault> {
        self.tally.add(row, number);
        self.upto.rows += 1;
        self.upto.sum = mix(self.upto.sum, row);
        if let Some(skip) = self.skip
            && self.upto.rows <= skip.rows
        {
            return self.skipped(skip);
        }
        self.rows.push((row, number));
        if self.rows.len() == BLOCK {
            self.flush()?;
            self.stop_if_told()?;
        }
        Ok(())
    }

    fn again(&mut self) -> Result<(), Fault> {
        self.rows.clear();
        self.upto = Upto::default();
        self.skip = None;
        self.tally.clear();
        self.send(Task::Again)
    }
}

impl<'p> Pipe<'p> {
    fn new(way: Way<'p>, skip: Option<Upto>, meter: &'p Meter, tally: &'p mut Tally) -> Self {
        Self { way, rows: Vec::with_capacity(BLOCK), upto: Upto::default(), skip, meter, tally }
    }

    fn skipped(&self, skip: Upto) -> Result<(), Fault> {
        if self.upto.rows == skip.rows && self.upto.sum != skip.sum {
            let detail = "it is not what it was when the conversion was interrupted: --force begins anew";
            return Err(Fault::content("the input", None, Wrong::Value, detail));
        }
        if self.upto.rows.is_multiple_of(BLOCK as u64) {
            self.stop_if_told()?;
        }
        Ok(())
    }

    fn stop_if_told(&self) -> Result<(), Fault> {
        if self.meter.stopped() {
            return Err(Fault::Stopped { rows: self.upto.rows, resumable: true });
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::replace(&mut self.rows, Vec::with_capacity(BLOCK));
        let first = self.upto.rows == rows.len() as u64;
        self.send(Task::Rows { rows, first, upto: self.upto })
    }

    fn send(&mut self, task: Task) -> Result<(), Fault> {
        match &mut self.way {
            Way::Here(writer) => writer.take(task),
            // The writer has ended, and its own fault is what will be told.
            Way::Apart(tasks) => {
                tasks.send(task).map_err(|_| Fault::Refused("the bundle cannot be written".to_owned()))
            }
        }
    }
}

struct Writer<'w> {
    shape: &'w Shape,
    names: Option<Names>,
    /// Of the block that is written.
    lines: Vec<u8>,
    out: &'w mut Out,
    journal: Option<Journal>,
    run: Run,
    start: Mark,
    segment: u64,
    /// Rows up to the last segment.
    kept: u64,
    upto: Upto,
}

impl Writer<'_> {
    fn take(&mut self, task: Task) -> Result<(), Fault> {
        match task {
            Task::Rows { rows, first, upto } => {
                self.format(&rows, first);
                self.out.write(&self.lines)?;
                self.upto = upto;
                if upto.rows - self.kept >= self.segment { self.keep() } else { Ok(()) }
            }
            Task::Again => {
                self.out.cut(&self.start)?;
                (self.kept, self.upto) = (0, Upto::default());
                self.run.sorted = true;
                self.journal.as_mut().map_or(Ok(()), |journal| journal.again(&self.run))
            }
        }
    }

    fn format(&mut self, rows: &[(Row, u32)], first: bool) {
        let named = self.names.as_ref().map(|names| names.read().unwrap_or_else(PoisonError::into_inner));
        let names: Option<&HashMap<u128, String>> = named.as_deref();
        self.lines.clear();
        let mut before = Before::default();
        for (at, (row, number)) in rows.iter().enumerate() {
            self.lines.extend_from_slice(if first && at == 0 { b"\n" } else { b",\n" });
            self.shape.row(&mut self.lines, *row, *number, names, &mut before);
        }
    }

    /// Whether all went well or not: what is written need not be written again.
    fn finish(mut self) -> Result<(), Fault> {
        if self.upto.rows > self.kept { self.keep() } else { Ok(()) }
    }

    fn keep(&mut self) -> Result<(), Fault> {
        self.kept = self.upto.rows;
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.add(&Segment {
            rows: self.upto.rows,
            sum: self.upto.sum,
            bytes: self.out.bytes(),
            sha256: self.out.digest(),
        })
    }
}

/// It has to notice another input, not an adversary: the key's owner has both.
#[inline]
fn mix(sum: u64, row: Row) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let [low, high, items, packed] = row.words();
    let folded = low ^ high.rotate_left(17) ^ items.rotate_left(31) ^ packed.rotate_left(47);
    (sum ^ folded).wrapping_mul(ODD).rotate_left(23)
}

/// Rows are counted whether or not anything is written.
pub(crate) struct Counting<'c> {
    pub(crate) tally: &'c mut Tally,
    pub(crate) meter: &'c Meter,
    rows: u64,
    measure: Option<Measure<'c>>,
}

/// How many bytes rows would have, as far as it matters.
struct Measure<'m> {
    shape: &'m Shape,
    names: Option<Names>,
    line: Vec<u8>,
    bytes: u64,
    upto: u64,
}

impl<'c> Counting<'c> {
    pub(crate) fn new(tally: &'c mut Tally, meter: &'c Meter) -> Self {
        Self { tally, meter, rows: 0, measure: None }
    }

    /// Measures the rows, too, until they have more than so many bytes.
    pub(crate) fn measuring(self, shape: &'c Shape, names: Option<Names>, upto: u64) -> Self {
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
        self.shape.row(&mut self.line, row, number, named.as_deref(), &mut Before::default());
        // A line end, and a comma before all but the first.
        self.bytes += self.line.len() as u64 + if self.bytes == 0 { 1 } else { 2 };
    }
}

impl Sink for Counting<'_> {
    fn take(&mut self, row: Row, number: u32) -> Result<(), Fault> {
        self.tally.add(row, number);
        self.rows += 1;
        if let Some(measure) = &mut self.measure {
            measure.take(row, number);
        }
        if self.rows.is_multiple_of(BLOCK as u64) && self.meter.stopped() {
            return Err(Fault::Stopped { rows: self.rows, resumable: false });
        }
        Ok(())
    }

    fn again(&mut self) -> Result<(), Fault> {
        self.rows = 0;
        self.tally.clear();
        if let Some(measure) = &mut self.measure {
            measure.bytes = 0;
        }
        Ok(())
    }
}
