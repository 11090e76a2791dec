//! Finds the hosts that a text names: in addresses, in mail addresses, and bare.
//!
//! It resolves none and judges none.

use std::borrow::Cow;

use idna_adapter::Adapter;
use unicode_normalization::char::is_combining_mark;

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

/// What stands between labels.
const DOTS: [char; 4] = ['.', '。', '．', '｡'];

/// What the net leaves out of an address, wherever it stands.
pub(crate) const LEFT_OUT: [char; 3] = ['\t', '\n', '\r'];

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
/// too: no sign hides what is beside it.
pub(crate) fn all(text: &str) -> Vec<Host<'_>> {
    let mut found = Vec::new();
    let ends = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '`' | '|' | '{' | '}');
    let mut at = 0;
    while at < text.len() {
        let length = text[at..].find(ends).unwrap_or(text.len() - at);
        let piece = &text[at..at + length];
        if hosts_in(text, at, at + length, false, &mut found)
            && piece.contains(|c| c == '%' || DOTS.contains(&c))
        {
            hosts_in(text, at, at + length, true, &mut found);
        }
        at += length;
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
    found
}

/// What a run comes after.
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
        let may_be = after != After::Path && !rest.starts_with('@');
        let is_named = after == After::Scheme && !has_user(rest);
        let host = if may_be { host(text, at, run, escaped, is_named) } else { None };
        let is_host = host.is_some();
        found.extend(host.filter(|_| !signs || plain.0 < run));
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

/// Whether what follows a scheme and a name begins a password, or the rest of one.
fn has_user(rest: &str) -> bool {
    rest.chars().take(LONGEST).take_while(|c| !matches!(c, '/' | '\\' | '?' | '#')).any(|c| c == '@')
}

/// Whether it may be a letter of a host, or stands for some.
pub(crate) fn is_part(c: char) -> bool {
    // The sign of the rial stands for letters that no name has beside Latin ones.
    is_letter(c) || !c.is_ascii() && c != '﷼' && as_the_net(c).all(|letter| letter != c && is_letter(letter))
}

/// Whether the net takes it in a name as it is, though it is no letter: `☃`.
fn is_sign(c: char) -> bool {
    !c.is_ascii()
        && !is_part(c)
        && as_the_net(c).all(|read| read != '\u{fffd}' && (!read.is_ascii() || is_letter(read)))
}

fn is_part_or_sign(c: char) -> bool {
    is_part(c) || is_sign(c)
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || is_around(c) || !c.is_ascii() && is_combining_mark(c)
}

/// What the net makes of a character: for many signs nothing or some letters, and `U+FFFD` if no host can have it.
fn as_the_net(c: char) -> impl Iterator<Item = char> {
    static ADAPTER: Adapter = Adapter::new();
    ADAPTER.map_normalize(std::iter::once(c))
}

/// What a name may hold, but neither begins nor ends with: also dots of other writings, and signs that nobody sees.
fn is_around(c: char) -> bool {
    matches!(
        c,
        '.' | '-' | '_' | '。' | '．' | '｡' | '\u{ad}' | '\u{200b}'
            ..='\u{200d}' | '\u{2060}' | '\u{2064}' | '\u{feff}'
    )
}

/// Where a run of parts ends, and whether some of its letters are escaped.
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
    if !needs_none && !run.contains(|c| c == '%' || DOTS.contains(&c)) {
        return None;
    }
    // A character, and where it stands.
    let mut letters: Vec<(char, usize, usize)> = Vec::new();
    let mut at = 0;
    while let Some(first) = run[at..].chars().next() {
        let (letter, length) = escape(&run[at..]).unwrap_or((first, first.len_utf8()));
        if !is_letter(letter) {
            letters.extend(as_the_net(letter).map(|letter| (letter, at, at + length)));
        } else if !is_left_out(letter) {
            letters.push((letter, at, at + length));
        }
        at += length;
    }
    let first = letters.iter().position(|(c, ..)| !is_around(*c))?;
    let behind = letters.iter().rposition(|(c, ..)| !is_around(*c))? + 1;
    let written: String = letters[first..behind].iter().map(|(c, ..)| c).collect();
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
    Some(Host { name: name.into(), start: start + letters[from].1, end: start + letters[behind - 1].2 })
}

/// The last labels of a name, together no longer than this.
fn last(name: &str, most: usize) -> Option<&str> {
    let behind_dots = name.match_indices(DOTS).map(|(at, dot)| at + dot.len());
    std::iter::once(0).chain(behind_dots).find(|from| name.len() - from <= most).map(|from| &name[from..])
}

/// Nothing is left of this letter in a name as the net writes it.
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
mod tests {
    use super::*;

