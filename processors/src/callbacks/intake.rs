//! Handler of the topic `callbacks`: turns records into deliveries and carries commands out on them.
//!
//! Records of one subject are handled in order, and so are the records of one event.

use std::sync::Arc;

use tidegate_moderation as moderation;
use tidegate_schemas::{
    ids::Millis,
    records::{Callback, Command},
};
use tidegate_store::tables::callbacks::deliveries::{Delivery, DeliveryState};
use tidegate_stream::failpoint;

use super::{
    attempt::report_change, body, delivery_rows as rows, dispatcher::Dispatcher, endpoint_queues::Offered,
};
use crate::{
    consumer::{
        error::TaskError,
        handler::{DeadPart, Handler, Job, Part},
        key_queues::{Key, NewPart},
    },
    metrics,
};

pub(crate) struct Intake(pub(crate) Arc<Dispatcher>);

impl Handler for Intake {
    type Record = Callback;
    type Guard = ();

    fn parts(job: &Job<Callback>) -> Vec<NewPart> {
        let record = &job.record;
        let key = Key { org: record.org.clone(), item: record.subject.clone() };
        vec![NewPart::single(key, record.body.len())]
    }

    fn dead_part(job: &Job<Callback>, _part: usize) -> DeadPart {
        DeadPart { datum: job.value.to_vec(), submission_id: None }
    }

    fn start(&self, _job: &Job<Callback>, _part: usize) {}

    async fn handle(&self, part: Part<'_, Callback>) -> Result<(), TaskError> {
        match part.job.record.command {
            Command::Send => self.accept(&part.job).await,
            command => self.apply_command(&part.job, command).await,
        }
    }
}

impl Intake {
    /// Begins the delivery of an event. The first record of an event decides about body, time and sequence.
    async fn accept(&self, job: &Job<Callback>) -> Result<(), TaskError> {
        let dispatcher = &*self.0;
        let record = &job.record;
        let _lock = dispatcher.lock(record.event_id).await;
        if rows::get(&dispatcher.store, &record.org, record.event_id).await?.is_some() {
            // The due row was written before the delivery, so an interrupted process left nothing undone.
            metrics::callback_repeated();
            return Ok(());
        }
        let offset = job.at.offset.0;
        let body = body::with_sequence(&record.body, offset)
            .map_err(|error| moderation::Error::Content { tag: error.tag(), detail: error.to_string() })?;
        let now = Millis::now();
        let at = (job.at.partition.index, offset);
        let mut row = rows::new_delivery(record.clone(), body, at, job.written_at, now);
        if let Some(detail) = body::too_large(&row.body, dispatcher.settings.max_body_bytes) {
            let progress = rows::progress(&row).after_too_large();
            row = rows::with_progress(&row, &progress, now);
            row.last_error = Some(detail);
            rows::insert(&dispatcher.store, &row, None, now).await?;
            report_change(&row, DeliveryState::Pending, progress.state);
            return Ok(());
        }
        // `min`, so that a broker whose clock is ahead of ours delays nothing.
        let next_at = job.written_at.min(now).plus(dispatcher.schedule.first());
        row.next_at = Some(next_at);
        let is_due = next_at <= now;
        let due_at = if is_due { now.plus(dispatcher.lease()) } else { next_at };
        rows::insert(&dispatcher.store, &row, Some(due_at), now).await?;
        failpoint!("after_callback_rows");
        metrics::callback_entered(DeliveryState::Pending);
        if is_due {
            self.offer(&row, true, now).await?;
        }
        Ok(())
    }

    async fn apply_command(&self, job: &Job<Callback>, command: Command) -> Result<(), TaskError> {
        let dispatcher = &*self.0;
        let record = &job.record;
        let _lock = dispatcher.lock(record.event_id).await;
        let offset = job.at.offset.0;
        let row = rows::get(&dispatcher.store, &record.org, record.event_id).await?;
        // Without a row the delivery has expired. At a later offset this command was applied before.
        let Some(row) = row.filter(|row| row.applied < offset) else { return Ok(()) };
        let before = rows::progress(&row);
        let now = Millis::now();
        let too_large = body::too_large(&row.body, dispatcher.settings.max_body_bytes);
        let after = match command {
            Command::Resend if too_large.is_some() => before.after_too_large(),
            Command::Resend => before.after_resend(now),
            Command::Cancel => before.after_cancel(),
            Command::Hold => before.after_hold(),
            Command::Send => return Ok(()),
        };
        let mut updated = rows::with_progress(&row, &after, now);
        updated.applied = offset;
        if after.state == DeliveryState::TooLarge {
            updated.last_error = too_large;
        }
        let is_resent = command == Command::Resend && after.needs_attempt();
        let due_at = is_resent.then(|| now.plus(dispatcher.lease()));
        rows::save(&dispatcher.store, &updated, None, due_at, now).await?;
        report_change(&updated, before.state, after.state);
        if is_resent {
            self.offer(&updated, false, now).await?;
        }
        Ok(())
    }

    /// Queues an attempt. If the queue of the endpoint is full, the due row brings the delivery up later; after a stop, the
    /// next owner of the shard gets it at once.
    async fn offer(&self, row: &Delivery, is_fresh: bool, now: Millis) -> Result<(), TaskError> {
        let dispatcher = &*self.0;
        if dispatcher.offer(row, is_fresh, now) == Offered::Closed {
            let due = rows::released(&row.org, row.event_id, row.shard, now);
            rows::put_released(&dispatcher.store, &[due], now).await?;
        }
        Ok(())
    }
}
