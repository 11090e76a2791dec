//! The routes of the admin API, and what all of them share.
//!
//! Each resource has a file of its own.

mod audit;
mod banks;
mod caller;
mod child_safety;
mod config;
mod dead_letters;
mod decision_body;
mod deliveries;
mod endpoints;
mod extract;
mod faults;
mod items;
mod job_list;
mod job_moves;
mod job_notes;
mod jobs;
mod keys;
mod orgs;
mod partial_items;
mod policies;
mod queues;
mod rules;
mod users;

use std::sync::Arc;

use axum::{Router, middleware::from_fn_with_state};
use serde::Serialize;
use tidegate_web::HttpServer;

pub use self::caller::LocalToken;
use crate::{Deps, Settings};

/// Dependencies of the handlers.
pub(crate) struct Shared {
    deps: Deps,
    settings: Settings,
    http: HttpServer,
    trials: rules::Trials,
}

pub(crate) type Api = Arc<Shared>;

/// A page of a list. `next` is given back as `cursor`; without it the list has ended.
#[derive(Debug, Serialize)]
pub(crate) struct List<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

impl<T> List<T> {
    fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

/// The whole API; every route asks who calls before anything else.
pub fn router(deps: Deps, settings: Settings, http: HttpServer) -> Router {
    let api = Arc::new(Shared { deps, settings, http, trials: rules::Trials::default() });
    let routes = Router::new()
        .merge(audit::routes())
        .merge(banks::routes())
        .merge(config::routes())
        .merge(dead_letters::routes())
        .merge(deliveries::routes())
        .merge(endpoints::routes())
        .merge(items::routes())
        .merge(job_moves::routes())
        .merge(job_notes::routes())
        .merge(jobs::routes())
        .merge(keys::routes())
        .merge(orgs::routes())
        .merge(partial_items::routes())
        .merge(policies::routes())
        .merge(queues::routes())
        .merge(rules::routes())
        .merge(users::routes())
        .layer(from_fn_with_state(Arc::clone(&api), audit::record));
    let router = Router::new()
        .nest("/admin/v1", routes)
        .layer(from_fn_with_state(Arc::clone(&api), caller::authenticate))
        .with_state(api);
    tidegate_web::with_envelope(router)
}
