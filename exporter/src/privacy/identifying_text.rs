//! Finds and redacts e-mail and web addresses, telephone numbers and handles in texts.
//!
//! Names of people cannot be recognised by a pattern, so a redacted text still counts as free text.

use std::sync::LazyLock;

use regex::Regex;

use crate::form::TextAuthor;

/// Token, pattern, and whether the identifier points to a person. Order matters: an earlier match hides a later one.
const KINDS: [(&str, &str, bool); 6] = [
    // Local part and host in any alphabet. Before web addresses, which may contain one. In scripts without spaces the
    // match takes the surrounding characters with it.
    ("[email]", MAIL, true),
    ("[url]", r#"(?i)\b(?:https?://|www\.)[^\s<>"']*[^\s<>"'.,;:!?)]"#, false),
    ("[url]", BARE, false),
    ("[ip]", IP, true),
    ("[handle]", r"(?:^|[^\w@/])@[A-Za-z0-9_][A-Za-z0-9_.]+", true),
    // Eight or more digits with common separators and any dash: years and amounts are shorter. Or seven digits in US
    // notation.
    ("[phone]", r"\+?\(?\d(?:[\s().\p{Pd}\u{2212}/]{0,2}\d){7,}|\b\d{3}[\p{Pd}\u{2212}]\d{4}\b", true),
];

/// E-mail address. The local part may be quoted, and `@` may be full-width or percent-encoded any number of times.
const MAIL: &str = r#"(?x) (?: [\p{L}\p{M}\p{N}._%+-]+ | "[^"\s]*(?:\x20[^"\s]+)*" )
    (?: [@\u{ff20}] | %(?:25)*40 )
    (?: [\p{L}\p{M}\p{N}-]+ (?: \. [\p{L}\p{M}\p{N}-]+ )+ | localhost\b )"#;

/// Host without a scheme, and its path. Endings that are also words count only with a path: people omit the space
/// after a full stop.
const BARE: &str = r#"(?xi) \b (?: [\p{L}\p{N}] [\p{L}\p{N}-]* \. )+ (?:
    (?: com | org | net | edu | gov | mil | info | biz | io | ai | app | dev | eu | uk | de | fr | nl | ch | pl | ru
        | cz | dk | fi | jp | cn | br | ca | nz | kr | tw | hk | sg | ie | tr | ua | gr | pt | hu | ro )
    \b (?: [/?:] [^\s<>"']* [^\s<>"'.,;:!?)] )?
    | \p{L}{2,24} / [^\s<>"']* [^\s<>"'.,;:!?)] )"#;

/// IP addresses: version 6 with `::` or written out, and version 4. They must not be part of a word.
const IP: &str = r"(?xi)
    (?: \b [0-9a-f]{1,4} (?: : [0-9a-f]{1,4} ){0,6} :: | \B :: )
    (?: (?: [0-9a-f]{1,4} : ){0,6} (?: (?: \d{1,3} \. ){3} \d{1,3} | [0-9a-f]{1,4} ) \b (?: % \w+ )? )
    | \b [0-9a-f]{1,4} (?: : [0-9a-f]{1,4} ){0,6} :: \B
    | \b (?: [0-9a-f]{1,4} : ){3,7} [0-9a-f]{1,4} \b (?: % \w+ )?
    | \b (?: \d{1,3} \. ){3} \d{1,3} \b";

/// Year ranges and dates, which have as many digits as a telephone number.
const YEARS: &str = r"(?x)^(?:1[5-9]|2[01])\d\d
    (?: \x20? \p{Pd} \x20? (?:1[5-9]|2[01])\d\d | [-/] (?:0\d|1[0-2]) [-/] [0-3]\d )$";

static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| KINDS.iter().map(|kind| compile(kind.1)).collect());
static YEARS_PATTERN: LazyLock<Regex> = LazyLock::new(|| compile(YEARS));

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant")
}

/// Replaces identifiers by tokens, and returns the text with the number of replacements.
pub(crate) fn redact(text: &str) -> (String, u64) {
    let (mut text, mut count) = (text.to_owned(), 0);
    for ((token, ..), pattern) in KINDS.iter().zip(PATTERNS.iter()) {
        let mut replacements = 0;
        let replaced = pattern.replace_all(&text, |captures: &regex::Captures<'_>| {
            let identifier = &captures[0];
            // Year ranges match the pattern of telephone numbers.
            if YEARS_PATTERN.is_match(identifier) {
                return identifier.to_owned();
            }
            replacements += 1;
            // The pattern of a handle includes the preceding character, which must stay.
            let prefix_length = if *token == "[handle]" && !identifier.starts_with('@') {
                identifier.chars().next().map_or(0, char::len_utf8)
            } else {
                0
            };
            format!("{}{token}", &identifier[..prefix_length])
        });
        if replacements > 0 {
            text = replaced.into_owned();
            count += replacements;
        }
    }
    (text, count)
}

/// Dates, and plain numbers without a sign, space or leading zero: tools do not write telephone numbers like that.
const COUNT_OR_DATE: &str =
    r"(?x)^(?: [1-9]\d* | (?:1[5-9]|2[01])\d\d [-./] (?:0\d|1[0-2]) [-./] [0-3]\d (?:\x20\d\d)? )$";
/// UUIDs and hexadecimal digests.
const DIGEST: &str =
    r"(?xi) \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b | \b[0-9a-f]{32,}\b";

static COUNT_OR_DATE_PATTERN: LazyLock<Regex> = LazyLock::new(|| compile(COUNT_OR_DATE));
static DIGEST_PATTERN: LazyLock<Regex> = LazyLock::new(|| compile(DIGEST));

/// Percent-encoded `@`, as in web addresses.
static ESCAPED_AT_SIGN: LazyLock<Regex> = LazyLock::new(|| compile("%(?:25)*40"));

/// Telephone number with a country code.
static INTERNATIONAL_NUMBER: LazyLock<Regex> =
    LazyLock::new(|| compile(r"\+\(?\d(?:[\s().\p{Pd}\u{2212}/]{0,2}\d){7,}"));

/// True if an id contains an e-mail address, handle or international number. Digits and dots alone are common in ids.
pub(crate) fn is_address(id: &[u8]) -> bool {
    if memchr::memchr3(b'@', b'%', b'+', id).is_none() && memchr::memchr(0xef, id).is_none() {
        return false;
    }
    let id = String::from_utf8_lossy(id);
    id.contains(['@', '\u{ff20}']) || ESCAPED_AT_SIGN.is_match(&id) || INTERNATIONAL_NUMBER.is_match(&id)
}

/// True if the text contains an identifier of a person.
pub(crate) fn identifies(text: &str, hand: TextAuthor) -> bool {
    if hand == TextAuthor::Reference {
        return is_address(text.as_bytes());
    }
    // Fast path: every pattern needs one of these bytes; a percent-encoded `@` contains digits.
    if !text.bytes().any(|byte| matches!(byte, b'@' | b':' | b'0'..=b'9') || !byte.is_ascii()) {
        return false;
    }
    let digests;
    let text = if hand == TextAuthor::Tool {
        // A digest may contain digits that look like a telephone number.
        digests = DIGEST_PATTERN.replace_all(text, "");
        &digests
    } else {
        text
    };
    // Tools write counts and dates, which resemble telephone numbers.
    let is_harmless = |fragment: &str| {
        YEARS_PATTERN.is_match(fragment)
            || hand == TextAuthor::Tool && COUNT_OR_DATE_PATTERN.is_match(fragment)
    };
    let matches = |pattern: &Regex| pattern.find_iter(text).any(|fragment| !is_harmless(fragment.as_str()));
    KINDS
        .iter()
        .zip(PATTERNS.iter())
        .any(|((.., identifies_person), pattern)| *identifies_person && matches(pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_replaced_and_counted() {
        let text = "Ask jo.li+x@city.example or @jo_li, call +49 (30) 1234-5678, see https://a.example/?u=1 from 10.1.2.3";
        let (redacted, count) = redact(text);
        assert_eq!(redacted, "Ask [email] or [handle], call [phone], see [url] from [ip]");
        assert_eq!(count, 5);
        assert!(identifies(text, TextAuthor::People) && !identifies(&redacted, TextAuthor::People));
    }

    #[test]
    fn every_spelling_of_an_identifier_is_found() {
        for (token, forms) in [
            (
                "[email]",
                &[
                    "j\u{f6}rg.m\u{fc}ller@b\u{fc}cher.example",
                    "\u{438}\u{432}\u{430}\u{43d}@\u{43f}\u{43e}\u{447}\u{442}\u{430}.\u{440}\u{444}",
                    "jo\u{308}rg@home.example",
                    "bob@localhost",
                    "bob\u{ff20}city.example",
                    "\"bob b\"@city.example",
                    "jane.doe%40city.example",
                    "jane.doe%2540city.example",
                ][..],
            ),
            (
                "[ip]",
                &[
                    "2001:db8::8a2e:370:7334",
                    "fe80::1%eth0",
                    "::1",
                    "2001:DB8::",
                    "::ffff:192.0.2.1",
                    "64:ff9b::192.0.2.33",
                    "2001:db8:0:0:8:800:200c:417a",
                    "1::2:3:4:5:6:7",
                    "192.0.2.1",
                ],
            ),
            (
                "[url]",
                &[
                    "city.example/petition?me=1",
                    "t.me/joinchat",
                    "docs.city.org",
                    "B\u{fc}cher.de",
                    "city.co.uk/a",
                    "city.com:8080/a",
                    "https://city.example/a",
                ],
            ),
            (
                "[phone]",
                &[
                    "555-0100",
                    "4111 1111 1111 1111",
                    "4111111111111111",
                    "89 3704 0044 0532 0130 00",
                    "030\u{2013}1234\u{2013}5678",
                    "+49\u{a0}30\u{2011}12\u{2011}34\u{2011}56\u{2011}78",
                    "030\u{2010}1234567",
                    "030\u{2212}1234567",
                    "+1 (212) 555\u{2014}0100",
                ],
            ),
        ] {
            for form in forms {
                assert_eq!(
                    redact(&format!("see {form}, or (2)")),
                    (format!("see {token}, or (2)"), 1),
                    "{form}"
                );
                assert_eq!(redact(form), (token.to_owned(), 1), "{form}");
                assert_eq!(identifies(form, TextAuthor::People), token != "[url]", "{form}");
            }
        }
    }

    #[test]
    fn plain_statements_stay_as_they_are() {
        for text in [
            "In 2014, $15/hour would raise 100 000 wages by 3.5% - \u{201c}really\u{201d} @ work, 24/7",
            "On 2024-05-06, 2024-05-06 and 2024/12/31",
            "From 2014\u{2013}2018 and 1990 - 2005, at 12:30:45 or 9:00:",
            "We need jobs.It is so, e.g. 3.5.x and/or more... U.S. schools.Is it? No 100-200 and 9-5, v1.2/3",
            "std::vector, not Add::more; yes::, no: \u{fc}::1",
        ] {
            assert_eq!(redact(text), (text.to_owned(), 0));
            assert!(!identifies(text, TextAuthor::People));
        }
    }
    #[test]
    fn counts_dates_and_digests_identify_nobody() {
        for text in [
            "10000000 answers were replaced",
            "2 files were not used: polis-2024-05-06.csv, 20240506.csv",
            "as of 2024-05-06 07:08:09 and 2024-05-06T07:08:09Z",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "session:3f2b8c1e-0000-4000-8000-000000000001",
            "https://pol.is/report/r12345678",
        ] {
            assert!(!identifies(text, TextAuthor::Tool), "{text}");
        }
        for text in
            ["030 12345678", "+493012345678", "03012345678.csv", "ada@city.example", "see @ada_l", "10.1.2.3"]
        {
            assert!(identifies(text, TextAuthor::Tool), "{text}");
        }
        assert!(
            identifies("ada@city", TextAuthor::Reference)
                && !identifies("030 12345678", TextAuthor::Reference)
        );
    }
}
