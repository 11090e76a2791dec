//! Lets the items of orgs that may wait long for their media have a seat, or stand in line for one.
//!
//! It does not know what is waited for, nor for how long; `org` says whose turn it is.

mod org;
mod shares;
pub(crate) mod wait_permits;

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;
use tokio::sync::oneshot;

use crate::metrics;

use self::org::{Admission, Org, Seated, Sums};
pub(crate) use self::{
    org::{Bounds, QueueFull, QueuedItem},
    shares::Shares,
};

/// Cheap to clone; clones share all bounds.
#[derive(Clone)]
pub(crate) struct SlowQueue(Arc<Shared>);

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

type Standings = Org<oneshot::Sender<RunPermit>>;

/// Given back when dropped.
pub(crate) struct RunPermit {
    line: SlowQueue,
    org: OrgId,
    guest: Seated,
}

impl SlowQueue {
    /// `known`: whether a host gave an org what it was asked for, and has not rested since. Nothing of the line may be
    /// called by it.
    pub(crate) fn new(
        bounds: Bounds,
        known: impl Fn(&OrgId, &Arc<str>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared { bounds, known: Box::new(known), orgs: Mutex::default() }))
    }

    /// A seat as soon as there is one for the guest. Whoever stops waiting leaves the line.
    pub(crate) async fn take(&self, org: &OrgId, guest: QueuedItem) -> Result<RunPermit, QueueFull> {
        let (sender, seat) = oneshot::channel();
        let knows = |host: &Arc<str>| (self.0.known)(org, host);
        match self.change(org, |it, nth| it.join(self.0.bounds, knows, nth, guest, sender))? {
            Admission::Running(guest) => Ok(self.seat(org, guest)),
            Admission::Queued(nth) => {
                let _standing = QueueGuard { line: self, org, nth };
                // The sender leaves the line only with a seat, or with the guest.
                seat.await.map_err(|_| QueueFull::Items)
            }
        }
    }

    fn seat(&self, org: &OrgId, guest: Seated) -> RunPermit {
        RunPermit { line: self.clone(), org: org.clone(), guest }
    }

    fn let_in(&self, org: &OrgId) {
        let knows = |host: &Arc<str>| (self.0.known)(org, host);
        while let Some((sender, guest)) = self.change(org, |it, _| it.next(self.0.bounds, knows)) {
            // Who left in this moment drops it, and with that gives it back.
            drop(sender.send(self.seat(org, guest)));
        }
    }

    /// Changes the org's queue under a number that is higher than all before.
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
        let [running, queued, bytes] = sums;
        metrics::set_slow_queue(running, queued, bytes);
        result
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let (line, org) = (&self.line, &self.org);
        line.change(org, |it, _| it.end(&self.guest));
        line.let_in(org);
    }
}

