//! Validation errors of a request, each with a JSON Pointer. The response around them is rendered in `tidegate-web`.

use std::fmt;

use serde::Serialize;

/// Error types of the API. Clients match on them.
pub mod tag {
    pub const INVALID_INPUT: &str = "/errors/invalid-user-input";
    pub const DATA_INVALID: &str = "/errors/data-invalid-for-item-type";
    pub const ROLES_INVALID: &str = "/errors/field-roles-invalid-for-item-type";
    pub const UNKNOWN_CONTENT_TYPE: &str = "/errors/unrecognized-content-type";
    pub const CONTENT_INVALID: &str = "/errors/content-invalid-for-content-type";
    pub const AUTHENTICATION: &str = "/errors/authentication-failed-or-missing";
    pub const AUTHORIZATION: &str = "/errors/authorization-failed";
    pub const NOT_FOUND: &str = "/errors/not-found";
    pub const CONFLICT: &str = "/errors/conflict";
    pub const IDEMPOTENCY_KEY_REUSED: &str = "/errors/idempotency-key-reused";
    pub const UNIQUE_VIOLATION: &str = "/errors/unique-violation";
    pub const CONCURRENT_UPDATE: &str = "/errors/concurrent-update-conflict";
    pub const INTERNAL: &str = "/errors/internal-server-error";
    pub const TOO_LARGE: &str = "/errors/request-too-large";
    pub const EVALUATION_TIMEOUT: &str = "/errors/evaluation-timeout";
    pub const RATE_LIMITED: &str = "/errors/rate-limited";
}

/// One error of a request. It contains names but no values of `data`, which can be personal data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValidationError {
    pub status: u16,
    /// JSON Pointer (RFC 6901); absent for the root of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    #[serde(rename = "type")]
    pub tags: Vec<&'static str>,
    pub title: &'static str,
    pub detail: String,
}

impl ValidationError {
    /// Error for a request that violates the schema of its endpoint.
    pub fn invalid(at: &Pointer<'_>, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status: 400,
            pointer: at.render(),
            tags: vec![tag::INVALID_INPUT],
            title,
            detail: detail.into(),
        }
    }

    /// Error for `data` that violates its item type.
    pub fn data(at: &Pointer<'_>, detail: impl Into<String>) -> Self {
        Self {
            tags: vec![tag::DATA_INVALID, tag::INVALID_INPUT],
            ..Self::invalid(at, "Invalid Data for Item", detail)
        }
    }

    /// Error for a field whose role requires another role that has no value.
    pub fn roles(at: &Pointer<'_>, detail: impl Into<String>) -> Self {
        Self {
            tags: vec![tag::ROLES_INVALID, tag::INVALID_INPUT],
            ..Self::invalid(at, "Invalid field roles for Item", detail)
        }
    }

    /// Error for a part of the request that exceeds its size limit.
    pub fn too_large(at: &Pointer<'_>, detail: impl Into<String>) -> Self {
        Self { status: 413, tags: vec![tag::TOO_LARGE], ..Self::invalid(at, "Request too large", detail) }
    }
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pointer {
            Some(pointer) => write!(f, "{pointer}: {}", self.detail),
            None => f.write_str(&self.detail),
        }
    }
}

