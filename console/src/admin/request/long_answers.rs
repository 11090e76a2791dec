//! Writes long answers on threads that serve no requests, in turns of the orgs.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use serde::Serialize;
use tidegate_schemas::ids::OrgId;
use tidegate_web::{Json, Problem};

use super::faults;
use crate::api::Api;

/// Builds and serializes an answer of about `bytes` length, in the org's turn if it is long.
pub(crate) async fn write_json<T: Serialize>(
    api: &Api,
    org: &OrgId,
    bytes: usize,
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<Response, Problem> {
    let build_response = move || Json(make()).into_response();
    api.deps.changes.work().run_json(org, bytes, build_response).await.map_err(faults::catalog_problem)
}

/// Response of JSON that was serialized before.
pub(crate) fn json_response(json: Bytes) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], json).into_response()
}
