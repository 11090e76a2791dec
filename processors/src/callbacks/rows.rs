//! Deliveries, attempts and due rows as the store keeps them.
//!
//! It decides nothing: `state` does.
//!
//! What is owed always has a due row at or after its `next_at`, because the due row is written first and the
//! delivery's row, which is the truth, last.

use std::time::Duration;

use tidegate_egress::outcomes::{Class, Outcome};
use tidegate_moderation as moderation;
use tidegate_schemas::{
    ids::{EventId, Millis, OrgId},
    records::Callback,
};
use tidegate_store::{
    Batch, Store, WriteTime,
    tables::callbacks::{
        deliveries::{Attempt, Delivery, DeliveryByDay},
        due::Due,
    },
};

use super::state::{Made, Progress, State};
use crate::{due_scan::minute_of, error::Fault};

const DAY_MS: i64 = 86_400_000;
/// After so long a list's row is written again with each change of its delivery.
const RELIST_MS: i64 = 4 * DAY_MS;
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
        written: WriteTime::of(written_at.max(now.minus(LONGEST_WAIT)), 0).0,
    }
}

pub(crate) fn progress(row: &Delivery) -> Result<Progress, Fault> {
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
pub(crate) fn made(row: &Attempt) -> Result<Made, Fault> {
    const CLASSES: [Class; 7] = [
        Class::Unreachable,
        Class::BlockedAddress,
        Class::Redirect,
        Class::Busy,
        Class::Gone,
        Class::ClientError,
        Class::ServerError,
    ];
    let outcome = CLASSES
        .into_iter()
        .map(|class| Outcome::Retry { class })
        .chain([Outcome::Delivered])
        .find(|outcome| outcome.tag() == row.outcome)
        .ok_or_else(|| corrupt("attempt", format!("outcome {:?}", row.outcome)))?;
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

pub(crate) async fn get(store: &Store, org: &OrgId, event_id: EventId) -> Result<Option<Delivery>, Fault> {
    store.get::<Delivery>(&(org.clone(), event_id)).await.map_err(fault)
}

/// Brings the delivery up again at this time.
pub(crate) async fn put_due(store: &Store, row: &Delivery, due_at: Millis, now: Millis) -> Result<(), Fault> {
    store.put(WriteTime::after(None, now), &[due(row, due_at)]).await.map_err(fault)
}

/// Writes a delivery that was begun.
pub(crate) async fn begin(store: &Store, row: &Delivery, due_at: Millis, now: Millis) -> Result<(), Fault> {
    let mut first = Batch::new();
    first.put_owned(WriteTime::after(None, now), due(row, due_at));
    first.put_owned(WriteTime(row.written), listed(row));
    store.write(first).await.map_err(fault)?;
    store.put(WriteTime(row.written), std::slice::from_ref(row)).await.map_err(fault)
}

fn listed(row: &Delivery) -> DeliveryByDay {
    DeliveryByDay {
        org: row.org.clone(),
        day: row.created_at.0.div_euclid(DAY_MS),
        at: row.created_at,
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
) -> Result<(), Fault> {
    let mut first = Batch::new();
    if let Some(due_at) = due_at {
        first.put_owned(WriteTime::after(None, now), due(row, due_at));
    }
    if let Some(attempt) = attempt {
        first.put(WriteTime::after(None, attempt.at), attempt);
    }
    // A list's row lives five days longer than a delivery that does not move: one that was resent late must stay listed.
    let moved_at = WriteTime(row.written).millis();
    if moved_at.0 > row.created_at.0 + RELIST_MS {
        first.put_owned(WriteTime(row.written), listed(row));
    }
    store.write(first).await.map_err(fault)?;
    store.put(WriteTime(row.written), std::slice::from_ref(row)).await.map_err(fault)
}

pub(crate) fn fault(error: tidegate_store::Error) -> Fault {
    moderation::Error::from(error).into()
}

fn corrupt(what: &'static str, detail: String) -> Fault {
    moderation::Error::Corrupt { what, detail }.into()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_schemas::{ids::ItemKey, records::Command};

    use super::*;

    #[test]
    fn a_record_that_waited_for_weeks_begins_a_delivery_that_has_not_expired() {
        let record = Callback {
            org: OrgId::new("acme"),
            command: Command::Send,
            event_id: EventId(uuid::Uuid::from_u128(1)),
            event_type: "action.automatic".to_owned(),
            endpoint: None,
            subject: ItemKey::new("post", "p1"),
            occurred_at: Millis(0),
            body: Bytes::from_static(b"{}"),
        };
        let now = Millis(100 * DAY_MS);
        let written = |written_at: Millis| {
            let row = begun(record.clone(), Bytes::new(), (0, 1), written_at, now);
            assert_eq!(row.created_at, written_at);
            WriteTime(row.written).millis()
        };
        assert_eq!(written(Millis(60 * DAY_MS)), Millis(99 * DAY_MS));
        assert_eq!(written(Millis(now.0 - 5)), Millis(now.0 - 5), "the same for whoever reads it soon");
    }
}
