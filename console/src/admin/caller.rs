//! Callers of the admin API: the holder of a key of scope `admin` or `review`, or a command on the same machine.
//!
//! It runs before the body is read, for every path: a stranger learns not even which paths exist.

use std::{fmt, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, Uri},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use subtle::ConstantTimeEq;
use tidegate_catalog::{DEFAULT_ORG, Scope, Scopes};
use tidegate_moderation::child_safety::Clearance;
use tidegate_schemas::ids::OrgId;
use tidegate_web::{AnswerFor, Problem, Query, RequestId, Scheme, bearer};

use super::Api;

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

/// Caller of a request and its organisation.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) org: OrgId,
    /// Name that changes and claims carry.
    pub(crate) name: Arc<str>,
    /// The operator of the installation, who may also act for all organisations.
    pub(crate) is_operator: bool,
    scopes: Scopes,
    pub(crate) request_id: Arc<str>,
}

impl Caller {
    /// The holder of an API key.
    pub(crate) fn of_key(key: tidegate_catalog::Caller) -> Self {
        Self {
            org: key.org,
            name: key.name,
            is_operator: false,
            scopes: key.scopes,
            request_id: Arc::from(""),
        }
    }

    #[must_use]
    pub(crate) fn with_request_id(self, id: Option<&RequestId>) -> Self {
        Self { request_id: Arc::from(id.map_or("", RequestId::as_str)), ..self }
    }

    /// The reviewer that a request speaks for: a review tool names its own people.
    pub(crate) fn reviewer(&self, named: Option<String>) -> String {
        named.unwrap_or_else(|| self.name.to_string())
    }

    /// True if the caller may use all of the admin API, and not only the parts for reviewers.
    pub(crate) fn is_admin(&self) -> bool {
        self.is_operator || self.scopes.contains(Scope::Admin)
    }

    /// True if the caller may see jobs of child safety. The operator, who holds the data, may; every view is audited.
    pub(crate) fn may_child_safety(&self) -> bool {
        self.is_operator || self.scopes.contains(Scope::ChildSafety)
    }

    pub(crate) fn clearance(&self) -> Clearance {
        Clearance::from_flag(self.may_child_safety())
    }

    /// Refuses callers without the scope `child_safety`.
    pub(crate) fn needs_child_safety(&self) -> Result<(), Problem> {
        if self.may_child_safety() { Ok(()) } else { Err(Self::lacks_child_safety()) }
    }

    pub(crate) fn lacks_child_safety() -> Problem {
        lacks(Scope::ChildSafety)
    }
}

/// Refuses callers with the scope `review` alone.
pub(crate) async fn require_admin(caller: Caller, request: Request, next: Next) -> Response {
    if caller.is_admin() { next.run(request).await } else { lacks(Scope::Admin).into_response() }
}

fn lacks(scope: Scope) -> Problem {
    Problem::forbidden(format!("The key lacks the scope `{}`.", scope.name()))
}

#[derive(Deserialize)]
struct Named {
    org: Option<String>,
}

pub(crate) async fn authenticate(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let caller = caller(&api, request.headers(), request.uri()).await;
    let caller = caller.map(|caller| caller.with_request_id(request.extensions().get()));
    match caller.and_then(|caller| api.http.admit(&request, &caller.org).map(|()| caller)) {
        Ok(caller) => {
            let org = AnswerFor(caller.org.clone());
            request.extensions_mut().insert(caller);
            let mut answer = next.run(request).await;
            answer.extensions_mut().insert(org);
            answer
        }
        Err(problem) => problem.into_response(),
    }
}

async fn caller(api: &Api, headers: &HeaderMap, uri: &Uri) -> Result<Caller, Problem> {
    let local = bearer(headers).is_some_and(|token| api.deps.local_token.is(token));
    let key = if local {
        None
    } else {
        let key = tidegate_web::authenticate(&api.deps.keys, headers, Scheme::Bearer).await?;
        if !key.may(Scope::Review) {
            return Err(Problem::forbidden("The key has neither the scope `admin` nor `review`."));
        }
        Some(key)
    };
    // Only now: what a stranger sends is not even looked at.
    let named = Query::<Named>::of(uri)?.0.org.map(OrgId::from);
    match key {
        None => Ok(Caller {
            org: named.inspect(tidegate_web::record_org).unwrap_or_else(|| OrgId::new(DEFAULT_ORG)),
            name: Arc::from("operator"),
            is_operator: true,
            scopes: Scopes::default(),
            request_id: Arc::from(""),
        }),
        Some(key) => match named {
            Some(named) if named != key.org => {
                Err(Problem::forbidden("The key belongs to another organisation."))
            }
            _ => Ok(Caller::of_key(key)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_local_token_is_it_and_nothing_prints_it() {
        let token = LocalToken::new("a-token".to_owned());
        assert!(token.is("a-token"));
        assert!(!token.is("a-toke") && !token.is("") && !token.is("a-token "));
        assert_eq!(format!("{token:?}"), "LocalToken(***)");
    }
}
