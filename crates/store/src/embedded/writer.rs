//! The single writer thread: compares new rows with stored ones, groups requests, and syncs once for many.
//!
//! Why one thread. Every write reads the stored row first: a fact replaces it only with a later write time, a conditional
//! write only if the row is absent or at the expected version. One thread makes read and write atomic without a lock for
//! each row. It keeps the blocking parts of the database (journal lock, sync, back-pressure) away from the async workers,
//! and it groups commits. Several writers would only wait for the lock of the database's single journal.
//!
//! Durability. A plain put is answered once the operating system has it, so the death of the process does not lose it.
//! Conditional and durable requests of a group are synced together before they are answered. Plain puts need no sync of
//! their own: the log commits offsets into the same database, and its journal is one file written in order, so a synced
//! offset commit (or append) after a put has synced the put too. After a power loss either both are there, or the record is
//! processed again and puts the same rows. The same order protects the readers of a row that is not yet synced: a write that
//! depends on the row follows it in the journal.
//!
//! Order. Requests of one organisation are executed in the order of arrival, except that the plain puts of a group precede its
//! conditional writes. Requests of different organisations have no order. A caller that needs a row to be written waits for
//! the answer.

use std::{collections::HashSet, sync::Arc, thread::JoinHandle, time::Instant};

use bytes::Bytes;
use fjall::{Database, Keyspace, OwnedWriteBatch, PersistMode, UserKey, UserValue};
use tidegate_embedded_data::DiskSpace;
use tidegate_schemas::Folder;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    Slot, classify_engine_error, engine_error, meta,
    syncs::SyncCounter,
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
        // Dropped by a panic too: waiting callers must get an answer.
        let queue = AbandonOnDrop(queue);
        while let Some(group) = queue.0.next_group(group_bytes) {
            writer.execute_group(group);
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
    syncs: SyncCounter,
    disk: Option<Arc<DiskSpace>>,
}

impl Writer {
    pub(super) fn new(
        db: Database,
        clock: Clock,
        syncs: SyncCounter,
        disk: Option<Arc<DiskSpace>>,
    ) -> Result<Self, Error> {
        let meta = meta(&db).map_err(engine_error)?;
        let folder = Folder::open(meta.path()).map_err(|error| engine_error(error.into()))?;
        Ok(Self { db, clock, folder, syncs, disk })
    }

