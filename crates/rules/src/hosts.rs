//! Finds the hosts that a text names: in addresses, in mail addresses, and bare.
//!
//! It resolves none and judges none.

use std::borrow::Cow;

use unicode_normalization::char::is_combining_mark;

/// A host in a text, as it is compared, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Longer names are none.
const LONGEST: usize = 253;

/// Calls `found` for each host; it says whether to go on.
///
/// A host is a run of letters, digits, dots and hyphens with a dot in it, wherever it stands but for two places: in the
/// path of another host, and before an `@`. After `://` it needs no dot.
pub(crate) fn each<'a>(text: &'a str, found: &mut impl FnMut(Host<'a>) -> bool) {
    let ends = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '`' | '|' | '{' | '}');
    let mut at = 0;
    while at < text.len() {
        let length = text[at..].find(ends).unwrap_or(text.len() - at);
        if length > 0 && !piece(text, at, at + length, found) {
            return;
        }
        at += length;
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
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

fn piece<'a>(text: &'a str, mut at: usize, end: usize, found: &mut impl FnMut(Host<'a>) -> bool) -> bool {
    let mut after = After::Anything;
    while at < end {
        let run = text[at..end].find(|c| !is_of_host(c)).map_or(end, |length| at + length);
        let rest = &text[run..end];
        let host = host(text, at, run).filter(|host| {
            let is_named = host.name.contains('.') || after == After::Scheme && !has_user(rest);
            is_named && after != After::Path && !rest.starts_with('@')
        });
        let is_host = host.is_some();
        if !host.is_none_or(&mut *found) {
            return false;
        }
        let is_port = after == After::Host && run > at && text[at..run].bytes().all(|b| b.is_ascii_digit());
        let Some(sign) = rest.chars().next() else { return true };
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
            // `%2F` is a slash, and its digits are no part of a name.
            let is_escape =
                sign == '%' && rest.bytes().skip(1).take(2).filter(u8::is_ascii_hexdigit).count() == 2;
            (next, run + if is_escape { 3 } else { sign.len_utf8() })
        };
    }
    true
}

/// Whether what follows a scheme and a name begins a password, or the rest of one.
fn has_user(rest: &str) -> bool {
    rest.chars().take(LONGEST).take_while(|c| !matches!(c, '/' | '\\' | '?' | '#')).any(|c| c == '@')
}

fn is_of_host(c: char) -> bool {
    c.is_alphanumeric() || is_around(c) || !c.is_ascii() && is_combining_mark(c)
}

/// What a name may hold, but neither begins nor ends with: also dots of other writings, and signs that nobody sees.
fn is_around(c: char) -> bool {
    matches!(
        c,
        '.' | '-' | '_' | '。' | '．' | '｡' | '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}'
    )
}

fn host(text: &str, start: usize, end: usize) -> Option<Host<'_>> {
    let start = start + text[start..end].find(|c| !is_around(c))?;
    let written = text[start..end].trim_end_matches(is_around);
    if written.len() > LONGEST {
        return None;
    }
    Some(Host { name: name(written)?, start, end: start + written.len() })
}

/// In lower case, and letters beyond ASCII as the net writes them.
fn name(written: &str) -> Option<Cow<'_, str>> {
    if written.is_ascii() {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        if !written.bytes().all(plain) {
            return None;
        }
        return Some(if written.bytes().any(|b| b.is_ascii_uppercase()) {
            Cow::Owned(written.to_ascii_lowercase())
        } else {
            Cow::Borrowed(written)
        });
    }
    match url::Host::parse(written) {
        Ok(url::Host::Domain(domain)) => Some(Cow::Owned(domain)),
        _ => None,
    }
}

/// A name, and each of the domains above it.
pub(crate) fn upwards(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, above)| above))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Vec<String> {
        let mut hosts = Vec::new();
        each(text, &mut |host| {
            assert!(host.start < host.end && host.end <= text.len(), "{host:?} in {text}");
            assert!(text.is_char_boundary(host.start) && text.is_char_boundary(host.end));
            hosts.push(host.name.into_owned());
            true
        });
        hosts
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
        ] {
            assert_eq!(hosts(text), expected, "{text}");
        }
    }

    #[test]
    fn a_name_and_what_is_above_it() {
        assert_eq!(upwards("a.b.example").collect::<Vec<_>>(), ["a.b.example", "b.example", "example"]);
    }
}
