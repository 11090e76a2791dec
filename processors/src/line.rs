//! Which items of an org may wait long for their media, and which stand in line for that: bounded in items, in bytes and
//! by the hosts that they wait for.
//!
//! It does not know what is waited for, nor for how long.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tidegate_moderation::signals::{Shares, Taken};
use tidegate_schemas::ids::OrgId;
use tokio::sync::oneshot;

/// What one org may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Seats, and those of items that wait for one host.
    pub(crate) seats: Shares,
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

type Known = dyn Fn(&OrgId, &Arc<str>) -> bool + Send + Sync;

struct Shared {
    bounds: Bounds,
    known: Box<Known>,
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
    guest: Seated,
}

impl Line {
    /// `known`: whether a host gave an org what it was asked for, and has not rested since. Nothing of the line may be
    /// called by it.
    pub(crate) fn new(
        bounds: Bounds,
        known: impl Fn(&OrgId, &Arc<str>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared { bounds, known: Box::new(known), orgs: Mutex::default() }))
    }

    /// A seat as soon as there is one for the guest. Whoever stops waiting leaves the line.
    pub(crate) async fn take(&self, org: &OrgId, guest: Guest) -> Result<Seat, Full> {
        let (sender, seat) = oneshot::channel();
        let knows = |host: &Arc<str>| (self.0.known)(org, host);
        match self.change(org, |it, nth| it.join(self.0.bounds, knows, nth, guest, sender))? {
            Place::Seat(guest) => Ok(self.seat(org, guest)),
            Place::Line(nth) => {
                let _standing = Standing { line: self, org, nth };
                // The sender leaves the line only with a seat, or with the guest.
                seat.await.map_err(|_| Full::Items)
            }
        }
    }

    fn seat(&self, org: &OrgId, guest: Seated) -> Seat {
        Seat { line: self.clone(), org: org.clone(), guest }
    }

    fn let_in(&self, org: &OrgId) {
        let knows = |host: &Arc<str>| (self.0.known)(org, host);
        while let Some((sender, guest)) = self.change(org, |it, _| it.next(self.0.bounds.seats, knows)) {
            // Who left in this moment drops it, and with that gives it back.
            drop(sender.send(self.seat(org, guest)));
        }
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
        line.let_in(org);
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
    seated: Taken,
    by_host: HashMap<Arc<str>, usize>,
    bytes: u64,
    /// By number, which grows.
    waiting: VecDeque<(u64, Guest, T)>,
}

/// A guest as it counts while it is seated.
#[derive(Debug)]
struct Seated {
    guest: Guest,
    is_known: bool,
}

/// What a newcomer gets. Nobody who waits could have its seat, unless a host became known since something ended.
#[derive(Debug)]
enum Place {
    Seat(Seated),
    /// With its number.
    Line(u64),
}

impl<T> Default for Org<T> {
    fn default() -> Self {
        Self { seated: Taken::default(), by_host: HashMap::new(), bytes: 0, waiting: VecDeque::new() }
    }
}

impl<T> Org<T> {
    fn is_empty(&self) -> bool {
        self.seated.all == 0 && self.waiting.is_empty()
    }

    fn join(
        &mut self,
        bounds: Bounds,
        knows: impl Fn(&Arc<str>) -> bool,
        nth: u64,
        guest: Guest,
        who: T,
    ) -> Result<Place, Full> {
        // One that is larger than all that is allowed comes alone.
        if !self.is_empty() && self.bytes.saturating_add(guest.bytes) > bounds.bytes {
            return Err(Full::Bytes);
        }
        let free = self.free_for(bounds.seats, &knows, &guest);
        if free.is_none() && self.waiting.len() >= bounds.line {
            return Err(Full::Items);
        }
        self.bytes = self.bytes.saturating_add(guest.bytes);
        if let Some(is_known) = free {
            return Ok(Place::Seat(self.sit(guest, is_known)));
        }
        self.waiting.push_back((nth, guest, who));
        Ok(Place::Line(nth))
    }

