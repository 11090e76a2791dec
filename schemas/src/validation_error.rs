//! Validation errors of a request, each pointing at its place.
//!
//! It does not render the answer; the envelope around them belongs to `tidegate-web`.

use std::fmt;

use serde::Serialize;

/// The vocabulary of fault types, as clients match on it.
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

/// One problem of a request. It never holds a value from inside `data`, only names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValidationError {
    pub status: u16,
    /// RFC 6901; nothing at the root of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    #[serde(rename = "type")]
    pub tags: Vec<&'static str>,
    pub title: &'static str,
    pub detail: String,
}

impl ValidationError {
    /// A request that does not have the shape of its endpoint.
    pub fn invalid(at: &Pointer<'_>, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status: 400,
            pointer: at.render(),
            tags: vec![tag::INVALID_INPUT],
            title,
            detail: detail.into(),
        }
    }

    /// `data` that does not fit its item type.
    pub fn data(at: &Pointer<'_>, detail: impl Into<String>) -> Self {
        Self {
            tags: vec![tag::DATA_INVALID, tag::INVALID_INPUT],
            ..Self::invalid(at, "Invalid Data for Item", detail)
        }
    }

    /// Fields that are there without the fields that their roles need.
    pub fn roles(at: &Pointer<'_>, detail: impl Into<String>) -> Self {
        Self {
            tags: vec![tag::ROLES_INVALID, tag::INVALID_INPUT],
            ..Self::invalid(at, "Invalid field roles for Item", detail)
        }
    }

    /// A part of the request that is above its limit.
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

/// A JSON Pointer in the making: links on the stack, rendered only when there is a fault to place.
#[derive(Clone, Copy, Debug)]
pub enum Pointer<'a> {
    Root,
    /// An already rendered pointer.
    Text(&'a str),
    Key(&'a Pointer<'a>, &'a str),
    Index(&'a Pointer<'a>, usize),
}

/// Longer pointers name the nearest ancestor that fits: a client's own key can be a megabyte long.
const LONGEST_POINTER: usize = 1024;

impl<'a> Pointer<'a> {
    #[must_use]
    pub fn key(&'a self, key: &'a str) -> Pointer<'a> {
        Pointer::Key(self, key)
    }

    #[must_use]
    pub fn index(&'a self, index: usize) -> Pointer<'a> {
        Pointer::Index(self, index)
    }

    /// The pointer as text; nothing for the root.
    pub fn render(&self) -> Option<String> {
        let mut text = String::new();
        self.write(&mut text);
        (!text.is_empty()).then_some(text)
    }

    /// Writes the text and returns true if all of it fitted.
    fn write(&self, text: &mut String) -> bool {
        match self {
            Self::Root => true,
            Self::Text(prefix) => {
                text.push_str(prefix);
                true
            }
            Self::Key(parent, key) => parent.write(text) && push_key(text, key),
            Self::Index(parent, index) => parent.write(text) && push_key(text, &index.to_string()),
        }
    }
}

/// Appends `/key`, escaped; `false` and unchanged if the pointer would become too long.
pub(crate) fn push_key(text: &mut String, key: &str) -> bool {
    if text.len() + key.len() + 1 > LONGEST_POINTER {
        return false;
    }
    text.push('/');
    for c in key.chars() {
        match c {
            '~' => text.push_str("~0"),
            '/' => text.push_str("~1"),
            c => text.push(c),
        }
    }
    true
}

/// The problems of one request: the first hundred listed, the rest counted.
#[derive(Debug, Default)]
pub struct ValidationErrors {
    kept: Vec<ValidationError>,
    dropped: usize,
}

impl ValidationErrors {
    /// Number of errors that an answer lists.
    pub const LISTED: usize = 100;

    /// More than are listed: a report is not read in the order of its text, and the first of the text are listed.
    const KEPT: usize = 1_000;

    pub fn push(&mut self, fault: ValidationError) {
        if self.kept.len() < Self::KEPT {
            self.kept.push(fault);
        } else {
            self.dropped += 1;
        }
    }

    pub fn append(&mut self, other: Self) {
        self.kept.extend(other.kept);
        self.dropped += other.dropped;
    }

    /// Sorts the kept errors by a key of their pointers.
    pub(crate) fn sorted_by_key<K: Ord>(mut self, mut key: impl FnMut(&str) -> K) -> Self {
        self.kept.sort_by_cached_key(|error| key(error.pointer.as_deref().unwrap_or_default()));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Number of errors, listed or not.
    pub fn count(&self) -> usize {
        self.kept.len() + self.dropped
    }

    /// The listed faults, and a last one that says how many more there are.
    pub fn into_vec(mut self) -> Vec<ValidationError> {
        self.dropped += self.kept.len().saturating_sub(Self::LISTED);
        self.kept.truncate(Self::LISTED);
        if self.dropped > 0 {
            let detail = format!("There are {} more problems that are not listed.", self.dropped);
            self.kept.push(ValidationError::invalid(&Pointer::Root, "More problems", detail));
        }
        self.kept
    }

    /// `value`, if nothing was found wrong.
    pub fn or<T>(self, value: Option<T>) -> Result<T, Vec<ValidationError>> {
        match value {
            Some(value) if self.kept.is_empty() => Ok(value),
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
    fn a_hostile_key_does_not_blow_up_the_pointer() {
        let key = "k".repeat(1 << 20);
        let items = Pointer::Root.key("items");
        assert_eq!(items.key(&key).index(1).render().as_deref(), Some("/items"));
    }

    #[test]
    fn the_hundred_and_first_problem_is_counted_not_listed() {
        let mut faults = ValidationErrors::default();
        faults.extend((0..137).map(|i| ValidationError::data(&Pointer::Root.index(i), "wrong")));
        assert_eq!(faults.count(), 137);
        let listed = faults.into_vec();
        assert_eq!(listed.len(), 101);
        assert_eq!(listed[100].detail, "There are 37 more problems that are not listed.");
    }
}
