//! Classification of driver errors: outages and others.
//!
//! It does not retry.

use scylla::errors::{
    DbError, ExecutionError, NewSessionError, PrepareError, RequestAttemptError, SchemaAgreementError,
};

use super::settings::Settings;
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

/// `objection`: what OpenSSL had against a certificate.
pub(super) fn session(error: &NewSessionError, settings: &Settings, objection: Option<String>) -> Error {
    let text = error.to_string();
    if let Some(why) = objection.or_else(|| disagreement(&text).map(str::to_owned)) {
        return Error::Engine(format!("{why}: {text}"));
    }
    match error {
        NewSessionError::FailedToResolveAnyHostname(_) | NewSessionError::MetadataError(_) => {
            // The driver wraps what the server said about the credentials into the state of its pool.
            if text.contains("Authentication") || text.contains("authentication") {
                Error::Engine(text)
            } else if text.contains(FIRST_WORDS) {
                Error::Unreachable(format!("{text}{}", suspicion(settings)))
            } else {
                Error::Unreachable(text)
            }
        }
        _ => Error::Engine(text),
    }
}

/// Text of the driver's error when a connection stands and the node does not answer in its protocol.
const FIRST_WORDS: &str = "connection setup request";

/// Returns what may be wrong when a node hangs up at once. The node may also just be starting or stopping.
fn suspicion(settings: &Settings) -> &'static str {
    match &settings.tls {
        None => " (does the node speak TLS alone? see store.cql.tls)",
        // The node says so, and hangs up so fast that it may not be heard.
        Some(tls) if tls.certificate_file.is_none() => {
            " (does the node ask for a certificate of ours? see store.cql.tls.certificate_file)"
        }
        Some(_) => "",
    }
}

/// Why this node and we do not come together over TLS however long we wait, as far as OpenSSL's words tell.
fn disagreement(text: &str) -> Option<&'static str> {
    let signs = [
        ("wrong version number", "a node speaks no TLS at its port"),
        (
            "alert certificate required",
            "a node asks for a certificate of ours, and tls.certificate_file is not set",
        ),
        ("alert unknown ca", "a node does not know the authority of our certificate"),
        ("alert bad certificate", "a node refuses our certificate"),
        ("alert unsupported certificate", "a node refuses our certificate"),
        ("alert certificate ", "a node refuses our certificate"),
    ];
    let found = signs.into_iter().find(|(sign, _)| text.contains("SSL routines") && text.contains(sign));
    found.map(|(_, why)| why)
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

/// True if Cassandra refuses a mutation or request above its limits, under codes that a failing server uses as well.
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
