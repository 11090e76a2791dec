//! Settings, API keys: the keys of the organisation, and the forms that make, rotate and revoke one.
//!
//! A new key is in the page that answers its form, and in no other. A form that is sent again makes no second key.

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
        Api,
        extract::parse_id,
        keys::{self, CreateKeyRequest, KeyResponse, NewKeyResponse},
    },
    html::{self, Section, alert, code_list, field_error, text, time},
    signin::{Fields, PageCaller, see_other},
};

const PATH: &str = "/settings/keys";

/// Name of the field by which a form that is sent again is known.
const ONCE: &str = "once";

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/settings/keys", get(list).post(create))
        .route("/settings/keys/new", get(new))
        .route("/settings/keys/{id}/rotate", get(ask_rotate).post(rotate))
        .route("/settings/keys/{id}/revoke", get(ask_revoke).post(revoke))
}

/// State of a key by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Works,
    Expired,
    Revoked,
}

fn use_of(key: &KeyResponse, now: &str) -> Use {
    match (&key.revoked_at, &key.expires_at) {
        (Some(_), _) => Use::Revoked,
        // Times in this form sort as text.
        (None, Some(end)) if end.as_str() <= now => Use::Expired,
        (None, _) => Use::Works,
    }
}

async fn list(State(api): State<Api>, signed: PageCaller) -> Result<Response, Problem> {
    let all = keys::load_keys(&api, &signed.caller).await?;
    let now = Millis::now().iso();
    let (works, ended): (Vec<_>, Vec<_>) = all.iter().partition(|key| use_of(key, &now) == Use::Works);
    let own = signed.key_id;
    let body = html! {
        p {
            "Platforms send a key with each request, in the header " code { "X-API-KEY" }
            ". A key is shown once, when it is made. Use different keys for different environments, and rotate a key that may be \
             known to others."
        }
        p { a.button href="/settings/keys/new" { "Create a key" } }
        @if works.is_empty() { p.none { "No key works." } } @else { (table(&works, own, &now)) }
        @if !ended.is_empty() {
            details {
                summary { "Ended keys (" (ended.len()) ")" }
                (table(&ended, own, &now))
            }
        }
    };
    Ok(html::page(signed.frame(), Some(Section::Keys), "API keys", &body))
}

fn table(keys: &[&KeyResponse], own: ApiKeyId, now: &str) -> Markup {
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
            tbody { @for key in keys { (row(key, own, now)) } }
        }
    }
}

fn row(key: &KeyResponse, own: ApiKeyId, now: &str) -> Markup {
    let state = use_of(key, now);
    html! {
        tr {
            th scope="row" {
                (text(&key.name)) " "
                @if key.id == own { span.badge.good { "this session" } }
                p.hint { code { (key.prefix) "…" } }
            }
            td data-label="Scopes" { (code_list(&key.scopes)) }
            td data-label="Created" { (time(&key.created_at)) }
            td data-label="Last used" { span { @match &key.last_used_at { Some(at) => (time(at)), None => "never" } } }
            td data-label="Ends" {
                span {
                    @match (state, &key.revoked_at, &key.expires_at) {
                        (Use::Revoked, Some(at), _) => { span.badge.bad { "revoked" } " " (time(at)) }
                        (Use::Expired, _, Some(at)) => { span.badge.bad { "expired" } " " (time(at)) }
                        (_, _, Some(at)) => { (time(at)) }
                        _ => { "never" }
                    }
                }
            }
            td data-label="Change" {
                @if state == Use::Works {
                    span.actions {
                        a href=(format!("{PATH}/{}/rotate", key.id)) { "Rotate" span.sr { " " (text(&key.name)) } }
                        a href=(format!("{PATH}/{}/revoke", key.id)) { "Revoke" span.sr { " " (text(&key.name)) } }
                    }
                } @else { span { "none" } }
            }
        }
    }
}

/// Values of the form that makes a key.
struct NewForm {
    name: String,
    scopes: Vec<String>,
    days: String,
    once: String,
}

impl NewForm {
    fn empty() -> Self {
        Self {
            name: String::new(),
            scopes: Scopes::platform().iter().map(|scope| scope.name().to_owned()).collect(),
            days: String::new(),
            once: CauseId::random().0.to_string(),
        }
    }

    fn sent(fields: &Fields) -> Self {
        Self {
            name: fields.get("name").trim().to_owned(),
            scopes: fields.all("scopes").map(str::to_owned).collect(),
            days: fields.get("days").trim().to_owned(),
            once: fields.get(ONCE).to_owned(),
        }
    }

    fn wanted(&self) -> Result<CreateKeyRequest, Problem> {
        let days = match &*self.days {
            "" => None,
            text => Some(number(text, "/expiresInSeconds", "days")?),
        };
        Ok(CreateKeyRequest {
            name: Some(self.name.clone()),
            scopes: Some(self.scopes.clone()),
            expires_in_seconds: days.map(|days| days.saturating_mul(86_400)),
        })
    }
}

