//! Extracts caller, body and ids from requests, with errors in the envelope of the API.

use std::str::FromStr;

use axum::{
    body::HttpBody as _,
    extract::{FromRequest, FromRequestParts, Request},
    http::{Extensions, header, request::Parts},
};
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use tidegate_schemas::validation_error::{Pointer, ValidationError};
use tidegate_web::Problem;

use super::{caller::Caller, faults};
use crate::api::Api;

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        authenticated_caller(&parts.extensions).cloned()
    }
}

/// Returns the caller that `authenticate` stored in the extensions. Every route passes through it.
fn authenticated_caller(extensions: &Extensions) -> Result<&Caller, Problem> {
    extensions.get::<Caller>().ok_or_else(Problem::internal)
}

/// JSON body. A missing body counts as `{}`, so a command without arguments needs none.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Api> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        // The length of a chunked body is unknown here, so only a request without chunks counts as empty.
        let has_no_body =
            request.body().is_end_stream() && !request.headers().contains_key(header::TRANSFER_ENCODING);
        if has_no_body {
            return parse(b"{}").map(Self);
        }
        let org = authenticated_caller(request.extensions())?.org.clone();
        let body = api.http.read_body(request, &org).await?;
        let bytes = body.bytes.len();
        let parse_body = move || {
            // Moved as a whole: its lease counts the bytes until they are parsed.
            let body = body;
            parse(&body.bytes)
        };
        // A long body is parsed in the org's turn, on a thread that serves no requests.
        let result = api.deps.changes.work().run_json(&org, bytes, parse_body).await;
        result.map_err(faults::catalog_problem)?.map(Self)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let pointer = locate_error::<T>(bytes);
        let detail = error.to_string();
        let error = ValidationError::invalid(&Pointer::Text(&pointer), "The body is not valid.", detail);
        Problem::of_errors(vec![error])
    })
}

/// Returns the JSON Pointer of the first error in an invalid body. Tracking the path costs time, so only invalid bodies are
/// parsed this way.
fn locate_error<T: DeserializeOwned>(bytes: &[u8]) -> String {
    let result = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(bytes));
    let Err(error) = result else { return String::new() };
    let mut pointer = String::new();
    for segment in error.path() {
        let parent = Pointer::Text(&pointer);
        let member = match segment {
            Segment::Seq { index } => parent.index(*index).render(),
            Segment::Map { key } => parent.key(key).render(),
            // A member below an untagged enum or a flattened struct has no path of its own.
            Segment::Enum { .. } | Segment::Unknown => break,
        };
        pointer = member.unwrap_or_default();
    }
    pointer
}

/// Parses an id of a path. A malformed id gets the same answer as an unknown one.
pub(crate) fn parse_id<T: FromStr>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|_| Problem::not_found("There is no such id."))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only what is not valid is looked at")]
    struct Outer {
        count: u8,
        #[serde(default)]
        inner: Vec<Inner>,
        raw: Option<Box<RawValue>>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only what is not valid is looked at")]
    struct Inner {
        name: String,
    }

    #[test]
    fn error_of_a_body_points_at_the_member() {
        for (body, place) in [
            (r#"{"count":"seven"}"#, "/count"),
            (r#"{"count":1,"inner":[{"name":"a"},{"name":2}]}"#, "/inner/1/name"),
            (r#"{"count":1,"inner":[{"name":"a","nmae":"b"}]}"#, "/inner/0/nmae"),
            (r#"{"count":1,"a/b":2}"#, "/a~1b"),
            // What is missing is missing in its object.
            (r#"{"raw":{"x":[1]},"inner":[{}]}"#, "/inner/0"),
            (r#"{"inner":[]}"#, ""),
            ("[]", ""),
            ("", ""),
        ] {
            assert!(parse::<Outer>(body.as_bytes()).is_err(), "{body}");
            assert_eq!(locate_error::<Outer>(body.as_bytes()), place, "{body}");
        }
        assert!(parse::<Outer>(br#"{"count":1,"inner":[{"name":"a"}],"raw":{"x":1}}"#).is_ok());
    }
}
