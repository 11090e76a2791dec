//! Builds the answers for a single invalid value, with the same wording on all routes.

use tidegate_schemas::validation_error::{Pointer, ValidationError};
use tidegate_web::Problem;

pub(crate) fn not_a_cursor() -> Problem {
    invalid("", "The cursor does not belong to this list.")
}

/// Refuses one invalid value. An empty pointer stands for a query parameter.
pub(crate) fn invalid(pointer: &str, detail: impl Into<String>) -> Problem {
    let pointer = if pointer.is_empty() { Pointer::Root } else { Pointer::Text(pointer) };
    Problem::of_errors(vec![ValidationError::invalid(&pointer, "The request is not valid.", detail)])
}
