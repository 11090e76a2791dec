//! Refusals of one wrong value, as all routes word them.

use tidegate_schemas::validation_error::{Pointer, ValidationError};
use tidegate_web::Problem;

pub(crate) fn not_a_cursor() -> Problem {
    invalid("", "This is not a cursor of this list.")
}

/// One wrong value; without a pointer it stands in the query.
pub(crate) fn invalid(pointer: &str, detail: impl Into<String>) -> Problem {
    let pointer = if pointer.is_empty() { Pointer::Root } else { Pointer::Text(pointer) };
    Problem::of_errors(vec![ValidationError::invalid(&pointer, "The request is not valid.", detail)])
}