/// A whole number of a field, whose error stands at the member that the field becomes.
fn number(text: &str, pointer: &str, unit: &str) -> Result<u64, Problem> {
    text.parse().map_err(|_| {
        crate::admin::extract::invalid(pointer, format!("Enter a whole number of {unit}, such as 30."))
    })
}

/// Id of the key that a form makes: the same each time that it is sent.
fn key_of_form(signed: &PageCaller, once: &str) -> ApiKeyId {
    derive(Kind::FormKey, &[signed.caller.org.as_str().as_bytes(), once.as_bytes()])
}

/// Refuses a form without the field that tells it from others: all such forms would stand for one key.
fn check_once(once: &str) -> Result<(), Problem> {
    if once.is_empty() || once.len() > 100 {
        return Err(crate::admin::extract::invalid("", "The form is not whole. Load the page again."));
    }
    Ok(())
}

async fn new(signed: PageCaller) -> Response {
    new_page(StatusCode::OK, &signed, &NewForm::empty(), None)
}

async fn create(State(api): State<Api>, signed: PageCaller, fields: Fields) -> Response {
    let form = NewForm::sent(&fields);
    let made = async {
        check_once(&form.once)?;
        let id = key_of_form(&signed, &form.once);
        keys::create_once(&api, &signed.caller, form.wanted()?, id).await
    };
    match made.await {
        Ok(made) => made_page(&signed, "The new key", made, None),
        Err(problem) if is_for_the_form(&problem) => new_page(problem.status, &signed, &form, Some(&problem)),
        Err(problem) => problem.into_response(),
    }
}

/// True if a form shows the problem itself, at its fields.
fn is_for_the_form(problem: &Problem) -> bool {
    matches!(problem.status, StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::FORBIDDEN)
}

/// The errors of a problem that stand at none of these members.
fn other_errors(problem: Option<&Problem>, pointers: &[&str]) -> Markup {
    let others = problem.into_iter().flat_map(|problem| &problem.errors);
    let others = others.filter(|error| error.pointer.as_deref().is_none_or(|at| !pointers.contains(&at)));
    html! { @for error in others { (alert(&error.detail)) } }
}

