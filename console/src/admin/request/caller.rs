//! Authenticates callers of the admin API: holders of a key of scope `admin`, `review` or `exports:read`, and commands on the
//! same machine.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, Uri},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use tidegate_catalog::{DEFAULT_ORG, Scope, Scopes};
use tidegate_moderation::child_safety::Clearance;
use tidegate_schemas::ids::OrgId;
use tidegate_web::{AnswerOrg, Problem, Query, RequestId, Scheme, bearer_token};

use crate::api::Api;

/// Caller of a request and its organisation.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) org: OrgId,
    /// Name recorded with changes and claims.
    pub(crate) name: Arc<str>,
    /// Operator of the installation, with access to all orgs.
    pub(crate) is_operator: bool,
    scopes: Scopes,
    pub(crate) request_id: Arc<str>,
}

impl Caller {
    /// Caller that holds an API key.
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

    /// Name of the reviewer of a request. A review tool names its own users; otherwise it is the caller's name.
    pub(crate) fn reviewer(&self, reviewer_name: Option<String>) -> String {
        reviewer_name.unwrap_or_else(|| self.name.to_string())
    }

    /// True if the caller may use the whole admin API, not only the parts for reviewers.
    pub(crate) fn is_admin(&self) -> bool {
        self.is_operator || self.scopes.contains(Scope::Admin)
    }

    /// True if the caller may use the parts of the admin API for reviewers. `admin` includes `review`.
    fn is_reviewer(&self) -> bool {
        self.is_operator || self.scopes.grants(Scope::Review)
    }

    /// True if the caller may read exports. Admins may not: an export holds the personal data of all users.
    fn may_export(&self) -> bool {
        self.is_operator || self.scopes.contains(Scope::ExportsRead)
    }

    /// True if the caller may create a key with the scope. Some scopes are granted only by callers with the scope, because an
    /// admin could otherwise grant it to a key of their own.
    pub(crate) fn may_grant(&self, scope: Scope) -> bool {
        match scope {
            Scope::ChildSafety => self.may_see_child_safety(),
            Scope::ExportsRead => self.may_export(),
            _ => true,
        }
    }

    /// Refuses callers that may not create a key with these scopes.
    pub(crate) fn require_grantable(&self, scopes: Scopes) -> Result<(), Problem> {
        let refused_scope = scopes.iter().find(|scope| !self.may_grant(*scope));
        refused_scope.map_or(Ok(()), |scope| Err(missing_scope(scope)))
    }

    /// True if the caller may see child-safety jobs. The operator may, as the holder of the data; every view is audited.
    pub(crate) fn may_see_child_safety(&self) -> bool {
        self.is_operator || self.scopes.contains(Scope::ChildSafety)
    }

    pub(crate) fn clearance(&self) -> Clearance {
        Clearance::from_flag(self.may_see_child_safety())
    }

    /// Refuses callers without the scope `child_safety`.
    pub(crate) fn require_child_safety(&self) -> Result<(), Problem> {
        if self.may_see_child_safety() { Ok(()) } else { Err(Self::missing_child_safety_scope()) }
    }

    pub(crate) fn missing_child_safety_scope() -> Problem {
        missing_scope(Scope::ChildSafety)
    }
}

/// Refuses callers with the scope `review` alone.
pub(crate) async fn require_admin(caller: Caller, request: Request, next: Next) -> Response {
    if caller.is_admin() { next.run(request).await } else { missing_scope(Scope::Admin).into_response() }
}

/// Refuses callers with the scope `exports:read` alone.
pub(crate) async fn require_reviewer(caller: Caller, request: Request, next: Next) -> Response {
    if caller.is_reviewer() { next.run(request).await } else { missing_scope(Scope::Review).into_response() }
}

/// Refuses callers without the scope `exports:read`.
pub(crate) async fn require_exports(caller: Caller, request: Request, next: Next) -> Response {
    if caller.may_export() {
        next.run(request).await
    } else {
        missing_scope(Scope::ExportsRead).into_response()
    }
}

fn missing_scope(scope: Scope) -> Problem {
    Problem::forbidden(format!("The key lacks the scope `{}`.", scope.name()))
}

#[derive(Deserialize)]
struct OrgQuery {
    org: Option<String>,
}

/// Authenticates the caller before the body is read and before the route is known: an unauthenticated client cannot find out
/// which paths exist.
pub(crate) async fn authenticate(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let authenticated = identify_caller(&api, request.headers(), request.uri()).await;
    let caller = authenticated.map(|caller| caller.with_request_id(request.extensions().get()));
    // Admitted after authentication, because the limits count for the caller's org.
    match caller.and_then(|caller| api.http.admit(&request, &caller.org).map(|()| caller)) {
        Ok(caller) => {
            let org = AnswerOrg(caller.org.clone());
            request.extensions_mut().insert(caller);
            let mut answer = next.run(request).await;
            // The answer's unsent bytes count for this org.
            answer.extensions_mut().insert(org);
            answer
        }
        Err(problem) => problem.into_response(),
    }
}

async fn identify_caller(api: &Api, headers: &HeaderMap, uri: &Uri) -> Result<Caller, Problem> {
    let is_local = bearer_token(headers).is_some_and(|token| api.deps.local_token.matches(token));
    // The local token needs no look-up, so the operator's commands work while keys cannot be checked.
    let key = if is_local {
        None
    } else {
        let key = tidegate_web::authenticate(&api.deps.keys, headers, Scheme::Bearer).await?;
        // `admin` includes `review`. Routes for reviewers refuse keys with `exports:read` alone.
        if !key.has_scope(Scope::Review) && !key.has_scope(Scope::ExportsRead) {
            return Err(Problem::forbidden(
                "The key has none of the scopes `admin`, `review` and `exports:read`.",
            ));
        }
        Some(key)
    };
    // Parsed after authentication: the content of an unauthenticated request is not looked at.
    let requested_org = Query::<OrgQuery>::from_uri(uri)?.0.org.map(OrgId::from);
    match key {
        None => Ok(Caller {
            // The operator may act for any org. A command without an org means the default one.
            org: requested_org.inspect(tidegate_web::record_org).unwrap_or_else(|| OrgId::new(DEFAULT_ORG)),
            name: Arc::from("operator"),
            is_operator: true,
            scopes: Scopes::default(),
            request_id: Arc::from(""),
        }),
        Some(key) => match requested_org {
            Some(requested_org) if requested_org != key.org => {
                Err(Problem::forbidden("The key belongs to another organisation."))
            }
            _ => Ok(Caller::of_key(key)),
        },
    }
}
