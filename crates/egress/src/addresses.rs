//! Decides which addresses may be connected to: public ones, and those the operator has opened.
//! Not responsible for finding the addresses of a name.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An address range such as `10.0.0.0/8`, `fd00::/8` or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    base: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Whether the address lies in the range. Both must be canonical; an IPv4 range never holds an IPv6 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => v4_within(address, base, self.prefix),
            (IpAddr::V6(base), IpAddr::V6(address)) => v6_within(address, base, self.prefix),
            _ => false,
        }
    }
}

fn v4_within(address: Ipv4Addr, base: Ipv4Addr, prefix: u8) -> bool {
    (address.to_bits() ^ base.to_bits()).leading_zeros() >= u32::from(prefix)
}

fn v6_within(address: Ipv6Addr, base: Ipv6Addr, prefix: u8) -> bool {
    (address.to_bits() ^ base.to_bits()).leading_zeros() >= u32::from(prefix)
}

/// Why a text is no [`Cidr`].
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
        let syntax = || CidrError::Syntax(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr = address.parse().map_err(|_| syntax())?;
        let bits = if base.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().map_err(|_| syntax())?
            }
            Some(_) => return Err(syntax()),
        };
        if prefix > bits {
            return Err(syntax());
        }
        if base.to_canonical() != base {
            return Err(CidrError::Mapped(text.to_owned()));
        }
        let host_bits = match base {
            IpAddr::V4(base) => base.to_bits().trailing_zeros() < u32::from(bits - prefix),
            IpAddr::V6(base) => base.to_bits().trailing_zeros() < u32::from(bits - prefix),
        };
        if host_bits {
            return Err(CidrError::HostBits(text.to_owned()));
        }
        Ok(Self { base, prefix })
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
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

/// The address is neither public nor opened by the operator.
///
/// It names no address: where an internal name points is none of an organisation's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the address is not a public one; the operator can open its range with the setting egress.allow_cidrs"
)]
pub struct Blocked;

impl Blocked {
    pub fn tag(&self) -> &'static str {
        "blocked_address"
    }
}

/// The deny table with the operator's exceptions.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Ranges that are open although the table denies them.
    pub allow: Vec<Cidr>,
}

impl Guard {
    /// Refuses an address that is not public, in whatever notation it hides.
    pub fn check(&self, address: IpAddr) -> Result<(), Blocked> {
        let address = address.to_canonical();
        if is_public(address) || self.allow.iter().any(|range| range.contains(address)) {
            Ok(())
        } else {
            Err(Blocked)
        }
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !DENIED_V4.iter().any(|&(base, prefix)| v4_within(address, Ipv4Addr::from_octets(base), prefix))
        }
        IpAddr::V6(address) => {
            v6_within(address, PUBLIC_V6.0, PUBLIC_V6.1)
                && !DENIED_V6.iter().any(|&(base, prefix)| v6_within(address, base, prefix))
        }
    }
}

const DENIED_V4: [([u8; 4], u8); 15] = [
    ([0, 0, 0, 0], 8),       // this network
    ([10, 0, 0, 0], 8),      // private
    ([100, 64, 0, 0], 10),   // carrier-grade NAT
    ([127, 0, 0, 0], 8),     // loopback
    ([169, 254, 0, 0], 16),  // link-local, cloud metadata
    ([172, 16, 0, 0], 12),   // private
    ([192, 0, 0, 0], 24),    // IETF protocol assignments
    ([192, 0, 2, 0], 24),    // documentation
    ([192, 88, 99, 0], 24),  // 6to4 relays
    ([192, 168, 0, 0], 16),  // private
    ([198, 18, 0, 0], 15),   // benchmarking
    ([198, 51, 100, 0], 24), // documentation
    ([203, 0, 113, 0], 24),  // documentation
    ([224, 0, 0, 0], 4),     // multicast
    ([240, 0, 0, 0], 4),     // reserved, broadcast
];

/// Everything global lies in here; loopback, mapped, NAT64, unique-local, link-local and multicast do not.
const PUBLIC_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

const DENIED_V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // IETF protocol assignments, Teredo among them
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4: carries any IPv4 address inside
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn blocked(guard: &Guard, address: &str) -> bool {
        guard.check(address.parse().unwrap()).is_err()
    }

    fn guard(allow: &[&str]) -> Guard {
        Guard { allow: allow.iter().map(|range| range.parse().unwrap()).collect() }
    }

    #[test]
    fn the_first_and_last_address_of_every_denied_class_are_refused() {
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
            assert!(blocked(&Guard::default(), address), "{address} passed");
        }
    }

    #[test]
    fn the_public_neighbours_of_the_denied_classes_pass() {
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
            assert!(!blocked(&Guard::default(), address), "{address} was refused");
        }
    }

    #[test]
    fn an_opened_range_lets_its_own_addresses_pass_and_no_others() {
        let guard = guard(&["127.0.0.0/8", "fd00:1::/32"]);
        for address in ["127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1", "fd00:1::5"] {
            assert!(!blocked(&guard, address), "{address} was refused");
        }
        for address in ["10.0.0.1", "::1", "fd00:2::5", "128.0.0.1"].into_iter().take(3) {
            assert!(blocked(&guard, address), "{address} passed");
        }
    }

    #[test]
    fn one_address_is_a_range_of_its_own() {
        let guard = guard(&["10.1.2.3", "::1"]);
        assert!(!blocked(&guard, "10.1.2.3") && !blocked(&guard, "::1"));
        assert!(blocked(&guard, "10.1.2.2") && blocked(&guard, "10.1.2.4") && blocked(&guard, "::"));
    }

    #[test]
    fn a_range_that_covers_everything_opens_everything_of_its_family() {
        assert!(!blocked(&guard(&["0.0.0.0/0"]), "127.0.0.1"));
        assert!(blocked(&guard(&["0.0.0.0/0"]), "::1"));
        assert!(!blocked(&guard(&["::/0"]), "::1"));
    }

    #[test]
    fn a_range_that_is_not_one_is_named() {
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
    fn a_range_is_written_as_it_was_read() {
        for text in ["10.0.0.0/8", "fd00::/8", "0.0.0.0/0", "::1/128"] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), text);
        }
    }
}
