//! Routes of the admin API. Each feature has a folder of its own.

pub(crate) mod access;
mod banks;
mod config;
mod exports;
pub(crate) mod items;
pub(crate) mod jobs;
mod operations;
pub(crate) mod request;
pub(crate) mod rules;

use std::sync::Arc;

use axum::{Router, middleware::from_fn_with_state};
use tidegate_moderation::reevaluation::trials::Trials;
use tidegate_scheduler::OrgPermits;
use tidegate_web::{HttpServer, Problem};

use self::{
    access::{audit, keys, orgs},
    config::{documents, endpoints, policies},
    items::{lookup, partial_items, users},
    jobs::{claims, decisions, moves, notes, queues, views},
    operations::{dead_letters, deliveries},
    request::caller,
};
pub use crate::api::local_token::LocalToken;
use crate::api::{Api, ApiState, Deps, settings::Settings, sign_in_attempts::SignInAttempts};

/// Builds the state of the handlers of one server.
pub(crate) fn build_api(deps: Deps, settings: Settings, http: HttpServer) -> Api {
    // Pulls of one snapshot share one serialized answer, so the state is built with its writer.
    let pulls = deps.changes.pulls(documents::serialize_pulled);
    let (sign_ins, trials) = (SignInAttempts::default(), Trials::default());
    let exports = OrgPermits::new(exports::EXPORTS_PER_ORG);
    Arc::new(ApiState { deps, settings, http, sign_ins, trials, exports, pulls })
}

/// Builds the router of the API. Unknown paths require authentication as well, so that they do not reveal which paths exist.
pub(crate) fn router(api: &Api) -> Router<Api> {
    let for_admins = Router::new()
        .merge(audit::routes())
        .merge(banks::routes())
        .merge(documents::routes())
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
        .merge(claims::routes())
        .merge(decisions::routes())
        .merge(lookup::routes())
        .merge(moves::routes())
        .merge(notes::routes())
        .merge(partial_items::routes())
        .merge(policies::routes())
        .merge(queues::routes())
        .merge(users::routes())
        .merge(views::routes())
        .route_layer(from_fn_with_state(Arc::clone(api), caller::require_reviewer));
    let for_exports =
        exports::routes().route_layer(from_fn_with_state(Arc::clone(api), caller::require_exports));
    let routes = for_admins
        .merge(for_reviewers)
        .merge(for_exports)
        // Layers run from the last to the first: the caller is authenticated before the request is recorded.
        .layer(from_fn_with_state(Arc::clone(api), audit::record_request))
        // Inside the layers, so that an unknown path is answered only after authentication.
        .fallback(|| async { Problem::not_found("No such route.") })
        .layer(from_fn_with_state(Arc::clone(api), caller::authenticate));
    Router::new().nest("/admin/v1", routes)
}
