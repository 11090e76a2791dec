//! Parts shared by several pages.

use std::fmt::Display;

use maud::{Markup, display, html};
use tidegate_web::Problem;

/// Error message about a whole request.
pub(crate) fn alert(text: &str) -> Markup {
    html! { div.alert dir="auto" role="alert" { p { (text) } } }
}

/// Error of the form field that belongs to a JSON pointer. `id` is the element id that the field's `aria-describedby` refers to.
pub(crate) fn field_error(problem: Option<&Problem>, pointer: &str, id: &str) -> Option<Markup> {
    let at = |error: &&tidegate_schemas::validation_error::ValidationError| {
        error.pointer.as_deref() == Some(pointer)
    };
    let error = problem?.errors.iter().find(at)?;
    Some(html! { p.error dir="auto" id=(id) { (error.detail) } })
}

/// Formats an instant of the API for people: `2026-01-31 12:00:00 UTC`.
pub(crate) fn time(iso: &str) -> Markup {
    let text = iso.split('.').next().unwrap_or(iso).trim_end_matches('Z').replace('T', " ");
    html! { time datetime=(iso) { (text) " UTC" } }
}

pub(crate) fn code_list<T: AsRef<str>>(words: &[T]) -> Markup {
    html! { ul.words { @for word in words { li { (code(word.as_ref())) } } } }
}

/// Text of a platform, user or moderator within a sentence. Isolated, so that its direction does not reorder the words around it.
pub(crate) fn text(value: impl Display) -> Markup {
    html! { bdi { (display(value)) } }
}

/// Id or key chosen by a platform or a document, isolated like [`text`].
pub(crate) fn code(value: impl Display) -> Markup {
    html! { code dir="auto" { (display(value)) } }
}

/// Text with its line breaks, isolated like [`text`].
pub(crate) fn block(value: impl Display) -> Markup {
    html! { pre dir="auto" { (display(value)) } }
}

/// Link to the next page of a list. `query` holds the parameters of this page without its cursor.
pub(crate) fn pager(path: &str, query: &[(&str, &str)], next: Option<&str>) -> Markup {
    let link = next.map(|next| {
        // Empty filters are left out, so that links stay short.
        let filters = query.iter().copied().filter(|(_, value)| !value.is_empty());
        link(path, filters.chain([("cursor", next)]))
    });
    html! { @if let Some(link) = link { p.pager { a href=(link) rel="next" { "Next page" } } } }
}

/// Returns the value of a filter. Forms send empty values for empty fields.
pub(crate) fn filter_value(text: &str) -> Option<String> {
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Builds a link from a path and parameters.
pub(crate) fn link<'a>(path: &str, query: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    let query = pairs.extend_pairs(query).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_page_link_escapes_its_query() {
        let link = pager("/jobs", &[("queue", "a&b\"<"), ("state", "")], Some("x~1~")).into_string();
        assert_eq!(
            link,
            "<p class=\"pager\"><a href=\"/jobs?queue=a%26b%22%3C&amp;cursor=x%7E1%7E\" rel=\"next\">Next page</a></p>"
        );
        assert_eq!(pager("/jobs", &[], None).into_string(), "");
    }

    #[test]
    fn instants_are_formatted_for_people_and_machines() {
        assert_eq!(
            time("2026-01-31T12:00:00.123Z").into_string(),
            "<time datetime=\"2026-01-31T12:00:00.123Z\">2026-01-31 12:00:00 UTC</time>"
        );
    }
}
