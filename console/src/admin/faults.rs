//! Answers for errors of the layers below: an outage as 503, a value that is too long as 400, a defect as 500 with its
//! reason in the log only.
//!
//! Refusals of a request are the handlers' own.

#![expect(clippy::needless_pass_by_value, reason = "made for `map_err`, which gives its error away")]

use std::time::Duration;

use tidegate_web::Problem;

use super::extract::{invalid, not_a_cursor};

const AGAIN: Duration = Duration::from_secs(1);

/// The store or the log cannot be reached.
pub(crate) fn unreachable() -> Problem {
    Problem::unavailable("A part of the service cannot be reached.", AGAIN)
}

pub(crate) fn store(error: tidegate_store::Error) -> Problem {
    if matches!(error, tidegate_store::Error::BadCursor) {
        return not_a_cursor();
    }
    if error.is_refusal() {
        tracing::warn!(tag = error.tag(), %error, "a request asks for what no store takes");
        return invalid("", "A value is longer than the store takes.");
    }
    failed(error.is_outage(), error.tag(), &error)
}

pub(crate) fn moderation(error: tidegate_moderation::Error) -> Problem {
    use tidegate_moderation::Error;
    match error {
        Error::Store(error) => store(error),
        Error::Catalog(error) => catalog(error),
        Error::Append(error) => failed(error.is_retriable(), error.tag(), &error),
        error @ (Error::Content { .. } | Error::Corrupt { .. }) => failed(false, error.tag(), &error),
    }
}

pub(crate) fn catalog(error: tidegate_catalog::Error) -> Problem {
    use tidegate_catalog::Error;
    match error {
        Error::NoSuchOrg(org) => Problem::not_found(format!("There is no organisation `{org}`.")),
        Error::Store(error) => store(error),
        error => failed(error.is_outage(), error.tag(), &error),
    }
}

pub(crate) fn secret(error: tidegate_catalog::secrets::SecretError) -> Problem {
    use tidegate_catalog::secrets::SecretError;
    if matches!(error, SecretError::OtherMasterKey { .. } | SecretError::Tampered { .. }) {
        tracing::warn!(tag = error.tag(), %error, "a secret cannot be opened");
        return Problem::conflict(format!("The secret cannot be opened: {error}."));
    }
    failed(error.is_outage(), error.tag(), &error)
}

/// Logs an error: an outage is a 503 that clients repeat, all else a 500.
pub(crate) fn failed(is_outage: bool, tag: &'static str, error: &dyn std::fmt::Display) -> Problem {
    if is_outage {
        tracing::warn!(tag, %error, "a request cannot be served now");
        return unreachable();
    }
    tracing::error!(tag, %error, "a request failed");
    Problem::internal()
}

#[cfg(test)]
mod tests {
    use axum::{http::StatusCode, response::IntoResponse as _};
    use tidegate_catalog::secrets::SecretError;

    #[test]
    fn a_secret_under_another_master_key_is_a_conflict_and_not_a_defect() {
        let error = SecretError::OtherMasterKey {
            owner: "endpoint platform".to_owned(),
            sealed_under: "0a1b2c3d".to_owned(),
            at_hand: "4e5f6a7b".to_owned(),
        };
        assert_eq!(super::secret(error).into_response().status(), StatusCode::CONFLICT);
    }

    #[test]
    fn what_no_store_takes_is_the_requests_fault_whichever_layer_found_it() {
        let error = || tidegate_store::Error::KeyTooLong { table: "jobs", bytes: 70_000, limit: 65_535 };
        for problem in [
            super::store(error()),
            super::moderation(tidegate_moderation::Error::Store(error())),
            super::catalog(tidegate_catalog::Error::Store(error())),
        ] {
            assert_eq!(problem.into_response().status(), StatusCode::BAD_REQUEST);
        }
    }
}
