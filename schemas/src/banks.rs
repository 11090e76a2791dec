//! Kinds of banks, and the canonical form of their entries. Entries are stored in `tidegate-catalog`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

/// Kind of a bank's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BankKind {
    /// Words and phrases.
    Text,
    /// Regular expressions.
    Regex,
    /// Circles (`latitude,longitude,metres`) and cells (geohashes).
    Geo,
    /// Domains, each with its subdomains.
    Domain,
    /// Perceptual hashes of pictures, computed with Meta's PDQ.
    Pdq,
    /// Perceptual hashes of pictures: 64 bits, each comparing two neighbouring pixels of an 8 by 8 grid.
    Gradient,
    /// Cryptographic hashes of files.
    Md5,
    Sha1,
    Sha256,
    /// Hashes of pictures that this service cannot compute: exchanges supply them.
    Photodna,
    Netclean,
}

impl BankKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Regex => "regex",
            Self::Geo => "geo",
            Self::Domain => "domain",
            Self::Pdq => HashKind::Pdq.name(),
            Self::Gradient => HashKind::Gradient.name(),
            Self::Md5 => HashKind::Md5.name(),
            Self::Sha1 => HashKind::Sha1.name(),
            Self::Sha256 => HashKind::Sha256.name(),
            Self::Photodna => HashKind::Photodna.name(),
            Self::Netclean => HashKind::Netclean.name(),
        }
    }

    /// Returns the hash kind of a bank for media. `None` for lists, which rules search in the fields of an item.
    pub const fn hash_kind(self) -> Option<HashKind> {
        match self {
            Self::Text | Self::Regex | Self::Geo | Self::Domain => None,
            Self::Pdq => Some(HashKind::Pdq),
            Self::Gradient => Some(HashKind::Gradient),
            Self::Md5 => Some(HashKind::Md5),
            Self::Sha1 => Some(HashKind::Sha1),
            Self::Sha256 => Some(HashKind::Sha256),
            Self::Photodna => Some(HashKind::Photodna),
            Self::Netclean => Some(HashKind::Netclean),
        }
    }

    /// Returns the canonical form of an entry, so that equal entries have one form. The error is the reason why the
    /// value is no entry. Regular expressions are compiled later, in `tidegate-rules`.
    pub fn canonical(self, value: &str) -> Result<String, &'static str> {
        // Surrounding spaces are never part of an entry.
        let value = value.trim();
        if value.is_empty() {
            return Err("it is blank");
        }
        if value.chars().any(|c| c.is_control() && c != '\t') {
            return Err("it has control characters");
        }
        // Hash kinds check length and digits themselves.
        if let Some(kind) = self.hash_kind() {
            return kind.canonical(value);
        }
        match self {
            Self::Domain => canonical_domain(value),
            Self::Geo if value.contains(',') => canonical_circle(value),
            Self::Geo => canonical_geohash(value),
            _ => Ok(value.to_owned()),
        }
    }
}

/// Kind of a media hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HashKind {
    Pdq,
    Gradient,
    Md5,
    Sha1,
    Sha256,
    Photodna,
    Netclean,
}

