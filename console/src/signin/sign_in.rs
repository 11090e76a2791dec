//! Page and form of the sign-in, and the sign-out.

use std::time::{Duration, Instant};

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use maud::html;
use serde::Deserialize;
use tidegate_catalog::{Caller as KeyHolder, KeyRejection, Scope};
use tidegate_schemas::validation_error::tag;
use tidegate_store::tables::catalog::audit::AuditEntry;
use tidegate_web::{Limit, Problem, Query, RequestId};

use super::{
    cookies::{self, SessionToken},
    forms, see_other, sessions,
};
use crate::{
    admin::{access::audit, request::Caller},
    api::{Api, sign_in_attempts},
    html,
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct SignInQuery {
    /// Path to open after the sign-in.
    next: String,
    /// Not empty if a form was sent after the session had ended.
    ended: String,
    /// Not empty after a sign-out.
    out: String,
}

pub(super) async fn show_form(request: Request) -> Response {
    let query = Query::<SignInQuery>::from_uri(request.uri()).map(|Query(query)| query).unwrap_or_default();
    let notice = match (query.ended.is_empty(), query.out.is_empty()) {
        (false, _) => {
            Some("Your session has ended, and the form was not carried out. Sign in and send it again.")
        }
        (true, false) => Some("You are signed out."),
        (true, true) => None,
    };
    let token = SessionToken::from_cookie(request.headers(), request.uri());
    let (token, is_new) = match token {
        Some(token) => (token, false),
        None => match SessionToken::random() {
            Ok(token) => (token, true),
            Err(problem) => return html::render_problem_page(problem, None, ""),
        },
    };
    let page = render_sign_in_page(StatusCode::OK, &token, &query.next, notice, None);
    // Until the browser closes: before the sign-in, the cookie only ties the form to the browser.
    if is_new {
        return (token.cookie(request.headers(), request.uri(), None), page).into_response();
    }
    page
}

pub(super) async fn sign_in(State(api): State<Api>, request: Request) -> Response {
    let id = request.extensions().get::<RequestId>().cloned();
    let (headers, uri) = (request.headers().clone(), request.uri().clone());
    let token = SessionToken::from_cookie(&headers, &uri);
    let address = sign_in_attempts::client_address(&request);
    let fields = match forms::read_form(&api.http, request, None, token.as_ref()).await {
        Ok(fields) => fields,
        Err(problem) => {
            return html::render_problem_page(problem, None, id.as_ref().map_or("", RequestId::as_str));
        }
    };
    // Reading the form succeeded, so there is a token.
    let Some(token) = token else { return see_other("/sign-in") };
    let return_path = fields.get("next");
    // Counted after the check of the form: requests of other sites must not use up the attempts of this address.
    let attempt = match api.sign_ins.begin_attempt(address, Instant::now()) {
        Ok(attempt) => attempt,
        Err(wait) => return refuse_attempt(&api, wait, id.as_ref()),
    };
    match begin_session(&api, fields.get("key").trim(), id.as_ref()).await {
        Ok(session_token) => {
            // Successful sign-ins do not count: people behind one address may sign in as often as they like.
            attempt.mark_succeeded();
            let age = Some(api.settings.session().as_secs());
            (session_token.cookie(&headers, &uri, age), see_other(console_path(return_path))).into_response()
        }
        Err(SignInRefusal { status, reason }) => match attempt.mark_failed(Instant::now()) {
            Ok(()) => render_sign_in_page(status, &token, return_path, None, Some(&reason)),
            Err(wait) => refuse_attempt(&api, wait, id.as_ref()),
        },
    }
}

fn refuse_attempt(api: &Api, wait: Duration, id: Option<&RequestId>) -> Response {
    tracing::warn!(target: "audit", "a sign-in attempt was refused: too many attempts have failed");
    api.http.count_limited(Limit::SignIn);
    let problem = Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        tag::RATE_LIMITED,
        "Too many attempts to sign in.",
        "Too many attempts to sign in failed. Wait a moment and sign in again.",
    );
    html::render_problem_page(problem.retry_after(wait), None, id.map_or("", RequestId::as_str))
}

struct SignInRefusal {
    status: StatusCode,
    reason: String,
}

/// Starts a session for the holder of a key.
async fn begin_session(api: &Api, key: &str, id: Option<&RequestId>) -> Result<SessionToken, SignInRefusal> {
    let key_holder = api.deps.keys.authenticate(key).await.map_err(refuse_key)?;
    if !key_holder.has_scope(Scope::Review) {
        return Err(SignInRefusal {
            status: StatusCode::FORBIDDEN,
            reason:
                "This key has neither the scope review nor admin. Sign in with a key that has one of them."
                    .to_owned(),
        });
    }
    tidegate_web::record_org(&key_holder.org);
    record_and_start_session(api, &key_holder, id).await.map_err(|problem| SignInRefusal {
        status: problem.status,
        reason: problem.errors.first().map_or_else(String::new, |error| error.detail.clone()),
    })
}

