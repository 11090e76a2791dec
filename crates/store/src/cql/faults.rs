//! Classifies errors of the driver as outages, refusals or defects.

use scylla::errors::{
    DbError, ExecutionError, NewSessionError, PrepareError, RequestAttemptError, SchemaAgreementError,
};

use super::settings::Settings;
use crate::Error;

pub(super) fn from_execution(error: ExecutionError) -> Error {
    match error {
        ExecutionError::RequestTimeout(_) => Error::Timeout(error.to_string()),
        ExecutionError::LastAttemptError(attempt) => from_attempt(&attempt),
        ExecutionError::PrepareError(error) => from_prepare(error),
        ExecutionError::SchemaAgreementError(error) => from_agreement(&error),
        ExecutionError::EmptyPlan
        | ExecutionError::ConnectionPoolError(_)
        | ExecutionError::MetadataError(_) => Error::Unreachable(error.to_string()),
        // The driver could not encode the request: a key or a value is too long for the protocol.
        ExecutionError::BadQuery(_) => Error::Refused(error.to_string()),
        _ => Error::Engine(error.to_string()),
    }
}

pub(super) fn from_prepare(error: PrepareError) -> Error {
    match error {
        PrepareError::AllAttemptsFailed { first_attempt } => from_attempt(&first_attempt),
        PrepareError::ConnectionPoolError(_) => Error::Unreachable(error.to_string()),
        _ => Error::Engine(error.to_string()),
    }
}

/// `refusal`: OpenSSL's reason for refusing a certificate.
pub(super) fn from_session(error: &NewSessionError, settings: &Settings, refusal: Option<String>) -> Error {
    let text = error.to_string();
    if let Some(reason) = refusal.or_else(|| tls_fault(&text).map(str::to_owned)) {
        return Error::Engine(format!("{reason}: {text}"));
    }
    match error {
        NewSessionError::FailedToResolveAnyHostname(_) | NewSessionError::MetadataError(_) => {
            // The driver hides a refusal of the credentials in the text of a pool error.
            // Wrong credentials need an operator, so they are no outage.
            if text.contains("Authentication") || text.contains("authentication") {
                Error::Engine(text)
            } else if text.contains(SETUP_REQUEST) {
                Error::Unreachable(format!("{text}{}", setup_hint(settings)))
            } else {
                Error::Unreachable(text)
            }
        }
        _ => Error::Engine(text),
    }
}

/// Part of the driver's error text if a node accepts the connection but does not answer the first CQL request.
const SETUP_REQUEST: &str = "connection setup request";

/// Returns a hint for a node that closes the connection at once. The node may also be starting or stopping.
fn setup_hint(settings: &Settings) -> &'static str {
    match &settings.tls {
        None => " (does the node speak TLS alone? see store.cql.tls)",
        // The node sends an alert, but may close the connection before the alert is read.
        Some(tls) if tls.certificate_file.is_none() => {
            " (does the node ask for a certificate of ours? see store.cql.tls.certificate_file)"
        }
        Some(_) => "",
    }
}

/// Returns the permanent fault of a TLS handshake, recognised by the error text of OpenSSL.
fn tls_fault(text: &str) -> Option<&'static str> {
    let faults = [
        ("wrong version number", "a node speaks no TLS at its port"),
        (
            "alert certificate required",
            "a node asks for a certificate of ours, and tls.certificate_file is not set",
        ),
        ("alert unknown ca", "a node does not know the authority of our certificate"),
        ("alert bad certificate", "a node refuses our certificate"),
        ("alert unsupported certificate", "a node refuses our certificate"),
        // The general sign stands last, because the first match wins.
        ("alert certificate ", "a node refuses our certificate"),
    ];
    let known_fault =
        faults.into_iter().find(|(sign, _)| text.contains("SSL routines") && text.contains(sign));
    known_fault.map(|(_, fault)| fault)
}

fn from_agreement(error: &SchemaAgreementError) -> Error {
    match error {
        SchemaAgreementError::Timeout(_) => Error::Timeout(error.to_string()),
        SchemaAgreementError::RequestError(attempt) => from_attempt(attempt),
        _ => Error::Unreachable(error.to_string()),
    }
}

fn from_attempt(error: &RequestAttemptError) -> Error {
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

/// True if a table or column is missing. That fails every write, so the error is not a refusal of the values.
fn is_about_the_schema(message: &str) -> bool {
    const SIGNS: [&str; 4] =
        ["unconfigured table", "Undefined column", "Unknown identifier", "does not exist"];
    SIGNS.iter().any(|sign| message.contains(sign))
}
