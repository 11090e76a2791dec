//! The id of a request: taken from `x-request-id` if it is well formed, else minted, and always given back.
//!
//! It is for finding one request in logs, records and answers; nothing is derived from it.

use std::{fmt, sync::Arc};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue},
};
use tidegate_schemas::ids::SubmissionId;
use uuid::fmt::Simple;

pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const LONGEST: usize = 128;

/// One text, however many hold it.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestId(Arc<str>);

impl RequestId {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn of(request: &Request) -> Self {
        Self::of_headers(request.headers())
    }

    pub(crate) fn of_headers(headers: &HeaderMap) -> Self {
        let sent = headers.get(HEADER).and_then(|value| value.to_str().ok());
        match sent {
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
    pub(crate) fn header(&self) -> Option<HeaderValue> {
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

/// It goes into headers and logs, so only what is harmless in both is taken.
fn is_well_formed(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_ids_are_taken() {
        for good in ["a", "0f3c-1", "Root=1-5759e988:x/y+z=", &"a".repeat(128)] {
            assert!(is_well_formed(good), "{good}");
        }
        for bad in ["", "a b", "a\"b", "ä", "a\nb", "{x}", &"a".repeat(129)] {
            assert!(!is_well_formed(bad), "{bad}");
        }
    }
}
