//! Builds and writes the rows of deliveries, attempts and due times.
//!
//! A delivery that needs an attempt always has a due row at or after its `next_at`: the due row is written first and the
//! delivery's row, the source of truth, last.

use std::time::Duration;

use tidegate_moderation as moderation;
use tidegate_schemas::{
    ids::{EventId, Millis, OrgId},
    records::Callback,
};
use tidegate_store::{
    Batch, OpenEnum, Store, WriteTime,
    tables::callbacks::{
        deliveries::{Attempt, Delivery, DeliveryByDay, RELIST_AFTER},
        due::Due,
    },
};

use super::delivery_state::{FinishedAttempt, HoldReason, Progress};
use crate::{consumer::error::TaskError, due::index::minute_of};

/// Greatest age of a write time. Rows expire by their write time, so the delivery of a record that waited for weeks in an
/// outage would expire at once under the record's own time.
const MAX_RECORD_AGE: Duration = Duration::from_secs(86_400);

/// Builds the delivery of a record before its first attempt. A replay of the record builds the same delivery.
pub(crate) fn new_delivery(
    record: Callback,
    body: bytes::Bytes,
    position: (u32, i64),
    written_at: Millis,
    now: Millis,
) -> Delivery {
    let (shard, offset) = position;
    let progress = Progress::new(written_at);
    let earliest_write = now.minus(MAX_RECORD_AGE);
    Delivery {
        org: record.org,
        event_id: record.event_id,
        event_type: OpenEnum::parse(record.event_type),
        endpoint: record.endpoint,
        subject: record.subject,
        state: progress.state,
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
        blocked: progress.blocked_attempts,
        gone: progress.gone_answers,
        applied: offset,
        listed_at: (written_at < earliest_write).then_some(earliest_write),
        written: WriteTime::from_append(written_at.max(earliest_write), 0).0,
    }
}

pub(crate) fn progress(row: &Delivery) -> Progress {
    Progress {
        state: row.state,
        attempts: row.attempts,
        round: row.round,
        tries: row.tries,
        blocked_attempts: row.blocked,
        gone_answers: row.gone,
        next_at: row.next_at,
        delivered_at: row.delivered_at,
        held_reason: row.held_reason.as_deref().map(HoldReason::from_stored),
    }
}

/// Returns a copy of the row with this progress and a later write time.
pub(crate) fn with_progress(row: &Delivery, progress: &Progress, now: Millis) -> Delivery {
    Delivery {
        state: progress.state,
        attempts: progress.attempts,
        round: progress.round,
        tries: progress.tries,
        blocked: progress.blocked_attempts,
        gone: progress.gone_answers,
        next_at: progress.next_at,
        delivered_at: progress.delivered_at,
        held_reason: progress.held_reason.as_ref().map(|reason| reason.as_str().to_owned()),
        written: WriteTime::after(Some(WriteTime(row.written)), now).0,
        ..row.clone()
    }
}

/// Reads an attempt from its row. The row does not store the `Retry-After` of the endpoint.
pub(crate) fn parse_attempt(row: &Attempt) -> Result<FinishedAttempt, TaskError> {
    let outcome = row.outcome.parse().map_err(|_| moderation::Error::Corrupt {
        what: "attempt",
        detail: format!("outcome {:?}", row.outcome),
    })?;
    Ok(FinishedAttempt { number: row.number, round: row.round, ended_at: row.at, outcome, retry_after: None })
}

/// Builds the due row of the next attempt.
pub(crate) fn due_row(row: &Delivery, due_at: Millis) -> Due {
    Due {
        shard: row.shard,
        minute: minute_of(due_at),
        due_at,
        org: row.org.clone(),
        event_id: row.event_id,
        attempt: row.attempts + 1,
    }
}

pub(crate) async fn load(
    store: &Store,
    org: &OrgId,
    event_id: EventId,
) -> Result<Option<Delivery>, TaskError> {
    Ok(store.get::<Delivery>(&(org.clone(), event_id)).await?)
}

/// Makes the delivery due again at `due_at`.
pub(crate) async fn put_due(
    store: &Store,
    row: &Delivery,
    due_at: Millis,
    now: Millis,
) -> Result<(), TaskError> {
    Ok(store.put_rows(WriteTime::after(None, now), &[due_row(row, due_at)]).await?)
}

/// Attempt number in the due row of a delivery that was released before its attempt started.
const NOT_STARTED: i64 = 0;

/// Builds the due row of a delivery without a started attempt. The next owner of the shard attempts it without waiting
/// for a lease.
pub(crate) fn released_due_row(org: &OrgId, event_id: EventId, shard: i64, now: Millis) -> Due {
    Due { shard, minute: minute_of(now), due_at: now, org: org.clone(), event_id, attempt: NOT_STARTED }
}

/// True if the former owner of the shard released the delivery before its attempt started.
pub(crate) fn is_released(row: &Due) -> bool {
    row.attempt == NOT_STARTED
}