/// One who may be in the line still.
struct QueueGuard<'a> {
    line: &'a SlowQueue,
    org: &'a OrgId,
    nth: u64,
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.line.change(self.org, |it, _| it.leave(self.nth));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, future::BoxFuture, poll};

    use super::*;

    const BOUNDS: Bounds = bounds(5, 2);

    const fn bounds(all: usize, per_host: usize) -> Bounds {
        Bounds { seats: Shares { all, per_host }, seat_bytes: 100, line: 4, line_bytes: 50 }
    }

    /// Each host is known.
    fn line(bounds: Bounds) -> SlowQueue {
        SlowQueue::new(bounds, |_, _| true)
    }

    fn guest(hosts: &[&str], bytes: usize) -> QueuedItem {
        QueuedItem { hosts: hosts.iter().map(|host| Arc::from(*host)).collect(), bytes }
    }

    fn take<'a>(
        line: &'a SlowQueue,
        org: &'a OrgId,
        guest: QueuedItem,
    ) -> BoxFuture<'a, Result<RunPermit, QueueFull>> {
        line.take(org, guest).boxed()
    }

    fn now(line: &SlowQueue, org: &OrgId, guest: QueuedItem) -> Result<RunPermit, QueueFull> {
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
        assert_eq!(line.0.orgs.lock().sums, [2, 0, 2]);
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
        let line = SlowQueue::new(bounds(4, 2), knows);
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
        assert_eq!(now(&line, &org, guest(&["a"], 1)).err(), Some(QueueFull::Items));
        now(&line, &OrgId::new("other"), guest(&["a"], 1)).unwrap();
        standing.pop();
        assert!(poll!(&mut take(&line, &org, guest(&["a"], 1))).is_pending(), "one left the line");
    }

    /// Hosts are known whose name begins so.
    fn line_that_knows(bounds: Bounds, name: &'static str) -> SlowQueue {
        SlowQueue::new(bounds, move |_, host| host.starts_with(name))
    }

    #[tokio::test]
    async fn who_finds_no_bytes_stands_in_line_and_is_let_in_when_there_are_some() {
        let (line, org) = (line(bounds(9, 9)), OrgId::new("o"));
        let first = now(&line, &org, guest(&["a"], 50)).unwrap();
        let mut second = take(&line, &org, guest(&["a"], 10));
        assert!(poll!(&mut second).is_pending(), "it has half of them");
        let mut large = take(&line, &org, guest(&["b"], 60));
        assert_eq!(now(&line, &org, guest(&["a"], 50)).err(), Some(QueueFull::Bytes));
        assert_eq!(now(&line, &org, guest(&["b"], 60)).err(), Some(QueueFull::Bytes));
        let small = now(&line, &org, guest(&["b"], 20)).unwrap();
        drop(second);
        assert!(poll!(&mut large).is_pending(), "the line is empty");
        assert_eq!(now(&line, &org, guest(&["a"], 30)).err(), Some(QueueFull::Bytes));
        assert_eq!(line.0.orgs.lock().sums, [2, 1, 130]);
        drop(first);
        drop(large.now_or_never().unwrap().unwrap());
        drop(small);
        assert!(line.0.orgs.lock().by_id.is_empty());
    }

    #[tokio::test]
    async fn strangers_leave_half_of_the_bytes_to_hosts_that_are_known() {
        let (line, org) = (line_that_knows(bounds(64, 16), "good"), OrgId::new("o"));
        let mut stuck: Vec<_> = ["a", "b"].map(|host| now(&line, &org, guest(&[host], 25)).unwrap()).into();
        let mut waiting = Vec::new();
        for nth in 0..4 {
            waiting.push(take(&line, &org, guest(&[&nth.to_string()], 25)));
            let _pending = poll!(waiting.last_mut().unwrap());
        }
        assert_eq!(
            now(&line, &org, guest(&["c"], 25)).err(),
            Some(QueueFull::Bytes),
            "neither seat nor place"
        );
        let known = now(&line, &org, guest(&["good.1"], 25)).unwrap();
        now(&line, &org, guest(&["good.2"], 25)).unwrap();
        drop(known);
        assert!(poll!(&mut waiting[0]).is_pending());
        stuck.pop();
        assert!(poll!(&mut waiting[0]).is_ready());
    }

    #[tokio::test]
    async fn what_is_larger_than_all_has_its_turn_and_harms_no_host_that_is_known() {
        let (line, org) = (line_that_knows(bounds(64, 16), "good"), OrgId::new("o"));
        let monster = now(&line, &org, guest(&["a"], 5_000)).unwrap();
        let mut other = take(&line, &org, guest(&["b"], 5_000));
        assert!(poll!(&mut other).is_pending());
        assert_eq!(now(&line, &org, guest(&["c"], 1)).err(), Some(QueueFull::Bytes));
        drop(now(&line, &org, guest(&["good"], 70)).unwrap());
        drop(monster);
        assert!(poll!(&mut other).is_ready());
    }

    #[tokio::test]
    async fn heavy_items_of_a_known_host_that_hangs_leave_bytes_to_the_next_one() {
        let (line, org) = (line(bounds(64, 16)), OrgId::new("o"));
        let mut stuck = Vec::new();
        for nth in 0..12 {
            stuck.extend(line.take(&org, guest(&[&(nth % 3).to_string()], 10)).now_or_never());
        }
        assert!(stuck.iter().all(Result::is_ok) && stuck.len() >= 6, "{}", stuck.len());
        for _ in 0..100 {
            drop(now(&line, &org, guest(&["good"], 10)).unwrap());
        }
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
