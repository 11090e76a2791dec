//! Retention thread: has the writer remove old records, some at a time.

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
            self.wakeup.wait(self.state.settings.housekeeping());
        }
        self.sync_mark();
    }

    fn sync_mark(&self) {
        if let Some(Err(error)) = self.state.mark.as_ref().map(|mark| mark.sync()) {
            tracing::warn!(%error, "the mark of what is durable cannot be synced");
        }
    }

    fn remove_old_records(&self, now: Millis) {
        let settings = &self.state.settings;
        for (partition, stored) in self.state.all_stored() {
            // A dead letter waits until an operator has dealt with it.
            if partition.topic == Topic::DeadLetters {
                continue;
            }
            let rule = RetentionRule {
                oldest_ms: now.minus(settings.retention()).0,
                most_bytes: if settings.retention_bytes == 0 { u64::MAX } else { settings.retention_bytes },
                barrier: self.state.retention_barrier(partition),
            };
            let Some(before) = stored.segments.lock().trim_point(rule) else { continue };
            let mut start = stored.start();
            while start < before && !self.stop.load(Ordering::Acquire) {
                let (done, answer) = oneshot::channel();
                let trim = Trim { partition, before: NextOffset(before), despite_groups: false, done };
                if self.requests.send(WriteRequest::Trim(trim)).is_err() {
                    return;
                }
                match answer.blocking_recv() {
                    Ok(Ok(now)) if now.0 > start => start = now.0,
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
