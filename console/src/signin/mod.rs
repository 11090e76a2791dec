//! Sign-in with an API key of scope `review` or `admin`, and the caller of page requests.
//!
//! The key itself is in no cookie and no row: a session names it by its id, and ends with it.

mod cookies;
mod forms;
mod sessions;

use std::{sync::Arc, time::Instant};

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
use tidegate_catalog::{Caller as KeyHolder, Denied, Scope};
use tidegate_schemas::{ids::ApiKeyId, validation_error::tag};
use tidegate_web::{AnswerFor, Limit, Problem, Query, RequestId};

use self::cookies::Token;
pub(crate) use self::forms::Fields;
use crate::{
    admin::{Api, audit, caller::Caller},
    html::{self, Frame},
    sign_in_attempts,
};

/// Caller of a page, with the session that they are signed in by.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub(crate) caller: Caller,
    /// The key that the session was begun with.
    pub(crate) key_id: ApiKeyId,
    form_token: Arc<str>,
}

impl Signed {
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

impl FromRequestParts<Api> for Signed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::internal)
    }
}

impl FromRequestParts<Api> for Fields {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        parts.extensions.remove::<Self>().ok_or_else(Problem::internal)
    }
}

/// The routes of the sign-in itself.
pub(crate) fn routes(api: &Api) -> Router<Api> {
    let sign_out = Router::new()
        .route("/sign-out", post(sign_out))
        .layer(from_fn_with_state(Arc::clone(api), audit::record))
        .layer(from_fn_with_state(Arc::clone(api), authenticate));
    Router::new().route("/sign-in", get(form).post(sign_in)).merge(sign_out)
}

/// Lets requests of a session through, with its caller and, of a form, with its fields; sends others to the sign-in.
/// Problems become pages here.
pub(crate) async fn authenticate(State(api): State<Api>, request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().cloned();
    let id_text = id.as_ref().map_or("", RequestId::as_str);
    let token = Token::of(request.headers(), request.uri());
    let holder = match &token {
        Some(token) => sessions::find(&api, token).await,
        None => Ok(None),
    };
    let (token, key) = match (token, holder) {
        (Some(token), Ok(Some(key))) => (token, key),
        (_, Ok(_)) => return to_sign_in(&request),
        (_, Err(problem)) => return html::problem_page(problem, None, id_text),
    };
    tidegate_web::record_org(&key.org);
    let key_id = key.key_id;
    let caller = Caller::of_key(key).with_request_id(id.as_ref());
    let signed = Signed { caller, key_id, form_token: token.form_token().into() };
    let mut answer = match checked(&api, request, &signed, &token).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    if let Some(problem) = problem_of(&mut answer) {
        answer = html::problem_page(problem, Some(signed.frame()), id_text);
    }
    answer.extensions_mut().insert(AnswerFor(signed.caller.org));
    answer
}

/// The request with all that its handler needs, if it may be handled.
async fn checked(api: &Api, request: Request, signed: &Signed, token: &Token) -> Result<Request, Problem> {
    let org = &signed.caller.org;
    api.http.admit(&request, org)?;
    let is_form = !request.method().is_safe();
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(signed.caller.clone());
    parts.extensions.insert(signed.clone());
    if !is_form {
        return Ok(Request::from_parts(parts, body));
    }
    let fields =
        forms::read(&api.http, Request::from_parts(parts.clone(), body), Some(org), Some(token)).await?;
    parts.extensions.insert(fields);
    Ok(Request::from_parts(parts, axum::body::Body::empty()))
}

/// The problem of an answer, if it is one; a method that the route does not take is one too.
fn problem_of(answer: &mut Response) -> Option<Problem> {
    let problem = answer.extensions_mut().remove::<Problem>();
    let is_bare = !answer.headers().contains_key(header::CONTENT_TYPE);
    problem.or_else(|| {
        (is_bare && answer.status() == StatusCode::METHOD_NOT_ALLOWED).then(|| Problem {
            status: StatusCode::METHOD_NOT_ALLOWED,
            ..Problem::not_found("This page is not there for that.")
        })
    })
}

fn to_sign_in(request: &Request) -> Response {
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let (is_form, is_start) = (!request.method().is_safe(), path == "/");
    let query = match (is_form, is_start) {
        (true, _) => Some(("ended", "1")),
        (false, true) => None,
        (false, false) => Some(("next", path)),
    };
    see_other(&html::link("/sign-in", query))
}

/// A year, in which browsers call this name by TLS only.
const TLS_ONLY: &str = "max-age=31536000";

/// Tells browsers to call this name by TLS only. They pass it over in an answer without TLS, and a name of their own machine must
/// stay usable without.
pub(crate) async fn require_tls(request: Request, next: Next) -> Response {
    let is_local = cookies::is_local(request.headers(), request.uri());
    let mut answer = next.run(request).await;
    if !is_local {
        answer.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(TLS_ONLY));
    }
    answer
}

/// Sends the browser to a path of this console.
pub(crate) fn see_other(path: &str) -> Response {
    let to = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    next: String,
    ended: String,
    out: String,
}

async fn form(request: Request) -> Response {
    let asked = Query::<Asked>::of(request.uri()).map(|Query(asked)| asked).unwrap_or_default();
    let notice = match (asked.ended.is_empty(), asked.out.is_empty()) {
        (false, _) => {
            Some("Your session has ended, and the form was not carried out. Sign in and send it again.")
        }
        (true, false) => Some("You are signed out."),
        (true, true) => None,
    };
    let token = Token::of(request.headers(), request.uri());
    let (token, is_new) = match token {
        Some(token) => (token, false),
        None => match Token::random() {
            Ok(token) => (token, true),
            Err(problem) => return html::problem_page(problem, None, ""),
        },
    };
    let page = sign_in_page(StatusCode::OK, &token, &asked.next, notice, None);
    if is_new {
        return (token.cookie(request.headers(), request.uri(), None), page).into_response();
    }
    page
}

