//! Settings pages for API keys: lists the keys of the org, and creates, rotates and revokes them by forms.
//!
//! Only the response to its form shows a new key. Sending a form twice creates one key.

use std::time::Duration;

use axum::{
    Extension, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use maud::{Markup, html};
use tidegate_catalog::{Scope, Scopes};
use tidegate_schemas::ids::{ApiKeyId, CauseId, Kind, Millis, derive};
use tidegate_web::{Path, Problem};

use crate::{
    admin::{
        access::keys::{self, CreateKeyRequest, KeyResponse, NewKeyResponse},
        request::parse_id,
    },
    api::Api,
    html::{self, Section, alert, code_list, field_error, text, time},
    signin::{FormFields, PageSession, see_other},
};

const PATH: &str = "/settings/keys";

/// Field that identifies a form, so that a repeated submission is recognised.
const FORM_ID_FIELD: &str = "once";

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/settings/keys", get(show_keys).post(create_key))
        .route("/settings/keys/new", get(show_create_form))
        .route("/settings/keys/{id}/rotate", get(show_rotate_form).post(rotate_key))
        .route("/settings/keys/{id}/revoke", get(show_revoke_form).post(revoke_key))
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

/// Values of the form that creates a key.
struct CreateKeyForm {
    name: String,
    scopes: Vec<String>,
    days: String,
    form_id: String,
}

impl CreateKeyForm {
    fn empty() -> Self {
        Self {
            name: String::new(),
            scopes: Scopes::platform().iter().map(|scope| scope.name().to_owned()).collect(),
            days: String::new(),
            form_id: CauseId::random().0.to_string(),
        }
    }

    fn parse(fields: &FormFields) -> Self {
        Self {
            name: fields.get("name").trim().to_owned(),
            scopes: fields.values_of("scopes").map(str::to_owned).collect(),
            days: fields.get("days").trim().to_owned(),
            form_id: fields.get(FORM_ID_FIELD).to_owned(),
        }
    }

    fn to_request(&self) -> Result<CreateKeyRequest, Problem> {
        let days = match &*self.days {
            "" => None,
            text => Some(parse_number(text, "/expiresInSeconds", "days")?),
        };
        Ok(CreateKeyRequest {
            name: Some(self.name.clone()),
            scopes: Some(self.scopes.clone()),
            expires_in_seconds: days.map(|days| days.saturating_mul(86_400)),
        })
    }
}

/// Parses a whole number of a form field. The error refers to `pointer`, the member of the request that the field fills.
fn parse_number(text: &str, pointer: &str, unit: &str) -> Result<u64, Problem> {
    text.parse().map_err(|_| {
        crate::admin::request::invalid(pointer, format!("Enter a whole number of {unit}, such as 30."))
    })
}

/// Derives the id of a form's key. Every submission of the form gets the same id, so only the first one creates a key.
fn derive_key_id(session: &PageSession, form_id: &str) -> ApiKeyId {
    derive(Kind::FormKey, &[session.caller.org.as_str().as_bytes(), form_id.as_bytes()])
}

/// Refuses a form without a form id: all such forms would derive the same key id.
fn require_form_id(form_id: &str) -> Result<(), Problem> {
    if form_id.is_empty() || form_id.len() > 100 {
        return Err(crate::admin::request::invalid(
            "",
            "The form is incomplete. Reload the page and try again.",
        ));
    }
    Ok(())
}

async fn show_create_form(session: PageSession) -> Response {
    render_create_page(StatusCode::OK, &session, &CreateKeyForm::empty(), None)
}

async fn create_key(State(api): State<Api>, session: PageSession, fields: FormFields) -> Response {
    let form = CreateKeyForm::parse(&fields);
    let creation = async {
        require_form_id(&form.form_id)?;
        let id = derive_key_id(&session, &form.form_id);
        keys::create_once(&api, &session.caller, form.to_request()?, id).await
    };
    match creation.await {
        Ok(new_key) => render_new_key_page(&session, "The new key", new_key, None),
        Err(problem) if is_form_problem(&problem) => {
            render_create_page(problem.status, &session, &form, Some(&problem))
        }
        Err(problem) => problem.into_response(),
    }
}

/// True if the form shows the problem at its fields, instead of a page of its own.
fn is_form_problem(problem: &Problem) -> bool {
    matches!(problem.status, StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::FORBIDDEN)
}

/// Renders the errors of a problem that belong to none of these members.
fn other_errors(problem: Option<&Problem>, pointers: &[&str]) -> Markup {
    let errors = problem.into_iter().flat_map(|problem| &problem.errors);
    let unplaced_errors =
        errors.filter(|error| error.pointer.as_deref().is_none_or(|pointer| !pointers.contains(&pointer)));
    html! { @for error in unplaced_errors { (alert(&error.detail)) } }
}

fn render_create_page(
    status: StatusCode,
    session: &PageSession,
    form: &CreateKeyForm,
    problem: Option<&Problem>,
) -> Response {
    let (name, scopes, days) = ("/name", "/scopes", "/expiresInSeconds");
    let name_error = field_error(problem, name, "name-error");
    let scopes_error = field_error(problem, scopes, "scopes-error");
    let days_error = field_error(problem, days, "days-error");
    let invalid = |error: &Option<Markup>| error.as_ref().map(|_| "true");
    // A caller cannot grant a scope that their own key lacks.
    let is_grantable = |scope: Scope| scope != Scope::ChildSafety || session.caller.may_see_child_safety();
    let body = html! {
        (other_errors(problem, &[name, scopes, days]))
        form.sheet method="post" action=(PATH) {
            (html::token_field(session.form_token()))
            input type="hidden" name=(FORM_ID_FIELD) value=(form.form_id);
            div.field {
                label for="name" { "Name" }
                p.hint #name-hint { "Describes the user of the key, for example " q { "shop, production" } "." }
                input #name type="text" name="name" value=(form.name) required maxlength="200" autocomplete="off"
                    aria-describedby="name-error name-hint" aria-invalid=[invalid(&name_error)];
                @if let Some(error) = &name_error { (error) }
            }
            fieldset.field aria-describedby="scopes-error" {
                legend { "Scopes" }
                @for scope in Scope::ALL.into_iter().filter(|scope| is_grantable(*scope)) {
                    @let field = format!("scope-{}", scope.name().replace(':', "-"));
                    div.check {
                        input type="checkbox" id=(field) name="scopes" value=(scope.name())
                            checked[form.scopes.iter().any(|name| name == scope.name())];
                        label for=(field) { code { (scope.name()) } " " (describe_scope(scope)) }
                    }
                }
                @if let Some(error) = &scopes_error { (error) }
            }
            div.field {
                label for="days" { "Ends after days" }
                p.hint #days-hint { "Leave empty for a key without expiry." }
                input #days type="number" name="days" value=(form.days) min="1" max="36500" inputmode="numeric"
                    aria-describedby="days-error days-hint" aria-invalid=[invalid(&days_error)];
                @if let Some(error) = &days_error { (error) }
            }
            div.actions {
                button type="submit" { "Create the key" }
                a href=(PATH) { "Cancel" }
            }
        }
    };
    html::render_page_with_status(status, session.frame(), Some(Section::Keys), "Create a key", &body)
}

const fn describe_scope(scope: Scope) -> &'static str {
    match scope {
        Scope::ItemsWrite => "submit items",
        Scope::ItemsRead => "read the outcomes of items",
        Scope::ReportsWrite => "submit reports",
        Scope::AppealsWrite => "submit appeals",
        Scope::PoliciesRead => "read policies",
        Scope::ActionsWrite => "record actions of the platform",
        Scope::Admin => "full administration: configuration, keys, jobs",
        Scope::ChildSafety => "jobs of child safety, beside review or admin",
        Scope::Review => "work on jobs: claim, decide, comment, move",
    }
}

