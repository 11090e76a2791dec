//! Routes of the console's pages. Pages call the functions of the admin API and render the results.

mod job_page;
mod jobs;
mod keys;
mod partial_items;
mod queues;

use std::sync::Arc;

use axum::{
    Router,
    middleware::{from_fn, from_fn_with_state},
    response::Response,
    routing::get,
};

use crate::{
    admin::{access::audit, request::caller},
    api::Api,
    html, signin,
};

/// Builds the router of all pages, including the sign-in and the page for unknown paths.
pub(crate) fn router(api: &Api) -> Router<Api> {
    let settings = Router::new()
        .merge(keys::routes())
        .merge(partial_items::settings_routes())
        .route_layer(from_fn_with_state(Arc::clone(api), caller::require_admin));
    Router::new()
        .route("/", get(redirect_to_queues))
        .merge(settings)
        .merge(jobs::routes())
        .merge(partial_items::routes())
        .merge(queues::routes())
        // Layers run from the last to the first: the caller is authenticated before the request is recorded.
        .layer(from_fn_with_state(Arc::clone(api), audit::record_request))
        .layer(from_fn_with_state(Arc::clone(api), signin::authenticate))
        .merge(signin::routes(api))
        // Without authentication: the sign-in page uses the style sheet as well.
        .route("/style.css", get(html::serve_style))
        .fallback(signin::no_such_page)
        .layer(from_fn(html::set_security_headers))
        .layer(from_fn(signin::require_tls))
}

async fn redirect_to_queues() -> Response {
    signin::see_other("/queues")
}
