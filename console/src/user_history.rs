//! Reads the lists of a user, the newest first: items, jobs and reports.

use tidegate_schemas::ids::Millis;
use tidegate_store::{At, Cursor, Fact, Store, tables::items::by_user::stretch};

use crate::day_place::DayPlace;

/// Pointers that are read at once.
const STEP: usize = 200;

/// A page of a list in the making: pointers are read with `next`, and the entries made of them are added with `add`.
#[derive(Debug)]
pub(crate) struct Page<V> {
    /// Where the pointers that were read last begin; its day is a stretch. `None` at the end of the list.
    place: Option<DayPlace>,
    /// Where the next pointers begin.
    ahead: Option<DayPlace>,
    oldest: i64,
    limit: usize,
    /// Rows that the page may still cost.
    rows: usize,
    entries: Vec<V>,
}

impl<V> Page<V> {
    /// Starts behind the cursor of the page before.
    pub(crate) fn new<R: Fact>(from: Option<DayPlace>, limit: usize, rows: usize, now: Millis) -> Self {
        // A clock that was ahead may have written to the next stretch.
        let newest = stretch(now) + 1;
        let place = match from {
            Some(from) => DayPlace { day: from.day.min(newest), ..from },
            None => DayPlace { day: newest, after: None },
        };
        let oldest = stretch(now.minus(R::TABLE.ttl.unwrap_or_default()));
        Self { place: None, ahead: Some(place), oldest, limit, rows, entries: Vec::new() }
    }

    /// Reads further pointers of the list; `None` if the page is full or the list has ended. `partition` names those of a
    /// stretch.
    pub(crate) async fn next<R: Fact>(
        &mut self,
        store: &Store,
        partition: impl Fn(i64) -> R::Partition,
    ) -> Result<Option<Vec<R>>, tidegate_store::Error> {
        while let Some(place) = self.ahead.take_if(|_| self.entries.len() < self.limit && self.rows > 0) {
            if place.day < self.oldest {
                return Ok(None);
            }
            let range = At::all().limit(self.rows.min(STEP)).after(place.after.clone());
            let mut pages = store.scan::<R>(&partition(place.day), range);
            let pointers = pages.all().await?;
            self.rows -= pointers.len();
            self.ahead = Some(match pages.cursor() {
                Some(after) => DayPlace { day: place.day, after: Some(after) },
                None => DayPlace { day: place.day - 1, after: None },
            });
            self.place = Some(place);
            if !pointers.is_empty() {
                return Ok(Some(pointers));
            }
        }
        Ok(None)
    }

    /// Adds what is shown of the pointers that were read last, as far as there is room.
    pub(crate) fn add<R: Fact>(&mut self, pointers: &[R], shown: Vec<Option<V>>) {
        for (at, entry) in shown.into_iter().enumerate() {
            let Some(entry) = entry else { continue };
            if self.entries.len() >= self.limit {
                let Some(place) = self.place.take() else { return };
                let after = pointers[..at].last().map(Cursor::after).or(place.after);
                self.ahead = Some(DayPlace { day: place.day, after });
                return;
            }
            self.entries.push(entry);
        }
    }

    /// Returns the entries, and where the next page begins.
    pub(crate) fn done(self) -> (Vec<V>, Option<DayPlace>) {
        let next = self.ahead.filter(|place| place.day >= self.oldest);
        (self.entries, next)
    }
}
