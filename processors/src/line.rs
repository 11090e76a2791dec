//! Which items of an org may wait long for their media, and which stand in line for that: bounded in items, in bytes and
//! by the hosts that they wait for.
//!
//! It does not know what is waited for, nor for how long.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;
use tokio::sync::oneshot;

/// What one org may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) seats: usize,
    /// Seats of items that wait for one host.
    pub(crate) seats_per_host: usize,
    /// Items without a seat.
    pub(crate) line: usize,
    /// With a seat and without.
    pub(crate) bytes: u64,
}

/// One item, as far as it counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Guest {
    /// Each once.
    pub(crate) hosts: Vec<Arc<str>>,
    pub(crate) bytes: u64,
}

/// Why there is neither a seat nor a place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Items,
    Bytes,
}

impl Full {
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::Bytes => "bytes",
        }
    }
}

/// Cheap to clone; clones share all bounds.
#[derive(Clone)]
pub(crate) struct Line(Arc<Shared>);

struct Shared {
    bounds: Bounds,
    orgs: Mutex<Orgs>,
}

#[derive(Default)]
struct Orgs {
    by_id: HashMap<OrgId, Standings>,
    next: u64,
    sums: Sums,
}

type Standings = Org<oneshot::Sender<Seat>>;

/// Seated, in line, and the bytes of both.
type Sums = [u64; 3];

/// Given back when dropped.
pub(crate) struct Seat {
    line: Line,
    org: OrgId,
    guest: Guest,
}

impl Line {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self(Arc::new(Shared { bounds, orgs: Mutex::default() }))
    }

    /// A seat as soon as there is one for the guest. Whoever stops waiting leaves the line.
    pub(crate) async fn take(&self, org: &OrgId, guest: Guest) -> Result<Seat, Full> {
        let (sender, seat) = oneshot::channel();
        match self.change(org, |it, nth| it.join(self.0.bounds, nth, guest, sender))? {
            Place::Seat(guest) => Ok(self.seat(org, guest)),
            Place::Line(nth) => {
                let _standing = Standing { line: self, org, nth };
                // The sender leaves the line only with a seat, or with the guest.
                seat.await.map_err(|_| Full::Items)
            }
        }
    }

    fn seat(&self, org: &OrgId, guest: Guest) -> Seat {
        Seat { line: self.clone(), org: org.clone(), guest }
    }

    /// With a number that is higher than all before.
    fn change<R>(&self, org: &OrgId, change: impl FnOnce(&mut Standings, u64) -> R) -> R {
        let (result, sums) = {
            let orgs = &mut *self.0.orgs.lock();
            orgs.next += 1;
            let own = orgs.by_id.entry(org.clone()).or_default();
            let before = own.sums();
            let result = change(own, orgs.next);
            let (after, is_empty) = (own.sums(), own.is_empty());
            if is_empty {
                orgs.by_id.remove(org);
            }
            for ((sum, before), after) in orgs.sums.iter_mut().zip(before).zip(after) {
                *sum = *sum + after - before;
            }
            (result, orgs.sums)
        };
        let names = ["tidegate_media_slow_seated", "tidegate_media_slow_line", "tidegate_media_slow_bytes"];
        for (name, sum) in names.into_iter().zip(sums) {
            #[allow(clippy::cast_precision_loss, reason = "a gauge")]
            metrics::gauge!(name).set(sum as f64);
        }
        result
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let (line, org) = (&self.line, &self.org);
        line.change(org, |it, _| it.end(&self.guest));
        while let Some((sender, guest)) = line.change(org, |it, _| it.next(line.0.bounds)) {
            // Who left in this moment drops it, and with that gives it back.
            drop(sender.send(line.seat(org, guest)));
        }
    }
}

/// One who may be in the line still.
struct Standing<'a> {
    line: &'a Line,
    org: &'a OrgId,
    nth: u64,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.line.change(self.org, |it, _| it.leave(self.nth));
    }
}

/// The items of one org. What waits could not have a seat when something last changed.
#[derive(Debug)]
struct Org<T> {
    seated: usize,
    by_host: HashMap<Arc<str>, usize>,
    bytes: u64,
    /// By number, which grows.
    waiting: VecDeque<(u64, Guest, T)>,
}

/// What a newcomer gets: nobody who waits could have the seat that it takes.
#[derive(Debug)]
enum Place {
    Seat(Guest),
    /// With its number.
    Line(u64),
}

impl<T> Default for Org<T> {
    fn default() -> Self {
        Self { seated: 0, by_host: HashMap::new(), bytes: 0, waiting: VecDeque::new() }
    }
}

impl<T> Org<T> {
    fn is_empty(&self) -> bool {
        self.seated == 0 && self.waiting.is_empty()
    }

    fn join(&mut self, bounds: Bounds, nth: u64, guest: Guest, who: T) -> Result<Place, Full> {
        // One that is larger than all that is allowed comes alone.
        if !self.is_empty() && self.bytes.saturating_add(guest.bytes) > bounds.bytes {
            return Err(Full::Bytes);
        }
        let has_seat = self.has_seat(bounds, &guest);
        if !has_seat && self.waiting.len() >= bounds.line {
            return Err(Full::Items);
        }
        self.bytes = self.bytes.saturating_add(guest.bytes);
        if has_seat {
            self.sit(&guest);
            return Ok(Place::Seat(guest));
        }
        self.waiting.push_back((nth, guest, who));
        Ok(Place::Line(nth))
    }

    fn has_seat(&self, bounds: Bounds, guest: &Guest) -> bool {
        let is_free = |host| self.by_host.get(host).is_none_or(|seated| *seated < bounds.seats_per_host);
        self.seated < bounds.seats && guest.hosts.iter().all(is_free)
    }

