//! From rows in order to bytes in the file: formatted by several threads, hashed and written by one.
//!
//! The bytes do not depend on how many threads there are: blocks go round and come back in turn.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use super::{
    out::{Mark, Out},
    parts::{Journal, Run, Segment},
    shape::{Before, Shape},
};
use crate::{
    fault::{Fault, Wrong},
    meter::Meter,
    privacy::people::Names,
    rows::{Row, order::Sink},
    tally::Tally,
};

/// Rows that are passed on together; their lines fit into the cache next to a core, where they are formatted, hashed and
/// written one after the other.
const BLOCK: usize = 1_024;
/// Blocks that may wait before each thread.
const WAITING: usize = 2;
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
    pub(crate) threads: usize,
    pub(crate) meter: &'p Arc<Meter>,
}

enum Task {
    Rows { rows: Vec<(Row, u32)>, first: bool, upto: Upto },
    Again,
}

enum Done {
    Lines { bytes: Vec<u8>, upto: Upto },
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
        produce: impl FnOnce(&mut Pipe<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (shape, names) = (self.shape, self.names);
        let skip = self.resumed.as_ref().map(|segment| Upto { rows: segment.rows, sum: segment.sum });
        let writer = Writer {
            out: self.out,
            journal: self.journal,
            run: self.run,
            start: self.start,
            segment: self.segment.max(1),
            kept: self.resumed.map_or(0, |segment| segment.rows),
            upto: skip.unwrap_or_default(),
        };
        let mut pipe = Pipe {
            way: Way::Threads { tasks: Vec::new(), next: 0 },
            rows: Vec::with_capacity(BLOCK),
            upto: Upto::default(),
            skip,
            meter: self.meter,
            tally,
        };
        if self.threads <= 1 {
            pipe.way = Way::Here { shape, names, writer: Box::new(writer) };
            let made = produce(&mut pipe).and_then(|made| pipe.flush().map(|()| made));
            return pipe.finish().and(made);
        }
        thread::scope(|scope| {
            let mut tasks = Vec::new();
            let mut turns = Vec::new();
            for _ in 0..self.threads {
                let (task, todo) = sync_channel(WAITING);
                let (done, turn) = sync_channel(WAITING);
                let names = names.clone();
                scope.spawn(move || work(shape, names.as_ref(), &todo, &done));
                tasks.push(task);
                turns.push(turn);
            }
            let writing = scope.spawn(move || writer.take_turns(&turns));
            pipe.way = Way::Threads { tasks, next: 0 };
            let made = produce(&mut pipe).and_then(|made| pipe.flush().map(|()| made));
            drop(pipe);
            let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written.and(made)
        })
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
    Here { shape: &'p Shape, names: Option<Names>, writer: Box<Writer<'p>> },
    Threads { tasks: Vec<SyncSender<Task>>, next: usize },
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

impl Pipe<'_> {
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

    /// Ends what is written here and not by threads.
    fn finish(self) -> Result<(), Fault> {
        match self.way {
            Way::Here { writer, .. } => writer.finish(),
            Way::Threads { .. } => Ok(()),
        }
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
            Way::Here { shape, names, writer } => writer.take(format(shape, names.as_ref(), task)),
            Way::Threads { tasks, next } => {
                let sent = tasks[*next].send(task);
                *next = (*next + 1) % tasks.len();
                // The writer has ended, and its own fault is what will be told.
                sent.map_err(|_| Fault::Refused("the bundle cannot be written".to_owned()))
            }
        }
    }
}

fn work(shape: &Shape, names: Option<&Names>, todo: &Receiver<Task>, done: &SyncSender<Done>) {
    for task in todo {
        if done.send(format(shape, names, task)).is_err() {
            return;
        }
    }
}

fn format(shape: &Shape, names: Option<&Names>, task: Task) -> Done {
    let Task::Rows { rows, first, upto } = task else { return Done::Again };
    let named = names.map(|names| names.read().unwrap_or_else(PoisonError::into_inner));
    let names: Option<&HashMap<u128, String>> = named.as_deref();
    let mut bytes = Vec::with_capacity(rows.len() * LINE);
    let mut before = Before::default();
    for (at, (row, number)) in rows.iter().enumerate() {
        bytes.extend_from_slice(if first && at == 0 { b"\n" } else { b",\n" });
        shape.row(&mut bytes, *row, *number, names, &mut before);
    }
    Done::Lines { bytes, upto }
}

struct Writer<'w> {
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
    fn take_turns(mut self, turns: &[Receiver<Done>]) -> Result<(), Fault> {
        for turn in turns.iter().cycle() {
            match turn.recv() {
                Ok(done) => self.take(done)?,
                // Whose turn it is has no block, so nobody has.
                Err(_) => break,
            }
        }
        self.finish()
    }

    fn take(&mut self, done: Done) -> Result<(), Fault> {
        match done {
            Done::Lines { bytes, upto } => {
                self.out.write(&bytes)?;
                self.upto = upto;
                if upto.rows - self.kept >= self.segment { self.keep() } else { Ok(()) }
            }
            Done::Again => {
                self.out.cut(&self.start)?;
                (self.kept, self.upto) = (0, Upto::default());
                self.run.sorted = true;
                self.journal.as_mut().map_or(Ok(()), |journal| journal.again(&self.run))
            }
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
}

impl<'c> Counting<'c> {
    pub(crate) fn new(tally: &'c mut Tally, meter: &'c Meter) -> Self {
        Self { tally, meter, rows: 0 }
    }
}

impl Sink for Counting<'_> {
    fn take(&mut self, row: Row, number: u32) -> Result<(), Fault> {
        self.tally.add(row, number);
        self.rows += 1;
        if self.rows.is_multiple_of(BLOCK as u64) && self.meter.stopped() {
            return Err(Fault::Stopped { rows: self.rows, resumable: false });
        }
        Ok(())
    }

    fn again(&mut self) -> Result<(), Fault> {
        self.rows = 0;
        self.tally.clear();
        Ok(())
    }
}
