//! Formats, hashes and writes rows in order, on the calling thread or on a writer thread, with the same bytes either
//! way.

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
    storage::rows::{Row, order::RowSink},
    tally::Tally,
};

/// Rows sent to the writer at a time. Their lines fit into a core's cache, in which they are formatted, hashed and
/// written. Formatting has no separate thread: it costs less than moving lines between cores.
const ROWS_PER_BLOCK: usize = 1_024;
/// Number of blocks that can be queued for the writer thread.
const MAX_WAITING_BLOCKS: usize = 8;
/// Bytes reserved for each line.
const LINE_CAPACITY: usize = 240;

/// Configuration of the path from rows to the output.
pub(crate) struct Pipeline<'p> {
    pub(crate) formatter: &'p RowFormatter,
    pub(crate) names: Option<ReferenceNames>,
    pub(crate) output: &'p mut Output,
    /// Mark at the start of the responses.
    pub(crate) responses_start: Mark,
    /// True if formatting, hashing and writing run on a thread of their own.
    pub(crate) uses_writer_thread: bool,
    pub(crate) meter: &'p Arc<Meter>,
}

enum WriterTask {
    Rows { rows: Vec<(Row, u32)>, is_first: bool },
    Restart,
}

impl Pipeline<'_> {
    /// Calls `produce` with a sink for rows. All rows are written when this returns.
    pub(crate) fn run<T>(
        self,
        tally: &mut Tally,
        produce: impl for<'p> FnOnce(&mut RowPipe<'p>) -> Result<T, ConvertError>,
    ) -> Result<T, ConvertError> {
        let mut writer = Writer {
            formatter: self.formatter,
            names: self.names,
            lines: Vec::with_capacity(ROWS_PER_BLOCK * LINE_CAPACITY),
            output: self.output,
            responses_start: self.responses_start,
        };
        if !self.uses_writer_thread {
            return produce_rows(
                RowPipe::new(WriterHandle::SameThread(Box::new(writer)), self.meter, tally),
                produce,
            );
        }
        thread::scope(|scope| {
            let (task, tasks) = sync_channel(MAX_WAITING_BLOCKS);
            let writer_thread =
                scope.spawn(move || tasks.into_iter().try_for_each(|task| writer.execute(task)));
            let produced_value =
                produce_rows(RowPipe::new(WriterHandle::OwnThread(task), self.meter, tally), produce);
            let write_result = writer_thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // A write error has precedence: it closes the channel, which makes `produce` fail with a less specific
            // error.
            write_result.and(produced_value)
        })
    }
}

/// Produces all rows and flushes the last block.
fn produce_rows<'p, T>(
    mut pipe: RowPipe<'p>,
    produce: impl FnOnce(&mut RowPipe<'p>) -> Result<T, ConvertError>,
) -> Result<T, ConvertError> {
    let produced_value = produce(&mut pipe)?;
    pipe.flush()?;
    Ok(produced_value)
}

/// Sink that counts rows and sends them to the writer in blocks.
pub(crate) struct RowPipe<'p> {
    writer: WriterHandle<'p>,
    rows: Vec<(Row, u32)>,
    /// Number of rows received.
    count: u64,
    meter: &'p Meter,
    tally: &'p mut Tally,
}

enum WriterHandle<'p> {
    SameThread(Box<Writer<'p>>),
    OwnThread(SyncSender<WriterTask>),
}

impl RowSink for RowPipe<'_> {
    #[inline]
    fn take(&mut self, row: Row, number: u32) -> Result<(), ConvertError> {
        self.tally.add(row, number);
        self.count += 1;
        self.rows.push((row, number));
        if self.rows.len() == ROWS_PER_BLOCK {
            self.flush()?;
            // Checked once for each block: a check for each row would slow the loop.
            if self.meter.is_stop_requested() {
                return Err(ConvertError::Stopped { rows: self.count });
            }
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<(), ConvertError> {
        // Rows, counts and output of the abandoned attempt are dropped together, or its rows would be counted twice.
        self.rows.clear();
        self.count = 0;
        self.tally.clear();
        self.send(WriterTask::Restart)
    }
}

impl<'p> RowPipe<'p> {
    fn new(writer: WriterHandle<'p>, meter: &'p Meter, tally: &'p mut Tally) -> Self {
        Self { writer, rows: Vec::with_capacity(ROWS_PER_BLOCK), count: 0, meter, tally }
    }

    fn flush(&mut self) -> Result<(), ConvertError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::replace(&mut self.rows, Vec::with_capacity(ROWS_PER_BLOCK));
        // The count includes this block, so only the first block equals it.
        let is_first = self.count == rows.len() as u64;
        self.send(WriterTask::Rows { rows, is_first })
    }

    fn send(&mut self, task: WriterTask) -> Result<(), ConvertError> {
        match &mut self.writer {
            WriterHandle::SameThread(writer) => writer.execute(task),
            // The channel is closed if the writer failed. Its own error replaces this one in `run`.
            WriterHandle::OwnThread(tasks) => {
                tasks.send(task).map_err(|_| ConvertError::Refused("the bundle cannot be written".to_owned()))
            }
        }
    }
}

