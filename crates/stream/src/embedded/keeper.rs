//! The thread that looks after the disk: it measures what is left, and lets old records go.
//!
//! It removes nothing itself: it asks the writer, bite by bite.

use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering, mpsc::Sender};

use tidegate_schemas::ids::Millis;
use tokio::sync::oneshot;

use super::{
    room::{self, Headroom, Limits, Measured},
    segments::Rule,
    state::State,
    writer::{Job, Trim},
};
use crate::{
    metrics,
    signal::Signal,
    topics::{NextOffset, Topic},
};

pub(super) struct Keeper {
    pub(super) state: Arc<State>,
    pub(super) jobs: Sender<Job>,
    pub(super) signal: Arc<Signal>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Keeper {
    pub(super) fn run(self) {
        while !self.stop.load(Ordering::Acquire) {
            self.state.room.set(measure(&self.state));
            self.let_old_records_go(Millis::now());
            self.signal.wait(self.state.settings.housekeeping());
        }
    }

    fn let_old_records_go(&self, now: Millis) {
        let settings = &self.state.settings;
        for (partition, lane) in self.state.lanes() {
            // A dead letter waits for a person, who knows no retention.
            if partition.topic == Topic::DeadLetters {
                continue;
            }
            let rule = Rule {
                oldest_ms: now.minus(settings.retention()).0,
                most_bytes: if settings.retention_bytes == 0 { u64::MAX } else { settings.retention_bytes },
                barrier: self.state.barrier(partition),
            };
            let Some(before) = lane.segments.lock().trim_point(rule) else { continue };
            let mut start = lane.start();
            while start < before && !self.stop.load(Ordering::Acquire) {
                let (done, answer) = oneshot::channel();
                let trim = Trim { partition, before: NextOffset(before), despite_groups: false, done };
                if self.jobs.send(Job::Trim(trim)).is_err() {
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

/// What is left of the disk and of the granted share. What cannot be measured does not limit.
pub(super) fn measure(state: &State) -> Headroom {
    let used = state.db.disk_space().unwrap_or_else(|error| {
        tracing::warn!(%error, "the size of the data folder cannot be measured");
        0
    });
    let measured = Measured { used, free: free_bytes(state) };
    let limits =
        Limits { max_bytes: state.settings.max_bytes, min_free_bytes: state.settings.min_free_bytes };
    let headroom = room::headroom(limits, measured);
    ::metrics::gauge!(metrics::EMBEDDED_HEADROOM).set(metrics::float_of(headroom.request));
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
