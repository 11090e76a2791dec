//! Running and queued items of one org: limits of items and bytes, and shares of the hosts that they wait for.
//!
//! It wakes nobody: whoever may sit down is named when somebody else ends.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::shares::{Shares, Taken};

/// Limits of one org.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Seats, and those of items that wait for one host.
    pub(crate) seats: Shares,
    /// Bytes of running items.
    pub(crate) seat_bytes: usize,
    /// Items without a seat.
    pub(crate) line: usize,
    pub(crate) line_bytes: usize,
}

/// One item, as far as it counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueuedItem {
    /// Each once.
    pub(crate) hosts: Vec<Arc<str>>,
    pub(crate) bytes: usize,
}

/// Why there is neither a seat nor a place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueFull {
    Items,
    Bytes,
}

impl QueueFull {
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::Bytes => "bytes",
        }
    }
}

/// Seated, in line, and the bytes of both.
pub(super) type Sums = [u64; 3];

/// The items of one org. What waits could not have a seat when something last changed.
#[derive(Debug)]
pub(super) struct Org<T> {
    seated: Taken,
    seated_bytes: Taken,
    by_host: HashMap<Arc<str>, Own>,
    /// Queued items by number, which grows.
    waiting: VecDeque<(u64, QueuedItem, T)>,
    waiting_bytes: usize,
}

/// Running items of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Own {
    seats: usize,
    bytes: usize,
}

/// A item as it counts while it is seated.
#[derive(Debug)]
pub(super) struct Seated {
    item: QueuedItem,
    is_known: bool,
}

/// Result of adding an item. A queued item could not run, unless a host became known since something ended.
#[derive(Debug)]
pub(super) enum Admission {
    Running(Seated),
    /// Number in the queue.
    Queued(u64),
}

