//! Queues of record parts by key: at most one part of a key runs at a time, in the log's order, and orgs take turns. Parts
//! that can be handled together start as a batch.
//!
//! Pure data structure: the consumer loop runs the parts and completes the tickets.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tidegate_schemas::ids::{ItemKey, OrgId};

/// Item or user whose parts run in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) org: OrgId,
    pub(crate) item: ItemKey,
}

/// Number and size of parts that may be admitted and unfinished at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) parts: usize,
    pub(crate) bytes: usize,
}

/// A part of a record that is to be admitted.
#[derive(Clone, Debug)]
pub(crate) struct NewPart {
    pub(crate) key: Key,
    pub(crate) bytes: usize,
    /// True if the part may start together with others of its org.
    pub(crate) is_batchable: bool,
}

impl NewPart {
    /// A part that starts by itself.
    pub(crate) const fn single(key: Key, bytes: usize) -> Self {
        Self { key, bytes, is_batchable: false }
    }
}

/// One part of a record, queued or running. It comes back through `KeyQueues::finish` or `KeyQueues::separate`, whatever
/// became of it.
#[derive(Debug)]
pub(crate) struct QueuedPart<R> {
    pub(crate) record: R,
    pub(crate) index: usize,
    pub(crate) key: Key,
    /// True if a batch with the part failed while it wrote, so that some of it may be stored.
    pub(crate) is_retry: bool,
    is_batchable: bool,
    bytes: usize,
    record_number: u64,
}

/// Parts that start together.
#[derive(Debug)]
pub(crate) enum ReadyWork<R> {
    /// Batchable parts of one org, each with a key of its own. Never empty.
    Batch(Vec<QueuedPart<R>>),
    Single(QueuedPart<R>),
}

#[derive(Debug)]
pub(crate) struct KeyQueues<R> {
    capacity: Capacity,
    batch_limit: Capacity,
    in_use: Capacity,
    /// Later parts of each key that has a part ready or running.
    queues: HashMap<Key, VecDeque<QueuedPart<R>>>,
    ready: ReadyParts<R>,
    unfinished: HashMap<u64, Unfinished>,
    next_record_number: u64,
}

/// A record none of whose parts is queued or running any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FinishedRecord<R> {
    pub(crate) record: R,
    /// False if a part was dropped or abandoned: the record must not be completed.
    pub(crate) is_complete: bool,
}

#[derive(Debug)]
struct Unfinished {
    parts: usize,
    is_complete: bool,
}

/// Ready parts in round-robin order of their orgs, so that a burst of one org delays the next part of another by at most
/// one part or batch of each org.
#[derive(Debug)]
struct ReadyParts<R> {
    by_org: BTreeMap<OrgId, VecDeque<QueuedPart<R>>>,
    org_order: VecDeque<OrgId>,
}

impl<R: Clone> KeyQueues<R> {
    /// Queues that admit parts up to `capacity`, and start batches of up to `batch_limit`. A part above the limit in bytes
    /// is a batch by itself.
    pub(crate) fn new(capacity: Capacity, batch_limit: Capacity) -> Self {
        Self {
            capacity,
            batch_limit,
            in_use: Capacity { parts: 0, bytes: 0 },
            queues: HashMap::new(),
            ready: ReadyParts { by_org: BTreeMap::new(), org_order: VecDeque::new() },
            unfinished: HashMap::new(),
            next_record_number: 0,
        }
    }

    /// True if another record may be admitted. A record above the whole capacity is admitted once nothing else is held.
    pub(crate) fn has_capacity(&self) -> bool {
        self.in_use.parts < self.capacity.parts && self.in_use.bytes < self.capacity.bytes
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.org_order.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_use.parts == 0
    }

    /// Queues the parts of a record. A record without parts is finished at once.
    pub(crate) fn admit(
        &mut self,
        record: R,
        parts: impl IntoIterator<Item = NewPart>,
    ) -> Option<FinishedRecord<R>> {
        let record_number = self.next_record_number;
        self.next_record_number += 1;
        let mut count = 0;
        for NewPart { key, bytes, is_batchable } in parts {
            let mut part = QueuedPart {
                record: record.clone(),
                index: count,
                key,
                is_retry: false,
                is_batchable,
                bytes,
                record_number,
            };
            count += 1;
            self.in_use.parts += 1;
            self.in_use.bytes += bytes;
            if let Some(queue) = self.queues.get_mut(&part.key) {
                // It starts when the earlier part of its key ends, and the parts beside it have long started by then.
                part.is_batchable = false;
                queue.push_back(part);
            } else {
                self.queues.insert(part.key.clone(), VecDeque::new());
                self.ready.push(part);
            }
        }
        if count == 0 {
            return Some(FinishedRecord { record, is_complete: true });
        }
        self.unfinished.insert(record_number, Unfinished { parts: count, is_complete: true });
        None
    }

    /// Takes the parts that may run next: those of the first org by turn for which `acquire` returns a slot.
    pub(crate) fn next_ready<S>(
        &mut self,
        acquire: impl FnMut(&OrgId) -> Option<S>,
    ) -> Option<(ReadyWork<R>, S)> {
        self.ready.pop(self.batch_limit, acquire)
    }