fn new_page(status: StatusCode, signed: &PageCaller, form: &NewForm, problem: Option<&Problem>) -> Response {
    let (name, scopes, days) = ("/name", "/scopes", "/expiresInSeconds");
    let name_error = field_error(problem, name, "name-error");
    let scopes_error = field_error(problem, scopes, "scopes-error");
    let days_error = field_error(problem, days, "days-error");
    let invalid = |error: &Option<Markup>| error.as_ref().map(|_| "true");
    let may = |scope: Scope| scope != Scope::ChildSafety || signed.caller.may_see_child_safety();
    let body = html! {
        (other_errors(problem, &[name, scopes, days]))
        form.sheet method="post" action=(PATH) {
            (html::token_field(signed.form_token()))
            input type="hidden" name=(ONCE) value=(form.once);
            div.field {
                label for="name" { "Name" }
                p.hint #name-hint { "Says who uses the key, for example " q { "shop, production" } "." }
                input #name type="text" name="name" value=(form.name) required maxlength="200" autocomplete="off"
                    aria-describedby="name-error name-hint" aria-invalid=[invalid(&name_error)];
                @if let Some(error) = &name_error { (error) }
            }
            fieldset.field aria-describedby="scopes-error" {
                legend { "Scopes" }
                @for scope in Scope::ALL.into_iter().filter(|scope| may(*scope)) {
                    @let field = format!("scope-{}", scope.name().replace(':', "-"));
                    div.check {
                        input type="checkbox" id=(field) name="scopes" value=(scope.name())
                            checked[form.scopes.iter().any(|name| name == scope.name())];
                        label for=(field) { code { (scope.name()) } " " (meaning(scope)) }
                    }
                }
                @if let Some(error) = &scopes_error { (error) }
            }
            div.field {
                label for="days" { "Ends after days" }
                p.hint #days-hint { "Leave it empty for a key that does not end by itself." }
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
    html::page_with(status, signed.frame(), Some(Section::Keys), "Create a key", &body)
}

const fn meaning(scope: Scope) -> &'static str {
    match scope {
        Scope::ItemsWrite => "submit items",
        Scope::ItemsRead => "read what became of items",
        Scope::ReportsWrite => "submit reports",
        Scope::AppealsWrite => "submit appeals",
        Scope::PoliciesRead => "read policies",
        Scope::ActionsWrite => "record actions of the platform",
        Scope::Admin => "everything here: configuration, keys, jobs",
        Scope::ChildSafety => "jobs of child safety, beside review or admin",
        Scope::Review => "work on jobs: claim, decide, comment, move",
    }
}

/// The page with a key that was just made: the only one that ever shows it.
fn made_page(signed: &PageCaller, title: &str, made: NewKeyResponse, old_ends: Option<Markup>) -> Response {
    let detail = made.audit_detail();
    let NewKeyResponse { key, info } = made;
    let body = html! {
        div.notice role="status" { p { "The key " strong { (text(&info.name)) } " is made. Copy it now: it is not shown again." } }
        code.secret #key tabindex="0" aria-label="The new key" { (key) }
        dl.facts {
            dt { "Scopes" } dd { (code_list(&info.scopes)) }
            dt { "Ends" } dd { @match &info.expires_at { Some(at) => (time(at)), None => "never" } }
            @if let Some(old_ends) = old_ends { dt { "The old key" } dd { (old_ends) } }
        }
        p { a href=(PATH) { "All keys" } }
    };
    let page = html::page_with(StatusCode::CREATED, signed.frame(), Some(Section::Keys), title, &body);
    (Extension(detail), page).into_response()
}

/// The key of the organisation that a path names.
async fn named(api: &Api, signed: &PageCaller, key: &str) -> Result<KeyResponse, Problem> {
    let key: ApiKeyId = parse_id(key)?;
    let mut all = keys::load_keys(api, &signed.caller).await?.into_iter();
    all.find(|known| known.id == key).ok_or_else(|| Problem::not_found("There is no such key."))
}

async fn ask_rotate(
    State(api): State<Api>,
    signed: PageCaller,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    let key = named(&api, &signed, &key).await?;
    let hours = (keys::default_overlap_seconds() / 3_600).to_string();
    let once = CauseId::random().0.to_string();
    Ok(rotate_page(StatusCode::OK, &signed, &key, &hours, &once, None))
}

async fn rotate(
    State(api): State<Api>,
    signed: PageCaller,
    Path(key): Path<String>,
    fields: Fields,
) -> Result<Response, Problem> {
    let key = named(&api, &signed, &key).await?;
    let (hours, once) = (fields.get("hours").trim(), fields.get(ONCE));
    let rotated = async {
        check_once(once)?;
        let overlap = Duration::from_secs(number(hours, "/overlapSeconds", "hours")?.saturating_mul(3_600));
        let new = key_of_form(&signed, once);
        let made = keys::rotate_once(&api, &signed.caller, key.id, new, overlap).await?;
        Ok::<_, Problem>((made, Millis::now().plus(overlap).iso()))
    };
    match rotated.await {
        Ok((made, until)) => {
            // Nothing that can fail comes between the new key and the page that shows it.
            let ends = key.expires_at.clone().into_iter().chain([until]).min().unwrap_or_default();
            let ends = html! { "works until " (time(&ends)) };
            Ok(made_page(&signed, "The new key", made, Some(ends)))
        }
        Err(problem) if is_for_the_form(&problem) => {
            Ok(rotate_page(problem.status, &signed, &key, hours, once, Some(&problem)))
        }
        Err(problem) => Err(problem),
    }
}

fn rotate_page(
    status: StatusCode,
    signed: &PageCaller,
    key: &KeyResponse,
    hours: &str,
    once: &str,
    problem: Option<&Problem>,
) -> Response {
    let error = field_error(problem, "/overlapSeconds", "hours-error");
    let body = html! {
        (other_errors(problem, &["/overlapSeconds"]))
        p {
            "A new key with the same name, scopes and end takes the place of " strong { (text(&key.name)) } " (" code { (key.prefix) "…" } ")."
        }
        (about_own(signed, key))
        form.sheet method="post" action=(format!("{PATH}/{}/rotate", key.id)) {
            (html::token_field(signed.form_token()))
            input type="hidden" name=(ONCE) value=(once);
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
    html::page_with(status, signed.frame(), Some(Section::Keys), "Rotate a key", &body)
}

fn about_own(signed: &PageCaller, key: &KeyResponse) -> Markup {
    html! { @if key.id == signed.key_id { p { "You are signed in with this key: your session ends when it does." } } }
}

async fn ask_revoke(
    State(api): State<Api>,
    signed: PageCaller,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    let key = named(&api, &signed, &key).await?;
    let body = html! {
        p {
            "Requests with " strong { (text(&key.name)) } " (" code { (key.prefix) "…" }
            ") are refused from now on, at the latest in half a minute. This cannot be taken back."
        }
        p { "Last used: " @match &key.last_used_at { Some(at) => (time(at)), None => "never" } }
        (about_own(&signed, &key))
        form.sheet method="post" action=(format!("{PATH}/{}/revoke", key.id)) {
            (html::token_field(signed.form_token()))
            div.actions {
                button.danger type="submit" { "Revoke the key" }
                a href=(PATH) { "Cancel" }
            }
        }
    };
    Ok(html::page(signed.frame(), Some(Section::Keys), "Revoke a key", &body))
}

async fn revoke(
    State(api): State<Api>,
    signed: PageCaller,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    keys::revoke_key(&api, &signed.caller, parse_id(&key)?).await?;
    Ok(see_other(PATH))
}
