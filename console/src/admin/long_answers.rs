//! Answers whose writing takes long: on threads that serve no request, and in turns of the orgs.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use serde::Serialize;
use tidegate_schemas::ids::OrgId;
use tidegate_web::{Json, Problem};

use super::{Api, faults};

/// Makes and writes an answer of about this length, in the org's turn if it is long.
pub(super) async fn write<T: Serialize>(
    api: &Api,
    org: &OrgId,
    bytes: usize,
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<Response, Problem> {
    let write = move || Json(make()).into_response();
    api.deps.changes.work().run_json(org, bytes, write).await.map_err(faults::catalog)
}

/// An answer that was written before.
pub(super) fn written(json: Bytes) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], json).into_response()
}
