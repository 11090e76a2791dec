//! Routes of the admin API and the state shared by its handlers. Each resource has a file of its own.

pub(crate) mod audit;
mod audit_clearance;
mod banks;
pub(crate) mod caller;
mod child_safety;
mod config;
mod dead_letters;
mod decision_body;
mod deliveries;
mod endpoints;
pub(crate) mod extract;
pub(crate) mod faults;
mod items;
pub(crate) mod job_list;
mod job_moves;
mod job_notes;
pub(crate) mod jobs;
pub(crate) mod keys;
mod long_answers;
mod orgs;
pub(crate) mod partial_items;
mod policies;
pub(crate) mod queues;
mod refusals;
mod rules;
mod users;

use std::sync::Arc;

use axum::{Router, middleware::from_fn_with_state};
use serde::Serialize;
use tidegate_catalog::change::Pulls;
use tidegate_web::{HttpServer, Problem};

pub use self::caller::LocalToken;
use crate::{Deps, Settings, sign_in_attempts::SignInAttempts};

/// State of the handlers.
pub(crate) struct ApiState {
    pub(crate) deps: Deps,
    pub(crate) settings: Settings,
    pub(crate) http: HttpServer,
    pub(crate) sign_ins: SignInAttempts,
    trials: rules::Trials,
    pulls: Pulls,
}

pub(crate) type Api = Arc<ApiState>;

/// Page of a list. `next` is the `cursor` of the next page; without it the list is complete.
#[derive(Debug, Serialize)]
pub(crate) struct ListResponse<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

impl<T> ListResponse<T> {
    fn unpaged(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

/// Builds the state of the handlers of one server.
pub(crate) fn build_api(deps: Deps, settings: Settings, http: HttpServer) -> Api {
    let pulls = deps.changes.pulls(config::serialize_pulled);
    let (sign_ins, trials) = (SignInAttempts::default(), rules::Trials::default());
    Arc::new(ApiState { deps, settings, http, sign_ins, trials, pulls })
}

/// Builds the router of the API. Unknown paths require authentication as well, so that they do not reveal which paths exist.
pub(crate) fn router(api: &Api) -> Router<Api> {
    let for_admins = Router::new()
        .merge(audit::routes())
        .merge(banks::routes())
        .merge(config::routes())
        .merge(dead_letters::routes())
        .merge(deliveries::routes())
        .merge(endpoints::routes())
        .merge(keys::routes())
        .merge(orgs::routes())
        .merge(partial_items::settings_routes())
        .merge(rules::routes())
        // `route_layer` covers these routes only; `layer` would also refuse reviewers on unknown paths.
        .route_layer(from_fn_with_state(Arc::clone(api), caller::require_admin));
    let for_reviewers = Router::new()
        .merge(items::routes())
        .merge(job_moves::routes())
        .merge(job_notes::routes())
        .merge(jobs::routes())
        .merge(partial_items::routes())
        .merge(policies::routes())
        .merge(queues::routes())
        .merge(users::routes());
    let routes = for_admins
        .merge(for_reviewers)
        // Layers run from the last to the first: the caller is authenticated before the request is recorded.
        .layer(from_fn_with_state(Arc::clone(api), audit::record_request))
        // Inside the layers, so that an unknown path is answered only after authentication.
        .fallback(|| async { Problem::not_found("No such route.") })
        .layer(from_fn_with_state(Arc::clone(api), caller::authenticate));
    Router::new().nest("/admin/v1", routes)
}
