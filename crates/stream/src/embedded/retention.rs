//! Retention thread: measures the disk, and has the writer remove old records, some at a time.

use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering, mpsc::Sender};

use tidegate_schemas::ids::Millis;
use tokio::sync::oneshot;

use super::{
    disk_quota::{self, DiskUsage, Headroom, Limits},
    segments::RetentionRule,
    state::State,
    writer::{Trim, WriteRequest},
};
use crate::{
    metrics,
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
            self.state.quota.set(measure(&self.state));
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

/// Measures what is left of the disk and of the configured share. What cannot be measured does not limit.
pub(super) fn measure(state: &State) -> Headroom {
    let used = state.db.disk_space().unwrap_or_else(|error| {
        tracing::warn!(%error, "the size of the data folder cannot be measured");
        0
    });
    let measured = DiskUsage { used, free: free_bytes(state) };
    let limits =
        Limits { max_bytes: state.settings.max_bytes, min_free_bytes: state.settings.min_free_bytes };
    let headroom = disk_quota::headroom(limits, measured);
    metrics::embedded_headroom(headroom.request);
    headroom
}

#[cfg(unix)]
fn free_bytes(state: &State) -> u64 {
    match rustix::fs::statvfs(state.folder.path()) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => {
            tracing::warn!(%error, "the free space of the disk cannot be measured");
            u64::MAX
        }
    }
}

#[cfg(not(unix))]
const fn free_bytes(_state: &State) -> u64 {
    u64::MAX
}
