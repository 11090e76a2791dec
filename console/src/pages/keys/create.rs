//! Form that creates a key.

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use maud::{Markup, html};
use tidegate_catalog::{Scope, Scopes};
use tidegate_schemas::ids::CauseId;
use tidegate_web::Problem;

use super::{
    PATH,
    forms::{
        FORM_ID_FIELD, derive_key_id, is_form_problem, other_errors, parse_number, render_new_key_page,
        require_form_id,
    },
};
use crate::{
    admin::access::keys::{self, CreateKeyRequest},
    api::Api,
    html::{self, Section, field_error},
    signin::{FormFields, PageSession},
};

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

pub(super) async fn show_create_form(session: PageSession) -> Response {
    render_create_page(StatusCode::OK, &session, &CreateKeyForm::empty(), None)
}

pub(super) async fn create_key(State(api): State<Api>, session: PageSession, fields: FormFields) -> Response {
    let form = CreateKeyForm::parse(&fields);
    let creation = async {
        require_form_id(&form.form_id)?;
        let id = derive_key_id(&session, &form.form_id);
        keys::create_once(&api, &session.caller, form.to_request()?, id).await
    };
    match creation.await {
        Ok(new_key) => render_new_key_page(&session, "The new key", new_key, None),
        // The form is shown again with the entered values.
        Err(problem) if is_form_problem(&problem) => {
            render_create_page(problem.status, &session, &form, Some(&problem))
        }
        Err(problem) => problem.into_response(),
    }
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
    let is_grantable = |scope: Scope| session.caller.may_grant(scope);
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
        Scope::ExportsRead => "export the history: reports, decisions, actions of all users",
    }
}
