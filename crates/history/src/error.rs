//! Errors of reading the history.

/// Failure to read rows.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] tidegate_store::Error),
    /// A stored row cannot be decoded.
    #[error("the {dataset} row {id} cannot be read: {reason}")]
    Corrupt { dataset: &'static str, id: String, reason: String },
}

impl Error {
    /// Returns a stable name of the kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Store(error) => error.tag(),
            Self::Corrupt { .. } => "corrupt",
        }
    }
}