    fn execute_group(&self, group: Vec<Request>) {
        let (synced_requests, plain_requests): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|request| request.work.needs_sync());
        // Plain puts first: they must not wait for a sync that they do not need.
        self.commit(plain_requests, PersistMode::Buffer);
        self.commit(synced_requests, PersistMode::SyncData);
    }

    fn commit(&self, group: Vec<Request>, mode: PersistMode) {
        if group.is_empty() {
            return;
        }
        let started_at = Instant::now();
        let mut put_group = PutGroup::new(&self.db);
        let folder_error = self.folder.is_in_place().err().map(|error| error.to_string());
        let bytes: usize = group.iter().map(|request| request.bytes).sum();
        let space_check =
            self.disk.as_ref().map_or(Ok(()), |disk| disk.check_write(self.db.write_buffer_size(), bytes));
        for Request { work, bytes, reply, room } in group {
            let caller = Caller { reply, room };
            if let Err(reason) = &space_check
                && bytes > 0
            {
                // A database that cannot flush or compact fails for good, so writes wait for space.
                put_group.answers.push((Err(Error::Overloaded(reason.clone())), caller));
                continue;
            }
            if let Some(reason) = &folder_error {
                // Creating a keyspace would create the removed data folder again, without its data.
                put_group.answers.push((Err(Error::FolderRemoved(reason.clone())), caller));
                continue;
            }
            match work {
                Work::Put { puts, new_rows, .. } => put_group.add_puts(puts, new_rows, caller),
                work => {
                    // A conditional write must read the rows of the puts before it.
                    put_group.flush();
                    put_group.answers.push((self.apply(work).map_err(engine_error), caller));
                }
            }
        }
        put_group.flush();
        let answers = put_group.answers;
        // A removed folder is detected after the sync too, because writes to open files still succeed.
        let persist_result = self.persist(mode);
        let folder_check = self.folder.is_in_place();
        crate::metrics::committed(sync_label(mode), started_at.elapsed());
        for (answer, Caller { reply, room }) in answers {
            let answer = match (&persist_result, &folder_check) {
                (Ok(()), Ok(())) => answer,
                (Err(error), _) => Err(classify_engine_error(error)),
                (_, Err(error)) => Err(Error::FolderRemoved(error.to_string())),
            };
            // Permits return before the answer, so that the caller can write again at once.
            drop(room);
            // The caller may have been dropped; the write stays.
            drop(reply.send(answer));
        }
    }

    /// Hands the writes to the operating system, or syncs them and records the sync in the mark.
    fn persist(&self, mode: PersistMode) -> fjall::Result<()> {
        // A sync in a removed folder protects no data, so the mark must not count it.
        if mode == PersistMode::Buffer || self.folder.is_in_place().is_err() {
            return self.db.persist(mode);
        }
        self.syncs.persist(&self.db, mode)
    }

    /// Executes one conditional write or purge as one atomic batch. The sync follows after the whole group.
    fn apply(&self, work: Work) -> fjall::Result<WriteResult> {
        let mut batch = self.db.batch().durability(None);
        match work {
            Work::Insert { slot, key, value } => {
                if let Some((old, _)) = self.read_visible(&slot, &key)? {
                    return Ok(WriteResult::Refused(Some(old)));
                }
                batch.insert(slot.writable(&self.db)?, key, value);
            }
            Work::Replace { slot, key, value, was } => {
                match self.read_visible(&slot, &key)? {
                    Some((_, header)) if header.version == Some(was) => {}
                    current_row => return Ok(WriteResult::Refused(current_row.map(|(old, _)| old))),
                }
                batch.insert(slot.writable(&self.db)?, key, value);
            }
            Work::Purge { slot, rows } => {
                for (key, swept_value) in rows {
                    // A newer row at this key must stay.
                    if slot.get(&key)?.is_some_and(|current_value| current_value == swept_value) {
                        batch.remove(slot.writable(&self.db)?, key);
                    }
                }
            }
            // Puts are collected in a `PutGroup`.
            Work::Put { .. } => {}
        }
        batch.commit()?;
        Ok(WriteResult::Written)
    }

    fn read_visible(&self, slot: &Slot, key: &UserKey) -> fjall::Result<Option<(Bytes, Header)>> {
        let now_ms = (self.clock)().0;
        Ok(slot.get(key)?.and_then(|value| {
            let value = Bytes::from(value);
            let (header, _) = Header::read(&value)?;
            header.is_visible(now_ms).then_some((value, header))
        }))
    }
}

/// Caller that waits for an answer.
struct Caller {
    reply: oneshot::Sender<Result<WriteResult, Error>>,
    /// Permit of the write queue.
    room: Option<OwnedSemaphorePermit>,
}

/// Puts of several requests as one atomic batch, which costs the database far less than single rows. A key enters the batch
/// once: the read that decides between the stored and the new row does not see the batch.
struct PutGroup<'a> {
    db: &'a Database,
    batch: OwnedWriteBatch,
    /// Keys in the batch, with the address of the slot of their table.
    keys: HashSet<(usize, UserKey)>,
    waiting_callers: Vec<Caller>,
    answers: Vec<(Result<WriteResult, Error>, Caller)>,
}

