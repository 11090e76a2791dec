//! Reads callback deliveries for operators, and sends commands to the owner of a delivery. Only the owner of the partition
//! writes a delivery; it receives commands from the topic `callbacks`.

use futures::future;
use tidegate_moderation::{Deps, Error};
use tidegate_schemas::{
    ids::{EventId, Millis, OrgId},
    records::{Callback, Command},
};
use tidegate_store::{
    Cursor, DayCursor, Row as _, RowRange, Store,
    tables::callbacks::deliveries::{Attempt, Delivery, DeliveryByDay},
};
use tidegate_stream::{Record, Topic};

/// Rows read at once.
const BATCH_ROWS: usize = 500;

pub(crate) struct DeliveryQuery<F> {
    pub(crate) filter: F,
    pub(crate) limit: usize,
    /// Rows that may be read for the page.
    pub(crate) rows: usize,
    pub(crate) from: Option<DayCursor>,
}

/// Loads a page of deliveries, newest first, and the place where the next page begins.
pub(crate) async fn load_page(
    store: &Store,
    org: &OrgId,
    query: DeliveryQuery<impl Fn(&Delivery) -> bool>,
    now: Millis,
) -> Result<(Vec<Delivery>, Option<DayCursor>), tidegate_store::Error> {
    let DeliveryQuery { filter: wants, limit, mut rows, from } = query;
    let day = Millis::day;
    let kept_for = DeliveryByDay::TABLE.ttl.unwrap_or_default();
    let (oldest, newest) = (day(now.minus(kept_for)), day(now.plus(kept_for)));
    let mut place = match from {
        Some(from) => DayCursor { partition: from.partition.min(newest), ..from },
        None => DayCursor::start_of(find_newest_day(store, org, day(now), newest).await?),
    };
    let mut deliveries = Vec::new();
    while place.partition >= oldest {
        let batch_limit = rows.min(BATCH_ROWS);
        if batch_limit == 0 || deliveries.len() >= limit {
            return Ok((deliveries, Some(place)));
        }
        let range = RowRange::all().limit(batch_limit).after(place.after.clone());
        let mut entries = store.scan::<DeliveryByDay>(&(org.clone(), place.partition), range);
        let day_entries = entries.all().await?;
        // Entries that the filter drops count as well: a page of a rare state must not read the whole history.
        rows -= day_entries.len();
        let keys: Vec<_> = day_entries.iter().map(|entry| (org.clone(), entry.event_id)).collect();
        for (entry_index, delivery) in store.get_many::<Delivery>(&keys).await?.into_iter().enumerate() {
            // A delivery that was listed again has a newer entry, under which it appears.
            let is_current =
                |delivery: &Delivery| delivery.list_time() == day_entries[entry_index].at && wants(delivery);
            let Some(delivery) = delivery.filter(is_current) else { continue };
            if deliveries.len() >= limit {
                let after = day_entries[..entry_index].last().map(Cursor::after).or(place.after);
                return Ok((deliveries, Some(DayCursor { partition: place.partition, after })));
            }
            deliveries.push(delivery);
        }
        place = match entries.cursor() {
            Some(after) => DayCursor { partition: place.partition, after: Some(after) },
            None => DayCursor::start_of(place.partition - 1),
        };
    }
    Ok((deliveries, None))
}

/// Returns the newest day with deliveries, or today. The process that lists deliveries can have a clock ahead of this one, or
/// had one before it was set back.
async fn find_newest_day(
    store: &Store,
    org: &OrgId,
    today: i64,
    newest: i64,
) -> Result<i64, tidegate_store::Error> {
    let ahead = (today + 1..=newest).map(|day| async move {
        let day_entries =
            store.scan::<DeliveryByDay>(&(org.clone(), day), RowRange::all().limit(1)).all().await?;
        Ok::<_, tidegate_store::Error>(if day_entries.is_empty() { today } else { day })
    });
    // The days ahead are read concurrently, because they are mostly empty.
    Ok(future::try_join_all(ahead).await?.into_iter().max().unwrap_or(today))
}

/// Loads a delivery with its attempts in order.
pub(crate) async fn load_delivery(
    store: &Store,
    org: &OrgId,
    event_id: EventId,
) -> Result<Option<(Delivery, Vec<Attempt>)>, tidegate_store::Error> {
    let key = (org.clone(), event_id);
    let Some(delivery) = store.get::<Delivery>(&key).await? else { return Ok(None) };
    let attempts = store.scan::<Attempt>(&key, RowRange::all()).all().await?;
    Ok(Some((delivery, attempts)))
}

