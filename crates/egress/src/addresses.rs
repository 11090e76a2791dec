//! Address guard: allows connections to public addresses and to ranges that the operator has opened.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// Address range such as `10.0.0.0/8`, `fd00::/8`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr(IpNet);

impl Cidr {
    /// True if the range contains the address. Both must be canonical; an IPv4 range never contains an IPv6
    /// address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

/// Text that is no [`Cidr`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    #[error("`{0}` is not an address range such as 10.0.0.0/8 or fd00::/8")]
    Syntax(String),
    #[error("`{0}` has bits set behind its prefix; the range would start elsewhere")]
    HostBits(String),
    #[error("`{0}` is an IPv4 range written as IPv6; write it as IPv4")]
    Mapped(String),
}

impl CidrError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Syntax(_) => "cidr_syntax",
            Self::HostBits(_) => "cidr_host_bits",
            Self::Mapped(_) => "cidr_mapped",
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let range = match text.parse::<IpAddr>() {
            Ok(single) => IpNet::from(single),
            Err(_) => text.parse().map_err(|_| CidrError::Syntax(text.to_owned()))?,
        };
        // A mapped range would never match, because the guard converts addresses to IPv4 first.
        if range.addr().to_canonical() != range.addr() {
            return Err(CidrError::Mapped(text.to_owned()));
        }
        if range.addr() != range.network() {
            return Err(CidrError::HostBits(text.to_owned()));
        }
        Ok(Self(range))
    }
}

impl TryFrom<String> for Cidr {
    type Error = CidrError;

    fn try_from(text: String) -> Result<Self, CidrError> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Address that is neither public nor allowed by the operator.
///
/// The message names no address: an org must not learn the address of an internal name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the address is not a public one; the operator can open its range with the setting egress.allow_cidrs"
)]
pub struct BlockedAddress;

impl BlockedAddress {
    pub fn tag(&self) -> &'static str {
        "blocked_address"
    }
}

/// Table of denied ranges, with the exceptions of the operator.
#[derive(Debug, Clone, Default)]
pub struct AddressGuard {
    /// Allowed ranges, even if the table denies them.
    pub allow: Vec<Cidr>,
}

impl AddressGuard {
    /// Refuses an address that is neither public nor allowed. An IPv4 address in IPv6 notation is checked as
    /// IPv4.
    pub fn check(&self, address: IpAddr) -> Result<(), BlockedAddress> {
        let address = address.to_canonical();
        if is_public(address) || self.allow.iter().any(|range| range.contains(address)) {
            Ok(())
        } else {
            Err(BlockedAddress)
        }
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !DENIED_V4.iter().any(|range| range.contains(&address)),
        IpAddr::V6(address) => {
            PUBLIC_V6.contains(&address) && !DENIED_V6.iter().any(|range| range.contains(&address))
        }
    }
}

const fn v4(a: u8, b: u8, c: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, 0), prefix)
}

const fn v6(first: u16, second: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0), prefix)
}

const DENIED_V4: [Ipv4Net; 15] = [
    v4(0, 0, 0, 8),       // this network
    v4(10, 0, 0, 8),      // private
    v4(100, 64, 0, 10),   // carrier-grade NAT
    v4(127, 0, 0, 8),     // loopback
    v4(169, 254, 0, 16),  // link-local, cloud metadata
    v4(172, 16, 0, 12),   // private
    v4(192, 0, 0, 24),    // IETF protocol assignments
    v4(192, 0, 2, 24),    // documentation
    v4(192, 88, 99, 24),  // 6to4 relays
    v4(192, 168, 0, 16),  // private
    v4(198, 18, 0, 15),   // benchmarking
    v4(198, 51, 100, 24), // documentation
    v4(203, 0, 113, 24),  // documentation
    v4(224, 0, 0, 4),     // multicast
    v4(240, 0, 0, 4),     // reserved, broadcast
];

/// Range of all global addresses; loopback, mapped, NAT64, unique-local, link-local and multicast are outside.
const PUBLIC_V6: Ipv6Net = v6(0x2000, 0, 3);