impl HashKind {
    pub const ALL: [Self; 7] =
        [Self::Pdq, Self::Gradient, Self::Md5, Self::Sha1, Self::Sha256, Self::Photodna, Self::Netclean];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Pdq => "pdq",
            Self::Gradient => "gradient",
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Photodna => "photodna",
            Self::Netclean => "netclean",
        }
    }

    /// True if the service computes this hash from media. Exchanges supply the other hashes, which are compared as
    /// text.
    pub const fn is_computed(self) -> bool {
        !matches!(self, Self::Photodna | Self::Netclean)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the number of compared bytes: of the hash itself, or of its SHA-256 digest for a hash that is compared
    /// as text.
    pub const fn byte_length(self) -> usize {
        match self {
            Self::Pdq | Self::Sha256 | Self::Photodna | Self::Netclean => 32,
            Self::Gradient => 8,
            Self::Md5 => 16,
            Self::Sha1 => 20,
        }
    }

    /// Returns the maximum distance of a match, in bits. The index splits a hash into pieces of sixteen bits and looks
    /// up each piece with at most one differing bit, so it finds all hashes up to this distance. Hashes of files must
    /// be equal.
    pub const fn max_distance(self) -> u32 {
        match self {
            Self::Pdq => 31,
            Self::Gradient => 7,
            Self::Md5 | Self::Sha1 | Self::Sha256 | Self::Photodna | Self::Netclean => 0,
        }
    }

    /// Returns the default distance of a match, in bits: the threshold that PDQ recommends, and the bits of a gradient
    /// hash that re-encoding changes.
    pub const fn default_distance(self) -> u32 {
        match self {
            Self::Pdq => 31,
            Self::Gradient => 4,
            Self::Md5 | Self::Sha1 | Self::Sha256 | Self::Photodna | Self::Netclean => 0,
        }
    }

    /// Returns the canonical form of a hash. The error is the reason why the value is no hash of this kind.
    pub fn canonical(self, value: &str) -> Result<String, &'static str> {
        match self {
            Self::Photodna => return canonical_photodna(value),
            Self::Netclean => return canonical_netclean(value),
            _ => {}
        }
        if is_hex(value, self.byte_length()) {
            return Ok(value.to_ascii_lowercase());
        }
        Err(match self {
            Self::Pdq => "a PDQ hash has 64 hexadecimal digits",
            Self::Gradient => "a gradient hash has 16 hexadecimal digits",
            Self::Md5 => "an MD5 hash has 32 hexadecimal digits",
            Self::Sha1 => "a SHA-1 hash has 40 hexadecimal digits",
            _ => "a SHA-256 hash has 64 hexadecimal digits",
        })
    }
}

fn is_hex(value: &str, bytes: usize) -> bool {
    value.len() == 2 * bytes && value.bytes().all(|digit| digit.is_ascii_hexdigit())
}

const PHOTODNA_BYTES: usize = 144;

/// Returns the canonical form of a PhotoDNA hash: hexadecimal digits. Accepts digits, base64, or numbers with commas.
fn canonical_photodna(value: &str) -> Result<String, &'static str> {
    const FORM: &str =
        "a PhotoDNA hash has 144 bytes: 288 hexadecimal digits, base64, or numbers with commas between";
    if is_hex(value, PHOTODNA_BYTES) {
        return Ok(value.to_ascii_lowercase());
    }
    let bytes: Option<Vec<u8>> = match value.contains(',') {
        true => value.split(',').map(|number| number.trim().parse().ok()).collect(),
        false => STANDARD.decode(value).ok(),
    };
    let bytes = bytes.filter(|bytes| bytes.len() == PHOTODNA_BYTES).ok_or(FORM)?;
    Ok(crate::hex(&bytes))
}

const MAX_NETCLEAN_BYTES: usize = 512;

/// Returns the canonical form of a NetClean hash. The format is not published, so the hash is stored as text;
/// hexadecimal digits are lowered because their case has no meaning.
fn canonical_netclean(value: &str) -> Result<String, &'static str> {
    if value.len() > MAX_NETCLEAN_BYTES || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a NetClean hash has at most 512 letters, digits and signs");
    }
    let is_hex = value.bytes().all(|digit| digit.is_ascii_hexdigit());
    Ok(if is_hex { value.to_ascii_lowercase() } else { value.to_owned() })
}

const MAX_DOMAIN_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

fn canonical_domain(value: &str) -> Result<String, &'static str> {
    if value.contains("://") || value.contains('/') {
        return Err("expected a domain, not a URL");
    }
    const FORM: &str = "it is not a domain such as example.com, which includes its subdomains";
    // A trailing dot marks a fully qualified name of the same domain.
    let value = value.strip_suffix('.').unwrap_or(value);
    // The URL parser of browsers (WHATWG), so that the entry has the form of the domains in items.
    let url::Host::Domain(host) = url::Host::parse(value).map_err(|_| FORM)? else {
        return Err("expected a domain, not an IP address");
    };
    // The parser accepts further characters and decodes percent signs; a domain name has none of them.
    let in_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| (1..=MAX_LABEL_BYTES).contains(&label.len()) && label.bytes().all(in_name);
    let is_domain = host.len() <= MAX_DOMAIN_BYTES && host.contains('.') && host.split('.').all(is_label);
    if is_domain { Ok(host) } else { Err(FORM) }
}

