//! Counts by network: how many of something all clients have, and those of one address.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use metrics::Gauge;
use parking_lot::Mutex;

/// Owner of an address: itself, or of IPv6 the 2^64 addresses of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

impl Network {
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
        })
    }

    /// True for addresses that only the operator's own machines have, such as a proxy in front of the service.
    pub fn is_internal(self) -> bool {
        match self.0 {
            IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
            // The part of a network of the loopback address is zero.
            IpAddr::V6(address) => {
                address.is_unspecified() || address.is_unique_local() || address.is_unicast_link_local()
            }
        }
    }
}

/// The counts. A clone is the same.
#[derive(Clone, Debug)]
pub(crate) struct Networks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    most_of_one: usize,
    counts: Mutex<Counts>,
    gauge: Gauge,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_network: HashMap<Network, usize>,
}

/// One of what is counted, until it is dropped.
#[derive(Debug)]
pub(crate) struct NetworkPermit {
    all: Networks,
    network: Network,
}

impl Networks {
    pub(crate) fn new(most: usize, most_of_one: usize, gauge: Gauge) -> Self {
        Self(Arc::new(Inner { most, most_of_one, counts: Mutex::default(), gauge }))
    }

    pub(crate) fn take(&self, network: Network) -> Option<NetworkPermit> {
        let Inner { most, most_of_one, counts, gauge } = &*self.0;
        let mut counts = counts.lock();
        let own = counts.by_network.get(&network).copied().unwrap_or(0);
        if counts.all >= *most || own >= *most_of_one {
            return None;
        }
        counts.all += 1;
        counts.by_network.insert(network, own + 1);
        gauge.increment(1);
        Some(NetworkPermit { all: self.clone(), network })
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.0.counts.lock().all
    }
}

impl Drop for NetworkPermit {
    fn drop(&mut self) {
        let Inner { counts, gauge, .. } = &*self.all.0;
        let mut counts = counts.lock();
        counts.all -= 1;
        if let Some(count) = counts.by_network.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                counts.by_network.remove(&self.network);
            }
        }
        gauge.decrement(1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn of(text: &str) -> Network {
        Network::of(text.parse().unwrap())
    }

    #[test]
    fn a_network_is_one_party() {
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn one_network_and_all_have_a_limit_and_nothing_is_left_of_what_ended() {
        let all = Networks::new(3, 2, Gauge::noop());
        let [first, second] = [(), ()].map(|()| all.take(of("192.0.2.1")).unwrap());
        assert!(all.take(of("192.0.2.1")).is_none());
        let other = all.take(of("192.0.2.2")).unwrap();
        assert!(all.take(of("192.0.2.3")).is_none());
        drop(first);
        assert!(all.take(of("192.0.2.3")).is_some());
        drop((second, other));
        assert_eq!((all.used(), all.0.counts.lock().by_network.len()), (0, 0));
    }
}
