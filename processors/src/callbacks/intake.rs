//! Handler of the topic `callbacks`: turns records into deliveries and applies commands to them.
//!
//! Records of one subject are handled in order, and so are the records of one event.

use std::sync::Arc;

use tidegate_moderation as moderation;
use tidegate_schemas::{
    ids::Millis,
    records::{Callback, Command},
};
use tidegate_store::tables::callbacks::deliveries::{Delivery, DeliveryState};
use tidegate_stream::{failpoint, record::Headers};

use super::{
    attempt::report_change, body, delivery_rows as rows, dispatcher::Dispatcher, endpoint_queues::OfferResult,
};
use crate::{
    consumer::{
        error::TaskError,
        handler::{DeadLetterContent, Handler, HandlerJob, Part},
        key_queues::{Key, NewPart},
    },
    metrics,
};

pub(crate) struct Intake(pub(crate) Arc<Dispatcher>);

impl Handler for Intake {
    type Record = Callback;
    type Headers = ();
    type Guard = ();

    fn parse_headers(_headers: &Headers) {}

    fn parts(job: &HandlerJob<Self>) -> Vec<NewPart> {
        let record = &job.record;
        let key = Key { org: record.org.clone(), item: record.subject.clone() };
        vec![NewPart::single(key, record.body.len())]
    }

    fn dead_letter_content(job: &HandlerJob<Self>, _part: usize) -> DeadLetterContent {
        DeadLetterContent { datum: job.value.to_vec(), submission_id: None }
    }

    fn start(&self, _job: &HandlerJob<Self>, _part: usize) {}

    async fn handle(&self, part: Part<'_, Self>) -> Result<(), TaskError> {
        match part.job.record.command {
            Command::Send => self.accept_event(&part.job).await,
            command => self.apply_command(&part.job, command).await,
        }
    }
}

impl Intake {
    /// Creates the delivery of an event. The first record of an event sets body, time and sequence.
    async fn accept_event(&self, job: &HandlerJob<Self>) -> Result<(), TaskError> {
        let dispatcher = &*self.0;
        let record = &job.record;
        let _lock = dispatcher.lock_event(record.event_id).await;
        if rows::load(&dispatcher.store, &record.org, record.event_id).await?.is_some() {
            // A stored delivery has its due row, which is written first, so an interrupted run needs no repair.
            metrics::record_repeated_callback();
            return Ok(());
        }
        let offset = job.position.offset.0;
        let body = body::with_sequence(&record.body, offset)
            .map_err(|error| moderation::Error::Content { tag: error.tag(), detail: error.to_string() })?;
        let now = Millis::now();
        let position = (job.position.partition.index, offset);
        let mut row = rows::new_delivery(record.clone(), body, position, job.written_at, now);
        if let Some(detail) = body::describe_oversize(&row.body, dispatcher.settings.max_body_bytes) {
            let progress = rows::progress(&row).after_too_large();
            row = rows::with_progress(&row, &progress, now);
            row.last_error = Some(detail);
            rows::insert(&dispatcher.store, &row, None, now).await?;
            report_change(&row, DeliveryState::Pending, progress.state);
            return Ok(());
        }
        // `min`: a broker whose clock is ahead of ours must not delay the first attempt.
        let next_at = job.written_at.min(now).plus(dispatcher.schedule.first_pause());
        row.next_at = Some(next_at);
        // For an attempt that starts now, the due row is the fallback after a crash, so it is due when the lease ends.
        let is_due = next_at <= now;
        let due_at = if is_due { now.plus(dispatcher.call_lease()) } else { next_at };
        rows::insert(&dispatcher.store, &row, Some(due_at), now).await?;
        failpoint!("after_callback_rows");
        metrics::record_callback_state(DeliveryState::Pending);
        if is_due {
            self.offer(&row, true, now).await?;
        }
        Ok(())
    }

    async fn apply_command(&self, job: &HandlerJob<Self>, command: Command) -> Result<(), TaskError> {
        let dispatcher = &*self.0;
        let record = &job.record;
        let _lock = dispatcher.lock_event(record.event_id).await;
        let offset = job.position.offset.0;
        let row = rows::load(&dispatcher.store, &record.org, record.event_id).await?;
        // Without a row the delivery has expired. A row with a later offset has this command applied.
        let Some(row) = row.filter(|row| row.applied < offset) else { return Ok(()) };
        let stored_progress = rows::progress(&row);
        let now = Millis::now();
        let size_error = body::describe_oversize(&row.body, dispatcher.settings.max_body_bytes);
        let new_progress = match command {
            Command::Resend if size_error.is_some() => stored_progress.after_too_large(),
            Command::Resend => stored_progress.after_resend(now),
            Command::Cancel => stored_progress.after_cancel(),
            Command::Hold => stored_progress.after_hold(),
            Command::Send => return Ok(()),
        };
        let mut updated = rows::with_progress(&row, &new_progress, now);
        updated.applied = offset;
        if new_progress.state == DeliveryState::TooLarge {
            updated.last_error = size_error;
        }
        let is_resent = command == Command::Resend && new_progress.needs_attempt();
        // The attempt is queued below; the due row is its fallback after a crash.
        let due_at = is_resent.then(|| now.plus(dispatcher.call_lease()));
        rows::save(&dispatcher.store, &updated, None, due_at, now).await?;
        report_change(&updated, stored_progress.state, new_progress.state);
        if is_resent {
            self.offer(&updated, false, now).await?;
        }
        Ok(())
    }

    /// Queues an attempt. If the endpoint's queue is full, the due row starts it later. After a stop, the delivery is
    /// released to the next owner of the shard.
    async fn offer(&self, row: &Delivery, is_fresh: bool, now: Millis) -> Result<(), TaskError> {
        let dispatcher = &*self.0;
        if dispatcher.offer(row, is_fresh, now) == OfferResult::Closed {
            let due_row = rows::released_due_row(&row.org, row.event_id, row.shard, now);
            rows::put_released(&dispatcher.store, &[due_row], now).await?;
        }
        Ok(())
    }
}
