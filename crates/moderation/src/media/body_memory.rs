//! Memory for bodies that arrive: each has what came of it so far, and gets more while all of them can still end.
//!
//! It holds no bytes itself. What a body announces is believed as a bound, and not set aside: who announces much and sends
//! little would have the room of everybody else.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate_egress::media::NoRoom;
use tidegate_schemas::ids::OrgId;
use tokio::{sync::watch, time::timeout};

/// Memory for all bodies together, of which one org's have a part at most.
#[derive(Clone)]
pub(super) struct Rooms(Arc<Shared>);

struct Shared {
    all: u64,
    per_org: u64,
    wait: Duration,
    bodies: Mutex<Bodies>,
    /// Told whenever there is more.
    freed: watch::Sender<()>,
}

#[derive(Default)]
struct Bodies {
    by_number: HashMap<u64, Loan>,
    next: u64,
}

#[derive(Clone)]
struct Loan {
    org: OrgId,
    held: u64,
    /// What it may come to at most.
    most: u64,
}

/// What a body holds; given back when dropped.
pub(super) struct Held {
    rooms: Rooms,
    number: u64,
    loan: Loan,
}

impl Rooms {
    pub(super) fn new(bytes: u64, bytes_per_org: u64, wait: Duration) -> Self {
        let per_org = bytes_per_org.min(bytes);
        Self(Arc::new(Shared {
            all: bytes,
            per_org,
            wait,
            bodies: Mutex::default(),
            freed: watch::Sender::default(),
        }))
    }

    /// For a body that comes to so much at most: the first of it. Waits until there is room.
    pub(super) async fn enter(&self, org: &OrgId, first: u64, most: u64) -> Result<Held, NoRoom> {
        let most = most.min(self.0.per_org);
        let number = {
            let mut bodies = self.0.bodies.lock();
            bodies.next += 1;
            bodies.next
        };
        let loan = Loan { org: org.clone(), held: first.min(most), most };
        self.wait_for(|| self.try_lend(number, &loan)).await?;
        Ok(Held { rooms: self.clone(), number, loan })
    }

    async fn wait_for(&self, mut is_there: impl FnMut() -> bool) -> Result<(), NoRoom> {
        let waiting = async {
            // Whatever is freed from here on is noticed.
            let mut freed = self.0.freed.subscribe();
            while !is_there() {
                freed.changed().await.map_err(|_| NoRoom)?;
            }
            Ok(())
        };
        timeout(self.0.wait, waiting).await.map_err(|_| NoRoom)?
    }

    /// Whether the body can have it, beside all others.
    fn try_lend(&self, number: u64, loan: &Loan) -> bool {
        let mut bodies = self.0.bodies.lock();
        let before = bodies.by_number.insert(number, loan.clone());
        let of_org = bodies.by_number.values().filter(|it| it.org == loan.org);
        let can_end =
            all_can_end(of_org, self.0.per_org) && all_can_end(bodies.by_number.values(), self.0.all);
        if !can_end {
            match before {
                Some(before) => bodies.by_number.insert(number, before),
                None => bodies.by_number.remove(&number),
            };
        }
        can_end
    }
}

/// Whether there is an order in which each gets all that it may still need: first whoever needs least, and then with what
/// that one gives back. Bodies that wait for each other's room would otherwise wait for ever.
fn all_can_end<'l>(loans: impl Iterator<Item = &'l Loan>, all: u64) -> bool {
    let mut needs: Vec<(u64, u64)> = loans.map(|it| (it.most - it.held, it.held)).collect();
    let Some(mut free) = all.checked_sub(needs.iter().map(|(_, held)| held).sum()) else { return false };
    needs.sort_unstable();
    needs.into_iter().all(|(missing, held)| {
        let ends = missing <= free;
        free += held;
        ends
    })
}

impl Held {
    pub(super) fn bytes(&self) -> u64 {
        self.loan.held
    }

    /// Room for so much in all, or twice as much as there was, so that a long body asks seldom. What comes beyond what was
    /// announced is not waited for, as nobody has counted on it; from then on it comes to `most` at most.
    pub(super) async fn grow(&mut self, to: u64, most: u64) -> Result<(), NoRoom> {
        let bound = self.rooms.0.per_org;
        let to = to.min(bound);
        let loan = if to > self.loan.most {
            let loan = Loan { held: to, most: most.clamp(to, bound), ..self.loan.clone() };
            self.rooms.try_lend(self.number, &loan).then_some(loan).ok_or(NoRoom)?
        } else {
            let held = to.max(self.loan.held.saturating_mul(2)).min(self.loan.most);
            let loan = Loan { held, ..self.loan.clone() };
            self.rooms.wait_for(|| self.rooms.try_lend(self.number, &loan)).await?;
            loan
        };
        self.loan = loan;
        Ok(())
    }

