//! Authenticates requests by the key in their headers, before the body is read. `tidegate-catalog` stores the keys; the route
//! decides on the required scope.

use async_recursion::async_recursion as boxed;
use axum::http::{HeaderMap, header};
use tidegate_catalog::{Caller, KeyRejection, Keys, Scope};

use crate::{Problem, problem::record_org};

const API_KEY: &str = "x-api-key";

/// Header that contains the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `X-API-KEY: <key>`
    ApiKey,
    /// `Authorization: Bearer <key>`, or `X-API-KEY`.
    Bearer,
}

impl Scheme {
    fn challenge(self) -> &'static str {
        match self {
            Self::ApiKey => r#"ApiKey realm="tidegate", header="X-API-KEY""#,
            Self::Bearer => r#"Bearer realm="tidegate""#,
        }
    }

    /// Returns the key in the headers; empty if it is missing or ambiguous.
    fn find_key(self, headers: &HeaderMap) -> &str {
        match self {
            Self::Bearer if headers.contains_key(header::AUTHORIZATION) => {
                bearer_token(headers).unwrap_or("")
            }
            Self::ApiKey | Self::Bearer => single_header(headers, API_KEY).unwrap_or(""),
        }
    }
}

/// Returns the token of `Authorization: Bearer` if there is exactly one.
pub fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = single_header(headers, header::AUTHORIZATION.as_str())?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the value of a header that occurs once. Two keys are ambiguous, so they count as none.
fn single_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}

/// Returns the caller. The answer to an invalid key does not reveal which keys exist.
#[boxed]
pub async fn authenticate(keys: &Keys, headers: &HeaderMap, scheme: Scheme) -> Result<Caller, Problem> {
    let caller = keys
        .authenticate(scheme.find_key(headers))
        .await
        .map_err(|denied| refusal_problem(denied, scheme))?;
    record_org(&caller.org);
    Ok(caller)
}

/// Authenticates like [`authenticate`], and requires a scope.
#[boxed]
pub async fn authorize(
    keys: &Keys,
    headers: &HeaderMap,
    scheme: Scheme,
    scope: Scope,
) -> Result<Caller, Problem> {
    let caller = authenticate(keys, headers, scheme).await?;
    if caller.has_scope(scope) {
        return Ok(caller);
    }
    Err(Problem::forbidden(format!("The key lacks the scope `{}`.", scope.name())))
}

fn refusal_problem(denied: KeyRejection, scheme: Scheme) -> Problem {
    // The metric distinguishes the reasons that the answer conceals.
    crate::metrics::count_denied_request(denied.tag());
    match denied {
        KeyRejection::Missing
        | KeyRejection::Malformed
        | KeyRejection::Unknown
        | KeyRejection::Expired
        | KeyRejection::Revoked => Problem::unauthenticated(scheme.challenge()),
        KeyRejection::OrgDisabled => Problem::forbidden("The organisation is disabled."),
        KeyRejection::Unavailable => {
            Problem::unavailable("Keys cannot be checked now.", std::time::Duration::from_secs(1))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn platform_key_is_read_from_one_header() {
        assert_eq!(Scheme::ApiKey.find_key(&headers(&[("x-api-key", "k")])), "k");
        assert_eq!(Scheme::ApiKey.find_key(&headers(&[("authorization", "Bearer k")])), "");
    }

    #[test]
    fn two_keys_count_as_none() {
        assert_eq!(Scheme::ApiKey.find_key(&headers(&[("x-api-key", "a"), ("x-api-key", "a")])), "");
    }

    #[test]
    fn admin_server_accepts_bearer_in_any_case() {
        for value in ["Bearer k", "bearer k", "BEARER  k"] {
            assert_eq!(Scheme::Bearer.find_key(&headers(&[("authorization", value)])), "k", "{value}");
        }
        assert_eq!(Scheme::Bearer.find_key(&headers(&[("x-api-key", "k")])), "k");
        for value in ["Basic k", "k", ""] {
            assert_eq!(
                Scheme::Bearer.find_key(&headers(&[("authorization", value), ("x-api-key", "k")])),
                "",
                "{value}"
            );
        }
    }

    #[test]
    fn all_invalid_keys_get_the_same_answer() {
        let answers = [
            KeyRejection::Missing,
            KeyRejection::Malformed,
            KeyRejection::Unknown,
            KeyRejection::Expired,
            KeyRejection::Revoked,
        ]
        .map(|denied| {
            let problem = refusal_problem(denied, Scheme::ApiKey);
            (problem.status, problem.title, problem.errors, problem.headers)
        });
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(answers[0].0, 401);
        assert_eq!(refusal_problem(KeyRejection::OrgDisabled, Scheme::ApiKey).status, 403);
        assert_eq!(refusal_problem(KeyRejection::Unavailable, Scheme::ApiKey).status, 503);
    }
}
