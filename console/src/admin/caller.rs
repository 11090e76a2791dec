//! Who calls the admin API: the holder of a key of scope `admin`, or a command on the same machine.
//!
//! It runs before the body is read, for every path: a stranger learns not even which paths exist.

use std::{fmt, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use subtle::ConstantTimeEq;
use tidegate_catalog::{DEFAULT_ORG, Denied, Scope};
use tidegate_schemas::ids::OrgId;
use tidegate_web::Problem;

use super::{Api, extract, faults};

const CHALLENGE: &str = "Bearer realm=\"tidegate-admin\"";

/// A token that lives as long as the process.
pub struct LocalToken(String);

impl LocalToken {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl fmt::Debug for LocalToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalToken(***)")
    }
}

/// Who calls, and for which organisation.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) org: OrgId,
    /// As changes and claims name it.
    pub(crate) name: Arc<str>,
    /// The operator of the installation, who may also act for all organisations.
    pub(crate) is_operator: bool,
}

impl Caller {
    /// The reviewer that a request speaks for: a review tool names its own people.
    pub(crate) fn reviewer(&self, named: Option<String>) -> String {
        named.unwrap_or_else(|| self.name.to_string())
    }
}

#[derive(Deserialize)]
struct Named {
    org: Option<String>,
}

pub(crate) async fn authenticate(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    match caller(&api, request.headers(), request.uri()).await {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

async fn caller(api: &Api, headers: &HeaderMap, uri: &Uri) -> Result<Caller, Problem> {
    let token = bearer(headers).ok_or_else(|| Problem::unauthenticated(CHALLENGE))?;
    let local = api.deps.local_token.is(token);
    let key = if local { None } else { Some(known(api, token).await?) };
    // Only now: what a stranger sends is not even looked at.
    let named = extract::query::<Named>(uri)?.org.map(OrgId::from);
    match key {
        None => Ok(Caller {
            org: named.unwrap_or_else(|| OrgId::new(DEFAULT_ORG)),
            name: Arc::from("operator"),
            is_operator: true,
        }),
        Some(key) => match named {
            Some(named) if named != key.org => {
                Err(Problem::forbidden("The key belongs to another organisation."))
            }
            _ => Ok(Caller { org: key.org, name: key.name, is_operator: false }),
        },
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

async fn known(api: &Api, token: &str) -> Result<tidegate_catalog::Caller, Problem> {
    match api.deps.keys.authenticate(token).await {
        Ok(caller) if caller.may(Scope::Admin) => Ok(caller),
        Ok(_) => Err(Problem::forbidden("The key lacks the scope `admin`.")),
        Err(Denied::OrgDisabled) => Err(Problem::forbidden("The organisation is disabled.")),
        Err(Denied::Unavailable) => Err(faults::unreachable()),
        Err(_) => Err(Problem::unauthenticated(CHALLENGE)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_bearer_is_read_whatever_the_case_of_its_scheme() {
        let read = |value: &'static str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(read("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(read("bearer  abc").as_deref(), Some("abc"));
        assert_eq!(read("Basic abc"), None);
        assert_eq!(read("abc"), None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn only_the_whole_local_token_is_it_and_nothing_prints_it() {
        let token = LocalToken::new("a-token".to_owned());
        assert!(token.is("a-token"));
        assert!(!token.is("a-toke") && !token.is("") && !token.is("a-token "));
        assert_eq!(format!("{token:?}"), "LocalToken(***)");
    }
}
