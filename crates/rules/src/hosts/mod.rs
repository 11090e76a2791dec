//! Finds the hosts that a text names: in addresses, in mail addresses, and bare.

mod parts;

use std::borrow::Cow;

use idna_adapter::Adapter;
use unicode_normalization::char::is_combining_mark;

use crate::limits::wide;

/// A host in a text, as it is compared, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Bytes of a name that are compared: of a longer one, the last labels that fit.
const LONGEST: usize = 253;

/// Bytes as written that so many compared bytes come from.
const WRITTEN: usize = 4 * LONGEST;

/// Signs between labels.
const DOTS: [char; 4] = ['.', '。', '．', '｡'];

/// Signs that the net leaves out of an address, wherever they stand.
pub(crate) const LEFT_OUT: [char; 3] = ['\t', '\n', '\r'];

/// Steps of one dot where letters are to be read as the net reads them: hosts end behind one, and of each host with
/// signs there are several that signs part.
const DOTTED: u64 = 64;

/// The steps of finding the hosts of a text, beside those of reading it. Of a text beyond ASCII each letter is looked
/// up.
pub(crate) fn work(text: &str) -> u64 {
    if text.is_ascii() && !text.contains('%') {
        return 0;
    }
    let dots = text.matches(DOTS).count() + text.matches("%2").count();
    wide(text.len()).saturating_add(DOTTED.saturating_mul(wide(dots)))
}

/// The hosts of a text that is one address.
pub(crate) fn of_address(text: &str) -> Vec<Host<'_>> {
    let left_out: Vec<usize> = text.match_indices(LEFT_OUT).map(|(at, _)| at).collect();
    let read: String = text.split(LEFT_OUT).collect();
    // Where a byte of what is read stands: behind those left out before it. The `nth` has as many before it.
    let original = |at: usize| {
        let (mut low, mut high) = (0, left_out.len());
        while low < high {
            let nth = low.midpoint(high);
            if left_out[nth] - nth <= at { low = nth + 1 } else { high = nth }
        }
        at + low
    };
    let hosts = all(&read).into_iter().map(|host| Host {
        name: host.name.into_owned().into(),
        start: original(host.start),
        end: original(host.end - 1) + 1,
    });
    hosts.collect()
}

/// All hosts, in their order.
///
/// A host is a run of letters, digits, dots and hyphens with a dot in it, each as itself, as `%2E`, or as a sign that
/// stands for some of them such as `№`, wherever it stands but for two places: in the path of another host, and before
/// an `@`. After `://` it needs no dot. Where other signs stand in such a run, as in `i❤.ws`, it is one host with them,
/// too, and so are parts of it that begin behind one and end before one: no sign hides what is beside it.
pub(crate) fn all(text: &str) -> Vec<Host<'_>> {
    let mut found = Vec::new();
    let ends = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '`' | '|' | '{' | '}');
    let mut at = 0;
    while at < text.len() {
        let length = text[at..].find(ends).unwrap_or(text.len() - at);
        let piece = &text[at..at + length];
        if hosts_in(text, at, at + length, false, &mut found) && may_have_dots(piece) {
            hosts_in(text, at, at + length, true, &mut found);
        }
        at += length;
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
    found
}

/// The character before a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Anything,
    /// `://`, and perhaps a user.
    Scheme,
    /// A host and a colon.
    Host,
    /// A host and a slash: this is no host any more, up to a sign that parts addresses.
    Path,
}

