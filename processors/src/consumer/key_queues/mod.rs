//! Queues of record parts by key: at most one part of a key runs at a time, in the log's order, and orgs take turns.
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

/// One part of a record, queued or running. It comes back through `KeyQueues::finish`, whatever became of it.
#[derive(Debug)]
pub(crate) struct QueuedPart<R> {
    pub(crate) record: R,
    pub(crate) index: usize,
    pub(crate) key: Key,
    bytes: usize,
    record_number: u64,
}

#[derive(Debug)]
pub(crate) struct KeyQueues<R> {
    capacity: Capacity,
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
/// one part of each org.
#[derive(Debug)]
struct ReadyParts<R> {
    by_org: BTreeMap<OrgId, VecDeque<QueuedPart<R>>>,
    org_order: VecDeque<OrgId>,
}

impl<R: Clone> KeyQueues<R> {
    pub(crate) fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
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

    /// Queues the parts of a record, each with its key and size. A record without parts is finished at once.
    pub(crate) fn admit(
        &mut self,
        record: R,
        parts: impl IntoIterator<Item = (Key, usize)>,
    ) -> Option<FinishedRecord<R>> {
        let record_number = self.next_record_number;
        self.next_record_number += 1;
        let mut count = 0;
        for (key, bytes) in parts {
            let part = QueuedPart { record: record.clone(), index: count, key, bytes, record_number };
            count += 1;
            self.in_use.parts += 1;
            self.in_use.bytes += bytes;
            if let Some(queue) = self.queues.get_mut(&part.key) {
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

    /// Takes the next part that may run.
    pub(crate) fn next_ready(&mut self) -> Option<QueuedPart<R>> {
        self.ready.pop()
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
            self.org_order.push_back(part.key.org.clone());
            self.by_org.insert(part.key.org.clone(), VecDeque::from([part]));
        }
    }

    fn pop(&mut self) -> Option<QueuedPart<R>> {
        let org = self.org_order.pop_front()?;
        let parts = self.by_org.get_mut(&org)?;
        let part = parts.pop_front();
        if parts.is_empty() {
            self.by_org.remove(&org);
        } else {
            self.org_order.push_back(org);
        }
        part
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