pub(crate) async fn put_released(store: &Store, rows: &[Due], now: Millis) -> Result<(), TaskError> {
    Ok(store.put_rows(WriteTime::after(None, now), rows).await?)
}

/// Marks a released delivery as started. A later owner of the shard then waits for the lease of the attempt.
pub(crate) async fn mark_started(
    store: &Store,
    released_row: &Due,
    attempt: i64,
    now: Millis,
) -> Result<(), TaskError> {
    // The write must win over the released row even if the clock of that row's writer is ahead of ours.
    let write_time = WriteTime::after(Some(WriteTime::after(None, released_row.due_at)), now);
    Ok(store.put_rows(write_time, &[Due { attempt, ..released_row.clone() }]).await?)
}

/// Writes a new delivery, with its due row if it needs an attempt.
pub(crate) async fn insert(
    store: &Store,
    row: &Delivery,
    due_at: Option<Millis>,
    now: Millis,
) -> Result<(), TaskError> {
    // The due row first: after a crash in between it is settled without effect. A delivery without a due row would be lost.
    let mut batch = Batch::new();
    if let Some(due_at) = due_at {
        batch.put_owned(WriteTime::after(None, now), due_row(row, due_at));
    }
    batch.put_owned(WriteTime(row.written), list_row(row));
    store.write(batch).await?;
    Ok(store.put_rows(WriteTime(row.written), std::slice::from_ref(row)).await?)
}

/// Sets the time under which the delivery is listed. A delivery that changes long after it was listed, as by a late resend,
/// would outlive its list row, so it gets a new one.
fn with_list_time(row: &Delivery) -> Delivery {
    let changed_at = WriteTime(row.written).millis();
    let is_late = changed_at > row.list_time().plus(RELIST_AFTER);
    Delivery { listed_at: if is_late { Some(changed_at) } else { row.listed_at }, ..row.clone() }
}

/// Builds the row for the list of the delivery's day.
fn list_row(row: &Delivery) -> DeliveryByDay {
    let listed_at = row.list_time();
    DeliveryByDay {
        org: row.org.clone(),
        day: listed_at.day(),
        at: listed_at,
        event_id: row.event_id,
        subject: row.subject.clone(),
    }
}

/// Writes a changed delivery and the attempt that changed it.
pub(crate) async fn save(
    store: &Store,
    row: &Delivery,
    attempt: Option<&Attempt>,
    due_at: Option<Millis>,
    now: Millis,
) -> Result<(), TaskError> {
    let mut batch = Batch::new();
    if let Some(due_at) = due_at {
        batch.put_owned(WriteTime::after(None, now), due_row(row, due_at));
    }
    // Before the delivery: `read_unapplied_attempts` finds the attempt if a crash prevents the second write.
    if let Some(attempt) = attempt {
        batch.put_row(WriteTime::after(None, attempt.at), attempt);
    }
    // The list row changes only with `listed_at`, so an ordinary attempt writes none.
    let row = &with_list_time(row);
    if row.list_time() == WriteTime(row.written).millis() {
        batch.put_owned(WriteTime(row.written), list_row(row));
    }
    store.write(batch).await?;
    Ok(store.put_rows(WriteTime(row.written), std::slice::from_ref(row)).await?)
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
    fn list_row_outlives_the_delivery() {
        let ttl = |table: &tidegate_store::Table| table.ttl.unwrap_or_default();
        let mut now = Millis(100 * DAY_MS);
        let mut row = new_delivery(record(), Bytes::new(), (0, 1), now, now);
        // Late resends: pauses in hours, up to almost the life of the row.
        for pause in [0, 1, 30, 95, 97, 29 * 24, 29 * 24, 2, 29 * 24] {
            now = now.plus(Duration::from_secs(pause * 3_600));
            let progress = progress(&row).after_resend(now);
            row = with_list_time(&with_progress(&row, &progress, now));
            let row_ends = WriteTime(row.written).millis().plus(ttl(Delivery::TABLE));
            let list_row_ends = row.list_time().plus(ttl(DeliveryByDay::TABLE));
            assert!(
                row_ends < list_row_ends,
                "after {pause} hours: {row_ends:?} is not before {list_row_ends:?}"
            );
        }
    }

    #[test]
    fn delivery_of_an_old_record_does_not_expire_at_once() {
        let now = Millis(100 * DAY_MS);
        let write_time = |written_at: Millis| {
            let row = new_delivery(record(), Bytes::new(), (0, 1), written_at, now);
            assert_eq!(row.created_at, written_at);
            assert_eq!(
                row.list_time(),
                WriteTime(row.written).millis(),
                "it is listed for as long as it lives"
            );
            WriteTime(row.written).millis()
        };
        assert_eq!(write_time(Millis(60 * DAY_MS)), Millis(99 * DAY_MS));
        assert_eq!(write_time(Millis(now.0 - 5)), Millis(now.0 - 5), "a recent record keeps its own time");
    }
}
