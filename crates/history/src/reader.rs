//! Reads the rows of a dataset in the order of time and id, page by page, in bounded memory.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    ops::Range,
};

use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use tidegate_schemas::{
    history::HistoryKind,
    ids::{DAY_MS, HOUR_MS, ItemKey, Millis},
};
use tidegate_store::{
    Pages, RowRange, Store,
    tables::{
        callbacks::deliveries::{Delivery, DeliveryByDay},
        catalog::audit::AuditEntry,
        history::events::{HistoryEvent, SHARDS},
        items::{
            history::{self, ItemOfHour, random_bits_of},
            items::{Item, SubmissionState},
        },
        review::jobs::Job,
    },
};

use crate::{
    Dataset, Error, RowPosition, RowRequest, StoredRow, Visibility, restricted_items::RestrictedItems,
};

/// Rows of a page, and rows that are read by key at the same time.
const PAGE_ROWS: usize = 1_000;

/// Length of the slices in which newest-first tables are read, so that a slice can be reversed in memory.
const SLICE_MS: i64 = 60_000;

/// Slices that are read at the same time.
const CONCURRENT_SLICES: usize = 16;

/// Reader of one dataset.
pub struct RowReader {
    store: Store,
    request: RowRequest,
    /// Day that is read next.
    next_day: i64,
    end_day: i64,
    day: Option<DayReader>,
    restricted: Option<RestrictedItems>,
}

/// Rows of one day.
enum DayReader {
    Events(EventMerge),
    /// The remaining partitions of the item index, with the scan of the first one.
    Items {
        partitions: VecDeque<(i64, i64)>,
        pages: Option<Pages<ItemOfHour>>,
    },
    /// The remaining slices of a table with the newest rows first.
    Slices(VecDeque<Range<Millis>>),
}

impl RowReader {
    pub fn new(store: &Store, request: RowRequest) -> Self {
        // A resumed read begins on the day of its last row.
        let first_instant = request.after.map_or(request.since, |after| after.at.max(request.since));
        let last = Millis(request.until.0.saturating_sub(1));
        let end_day = if request.until > request.since { last.day() + 1 } else { i64::MIN };
        let next_day = first_instant.day();
        Self { store: store.clone(), request, next_day, end_day, day: None, restricted: None }
    }

    /// Returns the day that is being read, in days since 1970.
    pub fn day(&self) -> i64 {
        self.next_day - i64::from(self.day.is_some())
    }

    /// Returns the next rows; `None` after the last. A page can be empty.
    pub async fn next_page(&mut self) -> Result<Option<Vec<StoredRow>>, Error> {
        loop {
            if self.day.is_none() {
                if self.next_day >= self.end_day {
                    return Ok(None);
                }
                self.open_day().await?;
            }
            match self.read_day_page().await? {
                Some(rows) => return Ok(Some(self.select_visible(rows).await?)),
                None => self.day = None,
            }
        }
    }

    async fn open_day(&mut self) -> Result<(), Error> {
        let day = self.next_day;
        // Read again for each day: an item may have become restricted since the export began.
        if let Visibility::WithoutChildSafety(lookup) = &self.request.visibility {
            self.restricted = Some(RestrictedItems::load(&self.store, &self.request.org, *lookup).await?);
        }
        let reader = match self.request.dataset {
            Dataset::Reports => self.open_events(HistoryKind::Report, day),
            Dataset::Decisions => self.open_events(HistoryKind::Decision, day),
            Dataset::Appeals => self.open_events(HistoryKind::Appeal, day),
            Dataset::Actions => self.open_events(HistoryKind::Action, day),
            Dataset::Strikes => self.open_events(HistoryKind::Strike, day),
            Dataset::Jobs => self.open_events(HistoryKind::Job, day),
            Dataset::Items | Dataset::Evaluations => self.open_items(day),
            Dataset::Deliveries | Dataset::Audit => self.open_slices(day),
        };
        self.day = Some(reader);
        self.next_day += 1;
        Ok(())
    }

    /// Returns the part of the day that was asked for.
    fn period_of(&self, day: i64) -> Range<Millis> {
        let start = Millis(day * DAY_MS).max(self.request.since);
        let start = self.request.after.map_or(start, |after| start.max(after.at));
        start..Millis((day + 1) * DAY_MS).min(self.request.until)
    }

    fn open_events(&self, kind: HistoryKind, day: i64) -> DayReader {
        let period = self.period_of(day);
        let shards = (0..SHARDS).filter(|shard| self.request.part.includes(day, *shard));
        let shards = shards.map(|shard| {
            let partition = (self.request.org.clone(), kind, day, shard);
            let range = RowRange::range((), period.clone());
            EventShard { pages: self.store.scan(&partition, range), rows: VecDeque::new(), is_ended: false }
        });
        DayReader::Events(EventMerge { shards: shards.collect(), heap: BinaryHeap::new(), is_filled: false })
    }

