//! Settings pages for API keys: lists the keys of the org, and creates, rotates and revokes them by forms.
//!
//! Only the response to its form shows a new key. Sending a form twice creates one key.

mod create;
mod forms;
mod revoke;
mod rotate;

use axum::{Router, extract::State, response::Response, routing::get};
use maud::{Markup, html};
use tidegate_schemas::ids::{ApiKeyId, Millis};
use tidegate_web::Problem;

use crate::{
    admin::access::keys::{self, KeyResponse},
    api::Api,
    html::{self, Section, code_list, text, time},
    signin::PageSession,
};

const PATH: &str = "/settings/keys";

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/settings/keys", get(show_keys).post(create::create_key))
        .route("/settings/keys/new", get(create::show_create_form))
        .route("/settings/keys/{id}/rotate", get(rotate::show_rotate_form).post(rotate::rotate_key))
        .route("/settings/keys/{id}/revoke", get(revoke::show_revoke_form).post(revoke::revoke_key))
}

/// Current state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyState {
    Active,
    Expired,
    Revoked,
}

fn key_state(key: &KeyResponse, now: &str) -> KeyState {
    match (&key.revoked_at, &key.expires_at) {
        (Some(_), _) => KeyState::Revoked,
        // ISO times in UTC sort as text.
        (None, Some(end)) if end.as_str() <= now => KeyState::Expired,
        (None, _) => KeyState::Active,
    }
}

async fn show_keys(State(api): State<Api>, session: PageSession) -> Result<Response, Problem> {
    let keys = keys::load_keys(&api, &session.caller).await?;
    let now_text = Millis::now().iso();
    let (active_keys, ended_keys): (Vec<_>, Vec<_>) =
        keys.iter().partition(|key| key_state(key, &now_text) == KeyState::Active);
    let session_key = session.key_id;
    let body = html! {
        p {
            "Platforms send a key with each request, in the header " code { "X-API-KEY" }
            ". A key is shown once, when it is created. Use different keys for different environments, and rotate a key that may be \
             known to others."
        }
        p { a.button href="/settings/keys/new" { "Create a key" } }
        @if active_keys.is_empty() { p.none { "No API key is active. Create one here, or with `tidegate keys create`." } } @else { (key_table(&active_keys, session_key, &now_text)) }
        @if !ended_keys.is_empty() {
            details {
                summary { "Ended keys (" (ended_keys.len()) ")" }
                (key_table(&ended_keys, session_key, &now_text))
            }
        }
    };
    Ok(html::render_page(session.frame(), Some(Section::Keys), "API keys", &body))
}

fn key_table(keys: &[&KeyResponse], session_key: ApiKeyId, now: &str) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Key" }
                    th scope="col" { "Scopes" }
                    th scope="col" { "Created" }
                    th scope="col" { "Last used" }
                    th scope="col" { "Ends" }
                    th scope="col" { "Change" }
                }
            }
            tbody { @for key in keys { (key_row(key, session_key, now)) } }
        }
    }
}

fn key_row(key: &KeyResponse, session_key: ApiKeyId, now: &str) -> Markup {
    let state = key_state(key, now);
    html! {
        tr {
            th scope="row" {
                (text(&key.name)) " "
                @if key.id == session_key { span.badge.good { "this session" } }
                p.hint { code { (key.prefix) "…" } }
            }
            td data-label="Scopes" { (code_list(&key.scopes)) }
            td data-label="Created" { (time(&key.created_at)) }
            td data-label="Last used" { span { @match &key.last_used_at { Some(at) => (time(at)), None => "never" } } }
            td data-label="Ends" {
                span {
                    @match (state, &key.revoked_at, &key.expires_at) {
                        (KeyState::Revoked, Some(at), _) => { span.badge.bad { "revoked" } " " (time(at)) }
                        (KeyState::Expired, _, Some(at)) => { span.badge.bad { "expired" } " " (time(at)) }
                        (_, _, Some(at)) => { (time(at)) }
                        _ => { "never" }
                    }
                }
            }
            td data-label="Change" {
                @if state == KeyState::Active {
                    span.actions {
                        a href=(format!("{PATH}/{}/rotate", key.id)) { "Rotate" span.sr { " " (text(&key.name)) } }
                        a href=(format!("{PATH}/{}/revoke", key.id)) { "Revoke" span.sr { " " (text(&key.name)) } }
                    }
                } @else { span { "none" } }
            }
        }
    }
}
