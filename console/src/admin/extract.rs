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
use serde_path_to_error::Segment;
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
        let parsed = api.deps.changes.work().run_json(&org, bytes, parse).await;
        parsed.map_err(faults::catalog)?.map(Self)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let place = place_of_fault::<T>(bytes);
        let detail = error.to_string();
        let fault = ValidationError::invalid(&Pointer::Text(&place), "The body is not valid.", detail);
        Problem::of_errors(vec![fault])
    })
}

/// Returns the JSON Pointer of the first fault of a body that is not valid. Only such a body is read this way, because keeping
/// the path costs time.
fn place_of_fault<T: DeserializeOwned>(bytes: &[u8]) -> String {
    let read = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(bytes));
    let Err(error) = read else { return String::new() };
    let mut place = String::new();
    for segment in error.path() {
        let parent = Pointer::Text(&place);
        let member = match segment {
            Segment::Seq { index } => parent.index(*index).render(),
            Segment::Map { key } => parent.key(key).render(),
            // What is read through an untagged or flattened part has no path of its own.
            Segment::Enum { .. } | Segment::Unknown => break,
        };
        place = member.unwrap_or_default();
    }
    place
}

/// An id in a path. One that is malformed names nothing.
pub(crate) fn id<T: FromStr>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|_| Problem::not_found("There is no such id."))
}

#[cfg(test)]
mod tests {
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
    fn fault_of_a_body_is_placed_at_the_member() {
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
            assert_eq!(place_of_fault::<Outer>(body.as_bytes()), place, "{body}");
        }
        assert!(parse::<Outer>(br#"{"count":1,"inner":[{"name":"a"}],"raw":{"x":1}}"#).is_ok());
    }
}