async fn record_and_start_session(
    api: &Api,
    key: &KeyHolder,
    id: Option<&RequestId>,
) -> Result<SessionToken, Problem> {
    // Recorded first: without its audit row the session must not exist.
    let entry = audit::record_sign_in(api, &Caller::of_key(key.clone()).with_request_id(id)).await?;
    // A new token: one that was planted in the browser before the sign-in gets no session.
    let token = sessions::insert_session(api, key).await?;
    let outcome = AuditEntry { status: Some(StatusCode::SEE_OTHER.as_u16().into()), ..entry };
    audit::record_outcome(api, &outcome).await;
    tracing::info!(target: "audit", org = %key.org, by = %key.name, "signed in to the console");
    Ok(token)
}

/// Builds the refusal of a key. Unknown, expired and revoked keys get the same message, so that it does not reveal which keys
/// exist.
fn refuse_key(denied: KeyRejection) -> SignInRefusal {
    tidegate_web::metrics::count_denied_request(denied.tag());
    let reason = match denied {
        KeyRejection::Missing => "Enter a key.",
        KeyRejection::OrgDisabled => "The organisation of this key is disabled.",
        KeyRejection::Unavailable => "Keys cannot be checked now. Try again in a moment.",
        KeyRejection::Malformed | KeyRejection::Unknown | KeyRejection::Expired | KeyRejection::Revoked => {
            "This key is not valid: it is mistyped, unknown, expired or revoked. Check it, or use another key."
        }
    };
    let status = StatusCode::from_u16(denied.status()).unwrap_or(StatusCode::UNAUTHORIZED);
    SignInRefusal { status, reason: reason.to_owned() }
}

pub(super) async fn sign_out(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    // Without a cookie there is no session to end; the cookie is removed in any case.
    if let Some(token) = SessionToken::from_cookie(request.headers(), request.uri()) {
        sessions::end_session(&api, &token).await?;
    }
    let cookie = cookies::removal(request.headers(), request.uri());
    Ok((cookie, see_other("/sign-in?out=1")).into_response())
}

/// Returns the path to open after the sign-in: a page of this console, or else the first page.
fn console_path(requested_path: &str) -> &str {
    let relative = requested_path.strip_prefix('/').unwrap_or("/");
    // `//host` and `/\host` would lead to another site.
    let is_console_path =
        !relative.starts_with(['/', '\\']) && requested_path.bytes().all(|byte| byte.is_ascii_graphic());
    // A return to the sign-in or the sign-out would end in a loop or in no session.
    if is_console_path && !relative.starts_with("sign-") { requested_path } else { "/" }
}

fn render_sign_in_page(
    status: StatusCode,
    token: &SessionToken,
    return_path: &str,
    notice: Option<&str>,
    error: Option<&str>,
) -> Response {
    let body = html! {
        @if let Some(notice) = notice { div.notice role="status" { p { (notice) } } }
        form.sheet method="post" action="/sign-in" {
            (html::token_field(&token.form_token()))
            input type="hidden" name="next" value=(console_path(return_path));
            div.field {
                label for="key" { "API key" }
                p.hint #key-hint {
                    "A key with the scope " code { "review" } ", or " code { "admin" }
                    " for keys and settings too. On the machine of the service this makes one:"
                    br;
                    code { "tidegate keys create --scopes review" }
                }
                input #key type="password" name="key" required autocomplete="current-password" autofocus
                    spellcheck="false" aria-describedby=(if error.is_some() { "key-error key-hint" } else { "key-hint" })
                    aria-invalid=[error.map(|_| "true")];
                @if let Some(error) = error { p.error #key-error role="alert" { (error) } }
            }
            button type="submit" { "Sign in" }
        }
    };
    html::render_bare_page(status, "Sign in", &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_redirects_only_within_the_console() {
        for own in ["/", "/queues", "/jobs?queue=a&cursor=b~c"] {
            assert_eq!(console_path(own), own);
        }
        for other in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "evil",
            "/sign-out",
            "/a\r\nb",
            "/a b",
        ] {
            assert_eq!(console_path(other), "/", "{other}");
        }
    }

    #[test]
    fn invalid_keys_get_the_same_answer() {
        let answers =
            [KeyRejection::Malformed, KeyRejection::Unknown, KeyRejection::Expired, KeyRejection::Revoked]
                .map(|denied| refuse_key(denied).reason);
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
        assert_ne!(refuse_key(KeyRejection::Unavailable).reason, answers[0]);
    }
}
