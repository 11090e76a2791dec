//! Queues of record parts by key: one part of a key runs at a time, in the log's order, and orgs take turns. Batchable
//! parts of an org start together.
//!
//! Pure data structure: the consumer loop runs the parts and completes the tickets.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tidegate_schemas::ids::{ItemKey, OrgId};

/// Ordering key: parts of the same item or user run one after another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) org: OrgId,
    pub(crate) item: ItemKey,
}

/// Number and size of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) parts: usize,
    pub(crate) bytes: usize,
}

/// Part of a record before its admission.
#[derive(Clone, Debug)]
pub(crate) struct NewPart {
    pub(crate) key: Key,
    pub(crate) bytes: usize,
    /// True if the part may start in a batch with others of its org.
    pub(crate) is_batchable: bool,
}

impl NewPart {
    /// Creates a part that starts alone.
    pub(crate) const fn single(key: Key, bytes: usize) -> Self {
        Self { key, bytes, is_batchable: false }
    }
}

/// Queued or running part of a record. Each running part is returned with `KeyQueues::finish` or `KeyQueues::separate`.
#[derive(Debug)]
pub(crate) struct QueuedPart<R> {
    pub(crate) record: R,
    pub(crate) index: usize,
    pub(crate) key: Key,
    /// True if a batch with this part failed during its writes, so effects may be stored already.
    pub(crate) is_retry: bool,
    is_batchable: bool,
    bytes: usize,
    record_number: u64,
}

/// Work that starts in one slot.
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
    usage: Capacity,
    /// Waiting parts of each key that has a part ready or running.
    later_parts: HashMap<Key, VecDeque<QueuedPart<R>>>,
    ready_parts: ReadyParts<R>,
    unfinished: HashMap<u64, UnfinishedRecord>,
    next_record_number: u64,
}

/// Record without queued or running parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FinishedRecord<R> {
    pub(crate) record: R,
    /// False if a part was dropped or abandoned: the record must not be completed.
    pub(crate) is_complete: bool,
}

#[derive(Debug)]
struct UnfinishedRecord {
    open_parts: usize,
    is_complete: bool,
}

/// Ready parts in round-robin order of their orgs. A burst of one org delays another org by at most one part or batch per
/// org.
#[derive(Debug)]
struct ReadyParts<R> {
    by_org: BTreeMap<OrgId, VecDeque<QueuedPart<R>>>,
    org_order: VecDeque<OrgId>,
}

impl<R: Clone> KeyQueues<R> {
    /// Creates queues that admit parts up to `capacity` and start batches up to `batch_limit`. A part above the byte
    /// limit is a batch of one.
    pub(crate) fn new(capacity: Capacity, batch_limit: Capacity) -> Self {
        Self {
            capacity,
            batch_limit,
            usage: Capacity { parts: 0, bytes: 0 },
            later_parts: HashMap::new(),
            ready_parts: ReadyParts { by_org: BTreeMap::new(), org_order: VecDeque::new() },
            unfinished: HashMap::new(),
            next_record_number: 0,
        }
    }

    /// True if another record may be admitted. A record above the full capacity is admitted when the queues are empty.
    pub(crate) fn has_capacity(&self) -> bool {
        self.usage.parts < self.capacity.parts && self.usage.bytes < self.capacity.bytes
    }

    pub(crate) fn has_ready_parts(&self) -> bool {
        !self.ready_parts.org_order.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.usage.parts == 0
    }

    /// Queues the parts of a record. A record without parts is finished at once.
    pub(crate) fn admit(
        &mut self,
        record: R,
        parts: impl IntoIterator<Item = NewPart>,
    ) -> Option<FinishedRecord<R>> {
        let record_number = self.next_record_number;
        self.next_record_number += 1;
        let mut part_count = 0;
        for NewPart { key, bytes, is_batchable } in parts {
            let mut part = QueuedPart {
                record: record.clone(),
                index: part_count,
                key,
                is_retry: false,
                is_batchable,
                bytes,
                record_number,
            };
            part_count += 1;
            self.usage.parts += 1;
            self.usage.bytes += bytes;
            if let Some(queue) = self.later_parts.get_mut(&part.key) {
                // The part starts after an earlier part of its key, when the batch of its record has already started.
                part.is_batchable = false;
                queue.push_back(part);
            } else {
                self.later_parts.insert(part.key.clone(), VecDeque::new());
                self.ready_parts.push(part);
            }
        }
        if part_count == 0 {
            return Some(FinishedRecord { record, is_complete: true });
        }
        self.unfinished.insert(record_number, UnfinishedRecord { open_parts: part_count, is_complete: true });
        None
    }

