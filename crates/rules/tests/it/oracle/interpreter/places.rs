//! Evaluates places and domains. Distances are computed through the earth instead of along its surface, and geohashes are
//! read as whole numbers.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]

use ConditionResult::{Failed, Inapplicable, Passed};

use std::sync::LazyLock;

use regex::Regex;
use serde_json::json;
use tidegate_rules::leaves::{
    domain::DomainTest,
    geo::{Geo, GeoSource},
};
use tidegate_rules::{
    Bank, ConditionResult, DomainExplained, EntryName, Explained, GeoExplained, GeoHit, Hit, Number, Value,
};
use tidegate_schemas::{banks::BankKind, ids::BankId};
use unicode_normalization::UnicodeNormalization;

use super::{Interpreter, short};

const LETTERS: &str = "0123456789bcdefghjkmnpqrstuvwxyz";

/// Latitude and longitude.
type Place = (f64, f64);

/// Bits of latitude and longitude in a geohash.
fn bits(hash: &str) -> Option<(Vec<u64>, Vec<u64>)> {
    let (mut lat, mut lng) = (Vec::new(), Vec::new());
    for (nth, letter) in hash.chars().enumerate() {
        let five = LETTERS.find(letter)? as u64;
        for bit in 0..5 {
            let one = five >> (4 - bit) & 1;
            if (nth as u64 * 5 + bit).is_multiple_of(2) { lng.push(one) } else { lat.push(one) }
        }
    }
    Some((lat, lng))
}

fn middle(bits: &[u64], most: f64) -> f64 {
    let number = bits.iter().fold(0_u64, |number, bit| number << 1 | bit);
    let parts = (1_u64 << bits.len()) as f64;
    (number as f64 + 0.5) / parts * 2.0 * most - most
}

fn hash((lat, lng): Place) -> String {
    let scaled =
        |at: f64, most: f64| (((at + most) / (2.0 * most) * f64::from(1 << 30)) as u64).min((1 << 30) - 1);
    let (lat, lng) = (scaled(lat, 90.0), scaled(lng, 180.0));
    let bit =
        |nth: u64| if nth.is_multiple_of(2) { lng >> (29 - nth / 2) & 1 } else { lat >> (29 - nth / 2) & 1 };
    let five = |nth: u64| (0..5).fold(0, |five, at| five << 1 | bit(nth * 5 + at));
    (0..12).map(|nth| LETTERS.chars().nth(five(nth) as usize).unwrap()).collect()
}

fn metres(a: Place, b: Place) -> f64 {
    let vector = |(lat, lng): Place| {
        let (lat, lng) = (lat.to_radians(), lng.to_radians());
        [lat.cos() * lng.cos(), lat.cos() * lng.sin(), lat.sin()]
    };
    let (a, b) = (vector(a), vector(b));
    let straight = (0..3).map(|axis| (a[axis] - b[axis]).powi(2)).sum::<f64>().sqrt();
    2.0 * 6_371_008.8 * (straight / 2.0).min(1.0).asin()
}

enum Shape {
    Circle(Place, f64),
    Cell(String),
}

