//! Result of coercion: a [`Value`], or `()` for callers that need only the errors.

use std::borrow::Cow;

use super::values::Value;

/// Result type of coercion. With `()`, a check allocates no values.
pub(super) trait Output: Clone + Sized {
    fn of(make: impl FnOnce() -> Value) -> Self;
    fn list(values: Vec<Self>) -> Self;
    fn map(entries: Vec<(Cow<'_, str>, Self)>) -> Self;

    fn text(text: &str) -> Self {
        // The closure avoids the allocation if the output is `()`.
        Self::of(|| Value::Text(text.to_owned()))
    }
}

impl Output for Value {
    fn of(make: impl FnOnce() -> Value) -> Self {
        make()
    }

    fn list(values: Vec<Self>) -> Self {
        Self::List(values)
    }

    fn map(entries: Vec<(Cow<'_, str>, Self)>) -> Self {
        Self::Map(entries.into_iter().map(|(key, value)| (key.into_owned(), value)).collect())
    }
}

/// Discards values.
impl Output for () {
    fn of(_: impl FnOnce() -> Value) -> Self {}

    fn list(_: Vec<Self>) -> Self {}

    fn map(_: Vec<(Cow<'_, str>, Self)>) -> Self {}
}
