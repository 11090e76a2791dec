//! A request that is not taken: what is wrong with its shape, and the parts of it that can be looked at all the same.
//!
//! It knows no item type: whoever does adds what is wrong with the parts.

use super::Request;
use crate::json::{Node, in_order};
use crate::validation_error::{ValidationError, ValidationErrors};
use crate::{ids::TypeId, item_types::Mode};

/// Why a request has no content.
#[derive(Debug)]
pub enum Refused {
    /// It is no strict JSON, so nothing is read of it.
    Text(Vec<ValidationError>),
    Shape(Box<Misshapen>),
}

impl Refused {
    /// Returns the errors of the text or its shape.
    pub fn into_vec(self) -> Vec<ValidationError> {
        match self {
            Self::Text(faults) => faults,
            Self::Shape(misshapen) => misshapen.with(ValidationErrors::default()),
        }
    }
}

/// JSON that has not the shape of its endpoint.
#[derive(Debug)]
pub struct Misshapen {
    pub(super) faults: ValidationErrors,
    pub(super) parts: Request<Vec<Part>>,
}

/// An item whose type can be read, whatever else is wrong with it. `at` is its pointer.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub at: String,
    pub type_id: TypeId,
    pub type_version: Option<String>,
    /// Partial if it does not say how complete it is in a way that can be read.
    pub mode: Mode,
    pub node: u32,
    pub data: Option<u32>,
}

impl Misshapen {
    pub fn parts(&self) -> &[Part] {
        &self.parts.content
    }

    /// The whole body, in which the parts have their indices. It is looked through for this: ask once.
    pub fn root(&self) -> Node<'_> {
        self.parts.root()
    }

    /// All faults, with those of the parts.
    pub fn with(self, of_parts: ValidationErrors) -> Vec<ValidationError> {
        let mut faults = self.faults;
        faults.append(of_parts);
        in_order(faults, self.parts.root()).into_vec()
    }
}