impl Interpreter<'_> {
    pub(super) fn bank(&self, key: &BankId) -> &Bank {
        self.banks.iter().find(|bank| bank.key == *key).unwrap()
    }

    /// Path, text, coordinates and geohash of each place.
    fn places(&self, geo: &Geo) -> Vec<(String, String, Place, String)> {
        let mut places = Vec::new();
        match &geo.source {
            GeoSource::Hashes(fields) => {
                for field in fields {
                    for (_, value) in self.values(field).unwrap_or_default() {
                        let Value::Text(text) = value else { unreachable!() };
                        let (lat, lng) = bits(text).unwrap();
                        let place = (middle(&lat, 90.0), middle(&lng, 180.0));
                        places.push((field.clone(), short(text, self.limits), place, text.to_owned()));
                    }
                }
            }
            GeoSource::Pair { lat, lng } => {
                let degrees = |path: &str| -> Vec<f64> {
                    let read = |value: Value<'_>| match value {
                        Value::Number(Number::Whole(whole)) => whole as f64,
                        Value::Number(Number::Fraction(fraction)) => fraction,
                        _ => unreachable!(),
                    };
                    self.values(path).unwrap_or_default().into_iter().map(|(_, value)| read(value)).collect()
                };
                for place in degrees(lat).into_iter().zip(degrees(lng)) {
                    if place.0.abs() <= 90.0 && place.1.abs() <= 180.0 {
                        places.push((lat.clone(), format!("{},{}", place.0, place.1), place, hash(place)));
                    }
                }
            }
        }
        places
    }

    pub(super) fn geo(&self, geo: &Geo) -> Explained {
        let mut areas: Vec<(Shape, String, Option<EntryName>)> = Vec::new();
        for circle in &geo.within {
            let name = format!("{},{},{}", circle.lat, circle.lng, circle.metres);
            areas.push((Shape::Circle((circle.lat, circle.lng), circle.metres), name, None));
        }
        areas.extend(geo.cells.iter().map(|cell| (Shape::Cell(cell.clone()), cell.clone(), None)));
        if let Some(bank) = &geo.bank {
            let bank = self.bank(bank);
            for entry in &*bank.entries {
                let name = Some(EntryName {
                    bank: bank.key.clone(),
                    id: entry.id.to_string().into(),
                    labels: entry.labels.clone(),
                });
                let numbers: Vec<f64> =
                    entry.value.split(',').filter_map(|number| number.parse().ok()).collect();
                let shape = match numbers[..] {
                    [lat, lng, metres] => Shape::Circle((lat, lng), metres),
                    _ => Shape::Cell(entry.value.to_string()),
                };
                areas.push((shape, entry.value.to_string(), name));
            }
        }
        let places = self.places(geo);
        let mut hits = Vec::new();
        for (shape, area, entry) in areas {
            let hit = places.iter().find_map(|(field, place, at, hash)| {
                let metres = match &shape {
                    Shape::Circle(centre, most) => {
                        let far = metres(*centre, *at);
                        if far > *most {
                            return None;
                        }
                        Some(far.round())
                    }
                    Shape::Cell(cell) => {
                        if !hash.starts_with(cell) {
                            return None;
                        }
                        None
                    }
                };
                let (field, place) = (field.clone(), place.clone());
                Some(GeoHit { field, place, area: area.clone(), metres, entry: entry.clone() })
            });
            hits.extend(hit);
        }
        let outcome = match (places.is_empty(), hits.is_empty()) {
            (true, _) => Inapplicable,
            (_, true) => Failed,
            _ => Passed,
        };
        hits.truncate(self.limits.hits);
        let fields = match &geo.source {
            GeoSource::Hashes(fields) => fields.clone(),
            GeoSource::Pair { lat, lng } => vec![lat.clone(), lng.clone()],
        };
        Explained::Geo(GeoExplained { outcome, fields, hits })
    }

    pub(super) fn domain(&self, test: &DomainTest) -> Explained {
        let mut domains: Vec<(String, Option<EntryName>)> =
            test.domains.iter().map(|domain| (domain.clone(), None)).collect();
        if let Some(bank) = &test.bank {
            let bank = self.bank(bank);
            domains.extend(bank.entries.iter().filter_map(|entry| {
                let name = EntryName {
                    bank: bank.key.clone(),
                    id: entry.id.to_string().into(),
                    labels: entry.labels.clone(),
                };
                Some((BankKind::Domain.canonical(&entry.value).ok()?, Some(name)))
            }));
        }
        let mut hits: Vec<Hit> = Vec::new();
        for field in &test.fields {
            for (element, text) in self.texts(field) {
                let hosts = if self.is_address(field) { hosts_of_address(&text) } else { hosts(&text) };
                for (start, end, host) in hosts {
                    let below = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
                    // The first of the longest domains, while `max_by_key` would return the last.
                    let longest = domains
                        .iter()
                        .rev()
                        .filter(|(domain, _)| below(domain))
                        .max_by_key(|(domain, _)| domain.len());
                    let Some((domain, entry)) = longest else { continue };
                    let hit = Hit {
                        field: field.clone(),
                        element: element.clone(),
                        sought: short(domain, self.limits),
                        start,
                        end,
                        found: short(&text[start..end], self.limits),
                        entry: entry.clone(),
                    };
                    if !hits.iter().any(|known| json!(known)["sought"] == json!(hit)["sought"]) {
                        hits.push(hit);
                    }
                }
            }
        }
        let outcome = if hits.is_empty() { Failed } else { Passed };
        hits.truncate(self.limits.hits);
        Explained::Domain(DomainExplained { outcome, fields: test.fields.clone(), hits })
    }
}

/// Without letters on a dark ground, which IDNA counts as symbols.
const LETTER: &str =
    r"[[\p{Alphabetic}--[🅐-🅩🅰-🆉]]\p{N}\p{M}._\-。．｡\u{ad}\u{200b}-\u{200d}\u{2060}\u{2064}\u{feff}]";

/// Placeholder for an escape that is no letter: a symbol like any other.
const SIGN: char = '\u{e000}';

fn is_own(character: char) -> bool {
    static IS: LazyLock<Regex> = LazyLock::new(|| Regex::new(&format!("^{LETTER}$")).unwrap());
    IS.is_match(character.encode_utf8(&mut [0; 4]))
}