    fn open_items(&self, day: i64) -> DayReader {
        let period = self.period_of(day);
        let hours = period.start.hour()..Millis(period.end.0.saturating_sub(1)).hour() + 1;
        let partitions = hours.flat_map(|hour| (0..history::SHARDS).map(move |shard| (hour, shard)));
        let partitions = partitions.filter(|(_, shard)| self.request.part.includes(day, *shard));
        let first = self.request.after.map(|after| (after.at.hour(), history::shard_of(draw_of(&after))));
        let partitions = partitions.filter(|partition| first.is_none_or(|first| *partition >= first));
        DayReader::Items { partitions: partitions.collect(), pages: None }
    }

    fn open_slices(&self, day: i64) -> DayReader {
        let mut slices = VecDeque::new();
        if self.request.part.includes(day, 0) {
            let Range { mut start, end } = self.period_of(day);
            while start < end {
                let slice_end = Millis((start.0.div_euclid(SLICE_MS) + 1) * SLICE_MS).min(end);
                slices.push_back(start..slice_end);
                start = slice_end;
            }
        }
        DayReader::Slices(slices)
    }

    async fn read_day_page(&mut self) -> Result<Option<Vec<StoredRow>>, Error> {
        let Self { store, request, day, .. } = self;
        let rows = match day {
            None => None,
            Some(DayReader::Events(merge)) => {
                let events = merge.next_rows(PAGE_ROWS).await?;
                match events {
                    Some(events) if request.dataset == Dataset::Jobs => Some(load_jobs(store, events).await?),
                    Some(events) => Some(events.into_iter().map(StoredRow::Event).collect()),
                    None => None,
                }
            }
            Some(DayReader::Items { partitions, pages }) => {
                read_items(store, request, partitions, pages).await?
            }
            Some(DayReader::Slices(slices)) => read_slices(store, request, slices).await?,
        };
        let Some(mut rows) = rows else { return Ok(None) };
        if let Some(after) = request.after {
            // Items are ordered within their hour by the random bits of their ids, not by time.
            let is_item = matches!(request.dataset, Dataset::Items | Dataset::Evaluations);
            let place = |position: &RowPosition| {
                let (hour, draw) = if is_item { (position.at.hour(), draw_of(position)) } else { (0, 0) };
                (hour, draw, if is_item { Millis(0) } else { position.at }, position.id)
            };
            let after = place(&after);
            rows.retain(|row| place(&row.position()) > after);
        }
        Ok(Some(rows))
    }

    /// Drops rows that the reader may not see.
    async fn select_visible(&mut self, rows: Vec<StoredRow>) -> Result<Vec<StoredRow>, Error> {
        let Some(restricted) = &mut self.restricted else { return Ok(rows) };
        let mut visible_rows = Vec::with_capacity(rows.len());
        for row in rows {
            if row.is_child_safety() {
                continue;
            }
            // Saves decoding the related items of each decision.
            if restricted.is_empty() {
                visible_rows.push(row);
                continue;
            }
            let mut candidates: Vec<ItemKey> = Vec::new();
            row.for_each_item(|item| {
                if restricted.is_candidate(item) {
                    candidates.push(item.clone());
                }
            });
            let mut is_visible = true;
            for item in &candidates {
                is_visible &= !restricted.is_restricted(item).await?;
            }
            if is_visible {
                visible_rows.push(row);
            }
        }
        Ok(visible_rows)
    }
}

fn draw_of(position: &RowPosition) -> i64 {
    random_bits_of(position.id.into())
}

/// One partition of a day's events.
struct EventShard {
    pages: Pages<HistoryEvent>,
    rows: VecDeque<HistoryEvent>,
    is_ended: bool,
}

impl EventShard {
    async fn read_page(&mut self) -> Result<(), Error> {
        match self.pages.next_page().await? {
            Some(page) => self.rows.extend(page),
            None => self.is_ended = true,
        }
        Ok(())
    }
}

/// Merges the partitions of a day into one order.
struct EventMerge {
    shards: Vec<EventShard>,
    /// Position of the first row of each shard that has rows.
    heap: BinaryHeap<Reverse<(RowPosition, usize)>>,
    is_filled: bool,
}

impl EventMerge {
    /// Shards with at most this many rows are read ahead, when another one has to be read.
    const READ_AHEAD: usize = 100;

    async fn next_rows(&mut self, limit: usize) -> Result<Option<Vec<HistoryEvent>>, Error> {
        if !self.is_filled {
            future::try_join_all(self.shards.iter_mut().map(EventShard::read_page)).await?;
            for (index, shard) in self.shards.iter().enumerate() {
                self.heap.extend(shard.rows.front().map(|row| Reverse((position_of(row), index))));
            }
            // Later pages are read when a shard runs empty.
            self.is_filled = true;
        }
        let mut rows = Vec::new();
        while rows.len() < limit {
            let Some(Reverse((_, index))) = self.heap.pop() else { break };
            let shard = &mut self.shards[index];
            rows.extend(shard.rows.pop_front());
            if shard.rows.is_empty() && !shard.is_ended {
                // Shards run empty at about the same time, so the next ones are read with this one.
                let low_shards = self.shards.iter_mut();
                let low_shards =
                    low_shards.filter(|shard| !shard.is_ended && shard.rows.len() <= Self::READ_AHEAD);
                future::try_join_all(low_shards.map(EventShard::read_page)).await?;
            }
            let next = self.shards[index].rows.front().map(position_of);
            self.heap.extend(next.map(|position| Reverse((position, index))));
        }
        Ok((!rows.is_empty()).then_some(rows))
    }
}

