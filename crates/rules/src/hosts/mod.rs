//! Finds the hosts in a text: in URLs, in mail addresses, and alone.

mod parts;

use std::borrow::Cow;

use idna_adapter::Adapter;
use unicode_normalization::char::is_combining_mark;

use crate::limits::to_u64;

/// Host in the form for comparisons, with its place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Maximum compared bytes of a name. Of a longer name, the last labels that fit are compared.
const MAX_NAME_BYTES: usize = 253;

/// Maximum bytes in the text that decode to the compared bytes.
const MAX_SOURCE_BYTES: usize = 4 * MAX_NAME_BYTES;

/// Separators of labels.
const DOTS: [char; 4] = ['.', '。', '．', '｡'];

/// Characters that browsers remove from an address at any place.
pub(crate) const REMOVED_CHARS: [char; 3] = ['\t', '\n', '\r'];

/// Steps for one dot in a text that must be decoded: a host ends after each dot, and a host with symbols has several parts.
const STEPS_PER_DOT: u64 = 64;

/// Steps of the search for hosts in a text, in addition to reading it. In a text beyond ASCII each letter is looked up.
pub(crate) fn search_steps(text: &str) -> u64 {
    if text.is_ascii() && !text.contains('%') {
        return 0;
    }
    let dots = text.matches(DOTS).count() + text.matches("%2").count();
    to_u64(text.len()).saturating_add(STEPS_PER_DOT.saturating_mul(to_u64(dots)))
}

/// Hosts of a text that is one address.
pub(crate) fn hosts_of_address(text: &str) -> Vec<Host<'_>> {
    let removed: Vec<usize> = text.match_indices(REMOVED_CHARS).map(|(at, _)| at).collect();
    let cleaned: String = text.split(REMOVED_CHARS).collect();
    // Maps a byte of the cleaned text to the original by adding the removed characters before it. The removed character
    // `nth` has `nth` of them before it.
    let original = |at: usize| {
        let (mut low, mut high) = (0, removed.len());
        while low < high {
            let nth = low.midpoint(high);
            if removed[nth] - nth <= at { low = nth + 1 } else { high = nth }
        }
        at + low
    };
    let hosts = find_hosts(&cleaned).into_iter().map(|host| Host {
        name: host.name.into_owned().into(),
        start: original(host.start),
        end: original(host.end - 1) + 1,
    });
    hosts.collect()
}

/// Finds all hosts, in their order.
///
/// A host is a run of letters, digits, dots and hyphens with a dot in it. Each of them may be written as itself, as an
/// escape such as `%2E`, or as a symbol that browsers map to such characters, such as `№`. A run in the path of another host
/// or before an `@` is no host. After `://` a host needs no dot. A run with other symbols, as in `i❤.ws`, is one host, and
/// so are its parts between symbols, so that no symbol hides a host next to it.
pub(crate) fn find_hosts(text: &str) -> Vec<Host<'_>> {
    let mut hosts = Vec::new();
    let ends = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '`' | '|' | '{' | '}');
    let mut at = 0;
    while at < text.len() {
        let length = text[at..].find(ends).unwrap_or(text.len() - at);
        let piece = &text[at..at + length];
        // A second pass costs as much as the first, so it is left to pieces with a symbol and a dot.
        if find_hosts_in(text, at, at + length, false, &mut hosts) && may_have_dots(piece) {
            find_hosts_in(text, at, at + length, true, &mut hosts);
        }
        at += length;
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
    hosts
}

/// Context before a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Anything,
    /// `://`, possibly with a user.
    Scheme,
    /// Host and colon.
    Host,
    /// Host and slash: later runs belong to the path, up to a character that ends the address.
    Path,
}

