//! Origin of a document, and the errors found in it.
//!
//! It does not find faults.

use std::fmt;

use super::DocumentKind;

/// The place of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub file: String,
    /// The line on which it begins, from 1; 0 where there is none.
    pub line: u32,
    /// Its place among the documents of the file, from 0; none for a file that holds no documents, or none that could be
    /// counted.
    pub index: Option<usize>,
}

/// One problem of one document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct DocumentFault {
    pub origin: Origin,
    /// The line of the problem, where it is known more closely than the document's.
    pub line: Option<u32>,
    /// Such as `fields[2].type`; empty for the whole document.
    pub path: String,
    pub message: String,
    /// Missing name, if that is the problem. A caller that could not read every file may know better.
    pub missing: Option<Missing>,
}

/// Name that a document refers to and that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    Document(DocumentKind, String),
    /// Field of an item type.
    Field,
}

impl DocumentFault {
    pub fn new(origin: &Origin, path: impl Into<String>, message: impl Into<String>) -> Self {
        let (path, message) = (path.into(), message.into());
        Self { origin: origin.clone(), line: None, path, message, missing: None }
    }

    pub fn tag(&self) -> &'static str {
        "document-invalid"
    }
}

impl fmt::Display for DocumentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A fault of all of them together stands in none.
        if self.origin.file.is_empty() {
            return write!(f, "all documents: {}", self.message);
        }
        f.write_str(&self.origin.file)?;
        match self.line.unwrap_or(self.origin.line) {
            0 => {}
            line => write!(f, ":{line}")?,
        }
        if let Some(index) = self.origin.index {
            write!(f, ": document {}", index + 1)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}