/// The hosts of a piece, and whether signs stand in it that a host can have. With `signs`, those hosts that have some.
fn hosts_in<'a>(text: &'a str, mut at: usize, end: usize, signs: bool, found: &mut Vec<Host<'a>>) -> bool {
    let (mut after, mut some_sign) = (After::Anything, false);
    while at < end {
        let plain = run(text, at, end, is_part);
        let (run, escaped) = if signs { run(text, at, end, is_part_or_sign) } else { plain };
        let rest = &text[run..end];
        let ends = !rest.starts_with('@');
        let may_be = after != After::Path && ends;
        let is_named = after == After::Scheme && !has_user(rest);
        let host = if may_be { host(text, at, run, escaped, is_named) } else { None };
        let is_host = host.is_some();
        found.extend(host.filter(|_| !signs || plain.0 < run));
        if plain.0 < run {
            parts::parted(&text[at..run], at, after != After::Path, ends, found);
        }
        let is_port = after == After::Host && run > at && text[at..run].bytes().all(|b| b.is_ascii_digit());
        let Some(sign) = rest.chars().next() else { break };
        (after, at) = if rest.starts_with("://") {
            (After::Scheme, run + 3)
        } else {
            let next = match sign {
                '/' | '\\' | '?' | '#' if is_host || is_port => After::Path,
                ':' if is_host => After::Host,
                ':' | '@' if after == After::Scheme => After::Scheme,
                '/' | '\\' | '?' | '#' | '@' | '~' | '+' | '!' | '$' | '*' if after == After::Path => {
                    After::Path
                }
                _ => After::Anything,
            };
            // `%2F` is a slash that nobody wrote, and its digits are no part of a name.
            let (sign, length) = escape(rest).unwrap_or((sign, sign.len_utf8()));
            some_sign |= is_sign(sign);
            (next, run + length)
        };
    }
    some_sign
}

/// True if what follows a scheme and a name begins a password, or the rest of one.
fn has_user(rest: &str) -> bool {
    rest.chars().take(LONGEST).take_while(|c| !matches!(c, '/' | '\\' | '?' | '#')).any(|c| c == '@')
}

/// True if it may be a letter of a host, or stands for some.
pub(crate) fn is_part(c: char) -> bool {
    // The sign of the rial stands for letters that no name has beside Latin ones.
    is_letter(c) || !c.is_ascii() && c != '﷼' && as_the_net(c).all(|letter| letter != c && is_letter(letter))
}

/// True if the net takes it in a name as it is, though it is no letter: `☃`.
fn is_sign(c: char) -> bool {
    !c.is_ascii()
        && !is_part(c)
        && as_the_net(c).all(|read| read != '\u{fffd}' && (!read.is_ascii() || is_letter(read)))
}

fn is_part_or_sign(c: char) -> bool {
    is_part(c) || is_sign(c)
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() && !is_pictured(c) || is_around(c) || !c.is_ascii() && is_combining_mark(c)
}

/// Letters on a dark ground, emoji such as `🅱` among them, that Unicode counts as alphabetic and the net as signs.
fn is_pictured(c: char) -> bool {
    matches!(c, '\u{1f150}'..='\u{1f169}' | '\u{1f170}'..='\u{1f189}')
}

/// Form of a character in the net: for many signs nothing or some letters, and `U+FFFD` if no host can have it.
fn as_the_net(c: char) -> impl Iterator<Item = char> {
    static ADAPTER: Adapter = Adapter::new();
    ADAPTER.map_normalize(std::iter::once(c))
}

/// Signs that a name may hold, but neither begins nor ends with: also dots of other writings, and signs that nobody
/// sees.
fn is_around(c: char) -> bool {
    matches!(
        c,
        '.' | '-' | '_' | '。' | '．' | '｡' | '\u{ad}' | '\u{200b}'
            ..='\u{200d}' | '\u{2060}' | '\u{2064}' | '\u{feff}'
    )
}

/// Returns the end of a run of parts, and true if some of its letters are escaped.
fn run(text: &str, start: usize, end: usize, is_part: impl Fn(char) -> bool) -> (usize, bool) {
    let (mut at, mut escaped) = (start, false);
    loop {
        at += text[at..end].find(|c| !is_part(c)).unwrap_or(end - at);
        match escape(&text[at..end]).filter(|(c, _)| is_part(*c)) {
            Some((_, length)) => (at, escaped) = (at + length, true),
            None => return (at, escaped),
        }
    }
}

