//! Signs people in with an API key of scope `review` or `admin`, and authenticates page requests.
//!
//! Neither cookie nor store contains the key: a session refers to it by id, and ends with it.

mod cookies;
mod forms;
mod sessions;
mod sign_in;

use std::sync::Arc;

use axum::{
    Router,
    extract::{FromRequestParts, Request, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tidegate_schemas::ids::ApiKeyId;
use tidegate_web::{AnswerOrg, Problem, RequestId};

use self::cookies::SessionToken;
pub(crate) use self::forms::FormFields;
use crate::{
    admin::{access::audit, request::Caller},
    api::Api,
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
        .route("/sign-out", post(sign_in::sign_out))
        .layer(from_fn_with_state(Arc::clone(api), audit::record_request))
        .layer(from_fn_with_state(Arc::clone(api), authenticate));
    Router::new().route("/sign-in", get(sign_in::show_form).post(sign_in::sign_in)).merge(sign_out)
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

/// Answers requests for unknown paths.
pub(crate) async fn no_such_page(request: Request) -> Response {
    let id = request.extensions().get::<RequestId>().map_or("", RequestId::as_str);
    html::render_problem_page(Problem::not_found("There is no page at this address."), None, id)
}
