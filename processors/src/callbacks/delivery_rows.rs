//! Deliveries, attempts and due rows as the store keeps them.
//!
//! It decides nothing: `state` does.
//!
//! What is owed always has a due row at or after its `next_at`, because the due row is written first and the
//! delivery's row, which is the truth, last.

use std::time::Duration;

use tidegate_moderation as moderation;
use tidegate_schemas::{
    ids::{EventId, Millis, OrgId},
    records::Callback,
};
use tidegate_store::{
    Batch, Store, WriteTime,
    tables::callbacks::{
        deliveries::{Attempt, Delivery, DeliveryByDay, RELIST_AFTER},
        due::Due,
    },
};

use super::delivery_state::{Made, Progress, State};
use crate::{consumer::error::TaskError, scheduler::due_index::minute_of};

/// A record that waited longer begins its delivery as if it had waited so long: rows expire by their write time, and
/// what came after an outage of weeks must not be gone when it is written.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// The delivery that a record begins, as it stands before its first attempt. Whoever reads the same record makes the
/// same one.
pub(crate) fn begun(
    record: Callback,
    body: bytes::Bytes,
    at: (u32, i64),
    written_at: Millis,
    now: Millis,
) -> Delivery {
    let (shard, offset) = at;
    let progress = Progress::new(written_at);
    let waited_long = now.minus(LONGEST_WAIT);
    Delivery {
        org: record.org,
        event_id: record.event_id,
        event_type: record.event_type,
        endpoint: record.endpoint,
        subject: record.subject,
        state: progress.state.name().to_owned(),
        attempts: progress.attempts,
        next_at: progress.next_at,
        body,
        sequence: offset,
        occurred_at: record.occurred_at,
        created_at: written_at,
        delivered_at: None,
        held_reason: None,
        last_status: None,
        last_error: None,
        shard: i64::from(shard),
        round: progress.round,
        tries: progress.tries,
        blocked: progress.blocked,
        gone: progress.gone,
        applied: offset,
        listed_at: (written_at < waited_long).then_some(waited_long),
        written: WriteTime::of(written_at.max(waited_long), 0).0,
    }
}

pub(crate) fn progress(row: &Delivery) -> Result<Progress, TaskError> {
    let state =
        State::parse(&row.state).ok_or_else(|| corrupt("delivery", format!("state {:?}", row.state)))?;
    Ok(Progress {
        state,
        attempts: row.attempts,
        round: row.round,
        tries: row.tries,
        blocked: row.blocked,
        gone: row.gone,
        next_at: row.next_at,
        delivered_at: row.delivered_at,
        held_reason: row.held_reason.clone(),
    })
}

/// The row with another progress, written after it.
pub(crate) fn moved(row: &Delivery, progress: &Progress, now: Millis) -> Delivery {
    Delivery {
        state: progress.state.name().to_owned(),
        attempts: progress.attempts,
        round: progress.round,
        tries: progress.tries,
        blocked: progress.blocked,
        gone: progress.gone,
        next_at: progress.next_at,
        delivered_at: progress.delivered_at,
        held_reason: progress.held_reason.clone(),
        written: WriteTime::after(Some(WriteTime(row.written)), now).0,
        ..row.clone()
    }
}

/// What the row of an attempt says of it. The receiver's wish is not kept.
pub(crate) fn made(row: &Attempt) -> Result<Made, TaskError> {
    let outcome =
        row.outcome.parse().map_err(|_| corrupt("attempt", format!("outcome {:?}", row.outcome)))?;
    Ok(Made { number: row.number, round: row.round, at: row.at, outcome, retry_after: None })
}

pub(crate) fn due(row: &Delivery, due_at: Millis) -> Due {
    Due {
        shard: row.shard,
        minute: minute_of(due_at),
        due_at,
        org: row.org.clone(),
        event_id: row.event_id,
        attempt: row.attempts + 1,
    }
}

pub(crate) async fn get(
    store: &Store,
    org: &OrgId,
    event_id: EventId,
) -> Result<Option<Delivery>, TaskError> {
    Ok(store.get::<Delivery>(&(org.clone(), event_id)).await?)
}

/// Brings the delivery up again at this time.
pub(crate) async fn put_due(
    store: &Store,
    row: &Delivery,
    due_at: Millis,
    now: Millis,
) -> Result<(), TaskError> {
    Ok(store.put(WriteTime::after(None, now), &[due(row, due_at)]).await?)
}

/// Stands for the attempt where the delivery was let go before it was begun.
const NOT_BEGUN: i64 = 0;

/// Brings a delivery that its owner had not begun up at once, wherever its shard is then.
pub(crate) fn let_go(org: &OrgId, event_id: EventId, shard: i64, now: Millis) -> Due {
    Due { shard, minute: minute_of(now), due_at: now, org: org.clone(), event_id, attempt: NOT_BEGUN }
}

pub(crate) fn was_let_go(due: &Due) -> bool {
    due.attempt == NOT_BEGUN
}

