//! Parts shared by the forms for keys.

use axum::{
    Extension,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use maud::{Markup, html};
use tidegate_schemas::ids::{ApiKeyId, Kind, derive};
use tidegate_web::Problem;

use super::PATH;
use crate::{
    admin::{
        access::keys::{self, KeyResponse, NewKeyResponse},
        request::{invalid, parse_id},
    },
    api::Api,
    html::{self, Section, alert, code_list, text, time},
    signin::PageSession,
};

/// Field that identifies a form, so that a repeated submission is recognised.
pub(super) const FORM_ID_FIELD: &str = "once";

/// Parses a whole number of a form field. The error refers to `pointer`, the member of the request that the field fills.
pub(super) fn parse_number(text: &str, pointer: &str, unit: &str) -> Result<u64, Problem> {
    text.parse().map_err(|_| invalid(pointer, format!("Enter a whole number of {unit}, such as 30.")))
}

/// Derives the id of a form's key. Every submission of the form gets the same id, so only the first one creates a key.
pub(super) fn derive_key_id(session: &PageSession, form_id: &str) -> ApiKeyId {
    derive(Kind::FormKey, &[session.caller.org.as_str().as_bytes(), form_id.as_bytes()])
}

/// Refuses a form without a form id: all such forms would derive the same key id.
pub(super) fn require_form_id(form_id: &str) -> Result<(), Problem> {
    if form_id.is_empty() || form_id.len() > 100 {
        return Err(invalid("", "The form is incomplete. Reload the page and try again."));
    }
    Ok(())
}

/// True if the form shows the problem at its fields, instead of a page of its own.
pub(super) fn is_form_problem(problem: &Problem) -> bool {
    matches!(problem.status, StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::FORBIDDEN)
}

/// Renders the errors of a problem that belong to none of these members.
pub(super) fn other_errors(problem: Option<&Problem>, pointers: &[&str]) -> Markup {
    let errors = problem.into_iter().flat_map(|problem| &problem.errors);
    let unplaced_errors =
        errors.filter(|error| error.pointer.as_deref().is_none_or(|pointer| !pointers.contains(&pointer)));
    html! { @for error in unplaced_errors { (alert(&error.detail)) } }
}

/// Renders the page with a new key. It is the only page with the key's token.
pub(super) fn render_new_key_page(
    session: &PageSession,
    title: &str,
    new_key: NewKeyResponse,
    old_key_end: Option<Markup>,
) -> Response {
    let detail = new_key.audit_detail();
    let NewKeyResponse { key, info } = new_key;
    let body = html! {
        div.notice role="status" { p { "The key " strong { (text(&info.name)) } " was created. Copy it now: it is not shown again." } }
        code.secret #key tabindex="0" aria-label="The new key" { (key) }
        dl.facts {
            dt { "Scopes" } dd { (code_list(&info.scopes)) }
            dt { "Ends" } dd { @match &info.expires_at { Some(at) => (time(at)), None => "never" } }
            @if let Some(old_key_end) = old_key_end { dt { "The old key" } dd { (old_key_end) } }
        }
        p { a href=(PATH) { "All keys" } }
    };
    let page = html::render_page_with_status(
        StatusCode::CREATED,
        session.frame(),
        Some(Section::Keys),
        title,
        &body,
    );
    (Extension(detail), page).into_response()
}

/// Loads the org's key with the id of a path.
pub(super) async fn load_key(api: &Api, session: &PageSession, key: &str) -> Result<KeyResponse, Problem> {
    let key: ApiKeyId = parse_id(key)?;
    // Searched in the keys of the caller's org: a key of another org is unknown here.
    let mut keys = keys::load_keys(api, &session.caller).await?.into_iter();
    keys.find(|candidate| candidate.id == key).ok_or_else(|| Problem::not_found("There is no such key."))
}

pub(super) fn session_key_notice(session: &PageSession, key: &KeyResponse) -> Markup {
    html! { @if key.id == session.key_id { p { "You are signed in with this key: your session ends when it does." } } }
}