/// Letters that IDNA maps a symbol to, possibly none. `None` if it is mapped to itself.
fn stands_for(character: char) -> Option<String> {
    if character.is_ascii() || character == '﷼' || is_own(character) {
        return None;
    }
    let host = url::Host::parse(&format!("za{character}bz.example")).ok()?.to_string();
    if let Some(letters) = host.strip_prefix("za").and_then(|host| host.strip_suffix("bz.example")) {
        return letters.chars().all(|c| is_own(c) && c != '.').then(|| letters.to_owned());
    }
    let letters: String = character.nfkc().collect();
    (!letters.contains(character) && letters.chars().all(is_own)).then_some(letters)
}

pub(super) fn is_letter(character: char) -> bool {
    is_own(character) || stands_for(character).is_some()
}

/// No letter, but permitted in names by IDNA.
fn is_sign(character: char) -> bool {
    let host = || url::Host::parse(&format!("za{character}bz.example")).map(|host| host.to_string());
    !character.is_ascii() && !is_letter(character) && host().is_ok_and(|host| host.starts_with("xn--"))
}

/// The text with its letters unescaped, and the origin of each of its bytes.
fn unescaped(text: &str, is_letter: impl Fn(char) -> bool) -> (String, Vec<usize>) {
    static ESCAPES: LazyLock<Regex> = LazyLock::new(|| Regex::new("(?:%[0-9A-Fa-f]{2})+").unwrap());
    let (mut plain, mut origins, mut at) = (String::new(), Vec::new(), 0);
    let mut push = |c: char, from: usize| {
        plain.push(c);
        origins.extend(std::iter::repeat_n(from, c.len_utf8()));
    };
    while at < text.len() {
        let Some(found) = ESCAPES.find_at(text, at).filter(|found| found.start() == at) else {
            let c = text[at..].chars().next().unwrap();
            push(c, at);
            at += c.len_utf8();
            continue;
        };
        let bytes: Vec<u8> =
            found.as_str()[1..].split('%').map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect();
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                if is_letter(c) {
                    push(c, at);
                } else {
                    (0..c.len_utf8()).for_each(|nth| push(SIGN, at + 3 * nth));
                }
                at += 3 * c.len_utf8();
            }
            // Only the sign is replaced then, because its digits are letters.
            for _ in chunk.invalid() {
                push(SIGN, at);
                text[at + 1..at + 3].char_indices().for_each(|(nth, digit)| push(digit, at + 1 + nth));
                at += 3;
            }
        }
    }
    origins.push(text.len());
    (plain, origins)
}

/// Characters that browsers remove from an address.
pub(super) const LEFT_OUT: &str = "\t\n\r";

fn hosts_of_address(text: &str) -> Vec<(usize, usize, String)> {
    let read: Vec<(usize, char)> = text.char_indices().filter(|(_, c)| !LEFT_OUT.contains(*c)).collect();
    let plain: String = read.iter().map(|(_, c)| c).collect();
    let nth = |at: usize| plain[..at].chars().count();
    let end = |at: usize| read[nth(at) - 1].0 + read[nth(at) - 1].1.len_utf8();
    hosts(&plain).into_iter().map(|(from, to, name)| (read[nth(from)].0, end(to), name)).collect()
}

/// Hosts in a text with their places: in each part of the text first those without symbols, then those with some.
fn hosts(text: &str) -> Vec<(usize, usize, String)> {
    let mut hosts = hosts_in(text, false);
    hosts.extend(hosts_in(text, true));
    let ends = |c: char| c.is_whitespace() || "<>\"`|{}".contains(c);
    hosts.sort_by_key(|(start, ..)| text[..*start].matches(ends).count());
    hosts
}

/// The context before and after each run of letters decides whether it is a host.
fn hosts_in(text: &str, with_signs: bool) -> Vec<(usize, usize, String)> {
    let (plain, origins) = unescaped(text, |c| is_letter(c) || with_signs && is_sign(c));
    let signed = |run: &str| run.chars().any(is_sign);
    // A symbol that is mapped to letters belongs to the run.
    let signs: String =
        plain.chars().filter(|c| stands_for(*c).is_some() || with_signs && is_sign(*c)).collect();
    let signs = if signs.is_empty() { String::new() } else { format!("[{signs}]|") };
    let parts = Regex::new(&format!("(?P<run>(?:{signs}{LETTER})+)|(?P<scheme>://)|(?s:.)")).unwrap();
    let mut hosts = Vec::new();
    // Context for the next run from the last sign, and for the next sign from the last run.
    let (mut path, mut scheme, mut colon) = (false, false, false);
    let (mut host_before, mut port_before) = (false, false);
    for part in parts.captures_iter(&plain) {
        let part_match = part.get(0).unwrap();
        let (sign, rest) = (part_match.as_str(), &text[origins[part_match.end()]..]);
        if part.name("run").is_some() {
            let piece = rest.split(|c: char| c.is_whitespace() || "<>\"`|{}".contains(c)).next().unwrap();
            let user: String = piece.chars().take(253).collect();
            let user = user.split(['/', '\\', '?', '#']).next().unwrap().contains('@');
            let run_host = host(sign).filter(|(.., name)| name.contains('.') || scheme && !user);
            let run_host = run_host.filter(|_| !path && !piece.starts_with('@'));
            host_before = run_host.is_some();
            let as_written = &text[origins[part_match.start()]..origins[part_match.end()]];
            port_before = colon && as_written.chars().all(|c| c.is_ascii_digit());
            let mut run_hosts: Vec<_> =
                run_host.filter(|_| !with_signs || signed(sign)).into_iter().collect();
            if with_signs {
                run_hosts.extend(beside_signs(sign, !path, !piece.starts_with('@')));
            }
            let origin = |at: usize| origins[part_match.start() + at];
            hosts.extend(run_hosts.into_iter().map(|(from, to, name)| (origin(from), origin(to), name)));
            continue;
        }
        let slash = ["/", "\\", "?", "#"].contains(&sign);
        scheme = sign == "://" || scheme && (sign == "@" || sign == ":" && !host_before);
        colon = sign == ":" && host_before;
        path = slash && (host_before || port_before || path)
            || path && ["@", "~", "+", "!", "$", "*"].contains(&sign);
        (host_before, port_before) = (false, false);
    }
    hosts
}

