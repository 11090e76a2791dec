//! Extracts path and query of a request, with errors in the envelope. axum's extractors answer errors with plain text. `body`
//! reads bodies.

use axum::{
    extract::FromRequestParts,
    http::{Uri, request::Parts},
};
use serde::de::DeserializeOwned;
use tidegate_schemas::validation_error::{Pointer, ValidationError};

use crate::Problem;

/// Path parameters of the route: a string, or a tuple of strings.
#[derive(Clone, Debug)]
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) if rejection.status().is_server_error() => {
                tracing::error!(
                    reason = rejection.body_text(),
                    "the path parameters of a route do not match its handler"
                );
                Err(Problem::internal())
            }
            Err(rejection) => Err(invalid_request("The path is not valid.", rejection.body_text())),
        }
    }
}

/// Query parameters.
#[derive(Clone, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> Query<T> {
    pub fn from_uri(uri: &Uri) -> Result<Self, Problem> {
        match axum::extract::Query::try_from_uri(uri) {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(invalid_request("The query is not valid.", rejection.body_text())),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::from_uri(&parts.uri)
    }
}

fn invalid_request(title: &'static str, detail: String) -> Problem {
    Problem::of_errors(vec![ValidationError::invalid(&Pointer::Root, title, detail)])
}
