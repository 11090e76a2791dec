//! Thread around a reported item, in order of creation.

use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_catalog::Compiled;
use tidegate_schemas::ids::{ItemKey, Millis};

use crate::{
    Error,
    items::context::{self, StoredItem},
};

/// Entry of the thread.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    item: &'a StoredItem,
    /// True if the report lists the entry in `reportedItemsInThread`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reported: bool,
}

/// Returns the stored thread in order of creation, with the reported entries marked.
pub(super) fn order_thread(config: &Compiled, thread: &str, reported: &str) -> Result<Box<RawValue>, Error> {
    let items: Vec<StoredItem> = serde_json::from_str(thread).map_err(Error::corrupt("list"))?;
    let reported: Vec<ItemKey> = serde_json::from_str(reported).map_err(Error::corrupt("list"))?;
    let times =
        items.iter().map(|item| config.item_type(&item.type_id)?.created_at(item.data.get().as_bytes()));
    let entries = items.iter().map(|item| {
        let is_entry = |key: &ItemKey| key.id == item.id && key.type_id == item.type_id;
        Entry { item, reported: reported.iter().any(is_entry) }
    });
    context::raw(context::to_json(&sort_by_time(times, entries))?.as_bytes())
}

/// Sorts entries by time. An entry without a time stays behind its predecessor; equal times keep their order.
fn sort_by_time<E>(times: impl Iterator<Item = Option<Millis>>, entries: impl Iterator<Item = E>) -> Vec<E> {
    let mut latest = Millis(i64::MIN);
    let timed = times.zip(entries).map(|(time, entry)| {
        latest = time.unwrap_or(latest);
        (latest, entry)
    });
    let mut timed: Vec<_> = timed.collect();
    timed.sort_by_key(|(time, _)| *time);
    timed.into_iter().map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_without_time_stays_behind_the_one_before_it() {
        let times = [None, Some(30), None, Some(10), Some(30), Some(20), None];
        let times = times.into_iter().map(|time| time.map(Millis));
        assert_eq!(sort_by_time(times, 0..7), [0, 3, 5, 6, 1, 2, 4]);
    }
}