pub(crate) async fn put_let_go(store: &Store, rows: &[Due], now: Millis) -> Result<(), TaskError> {
    Ok(store.put(WriteTime::after(None, now), rows).await?)
}

/// Takes back that it was let go, since an attempt may follow: who owns the shard later has to wait for that.
pub(crate) async fn take_up(store: &Store, due: &Due, attempt: i64, now: Millis) -> Result<(), TaskError> {
    // After the row, though the clock of its writer may be ahead.
    let at = WriteTime::after(Some(WriteTime::after(None, due.due_at)), now);
    Ok(store.put(at, &[Due { attempt, ..due.clone() }]).await?)
}

/// Writes a delivery that was begun, and when it is looked at next if an attempt is owed.
pub(crate) async fn begin(
    store: &Store,
    row: &Delivery,
    due_at: Option<Millis>,
    now: Millis,
) -> Result<(), TaskError> {
    let mut first = Batch::new();
    if let Some(due_at) = due_at {
        first.put_owned(WriteTime::after(None, now), due(row, due_at));
    }
    first.put_owned(WriteTime(row.written), listed(row));
    store.write(first).await?;
    Ok(store.put(WriteTime(row.written), std::slice::from_ref(row)).await?)
}

/// The row with its place in the lists. One that moves long after it was listed, as by a late resend, lives longer than
/// that place, and takes a new one.
fn relisted(row: &Delivery) -> Delivery {
    let moved_at = WriteTime(row.written).millis();
    let is_late = moved_at > row.listed().plus(RELIST_AFTER);
    Delivery { listed_at: if is_late { Some(moved_at) } else { row.listed_at }, ..row.clone() }
}

fn listed(row: &Delivery) -> DeliveryByDay {
    let at = row.listed();
    DeliveryByDay {
        org: row.org.clone(),
        day: at.day(),
        at,
        event_id: row.event_id,
        subject: row.subject.clone(),
    }
}

/// Writes a delivery that has moved, with the attempt that moved it.
pub(crate) async fn save(
    store: &Store,
    row: &Delivery,
    attempt: Option<&Attempt>,
    due_at: Option<Millis>,
    now: Millis,
) -> Result<(), TaskError> {
    let mut first = Batch::new();
    if let Some(due_at) = due_at {
        first.put_owned(WriteTime::after(None, now), due(row, due_at));
    }
    if let Some(attempt) = attempt {
        first.put(WriteTime::after(None, attempt.at), attempt);
    }
    let row = &relisted(row);
    if row.listed() == WriteTime(row.written).millis() {
        first.put_owned(WriteTime(row.written), listed(row));
    }
    store.write(first).await?;
    Ok(store.put(WriteTime(row.written), std::slice::from_ref(row)).await?)
}

fn corrupt(what: &'static str, detail: String) -> TaskError {
    moderation::Error::Corrupt { what, detail }.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;
    use tidegate_schemas::{
        ids::{DAY_MS, ItemKey},
        records::Command,
    };
    use tidegate_store::Row as _;

    use super::*;

    fn record() -> Callback {
        Callback {
            org: OrgId::new("acme"),
            command: Command::Send,
            event_id: EventId(uuid::Uuid::from_u128(1)),
            event_type: "action.automatic".to_owned(),
            endpoint: None,
            subject: ItemKey::new("post", "p1"),
            occurred_at: Millis(0),
            body: Bytes::from_static(b"{}"),
        }
    }

    #[test]
    fn whatever_a_delivery_goes_through_its_place_in_the_lists_outlives_its_row() {
        let ttl = |table: &tidegate_store::Table| table.ttl.unwrap_or_default();
        let mut now = Millis(100 * DAY_MS);
        let mut row = begun(record(), Bytes::new(), (0, 1), now, now);
        // Moves after hours and after almost as long as the row lives, as by late resends.
        for pause in [0, 1, 30, 95, 97, 29 * 24, 29 * 24, 2, 29 * 24] {
            now = now.plus(Duration::from_secs(pause * 3_600));
            let progress = progress(&row).unwrap().after_resend(now);
            row = relisted(&moved(&row, &progress, now));
            let row_ends = WriteTime(row.written).millis().plus(ttl(Delivery::TABLE));
            let place_ends = row.listed().plus(ttl(DeliveryByDay::TABLE));
            assert!(row_ends < place_ends, "after {pause} hours: {row_ends:?} is not before {place_ends:?}");
        }
    }

    #[test]
    fn a_record_that_waited_for_weeks_begins_a_delivery_that_has_not_expired() {
        let now = Millis(100 * DAY_MS);
        let written = |written_at: Millis| {
            let row = begun(record(), Bytes::new(), (0, 1), written_at, now);
            assert_eq!(row.created_at, written_at);
            assert_eq!(row.listed(), WriteTime(row.written).millis(), "it is listed for as long as it lives");
            WriteTime(row.written).millis()
        };
        assert_eq!(written(Millis(60 * DAY_MS)), Millis(99 * DAY_MS));
        assert_eq!(written(Millis(now.0 - 5)), Millis(now.0 - 5), "the same for whoever reads it soon");
    }
}