async fn sign_in(State(api): State<Api>, request: Request) -> Response {
    let id = request.extensions().get::<RequestId>().cloned();
    let (headers, uri) = (request.headers().clone(), request.uri().clone());
    let token = Token::of(&headers, &uri);
    let address = sign_in_attempts::address_of(&request);
    let fields = match forms::read(&api.http, request, None, token.as_ref()).await {
        Ok(fields) => fields,
        Err(problem) => return html::problem_page(problem, None, id.as_ref().map_or("", RequestId::as_str)),
    };
    // The form was read, so it had a token.
    let Some(token) = token else { return see_other("/sign-in") };
    let next = fields.get("next");
    let attempt = match api.sign_ins.begin(address, Instant::now()) {
        Ok(attempt) => attempt,
        Err(wait) => {
            tracing::warn!(target: "audit", "an attempt to sign in was refused: too many had failed");
            api.http.count_limited(Limit::SignIn);
            let problem = Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                tag::RATE_LIMITED,
                "Too many attempts to sign in.",
                "Too many attempts to sign in failed. Wait a moment and sign in again.",
            );
            return html::problem_page(
                problem.retry_after(wait),
                None,
                id.as_ref().map_or("", RequestId::as_str),
            );
        }
    };
    match begin(&api, fields.get("key").trim(), id.as_ref()).await {
        Ok(begun) => {
            attempt.succeed();
            let age = Some(api.settings.session().as_secs());
            (begun.cookie(&headers, &uri, age), see_other(own_path(next))).into_response()
        }
        Err(Refused { status, why }) => sign_in_page(status, &token, next, None, Some(&why)),
    }
}

struct Refused {
    status: StatusCode,
    why: String,
}

/// Begins a session for the holder of a key.
async fn begin(api: &Api, key: &str, id: Option<&RequestId>) -> Result<Token, Refused> {
    let key = api.deps.keys.authenticate(key).await.map_err(refused)?;
    if !key.may(Scope::Review) {
        return Err(Refused {
            status: StatusCode::FORBIDDEN,
            why: "This key has neither the scope review nor admin. Sign in with a key that has one of them."
                .to_owned(),
        });
    }
    tidegate_web::record_org(&key.org);
    begin_for(api, &key, id).await.map_err(|problem| Refused {
        status: problem.status,
        why: problem.errors.first().map_or_else(String::new, |error| error.detail.clone()),
    })
}

async fn begin_for(api: &Api, key: &KeyHolder, id: Option<&RequestId>) -> Result<Token, Problem> {
    audit::record_sign_in(api, &Caller::of_key(key.clone()).with_request_id(id)).await?;
    let token = sessions::begin(api, key).await?;
    tracing::info!(target: "audit", org = %key.org, by = %key.name, "signed in to the console");
    Ok(token)
}

/// The same words for every key that opens nothing, so that nobody learns which keys exist.
fn refused(denied: Denied) -> Refused {
    tidegate_web::metrics::request_denied(denied.tag());
    let why = match denied {
        Denied::Missing => "Enter a key.",
        Denied::OrgDisabled => "The organisation of this key is disabled.",
        Denied::Unavailable => "Keys cannot be checked now. Try again in a moment.",
        Denied::Malformed | Denied::Unknown | Denied::Expired | Denied::Revoked => {
            "This key opens nothing: it is mistyped, unknown, expired or revoked."
        }
    };
    let status = StatusCode::from_u16(denied.status()).unwrap_or(StatusCode::UNAUTHORIZED);
    Refused { status, why: why.to_owned() }
}

async fn sign_out(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    if let Some(token) = Token::of(request.headers(), request.uri()) {
        sessions::end(&api, &token).await?;
    }
    let cookie = cookies::removed(request.headers(), request.uri());
    Ok((cookie, see_other("/sign-in?out=1")).into_response())
}

/// Returns the path that a sign-in leads to: a page of this console, or the first one.
fn own_path(next: &str) -> &str {
    let rest = next.strip_prefix('/').unwrap_or("/");
    let is_own = !rest.starts_with(['/', '\\']) && next.bytes().all(|byte| byte.is_ascii_graphic());
    if is_own && !rest.starts_with("sign-") { next } else { "/" }
}

fn sign_in_page(
    status: StatusCode,
    token: &Token,
    next: &str,
    notice: Option<&str>,
    error: Option<&str>,
) -> Response {
    let body = html! {
        @if let Some(notice) = notice { div.notice role="status" { p { (notice) } } }
        form.sheet method="post" action="/sign-in" {
            (html::token_field(&token.form_token()))
            input type="hidden" name="next" value=(own_path(next));
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
    html::bare_page(status, "Sign in", &body)
}

/// The page of a path that is none.
pub(crate) async fn no_such_page(request: Request) -> Response {
    let id = request.extensions().get::<RequestId>().map_or("", RequestId::as_str);
    html::problem_page(Problem::not_found("There is no page at this address."), None, id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_leads_to_pages_of_this_console_only() {
        for own in ["/", "/queues", "/jobs?queue=a&cursor=b~c"] {
            assert_eq!(own_path(own), own);
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
            assert_eq!(own_path(other), "/", "{other}");
        }
    }

    #[test]
    fn ended_and_unknown_keys_are_answered_alike() {
        let answers = [Denied::Malformed, Denied::Unknown, Denied::Expired, Denied::Revoked]
            .map(|denied| refused(denied).why);
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
        assert_ne!(refused(Denied::Unavailable).why, answers[0]);
    }
}
