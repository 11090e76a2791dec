//! The one thread that writes: it decides between old and new rows, groups requests, and syncs once for many.
//!
//! Requests come from [`WriteQueue`], which decides whose are next.
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
//!
//! Order. Requests of one organisation are carried out in the order in which they came, but for the plain puts of a group,
//! which come before its conditional ones. Requests of different organisations have no order. Nothing above relies on one:
//! a caller that needs a row to be there waits for its answer.

use std::{collections::HashSet, sync::Arc, thread::JoinHandle, time::Instant};

use bytes::Bytes;
use fjall::{Database, Keyspace, OwnedWriteBatch, PersistMode, UserKey, UserValue};
use tidegate_schemas::{DiskSpace, Folder};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    Slot, engine_error, meta, of_engine,
    syncs::Syncs,
    value::{Header, wins},
    write_queue::{Puts, Request, Work, WriteQueue, WriteResult},
};
use crate::{Error, time::Clock};

pub(super) fn start(
    writer: Writer,
    group_bytes: usize,
    queue: WriteQueue,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
        // Also if the thread panics: callers that wait must not wait for ever.
        let queue = AbandonOnDrop(queue);
        while let Some(group) = queue.0.next_group(group_bytes) {
            writer.run(group);
        }
        if let Err(error) = writer.persist(PersistMode::SyncAll) {
            tracing::error!(%error, "the store's last sync failed");
        }
    })
}

struct AbandonOnDrop(WriteQueue);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

pub(super) struct Writer {
    db: Database,
    clock: Clock,
    folder: Folder,
    syncs: Syncs,
    disk: Option<Arc<DiskSpace>>,
}

impl Writer {
    pub(super) fn new(
        db: Database,
        clock: Clock,
        syncs: Syncs,
        disk: Option<Arc<DiskSpace>>,
    ) -> Result<Self, Error> {
        let meta = meta(&db).map_err(engine_error)?;
        let folder = Folder::open(meta.path()).map_err(|error| engine_error(error.into()))?;
        Ok(Self { db, clock, folder, syncs, disk })
    }

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
        let mut together = Together::new(&self.db);
        let lost = self.folder.is_in_place().err().map(|why| why.to_string());
        let bytes: usize = group.iter().map(|request| request.bytes).sum();
        let space = self.disk.as_ref().map_or(Ok(()), |disk| disk.admits(self.db.write_buffer_size(), bytes));
        for Request { work, bytes, reply, room } in group {
            let caller = Caller { reply, room };
            if let Err(why) = &space
                && bytes > 0
            {
                // A database that cannot flush or compact fails for good, so writes wait for space.
                together.answers.push((Err(Error::Overloaded(why.clone())), caller));
                continue;
            }
            if let Some(why) = &lost {
                // A table's first row would make folders where there is none.
                together.answers.push((Err(Error::TakenAway(why.clone())), caller));
                continue;
            }
            match work {
                Work::Put { puts, new_rows, .. } => together.put(puts, new_rows, caller),
                work => {
                    // It reads what the puts before it wrote.
                    together.flush();
                    together.answers.push((self.apply(work).map_err(engine_error), caller));
                }
            }
        }
        together.flush();
        let answers = together.answers;
        let persisted = self.persist(mode);
        let in_place = self.folder.is_in_place();
        crate::metrics::committed(sync_label(mode), started.elapsed());
        for (answer, Caller { reply, room }) in answers {
            let answer = match (&persisted, &in_place) {
                (Ok(()), Ok(())) => answer,
                (Err(error), _) => Err(of_engine(error)),
                (_, Err(why)) => Err(Error::TakenAway(why.to_string())),
            };
            drop(room);
            // The caller may have gone; what was written stays written.
            drop(reply.send(answer));
        }
    }

    /// Hands what was written to the system, or syncs it, in which case the mark says so.
    fn persist(&self, mode: PersistMode) -> fjall::Result<()> {
        if mode == PersistMode::Buffer || self.folder.is_in_place().is_err() {
            return self.db.persist(mode);
        }
        self.syncs.persist(&self.db, mode)
    }

    /// Applies one request that is no put as one atomic batch. The sync comes after the whole group.
    fn apply(&self, work: Work) -> fjall::Result<WriteResult> {
        let mut batch = self.db.batch().durability(None);
        match work {
            Work::Insert { slot, key, value } => {
                if let Some((old, _)) = self.visible(&slot, &key)? {
                    return Ok(WriteResult::Refused(Some(old)));
                }
                batch.insert(slot.writable(&self.db)?, key, value);
            }
            Work::Replace { slot, key, value, was } => {
                match self.visible(&slot, &key)? {
                    Some((_, header)) if header.version == Some(was) => {}
                    other => return Ok(WriteResult::Refused(other.map(|(old, _)| old))),
                }
                batch.insert(slot.writable(&self.db)?, key, value);
            }
            Work::Purge { slot, rows } => {
                for (key, seen) in rows {
                    if slot.get(&key)?.is_some_and(|now| now == seen) {
                        batch.remove(slot.writable(&self.db)?, key);
                    }
                }
            }
            // Puts go together.
            Work::Put { .. } => {}
        }
        batch.commit()?;
        Ok(WriteResult::Written)
    }

    fn visible(&self, slot: &Slot, key: &UserKey) -> fjall::Result<Option<(Bytes, Header)>> {
        let now = (self.clock)().0;
        Ok(slot.get(key)?.and_then(|value| {
            let value = Bytes::from(value);
            let (header, _) = Header::read(&value)?;
            header.is_visible(now).then_some((value, header))
        }))
    }
}

