//! Frame of every page: head, navigation and response headers.
//!
//! All HTML is built by `maud` templates, which escape each value. Pages contain no script.

mod hidden_characters;
mod parts;

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use maud::{DOCTYPE, Markup, html};
use tidegate_web::Problem;

pub(crate) use self::parts::{
    alert, block, code, code_list, field_error, filter_value, link, pager, text, time,
};

/// Style sheet of all pages.
pub(crate) const STYLE: &str = include_str!("style.css");

/// Content security policy: only the style sheet and forms of this origin; no scripts, frames or foreign addresses.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Groups of pages in the order of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Queues,
    Jobs,
    PartialRequests,
    Keys,
    PartialItems,
}

impl Section {
    const REVIEW: [(Self, &'static str, &'static str); 3] = [
        (Self::Queues, "/queues", "Queues"),
        (Self::Jobs, "/jobs", "Jobs"),
        (Self::PartialRequests, "/partial-requests", "Partial-items requests"),
    ];
    const SETTINGS: [(Self, &'static str, &'static str); 2] = [
        (Self::Keys, "/settings/keys", "API keys"),
        (Self::PartialItems, "/settings/partial-items", "Partial items"),
    ];
}

/// Values of a page's frame: the signed-in key, and the token of the page's forms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) org: &'a str,
    pub(crate) key_name: &'a str,
    pub(crate) form_token: &'a str,
    /// True if the navigation shows the settings.
    pub(crate) is_admin: bool,
}

/// Renders a page with navigation.
pub(crate) fn render_page(
    frame: Frame<'_>,
    section: Option<Section>,
    title: &str,
    body: &Markup,
) -> Response {
    render_page_with_status(StatusCode::OK, frame, section, title, body)
}

pub(crate) fn render_page_with_status(
    status: StatusCode,
    frame: Frame<'_>,
    section: Option<Section>,
    title: &str,
    body: &Markup,
) -> Response {
    let links = |links: &[(Section, &str, &str)]| {
        html! {
            @for (own, path, name) in links {
                li { a href=(path) aria-current=[(section == Some(*own)).then_some("page")] { (name) } }
            }
        }
    };
    let document = html! {
        a.skip href="#content" { "Skip to the content" }
        header {
            p.brand { a href="/" { "Tidegate" } }
            nav aria-label="Main" {
                ul { (links(&Section::REVIEW)) }
                @if frame.is_admin {
                    p #settings { "Settings" }
                    ul aria-labelledby="settings" { (links(&Section::SETTINGS)) }
                }
            }
            div.who {
                p { "Organisation " strong { (text(frame.org)) } br; "Key " strong { (text(frame.key_name)) } }
                form method="post" action="/sign-out" {
                    (token_field(frame.form_token))
                    button.quiet type="submit" { "Sign out" }
                }
            }
        }
        main #content tabindex="-1" {
            h1 { (title) }
            (body)
        }
    };
    render_document(status, title, "framed", &document)
}

/// Renders a page for clients without a session.
pub(crate) fn render_bare_page(status: StatusCode, title: &str, body: &Markup) -> Response {
    let document = html! {
        main #content {
            p.brand { a href="/" { "Tidegate" } }
            h1 { (title) }
            (body)
        }
    };
    render_document(status, title, "bare", &document)
}

/// Renders a problem as a page.
pub(crate) fn render_problem_page(problem: Problem, frame: Option<Frame<'_>>, request_id: &str) -> Response {
    let body = html! {
        @for error in &problem.errors {
            p dir="auto" { (error.detail) }
        }
        @if problem.status.is_server_error() {
            p.hint { "Request " code { (request_id) } }
        }
        p { a href="/" { "Back to the start" } }
    };
    let mut answer = match frame {
        Some(frame) => render_page_with_status(problem.status, frame, None, problem.title, &body),
        None => render_bare_page(problem.status, problem.title, &body),
    };
    // Such as `Retry-After`, which applies to the page as well.
    answer.headers_mut().extend(problem.headers);
    answer
}

pub(crate) fn token_field(form_token: &str) -> Markup {
    html! { input type="hidden" name=(TOKEN_FIELD) value=(form_token); }
}

/// Form field of the token that a form of another site cannot know.
pub(crate) const TOKEN_FIELD: &str = "form_token";

fn render_document(status: StatusCode, title: &str, class: &str, document: &Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Tidegate" }
                link rel="stylesheet" href="/style.css";
            }
            body class=(class) { (document) }
        }
    };
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    (status, [kind], hidden_characters::reveal(page.into_string())).into_response()
}

pub(crate) async fn serve_style() -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8")),
        // After an upgrade, pages may use the old style sheet for this time.
        (header::CACHE_CONTROL, HeaderValue::from_static("max-age=300")),
    ];
    (headers, STYLE).into_response()
}

/// Sets the headers that prevent framing, caching, content sniffing and scripts.
pub(crate) async fn set_security_headers(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let headers = answer.headers_mut();
    let set: [(HeaderName, &'static str); 6] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in set {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Pages contain personal data; only answers that set their own value may be cached.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn hostile_names_are_escaped() {
        let hostile = r#""><script>alert(1)</script>"#;
        let frame = Frame { org: hostile, key_name: hostile, form_token: hostile, is_admin: true };
        let answer = render_page(frame, None, hostile, &html! { p title=(hostile) { (hostile) } });
        let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert!(!text.contains("<script"), "{text}");
        assert_eq!(text.matches("&quot;&gt;&lt;script&gt;").count(), 7, "{text}");
    }
}