    /// All of it is there.
    pub(super) fn end(&mut self) {
        self.loan.most = self.loan.held;
        self.rooms.0.bodies.lock().by_number.insert(self.number, self.loan.clone());
        self.rooms.0.freed.send_replace(());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.rooms.0.bodies.lock().by_number.remove(&self.number);
        self.rooms.0.freed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, poll};
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn org(name: &str) -> OrgId {
        OrgId::new(name)
    }

    #[tokio::test]
    async fn who_announces_much_and_sends_little_leaves_room_for_all_others() {
        let rooms = Rooms::new(512, 128, HOUR);
        let mut slow = Vec::new();
        for _ in 0..24 {
            slow.push(rooms.enter(&org("o"), 1, 100).now_or_never().unwrap().unwrap());
        }
        for size in [1, 20, 100] {
            let mut good = rooms.enter(&org("o"), 1, size).now_or_never().unwrap().unwrap();
            good.grow(size, size).now_or_never().unwrap().unwrap();
        }
        // One of them goes on, but not so far that another one could not end.
        slow[0].grow(100, 100).now_or_never().unwrap().unwrap();
        let mut waits = slow[1].grow(10, 100).boxed();
        assert!(poll!(&mut waits).is_pending());
        drop(waits);
        drop(slow.swap_remove(0));
        assert!(slow.last_mut().unwrap().grow(10, 100).now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn an_org_has_its_part_and_leaves_the_rest_to_others() {
        let rooms = Rooms::new(4, 2, HOUR);
        let first = rooms.enter(&org("greedy"), 9, 9).await.unwrap();
        assert_eq!(first.bytes(), 2, "it announces more than there is for it, and gets all of that");
        let (greedy, last) = (org("greedy"), org("last"));
        let mut second = rooms.enter(&greedy, 1, 1).boxed();
        assert!(poll!(&mut second).is_pending());
        let third = rooms.enter(&org("other"), 2, 2).now_or_never().unwrap().unwrap();
        let mut fourth = rooms.enter(&last, 1, 1).boxed();
        assert!(poll!(&mut fourth).is_pending());
        drop(first);
        assert!(second.await.is_ok() && fourth.await.is_ok());
        drop(third);
        assert!(rooms.0.bodies.lock().by_number.is_empty());
        let late = Rooms::new(1, 1, Duration::ZERO);
        let _held = late.enter(&org("o"), 1, 1).await.unwrap();
        assert_eq!(late.enter(&org("o"), 1, 1).await.err(), Some(NoRoom));
    }

    #[tokio::test]
    async fn more_than_was_announced_is_given_at_once_or_not_at_all() {
        let rooms = Rooms::new(10, 10, HOUR);
        let mut held = rooms.enter(&org("o"), 2, 2).await.unwrap();
        let other = rooms.enter(&org("o"), 4, 4).await.unwrap();
        assert_eq!(held.grow(7, 20).await, Err(NoRoom));
        assert_eq!(held.bytes(), 2);
        held.grow(6, 6).await.unwrap();
        drop(other);
        held.grow(7, 20).await.unwrap();
        assert_eq!(held.bytes(), 7);
        // What has ended needs no more.
        held.end();
        assert!(rooms.enter(&org("o"), 3, 3).now_or_never().unwrap().is_ok());
    }

    proptest! {
        #[test]
        fn some_body_can_always_go_on(
            sizes in proptest::collection::vec((1_u64..60, 0_u8..3), 1..30),
            picks in proptest::collection::vec(0_usize..30, 0..400),
        ) {
            let clock = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let _clock = clock.enter();
            let rooms = Rooms::new(100, 60, HOUR);
            let mut open: Vec<(Held, u64)> = Vec::new();
            let mut coming: Vec<_> = sizes.into_iter().collect();
            let mut picks = picks.into_iter();
            while !(open.is_empty() && coming.is_empty()) {
                if let Some((size, name)) = coming.pop() {
                    let entered = rooms.enter(&org(&name.to_string()), 1, size).now_or_never();
                    open.extend(entered.map(|held| (held.unwrap(), size)));
                }
                let go_on = |(held, size): &mut (Held, u64)| {
                    let next = held.bytes() + 1;
                    next > *size || held.grow(next, *size).now_or_never().is_some()
                };
                let picked = picks.next().unwrap_or_default() % open.len().max(1);
                if !open.get_mut(picked).is_some_and(go_on) {
                    prop_assert!(open.is_empty() || open.iter_mut().any(go_on), "all wait for each other");
                }
                open.retain(|(held, size)| held.bytes() < *size);
            }
        }
    }
}
