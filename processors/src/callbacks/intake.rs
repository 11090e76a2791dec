//! The records of the topic `callbacks`: begins deliveries, and carries commands out on them.
//!
//! It sends nothing. The worker keeps the order of records of one subject, and so of one event.

use std::sync::Arc;

use tidegate_moderation as moderation;
use tidegate_schemas::{
    ids::Millis,
    records::{Callback, Command},
};
use tidegate_store::tables::callbacks::deliveries::Delivery;
use tidegate_stream::failpoint;

use super::{
    attempt::tell_change, body, delivery_rows as rows, delivery_state::State, dispatcher::Dispatcher,
    endpoint_queues::Offered,
};
use crate::{
    consumer::{
        error::TaskError,
        handler::{DeadPart, Handler, Job, Part},
        key_queues::Key,
    },
    metrics,
};

pub(crate) struct Intake(pub(crate) Arc<Dispatcher>);

impl Handler for Intake {
    type Record = Callback;
    type Guard = ();

    fn parts(record: &Callback) -> Vec<(Key, usize)> {
        let key = Key { org: record.org.clone(), item: record.subject.clone() };
        vec![(key, record.body.len())]
    }

    fn dead_part(job: &Job<Callback>, _part: usize) -> DeadPart {
        DeadPart { datum: job.value.to_vec(), submission_id: None }
    }

    fn start(&self, _job: &Job<Callback>, _part: usize) {}

    async fn handle(&self, part: Part<'_, Callback>) -> Result<(), TaskError> {
        let job = &part.job;
        match job.record.command {
            Command::Send => self.begin(job).await,
            command => self.command(job, command).await,
        }
    }
}

impl Intake {
    /// The first record of an event wins: body, time and sequence are its.
    async fn begin(&self, job: &Job<Callback>) -> Result<(), TaskError> {
        let dispatcher = &*self.0;
        let record = &job.record;
        let _lock = dispatcher.lock(record.event_id).await;
        if rows::get(&dispatcher.store, &record.org, record.event_id).await?.is_some() {
            // Its due row was written before it: nothing is left to do, whoever was interrupted.
            metrics::callback_repeated();
            return Ok(());
        }
        let offset = job.at.offset.0;
        let body = body::with_sequence(&record.body, offset)
            .map_err(|bad| moderation::Error::Content { tag: bad.tag(), detail: bad.to_string() })?;
        let now = Millis::now();
        let at = (job.at.partition.index, offset);
        let mut row = rows::begun(record.clone(), body, at, job.written_at, now);
        if let Some(why) = body::too_large(&row.body, dispatcher.settings.max_body_bytes) {
            let was = rows::progress(&row)?;
            row = rows::moved(&row, &was.after_too_large(), now);
            row.last_error = Some(why);
            rows::begin(&dispatcher.store, &row, None, now).await?;
            tell_change(&row, State::Pending, State::TooLarge);
            return Ok(());
        }
        // A broker whose clock is ahead of ours delays nothing.
        let next_at = job.written_at.min(now).plus(dispatcher.schedule.first());
        row.next_at = Some(next_at);
        let is_due = next_at <= now;
        let due_at = if is_due { now.plus(dispatcher.lease()) } else { next_at };
        rows::begin(&dispatcher.store, &row, Some(due_at), now).await?;
        failpoint!("after_callback_rows");
        metrics::callback_entered("pending");
        if is_due {
            self.offer(&row, true, now).await?;
        }
        Ok(())
    }

    async fn command(&self, job: &Job<Callback>, command: Command) -> Result<(), TaskError> {
        let dispatcher = &*self.0;
        let record = &job.record;
        let _lock = dispatcher.lock(record.event_id).await;
        let offset = job.at.offset.0;
        let row = rows::get(&dispatcher.store, &record.org, record.event_id).await?;
        // Expired meanwhile, or carried out before.
        let Some(row) = row.filter(|row| row.applied < offset) else { return Ok(()) };
        let was = rows::progress(&row)?;
        let now = Millis::now();
        let too_large = body::too_large(&row.body, dispatcher.settings.max_body_bytes);
        let next = match command {
            Command::Resend if too_large.is_some() => was.after_too_large(),
            Command::Resend => was.after_resend(now),
            Command::Cancel => was.after_cancel(),
            Command::Hold => was.after_hold(),
            Command::Send => return Ok(()),
        };
        let mut moved = rows::moved(&row, &next, now);
        moved.applied = offset;
        if next.state == State::TooLarge {
            moved.last_error = too_large;
        }
        let is_resent = command == Command::Resend && next.is_owed();
        let due_at = is_resent.then(|| now.plus(dispatcher.lease()));
        rows::save(&dispatcher.store, &moved, None, due_at, now).await?;
        tell_change(&moved, was.state, next.state);
        if is_resent {
            self.offer(&moved, false, now).await?;
        }
        Ok(())
    }

    /// A full lane leaves it to the due row; after a stop the next process is to find it at once.
    async fn offer(&self, row: &Delivery, is_fresh: bool, now: Millis) -> Result<(), TaskError> {
        let dispatcher = &*self.0;
        if dispatcher.offer(row, is_fresh, now) == Offered::Closed {
            let due = rows::let_go(&row.org, row.event_id, row.shard, now);
            rows::put_let_go(&dispatcher.store, &[due], now).await?;
        }
        Ok(())
    }
}
