//! Errors about a file as a whole.

use std::error::Error;

/// Error about a file as a whole: the rest of the file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    message: String,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl FileError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// Adds the place of the error.
    pub(crate) fn at(self, place: impl Into<String>) -> Self {
        Self { message: place.into(), source: Some(Box::new(self)) }
    }
}

impl From<std::io::Error> for FileError {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<csv::Error> for FileError {
    fn from(error: csv::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<quick_xml::Error> for FileError {
    fn from(error: quick_xml::Error) -> Self {
        Self::new(error.to_string())
    }
}
