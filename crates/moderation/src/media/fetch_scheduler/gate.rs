//! Lets fetches wait for their turn.
//!
//! It does not choose who is next: `turns` does.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    super::host_breaker::OrgHost,
    turns::{Bounds, Turn, Turns},
};
use crate::metrics;

#[derive(Clone)]
pub(crate) struct Gate(Arc<Mutex<Turns<oneshot::Sender<Inside>>>>);

/// A fetch that may run; dropping it lets the next one in.
pub(crate) struct Inside {
    gate: Gate,
    turn: Turn,
}

impl Gate {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self(Arc::new(Mutex::new(Turns::new(bounds))))
    }

    /// Waits for a turn. Whoever stops waiting is passed over.
    pub(crate) async fn enter(&self, site: &OrgHost) -> Inside {
        loop {
            let (sender, turn) = oneshot::channel();
            {
                let mut turns = self.0.lock();
                turns.wait(site.clone(), sender);
                turns.sweep(&site.org, oneshot::Sender::is_closed);
            }
            self.let_in();
            if let Ok(inside) = turn.await {
                return inside;
            }
        }
    }

    /// Whether the host gave a medium and has not rested since.
    pub(crate) fn is_known(&self, site: &OrgHost) -> bool {
        self.0.lock().is_known(site)
    }

    pub(crate) fn learn(&self, site: &OrgHost, gave: bool) {
        self.0.lock().learn(site, gave);
        self.let_in();
    }

    fn let_in(&self) {
        loop {
            let (inside, sender) = {
                let mut turns = self.0.lock();
                let Some((turn, sender)) = turns.next() else { break };
                if sender.is_closed() {
                    turns.end(&turn);
                    continue;
                }
                (Inside { gate: self.clone(), turn }, sender)
            };
            // Who left in this moment drops it, and with that lets the next one in.
            drop(sender.send(inside));
        }
        metrics::media_requests_running(self.0.lock().under_way());
    }
}

impl Inside {
    pub(crate) fn host(&self) -> &Arc<str> {
        &self.turn.site.host
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.gate.0.lock().end(&self.turn);
        self.gate.let_in();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, poll};
    use tidegate_schemas::ids::OrgId;

    use super::*;

    #[tokio::test]
    async fn who_stops_waiting_is_forgotten_although_no_turn_ends() {
        let gate = Gate::new(Bounds { all: 1, at_host: 1, per_host: 1, per_org: 1, known: 1 });
        let site = OrgHost { org: OrgId::new("a"), host: "host".into() };
        let first = gate.enter(&site).await;
        let mut second = gate.enter(&site).boxed();
        assert!(poll!(&mut second).is_pending());
        for _ in 0..10_000 {
            assert!(gate.enter(&site).now_or_never().is_none());
        }
        assert!(gate.0.lock().waiting() < 5_000, "{}", gate.0.lock().waiting());
        drop(first);
        drop(second.now_or_never().unwrap());
        assert_eq!(gate.0.lock().under_way(), 0);
    }

    #[tokio::test]
    async fn who_stops_waiting_takes_no_turn() {
        let gate = Gate::new(Bounds { all: 1, at_host: 1, per_host: 1, per_org: 1, known: 1 });
        let site = OrgHost { org: OrgId::new("a"), host: "host".into() };
        let first = gate.enter(&site).await;
        let mut second = gate.enter(&site).boxed();
        let mut third = gate.enter(&site).boxed();
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        drop(second);
        drop(first);
        let third = third.now_or_never().unwrap();
        assert_eq!(gate.0.lock().under_way(), 1);
        drop(third);
        assert_eq!(gate.0.lock().under_way(), 0);
    }
}
