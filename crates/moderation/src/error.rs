//! The error of the crate's operations.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] tidegate_store::Error),
    #[error(transparent)]
    Append(#[from] tidegate_stream::error::AppendError),
    #[error(transparent)]
    Catalog(#[from] tidegate_catalog::Error),
    /// The content itself cannot be processed, so it becomes a dead letter.
    #[error("{detail}")]
    Content { tag: &'static str, detail: String },
    /// A row of our own cannot be read: a defect, not an outage.
    #[error("a stored {what} cannot be read: {detail}")]
    Corrupt { what: &'static str, detail: String },
}

impl Error {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Store(error) => error.tag(),
            Self::Append(error) => error.tag(),
            Self::Catalog(error) => error.tag(),
            Self::Content { tag, .. } => tag,
            Self::Corrupt { .. } => "corrupt_row",
        }
    }

    /// True if the content becomes a dead letter. Everything else is retried.
    pub fn is_content(&self) -> bool {
        matches!(self, Self::Content { .. })
    }

    pub(crate) fn corrupt(what: &'static str) -> impl FnOnce(serde_json::Error) -> Self {
        move |error| Self::Corrupt { what, detail: error.to_string() }
    }
}
