//! The one thread that writes: it decides between old and new rows, groups requests, and syncs once for many.
//!
//! It does not encode rows and does not read for callers.
//!
//! Why one thread. Every write is "read what is there, then decide", for facts (the later write time wins) as for
//! conditional operations (absent, at that version). One thread makes both atomic without a lock a row, keeps the
//! blocking parts of the database (its journal lock, its sync, its back-pressure sleeps) away from the async
//! workers, and is where group commit happens anyway: the database has one journal, so several writers would only
//! queue at its lock instead of here.
//!
//! What is durable when. A plain put is answered once it is in the operating system's hands: the death of the
//! process does not lose it. Conditional and durable requests of a group are synced together before they are
//! answered. Plain puts need no sync of their own, because the log commits offsets into the same database, whose
//! journal is one file, written in order: a synced offset commit (or append) that followed a put has synced the
//! put. After a loss of power either both are there, or the record is processed again and puts the same rows. The
//! same order covers readers that saw a row before its sync: whatever they write next stands behind it.

use std::{sync::Arc, thread::JoinHandle, time::Instant};

use bytes::Bytes;
use fjall::{Database, PersistMode, UserKey, UserValue};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{
    Slot, engine_error,
    value::{Header, wins},
};
use crate::{Error, Version, time::Clock};

/// Rows of one table; no key twice.
pub(super) struct Puts {
    pub(super) slot: Arc<Slot>,
    pub(super) rows: Vec<(UserKey, UserValue)>,
}

pub(super) enum Work {
    Put {
        puts: Vec<Puts>,
        durable: bool,
    },
    Insert {
        slot: Arc<Slot>,
        key: UserKey,
        value: UserValue,
    },
    Replace {
        slot: Arc<Slot>,
        key: UserKey,
        value: UserValue,
        was: Version,
    },
    /// Removes each row for good, unless it is another by now.
    Purge {
        slot: Arc<Slot>,
        rows: Vec<(UserKey, UserValue)>,
    },
    Stop,
}

impl Work {
    fn wants_sync(&self) -> bool {
        match self {
            Self::Put { durable, .. } => *durable,
            Self::Insert { .. } | Self::Replace { .. } => true,
            Self::Purge { .. } | Self::Stop => false,
        }
    }
}

pub(super) enum Done {
    Written,
    /// The row that stood in the way of a conditional operation; `None`: there is none.
    Refused(Option<Bytes>),
}

pub(super) struct Request {
    pub(super) work: Work,
    pub(super) bytes: usize,
    pub(super) reply: oneshot::Sender<Result<Done, Error>>,
    /// Room in the queue, given back with the answer.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

pub(super) fn start(
    db: Database,
    clock: Clock,
    group_bytes: usize,
    mut queue: mpsc::UnboundedReceiver<Request>,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
        let writer = Writer { db, clock };
        let mut open = true;
        while open && let Some(first) = queue.blocking_recv() {
            let mut bytes = first.bytes;
            let mut group = vec![first];
            while bytes < group_bytes
                && let Ok(next) = queue.try_recv()
            {
                bytes += next.bytes;
                group.push(next);
            }
            open = !group.iter().any(|request| matches!(request.work, Work::Stop));
            writer.run(group);
        }
        if let Err(error) = writer.db.persist(PersistMode::SyncAll) {
            tracing::error!(%error, "the store's last sync failed");
        }
    })
}

struct Writer {
    db: Database,
    clock: Clock,
}

impl Writer {
    fn run(&self, group: Vec<Request>) {
        let (synced, plain): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|request| request.work.wants_sync());
        // The plain ones first: they must not wait for a sync that they do not need.
        self.commit(plain, PersistMode::Buffer);
        self.commit(synced, PersistMode::SyncData);
    }

    fn commit(&self, group: Vec<Request>, mode: PersistMode) {
        if group.is_empty() {
            return;
        }
        let started = Instant::now();
        let answers: Vec<_> = group
            .into_iter()
            .map(|Request { work, reply, room, .. }| (self.apply(work).map_err(engine_error), reply, room))
            .collect();
        let persisted = self.db.persist(mode);
        metrics::histogram!("tidegate_store_commit_seconds", "sync" => sync_label(mode))
            .record(started.elapsed().as_secs_f64());
        for (answer, reply, room) in answers {
            let answer = match &persisted {
                Ok(()) => answer,
                Err(error) => Err(Error::Engine(error.to_string())),
            };
            drop(room);
            // The caller may have gone; what was written stays written.
            drop(reply.send(answer));
        }
    }

    /// Applies one request as one atomic batch. The sync comes after the whole group.
    fn apply(&self, work: Work) -> fjall::Result<Done> {
        let mut batch = self.db.batch().durability(None);
        match work {
            Work::Put { puts, .. } => {
                let mut stale = 0_u64;
                for Puts { slot, rows } in puts {
                    for (key, value) in rows {
                        match slot.keyspace.get(&key)? {
                            Some(old) if !wins(&value, &old) => stale += 1,
                            _ => batch.insert(&slot.keyspace, key, value),
                        }
                    }
                }
                if stale > 0 {
                    metrics::counter!("tidegate_store_stale_writes_total").increment(stale);
                }
            }
            Work::Insert { slot, key, value } => {
                if let Some((old, _)) = self.visible(&slot, &key)? {
                    return Ok(Done::Refused(Some(old)));
                }
                batch.insert(&slot.keyspace, key, value);
            }
            Work::Replace { slot, key, value, was } => {
                match self.visible(&slot, &key)? {
                    Some((_, header)) if header.version == Some(was) => {}
                    other => return Ok(Done::Refused(other.map(|(old, _)| old))),
                }
                batch.insert(&slot.keyspace, key, value);
            }
            Work::Purge { slot, rows } => {
                for (key, seen) in rows {
                    if slot.keyspace.get(&key)?.is_some_and(|now| now == seen) {
                        batch.remove(&slot.keyspace, key);
                    }
                }
            }
            Work::Stop => {}
        }
        batch.commit()?;
        Ok(Done::Written)
    }

    fn visible(&self, slot: &Slot, key: &UserKey) -> fjall::Result<Option<(Bytes, Header)>> {
        let now = (self.clock)().0;
        Ok(slot.keyspace.get(key)?.and_then(|value| {
            let value = Bytes::from(value);
            let (header, _) = Header::read(&value)?;
            header.is_visible(now).then_some((value, header))
        }))
    }
}

fn sync_label(mode: PersistMode) -> &'static str {
    if mode == PersistMode::Buffer { "no" } else { "yes" }
}