    fn sit(&mut self, guest: &Guest) {
        self.seated += 1;
        for host in &guest.hosts {
            *self.by_host.entry(Arc::clone(host)).or_default() += 1;
        }
    }

    /// The first that there is a seat for, which counts as seated.
    fn next(&mut self, bounds: Bounds) -> Option<(T, Guest)> {
        if self.seated >= bounds.seats {
            return None;
        }
        let at = self.waiting.iter().position(|(_, guest, _)| self.has_seat(bounds, guest))?;
        let (_, guest, who) = self.waiting.remove(at)?;
        self.sit(&guest);
        Some((who, guest))
    }

    fn end(&mut self, guest: &Guest) {
        self.seated -= 1;
        self.bytes -= guest.bytes;
        for host in &guest.hosts {
            if let Some(seated) = self.by_host.get_mut(host) {
                *seated -= 1;
                if *seated == 0 {
                    self.by_host.remove(host);
                }
            }
        }
    }

    /// If it is in the line still.
    fn leave(&mut self, nth: u64) {
        let Ok(at) = self.waiting.binary_search_by_key(&nth, |(own, ..)| *own) else { return };
        if let Some((_, guest, _)) = self.waiting.remove(at) {
            self.bytes -= guest.bytes;
        }
    }

    fn sums(&self) -> Sums {
        [self.seated as u64, self.waiting.len() as u64, self.bytes]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, future::BoxFuture, poll};

    use super::*;

    const BOUNDS: Bounds = Bounds { seats: 3, seats_per_host: 2, line: 4, bytes: 100 };

    fn guest(hosts: &[&str], bytes: u64) -> Guest {
        Guest { hosts: hosts.iter().map(|host| Arc::from(*host)).collect(), bytes }
    }

    fn take<'a>(line: &'a Line, org: &'a OrgId, guest: Guest) -> BoxFuture<'a, Result<Seat, Full>> {
        line.take(org, guest).boxed()
    }

    fn now(line: &Line, org: &OrgId, guest: Guest) -> Result<Seat, Full> {
        line.take(org, guest).now_or_never().unwrap()
    }

    #[tokio::test]
    async fn a_hanging_host_leaves_seats_to_the_other_hosts_of_its_org() {
        let (line, org) = (Line::new(BOUNDS), OrgId::new("o"));
        let hanging: Vec<_> = (0..2).map(|_| now(&line, &org, guest(&["hangs"], 1)).unwrap()).collect();
        let (mut third, mut both) =
            (take(&line, &org, guest(&["hangs"], 1)), take(&line, &org, guest(&["good", "hangs"], 1)));
        assert!(poll!(&mut third).is_pending() && poll!(&mut both).is_pending());
        for _ in 0..5 {
            drop(now(&line, &org, guest(&["good"], 1)).unwrap());
        }
        drop(hanging);
        let third = third.now_or_never().unwrap().unwrap();
        let both = both.now_or_never().unwrap().unwrap();
        assert_eq!(line.0.orgs.lock().by_id[&org].by_host[&Arc::from("hangs")], 2);
        drop((third, both));
        assert!(line.0.orgs.lock().by_id.is_empty());
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_not_joined_and_an_org_s_is_its_own() {
        let (line, org) = (Line::new(BOUNDS), OrgId::new("o"));
        let _seated: Vec<_> = ["a", "b", "c"].map(|host| now(&line, &org, guest(&[host], 1)).unwrap()).into();
        let mut standing = Vec::new();
        for _ in 0..4 {
            let mut one = take(&line, &org, guest(&["a"], 1));
            assert!(poll!(&mut one).is_pending());
            standing.push(one);
        }
        assert_eq!(now(&line, &org, guest(&["a"], 1)).err(), Some(Full::Items));
        now(&line, &OrgId::new("other"), guest(&["a"], 1)).unwrap();
        standing.pop();
        assert!(poll!(&mut take(&line, &org, guest(&["a"], 1))).is_pending(), "one left the line");
    }

    #[tokio::test]
    async fn what_is_seated_and_what_stands_in_line_share_the_bytes_of_an_org() {
        let (line, org) = (Line::new(BOUNDS), OrgId::new("o"));
        let large = now(&line, &org, guest(&["a"], 500)).unwrap();
        assert_eq!(now(&line, &org, guest(&["b"], 1)).err(), Some(Full::Bytes));
        drop(large);
        let first = now(&line, &org, guest(&["a"], 60)).unwrap();
        let _second = now(&line, &org, guest(&["a"], 10)).unwrap();
        let mut third = take(&line, &org, guest(&["a"], 30));
        assert!(poll!(&mut third).is_pending());
        assert_eq!(now(&line, &org, guest(&["b"], 1)).err(), Some(Full::Bytes));
        drop(third);
        let _fourth = now(&line, &org, guest(&["b"], 30)).unwrap();
        drop(first);
        assert_eq!(line.0.orgs.lock().by_id[&org].bytes, 40);
    }

    #[tokio::test]
    async fn a_seat_that_was_given_to_who_has_left_is_given_on() {
        let (line, org) = (Line::new(Bounds { seats: 1, seats_per_host: 1, ..BOUNDS }), OrgId::new("o"));
        let first = now(&line, &org, guest(&["a"], 1)).unwrap();
        let mut second = take(&line, &org, guest(&["a"], 1));
        let mut third = take(&line, &org, guest(&["a"], 1));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        // It is the second one's by now, who goes without having looked.
        drop(first);
        assert!(poll!(&mut third).is_pending());
        drop(second);
        drop(third.now_or_never().unwrap().unwrap());
        assert!(line.0.orgs.lock().by_id.is_empty());
    }
}
