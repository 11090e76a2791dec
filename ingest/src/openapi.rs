//! `GET /openapi.json` and `GET /docs`: the published description of the API, as a document and as a page.

use std::{fmt::Write as _, sync::LazyLock};

use axum::{
    http::{HeaderName, header},
    response::IntoResponse,
};
use serde_json::Value;
use tidegate_schemas::openapi::DOCUMENT;

/// An upgrade changes the document, so clients ask again after a while.
const CACHED: (HeaderName, &str) = (header::CACHE_CONTROL, "public, max-age=300");

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
code{background:#8882;padding:0 .2em}pre{background:#8882;padding:.6em;overflow:auto}\
h3{margin-bottom:0}table{border-collapse:collapse}td,th{border:1px solid #8886;padding:.2em .6em;text-align:left}";

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let document = serde_json::from_str(DOCUMENT).expect("schemas/openapi.json is JSON");
    render(&document)
});

pub(crate) fn document() -> impl IntoResponse + use<> {
    ([(header::CONTENT_TYPE, "application/json"), CACHED], DOCUMENT)
}

pub(crate) fn page() -> impl IntoResponse + use<> {
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        CACHED,
    ];
    (headers, PAGE.as_str())
}

fn render(document: &Value) -> String {
    let info = &document["info"];
    let title = escaped(&info["title"]);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{}</p>\n\
         <p>The whole description: <a href=\"openapi.json\">openapi.json</a>.</p>\n",
        marked(&info["description"])
    );
    page.push_str("<h2>Requests of the platform</h2>\n");
    operations(&mut page, &document["paths"]);
    page.push_str("<h2>Requests to the platform</h2>\n");
    operations(&mut page, &document["webhooks"]);
    page.push_str("<h2>Schemas</h2>\n");
    for (name, schema) in members(&document["components"]["schemas"]) {
        let text = serde_json::to_string_pretty(schema).unwrap_or_default();
        add(&mut page, format_args!("<h3 id=\"{name}\">{name}</h3>\n<pre>{}</pre>\n", escaped_text(&text)));
    }
    page.push_str("</body></html>\n");
    page
}

fn operations(page: &mut String, paths: &Value) {
    for (path, methods) in members(paths) {
        for (method, operation) in members(methods) {
            operation_part(page, &method.to_uppercase(), path, operation);
        }
    }
}

fn operation_part(page: &mut String, method: &str, path: &str, operation: &Value) {
    let deprecated = if operation["deprecated"] == true { " (deprecated)" } else { "" };
    add(
        page,
        format_args!(
            "<h3><code>{method} {}</code>{deprecated}</h3>\n<p>{}. {}</p>\n",
            escaped_text(path),
            marked(&operation["summary"]),
            marked(&operation["description"])
        ),
    );
    if let Some(scope) = operation["security"][0]["apiKey"][0].as_str() {
        add(page, format_args!("<p>Scope <code>{}</code></p>\n", escaped_text(scope)));
    }
    if let Some(schema) = schema_of(&operation["requestBody"]) {
        add(page, format_args!("<p>Body: {}</p>\n", link(schema)));
    }
    page.push_str("<table><tr><th>answer</th><th>meaning</th></tr>\n");
    for (status, answer) in members(&operation["responses"]) {
        let meaning = match answer["$ref"].as_str() {
            Some(reference) => escaped_text(last(reference)),
            None => marked(&answer["description"]),
        };
        let body = schema_of(answer).map(|schema| format!(": {}", link(schema))).unwrap_or_default();
        add(page, format_args!("<tr><td>{status}</td><td>{meaning}{body}</td></tr>\n"));
    }
    page.push_str("</table>\n");
}

/// Returns the name of the schema of a body.
fn schema_of(part: &Value) -> Option<&str> {
    let content = part["content"].as_object()?.values().next()?;
    content["schema"]["$ref"].as_str().map(last)
}

fn link(schema: &str) -> String {
    let schema = escaped_text(schema);
    format!("<a href=\"#{schema}\">{schema}</a>")
}

fn last(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or(reference)
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn add(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("a string takes all text");
}

fn escaped(value: &Value) -> String {
    escaped_text(value.as_str().unwrap_or_default())
}

/// Escapes a text, and sets what stands between backticks as code.
fn marked(value: &Value) -> String {
    let mut marked = String::new();
    for (nth, part) in value.as_str().unwrap_or_default().split('`').enumerate() {
        let part = escaped_text(part);
        if nth % 2 == 1 {
            add(&mut marked, format_args!("<code>{part}</code>"));
        } else {
            marked.push_str(&part);
        }
    }
    marked
}

fn escaped_text(text: &str) -> String {
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
