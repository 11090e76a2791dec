//! Maps errors of log, store and configuration to responses.
//!
//! Details are written to the process's log. The response contains only the kind of failure and whether a retry can help.

use tidegate_stream::error::AppendError;
use tidegate_web::Problem;

use crate::Api;

impl Api {
    pub(crate) fn append_problem(&self, error: &AppendError) -> Problem {
        match error {
            AppendError::Full { detail } => self.unavailable_problem(format!("The log is full: {detail}.")),
            AppendError::Unavailable { .. } => self.unavailable_problem("The log cannot be reached."),
            AppendError::ShuttingDown => self.unavailable_problem("The service is shutting down."),
            AppendError::TooLarge { bytes, limit, .. } => Problem::too_large(format!(
                "The request produces a record of {bytes} bytes, above the log's limit of {limit}."
            )),
            AppendError::NoSuchPartition { .. } => internal_problem(error.tag(), error),
        }
    }

    pub(crate) fn store_problem(&self, error: &tidegate_store::Error) -> Problem {
        // `Closed` occurs while this process stops; a retry reaches another process.
        if error.is_outage() || matches!(error, tidegate_store::Error::Closed) {
            return self.unavailable_problem("The store cannot be reached.");
        }
        internal_problem(error.tag(), error)
    }

    pub(crate) fn catalog_problem(&self, error: &tidegate_catalog::Error) -> Problem {
        match error {
            tidegate_catalog::Error::Store(error) => self.store_problem(error),
            // An outage ends, so a retry can help. Other errors need an operator.
            error if error.is_outage() => self.unavailable_problem("The configuration cannot be loaded."),
            error => internal_problem(error.tag(), error),
        }
    }

    pub(crate) fn moderation_problem(&self, error: &tidegate_moderation::Error) -> Problem {
        match error {
            tidegate_moderation::Error::Store(error) => self.store_problem(error),
            tidegate_moderation::Error::Append(error) => self.append_problem(error),
            tidegate_moderation::Error::Catalog(error) => self.catalog_problem(error),
            error => internal_problem(error.tag(), error),
        }
    }
}

fn internal_problem(tag: &'static str, error: &dyn std::error::Error) -> Problem {
    tracing::error!(tag, %error, "a request failed");
    Problem::internal()
}