/// Sends a command to the owner of a delivery.
pub(crate) async fn send_command(deps: &Deps, delivery: Delivery, command: Command) -> Result<(), Error> {
    let record = Callback {
        org: delivery.org,
        command,
        event_id: delivery.event_id,
        event_type: delivery.event_type.to_string(),
        endpoint: delivery.endpoint,
        occurred_at: delivery.occurred_at,
        // A command carries no body: the owner has the stored one.
        body: bytes::Bytes::new(),
        subject: delivery.subject,
        // The key of the event itself, so that the command reaches the owner of the delivery's partition.
    };
    let key = record.subject.log_key(&record.org);
    let partition = deps.log.partition(Topic::Callbacks, &key);
    deps.log.append(&[(partition, Record::from_content(&key, &record))]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_schemas::{documents::Event, ids::DAY_MS};
    use tidegate_store::WriteTime;

    use super::*;

    const NOW: Millis = Millis(20_800 * DAY_MS + 7);

    fn ago(days: i64) -> Millis {
        Millis(NOW.0 - days * DAY_MS)
    }

    async fn store_delivery(store: &Store, number: u128, created_at: Millis, listing_times: &[Millis]) {
        let event_id = EventId(uuid::Uuid::from_u128(number));
        let org = OrgId::new("acme");
        let subject = tidegate_schemas::ids::ItemKey::new("post", "p1");
        let last = *listing_times.last().unwrap();
        // As the owner writes it last: rows of the past would have expired.
        let at = WriteTime::from_append(Millis::now(), 0);
        let row = Delivery {
            org: org.clone(),
            event_id,
            event_type: Event::AutomaticAction.into(),
            endpoint: None,
            subject: subject.clone(),
            state: tidegate_store::tables::callbacks::deliveries::DeliveryState::Delivered,
            attempts: 1,
            next_at: None,
            body: bytes::Bytes::from_static(b"{}"),
            sequence: 0,
            occurred_at: created_at,
            created_at,
            delivered_at: None,
            held_reason: None,
            last_status: None,
            last_error: None,
            shard: 0,
            round: 0,
            tries: 0,
            blocked: 0,
            gone: 0,
            applied: 0,
            listed_at: (last != created_at).then_some(last),
            written: at.0,
        };
        store.put_rows(at, &[row]).await.unwrap();
        let entries: Vec<_> = listing_times
            .iter()
            .map(|listed_at| DeliveryByDay {
                org: org.clone(),
                day: listed_at.day(),
                at: *listed_at,
                event_id,
                subject: subject.clone(),
            })
            .collect();
        store.put_rows(at, &entries).await.unwrap();
    }

    #[tokio::test]
    async fn delivery_is_listed_once_while_its_row_lives() {
        let folder = tempfile::tempdir().unwrap();
        let db = fjall::Database::builder(folder.path()).open().unwrap();
        let rows = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
        store_delivery(&rows, 1, ago(1), &[ago(1)]).await;
        // Delivered on its fourth day, so its row lives for 34 days.
        store_delivery(&rows, 2, ago(33), &[ago(33)]).await;
        // Resent on the 29th day, and again.
        store_delivery(&rows, 3, ago(60), &[ago(60), ago(31)]).await;
        store_delivery(&rows, 4, ago(20), &[ago(20), ago(3)]).await;
        // Written by a clock that was set back since, and by one that is slightly ahead.
        store_delivery(&rows, 5, ago(-12), &[ago(-12)]).await;
        store_delivery(&rows, 6, ago(-1), &[ago(-1)]).await;
        for limit in [1, 10] {
            let (mut listed_ids, mut cursor) = (Vec::new(), None);
            loop {
                let query = DeliveryQuery { filter: |_: &Delivery| true, limit, rows: 100, from: cursor };
                let (page, next) = load_page(&rows, &OrgId::new("acme"), query, NOW).await.unwrap();
                listed_ids.extend(page.iter().map(|row| row.event_id.0.as_u128()));
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(listed_ids, [5, 6, 1, 4, 3, 2], "by their last place, {limit} a page");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn delivery_listed_during_paging_is_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let db = fjall::Database::builder(folder.path()).open().unwrap();
        let rows = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
        let at = |second: i64| Millis(ago(1).0 + second * 1_000);
        for nth in 1..=5_u8 {
            store_delivery(&rows, nth.into(), at(nth.into()), &[at(nth.into())]).await;
        }
        let (mut listed_ids, mut cursor, next_number) = (Vec::new(), None, std::cell::Cell::new(6));
        loop {
            let filter = |_: &Delivery| {
                let nth = next_number.replace(next_number.get() + 1);
                let at = at(i64::try_from(nth).unwrap());
                let listed = store_delivery(&rows, nth, at, std::slice::from_ref(&at));
                tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(listed));
                true
            };
            let query = DeliveryQuery { filter, limit: 2, rows: 100, from: cursor };
            let (page, next) = load_page(&rows, &OrgId::new("acme"), query, NOW).await.unwrap();
            listed_ids.extend(page.iter().map(|row| row.event_id.0.as_u128()));
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(listed_ids, [5, 4, 3, 2, 1]);
    }
}
