//! `GET /openapi.json` and `GET /docs`: serves the API description as a document and as a page.

use std::{fmt::Write as _, sync::LazyLock};

use axum::{
    http::{HeaderName, header},
    response::IntoResponse,
};
use serde_json::Value;
use tidegate_schemas::openapi::DOCUMENT;

/// Five minutes: an upgrade changes the document, so a longer cache would show an outdated one.
const CACHE_POLICY: (HeaderName, &str) = (header::CACHE_CONTROL, "public, max-age=300");

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
code{background:#8882;padding:0 .2em}pre{background:#8882;padding:.6em;overflow:auto}\
h3{margin-bottom:0}table{border-collapse:collapse}td,th{border:1px solid #8886;padding:.2em .6em;text-align:left}";

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let document = serde_json::from_str(DOCUMENT).expect("schemas/openapi.json is JSON");
    render(&document)
});

pub(crate) fn serve_document() -> impl IntoResponse + use<> {
    ([(header::CONTENT_TYPE, "application/json"), CACHE_POLICY], DOCUMENT)
}

pub(crate) fn serve_page() -> impl IntoResponse + use<> {
    // The page has an inline style and no script, so scripts stay forbidden.
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        CACHE_POLICY,
    ];
    (headers, PAGE.as_str())
}

fn render(document: &Value) -> String {
    let info = &document["info"];
    let title = escape_value(&info["title"]);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{}</p>\n\
         <p>The whole description: <a href=\"openapi.json\">openapi.json</a>.</p>\n",
        render_inline_code(&info["description"])
    );
    page.push_str("<h2>Requests of the platform</h2>\n");
    write_operations(&mut page, &document["paths"]);
    page.push_str("<h2>Requests to the platform</h2>\n");
    write_operations(&mut page, &document["webhooks"]);
    page.push_str("<h2>Schemas</h2>\n");
    for (name, schema) in object_entries(&document["components"]["schemas"]) {
        let text = serde_json::to_string_pretty(schema).unwrap_or_default();
        append(&mut page, format_args!("<h3 id=\"{name}\">{name}</h3>\n<pre>{}</pre>\n", escape_html(&text)));
    }
    page.push_str("</body></html>\n");
    page
}

fn write_operations(page: &mut String, paths: &Value) {
    for (path, methods) in object_entries(paths) {
        for (method, operation) in object_entries(methods) {
            write_operation(page, &method.to_uppercase(), path, operation);
        }
    }
}

fn write_operation(page: &mut String, method: &str, path: &str, operation: &Value) {
    let deprecation_note = if operation["deprecated"] == true { " (deprecated)" } else { "" };
    append(
        page,
        format_args!(
            "<h3><code>{method} {}</code>{deprecation_note}</h3>\n<p>{}. {}</p>\n",
            escape_html(path),
            render_inline_code(&operation["summary"]),
            render_inline_code(&operation["description"])
        ),
    );
    if let Some(scope) = operation["security"][0]["apiKey"][0].as_str() {
        append(page, format_args!("<p>Scope <code>{}</code></p>\n", escape_html(scope)));
    }
    if let Some(schema) = find_schema(&operation["requestBody"]) {
        append(page, format_args!("<p>Body: {}</p>\n", schema_link(schema)));
    }
    page.push_str("<table><tr><th>answer</th><th>meaning</th></tr>\n");
    for (status, answer) in object_entries(&operation["responses"]) {
        // Shared responses are references; the last segment of the reference is their name.
        let meaning = match answer["$ref"].as_str() {
            Some(reference) => escape_html(last_segment(reference)),
            None => render_inline_code(&answer["description"]),
        };
        let body = find_schema(answer).map(|schema| format!(": {}", schema_link(schema))).unwrap_or_default();
        append(page, format_args!("<tr><td>{status}</td><td>{meaning}{body}</td></tr>\n"));
    }
    page.push_str("</table>\n");
}

/// Returns the name of the schema of a body.
fn find_schema(part: &Value) -> Option<&str> {
    let content = part["content"].as_object()?.values().next()?;
    content["schema"]["$ref"].as_str().map(last_segment)
}

fn schema_link(schema: &str) -> String {
    let schema = escape_html(schema);
    format!("<a href=\"#{schema}\">{schema}</a>")
}

fn last_segment(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or(reference)
}

fn object_entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn append(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("a string takes all text");
}

fn escape_value(value: &Value) -> String {
    escape_html(value.as_str().unwrap_or_default())
}

/// Escapes a text for HTML and renders text between backticks as code.
fn render_inline_code(value: &Value) -> String {
    let mut html = String::new();
    for (index, part) in value.as_str().unwrap_or_default().split('`').enumerate() {
        let part = escape_html(part);
        // Odd parts are between two backticks.
        if index % 2 == 1 {
            append(&mut html, format_args!("<code>{part}</code>"));
        } else {
            html.push_str(&part);
        }
    }
    html
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_of_the_document_is_escaped_on_the_page() {
        let page = render(&json!({
            "info": {"title": "<b>", "description": "a `<x>` \"b\""},
            "paths": {"/<p>": {"get": {"summary": "s&t", "responses": {"200": {"description": "d"}}}}},
        }));
        assert!(page.contains("&lt;b&gt;") && page.contains("<code>&lt;x&gt;</code>"), "{page}");
        assert!(page.contains("GET /&lt;p&gt;") && page.contains("s&amp;t"), "{page}");
    }
}