    /// Whether there is a seat for the guest, and if so, whether all of its hosts are known.
    fn free_for(&self, seats: Shares, knows: impl Fn(&Arc<str>) -> bool, guest: &Guest) -> Option<bool> {
        let own = |host| self.by_host.get(host).copied().unwrap_or_default();
        // Such as one whose hosts do not parse.
        let most = guest.hosts.iter().map(own).max().unwrap_or_default();
        if !seats.admits(self.seated, most, true) {
            return None;
        }
        let is_known = guest.hosts.iter().all(knows);
        (is_known || seats.admits(self.seated, most, false)).then_some(is_known)
    }

    fn sit(&mut self, guest: Guest, is_known: bool) -> Seated {
        self.seated.all += 1;
        self.seated.by_strangers += usize::from(!is_known);
        for host in &guest.hosts {
            *self.by_host.entry(Arc::clone(host)).or_default() += 1;
        }
        Seated { guest, is_known }
    }

    /// The first that there is a seat for, which counts as seated.
    fn next(&mut self, seats: Shares, knows: impl Fn(&Arc<str>) -> bool) -> Option<(T, Seated)> {
        if seats.left(self.seated) == 0 {
            return None;
        }
        let mut free = self.waiting.iter().enumerate();
        let (at, is_known) =
            free.find_map(|(at, (_, guest, _))| Some((at, self.free_for(seats, &knows, guest)?)))?;
        let (_, guest, who) = self.waiting.remove(at)?;
        Some((who, self.sit(guest, is_known)))
    }

    fn end(&mut self, seated: &Seated) {
        self.seated.all -= 1;
        self.seated.by_strangers -= usize::from(!seated.is_known);
        self.bytes -= seated.guest.bytes;
        for host in &seated.guest.hosts {
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
        [self.seated.all as u64, self.waiting.len() as u64, self.bytes]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, future::BoxFuture, poll};

    use super::*;

    const BOUNDS: Bounds = bounds(5, 2);

    const fn bounds(all: usize, per_host: usize) -> Bounds {
        Bounds { seats: Shares { all, per_host }, line: 4, bytes: 100 }
    }

    /// Each host is known.
    fn line(bounds: Bounds) -> Line {
        Line::new(bounds, |_, _| true)
    }

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
        let (line, org) = (line(BOUNDS), OrgId::new("o"));
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
    async fn many_hosts_that_hang_leave_a_seat_to_the_next_one() {
        let (line, org) = (line(bounds(64, 16)), OrgId::new("o"));
        let mut stuck = Vec::new();
        for nth in 0..12 * 16 {
            stuck.extend(line.take(&org, guest(&[&(nth % 12).to_string()], 0)).now_or_never());
        }
        assert!(stuck.len() >= 4 * 12, "{}", stuck.len());
        for _ in 0..100 {
            drop(now(&line, &org, guest(&["good"], 0)).unwrap());
        }
    }

    #[tokio::test]
    async fn half_of_the_seats_are_left_to_hosts_that_are_known_as_soon_as_they_are() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let (known, org) = (Arc::new(AtomicBool::new(false)), OrgId::new("o"));
        let is_known = Arc::clone(&known);
        let knows = move |_: &OrgId, host: &Arc<str>| &**host == "good" && is_known.load(Ordering::SeqCst);
        let line = Line::new(bounds(4, 2), knows);
        let _stuck: Vec<_> = ["a", "b"].map(|host| now(&line, &org, guest(&[host], 1)).unwrap()).into();
        let (mut good, mut both) =
            (take(&line, &org, guest(&["good"], 1)), take(&line, &org, guest(&["good", "c"], 1)));
        assert!(poll!(&mut good).is_pending() && poll!(&mut both).is_pending());
        known.store(true, Ordering::SeqCst);
        // Nothing ended meanwhile; whoever comes now sits down, and who waited does when that ends.
        drop(now(&line, &org, guest(&["good"], 1)).unwrap());
        let _good = good.now_or_never().unwrap().unwrap();
        assert!(poll!(&mut both).is_pending(), "one of its hosts is not known");
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_not_joined_and_an_org_s_is_its_own() {
        let (line, org) = (line(BOUNDS), OrgId::new("o"));
        let _seated: Vec<_> =
            ["a", "b", "c", "d", "e"].map(|host| now(&line, &org, guest(&[host], 1)).unwrap()).into();
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
        let (line, org) = (line(BOUNDS), OrgId::new("o"));
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
        let (line, org) = (line(bounds(1, 1)), OrgId::new("o"));
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