/// The character that a text begins with as `%C3%BC`, and the length of that.
fn escape(text: &str) -> Option<(char, usize)> {
    let mut bytes = [0; 4];
    for (nth, written) in text.as_bytes().chunks(3).take(4).enumerate() {
        let [b'%', high, low] = written else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes[nth] = digit(*high)? << 4 | digit(*low)?;
        if let Ok(decoded) = std::str::from_utf8(&bytes[..=nth]) {
            return Some((decoded.chars().next()?, 3 * nth + 3));
        }
    }
    None
}

/// True if a dot stands in it, or what may be an escaped one.
fn may_have_dots(text: &str) -> bool {
    text.contains(|c| c == '%' || DOTS.contains(&c))
}

/// The host that a run is, if it has a dot or needs none.
fn host(text: &str, start: usize, end: usize, escaped: bool, needs_none: bool) -> Option<Host<'_>> {
    let run = &text[start..end];
    if escaped || !run.is_ascii() {
        return decoded(run, start, needs_none);
    }
    let start = start + run.find(|c| !is_around(c))?;
    let written = text[start..end].trim_end_matches(is_around);
    let last = last(written, LONGEST)?;
    let start = start + written.len() - last.len();
    if !needs_none && !last.contains('.') {
        return None;
    }
    let name = if last.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(last.to_ascii_lowercase())
    } else {
        Cow::Borrowed(last)
    };
    Some(Host { name, start, end: start + last.len() })
}

/// A host of which some letters are escaped, or not in ASCII: those are compared as the net writes them.
fn decoded(run: &str, start: usize, needs_none: bool) -> Option<Host<'static>> {
    // Most runs are words of a text.
    if !needs_none && !may_have_dots(run) {
        return None;
    }
    name(&letters(run), start, needs_none)
}

/// A letter of a name, and where it stands.
#[derive(Clone, Copy)]
struct Letter {
    letter: char,
    from: usize,
    to: usize,
}

/// The letters of a run as the net reads them, apart from those of which nothing is left.
fn letters(run: &str) -> Vec<Letter> {
    let mut letters = Vec::new();
    let mut from = 0;
    while let Some(first) = run[from..].chars().next() {
        let (written, length) = escape(&run[from..]).unwrap_or((first, first.len_utf8()));
        let to = from + length;
        if !is_letter(written) {
            letters.extend(as_the_net(written).map(|letter| Letter { letter, from, to }));
        } else if !is_left_out(written) {
            letters.push(Letter { letter: written, from, to });
        }
        from = to;
    }
    letters
}

/// The host that these letters are, of a run that begins here.
fn name(letters: &[Letter], start: usize, needs_none: bool) -> Option<Host<'static>> {
    let first = letters.iter().position(|it| !is_around(it.letter))?;
    let behind = letters.iter().rposition(|it| !is_around(it.letter))? + 1;
    let written: String = letters[first..behind].iter().map(|it| it.letter).collect();
    let tail = last(&written, if written.is_ascii() { LONGEST } else { WRITTEN })?;
    if !needs_none && !tail.contains(DOTS) {
        return None;
    }
    let from = behind - tail.chars().count();
    let name = if tail.is_ascii() {
        tail.to_ascii_lowercase()
    } else {
        let Ok(url::Host::Domain(domain)) = url::Host::parse(tail) else { return None };
        domain
    };
    let name = last(&name, LONGEST).filter(|name| needs_none || name.contains('.'))?.to_owned();
    Some(Host { name: name.into(), start: start + letters[from].from, end: start + letters[behind - 1].to })
}

/// The last labels of a name, together no longer than this.
fn last(name: &str, most: usize) -> Option<&str> {
    let behind_dots = name.match_indices(DOTS).map(|(at, dot)| at + dot.len());
    std::iter::once(0).chain(behind_dots).find(|from| name.len() - from <= most).map(|from| &name[from..])
}

/// True if this letter vanishes from a name as the net writes it.
fn is_left_out(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180d}'
            | '\u{180f}' | '\u{200b}' | '\u{2060}' | '\u{2064}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}'
    )
}

/// A name, and each of the domains above it.
pub(crate) fn upwards(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, above)| above))
}

#[cfg(test)]
mod tests;
