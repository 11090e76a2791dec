//! Which of the driver's errors are outages.
//!
//! It does not retry.

use scylla::errors::{
    DbError, ExecutionError, NewSessionError, PrepareError, RequestAttemptError, SchemaAgreementError,
};

use crate::Error;

pub(super) fn execution(error: ExecutionError) -> Error {
    match error {
        ExecutionError::RequestTimeout(_) => Error::Timeout(error.to_string()),
        ExecutionError::LastAttemptError(attempt) => self::attempt(&attempt),
        ExecutionError::PrepareError(error) => prepare(error),
        ExecutionError::SchemaAgreementError(error) => agreement(&error),
        ExecutionError::EmptyPlan
        | ExecutionError::ConnectionPoolError(_)
        | ExecutionError::MetadataError(_) => Error::Unreachable(error.to_string()),
        // Nothing was sent: a key or a value is longer than the protocol can say.
        ExecutionError::BadQuery(_) => Error::Refused(error.to_string()),
        _ => Error::Engine(error.to_string()),
    }
}

pub(super) fn prepare(error: PrepareError) -> Error {
    match error {
        PrepareError::AllAttemptsFailed { first_attempt } => attempt(&first_attempt),
        PrepareError::ConnectionPoolError(_) => Error::Unreachable(error.to_string()),
        _ => Error::Engine(error.to_string()),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "handed to map_err")]
pub(super) fn session(error: NewSessionError) -> Error {
    match error {
        NewSessionError::FailedToResolveAnyHostname(_) | NewSessionError::MetadataError(_) => {
            let text = error.to_string();
            // The driver wraps what the server said about the credentials into the state of its pool.
            if text.contains("Authentication") || text.contains("authentication") {
                Error::Engine(text)
            } else {
                Error::Unreachable(text)
            }
        }
        _ => Error::Engine(error.to_string()),
    }
}

fn agreement(error: &SchemaAgreementError) -> Error {
    match error {
        SchemaAgreementError::Timeout(_) => Error::Timeout(error.to_string()),
        SchemaAgreementError::RequestError(attempt) => self::attempt(attempt),
        _ => Error::Unreachable(error.to_string()),
    }
}

fn attempt(error: &RequestAttemptError) -> Error {
    let text = error.to_string();
    match error {
        RequestAttemptError::BrokenConnectionError(_) => Error::Unreachable(text),
        RequestAttemptError::UnableToAllocStreamId => Error::Overloaded(text),
        RequestAttemptError::SerializationError(_) | RequestAttemptError::CqlRequestSerialization(_) => {
            Error::Refused(text)
        }
        RequestAttemptError::BodyExtensionsParseError(_)
        | RequestAttemptError::CqlResultParseError(_)
        | RequestAttemptError::CqlErrorParseError(_) => Error::Unreadable(text),
        RequestAttemptError::DbError(_, message) if is_oversized(message) => Error::Refused(text),
        RequestAttemptError::DbError(fault, message) => match fault {
            DbError::Unavailable { .. } | DbError::IsBootstrapping => Error::Unreachable(text),
            DbError::ReadTimeout { .. }
            | DbError::WriteTimeout { .. }
            | DbError::Other(CAS_WRITE_UNKNOWN) => Error::Timeout(text),
            // A server that starts, stops or loses a disk answers with the last three.
            DbError::Overloaded
            | DbError::RateLimitReached { .. }
            | DbError::ReadFailure { .. }
            | DbError::WriteFailure { .. }
            | DbError::ServerError => Error::Overloaded(text),
            DbError::Invalid if !is_about_the_schema(message) => Error::Refused(text),
            _ => Error::Engine(text),
        },
        _ => Error::Engine(text),
    }
}

/// Cassandra's "the conditional write may or may not have been applied", in newer protocol versions.
const CAS_WRITE_UNKNOWN: i32 = 0x1700;

/// What Cassandra says of a mutation or a request above its limits, under codes that an ailing server uses as well.
fn is_oversized(message: &str) -> bool {
    const SIGNS: [&str; 3] = ["oversized mutation", "too large for the maximum size", "Request is too big"];
    SIGNS.iter().any(|sign| message.contains(sign))
}

/// A table or column that is not there any more spoils every write, so it is no fault of the values.
fn is_about_the_schema(message: &str) -> bool {
    const SIGNS: [&str; 4] =
        ["unconfigured table", "Undefined column", "Unknown identifier", "does not exist"];
    SIGNS.iter().any(|sign| message.contains(sign))
}
