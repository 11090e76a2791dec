//! Reads the lists of a user (items, jobs, reports), newest first.

use tidegate_schemas::ids::Millis;
use tidegate_store::{Cursor, DayCursor, Fact, RowRange, Store, tables::items::by_user::stretch};

/// Pointers read at once.
const BATCH_ROWS: usize = 200;

/// Page under construction: `next` reads pointers, and `add` appends the entries built from them.
#[derive(Debug)]
pub(crate) struct HistoryPage<V> {
    /// Start of the last pointers read; its day is a stretch. `None` at the end of the list.
    place: Option<DayCursor>,
    /// Start of the next pointers.
    next_place: Option<DayCursor>,
    oldest: i64,
    limit: usize,
    /// Rows that the page may still read.
    rows: usize,
    entries: Vec<V>,
}

impl<V> HistoryPage<V> {
    /// Starts at the cursor of the previous page.
    pub(crate) fn new<R: Fact>(cursor: Option<DayCursor>, limit: usize, rows: usize, now: Millis) -> Self {
        // Another process's clock can run ahead, so there may be rows in the next stretch.
        let newest = stretch(now) + 1;
        let place = match cursor {
            Some(from) => DayCursor { partition: from.partition.min(newest), ..from },
            None => DayCursor::start_of(newest),
        };
        let oldest = stretch(now.minus(R::TABLE.ttl.unwrap_or_default()));
        Self { place: None, next_place: Some(place), oldest, limit, rows, entries: Vec::new() }
    }

    /// Reads the next pointers of the list; `None` if the page is full or the list is complete. `partition` returns the partition
    /// of a stretch.
    pub(crate) async fn next<R: Fact>(
        &mut self,
        store: &Store,
        partition: impl Fn(i64) -> R::Partition,
    ) -> Result<Option<Vec<R>>, tidegate_store::Error> {
        while let Some(place) = self.next_place.take_if(|_| self.entries.len() < self.limit && self.rows > 0)
        {
            // Older stretches have expired.
            if place.partition < self.oldest {
                return Ok(None);
            }
            let range = RowRange::all().limit(self.rows.min(BATCH_ROWS)).after(place.after.clone());
            let mut pages = store.scan::<R>(&partition(place.partition), range);
            let pointers = pages.all().await?;
            // All pointers read count, also those of entries that are withheld.
            self.rows -= pointers.len();
            self.next_place = Some(match pages.cursor() {
                Some(after) => DayCursor { partition: place.partition, after: Some(after) },
                None => DayCursor::start_of(place.partition - 1),
            });
            self.place = Some(place);
            if !pointers.is_empty() {
                return Ok(Some(pointers));
            }
        }
        Ok(None)
    }

    /// Adds the entries of the last pointers read, up to the limit. `None` entries are withheld or gone.
    pub(crate) fn add<R: Fact>(&mut self, pointers: &[R], loaded_entries: Vec<Option<V>>) {
        for (entry_index, entry) in loaded_entries.into_iter().enumerate() {
            let Some(entry) = entry else { continue };
            if self.entries.len() >= self.limit {
                // The page is full: the next one continues behind the last pointer that was used.
                let Some(place) = self.place.take() else { return };
                let after = pointers[..entry_index].last().map(Cursor::after).or(place.after);
                self.next_place = Some(DayCursor { partition: place.partition, after });
                return;
            }
            self.entries.push(entry);
        }
    }

    /// Returns the entries and the start of the next page.
    pub(crate) fn finish(self) -> (Vec<V>, Option<DayCursor>) {
        let next = self.next_place.filter(|place| place.partition >= self.oldest);
        (self.entries, next)
    }
}
