//! Maps errors of the lower layers to answers: 503 for an outage, 400 for a value that is too long, and 500 for a defect, with
//! the reason only in the log. Handlers build their own refusals.

#![expect(clippy::needless_pass_by_value, reason = "made for `map_err`, which gives its error away")]

use std::time::Duration;

use tidegate_stream::error::AppendError;
use tidegate_web::Problem;

use super::refusals::{invalid, not_a_cursor};

/// Outages mostly end within seconds, so clients retry soon.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The store or the log cannot be reached.
pub(crate) fn outage_problem() -> Problem {
    Problem::unavailable("A part of the service cannot be reached.", RETRY_AFTER)
}

pub(crate) fn store_problem(error: tidegate_store::Error) -> Problem {
    // Cursors are decoded in the store, so an invalid one arrives as an error of the store.
    if matches!(error, tidegate_store::Error::BadCursor) {
        return not_a_cursor();
    }
    if let tidegate_store::Error::Overloaded(_) = error {
        return overload_problem(&error);
    }
    // Refused by the store because of the request, so it is no defect of the service.
    if error.is_refusal() {
        tracing::warn!(tag = error.tag(), %error, "a request contains a value that no store accepts");
        return invalid("", "A value is longer than the store accepts.");
    }
    log_failure(error.is_outage(), error.tag(), &error)
}

/// Answers with the reason, such as a full disk, because the operator can act on it.
fn overload_problem(error: &tidegate_store::Error) -> Problem {
    tracing::warn!(tag = error.tag(), %error, "a request cannot be served now");
    Problem::unavailable(format_sentence(error), RETRY_AFTER)
}

/// Maps a failed append: the log is full or cannot be reached.
pub(crate) fn append_problem(error: AppendError) -> Problem {
    if let AppendError::Full { .. } = error {
        tracing::warn!(tag = error.tag(), %error, "a request cannot be served now");
        return Problem::unavailable(format_sentence(&error), RETRY_AFTER);
    }
    log_failure(error.is_retriable(), error.tag(), &error)
}

/// Formats an error as a sentence.
fn format_sentence(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

pub(crate) fn moderation_problem(error: tidegate_moderation::Error) -> Problem {
    use tidegate_moderation::Error;
    match error {
        Error::Store(error) => store_problem(error),
        Error::Catalog(error) => catalog_problem(error),
        Error::Append(error) => append_problem(error),
        error @ (Error::Content { .. } | Error::Corrupt { .. }) => log_failure(false, error.tag(), &error),
    }
}

pub(crate) fn catalog_problem(error: tidegate_catalog::Error) -> Problem {
    use tidegate_catalog::Error;
    match error {
        Error::NoSuchOrg(org) => Problem::not_found(format!("There is no organisation `{org}`.")),
        Error::Store(error) => store_problem(error),
        error @ Error::Busy => {
            // Logged at debug level: a single org can cause many of these.
            tracing::debug!(tag = error.tag(), "a request cannot be served now");
            Problem::unavailable(format_sentence(&error), RETRY_AFTER)
        }
        error => log_failure(error.is_outage(), error.tag(), &error),
    }
}

pub(crate) fn secret_problem(error: tidegate_catalog::secrets::SecretError) -> Problem {
    use tidegate_catalog::secrets::SecretError;
    // The operator must act here (restore the master key or rotate the secret), so the answer names the reason.
    if matches!(error, SecretError::OtherMasterKey { .. } | SecretError::Tampered { .. }) {
        tracing::warn!(tag = error.tag(), %error, "a secret cannot be opened");
        return Problem::conflict(format!("The secret cannot be opened: {error}."));
    }
    if let SecretError::Store(error) = &error
        && let tidegate_store::Error::Overloaded(_) = **error
    {
        return overload_problem(error);
    }
    log_failure(error.is_outage(), error.tag(), &error)
}

/// Logs an error and returns its answer: 503 for an outage, which clients retry, and 500 otherwise.
pub(crate) fn log_failure(is_outage: bool, tag: &'static str, error: &dyn std::fmt::Display) -> Problem {
    if is_outage {
        tracing::warn!(tag, %error, "a request cannot be served now");
        return outage_problem();
    }
    tracing::error!(tag, %error, "a request failed");
    Problem::internal()
}

#[cfg(test)]
mod tests {
    use axum::{
        http::{StatusCode, header},
        response::IntoResponse as _,
    };
    use tidegate_catalog::secrets::SecretError;
    use tidegate_stream::error::AppendError;

    #[test]
    fn secret_under_another_master_key_is_a_conflict() {
        let error = SecretError::OtherMasterKey {
            owner: "endpoint platform".to_owned(),
            sealed_under: "0a1b2c3d".to_owned(),
            at_hand: "4e5f6a7b".to_owned(),
        };
        assert_eq!(super::secret_problem(error).into_response().status(), StatusCode::CONFLICT);
    }

    #[test]
    fn full_disk_is_named_by_every_layer() {
        let reason = "the disk has 10 MiB left";
        let error = || tidegate_store::Error::Overloaded(reason.to_owned());
        for problem in [
            super::store_problem(error()),
            super::moderation_problem(tidegate_moderation::Error::Store(error())),
            super::catalog_problem(tidegate_catalog::Error::Store(error())),
            super::secret_problem(SecretError::from(error())),
            super::append_problem(AppendError::Full { detail: reason.to_owned() }),
        ] {
            let detail = &problem.errors[0].detail;
            assert!(
                detail.contains(reason) && detail.starts_with("The ") && detail.ends_with('.'),
                "{detail}"
            );
            assert!(problem.headers.iter().any(|(name, _)| *name == header::RETRY_AFTER));
            assert_eq!(problem.into_response().status(), StatusCode::SERVICE_UNAVAILABLE);
        }
    }

    #[test]
    fn value_too_long_for_the_store_is_a_bad_request() {
        let error = || tidegate_store::Error::KeyTooLong { table: "jobs", bytes: 70_000, limit: 65_535 };
        for problem in [
            super::store_problem(error()),
            super::moderation_problem(tidegate_moderation::Error::Store(error())),
            super::catalog_problem(tidegate_catalog::Error::Store(error())),
        ] {
            assert_eq!(problem.into_response().status(), StatusCode::BAD_REQUEST);
        }
    }
}
