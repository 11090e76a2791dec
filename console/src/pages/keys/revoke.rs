//! Form that revokes a key.

use axum::{extract::State, response::Response};
use maud::html;
use tidegate_web::{Path, Problem};

use super::{
    PATH,
    forms::{load_key, session_key_notice},
};
use crate::{
    admin::{access::keys, request::parse_id},
    api::Api,
    html::{self, Section, text, time},
    signin::{PageSession, see_other},
};

pub(super) async fn show_revoke_form(
    State(api): State<Api>,
    session: PageSession,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    let key = load_key(&api, &session, &key).await?;
    let body = html! {
        p {
            "Requests with " strong { (text(&key.name)) } " (" code { (key.prefix) "…" }
            ") are refused from now on, at the latest in half a minute. This cannot be taken back."
        }
        p { "Last used: " @match &key.last_used_at { Some(at) => (time(at)), None => "never" } }
        (session_key_notice(&session, &key))
        form.sheet method="post" action=(format!("{PATH}/{}/revoke", key.id)) {
            (html::token_field(session.form_token()))
            div.actions {
                button.danger type="submit" { "Revoke the key" }
                a href=(PATH) { "Cancel" }
            }
        }
    };
    Ok(html::render_page(session.frame(), Some(Section::Keys), "Revoke a key", &body))
}

pub(super) async fn revoke_key(
    State(api): State<Api>,
    session: PageSession,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    keys::revoke_key(&api, &session.caller, parse_id(&key)?).await?;
    Ok(see_other(PATH))
}
