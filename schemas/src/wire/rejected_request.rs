//! Errors of a request that violates its schema, with the items that can still be validated against their types.

use super::Request;
use crate::json::{Node, in_order};
use crate::validation_error::{ValidationError, ValidationErrors};
use crate::{ids::TypeId, item_types::Mode};

/// Reason why a request has no content.
#[derive(Debug)]
pub enum RequestRejection {
    /// The body is not strict JSON, so no part of it can be read.
    Text(Vec<ValidationError>),
    Shape(Box<InvalidRequest>),
}

impl RequestRejection {
    /// Returns the errors of the text or its shape.
    pub fn into_vec(self) -> Vec<ValidationError> {
        match self {
            Self::Text(faults) => faults,
            Self::Shape(misshapen) => misshapen.with_part_errors(ValidationErrors::default()),
        }
    }
}

/// Valid JSON that violates the schema of its endpoint.
#[derive(Debug)]
pub struct InvalidRequest {
    pub(super) faults: ValidationErrors,
    pub(super) parts: Request<Vec<Part>>,
}

/// Item with a readable type in a refused request. `at` is its pointer.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub at: String,
    pub type_id: TypeId,
    pub type_version: Option<String>,
    /// Partial if the stated completeness is invalid.
    pub mode: Mode,
    pub node: u32,
    pub data: Option<u32>,
}

impl InvalidRequest {
    pub fn parts(&self) -> &[Part] {
        &self.parts.content
    }

    /// Returns the root of the body, which the indices of the parts refer to. Each call checks the whole body as UTF-8,
    /// so callers store the result.
    pub fn root(&self) -> Node<'_> {
        self.parts.root()
    }

    /// Returns all errors, including those of the parts, in text order.
    pub fn with_part_errors(self, part_errors: ValidationErrors) -> Vec<ValidationError> {
        let mut faults = self.faults;
        faults.append(part_errors);
        // The list is cut after a hundred errors, so they are sorted first.
        in_order(faults, self.parts.root()).into_vec()
    }
}
