//! Origin of a document, and errors in documents.

use std::fmt;

use super::DocumentKind;

/// Position of a document in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub file: String,
    /// First line of the document, from 1; 0 if unknown.
    pub line: u32,
    /// Index of the document in its file, from 0. `None` for a file without documents, or one with documents that
    /// cannot be counted.
    pub index: Option<usize>,
}

/// Error in a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct DocumentFault {
    pub origin: Origin,
    /// Line of the error, if it is known more precisely than the first line of the document.
    pub line: Option<u32>,
    /// Path such as `fields[2].type`; empty for the whole document.
    pub path: String,
    pub message: String,
    /// Missing name, if that is the error. Callers that could not read all files cannot rely on it.
    pub missing: Option<MissingReference>,
}

/// Name that a document refers to and that is not defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingReference {
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
        // An error of all documents together has no file.
        if self.origin.file.is_empty() {
            return write!(f, "all documents: {}", self.message);
        }
        f.write_str(&self.origin.file)?;
        // The format `file:line` is recognized by editors.
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
