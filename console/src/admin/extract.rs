//! Reads the parts of a request, and tells what is wrong with them in the same envelope as everything else.
//!
//! It knows no resource.

use std::str::FromStr;

use axum::{
    body::HttpBody as _,
    extract::{FromRequest, FromRequestParts, Request},
    http::{Extensions, header, request::Parts},
};
use serde::{Deserialize, de::DeserializeOwned};
use tidegate_schemas::validation_error::{Pointer, ValidationError};
use tidegate_web::Problem;

pub(crate) use super::refusals::{invalid, not_a_cursor};
use super::{Api, caller::Caller, faults};

/// The query of a list that is neither chosen from nor paged: it has no parameters of its own.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WholeList {
    #[serde(rename = "org")]
    _org: Option<String>,
}

/// The query of a list that is paged and not chosen from.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    pub(crate) limit: Option<usize>,
    cursor: Option<String>,
    #[serde(rename = "org")]
    _org: Option<String>,
}

impl Page {
    pub(crate) fn after<C: FromStr>(&self) -> Result<Option<C>, Problem> {
        self.cursor.as_deref().map(str::parse).transpose().map_err(|_| not_a_cursor())
    }
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        caller_of(&parts.extensions).cloned()
    }
}

/// The caller that `authenticate` put there, which every route passes.
fn caller_of(extensions: &Extensions) -> Result<&Caller, Problem> {
    extensions.get::<Caller>().ok_or_else(Problem::internal)
}

/// A JSON body. None at all counts as `{}`, so that a command without arguments needs none.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Api> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let no_body =
            request.body().is_end_stream() && !request.headers().contains_key(header::TRANSFER_ENCODING);
        if no_body {
            return parse(b"{}").map(Self);
        }
        let org = caller_of(request.extensions())?.org.clone();
        let body = api.http.read_body(request, &org).await?;
        let bytes = body.bytes.len();
        let parse = move || {
            // Whole, so that its bytes count until it is read.
            let body = body;
            parse(&body.bytes)
        };
        let parsed = api.deps.changes.work().run(&org, bytes, parse).await;
        parsed.map_err(faults::catalog)?.map(Self)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let fault = ValidationError::invalid(&Pointer::Root, "The body is not valid.", error.to_string());
        Problem::of_errors(vec![fault])
    })
}

/// An id in a path. One that is malformed names nothing.
pub(crate) fn id<T: FromStr>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|_| Problem::not_found("There is no such id."))
}
