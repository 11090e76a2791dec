//! Limits a number of connections or streams, in total and per client network.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use metrics::Gauge;
use parking_lot::Mutex;

/// Network of an address: the address itself, or the /64 prefix of IPv6, which belongs to one subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

impl Network {
    pub fn from_address(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
        })
    }

    /// True for addresses of the operator's own machines, such as a proxy in front of the service.
    pub fn is_internal(self) -> bool {
        match self.0 {
            IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
            // Loopback appears as unspecified: only its prefix, which is zero, is kept.
            IpAddr::V6(address) => {
                address.is_unspecified() || address.is_unique_local() || address.is_unicast_link_local()
            }
        }
    }
}

/// Counts with their limits. Clones refer to the same counts.
#[derive(Clone, Debug)]
pub(crate) struct NetworkLimiter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    limit_per_network: usize,
    counts: Mutex<Counts>,
    gauge: Gauge,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    by_network: HashMap<Network, usize>,
}

/// Counted connection or stream, until it is dropped.
#[derive(Debug)]
pub(crate) struct NetworkPermit {
    networks: NetworkLimiter,
    network: Network,
}

impl NetworkLimiter {
    pub(crate) fn new(limit: usize, limit_per_network: usize, gauge: Gauge) -> Self {
        Self(Arc::new(Inner { limit, limit_per_network, counts: Mutex::default(), gauge }))
    }

    pub(crate) fn acquire(&self, network: Network) -> Option<NetworkPermit> {
        let Inner { limit, limit_per_network, counts, gauge } = &*self.0;
        let mut counts = counts.lock();
        let network_count = counts.by_network.get(&network).copied().unwrap_or(0);
        if counts.total >= *limit || network_count >= *limit_per_network {
            return None;
        }
        counts.total += 1;
        counts.by_network.insert(network, network_count + 1);
        gauge.increment(1);
        Some(NetworkPermit { networks: self.clone(), network })
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.counts.lock().total
    }
}

impl Drop for NetworkPermit {
    fn drop(&mut self) {
        let Inner { counts, gauge, .. } = &*self.networks.0;
        let mut counts = counts.lock();
        counts.total -= 1;
        if let Some(count) = counts.by_network.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                // Removed, so that the map does not grow with the number of addresses seen.
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

    fn parse_network(text: &str) -> Network {
        Network::from_address(text.parse().unwrap())
    }

    #[test]
    fn addresses_of_a_network_are_one_party() {
        assert_eq!(parse_network("2001:db8:1:2::1"), parse_network("2001:db8:1:2:ffff::9"));
        assert_ne!(parse_network("2001:db8:1:2::1"), parse_network("2001:db8:1:3::1"));
        assert_eq!(parse_network("::ffff:192.0.2.1"), parse_network("192.0.2.1"));
        assert_ne!(parse_network("192.0.2.1"), parse_network("192.0.2.2"));
    }

    #[test]
    fn total_and_network_limits_hold_and_drops_free_them() {
        let all = NetworkLimiter::new(3, 2, Gauge::noop());
        let [first, second] = [(), ()].map(|()| all.acquire(parse_network("192.0.2.1")).unwrap());
        assert!(all.acquire(parse_network("192.0.2.1")).is_none());
        let other = all.acquire(parse_network("192.0.2.2")).unwrap();
        assert!(all.acquire(parse_network("192.0.2.3")).is_none());
        drop(first);
        assert!(all.acquire(parse_network("192.0.2.3")).is_some());
        drop((second, other));
        assert_eq!((all.count(), all.0.counts.lock().by_network.len()), (0, 0));
    }
}
