//! Detects expired pre-signed URLs.

use serde_json::Value;
use tidegate_schemas::{ids::Millis, item_types::datetime};

/// True if the data contains an expired URL.
pub(super) fn has_expired_url(data: &[u8], now: Millis) -> bool {
    // Cheap test first: most data contains no signed URL and need not be parsed.
    let may_contain_expiry =
        [&b"xpires"[..], b"se="].iter().any(|part| data.windows(part.len()).any(|window| window == *part));
    may_contain_expiry
        && serde_json::from_slice(data).is_ok_and(|value: Value| contains_expired_url(&value, now))
}

fn contains_expired_url(value: &Value, now: Millis) -> bool {
    match value {
        Value::String(text) => parse_expiry(text).is_some_and(|at| at <= now),
        Value::Array(values) => values.iter().any(|value| contains_expired_url(value, now)),
        Value::Object(members) => members.values().any(|value| contains_expired_url(value, now)),
        _ => false,
    }
}

/// Returns the expiry of a pre-signed URL: of S3 and compatible services, Google Cloud Storage, CloudFront, and
/// Azure.
fn parse_expiry(url: &str) -> Option<Millis> {
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return None;
    }
    let query = url.split_once('?')?.1.split('#').next()?;
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then(|| decode_percent(value)))
    };
    for vendor in ["Amz", "Goog"] {
        let date = parameter(&format!("X-{vendor}-Date"));
        let seconds = parameter(&format!("X-{vendor}-Expires"));
        if let (Some(date), Some(seconds)) = (date, seconds) {
            let seconds: u64 = seconds.parse().ok()?;
            return Some(parse_basic_instant(&date)?.plus(std::time::Duration::from_secs(seconds)));
        }
    }
    if let Some(seconds) = parameter("Expires") {
        return Some(Millis(seconds.parse::<i64>().ok()?.checked_mul(1_000)?));
    }
    // Azure sends a signature with the expiry; `se` alone can have any meaning.
    parameter("sig").and_then(|_| parameter("se")).and_then(|end| datetime::parse(&end))
}

/// Parses `20260102T030405Z`.
fn parse_basic_instant(text: &str) -> Option<Millis> {
    // Checked before slicing, which would panic inside a character.
    if text.len() != 16 || !text.is_ascii() {
        return None;
    }
    let part = |range: std::ops::Range<usize>| &text[range];
    let (year, month, day) = (part(0..4), part(4..6), part(6..8));
    let (hour, minute, second) = (part(9..11), part(11..13), part(13..15));
    datetime::parse(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}.000Z"))
}

/// Decodes percent escapes such as `%3A`. Invalid escapes are kept.
fn decode_percent(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = (*first == b'%').then(|| tail.get(..2)).flatten();
        let byte = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_of_pre_signed_urls_is_read() {
        let at = |text: &str| datetime::parse(text).map(|at| at.0);
        for (url, end) in [
            (
                "https://a/x.jpg?X-Amz-Date=20260102T030405Z&X-Amz-Expires=60&X-Amz-Signature=1",
                "2026-01-02T03:05:05.000Z",
            ),
            ("https://a/x.jpg?X-Goog-Expires=1&X-Goog-Date=20260102T030405Z", "2026-01-02T03:04:06.000Z"),
            ("https://a/x.jpg?Key-Pair-Id=k&Expires=1767323045", "2026-01-02T03:04:05.000Z"),
            ("https://a/x.jpg?sv=1&se=2026-01-02T03%3A04%3A05Z&sig=abc", "2026-01-02T03:04:05.000Z"),
        ] {
            assert_eq!(parse_expiry(url).map(|at| at.0), at(end), "{url}");
        }
        for url in [
            "https://a/x.jpg",
            "https://a/x.jpg?se=2026-01-02T03:04:05Z",
            "https://a/x.jpg?Expires=soon",
            "https://a/x.jpg?X-Amz-Date=2026&X-Amz-Expires=60",
            "not an address?Expires=1",
        ] {
            assert_eq!(parse_expiry(url), None, "{url}");
        }
    }

    #[test]
    fn expired_url_is_found_in_nested_data() {
        let data = br#"{"images": ["https://a/?Expires=9"], "more": {"x": [{"y": "https://a/?Expires=5"}]}}"#;
        assert!(!has_expired_url(data, Millis(4_999)));
        assert!(has_expired_url(data, Millis(5_000)));
        assert!(!has_expired_url(b"{\"text\": \"se=\"}", Millis(5_000)));
    }
}
