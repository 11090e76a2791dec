//! Form that rotates a key: a new key takes the place of an old one.

use std::time::Duration;

use axum::{extract::State, http::StatusCode, response::Response};
use maud::html;
use tidegate_schemas::ids::{CauseId, Millis};
use tidegate_web::{Path, Problem};

use super::{
    PATH,
    forms::{
        FORM_ID_FIELD, derive_key_id, is_form_problem, load_key, other_errors, parse_number,
        render_new_key_page, require_form_id, session_key_notice,
    },
};
use crate::{
    admin::access::keys::{self, KeyResponse},
    api::Api,
    html::{self, Section, field_error, text, time},
    signin::{FormFields, PageSession},
};

pub(super) async fn show_rotate_form(
    State(api): State<Api>,
    session: PageSession,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    let key = load_key(&api, &session, &key).await?;
    let hours = (keys::default_overlap_seconds() / 3_600).to_string();
    let form_id = CauseId::random().0.to_string();
    Ok(render_rotate_page(StatusCode::OK, &session, &key, &hours, &form_id, None))
}

pub(super) async fn rotate_key(
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
        // The same form id, so that a repeated submission creates no second key.
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
