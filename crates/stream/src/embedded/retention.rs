//! Retention thread: requests the removal of old records from the writer, in small steps.

use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering, mpsc::Sender};

use tidegate_schemas::ids::Millis;
use tokio::sync::oneshot;

use super::{
    segments::RetentionRule,
    state::State,
    writer::{Trim, WriteRequest},
};
use crate::{
    topics::{NextOffset, Topic},
    wakeup::Wakeup,
};

pub(super) struct RetentionTask {
    pub(super) state: Arc<State>,
    pub(super) requests: Sender<WriteRequest>,
    pub(super) wakeup: Arc<Wakeup>,
    pub(super) stop: Arc<AtomicBool>,
}

impl RetentionTask {
    pub(super) fn run(self) {
        while !self.stop.load(Ordering::Acquire) {
            self.remove_old_records(Millis::now());
            self.sync_mark();
            self.wakeup.wait_up_to(self.state.settings.housekeeping());
        }
        // The mark must hold the last syncs before the process ends.
        self.sync_mark();
    }

    fn sync_mark(&self) {
        if let Some(Err(error)) = self.state.mark.as_ref().map(|mark| mark.sync()) {
            tracing::warn!(%error, "cannot sync the mark of durable data");
        }
    }

    fn remove_old_records(&self, now: Millis) {
        let settings = &self.state.settings;
        for (partition, stored) in self.state.all_stored() {
            // Dead letters stay until an operator has handled them.
            if partition.topic == Topic::DeadLetters {
                continue;
            }
            let rule = RetentionRule {
                oldest_ms: now.minus(settings.retention()).0,
                max_bytes: if settings.retention_bytes == 0 { u64::MAX } else { settings.retention_bytes },
                barrier: self.state.retention_barrier(partition),
            };
            let Some(before) = stored.segments.lock().trim_point(rule) else { continue };
            let mut start = stored.start();
            while start < before && !self.stop.load(Ordering::Acquire) {
                let (done, answer) = oneshot::channel();
                let trim = Trim { partition, before: NextOffset(before), ignores_groups: false, done };
                if self.requests.send(WriteRequest::Trim(trim)).is_err() {
                    return;
                }
                match answer.blocking_recv() {
                    Ok(Ok(new_start)) if new_start.0 > start => start = new_start.0,
                    // No progress, or the writer has stopped. The next pass tries again.
                    Ok(Ok(_)) | Err(_) => break,
                    Ok(Err(detail)) => {
                        tracing::warn!(%partition, detail, "old records cannot be removed");
                        break;
                    }
                }
            }
        }
    }
}