/// Adds the hosts of a piece, and returns true if it contains a symbol that a host can have. With `signs`, adds only hosts
/// with symbols.
fn find_hosts_in<'a>(
    text: &'a str,
    mut at: usize,
    end: usize,
    signs: bool,
    hosts: &mut Vec<Host<'a>>,
) -> bool {
    let (mut after, mut has_sign) = (After::Anything, false);
    while at < end {
        let plain = find_run_end(text, at, end, is_part);
        let (run, escaped) = if signs { find_run_end(text, at, end, is_part_or_sign) } else { plain };
        let tail = &text[run..end];
        let ends = !tail.starts_with('@');
        let may_be = after != After::Path && ends;
        let is_named = after == After::Scheme && !has_user(tail);
        let host = if may_be { parse_host(text, at, run, escaped, is_named) } else { None };
        let is_host = host.is_some();
        hosts.extend(host.filter(|_| !signs || plain.0 < run));
        if plain.0 < run {
            parts::add_parts(&text[at..run], at, after != After::Path, ends, hosts);
        }
        let is_port = after == After::Host && run > at && text[at..run].bytes().all(|b| b.is_ascii_digit());
        let Some(sign) = tail.chars().next() else { break };
        (after, at) = if tail.starts_with("://") {
            (After::Scheme, run + 3)
        } else {
            let next = match sign {
                '/' | '\\' | '?' | '#' if is_host || is_port => After::Path,
                ':' if is_host => After::Host,
                // A user and a password may stand between the scheme and the host.
                ':' | '@' if after == After::Scheme => After::Scheme,
                '/' | '\\' | '?' | '#' | '@' | '~' | '+' | '!' | '$' | '*' if after == After::Path => {
                    After::Path
                }
                _ => After::Anything,
            };
            // `%2F` is an escaped slash, and its digits are no part of a name.
            let (sign, length) = decode_escape(tail).unwrap_or((sign, sign.len_utf8()));
            has_sign |= is_sign(sign);
            (next, run + length)
        };
    }
    has_sign
}

/// True if the text after a scheme and a name contains an `@`, so that the name is a user.
fn has_user(tail: &str) -> bool {
    // Bounded, because the text after each scheme is read ahead.
    tail.chars().take(MAX_NAME_BYTES).take_while(|c| !matches!(c, '/' | '\\' | '?' | '#')).any(|c| c == '@')
}

/// True if a character can be a letter of a host, or is mapped to such letters.
pub(crate) fn is_part(c: char) -> bool {
    // The sign of the rial is mapped to letters that no name combines with Latin ones.
    is_letter(c) || !c.is_ascii() && c != '﷼' && map_by_idna(c).all(|letter| letter != c && is_letter(letter))
}

/// True for a symbol that stays in a name although it is no letter, such as `☃`.
fn is_sign(c: char) -> bool {
    !c.is_ascii()
        && !is_part(c)
        && map_by_idna(c).all(|read| read != '\u{fffd}' && (!read.is_ascii() || is_letter(read)))
}

fn is_part_or_sign(c: char) -> bool {
    is_part(c) || is_sign(c)
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() && !is_enclosed_letter(c) || is_inner(c) || !c.is_ascii() && is_combining_mark(c)
}

/// Letters on a dark ground, such as the emoji `🅱`. Unicode counts them as alphabetic, IDNA as symbols.
fn is_enclosed_letter(c: char) -> bool {
    matches!(c, '\u{1f150}'..='\u{1f169}' | '\u{1f170}'..='\u{1f189}')
}

/// Form of a character under IDNA: empty or some letters for many symbols, and `U+FFFD` if no host can have it.
fn map_by_idna(c: char) -> impl Iterator<Item = char> {
    static ADAPTER: Adapter = Adapter::new();
    ADAPTER.map_normalize(std::iter::once(c))
}

/// True for characters inside a name that neither begin nor end it, including the dots of other scripts and invisible
/// characters.
fn is_inner(c: char) -> bool {
    matches!(
        c,
        '.' | '-' | '_' | '。' | '．' | '｡' | '\u{ad}' | '\u{200b}'
            ..='\u{200d}' | '\u{2060}' | '\u{2064}' | '\u{feff}'
    )
}

/// Returns the end of a run of parts, and true if some of its letters are escaped.
fn find_run_end(text: &str, start: usize, end: usize, is_part: impl Fn(char) -> bool) -> (usize, bool) {
    let (mut at, mut escaped) = (start, false);
    loop {
        at += text[at..end].find(|c| !is_part(c)).unwrap_or(end - at);
        match decode_escape(&text[at..end]).filter(|(c, _)| is_part(*c)) {
            Some((_, length)) => (at, escaped) = (at + length, true),
            None => return (at, escaped),
        }
    }
}

