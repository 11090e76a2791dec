//! State shared by the handlers of the admin API and of the pages.

pub(crate) mod local_token;
pub(crate) mod settings;
pub(crate) mod sign_in_attempts;

use std::sync::Arc;

use serde::Serialize;
use tidegate_catalog::{
    Banks, Keys, Secrets,
    change::{Changes, Pulls},
};
use tidegate_moderation::reevaluation::trials::Trials;
use tidegate_scheduler::OrgPermits;
use tidegate_web::HttpServer;

use self::{local_token::LocalToken, settings::Settings, sign_in_attempts::SignInAttempts};

/// Dependencies of the console.
#[derive(Clone)]
pub struct Deps {
    pub moderation: tidegate_moderation::Deps,
    pub keys: Keys,
    pub secrets: Secrets,
    pub changes: Changes,
    pub banks: Banks,
    /// Authenticates commands of the same user on the same machine.
    pub local_token: Arc<LocalToken>,
    /// Rows that may be read to count one window, as in the role `process`.
    pub window_rows: usize,
}

/// State of the handlers.
pub(crate) struct ApiState {
    pub(crate) deps: Deps,
    pub(crate) settings: Settings,
    pub(crate) http: HttpServer,
    pub(crate) sign_ins: SignInAttempts,
    pub(crate) trials: Trials,
    /// Permits of exports, by org.
    pub(crate) exports: OrgPermits,
    pub(crate) pulls: Pulls,
}

pub(crate) type Api = Arc<ApiState>;

/// Page of a list. `next` is the `cursor` of the next page; without it the list is complete.
#[derive(Debug, Serialize)]
pub(crate) struct ListResponse<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

impl<T> ListResponse<T> {
    pub(crate) fn unpaged(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}
