//! Reads all rows of the input in the order of the bundle, with a second reading if the input is not sorted by item.

use std::sync::{Arc, atomic::Ordering};

use super::{Job, adapter::Adapter, workspace::Workspace};
use crate::{
    bundle::write::pipeline::CountingSink,
    error::ConvertError,
    input::Member,
    meter::Meter,
    privacy::participants::ParticipantRegistry,
    storage::rows::{
        ReadResult,
        order::{Flow, FullSorter, ItemwiseSorter, RowSink, SortSettings},
    },
    tally::Tally,
};

/// Result of reading all rows.
pub(super) struct RowsRead {
    pub(super) summary: ReadResult,
    pub(super) superseded: u64,
    pub(super) notes: Vec<String>,
}

/// Passes the rows to the sink in bundle order. `needs_sorting` skips the attempt to read them as sorted by item.
pub(super) fn read_rows(
    adapter: &Adapter,
    job: &Job,
    meter: &Arc<Meter>,
    people: &mut ParticipantRegistry,
    workspace: &Workspace,
    needs_sorting: bool,
    sink: &mut impl RowSink,
) -> Result<RowsRead, ConvertError> {
    let order = order(job, workspace);
    let mut notes = Vec::new();
    if !needs_sorting {
        let mut grouped = ItemwiseSorter::new(order);
        let summary =
            adapter.read_rows(&job.limits, meter, people, &mut notes, |row| grouped.push(row, sink))?;
        if summary.flow == Flow::Continue {
            let superseded = grouped.finish(sink)?;
            return Ok(RowsRead { summary, superseded, notes });
        }
        // The rows turned out unsorted: discard the partial output and read them again through the sorter.
        sink.restart()?;
        restart_reading(adapter, people, meter);
        notes.clear();
    }
    let mut sorter = FullSorter::new(order);
    let mut count = 0_u64;
    let summary = adapter.read_rows(&job.limits, meter, people, &mut notes, |row| {
        count += 1;
        // Sorting emits no rows yet, so the sink does not check for a stop.
        if count.is_multiple_of(1 << 16) && meter.is_stop_requested() {
            return Err(ConvertError::Stopped { rows: 0 });
        }
        sorter.push(row)
    })?;
    let superseded = sorter.finish(sink)?;
    Ok(RowsRead { summary, superseded, notes })
}

/// True if the rows are sorted by item. Reads all of them, so that errors appear before a stream receives its first
/// byte. Unsorted rows need no such check: the sorter reads all of them before it returns the first.
pub(super) fn rows_are_in_order(
    adapter: &Adapter,
    job: &Job,
    meter: &Arc<Meter>,
    people: &mut ParticipantRegistry,
    workspace: &Workspace,
    tally: &mut Tally,
) -> Result<bool, ConvertError> {
    let mut sink = CountingSink::new(tally, meter);
    let mut grouped = ItemwiseSorter::new(order(job, workspace));
    let on_row = |row| grouped.push(row, &mut sink);
    let summary = adapter.read_rows(&job.limits, meter, people, &mut Vec::new(), on_row)?;
    restart_reading(adapter, people, meter);
    Ok(summary.flow == Flow::Continue)
}

fn order<'p>(job: &Job, workspace: &'p Workspace) -> SortSettings<'p> {
    SortSettings { events: job.events, memory: job.limits.sort_memory, folder: &workspace.folder }
}

fn restart_reading(adapter: &Adapter, people: &mut ParticipantRegistry, meter: &Meter) {
    people.forget_answers();
    meter.rows_read.store(0, Ordering::Relaxed);
    meter.expect(adapter.rows_file().map_or(0, Member::stored_bytes));
}