/// Hosts with one to eight symbols that begin after a symbol and end before one, or at the ends of the run if these are
/// permitted. All parts of the run are tried.
fn beside_signs(run: &str, begins: bool, ends: bool) -> Vec<(usize, usize, String)> {
    let mut hosts = Vec::new();
    let letters: Vec<(usize, bool)> = run.char_indices().map(|(at, c)| (at, is_sign(c))).collect();
    let place = |nth: usize| letters.get(nth).map_or(run.len(), |(at, _)| *at);
    let count = letters.len();
    for to in (1..=count).filter(|to| letters.get(*to).map_or(ends, |(_, sign)| *sign)) {
        for from in (0..to).filter(|from| if *from == 0 { begins } else { letters[from - 1].1 }) {
            let signs = letters[from..to].iter().filter(|(_, sign)| *sign).count();
            if to - from == count || !(1..=8).contains(&signs) {
                continue;
            }
            let part = &run[place(from)..place(to)];
            let Some((start, end, name)) = host(part).filter(|(.., name)| name.contains('.')) else {
                continue;
            };
            let top = part[..end].rsplit(['.', '。', '．', '｡']).next().unwrap();
            if !top.chars().any(is_sign) {
                hosts.push((place(from) + start, place(from) + end, name));
            }
        }
    }
    hosts
}

/// Start and end of the name in a run, and the name.
fn host(run: &str) -> Option<(usize, usize, String)> {
    let around = |c: char| ".-_。．｡\u{ad}\u{200b}\u{200c}\u{200d}\u{2060}\u{2064}\u{feff}".contains(c);
    static UNSEEN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
        r"[\x{ad}\x{34f}\x{115f}\x{1160}\x{17b4}\x{17b5}\x{180b}-\x{180d}\x{180f}\x{200b}\x{2060}\x{2064}\x{3164}\x{fe00}-\x{fe0f}\x{feff}\x{ffa0}\x{e0100}-\x{e01ef}]",
    )
    .unwrap()
    });
    let is_visible = |c: char| !UNSEEN.is_match(c.encode_utf8(&mut [0; 4]));
    // Start, end and letter.
    let mut letters: Vec<(usize, usize, char)> = Vec::new();
    for (at, c) in run.char_indices().filter(|(_, c)| is_visible(*c)) {
        let mapped = stands_for(c).unwrap_or_else(|| c.to_string());
        letters.extend(mapped.chars().map(|letter| (at, at + c.len_utf8(), letter)));
    }
    while letters.last().is_some_and(|(.., c)| around(*c)) {
        letters.pop();
    }
    let mut rest = &letters[letters.iter().position(|(.., c)| !around(*c))?..];
    let length = |letters: &[(usize, usize, char)]| letters.iter().map(|(.., c)| c.len_utf8()).sum::<usize>();
    let ascii = rest.iter().all(|(.., c)| c.is_ascii());
    while length(rest) > if ascii { 253 } else { 4 * 253 } {
        rest = &rest[1 + rest.iter().position(|(.., c)| ".。．｡".contains(*c))?..];
    }
    let ((from, ..), (_, end, _)) = (*rest.first()?, *rest.last()?);
    let visible_name: String = rest.iter().map(|(.., c)| c).collect();
    let mut name = match url::Host::parse(&visible_name) {
        _ if ascii => visible_name.to_lowercase(),
        Ok(url::Host::Domain(name)) => name,
        _ => return None,
    };
    while name.len() > 253 {
        name = name.split_once('.')?.1.to_owned();
    }
    Some((from, end, name))
}