    /// Makes parts of a batch ready again, each by itself and before what is ready of their org. They keep their keys.
    pub(crate) fn separate(
        &mut self,
        parts: impl IntoIterator<Item = QueuedPart<R>, IntoIter: DoubleEndedIterator>,
        is_retry: bool,
    ) {
        for part in parts.into_iter().rev() {
            self.ready.push_front(QueuedPart { is_batchable: false, is_retry, ..part });
        }
    }

    /// Ends a part, done or abandoned, and makes the next one of its key ready. Returns the record with its last part.
    pub(crate) fn finish(&mut self, part: QueuedPart<R>, is_done: bool) -> Option<FinishedRecord<R>> {
        if let Some(queue) = self.queues.get_mut(&part.key) {
            match queue.pop_front() {
                Some(next) => self.ready.push(next),
                None => {
                    self.queues.remove(&part.key);
                }
            }
        }
        self.release(part, is_done)
    }

    /// Drops the parts of lost records that have not started. Returns the records that are finished by it.
    pub(crate) fn drop_lost(&mut self, is_lost: impl Fn(&R) -> bool) -> Vec<FinishedRecord<R>> {
        let mut dropped = Vec::new();
        for queue in self.queues.values_mut() {
            dropped.extend(extract(queue, &is_lost));
        }
        // A ready part blocked its key, so the next part of the key becomes ready.
        for part in self.ready.extract(&is_lost) {
            if let Some(next) = self.queues.get_mut(&part.key).and_then(VecDeque::pop_front) {
                self.ready.push(next);
            } else {
                self.queues.remove(&part.key);
            }
            dropped.push(part);
        }
        dropped.into_iter().filter_map(|part| self.release(part, false)).collect()
    }

    fn release(&mut self, part: QueuedPart<R>, is_done: bool) -> Option<FinishedRecord<R>> {
        self.in_use.parts -= 1;
        self.in_use.bytes -= part.bytes;
        let unfinished = self.unfinished.get_mut(&part.record_number)?;
        unfinished.parts -= 1;
        unfinished.is_complete &= is_done;
        if unfinished.parts > 0 {
            return None;
        }
        let is_complete = unfinished.is_complete;
        self.unfinished.remove(&part.record_number);
        Some(FinishedRecord { record: part.record, is_complete })
    }
}

impl<R> ReadyParts<R> {
    fn push(&mut self, part: QueuedPart<R>) {
        if let Some(parts) = self.by_org.get_mut(&part.key.org) {
            parts.push_back(part);
        } else {
            self.insert_org(part);
        }
    }

    fn push_front(&mut self, part: QueuedPart<R>) {
        if let Some(parts) = self.by_org.get_mut(&part.key.org) {
            parts.push_front(part);
        } else {
            self.insert_org(part);
        }
    }

    fn insert_org(&mut self, part: QueuedPart<R>) {
        self.org_order.push_back(part.key.org.clone());
        self.by_org.insert(part.key.org.clone(), VecDeque::from([part]));
    }

    fn pop<S>(
        &mut self,
        batch_limit: Capacity,
        mut acquire: impl FnMut(&OrgId) -> Option<S>,
    ) -> Option<(ReadyWork<R>, S)> {
        // An org without a slot keeps its turn.
        let (turn, slot) =
            self.org_order.iter().enumerate().find_map(|(turn, org)| Some((turn, acquire(org)?)))?;
        let org = self.org_order.remove(turn)?;
        let parts = self.by_org.get_mut(&org)?;
        let work = take_work(parts, batch_limit)?;
        if parts.is_empty() {
            self.by_org.remove(&org);
        } else {
            self.org_order.push_back(org);
        }
        Some((work, slot))
    }

    fn extract(&mut self, is_wanted: impl Fn(&R) -> bool) -> Vec<QueuedPart<R>> {
        let mut extracted = Vec::new();
        for parts in self.by_org.values_mut() {
            extracted.extend(extract(parts, &is_wanted));
        }
        self.by_org.retain(|_, parts| !parts.is_empty());
        self.org_order.retain(|org| self.by_org.contains_key(org));
        extracted
    }
}

/// Takes the first part, and with it the batchable ones that follow it, as many as the limit allows.
fn take_work<R>(parts: &mut VecDeque<QueuedPart<R>>, limit: Capacity) -> Option<ReadyWork<R>> {
    let first = parts.pop_front()?;
    if !first.is_batchable {
        return Some(ReadyWork::Single(first));
    }
    let mut bytes = first.bytes;
    let mut batch = vec![first];
    while batch.len() < limit.parts
        && let Some(next) = parts.pop_front_if(|next| next.is_batchable && bytes + next.bytes <= limit.bytes)
    {
        bytes += next.bytes;
        batch.push(next);
    }
    Some(ReadyWork::Batch(batch))
}

fn extract<R>(
    parts: &mut VecDeque<QueuedPart<R>>,
    is_wanted: impl Fn(&R) -> bool,
) -> VecDeque<QueuedPart<R>> {
    let (wanted, rest) = std::mem::take(parts).into_iter().partition(|part| is_wanted(&part.record));
    *parts = rest;
    wanted
}

#[cfg(test)]
mod tests;
