//! The open connections of a server: how many there are, of which addresses, and which one makes room for another.
//!
//! An address may hold half of all, and a new one only if one of its own idle ones makes room. When all are taken, a
//! connection that never sent a valid key and has nothing under way is closed for a new one, the oldest first.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use metrics::Gauge;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    connection::Connection,
    networks::{Network, NetworkPermit, Networks},
};

/// Time in which a new connection is closed for no other: it may not have had the chance to send its key.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Connections {
    grace: Duration,
    slots: Arc<Semaphore>,
    networks: Networks,
    next: AtomicU64,
    unknown: Mutex<BTreeMap<u64, UnknownConnection>>,
}

/// A connection that had not sent a valid key when it was last looked at.
#[derive(Debug)]
struct UnknownConnection {
    since: Instant,
    network: Network,
    connection: Connection,
    shares: Arc<Mutex<Option<SlotShares>>>,
    close: CancellationToken,
}

/// Slot and network share of a connection. They are taken from one that is to be closed at once, before its task has ended.
#[derive(Debug)]
struct SlotShares {
    _slot: OwnedSemaphorePermit,
    _of_network: NetworkPermit,
}

/// A connection's slot among all.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    all: Arc<Connections>,
    number: u64,
    pub(crate) network: Network,
    pub(crate) connection: Connection,
    /// Cancelled when it is to make room.
    pub(crate) close: CancellationToken,
    _shares: Arc<Mutex<Option<SlotShares>>>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.all.unknown.lock().remove(&self.number);
    }
}

impl Connections {
    pub(crate) fn new(most: usize, grace: Duration, gauge: Gauge) -> Arc<Self> {
        Arc::new(Self {
            grace,
            slots: Arc::new(Semaphore::new(most)),
            networks: Networks::new(usize::MAX, most.div_ceil(2), gauge),
            next: AtomicU64::new(0),
            unknown: Mutex::default(),
        })
    }

    /// Returns a slot for a connection, once there is one; none if its network has its share.
    pub(crate) async fn acquire(self: &Arc<Self>, network: Network) -> Option<ConnectionSlot> {
        let of_network = loop {
            match self.networks.take(network) {
                Some(share) => break share,
                None if self.close_oldest(|one| one.network == network) => {}
                None => return None,
            }
        };
        let slots = || Arc::clone(&self.slots);
        let slot = loop {
            match slots().try_acquire_owned() {
                Ok(slot) => break slot,
                Err(_) if self.close_oldest(|_| true) => {}
                // All are used: it waits for one to end, or to have been silent for long enough.
                Err(_) => {
                    if let Ok(slot) = timeout(self.grace, slots().acquire_owned()).await {
                        break slot.ok()?;
                    }
                }
            }
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (connection, close) = (Connection::default(), CancellationToken::new());
        let shares = Arc::new(Mutex::new(Some(SlotShares { _slot: slot, _of_network: of_network })));
        let one = UnknownConnection {
            since: Instant::now(),
            network,
            connection: connection.clone(),
            shares: Arc::clone(&shares),
            close: close.clone(),
        };
        self.unknown.lock().insert(number, one);
        Some(ConnectionSlot { all: Arc::clone(self), number, network, connection, close, _shares: shares })
    }

    /// Closes the oldest idle connection that never sent a valid key, of those that match. Returns true if there was one.
    fn close_oldest(&self, matches: impl Fn(&UnknownConnection) -> bool) -> bool {
        let mut unknown = self.unknown.lock();
        // Looked at once more only here: a valid key costs no lock.
        unknown.retain(|_, one| !one.connection.is_known());
        let grown = unknown.iter().take_while(|(_, one)| one.since.elapsed() >= self.grace);
        let mut idle = grown.filter(|(_, one)| matches(one) && one.connection.is_idle());
        let oldest = idle.next().map(|(number, _)| *number);
        let Some(one) = oldest.and_then(|number| unknown.remove(&number)) else { return false };
        drop(one.shares.lock().take());
        one.close.cancel();
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::FutureExt as _;

    use super::*;

    fn address(last: u8) -> Network {
        Network::of([192, 0, 2, last].into())
    }

    fn now(all: &Arc<Connections>, last: u8) -> Option<Option<ConnectionSlot>> {
        all.acquire(address(last)).now_or_never()
    }

    #[test]
    fn an_address_holds_half_and_its_own_idle_strangers_make_room_for_it() {
        let all = Connections::new(4, Duration::ZERO, Gauge::noop());
        let [first, second] = [1, 1].map(|last| now(&all, last).unwrap().unwrap());
        let third = now(&all, 1).unwrap().unwrap();
        assert!(first.close.is_cancelled() && !second.close.is_cancelled());
        second.connection.has_valid_key();
        third.connection.begin_request();
        assert!(now(&all, 1).unwrap().is_none(), "its share is in use");
        assert!(now(&all, 2).unwrap().is_some());
    }

    #[test]
    fn the_oldest_idle_stranger_makes_room_and_nobody_else() {
        let all = Connections::new(3, Duration::ZERO, Gauge::noop());
        let slots = [1, 2, 3].map(|last| now(&all, last).unwrap().unwrap());
        slots[0].connection.has_valid_key();
        slots[1].connection.begin_request();
        let fourth = now(&all, 4).unwrap().unwrap();
        assert_eq!([0, 1, 2].map(|at| slots[at].close.is_cancelled()), [false, false, true]);
        fourth.connection.has_valid_key();
        assert!(!all.close_oldest(|_| true), "the others are known or at work");
        drop(fourth);
        assert!(now(&all, 5).unwrap().is_some());
    }

    #[tokio::test]
    async fn a_new_connection_waits_while_all_are_used_or_newer_than_the_grace() {
        let all = Connections::new(2, Duration::from_secs(3_600), Gauge::noop());
        let first = now(&all, 1).unwrap().unwrap();
        let _second = now(&all, 2).unwrap().unwrap();
        assert!(now(&all, 3).is_none(), "it waits");
        drop(first);
        assert!(now(&all, 3).unwrap().is_some());
    }

    #[test]
    fn what_has_ended_leaves_nothing() {
        let all = Connections::new(4, Duration::ZERO, Gauge::noop());
        let slots: Vec<_> = (1..=4).map(|last| now(&all, last).unwrap().unwrap()).collect();
        drop(slots);
        assert!(all.unknown.lock().is_empty());
        assert_eq!((all.networks.used(), all.slots.available_permits()), (0, 4));
    }
}