/// JSON Pointer as a linked list on the stack. Rendering is deferred until an error needs it, as most requests have
/// none.
#[derive(Clone, Copy, Debug)]
pub enum Pointer<'a> {
    Root,
    /// Rendered pointer.
    Text(&'a str),
    Key(&'a Pointer<'a>, &'a str),
    Index(&'a Pointer<'a>, usize),
}

/// Maximum length of a pointer in bytes. A longer pointer is cut to the nearest ancestor: a client's key can be a
/// megabyte long.
const MAX_POINTER_BYTES: usize = 1024;

impl<'a> Pointer<'a> {
    #[must_use]
    pub fn key(&'a self, key: &'a str) -> Pointer<'a> {
        Pointer::Key(self, key)
    }

    #[must_use]
    pub fn index(&'a self, index: usize) -> Pointer<'a> {
        Pointer::Index(self, index)
    }

    /// Returns the pointer as text; `None` for the root.
    pub fn render(&self) -> Option<String> {
        let mut text = String::new();
        self.write_to(&mut text);
        (!text.is_empty()).then_some(text)
    }

    /// Appends the pointer to `text`. Returns false if the pointer was cut.
    fn write_to(&self, text: &mut String) -> bool {
        match self {
            Self::Root => true,
            Self::Text(prefix) => {
                text.push_str(prefix);
                true
            }
            // After an ancestor was cut, its members are not appended: they would form another valid pointer.
            Self::Key(parent, key) => parent.write_to(text) && push_key(text, key),
            Self::Index(parent, index) => parent.write_to(text) && push_key(text, &index.to_string()),
        }
    }
}

/// Appends `/key`, escaped. Returns false and leaves `text` unchanged if the pointer would become too long.
pub(crate) fn push_key(text: &mut String, key: &str) -> bool {
    if text.len() + key.len() + 1 > MAX_POINTER_BYTES {
        return false;
    }
    text.push('/');
    for c in key.chars() {
        match c {
            // Escapes of RFC 6901.
            '~' => text.push_str("~0"),
            '/' => text.push_str("~1"),
            c => text.push(c),
        }
    }
    true
}

/// Errors of one request: the first hundred are listed, further ones are counted.
#[derive(Debug, Default)]
pub struct ValidationErrors {
    stored: Vec<ValidationError>,
    dropped_count: usize,
}

impl ValidationErrors {
    /// Maximum number of errors listed in a response.
    pub const LISTED: usize = 100;

    /// Maximum number of stored errors. It exceeds `LISTED` because members are not checked in text order, while the
    /// list shows the first errors of the text.
    const MAX_STORED: usize = 1_000;

    pub fn push(&mut self, fault: ValidationError) {
        // A body of megabytes can contain a million errors.
        if self.stored.len() < Self::MAX_STORED {
            self.stored.push(fault);
        } else {
            self.dropped_count += 1;
        }
    }

    pub fn append(&mut self, other: Self) {
        // The limit is not applied here: both lists are already limited.
        self.stored.extend(other.stored);
        self.dropped_count += other.dropped_count;
    }

    /// Sorts the stored errors by a key of their pointers.
    pub(crate) fn sorted_by_key<K: Ord>(mut self, mut key: impl FnMut(&str) -> K) -> Self {
        // The key of a pointer is computed by a walk through the request, so it is cached.
        self.stored.sort_by_cached_key(|error| key(error.pointer.as_deref().unwrap_or_default()));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    /// Returns the number of all errors, stored or only counted.
    pub fn count(&self) -> usize {
        self.stored.len() + self.dropped_count
    }

    /// Returns the listed errors, with a final entry that counts the others.
    pub fn into_vec(mut self) -> Vec<ValidationError> {
        self.dropped_count += self.stored.len().saturating_sub(Self::LISTED);
        self.stored.truncate(Self::LISTED);
        if self.dropped_count > 0 {
            let detail = format!("There are {} more problems that are not listed.", self.dropped_count);
            self.stored.push(ValidationError::invalid(&Pointer::Root, "More problems", detail));
        }
        self.stored
    }

    /// Returns `value` if there is no error.
    pub fn or<T>(self, value: Option<T>) -> Result<T, Vec<ValidationError>> {
        match value {
            Some(value) if self.stored.is_empty() => Ok(value),
            _ => Err(self.into_vec()),
        }
    }
}

impl Extend<ValidationError> for ValidationErrors {
    fn extend<I: IntoIterator<Item = ValidationError>>(&mut self, faults: I) {
        for fault in faults {
            self.push(fault);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_escaped_and_the_root_has_none() {
        assert_eq!(Pointer::Root.key("items").index(3).render().as_deref(), Some("/items/3"));
        assert_eq!(Pointer::Root.key("a/b~c").render().as_deref(), Some("/a~1b~0c"));
        assert_eq!(Pointer::Root.render(), None);
    }

    #[test]
    fn long_key_is_cut_from_the_pointer() {
        let key = "k".repeat(1 << 20);
        let items = Pointer::Root.key("items");
        assert_eq!(items.key(&key).index(1).render().as_deref(), Some("/items"));
    }

    #[test]
    fn errors_after_the_hundredth_are_counted() {
        let mut faults = ValidationErrors::default();
        faults.extend((0..137).map(|i| ValidationError::data(&Pointer::Root.index(i), "wrong")));
        assert_eq!(faults.count(), 137);
        let listed = faults.into_vec();
        assert_eq!(listed.len(), 101);
        assert_eq!(listed[100].detail, "There are 37 more problems that are not listed.");
    }
}