impl<'a> PutGroup<'a> {
    fn new(db: &'a Database) -> Self {
        Self {
            db,
            batch: new_batch(db),
            keys: HashSet::new(),
            waiting_callers: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn add_puts(&mut self, puts: Vec<Puts>, new_rows: bool, caller: Caller) {
        // The batch has one of the keys already. It is written first, so that the comparison sees its row.
        if !self.add_keys(&puts) {
            self.flush();
            // Succeeds: the set is empty now, and a request names each key once.
            self.add_keys(&puts);
        }
        match select_winners(self.db, puts, new_rows) {
            Ok(rows) => {
                for (keyspace, key, value) in rows {
                    self.batch.insert(&keyspace, key, value);
                }
                self.waiting_callers.push(caller);
            }
            // The keys stay registered, which at worst causes one early flush.
            Err(error) => self.answers.push((Err(engine_error(error)), caller)),
        }
    }

    /// Registers the keys of the puts. False: the batch already holds one of them.
    fn add_keys(&mut self, puts: &[Puts]) -> bool {
        puts.iter().all(|Puts { slot, rows }| {
            let table = Arc::as_ptr(slot).addr();
            rows.iter().all(|(key, _)| self.keys.insert((table, key.clone())))
        })
    }

    fn flush(&mut self) {
        self.keys.clear();
        if self.waiting_callers.is_empty() {
            return;
        }
        let commit_result = std::mem::replace(&mut self.batch, new_batch(self.db)).commit();
        let answer = || commit_result.as_ref().map(|()| WriteResult::Written).map_err(classify_engine_error);
        self.answers.extend(self.waiting_callers.drain(..).map(|caller| (answer(), caller)));
    }
}

fn new_batch(db: &Database) -> OwnedWriteBatch {
    db.batch().durability(None)
}

/// Returns the rows to write: those at new keys, and those that win over the stored row of their key.
fn select_winners(
    db: &Database,
    puts: Vec<Puts>,
    new_rows: bool,
) -> fjall::Result<Vec<(Keyspace, UserKey, UserValue)>> {
    let mut winners = Vec::with_capacity(puts.iter().map(|puts| puts.rows.len()).sum());
    let mut stale_writes = 0_u64;
    for Puts { slot, rows } in puts {
        let keyspace = slot.writable(db)?;
        for (key, value) in rows {
            // Builds with assertions read the row anyway, so that tests detect a broken promise of the caller.
            let old = if new_rows && !cfg!(debug_assertions) { None } else { keyspace.get(&key)? };
            debug_assert!(!new_rows || old.is_none(), "a row of {} is not new", slot.table.name);
            match old {
                Some(old) if !wins(&value, &old) => stale_writes += 1,
                _ => winners.push((keyspace.clone(), key, value)),
            }
        }
    }
    if stale_writes > 0 {
        crate::metrics::stale_writes(stale_writes);
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
            Header { is_tombstone: false, written_at: *written, expires_at: None, version: None }
                .write(&mut value);
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
    fn grouped_puts_have_the_result_of_single_puts() {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::builder(folder.path()).open().unwrap();
        let slot = Arc::clone(&open_slots(&db, &[Thing::TABLE]).unwrap()["things"]);
        let syncs = SyncCounter::open(&db, None).unwrap();
        let writer = Writer::new(db, system_clock(), syncs, None).unwrap();
        let puts: [&[(&str, i64, &str)]; 5] = [
            &[("a", 5, "five"), ("b", 1, "one")],
            &[("c", 1, "alone")],
            // Older than the first put of `a`. A read sees that put only if the batch was written before.
            &[("a", 4, "four")],
            &[("b", 2, "two"), ("d", 1, "new")],
            &[("b", 1, "late")],
        ];
        let (group, answers): (Vec<_>, Vec<_>) = puts.iter().map(|rows| put(&slot, rows)).unzip();
        writer.execute_group(group);
        for mut answer in answers {
            assert!(matches!(answer.try_recv().unwrap(), Ok(WriteResult::Written)));
        }
        for (key, wanted) in [("a", "five"), ("b", "two"), ("c", "alone"), ("d", "new")] {
            let value = slot.get(key.as_bytes()).unwrap().unwrap();
            assert_eq!(Header::read(&value).unwrap().1, wanted.as_bytes(), "{key}");
        }
    }
}