    fn hosts(text: &str) -> Vec<String> {
        let checked = |host: Host<'_>| {
            assert!(host.start < host.end && host.end <= text.len(), "{host:?} in {text}");
            assert!(text.is_char_boundary(host.start) && text.is_char_boundary(host.end));
            host.name.into_owned()
        };
        all(text).into_iter().map(checked).collect()
    }

    #[test]
    fn hosts_are_found_where_people_write_them() {
        for (text, expected) in [
            ("https://Bad.Example/a?b#c", &["bad.example"][..]),
            ("see http://user:pw@bad.example:8080/x, or ok.example.", &["bad.example", "ok.example"]),
            ("(https://a.example)", &["a.example"]),
            ("https://a.example?to=https://b.example/", &["a.example", "b.example"]),
            ("write to me@mail.example now", &["mail.example"]),
            ("<a href=\"//c.example/x\">", &["c.example"]),
            ("https://bücher.example/", &["xn--bcher-kva.example"]),
            ("https://ＢＡＤ。example/", &["bad.example"]),
            ("http://localhost/ x.y", &["localhost", "x.y"]),
            ("https://a.example,https://b.example", &["a.example", "b.example"]),
            ("no hosts here! : / // :// ... é @", &[]),
            ("http://", &[]),
            ("trailing.dot. ...dots..", &["trailing.dot"]),
            ("https://a.example/b.html#c.d see https://a.example:80/b.html", &["a.example", "a.example"]),
        ] {
            assert_eq!(hosts(text), expected, "{text}");
        }
    }

    #[test]
    fn no_sign_beside_a_host_hides_it() {
        for (text, expected) in [
            ("bad.example/go?to=https://ok.example", &["bad.example", "ok.example"][..]),
            ("bad.example,https://ok.example/", &["bad.example", "ok.example"]),
            ("ok.example,bad.example;c.example", &["ok.example", "bad.example", "c.example"]),
            ("see:bad.example url=bad.example x：bad.example", &["bad.example"; 3]),
            ("[x](bad.example) x(bad.example) 1)bad.example", &["bad.example"; 3]),
            ("me@bad.example,you@x.org", &["bad.example", "x.org"]),
            ("link→bad.example hello…bad.example bad.example’s 👉bad.example", &["bad.example"; 4]),
            ("https:/bad.example/ HTTP:\\\\bad.example x/bad.example", &["bad.example"; 3]),
            ("https://ok.example/?u=bad.example", &["ok.example", "bad.example"]),
            ("https://ok.example/https%3A%2F%2Fbad.example%2F", &["ok.example", "bad.example"]),
            ("https://me:secret@bad.example:80/a.b,c.example", &["bad.example", "c.example"]),
            ("https://ok.example@bad.example/", &["bad.example"]),
            ("*bad.example* _bad.example_ ~bad.example~", &["bad.example"; 3]),
            ("bad\u{ad}.exam\u{200b}ple \u{200b}bad.example\u{200b}", &["bad.example"; 2]),
            ("विकि.example", &["xn--11b7d4ab.example"]),
            ("http://b%61d.example/ https://BAD%2Eexample", &["bad.example"; 2]),
            ("https://www.B%C3%BCcher.example/x", &["www.xn--bcher-kva.example"]),
            ("%62ad.example%2e, b%C2%ADad.e\u{200b}xam%70le", &["bad.example"; 2]),
            ("https://ok.example/b%61d.example", &["ok.example"]),
            // No character of a host, or none at all: a sign like others.
            ("%2Fbad.example %F0%9F%91%89bad.example 100%bad.example", &["bad.example"; 3]),
            // What the net reads as other letters, or not at all.
            ("https://casi№.example/ ™.example", &["casino.example", "tm.example"]),
            ("b\u{2063}ad\u{206a}.example\u{2061} b\u{180e}ad%E2%81%A3.example", &["bad.example"; 2]),
            ("bad－site.example －bad﹣site.example＿", &["bad-site.example"; 2]),
            ("㊊.example", &["xn--7ov.example"]),
        ] {
            // Signs make hosts of their own with what they part.
            let mut found = hosts(text);
            found.retain(|host| expected.contains(&&**host) || !host.contains("xn--"));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn a_host_with_a_sign_in_its_name_is_found_beside_those_that_the_sign_parts() {
        for (text, expected) in [
            ("https://☃.example/", &["xn--n3h.example"][..]),
            ("at ☃.example, i❤.ws or i❤\u{fe0f}.ws", &["xn--n3h.example", "xn--i-7iq.ws", "xn--i-7iq.ws"]),
            ("https://%E2%98%83%2Eexample?x=☃.example", &["xn--n3h.example"; 2]),
            ("https://www.i❤.ws:80/☃.example", &["www.i", "www.xn--i-7iq.ws"]),
            ("me☃@☃.example", &["xn--n3h.example"]),
            ("👉bad.example", &["bad.example", "xn--bad-k113b.example"]),
            ("👉\u{fe0f}bad.example", &["bad.example", "xn--bad-k113b.example"]),
            ("ok.example→bad.example", &["ok.example", "bad.example", "ok.xn--examplebad-799e.example"]),
            ("good👍 see ok.example ❤", &["ok.example"]),
        ] {
            assert_eq!(hosts(text), expected, "{text}");
        }
    }

    #[test]
    fn an_address_is_read_without_its_tabs_and_line_ends() {
        for (text, name, place) in [
            ("https://bad.exa\tmple/", "bad.example", "bad.exa\tmple"),
            ("\thttps:\n//\rb\r\nad.example\t\n:80/x", "bad.example", "b\r\nad.example"),
            ("ht\ntps://www.b\tü\tcher.example", "www.xn--bcher-kva.example", "www.b\tü\tcher.example"),
            ("https://%6\t2ad.example", "bad.example", "%6\t2ad.example"),
            ("https://me:pw\n@bad.example", "bad.example", "bad.example"),
            ("https://bad.\n\n\nexample\n", "bad.example", "bad.\n\n\nexample"),
            ("\u{1f} https://bad.example\u{1}", "bad.example", "bad.example"),
        ] {
            let found = of_address(text);
            assert_eq!(found.len(), 1, "{text:?}: {found:?}");
            assert_eq!((&*found[0].name, &text[found[0].start..found[0].end]), (name, place), "{text:?}");
            let url = url::Url::parse(text);
            assert_eq!(url.as_ref().ok().and_then(url::Url::host_str), Some(name), "{text:?}");
        }
        assert_eq!(of_address("\t\n"), []);
        // In a text each line has hosts of its own.
        assert_eq!(hosts("bad.example\nnext ok.example\tx"), ["bad.example", "ok.example"]);
    }

    #[test]
    fn what_stands_before_or_inside_of_a_name_does_not_hide_its_end() {
        for (before, inside) in [
            ("a".to_owned() + &".".repeat(300), String::new()),
            ("sub.".repeat(9_000), String::new()),
            ("ü.".repeat(9_000), String::new()),
            ("x".repeat(300) + ".", String::new()),
            (String::new(), "\u{200b}".repeat(20_000)),
            ("é".to_owned(), "%E2%80%8B".repeat(5_000)),
            (String::new(), "\u{fe0f}\u{ad}".repeat(5_000)),
            (String::new(), "\u{2062}\u{3164}".repeat(5_000)),
        ] {
            let before = if inside.is_empty() { before } else { format!("{before}.") };
            let found = hosts(&format!("see {before}bad.ex{inside}ample now"));
            let [found] = &*found else { panic!("{found:?}") };
            assert!(found.ends_with("bad.example") && found.len() <= 253, "{found}");
            assert!(upwards(found).any(|name| name == "bad.example"), "{found}");
        }
        // A label that is cut off is another one.
        let cut = format!("{}bad.{}.example", "x".repeat(300), "y".repeat(240));
        assert_eq!(hosts(&cut), [format!("{}.example", "y".repeat(240))]);
        assert_eq!(hosts(&format!("x.{}", "y".repeat(254))), [""; 0]);
    }

    #[test]
    fn every_character_of_a_host_is_read_as_the_net_reads_it_and_every_other_hides_none() {
        let (mut plain, mut folded, mut refused, mut signs) = (0, 0, 0, 0);
        for c in ('\u{80}'..=char::MAX).filter(|c| !c.is_whitespace()) {
            let link = format!("za{c}bz.example");
            let parsed = url::Host::parse(&link).ok().map(|host| host.to_string());
            let is_plain =
                |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
            match parsed {
                Some(name) if is_plain(&name) && !name.contains("xn--") => {
                    plain += 1;
                    assert_eq!(hosts(&format!("https://{link}/")), [name], "{c:?}");
                }
                Some(name) if is_part(c) => {
                    folded += usize::from(!is_letter(c));
                    assert_eq!(hosts(&format!("https://{link}/")), [name], "{c:?}");
                }
                None if is_letter(c) => {}
                parsed => {
                    refused += 1;
                    let mut found = hosts(&format!("see {c}bad.example, bad.example{c}"));
                    found.retain(|host| !host.contains("xn--"));
                    assert_eq!(found, ["bad.example"; 2], "{c:?}");
                    let found = hosts(&format!("https://{link}/"));
                    match parsed {
                        Some(name) if is_sign(c) => {
                            signs += 1;
                            assert!(found.contains(&name), "{c:?}");
                        }
                        // Some make another host of it, which nobody can own.
                        _ => {}
                    }
                }
            }
            assert!(!is_letter(c) || is_left_out(c) == as_the_net(c).next().is_none(), "{c:?}");
        }
        let counts = (plain, folded, refused, signs);
        assert!(plain > 1_300 && folded > 500 && refused > 100_000 && signs > 3_000, "{counts:?}");
    }

    #[test]
    fn a_name_and_what_is_above_it() {
        assert_eq!(upwards("a.b.example").collect::<Vec<_>>(), ["a.b.example", "b.example", "example"]);
    }
}
