//! Finds the hosts that a text names: in addresses, in mail addresses, and bare.
//!
//! It resolves none and judges none.

use std::borrow::Cow;

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
/// Between spaces and quotes, each `://` is followed by a host, also inside of another address. A piece without one is
/// a host if it has a dot, up to a slash, a colon or a question mark; of a mail address what follows the `@`.
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

fn piece<'a>(text: &'a str, start: usize, end: usize, found: &mut impl FnMut(Host<'a>) -> bool) -> bool {
    let Some(first) = text[start..end].find("://") else {
        return authority(text, start, end).is_none_or(|host| !host.name.contains('.') || found(host));
    };
    let mut at = start + first + 3;
    loop {
        let next = text[at..end].find("://").map_or(end, |next| at + next);
        if let Some(host) = authority(text, at, next)
            && !found(host)
        {
            return false;
        }
        if next == end {
            return true;
        }
        at = next + 3;
    }
}

/// What stands before the first slash, without user, port, and signs around it.
fn authority(text: &str, start: usize, end: usize) -> Option<Host<'_>> {
    let before =
        |start: usize, end: usize, ends: &[char]| text[start..end].find(ends).map_or(end, |at| start + at);
    let inside = |c: char| c.is_alphanumeric();
    let mut from = start + text[start..end].find(inside)?;
    let mut to = before(from, end, &['/', '?', '#', '\\']);
    if let Some(user) = text[from..to].rfind('@') {
        from += user + 1;
    }
    to = before(from, to, &[':', ',', ';', ')', ']', '&', '=']);
    let last = text[from..to].char_indices().rev().find(|(_, c)| inside(*c))?;
    to = from + last.0 + last.1.len_utf8();
    from += text[from..to].find(inside)?;
    let written = &text[from..to];
    if written.len() > LONGEST {
        return None;
    }
    Some(Host { name: name(written)?, start: from, end: to })
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
        ] {
            assert_eq!(hosts(text), expected, "{text}");
        }
    }

    #[test]
    fn a_name_and_what_is_above_it() {
        assert_eq!(upwards("a.b.example").collect::<Vec<_>>(), ["a.b.example", "b.example", "example"]);
    }
}
