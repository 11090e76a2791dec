//! Validation of the headers that can be configured for an endpoint.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Reason for refusing a header. The text never contains a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("`{0}` is no header name")]
    Name(String),
    #[error("the header `{0}` is set by the service or the connection and cannot be configured")]
    Forbidden(String),
    #[error("the header `{0}` is given twice")]
    Twice(String),
    #[error("the value of the header `{0}` has characters that a header cannot carry")]
    Value(String),
}

impl HeaderError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Name(_) => "header_name",
            Self::Forbidden(_) => "header_forbidden",
            Self::Twice(_) => "header_twice",
            Self::Value(_) => "header_value",
        }
    }
}

/// Checks that these headers can be configured on an endpoint.
pub fn check_headers(headers: &[(String, String)]) -> Result<(), HeaderError> {
    parse_headers(headers).map(drop)
}

pub(crate) fn parse_headers(headers: &[(String, String)]) -> Result<HeaderMap, HeaderError> {
    // With room for the headers that the service adds.
    let mut map = HeaderMap::with_capacity(headers.len() + 8);
    for (text, value) in headers {
        let name = HeaderName::try_from(text).map_err(|_| HeaderError::Name(text.clone()))?;
        if is_forbidden(name.as_str()) {
            return Err(HeaderError::Forbidden(text.clone()));
        }
        let mut value = HeaderValue::try_from(value).map_err(|_| HeaderError::Value(text.clone()))?;
        // Sensitive values are left out of the HTTP library's debug output.
        value.set_sensitive(true);
        if map.insert(name, value).is_some() {
            return Err(HeaderError::Twice(text.clone()));
        }
    }
    Ok(map)
}

/// True for headers that the service or the connection sets, for headers of browsers, and for those in which
/// proxies name the sender.
fn is_forbidden(name: &str) -> bool {
    const NAMES: [&str; 24] = [
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "cookie2",
        "date",
        "expect",
        "forwarded",
        "host",
        "http2-settings",
        "keep-alive",
        "origin",
        "referer",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "x-http-method-override",
        "x-real-ip",
    ];
    const PREFIXES: [&str; 5] = ["proxy-", "sec-", "service-", "webhook-", "x-forwarded-"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: &str) -> Result<(), HeaderError> {
        check_headers(&[(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn endpoint_may_have_own_headers() {
        for name in ["Authorization", "X-Api-Key", "x-tenant", "traceparent"] {
            assert_eq!(check(name, "some value"), Ok(()), "{name}");
        }
    }

    #[test]
    fn service_and_connection_headers_are_refused() {
        for name in [
            "Content-Type",
            "content-length",
            "HOST",
            "Connection",
            "User-Agent",
            "Transfer-Encoding",
            "Cookie",
            "TE",
            "Trailer",
            "Upgrade",
            "Keep-Alive",
            "Proxy-Authorization",
            "Proxy-Connection",
            "Service-Signature",
            "service-anything",
            "Webhook-Id",
            "webhook-signature",
            "Expect",
            "Accept-Encoding",
            "X-Forwarded-For",
        ] {
            assert_eq!(check(name, "x"), Err(HeaderError::Forbidden(name.to_owned())), "{name}");
        }
    }

    #[test]
    fn unsendable_header_is_refused_without_its_value() {
        for name in ["", "a b", "a:b", "a\r\nb", "\u{e4}"] {
            assert_eq!(check(name, "x"), Err(HeaderError::Name(name.to_owned())), "{name:?}");
        }
        for value in ["a\r\nhost: b", "a\nb", "\0"] {
            let error = check("x-key", value).expect_err("the value cannot be sent");
            assert_eq!(error, HeaderError::Value("x-key".to_owned()));
            assert!(!error.to_string().contains(value));
        }
        let twice = [("X-Key".to_owned(), "1".to_owned()), ("x-key".to_owned(), "2".to_owned())];
        assert_eq!(check_headers(&twice), Err(HeaderError::Twice("x-key".to_owned())));
    }
}
