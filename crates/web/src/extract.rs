//! Extractors of a request's path and query, whose errors are answered in the envelope.
//!
//! axum's own extractors answer with plain text, so no handler uses them. Bodies are `body`'s.

use axum::{
    extract::FromRequestParts,
    http::{Uri, request::Parts},
};
use serde::de::DeserializeOwned;
use tidegate_schemas::validation_error::{Pointer, ValidationError};

use crate::Problem;

/// The parts of the path that a route names: a string, or a tuple of them.
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
                    "a route and its handler disagree about the path"
                );
                Err(Problem::internal())
            }
            Err(rejection) => Err(invalid("The path is not valid.", rejection.body_text())),
        }
    }
}

/// The parameters of the query.
#[derive(Clone, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> Query<T> {
    pub fn of(uri: &Uri) -> Result<Self, Problem> {
        match axum::extract::Query::try_from_uri(uri) {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(invalid("The query is not valid.", rejection.body_text())),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::of(&parts.uri)
    }
}

fn invalid(title: &'static str, detail: String) -> Problem {
    Problem::of_errors(vec![ValidationError::invalid(&Pointer::Root, title, detail)])
}
