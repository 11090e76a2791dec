//! The error of the crate's operations.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] tidegate_store::Error),
    #[error(transparent)]
    Append(#[from] tidegate_stream::error::AppendError),
    #[error(transparent)]
    Catalog(#[from] tidegate_catalog::Error),
    /// The content cannot be processed. It becomes a dead letter.
    #[error("{detail}")]
    Content { tag: &'static str, detail: String },
    /// One of our own rows cannot be read: a defect, not an outage.
    #[error("stored {} cannot be read: {detail}", .what)]
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

    /// True if the content becomes a dead letter. All other errors are retried.
    pub fn is_content(&self) -> bool {
        matches!(self, Self::Content { .. })
    }

    pub(crate) fn corrupt(row_kind: &'static str) -> impl FnOnce(serde_json::Error) -> Self {
        move |error| Self::Corrupt { what: row_kind, detail: error.to_string() }
    }
}
