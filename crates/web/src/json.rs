//! JSON answers, serialized in one piece.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use crate::Problem;

/// Value as the JSON body of an answer. Replaces axum's type, which checks its buffer's capacity at every token.
#[derive(Clone, Debug)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => {
                ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
            }
            Err(error) => {
                tracing::error!(%error, "cannot serialize an answer as JSON");
                Problem::internal().into_response()
            }
        }
    }
}
