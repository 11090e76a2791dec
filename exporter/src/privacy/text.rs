//! What in a free text names somebody: addresses, numbers, handles.
//!
//! It finds what has a form. Names of people have none, which is why a redacted text is still a free text.

use std::sync::LazyLock;

use regex::Regex;

/// What was found, in the order in which it is looked for.
const KINDS: [(&str, &str, bool); 5] = [
    // A name and its host; before addresses of pages, which may hold one.
    ("[email]", r"(?i)[a-z0-9._%+-]+@[a-z0-9-]+(?:\.[a-z0-9-]+)+", true),
    ("[url]", r#"(?i)\b(?:https?://|www\.)[^\s<>"']+"#, false),
    ("[ip]", r"\b(?:\d{1,3}\.){3}\d{1,3}\b|(?i)\b(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}\b", true),
    ("[handle]", r"(?:^|[^\w@/])@[A-Za-z0-9_][A-Za-z0-9_.]+", true),
    // Eight digits or more, as people write them; years and amounts are shorter.
    ("[phone]", r"\+?\(?\d(?:[\s().\-/]{0,2}\d){7,14}", true),
];

static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    KINDS.iter().map(|(_, pattern, _)| Regex::new(pattern).expect("the pattern is a constant")).collect()
});

/// The text with tokens in place of what was found, and how many there were.
pub(crate) fn redact(text: &str) -> (String, u64) {
    let (mut text, mut count) = (text.to_owned(), 0);
    for ((token, ..), pattern) in KINDS.iter().zip(PATTERNS.iter()) {
        let mut found = 0;
        let replaced = pattern.replace_all(&text, |whole: &regex::Captures<'_>| {
            found += 1;
            // The character before a handle belongs to the text.
            let whole = &whole[0];
            let kept = if *token == "[handle]" && !whole.starts_with('@') {
                whole.chars().next().map_or(0, char::len_utf8)
            } else {
                0
            };
            format!("{}{token}", &whole[..kept])
        });
        if found > 0 {
            text = replaced.into_owned();
            count += found;
        }
    }
    (text, count)
}

/// Whether something in the text would identify a person directly.
pub(crate) fn identifies(text: &str) -> bool {
    KINDS.iter().zip(PATTERNS.iter()).any(|((.., person), pattern)| *person && pattern.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_somebody_is_replaced_and_counted() {
        let text = "Ask jo.li+x@city.example or @jo_li, call +49 (30) 1234-5678, see https://a.example/?u=1 from 10.1.2.3";
        let (redacted, count) = redact(text);
        assert_eq!(redacted, "Ask [email] or [handle], call [phone], see [url] from [ip]");
        assert_eq!(count, 5);
        assert!(identifies(text) && !identifies(&redacted));
    }

    #[test]
    fn plain_statements_stay_as_they_are() {
        let text =
            "In 2014, $15/hour would raise 100 000 wages by 3.5% - \u{201c}really\u{201d} @ work, 24/7";
        assert_eq!(redact(text), (text.to_owned(), 0));
        assert!(!identifies(text));
    }
}