/// Caller that waits for an answer.
struct Caller {
    reply: oneshot::Sender<Result<WriteResult, Error>>,
    room: Option<OwnedSemaphorePermit>,
}

/// Puts of several requests as one atomic batch: the database takes many rows at once far cheaper than as many single
/// ones. No key stands in it twice, because what is in it is not seen by the reads that decide between old and new.
struct Together<'a> {
    db: &'a Database,
    batch: OwnedWriteBatch,
    /// Table, by the address of its slot, and key of what is in the batch.
    keys: HashSet<(usize, UserKey)>,
    waiting: Vec<Caller>,
    answers: Vec<(Result<WriteResult, Error>, Caller)>,
}

impl<'a> Together<'a> {
    fn new(db: &'a Database) -> Self {
        Self { db, batch: batch(db), keys: HashSet::new(), waiting: Vec::new(), answers: Vec::new() }
    }

    fn put(&mut self, puts: Vec<Puts>, new_rows: bool, caller: Caller) {
        if !self.enter(&puts) {
            self.flush();
            self.enter(&puts);
        }
        match winners(self.db, puts, new_rows) {
            Ok(rows) => {
                for (keyspace, key, value) in rows {
                    self.batch.insert(&keyspace, key, value);
                }
                self.waiting.push(caller);
            }
            Err(error) => self.answers.push((Err(engine_error(error)), caller)),
        }
    }

    /// False: one of the keys is in the batch already.
    fn enter(&mut self, puts: &[Puts]) -> bool {
        puts.iter().all(|Puts { slot, rows }| {
            let table = Arc::as_ptr(slot).addr();
            rows.iter().all(|(key, _)| self.keys.insert((table, key.clone())))
        })
    }

    fn flush(&mut self) {
        self.keys.clear();
        if self.waiting.is_empty() {
            return;
        }
        let written = std::mem::replace(&mut self.batch, batch(self.db)).commit();
        let answer = || written.as_ref().map(|()| WriteResult::Written).map_err(of_engine);
        self.answers.extend(self.waiting.drain(..).map(|caller| (answer(), caller)));
    }
}

fn batch(db: &Database) -> OwnedWriteBatch {
    db.batch().durability(None)
}

/// Returns the rows that replace what is there. New rows have nothing to replace.
fn winners(
    db: &Database,
    puts: Vec<Puts>,
    new_rows: bool,
) -> fjall::Result<Vec<(Keyspace, UserKey, UserValue)>> {
    let mut winners = Vec::with_capacity(puts.iter().map(|puts| puts.rows.len()).sum());
    let mut stale = 0_u64;
    for Puts { slot, rows } in puts {
        let keyspace = slot.writable(db)?;
        for (key, value) in rows {
            // Builds with assertions look anyway, so that tests hold callers to their promise.
            let old = if new_rows && !cfg!(debug_assertions) { None } else { keyspace.get(&key)? };
            debug_assert!(!new_rows || old.is_none(), "a row of {} is not new", slot.table.name);
            match old {
                Some(old) if !wins(&value, &old) => stale += 1,
                _ => winners.push((keyspace.clone(), key, value)),
            }
        }
    }
    if stale > 0 {
        crate::metrics::stale_writes(stale);
    }
    Ok(winners)
}

fn sync_label(mode: PersistMode) -> &'static str {
    if mode == PersistMode::Buffer { "no" } else { "yes" }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{super::open_slots, *};
    use crate::{Row as _, time::system_clock};

    crate::table! { Fact Thing in "things" ttl None;
    partition { org: String } values { text: String } }

    fn put(
        slot: &Arc<Slot>,
        rows: &[(&str, i64, &str)],
    ) -> (Request, oneshot::Receiver<Result<WriteResult, Error>>) {
        let rows = rows.iter().map(|(key, written, text)| {
            let mut value = Vec::new();
            Header { tombstone: false, written: *written, expires: None, version: None }.write(&mut value);
            value.extend_from_slice(text.as_bytes());
            (UserKey::from(key.as_bytes()), UserValue::from(value))
        });
        let puts = vec![Puts { slot: Arc::clone(slot), rows: rows.collect() }];
        let (reply, answer) = oneshot::channel();
        (
            Request {
                work: Work::Put { puts, durable: false, new_rows: false },
                bytes: 1,
                reply,
                room: None,
            },
            answer,
        )
    }

    #[test]
    fn puts_of_one_group_end_as_if_each_had_come_alone() {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::builder(folder.path()).open().unwrap();
        let slot = Arc::clone(&open_slots(&db, &[Thing::TABLE]).unwrap()["things"]);
        let syncs = Syncs::open(&db, None).unwrap();
        let writer = Writer::new(db, system_clock(), syncs, None).unwrap();
        let puts: [&[(&str, i64, &str)]; 5] = [
            &[("a", 5, "five"), ("b", 1, "one")],
            &[("c", 1, "alone")],
            // Older than what stands before it in the group, which no read sees yet unless it was written.
            &[("a", 4, "four")],
            &[("b", 2, "two"), ("d", 1, "new")],
            &[("b", 1, "late")],
        ];
        let (group, answers): (Vec<_>, Vec<_>) = puts.iter().map(|rows| put(&slot, rows)).unzip();
        writer.run(group);
        for mut answer in answers {
            assert!(matches!(answer.try_recv().unwrap(), Ok(WriteResult::Written)));
        }
        for (key, wanted) in [("a", "five"), ("b", "two"), ("c", "alone"), ("d", "new")] {
            let value = slot.get(key.as_bytes()).unwrap().unwrap();
            assert_eq!(Header::read(&value).unwrap().1, wanted.as_bytes(), "{key}");
        }
    }
}
