//! Signs people in with an API key of scope `review` or `admin`, and authenticates page requests.
//!
//! Neither cookie nor store contains the key: a session refers to it by id, and ends with it.

mod cookies;
mod forms;
mod sessions;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{FromRequestParts, Request, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use maud::html;
use serde::Deserialize;
use tidegate_catalog::{Caller as KeyHolder, KeyRejection, Scope};
use tidegate_schemas::{ids::ApiKeyId, validation_error::tag};
use tidegate_store::tables::catalog::audit::AuditEntry;
use tidegate_web::{AnswerOrg, Limit, Problem, Query, RequestId};

use self::cookies::SessionToken;
pub(crate) use self::forms::FormFields;
use crate::{
    admin::{access::audit, request::Caller},
    api::{Api, sign_in_attempts},
    html::{self, Frame},
};

/// Caller of a page request, with the session's key and form token.
#[derive(Clone, Debug)]
pub(crate) struct PageSession {
    pub(crate) caller: Caller,
    /// Key that the session was started with.
    pub(crate) key_id: ApiKeyId,
    form_token: Arc<str>,
}

impl PageSession {
    pub(crate) fn frame(&self) -> Frame<'_> {
        Frame {
            org: self.caller.org.as_str(),
            key_name: &self.caller.name,
            form_token: &self.form_token,
            is_admin: self.caller.is_admin(),
        }
    }

    pub(crate) fn form_token(&self) -> &str {
        &self.form_token
    }
}

impl FromRequestParts<Api> for PageSession {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::internal)
    }
}

impl FromRequestParts<Api> for FormFields {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        parts.extensions.remove::<Self>().ok_or_else(Problem::internal)
    }
}

/// Routes of signing in and out.
pub(crate) fn routes(api: &Api) -> Router<Api> {
    let sign_out = Router::new()
        .route("/sign-out", post(sign_out))
        .layer(from_fn_with_state(Arc::clone(api), audit::record_request))
        .layer(from_fn_with_state(Arc::clone(api), authenticate));
    Router::new().route("/sign-in", get(show_form).post(sign_in)).merge(sign_out)
}

/// Authenticates page requests: passes the caller on and, for a form, its fields. Requests without a session are redirected to
/// the sign-in. Problems are rendered as pages here.
pub(crate) async fn authenticate(State(api): State<Api>, request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().cloned();
    let id_text = id.as_ref().map_or("", RequestId::as_str);
    let token = SessionToken::from_cookie(request.headers(), request.uri());
    let holder = match &token {
        Some(token) => sessions::find_holder(&api, token).await,
        None => Ok(None),
    };
    let (token, key) = match (token, holder) {
        (Some(token), Ok(Some(key))) => (token, key),
        (_, Ok(_)) => return redirect_to_sign_in(&request),
        (_, Err(problem)) => return html::render_problem_page(problem, None, id_text),
    };
    tidegate_web::record_org(&key.org);
    let key_id = key.key_id;
    let caller = Caller::of_key(key).with_request_id(id.as_ref());
    let session = PageSession { caller, key_id, form_token: token.form_token().into() };
    // Refusals are rendered below with the frame of the session, like problems of handlers.
    let mut answer = match authorize_request(&api, request, &session, &token).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    if let Some(problem) = take_problem(&mut answer) {
        answer = html::render_problem_page(problem, Some(session.frame()), id_text);
    }
    answer.extensions_mut().insert(AnswerOrg(session.caller.org));
    answer
}

/// Admits a request and attaches its caller and, for a form, its fields.
async fn authorize_request(
    api: &Api,
    request: Request,
    session: &PageSession,
    token: &SessionToken,
) -> Result<Request, Problem> {
    let org = &session.caller.org;
    api.http.admit(&request, org)?;
    let is_form = !request.method().is_safe();
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(session.caller.clone());
    parts.extensions.insert(session.clone());
    // Only requests that change something carry a form.
    if !is_form {
        return Ok(Request::from_parts(parts, body));
    }
    // The fields are read here and not in the handler, so no handler can forget the check of the form token.
    let fields =
        forms::read_form(&api.http, Request::from_parts(parts.clone(), body), Some(org), Some(token)).await?;
    parts.extensions.insert(fields);
    Ok(Request::from_parts(parts, axum::body::Body::empty()))
}

/// Takes the problem out of an answer. An unsupported method is a problem as well; the router answers it without a body.
fn take_problem(answer: &mut Response) -> Option<Problem> {
    let problem = answer.extensions_mut().remove::<Problem>();
    let is_bare = !answer.headers().contains_key(header::CONTENT_TYPE);
    // Other answers without a body, such as redirects, are no problems.
    problem.or_else(|| {
        (is_bare && answer.status() == StatusCode::METHOD_NOT_ALLOWED).then(|| Problem {
            status: StatusCode::METHOD_NOT_ALLOWED,
            ..Problem::not_found("This page does not support the request's method.")
        })
    })
}

fn redirect_to_sign_in(request: &Request) -> Response {
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let (is_form, is_start) = (!request.method().is_safe(), path == "/");
    let query = match (is_form, is_start) {
        // A form cannot be repeated after the sign-in, so the page says that it was not carried out.
        (true, _) => Some(("ended", "1")),
        (false, true) => None,
        (false, false) => Some(("next", path)),
    };
    see_other(&html::link("/sign-in", query))
}

/// One year: browsers use TLS for this host name during that time.
const TLS_ONLY: &str = "max-age=31536000";

/// Tells browsers to use only TLS for this host name. Left out on local connections: the name of the browser's own machine must
/// stay usable without TLS.
pub(crate) async fn require_tls(request: Request, next: Next) -> Response {
    // Read before the request is handed on, which consumes it.
    let is_local = cookies::is_local(request.headers(), request.uri());
    let mut answer = next.run(request).await;
    if !is_local {
        answer.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(TLS_ONLY));
    }
    answer
}

/// Redirects the browser to a path of this console.
pub(crate) fn see_other(path: &str) -> Response {
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SignInQuery {
    next: String,
    ended: String,
    out: String,
}

async fn show_form(request: Request) -> Response {
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

async fn sign_in(State(api): State<Api>, request: Request) -> Response {
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
    let key = api.deps.keys.authenticate(key).await.map_err(refuse_key)?;
    if !key.has_scope(Scope::Review) {
        return Err(SignInRefusal {
            status: StatusCode::FORBIDDEN,
            reason:
                "This key has neither the scope review nor admin. Sign in with a key that has one of them."
                    .to_owned(),
        });
    }
    tidegate_web::record_org(&key.org);
    record_and_start_session(api, &key, id).await.map_err(|problem| SignInRefusal {
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

async fn sign_out(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
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
    let is_own =
        !relative.starts_with(['/', '\\']) && requested_path.bytes().all(|byte| byte.is_ascii_graphic());
    // A return to the sign-in or the sign-out would end in a loop or in no session.
    if is_own && !relative.starts_with("sign-") { requested_path } else { "/" }
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

/// Answers requests for unknown paths.
pub(crate) async fn no_such_page(request: Request) -> Response {
    let id = request.extensions().get::<RequestId>().map_or("", RequestId::as_str);
    html::render_problem_page(Problem::not_found("There is no page at this address."), None, id)
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