/// Decodes the escaped character at the beginning of a text, such as `%C3%BC`, and returns the length of the escape.
fn decode_escape(text: &str) -> Option<(char, usize)> {
    let mut bytes = [0; 4];
    for (nth, escape_triple) in text.as_bytes().chunks(3).take(4).enumerate() {
        let [b'%', high, low] = escape_triple else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes[nth] = digit(*high)? << 4 | digit(*low)?;
        if let Ok(decoded) = std::str::from_utf8(&bytes[..=nth]) {
            return Some((decoded.chars().next()?, 3 * nth + 3));
        }
    }
    None
}

/// True if the text contains a dot, or possibly an escaped one.
fn may_have_dots(text: &str) -> bool {
    text.contains(|c| c == '%' || DOTS.contains(&c))
}

/// Host of a run, if it has a dot or needs none.
fn parse_host(text: &str, start: usize, end: usize, escaped: bool, needs_none: bool) -> Option<Host<'_>> {
    let run = &text[start..end];
    // Most hosts are plain ASCII and need no conversion.
    if escaped || !run.is_ascii() {
        return decode_host(run, start, needs_none);
    }
    let start = start + run.find(|c| !is_inner(c))?;
    let trimmed = text[start..end].trim_end_matches(is_inner);
    let labels = last_labels(trimmed, MAX_NAME_BYTES)?;
    let start = start + trimmed.len() - labels.len();
    if !needs_none && !labels.contains('.') {
        return None;
    }
    let name = if labels.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(labels.to_ascii_lowercase())
    } else {
        Cow::Borrowed(labels)
    };
    Some(Host { name, start, end: start + labels.len() })
}

/// Host with escaped letters or letters beyond ASCII, converted to the form for comparisons.
fn decode_host(run: &str, start: usize, needs_none: bool) -> Option<Host<'static>> {
    // Most runs are words of a text, so this check avoids most conversions.
    if !needs_none && !may_have_dots(run) {
        return None;
    }
    build_host(&decode_letters(run), start, needs_none)
}

/// Letter of a name, with its place.
#[derive(Clone, Copy)]
struct Letter {
    letter: char,
    from: usize,
    to: usize,
}

/// Letters of a run under IDNA, without those that it removes.
fn decode_letters(run: &str) -> Vec<Letter> {
    let mut letters = Vec::new();
    let mut from = 0;
    while let Some(first) = run[from..].chars().next() {
        let (character, length) = decode_escape(&run[from..]).unwrap_or((first, first.len_utf8()));
        let to = from + length;
        if !is_letter(character) {
            letters.extend(map_by_idna(character).map(|letter| Letter { letter, from, to }));
        } else if !is_removed(character) {
            letters.push(Letter { letter: character, from, to });
        }
        from = to;
    }
    letters
}

/// Host of these letters in a run that begins at `start`.
fn build_host(letters: &[Letter], start: usize, needs_none: bool) -> Option<Host<'static>> {
    let first = letters.iter().position(|letter| !is_inner(letter.letter))?;
    let name_end = letters.iter().rposition(|letter| !is_inner(letter.letter))? + 1;
    let source: String = letters[first..name_end].iter().map(|letter| letter.letter).collect();
    let tail = last_labels(&source, if source.is_ascii() { MAX_NAME_BYTES } else { MAX_SOURCE_BYTES })?;
    if !needs_none && !tail.contains(DOTS) {
        return None;
    }
    let from = name_end - tail.chars().count();
    let name = if tail.is_ascii() {
        tail.to_ascii_lowercase()
    } else {
        let Ok(url::Host::Domain(domain)) = url::Host::parse(tail) else { return None };
        domain
    };
    let name = last_labels(&name, MAX_NAME_BYTES).filter(|name| needs_none || name.contains('.'))?.to_owned();
    Some(Host { name: name.into(), start: start + letters[from].from, end: start + letters[name_end - 1].to })
}

/// Last labels of a name with at most this many bytes.
fn last_labels(name: &str, limit: usize) -> Option<&str> {
    let label_starts = name.match_indices(DOTS).map(|(at, dot)| at + dot.len());
    std::iter::once(0).chain(label_starts).find(|from| name.len() - from <= limit).map(|from| &name[from..])
}

/// True if IDNA removes the letter from a name.
fn is_removed(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180d}'
            | '\u{180f}' | '\u{200b}' | '\u{2060}' | '\u{2064}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}'
    )
}

/// Returns a name and each of its parent domains.
pub(crate) fn self_and_parents(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, above)| above))
}

#[cfg(test)]
mod tests;
