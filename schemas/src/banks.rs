//! Banks: the kinds that there are, and whether a text can be an entry of one.
//!
//! It keeps no entries and searches for none.

use serde::{Deserialize, Serialize};

/// What the entries of a bank are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BankKind {
    /// Words and phrases.
    Text,
    /// Regular expressions.
    Regex,
    /// Circles, as `latitude,longitude,metres`, and cells, as geohashes.
    Geo,
    /// Domains, each with all that is below it.
    Domain,
}

impl BankKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Regex => "regex",
            Self::Geo => "geo",
            Self::Domain => "domain",
        }
    }

    /// The form in which a value is kept, so that equal entries are one; or why it cannot be an entry. Whether a pattern
    /// can be compiled is not seen here.
    pub fn canonical(self, value: &str) -> Result<String, &'static str> {
        let value = value.trim();
        if value.is_empty() {
            return Err("it is blank");
        }
        if value.chars().any(|c| c.is_control() && c != '\t') {
            return Err("it has control characters");
        }
        match self {
            Self::Text | Self::Regex => Ok(value.to_owned()),
            Self::Domain => domain(value),
            Self::Geo if value.contains(',') => circle(value),
            Self::Geo => geohash(value),
        }
    }
}

const LONGEST_DOMAIN: usize = 253;
const LONGEST_LABEL: usize = 63;

fn domain(value: &str) -> Result<String, &'static str> {
    if value.contains("://") || value.contains('/') {
        return Err("it is a URL, and a domain is expected");
    }
    if value.contains(['@', ':', '*', ' ']) {
        return Err("it is no domain: expected one such as example.com, which holds for all below it");
    }
    let value = value.strip_suffix('.').unwrap_or(value);
    // As addresses are written that browsers and items hold.
    let url::Host::Domain(host) = url::Host::parse(value).map_err(|_| "it is no domain")? else {
        return Err("it is an IP address, and a domain is expected");
    };
    let fits = host.len() <= LONGEST_DOMAIN
        && host.contains('.')
        && host.split('.').all(|label| !label.is_empty() && label.len() <= LONGEST_LABEL);
    if fits { Ok(host) } else { Err("it is no domain: expected one such as example.com") }
}

fn circle(value: &str) -> Result<String, &'static str> {
    const FORM: &str = "expected a geohash, or latitude, longitude and metres such as 52.52,13.405,500";
    let numbers: Vec<f64> = value
        .split(',')
        .map(|number| number.trim().parse().ok().filter(|number: &f64| number.is_finite()))
        .collect::<Option<_>>()
        .ok_or(FORM)?;
    let [latitude, longitude, metres] = numbers[..] else { return Err(FORM) };
    if !(-90.0..=90.0).contains(&latitude) || !(-180.0..=180.0).contains(&longitude) {
        return Err("there is no such place: latitudes go to 90, longitudes to 180");
    }
    if !(1.0..=20_100_000.0).contains(&metres) {
        return Err("the radius is between 1 metre and half the earth");
    }
    Ok(format!("{latitude},{longitude},{metres}"))
}

fn geohash(value: &str) -> Result<String, &'static str> {
    let value = value.to_ascii_lowercase();
    let fits =
        value.len() <= 12 && value.bytes().all(|byte| b"0123456789bcdefghjkmnpqrstuvwxyz".contains(&byte));
    if fits { Ok(value) } else { Err("it is no geohash: 1 to 12 of its letters and digits are expected") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_entries_have_one_form() {
        for (kind, value, kept) in [
            (BankKind::Text, "  free Coins ", "free Coins"),
            (BankKind::Regex, r"t\.me/\w+", r"t\.me/\w+"),
            (BankKind::Domain, "Example.COM.", "example.com"),
            (BankKind::Domain, "bücher.example", "xn--bcher-kva.example"),
            (BankKind::Geo, "U33DC", "u33dc"),
            (BankKind::Geo, "52.520, 13.4050, 500.0", "52.52,13.405,500"),
        ] {
            assert_eq!(kind.canonical(value).as_deref(), Ok(kept));
            assert_eq!(kind.canonical(kept).as_deref(), Ok(kept), "{kept} is its own form");
        }
    }

    #[test]
    fn what_cannot_be_an_entry_is_refused_with_a_reason() {
        for (kind, value) in [
            (BankKind::Text, " "),
            (BankKind::Text, "a\u{0}b"),
            (BankKind::Domain, "https://example.com/a"),
            (BankKind::Domain, "*.example.com"),
            (BankKind::Domain, "localhost"),
            (BankKind::Domain, "10.0.0.1"),
            (BankKind::Domain, "a..b"),
            (BankKind::Geo, "hello"),
            (BankKind::Geo, "91,0,5"),
            (BankKind::Geo, "1,1"),
            (BankKind::Geo, "1,1,0"),
            (BankKind::Geo, "1,1,NaN"),
            (BankKind::Geo, "0123456789012"),
        ] {
            assert!(kind.canonical(value).is_err(), "{value}");
        }
    }
}