/// Renders the page with a new key. It is the only page with the key's token.
fn render_new_key_page(
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
async fn load_key(api: &Api, session: &PageSession, key: &str) -> Result<KeyResponse, Problem> {
    let key: ApiKeyId = parse_id(key)?;
    let mut keys = keys::load_keys(api, &session.caller).await?.into_iter();
    keys.find(|candidate| candidate.id == key).ok_or_else(|| Problem::not_found("There is no such key."))
}

async fn show_rotate_form(
    State(api): State<Api>,
    session: PageSession,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    let key = load_key(&api, &session, &key).await?;
    let hours = (keys::default_overlap_seconds() / 3_600).to_string();
    let form_id = CauseId::random().0.to_string();
    Ok(render_rotate_page(StatusCode::OK, &session, &key, &hours, &form_id, None))
}

async fn rotate_key(
    State(api): State<Api>,
    session: PageSession,
    Path(key): Path<String>,
    fields: FormFields,
) -> Result<Response, Problem> {
    let key = load_key(&api, &session, &key).await?;
    let (hours, form_id) = (fields.get("hours").trim(), fields.get(FORM_ID_FIELD));
    let rotation = async {
        require_form_id(form_id)?;
        let overlap =
            Duration::from_secs(parse_number(hours, "/overlapSeconds", "hours")?.saturating_mul(3_600));
        let new_id = derive_key_id(&session, form_id);
        let new_key = keys::rotate_once(&api, &session.caller, key.id, new_id, overlap).await?;
        Ok::<_, Problem>((new_key, Millis::now().plus(overlap).iso()))
    };
    match rotation.await {
        Ok((new_key, overlap_end)) => {
            // From here on no step can fail: a new key that is not shown would be lost.
            let end = key.expires_at.clone().into_iter().chain([overlap_end]).min().unwrap_or_default();
            let old_key_end = html! { "works until " (time(&end)) };
            Ok(render_new_key_page(&session, "The new key", new_key, Some(old_key_end)))
        }
        Err(problem) if is_form_problem(&problem) => {
            Ok(render_rotate_page(problem.status, &session, &key, hours, form_id, Some(&problem)))
        }
        Err(problem) => Err(problem),
    }
}

fn render_rotate_page(
    status: StatusCode,
    session: &PageSession,
    key: &KeyResponse,
    hours: &str,
    form_id: &str,
    problem: Option<&Problem>,
) -> Response {
    let error = field_error(problem, "/overlapSeconds", "hours-error");
    let body = html! {
        (other_errors(problem, &["/overlapSeconds"]))
        p {
            "A new key with the same name, scopes and end takes the place of " strong { (text(&key.name)) } " (" code { (key.prefix) "…" } ")."
        }
        (session_key_notice(session, key))
        form.sheet method="post" action=(format!("{PATH}/{}/rotate", key.id)) {
            (html::token_field(session.form_token()))
            input type="hidden" name=(FORM_ID_FIELD) value=(form_id);
            div.field {
                label for="hours" { "Hours that the old key still works" }
                p.hint #hours-hint { "Time to put the new key in place everywhere. 0 ends the old key at once." }
                input #hours type="number" name="hours" value=(hours) min="0" required inputmode="numeric"
                    aria-describedby="hours-error hours-hint" aria-invalid=[error.as_ref().map(|_| "true")];
                @if let Some(error) = &error { (error) }
            }
            div.actions {
                button type="submit" { "Rotate the key" }
                a href=(PATH) { "Cancel" }
            }
        }
    };
    html::render_page_with_status(status, session.frame(), Some(Section::Keys), "Rotate a key", &body)
}

fn session_key_notice(session: &PageSession, key: &KeyResponse) -> Markup {
    html! { @if key.id == session.key_id { p { "You are signed in with this key: your session ends when it does." } } }
}

async fn show_revoke_form(
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

async fn revoke_key(
    State(api): State<Api>,
    session: PageSession,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    keys::revoke_key(&api, &session.caller, parse_id(&key)?).await?;
    Ok(see_other(PATH))
}