    /// Takes the next work: that of the first org in turn for which `acquire` returns a slot.
    pub(crate) fn next_ready<S>(
        &mut self,
        acquire: impl FnMut(&OrgId) -> Option<S>,
    ) -> Option<(ReadyWork<R>, S)> {
        self.ready_parts.pop(self.batch_limit, acquire)
    }

    /// Makes parts of a batch ready again as single parts, ahead of their org's other ready parts. They keep their keys.
    pub(crate) fn separate(
        &mut self,
        parts: impl IntoIterator<Item = QueuedPart<R>, IntoIter: DoubleEndedIterator>,
        is_retry: bool,
    ) {
        // In reverse, so `push_front` preserves their order.
        for part in parts.into_iter().rev() {
            self.ready_parts.push_front(QueuedPart { is_batchable: false, is_retry, ..part });
        }
    }

    /// Ends a part and makes the next part of its key ready. Returns the record if this was its last part.
    pub(crate) fn finish(&mut self, part: QueuedPart<R>, is_done: bool) -> Option<FinishedRecord<R>> {
        if let Some(queue) = self.later_parts.get_mut(&part.key) {
            match queue.pop_front() {
                Some(next_part) => self.ready_parts.push(next_part),
                None => {
                    self.later_parts.remove(&part.key);
                }
            }
        }
        self.release_part(part, is_done)
    }

    /// Drops the parts of revoked records that have not started. Returns the records that are finished by it.
    pub(crate) fn drop_revoked(&mut self, is_revoked: impl Fn(&R) -> bool) -> Vec<FinishedRecord<R>> {
        let mut dropped_parts = Vec::new();
        for queue in self.later_parts.values_mut() {
            dropped_parts.extend(split_off_matching(queue, &is_revoked));
        }
        // A dropped ready part no longer blocks its key, so the next part of the key becomes ready.
        for part in self.ready_parts.remove_matching(&is_revoked) {
            if let Some(next_part) = self.later_parts.get_mut(&part.key).and_then(VecDeque::pop_front) {
                self.ready_parts.push(next_part);
            } else {
                self.later_parts.remove(&part.key);
            }
            dropped_parts.push(part);
        }
        dropped_parts.into_iter().filter_map(|part| self.release_part(part, false)).collect()
    }

    fn release_part(&mut self, part: QueuedPart<R>, is_done: bool) -> Option<FinishedRecord<R>> {
        self.usage.parts -= 1;
        self.usage.bytes -= part.bytes;
        let record = self.unfinished.get_mut(&part.record_number)?;
        record.open_parts -= 1;
        record.is_complete &= is_done;
        if record.open_parts > 0 {
            return None;
        }
        let is_complete = record.is_complete;
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
        // An org without a free slot keeps its turn, so it is first when one is released.
        let (position, slot) =
            self.org_order.iter().enumerate().find_map(|(position, org)| Some((position, acquire(org)?)))?;
        let org = self.org_order.remove(position)?;
        let parts = self.by_org.get_mut(&org)?;
        let work = take_work(parts, batch_limit)?;
        if parts.is_empty() {
            self.by_org.remove(&org);
        } else {
            self.org_order.push_back(org);
        }
        Some((work, slot))
    }

    fn remove_matching(&mut self, matches: impl Fn(&R) -> bool) -> Vec<QueuedPart<R>> {
        let mut removed_parts = Vec::new();
        for parts in self.by_org.values_mut() {
            removed_parts.extend(split_off_matching(parts, &matches));
        }
        self.by_org.retain(|_, parts| !parts.is_empty());
        self.org_order.retain(|org| self.by_org.contains_key(org));
        removed_parts
    }
}

/// Takes the first part, and the batchable parts that follow it up to the limit.
fn take_work<R>(parts: &mut VecDeque<QueuedPart<R>>, limit: Capacity) -> Option<ReadyWork<R>> {
    let first_part = parts.pop_front()?;
    if !first_part.is_batchable {
        return Some(ReadyWork::Single(first_part));
    }
    let mut bytes = first_part.bytes;
    let mut batch = vec![first_part];
    while batch.len() < limit.parts
        && let Some(next_part) =
            parts.pop_front_if(|part| part.is_batchable && bytes + part.bytes <= limit.bytes)
    {
        bytes += next_part.bytes;
        batch.push(next_part);
    }
    Some(ReadyWork::Batch(batch))
}

fn split_off_matching<R>(
    parts: &mut VecDeque<QueuedPart<R>>,
    matches: impl Fn(&R) -> bool,
) -> VecDeque<QueuedPart<R>> {
    let (matching_parts, other_parts) =
        std::mem::take(parts).into_iter().partition(|part| matches(&part.record));
    *parts = other_parts;
    matching_parts
}

#[cfg(test)]
mod tests;
