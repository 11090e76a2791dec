//! Errors and warnings about rule documents, named by document and by the path inside it.

use tidegate_schemas::documents::Missing;

/// Why a rule document is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{detail}", subject(kind, rule, pointer))]
pub struct RuleError {
    /// Kind of document: `rule`, `window` or `bank`.
    pub kind: &'static str,
    /// The document's key.
    pub rule: String,
    /// JSON Pointer into the rule's document.
    pub pointer: String,
    tag: &'static str,
    pub detail: String,
    /// The document or field that is missing, if that is the error.
    pub missing: Option<Missing>,
}

impl RuleError {
    pub(crate) fn new(
        kind: &'static str,
        rule: &str,
        pointer: &str,
        tag: &'static str,
        detail: String,
    ) -> Self {
        Self { kind, rule: rule.to_owned(), pointer: pointer.to_owned(), tag, detail, missing: None }
    }

    pub(crate) fn of(self, missing: Missing) -> Self {
        Self { missing: Some(missing), ..self }
    }

    /// One of `shape`, `unknown_key`, `unknown_value`, `unknown_field`, `unknown_item_type`,
    /// `unknown_window`, `unknown_bank`, `unknown_model`, `unknown_rule`, `cycle`, `type`, `regex`, `expr`, `depth`, `nodes`, `limit`, `empty`,
    /// `duplicate`.
    pub fn tag(&self) -> &'static str {
        self.tag
    }
}

/// A warning about something that is allowed in a rule document, but hardly meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{detail}", subject(kind, rule, pointer))]
pub struct Warning {
    /// Kind of document: `rule`, `window` or `bank`.
    pub kind: &'static str,
    /// The document's key.
    pub rule: String,
    pub pointer: String,
    tag: &'static str,
    pub detail: String,
}

impl Warning {
    pub(crate) fn new(
        kind: &'static str,
        rule: &str,
        pointer: &str,
        tag: &'static str,
        detail: String,
    ) -> Self {
        Self { kind, rule: rule.to_owned(), pointer: pointer.to_owned(), tag, detail }
    }

    /// The same warning with only the part of its path below a depth.
    pub(crate) fn below(&self, depth: usize) -> Self {
        Self { pointer: self.pointer.get(depth..).unwrap_or_default().to_owned(), ..self.clone() }
    }

    /// A warning with a partial path, at a place in a document.
    pub(crate) fn moved(&self, kind: &'static str, rule: &str, pointer: &str) -> Self {
        Self { kind, rule: rule.to_owned(), pointer: format!("{pointer}{}", self.pointer), ..self.clone() }
    }

    /// One of `short_word`, `regex_case`, `regex_empty`, `regex_costly`, `unsatisfiable`, `unannounced`, `no_action`,
    /// `no_policy`, `same_condition`, `pattern_everywhere`, `unused_window`, `unusable_entry`.
    pub fn tag(&self) -> &'static str {
        self.tag
    }
}

/// `rule "demo", /when: `, as far as it is known.
fn subject(kind: &str, key: &str, pointer: &str) -> String {
    match (key, pointer) {
        ("", "") => String::new(),
        ("", pointer) => format!("{kind}, {pointer}: "),
        (key, "") => format!("{kind} \"{key}\": "),
        (key, pointer) => format!("{kind} \"{key}\", {pointer}: "),
    }
}

/// Errors listed for one document; a hostile one would otherwise be answered with more than it sent.
pub(crate) const ERRORS_LISTED: usize = 100;
/// Errors of all documents together; and warnings of one kind that are kept with a plan.
pub(crate) const ERRORS_LISTED_IN_ALL: usize = 10_000;

/// A name as it may be shown: whole if short, its beginning otherwise.
pub(crate) fn shown(name: &str) -> String {
    match name.char_indices().nth(64) {
        Some((end, _)) => format!("\"{}…\"", &name[..end]),
        None => format!("\"{name}\""),
    }
}

/// A key in a JSON Pointer.
pub(crate) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// ` (did you mean "..."?)`, or nothing when no candidate is near.
pub(crate) fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    // An organisation may have tens of thousands of fields, and a document a hundred unknown ones.
    let nearest = tidegate_schemas::nearest(name, candidates.into_iter().take(2_000));
    nearest.map_or_else(String::new, |candidate| format!(" (did you mean \"{candidate}\"?)"))
}

/// The beginning of a text, whole characters only.
pub(crate) fn excerpt(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