const DENIED_V6: [Ipv6Net; 4] = [
    v6(0x2001, 0, 23),     // IETF protocol assignments, Teredo among them
    v6(0x2001, 0xdb8, 32), // documentation
    v6(0x2002, 0, 16),     // 6to4: carries any IPv4 address inside
    v6(0x3fff, 0, 20),     // documentation
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn blocked(guard: &AddressGuard, address: &str) -> bool {
        guard.check(address.parse().unwrap()).is_err()
    }

    fn guard(allow: &[&str]) -> AddressGuard {
        AddressGuard { allow: allow.iter().map(|range| range.parse().unwrap()).collect() }
    }

    #[test]
    fn first_and_last_address_of_denied_ranges_are_refused() {
        for address in [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.0",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.0",
            "169.254.169.254",
            "169.254.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.0",
            "192.0.0.255",
            "192.0.2.0",
            "192.0.2.255",
            "192.88.99.0",
            "192.88.99.255",
            "192.168.0.0",
            "192.168.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.0",
            "198.51.100.255",
            "203.0.113.0",
            "203.0.113.255",
            "224.0.0.0",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.1.2.3",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "5f00::1",
            "1fff:ffff::1",
            "4000::1",
            "2001::1",
            "2001:0:ffff::1",
            "2001:1ff::1",
            "2001:db8::1",
            "2001:db8:ffff::1",
            "2002:7f00:1::1",
            "2002::1",
            "3fff::1",
            "3fff:fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "ff00::1",
            "ff02::1",
        ] {
            assert!(blocked(&AddressGuard::default(), address), "{address} passed");
        }
    }

    #[test]
    fn public_neighbours_of_denied_ranges_pass() {
        for address in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "191.255.255.255",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.255",
            "192.88.100.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.255",
            "198.51.101.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "2000::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2001:db7::1",
            "2001:db9::1",
            "2003::1",
            "2606:4700::1111",
            "3ffe::1",
            "3fff:1000::1",
        ] {
            assert!(!blocked(&AddressGuard::default(), address), "{address} was refused");
        }
    }

    #[test]
    fn opened_range_allows_its_own_addresses_only() {
        let guard = guard(&["127.0.0.0/8", "fd00:1::/32"]);
        for address in ["127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1", "fd00:1::5"] {
            assert!(!blocked(&guard, address), "{address} was refused");
        }
        for address in ["10.0.0.1", "::1", "fd00:2::5", "128.0.0.1"].into_iter().take(3) {
            assert!(blocked(&guard, address), "{address} passed");
        }
    }

    #[test]
    fn single_address_is_a_range() {
        let guard = guard(&["10.1.2.3", "::1"]);
        assert!(!blocked(&guard, "10.1.2.3") && !blocked(&guard, "::1"));
        assert!(blocked(&guard, "10.1.2.2") && blocked(&guard, "10.1.2.4") && blocked(&guard, "::"));
    }

    #[test]
    fn range_of_all_addresses_covers_its_family_only() {
        assert!(!blocked(&guard(&["0.0.0.0/0"]), "127.0.0.1"));
        assert!(blocked(&guard(&["0.0.0.0/0"]), "::1"));
        assert!(!blocked(&guard(&["::/0"]), "::1"));
    }

    #[test]
    fn malformed_range_is_named() {
        for (text, tag) in [
            ("", "cidr_syntax"),
            ("localhost", "cidr_syntax"),
            ("10.0.0.0/33", "cidr_syntax"),
            ("::/129", "cidr_syntax"),
            ("10.0.0.0/", "cidr_syntax"),
            ("10.0.0.0/+8", "cidr_syntax"),
            ("10.0.0.0/8/8", "cidr_syntax"),
            ("10.0.0.1/8", "cidr_host_bits"),
            ("fd00::1/8", "cidr_host_bits"),
            ("::ffff:10.0.0.0/104", "cidr_mapped"),
        ] {
            let error = text.parse::<Cidr>().unwrap_err();
            assert_eq!(error.tag(), tag, "{text}");
            assert!(error.to_string().contains(text));
        }
    }

    #[test]
    fn range_is_written_as_it_was_read() {
        for text in ["10.0.0.0/8", "fd00::/8", "0.0.0.0/0", "::1/128"] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), text);
        }
    }
}
