//! Answers when the log, the store or the configuration cannot do their part.
//!
//! The details go to the log of the process; the answer only says whether another try helps.

use tidegate_stream::error::AppendError;
use tidegate_web::Problem;

use crate::Api;

impl Api {
    pub(crate) fn append_problem(&self, error: &AppendError) -> Problem {
        match error {
            AppendError::Full { detail } => self.unavailable(format!("The log is full: {detail}.")),
            AppendError::Unavailable { .. } => self.unavailable("The log cannot be reached."),
            AppendError::ShuttingDown => self.unavailable("The service is shutting down."),
            AppendError::TooLarge { bytes, limit, .. } => {
                Problem::too_large(format!("It makes a record of {bytes} bytes; the log takes {limit}."))
            }
            AppendError::NoSuchPartition { .. } => internal(error.tag(), error),
        }
    }

    pub(crate) fn store_problem(&self, error: &tidegate_store::Error) -> Problem {
        if error.is_outage() || matches!(error, tidegate_store::Error::Closed) {
            return self.unavailable("The store cannot be reached.");
        }
        internal(error.tag(), error)
    }

    pub(crate) fn catalog_problem(&self, error: &tidegate_catalog::Error) -> Problem {
        match error {
            tidegate_catalog::Error::Store(error) => self.store_problem(error),
            error if error.is_outage() => self.unavailable("The configuration cannot be loaded."),
            error => internal(error.tag(), error),
        }
    }

    pub(crate) fn moderation_problem(&self, error: &tidegate_moderation::Error) -> Problem {
        match error {
            tidegate_moderation::Error::Store(error) => self.store_problem(error),
            tidegate_moderation::Error::Append(error) => self.append_problem(error),
            tidegate_moderation::Error::Catalog(error) => self.catalog_problem(error),
            error => internal(error.tag(), error),
        }
    }
}

fn internal(tag: &'static str, error: &dyn std::error::Error) -> Problem {
    tracing::error!(tag, %error, "a request failed");
    Problem::internal()
}