impl<T> Default for Org<T> {
    fn default() -> Self {
        Self {
            seated: Taken::default(),
            seated_bytes: Taken::default(),
            by_host: HashMap::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }
}

impl<T> Org<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.seated.all == 0 && self.waiting.is_empty()
    }

    pub(super) fn join(
        &mut self,
        bounds: Bounds,
        knows: impl Fn(&Arc<str>) -> bool,
        nth: u64,
        item: QueuedItem,
        who: T,
    ) -> Result<Admission, QueueFull> {
        if let Some(is_known) = self.free_for(bounds, knows, &item) {
            return Ok(Admission::Running(self.sit(item, is_known)));
        }
        if self.waiting.len() >= bounds.line {
            return Err(QueueFull::Items);
        }
        // One that is larger than all that is allowed stands alone.
        let bytes = self.waiting_bytes.saturating_add(item.bytes);
        if bytes > bounds.line_bytes && !self.waiting.is_empty() {
            return Err(QueueFull::Bytes);
        }
        self.waiting_bytes = bytes;
        self.waiting.push_back((nth, item, who));
        Ok(Admission::Queued(nth))
    }

    /// Returns whether the item may run, and if so, whether all of its hosts are known.
    fn free_for(&self, bounds: Bounds, knows: impl Fn(&Arc<str>) -> bool, item: &QueuedItem) -> Option<bool> {
        // Such as one whose hosts do not parse.
        let mut most = Own::default();
        for own in item.hosts.iter().filter_map(|host| self.by_host.get(host)) {
            most = Own { seats: most.seats.max(own.seats), bytes: most.bytes.max(own.bytes) };
        }
        let is_free = |is_known| {
            bounds.seats.admits(self.seated, most.seats, is_known)
                && self.bears(bounds.seat_bytes, most.bytes, item.bytes, is_known)
        };
        // To know hosts is what takes longest.
        let (as_known, as_stranger) = (is_free(true), is_free(false));
        if !as_known && !as_stranger {
            return None;
        }
        let is_known = item.hosts.iter().all(knows);
        (if is_known { as_known } else { as_stranger }).then_some(is_known)
    }

    /// True if so many more bytes may run. The first item of known hosts and the first of others always may: an item
    /// above the whole limit runs at last, and every waiting item waits for another one's end.
    fn bears(&self, most: usize, own: usize, more: usize, is_known: bool) -> bool {
        let alike =
            if is_known { self.seated.all - self.seated.by_strangers } else { self.seated.by_strangers };
        let shares = Shares { all: most, per_host: most };
        alike == 0 || shares.admits_more(self.seated_bytes, own, more, is_known)
    }

    fn sit(&mut self, item: QueuedItem, is_known: bool) -> Seated {
        self.seated.all += 1;
        self.seated_bytes.all += item.bytes;
        if !is_known {
            self.seated.by_strangers += 1;
            self.seated_bytes.by_strangers += item.bytes;
        }
        for host in &item.hosts {
            let own = self.by_host.entry(Arc::clone(host)).or_default();
            own.seats += 1;
            own.bytes += item.bytes;
        }
        Seated { item, is_known }
    }

    /// The first that there is a seat for, which counts as seated.
    pub(super) fn next(&mut self, bounds: Bounds, knows: impl Fn(&Arc<str>) -> bool) -> Option<(T, Seated)> {
        if bounds.seats.left(self.seated) == 0 {
            return None;
        }
        let mut free = self.waiting.iter().enumerate();
        let (at, is_known) =
            free.find_map(|(at, (_, item, _))| Some((at, self.free_for(bounds, &knows, item)?)))?;
        let (item, who) = self.take_out(at)?;
        Some((who, self.sit(item, is_known)))
    }

    pub(super) fn end(&mut self, Seated { item, is_known }: &Seated) {
        self.seated.all -= 1;
        self.seated_bytes.all -= item.bytes;
        if !is_known {
            self.seated.by_strangers -= 1;
            self.seated_bytes.by_strangers -= item.bytes;
        }
        for host in &item.hosts {
            if let Some(own) = self.by_host.get_mut(host) {
                own.seats -= 1;
                own.bytes -= item.bytes;
                if own.seats == 0 {
                    self.by_host.remove(host);
                }
            }
        }
    }

    /// Removes the item if it is still queued.
    pub(super) fn leave(&mut self, nth: u64) {
        if let Ok(at) = self.waiting.binary_search_by_key(&nth, |(own, ..)| *own) {
            self.take_out(at);
        }
    }

    fn take_out(&mut self, at: usize) -> Option<(QueuedItem, T)> {
        let (_, item, who) = self.waiting.remove(at)?;
        self.waiting_bytes -= item.bytes;
        Some((item, who))
    }

    pub(super) fn sums(&self) -> Sums {
        let bytes = self.seated_bytes.all + self.waiting_bytes;
        [self.seated.all as u64, self.waiting.len() as u64, bytes as u64]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Event {
        Come { hosts: Vec<u8>, bytes: usize },
        End(usize),
        Leave(usize),
        Learn(u8),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let hosts = proptest::collection::btree_set(0_u8..6, 0..4).prop_map(|set| set.into_iter().collect());
        let event = prop_oneof![
            4 => (hosts, 1..=LARGEST).prop_map(|(hosts, bytes)| Event::Come { hosts, bytes }),
            2 => any::<usize>().prop_map(Event::End),
            1 => any::<usize>().prop_map(Event::Leave),
            1 => (0_u8..6).prop_map(Event::Learn),
        ];
        proptest::collection::vec(event, 0..120)
    }

    /// One org and everybody in it.
    #[derive(Default)]
    struct House {
        org: Org<u64>,
        known: HashSet<Arc<str>>,
        came: u64,
        seated: Vec<Seated>,
        standing: Vec<u64>,
    }

    impl House {
        fn take(&mut self, bounds: Bounds, event: Event) {
            match event {
                Event::Come { hosts, bytes } => self.come(bounds, &hosts, bytes),
                Event::End(draw) if !self.seated.is_empty() => self.end(bounds, draw),
                Event::Leave(draw) if !self.standing.is_empty() => {
                    let nth = self.standing.swap_remove(draw % self.standing.len());
                    self.org.leave(nth);
                }
                Event::Learn(host) => {
                    let host: Arc<str> = host.to_string().into();
                    if !self.known.remove(&host) {
                        self.known.insert(host);
                    }
                }
                Event::End(_) | Event::Leave(_) => {}
            }
        }

        fn come(&mut self, bounds: Bounds, hosts: &[u8], bytes: usize) {
            self.came += 1;
            let item =
                QueuedItem { hosts: hosts.iter().map(|host| host.to_string().into()).collect(), bytes };
            let (items, waiting) = (self.org.waiting.len(), self.org.waiting_bytes);
            match self.org.join(bounds, |host| self.known.contains(host), self.came, item, self.came) {
                Ok(Admission::Running(seated)) => self.seated.push(seated),
                Ok(Admission::Queued(nth)) => self.standing.push(nth),
                Err(QueueFull::Items) => assert_eq!(items, bounds.line),
                Err(QueueFull::Bytes) => assert!(items > 0 && waiting + bytes > bounds.line_bytes),
            }
        }

        fn end(&mut self, bounds: Bounds, draw: usize) {
            let seated = self.seated.swap_remove(draw % self.seated.len());
            self.org.end(&seated);
            while let Some((nth, seated)) = self.org.next(bounds, |host| self.known.contains(host)) {
                let at = self.standing.iter().position(|it| *it == nth).unwrap();
                self.standing.remove(at);
                self.seated.push(seated);
            }
        }

        fn check(&self, bounds: Bounds) {
            let weigh = |is_known| {
                let alike = self.seated.iter().filter(|it| it.is_known == is_known);
                alike.fold((0, 0), |(items, bytes), it| (items + 1, bytes + it.item.bytes))
            };
            let (known, strangers) = (weigh(true), weigh(false));
            let of_both = Taken { all: known.0 + strangers.0, by_strangers: strangers.0 };
            assert_eq!(self.org.seated, of_both);
            assert!(of_both.all <= bounds.seats.all && strangers.0 <= bounds.seats.all.div_ceil(2));
            let bytes = Taken { all: known.1 + strangers.1, by_strangers: strangers.1 };
            assert_eq!(self.org.seated_bytes, bytes);
            assert!(strangers.0 <= 1 || bytes.by_strangers <= bounds.seat_bytes.div_ceil(2));
            assert!(known.0 <= 1 || known.1 <= bounds.seat_bytes);
            assert!(bytes.all <= bounds.seat_bytes.max(LARGEST) + LARGEST);
            let waiting: usize = self.org.waiting.iter().map(|(_, item, _)| item.bytes).sum();
            assert_eq!((self.org.waiting.len(), self.org.waiting_bytes), (self.standing.len(), waiting));
            assert!(self.standing.len() <= bounds.line);
            assert!(waiting <= bounds.line_bytes.max(LARGEST));
            assert!(self.standing.is_empty() || !self.seated.is_empty(), "somebody's end lets them in");
        }
    }

    const LARGEST: usize = 39;

    proptest! {
        #[test]
        fn bounds_hold_and_whoever_waits_is_let_in(
            events in events(),
            (all, per_host, seat_bytes) in (1_usize..9, 1_usize..5, 0_usize..120),
            (line, line_bytes) in (0_usize..9, 0_usize..120),
        ) {
            let bounds = Bounds { seats: Shares { all, per_host }, seat_bytes, line, line_bytes };
            let mut house = House::default();
            for event in events {
                house.take(bounds, event);
                house.check(bounds);
            }
            while !house.seated.is_empty() {
                house.end(bounds, 0);
                house.check(bounds);
            }
            prop_assert!(house.org.is_empty() && house.org.by_host.is_empty());
        }
    }
}