fn position_of(row: &HistoryEvent) -> RowPosition {
    RowPosition { at: row.at, id: row.id }
}

/// Loads the jobs of events. An event with another time than its job was left by a process that did not open the job.
async fn load_jobs(store: &Store, events: Vec<HistoryEvent>) -> Result<Vec<StoredRow>, Error> {
    let keys: Vec<_> = events.iter().map(|event| (event.org.clone(), event.id.into())).collect();
    let jobs = store.get_many::<Job>(&keys).await?;
    let jobs = jobs.into_iter().zip(events).filter_map(|(job, event)| {
        job.filter(|job| job.created_at == event.at).map(|job| StoredRow::Job(Box::new(job)))
    });
    Ok(jobs.collect())
}

async fn read_items(
    store: &Store,
    request: &RowRequest,
    partitions: &mut VecDeque<(i64, i64)>,
    pages: &mut Option<Pages<ItemOfHour>>,
) -> Result<Option<Vec<StoredRow>>, Error> {
    loop {
        let mut scan = match pages.take() {
            Some(scan) => scan,
            None => {
                let Some((hour, shard)) = partitions.pop_front() else { return Ok(None) };
                let after = request.after.filter(|after| after.at.hour() == hour);
                let first = after.map_or(0, |after| draw_of(&after));
                let range = RowRange::range((), first..).page_size(PAGE_ROWS);
                store.scan::<ItemOfHour>(&(request.org.clone(), hour, shard), range)
            }
        };
        let Some(places) = scan.next_page().await? else { continue };
        *pages = Some(scan);
        let period = request.since..request.until;
        let keys: Vec<_> = places
            .into_iter()
            .filter(|place| period.contains(&place.append_ms))
            .map(|row| (row.org, row.type_id, row.item_id, row.append_ms, row.offset, row.position))
            .collect();
        let items = store.get_many::<Item>(&keys).await?.into_iter().flatten();
        // An item that waits for its media has a row before it has results.
        let is_wanted =
            |item: &Item| request.dataset != Dataset::Evaluations || item.state == SubmissionState::Evaluated;
        return Ok(Some(items.filter(is_wanted).map(|item| StoredRow::Item(Box::new(item))).collect()));
    }
}

async fn read_slices(
    store: &Store,
    request: &RowRequest,
    slices: &mut VecDeque<Range<Millis>>,
) -> Result<Option<Vec<StoredRow>>, Error> {
    if slices.is_empty() {
        return Ok(None);
    }
    let next_slices: Vec<_> = slices.drain(..slices.len().min(CONCURRENT_SLICES)).collect();
    let pages: Vec<Vec<StoredRow>> = stream::iter(next_slices)
        .map(|slice| read_slice(store, request, slice))
        .buffered(CONCURRENT_SLICES)
        .try_collect()
        .await?;
    Ok(Some(pages.into_iter().flatten().collect()))
}

/// Reads a slice and sorts it by time and id.
async fn read_slice(
    store: &Store,
    request: &RowRequest,
    slice: Range<Millis>,
) -> Result<Vec<StoredRow>, Error> {
    let partition = (request.org.clone(), slice.start.day());
    let range = || RowRange::range((), slice.clone());
    let mut rows: Vec<StoredRow> = if request.dataset == Dataset::Audit {
        let entries = store.scan::<AuditEntry>(&partition, RowRange::range((), slice.clone())).all().await?;
        entries.into_iter().map(StoredRow::Audit).collect()
    } else {
        let places = store.scan::<DeliveryByDay>(&partition, range()).all().await?;
        let mut rows = Vec::with_capacity(places.len());
        for places in places.chunks(PAGE_ROWS) {
            let keys: Vec<_> = places.iter().map(|place| (place.org.clone(), place.event_id)).collect();
            let deliveries = store.get_many::<Delivery>(&keys).await?.into_iter().zip(places);
            // A delivery that changed much later is listed again, so only its first place counts.
            let deliveries = deliveries
                .filter_map(|(delivery, place)| delivery.filter(|delivery| delivery.created_at == place.at));
            rows.extend(deliveries.map(|delivery| StoredRow::Delivery(Box::new(delivery))));
        }
        rows
    };
    // These tables are stored newest first.
    rows.sort_by_key(StoredRow::position);
    Ok(rows)
}

/// Number of milliseconds of an hour divides a day, so that no hour belongs to two days.
const _: () = assert!(DAY_MS % HOUR_MS == 0);
