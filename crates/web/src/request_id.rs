//! Request ids: taken from `x-request-id` if well formed, or else generated, and returned with every answer. They only serve to
//! find a request in logs, records and answers.

use std::{fmt, sync::Arc};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue},
};
use tidegate_schemas::ids::SubmissionId;
use uuid::fmt::Simple;

pub(crate) const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");
const MAX_ID_BYTES: usize = 128;

/// Id of a request. Clones share the text.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestId(Arc<str>);

impl RequestId {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn from_request(request: &Request) -> Self {
        Self::from_headers(request.headers())
    }

    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let header_value = headers.get(REQUEST_ID_HEADER).and_then(|value| value.to_str().ok());
        match header_value {
            // An id that is not well formed is replaced, not refused: the request itself may be valid.
            Some(text) if is_well_formed(text) => Self(Arc::from(text)),
            _ => {
                let mut text = [0; Simple::LENGTH];
                Self(Arc::from(&*SubmissionId::random().0.simple().encode_lower(&mut text)))
            }
        }
    }
}

impl RequestId {
    /// Returns the id as a header value.
    pub(crate) fn to_header_value(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.as_str()).ok()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// True if the text is harmless in both headers and logs.
fn is_well_formed(text: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_ids_are_accepted() {
        for good in ["a", "0f3c-1", "Root=1-5759e988:x/y+z=", &"a".repeat(128)] {
            assert!(is_well_formed(good), "{good}");
        }
        for bad in ["", "a b", "a\"b", "ä", "a\nb", "{x}", &"a".repeat(129)] {
            assert!(!is_well_formed(bad), "{bad}");
        }
    }
}
