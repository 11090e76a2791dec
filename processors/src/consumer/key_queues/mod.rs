//! Which work may start now: at most one of a key at a time, in the log's order, orgs taking turns.
//!
//! It does no work, knows no clock and completes no ticket: it says when a record's last part has ended.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tidegate_schemas::ids::{ItemKey, OrgId};

/// What order is kept for: an item, or a user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) org: OrgId,
    pub(crate) item: ItemKey,
}

/// How much may be held, admitted and not yet finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) works: usize,
    pub(crate) bytes: usize,
}

/// One part of a record on its way. It comes back through `Lanes::finish`, whatever became of it.
#[derive(Debug)]
pub(crate) struct Work<R> {
    pub(crate) record: R,
    /// Which part of the record.
    pub(crate) part: usize,
    pub(crate) key: Key,
    bytes: usize,
    seat: u64,
}

/// Parts of records, held until their turn.
#[derive(Debug)]
pub(crate) struct Lanes<R> {
    room: Room,
    held: Room,
    /// A key is here while a work of it is ready or under way; behind it wait the later ones.
    lanes: HashMap<Key, VecDeque<Work<R>>>,
    ready: Turns<R>,
    /// What is left of each record.
    left: HashMap<u64, Left>,
    next_seat: u64,
}

/// A record that has left the lanes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended<R> {
    pub(crate) record: R,
    /// Every part was done; else a part was dropped or given up, and the record must not count as done.
    pub(crate) is_whole: bool,
}

#[derive(Debug)]
struct Left {
    parts: usize,
    is_whole: bool,
}

/// Ready works, one org after the other, so that a burst of one delays nobody else by more than one work each.
#[derive(Debug)]
struct Turns<R> {
    works: BTreeMap<OrgId, VecDeque<Work<R>>>,
    order: VecDeque<OrgId>,
}

impl<R: Clone> Lanes<R> {
    pub(crate) fn new(room: Room) -> Self {
        Self {
            room,
            held: Room { works: 0, bytes: 0 },
            lanes: HashMap::new(),
            ready: Turns { works: BTreeMap::new(), order: VecDeque::new() },
            left: HashMap::new(),
            next_seat: 0,
        }
    }

    /// Whether more may be admitted. A record above the whole room is admitted when nothing else is held.
    pub(crate) fn has_room(&self) -> bool {
        self.held.works < self.room.works && self.held.bytes < self.room.bytes
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.order.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.works == 0
    }

    #[cfg(test)]
    fn held(&self) -> Room {
        self.held
    }

    /// Takes in a record, each part with its key and size. One without parts has ended already.
    pub(crate) fn admit(
        &mut self,
        record: R,
        parts: impl IntoIterator<Item = (Key, usize)>,
    ) -> Option<Ended<R>> {
        let seat = self.next_seat;
        self.next_seat += 1;
        let mut count = 0;
        for (key, bytes) in parts {
            let work = Work { record: record.clone(), part: count, key, bytes, seat };
            count += 1;
            self.held.works += 1;
            self.held.bytes += bytes;
            if let Some(waiting) = self.lanes.get_mut(&work.key) {
                waiting.push_back(work);
            } else {
                self.lanes.insert(work.key.clone(), VecDeque::new());
                self.ready.push(work);
            }
        }
        if count == 0 {
            return Some(Ended { record, is_whole: true });
        }
        self.left.insert(seat, Left { parts: count, is_whole: true });
        None
    }

    /// The next work to start.
    pub(crate) fn start(&mut self) -> Option<Work<R>> {
        self.ready.pop()
    }

    /// A work has ended, done or given up: the next of its key is ready. Gives the record back with its last part.
    pub(crate) fn finish(&mut self, work: Work<R>, is_done: bool) -> Option<Ended<R>> {
        if let Some(waiting) = self.lanes.get_mut(&work.key) {
            match waiting.pop_front() {
                Some(next) => self.ready.push(next),
                None => {
                    self.lanes.remove(&work.key);
                }
            }
        }
        self.let_go(work, is_done)
    }

    /// Drops what has not started of records that are lost, and gives back those that have left the lanes by it.
    pub(crate) fn drop_lost(&mut self, lost: impl Fn(&R) -> bool) -> Vec<Ended<R>> {
        let mut dropped = Vec::new();
        for waiting in self.lanes.values_mut() {
            dropped.extend(extract(waiting, &lost));
        }
        // One that was ready held its key: the next of the key takes its place.
        for work in self.ready.take(&lost) {
            if let Some(next) = self.lanes.get_mut(&work.key).and_then(VecDeque::pop_front) {
                self.ready.push(next);
            } else {
                self.lanes.remove(&work.key);
            }
            dropped.push(work);
        }
        dropped.into_iter().filter_map(|work| self.let_go(work, false)).collect()
    }

    fn let_go(&mut self, work: Work<R>, is_done: bool) -> Option<Ended<R>> {
        self.held.works -= 1;
        self.held.bytes -= work.bytes;
        let left = self.left.get_mut(&work.seat)?;
        left.parts -= 1;
        left.is_whole &= is_done;
        if left.parts > 0 {
            return None;
        }
        let is_whole = left.is_whole;
        self.left.remove(&work.seat);
        Some(Ended { record: work.record, is_whole })
    }
}

impl<R> Turns<R> {
    fn push(&mut self, work: Work<R>) {
        if let Some(works) = self.works.get_mut(&work.key.org) {
            works.push_back(work);
        } else {
            self.order.push_back(work.key.org.clone());
            self.works.insert(work.key.org.clone(), VecDeque::from([work]));
        }
    }

    fn pop(&mut self) -> Option<Work<R>> {
        let org = self.order.pop_front()?;
        let works = self.works.get_mut(&org)?;
        let work = works.pop_front();
        if works.is_empty() {
            self.works.remove(&org);
        } else {
            self.order.push_back(org);
        }
        work
    }

    fn take(&mut self, wanted: impl Fn(&R) -> bool) -> Vec<Work<R>> {
        let mut taken = Vec::new();
        for works in self.works.values_mut() {
            taken.extend(extract(works, &wanted));
        }
        self.works.retain(|_, works| !works.is_empty());
        self.order.retain(|org| self.works.contains_key(org));
        taken
    }
}

fn extract<R>(works: &mut VecDeque<Work<R>>, wanted: impl Fn(&R) -> bool) -> VecDeque<Work<R>> {
    let (taken, kept) = std::mem::take(works).into_iter().partition(|work| wanted(&work.record));
    *works = kept;
    taken
}

#[cfg(test)]
mod tests;
