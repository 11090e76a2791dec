//! Checks the two formats of the schema: date-time (RFC 3339) and URI (RFC 3986).

use fluent_uri::Uri;

/// True for a date and time with an offset. A leap second is valid only at 23:59:60 in UTC.
// `jiff` is not used because its parser accepts more than RFC 3339: a space instead of the `T`, offsets without a
// colon, any leap second. Speed matters as well, since each response of a bundle has such a time.
pub(crate) fn is_date_time(text: &[u8]) -> bool {
    let Some((day, clock)) = text.split_at_checked(10) else { return false };
    let Some((time, fraction_and_offset)) = clock.split_at_checked(9) else { return false };
    let (Some(year), Some(month), Some(date)) =
        (parse_digits(&day[..4]), parse_digits(&day[5..7]), parse_digits(&day[8..10]))
    else {
        return false;
    };
    let (Some(hour), Some(minute), Some(second)) =
        (parse_digits(&time[1..3]), parse_digits(&time[4..6]), parse_digits(&time[7..9]))
    else {
        return false;
    };
    let has_shape = day[4] == b'-'
        && day[7] == b'-'
        && matches!(time[0], b'T' | b't')
        && time[3] == b':'
        && time[6] == b':';
    let is_possible = (1..=12).contains(&month)
        && (1..=days_of_month(year, month)).contains(&date)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !has_shape || !is_possible {
        return false;
    }
    let offset = match fraction_and_offset {
        [b'.', rest @ ..] => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return false;
            }
            &rest[digits..]
        }
        rest => rest,
    };
    let minutes = match offset {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), clock @ ..] if clock.len() == 5 && clock[2] == b':' => {
            match (parse_digits(&clock[..2]), parse_digits(&clock[3..])) {
                (Some(hours), Some(minutes)) if hours < 24 && minutes < 60 => {
                    let minutes = i64::from(hours * 60 + minutes);
                    if *sign == b'+' { minutes } else { -minutes }
                }
                _ => return false,
            }
        }
        _ => return false,
    };
    second < 60 || (i64::from(hour * 60 + minute) - minutes).rem_euclid(24 * 60) == 24 * 60 - 1
}

fn parse_digits(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u32::from(digit - b'0')))
}

fn days_of_month(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// True for a URI with a scheme. A relative reference is not a URI.
pub(crate) fn is_uri(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| Uri::parse(text).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_time_needs_valid_fields_and_an_offset() {
        for good in [
            "2024-02-29T23:59:59Z",
            "2024-05-06t07:08:09.123456789z",
            "1999-12-31T23:59:60Z",
            "1999-12-31T15:59:60.5-08:00",
            "0000-01-01T00:00:00+23:59",
        ] {
            assert!(is_date_time(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "2024-05-06",
            "2024-05-06T07:08:09",
            "2024-05-06 07:08:09Z",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-05-06T24:00:00Z",
            "2024-05-06T07:08Z",
            "2024-05-06T07:08:09.Z",
            "2024-05-06T07:08:09+0100",
            "2024-05-06T07:08:09+24:00",
            "2024-05-06T07:08:09Z ",
            "1999-12-31T22:59:60Z",
            "2024-05-06T07:08:61Z",
            "２024-05-06T07:08:09Z",
        ] {
            assert!(!is_date_time(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn uri_needs_a_scheme_and_encoded_characters() {
        for good in [
            "https://example.org/a/b?c=d#e",
            "urn:isbn:1",
            "a:",
            "file:///etc",
            "http://u:p@[2001:db8::1]:80/",
            "http://[v7.a:b]/",
            "x-y+z.1://h:/%20",
            "mailto:a@b?subject=x",
            "http://",
        ] {
            assert!(is_uri(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "a/b",
            "//example.org",
            ":a",
            "1a:b",
            "http://a b/",
            "http://a/%2",
            "http://a/ü",
            "http://[::1",
            "http://[fe80::1%25eth0]/",
            "http://a:b:c/",
            "http://a:8o/",
            "http://a/#b#c",
            "http://a/\\",
            "http://a/{b}",
            "http://a@b@c/",
        ] {
            assert!(!is_uri(bad.as_bytes()), "{bad}");
        }
    }
}