struct Writer<'w> {
    formatter: &'w RowFormatter,
    names: Option<ReferenceNames>,
    /// Lines of the current block; the buffer is reused.
    lines: Vec<u8>,
    output: &'w mut Output,
    responses_start: Mark,
}

impl Writer<'_> {
    fn execute(&mut self, task: WriterTask) -> Result<(), ConvertError> {
        match task {
            WriterTask::Rows { rows, is_first } => {
                self.format_rows(&rows, is_first);
                self.output.write(&self.lines)
            }
            WriterTask::Restart => self.output.truncate(&self.responses_start),
        }
    }

    fn format_rows(&mut self, rows: &[(Row, u32)], is_first: bool) {
        // Locked for one block at a time: the reading thread adds names in between.
        let names_guard =
            self.names.as_ref().map(|names| names.read().unwrap_or_else(PoisonError::into_inner));
        let names: Option<&HashMap<u128, String>> = names_guard.as_deref();
        self.lines.clear();
        let mut cache = LineCache::default();
        for (index, (row, number)) in rows.iter().enumerate() {
            self.lines.extend_from_slice(if is_first && index == 0 { b"\n" } else { b",\n" });
            self.formatter.write_row(&mut self.lines, *row, *number, names, &mut cache);
        }
    }
}

/// Sink that counts rows without writing them, for public bundles, dry runs and the check of the order.
pub(crate) struct CountingSink<'c> {
    pub(crate) tally: &'c mut Tally,
    pub(crate) meter: &'c Meter,
    rows: u64,
    measure: Option<Measure<'c>>,
}

/// Sum of the lengths of rows as lines, up to a limit.
struct Measure<'m> {
    formatter: &'m RowFormatter,
    names: Option<ReferenceNames>,
    line: Vec<u8>,
    bytes: u64,
    max_bytes: u64,
}

impl<'c> CountingSink<'c> {
    pub(crate) fn new(tally: &'c mut Tally, meter: &'c Meter) -> Self {
        Self { tally, meter, rows: 0, measure: None }
    }

    /// Also measures the length of the rows, until their sum exceeds `max_bytes`.
    pub(crate) fn with_measurement(
        self,
        formatter: &'c RowFormatter,
        names: Option<ReferenceNames>,
        max_bytes: u64,
    ) -> Self {
        Self { measure: Some(Measure { formatter, names, line: Vec::new(), bytes: 0, max_bytes }), ..self }
    }

    /// Sum of the measured lengths, in bytes.
    pub(crate) fn measured_bytes(&self) -> u64 {
        self.measure.as_ref().map_or(0, |measure| measure.bytes)
    }
}

impl Measure<'_> {
    fn add(&mut self, row: Row, number: u32) {
        // The size is only compared with the limit, so further rows need not be formatted.
        if self.bytes > self.max_bytes {
            return;
        }
        let names_guard =
            self.names.as_ref().map(|names| names.read().unwrap_or_else(PoisonError::into_inner));
        self.line.clear();
        self.formatter.write_row(
            &mut self.line,
            row,
            number,
            names_guard.as_deref(),
            // The cache changes the speed and not the length of a line.
            &mut LineCache::default(),
        );
        // Each row has a line feed, and each but the first a comma.
        self.bytes += self.line.len() as u64 + if self.bytes == 0 { 1 } else { 2 };
    }
}

impl RowSink for CountingSink<'_> {
    fn take(&mut self, row: Row, number: u32) -> Result<(), ConvertError> {
        self.tally.add(row, number);
        self.rows += 1;
        if let Some(measure) = &mut self.measure {
            measure.add(row, number);
        }
        if self.rows.is_multiple_of(ROWS_PER_BLOCK as u64) && self.meter.is_stop_requested() {
            return Err(ConvertError::Stopped { rows: self.rows });
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<(), ConvertError> {
        self.rows = 0;
        self.tally.clear();
        if let Some(measure) = &mut self.measure {
            measure.bytes = 0;
        }
        Ok(())
    }
}
