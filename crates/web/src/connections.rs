//! Limits the open connections of a server, in total and per network.
//!
//! A network may hold half of all connections; beyond that, a new connection needs an idle one of the same network to close.
//! When all slots are used, the oldest idle connection without a valid key is closed for a new one.

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
    networks::{Network, NetworkLimiter, NetworkPermit},
};

/// Time in which a new connection is not closed for another: its key may still be on the way.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// Slots of a server's connections.
#[derive(Debug)]
pub(crate) struct Connections {
    grace: Duration,
    slots: Arc<Semaphore>,
    networks: NetworkLimiter,
    next_number: AtomicU64,
    unauthenticated: Mutex<BTreeMap<u64, UnauthenticatedConnection>>,
}

/// Connection without a valid key at the last check.
#[derive(Debug)]
struct UnauthenticatedConnection {
    accepted_at: Instant,
    network: Network,
    connection: Connection,
    shares: Arc<Mutex<Option<SlotShares>>>,
    close: CancellationToken,
}

/// Slot and network share of a connection. Taken from a connection as soon as it is told to close, before its task ends.
#[derive(Debug)]
struct SlotShares {
    _slot: OwnedSemaphorePermit,
    _network_permit: NetworkPermit,
}

/// Slot of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    connections: Arc<Connections>,
    number: u64,
    pub(crate) network: Network,
    pub(crate) connection: Connection,
    /// Cancelled when the connection must make room.
    pub(crate) close: CancellationToken,
    _shares: Arc<Mutex<Option<SlotShares>>>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.unauthenticated.lock().remove(&self.number);
    }
}

impl Connections {
    pub(crate) fn new(max_connections: usize, grace: Duration, gauge: Gauge) -> Arc<Self> {
        Arc::new(Self {
            grace,
            slots: Arc::new(Semaphore::new(max_connections)),
            // `slots` bounds the total, so this limits only the share of each network.
            networks: NetworkLimiter::new(usize::MAX, max_connections.div_ceil(2), gauge),
            next_number: AtomicU64::new(0),
            unauthenticated: Mutex::default(),
        })
    }

    /// Waits for a slot. Returns `None` if the network holds its share.
    pub(crate) async fn acquire(self: &Arc<Self>, network: Network) -> Option<ConnectionSlot> {
        let network_permit = loop {
            match self.networks.acquire(network) {
                Some(permit) => break permit,
                // Its own idle connection makes room, so one network cannot displace the others.
                None if self.close_oldest(|connection| connection.network == network) => {}
                None => return None,
            }
        };
        let slots = || Arc::clone(&self.slots);
        let slot = loop {
            match slots().try_acquire_owned() {
                Ok(slot) => break slot,
                Err(_) if self.close_oldest(|_| true) => {}
                // All connections are used. The wait ends when one closes, or when an idle one has passed its grace.
                Err(_) => {
                    if let Ok(slot) = timeout(self.grace, slots().acquire_owned()).await {
                        // Never an error: the semaphore is not closed.
                        break slot.ok()?;
                    }
                }
            }
        };
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (connection, close) = (Connection::default(), CancellationToken::new());
        let shares = Arc::new(Mutex::new(Some(SlotShares { _slot: slot, _network_permit: network_permit })));
        let entry = UnauthenticatedConnection {
            accepted_at: Instant::now(),
            network,
            connection: connection.clone(),
            shares: Arc::clone(&shares),
            close: close.clone(),
        };
        self.unauthenticated.lock().insert(number, entry);
        Some(ConnectionSlot {
            connections: Arc::clone(self),
            number,
            network,
            connection,
            close,
            _shares: shares,
        })
    }

    /// Closes the oldest idle connection without a valid key among those that match. Returns true if there was one.
    fn close_oldest(&self, matches: impl Fn(&UnauthenticatedConnection) -> bool) -> bool {
        let mut unauthenticated = self.unauthenticated.lock();
        // Authenticated connections are removed only here, so that a valid key costs no lock.
        unauthenticated.retain(|_, entry| !entry.connection.is_authenticated());
        // Numbers ascend in the order of acceptance, so the first new connection ends the search.
        let past_grace =
            unauthenticated.iter().take_while(|(_, entry)| entry.accepted_at.elapsed() >= self.grace);
        let mut idle = past_grace.filter(|(_, entry)| matches(entry) && entry.connection.is_idle());
        let oldest_number = idle.next().map(|(number, _)| *number);
        let Some(entry) = oldest_number.and_then(|number| unauthenticated.remove(&number)) else {
            return false;
        };
        // Freed now: the task of the closed connection may need time to end.
        drop(entry.shares.lock().take());
        entry.close.cancel();
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::FutureExt as _;

    use super::*;

    fn address(last_octet: u8) -> Network {
        Network::from_address([192, 0, 2, last_octet].into())
    }

    fn acquire_now(connections: &Arc<Connections>, last_octet: u8) -> Option<Option<ConnectionSlot>> {
        connections.acquire(address(last_octet)).now_or_never()
    }

    #[test]
    fn network_holds_half_and_makes_room_by_its_idle_ones() {
        let all = Connections::new(4, Duration::ZERO, Gauge::noop());
        let [first, second] = [1, 1].map(|last| acquire_now(&all, last).unwrap().unwrap());
        let third = acquire_now(&all, 1).unwrap().unwrap();
        assert!(first.close.is_cancelled() && !second.close.is_cancelled());
        second.connection.mark_authenticated();
        third.connection.begin_request();
        assert!(acquire_now(&all, 1).unwrap().is_none(), "its share is in use");
        assert!(acquire_now(&all, 2).unwrap().is_some());
    }

    #[test]
    fn only_the_oldest_idle_stranger_makes_room() {
        let all = Connections::new(3, Duration::ZERO, Gauge::noop());
        let slots = [1, 2, 3].map(|last| acquire_now(&all, last).unwrap().unwrap());
        slots[0].connection.mark_authenticated();
        slots[1].connection.begin_request();
        let fourth = acquire_now(&all, 4).unwrap().unwrap();
        assert_eq!([0, 1, 2].map(|at| slots[at].close.is_cancelled()), [false, false, true]);
        fourth.connection.mark_authenticated();
        assert!(!all.close_oldest(|_| true), "the others are known or at work");
        drop(fourth);
        assert!(acquire_now(&all, 5).unwrap().is_some());
    }

    #[tokio::test]
    async fn new_connection_waits_while_others_are_in_use_or_new() {
        let all = Connections::new(2, Duration::from_secs(3_600), Gauge::noop());
        let first = acquire_now(&all, 1).unwrap().unwrap();
        let _second = acquire_now(&all, 2).unwrap().unwrap();
        assert!(acquire_now(&all, 3).is_none(), "it waits");
        drop(first);
        assert!(acquire_now(&all, 3).unwrap().is_some());
    }

    #[test]
    fn ended_connections_leave_no_state() {
        let all = Connections::new(4, Duration::ZERO, Gauge::noop());
        let slots: Vec<_> = (1..=4).map(|last| acquire_now(&all, last).unwrap().unwrap()).collect();
        drop(slots);
        assert!(all.unauthenticated.lock().is_empty());
        assert_eq!((all.networks.count(), all.slots.available_permits()), (0, 4));
    }
}