fn canonical_circle(value: &str) -> Result<String, &'static str> {
    const FORM: &str = "expected a geohash, or latitude, longitude and metres such as 52.52,13.405,500";
    let numbers: Vec<f64> = value
        .split(',')
        .map(|number| number.trim().parse().ok().filter(|number: &f64| number.is_finite()))
        .collect::<Option<_>>()
        .ok_or(FORM)?;
    let [latitude, longitude, metres] = numbers[..] else { return Err(FORM) };
    if !(-90.0..=90.0).contains(&latitude) || !(-180.0..=180.0).contains(&longitude) {
        return Err("latitude must be between -90 and 90, longitude between -180 and 180");
    }
    if !(1.0..=20_100_000.0).contains(&metres) {
        return Err("the radius must be between 1 and 20,100,000 metres");
    }
    // Formatting the parsed numbers gives `1.50` and `1.5` one form.
    Ok(format!("{latitude},{longitude},{metres}"))
}

fn canonical_geohash(value: &str) -> Result<String, &'static str> {
    let value = value.to_ascii_lowercase();
    let is_geohash =
        value.len() <= 12 && value.bytes().all(|byte| b"0123456789bcdefghjkmnpqrstuvwxyz".contains(&byte));
    if is_geohash {
        Ok(value)
    } else {
        Err("it is not a geohash: expected 1 to 12 of the characters 0-9 and b-z without i, l, o")
    }
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
            (BankKind::Md5, " D41D8CD98F00B204E9800998ECF8427E", "d41d8cd98f00b204e9800998ecf8427e"),
            (BankKind::Gradient, "00FF00FF00FF00FF", "00ff00ff00ff00ff"),
            (BankKind::Netclean, "0AbC", "0abc"),
            (BankKind::Netclean, "0AbC+/=", "0AbC+/="),
        ] {
            assert_eq!(kind.canonical(value).as_deref(), Ok(kept));
            assert_eq!(kind.canonical(kept).as_deref(), Ok(kept), "{kept} is its own form");
        }
    }

    #[test]
    fn invalid_entries_are_refused_with_a_reason() {
        for (kind, value) in [
            (BankKind::Text, " "),
            (BankKind::Text, "a\u{0}b"),
            (BankKind::Domain, "https://example.com/a"),
            (BankKind::Domain, "*.example.com"),
            (BankKind::Domain, "%2a.example.com"),
            (BankKind::Domain, "a'b.example.com"),
            (BankKind::Domain, "localhost"),
            (BankKind::Domain, "10.0.0.1"),
            (BankKind::Domain, "a..b"),
            (BankKind::Geo, "hello"),
            (BankKind::Geo, "91,0,5"),
            (BankKind::Geo, "1,1"),
            (BankKind::Geo, "1,1,0"),
            (BankKind::Geo, "1,1,NaN"),
            (BankKind::Geo, "0123456789012"),
            (BankKind::Pdq, "d41d8cd98f00b204e9800998ecf8427e"),
            (BankKind::Md5, "d41d8cd98f00b204e9800998ecf8427g"),
            (BankKind::Sha1, ""),
            (BankKind::Photodna, "d41d8cd98f00b204e9800998ecf8427e"),
            (BankKind::Photodna, "1,2,3"),
            (BankKind::Netclean, "two words"),
        ] {
            assert!(kind.canonical(value).is_err(), "{value}");
        }
    }

    #[test]
    fn photodna_hash_has_one_canonical_form() {
        let bytes: Vec<u8> = (0..144).collect();
        let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        let numbers: Vec<String> = bytes.iter().map(ToString::to_string).collect();
        for written in [digits.clone(), STANDARD.encode(&bytes), numbers.join(","), numbers.join(", ")] {
            assert_eq!(BankKind::Photodna.canonical(&written), Ok(digits.to_ascii_lowercase()), "{written}");
        }
        assert!(BankKind::Photodna.canonical(&STANDARD.encode(&bytes[1..])).is_err());
        assert!(BankKind::Photodna.canonical(&numbers.join(",").replace("143", "256")).is_err());
    }
}
