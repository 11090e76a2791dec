//! Errors and warnings about rule documents, with the document and the path inside it.

use tidegate_schemas::documents::MissingReference;

/// Reason for which a rule document is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{detail}", format_subject(kind, rule, pointer))]
pub struct RuleError {
    /// Kind of document: `rule`, `window` or `bank`.
    pub kind: &'static str,
    /// Key of the document.
    pub rule: String,
    /// JSON Pointer into the rule's document.
    pub pointer: String,
    tag: &'static str,
    pub detail: String,
    /// Missing document or field, if that is the error.
    pub missing: Option<MissingReference>,
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

    pub(crate) fn with_missing(self, missing: MissingReference) -> Self {
        Self { missing: Some(missing), ..self }
    }

    /// One of `shape`, `unknown_key`, `unknown_value`, `unknown_field`, `unknown_item_type`, `unknown_window`,
    /// `unknown_bank`, `unknown_model`, `unknown_rule`, `cycle`, `type`, `regex`, `expr`, `depth`, `nodes`, `limit`,
    /// `empty`, `duplicate`.
    pub fn tag(&self) -> &'static str {
        self.tag
    }
}

/// Warning about a part of a rule document that is valid but probably a mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{detail}", format_subject(kind, rule, pointer))]
pub struct Warning {
    /// Kind of document: `rule`, `window` or `bank`.
    pub kind: &'static str,
    /// Key of the document.
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

    /// Returns the warning with only the part of its path below a depth.
    pub(crate) fn with_path_below(&self, depth: usize) -> Self {
        Self { pointer: self.pointer.get(depth..).unwrap_or_default().to_owned(), ..self.clone() }
    }

    /// Returns a warning with a partial path for a place in a document.
    pub(crate) fn relocate(&self, kind: &'static str, rule: &str, pointer: &str) -> Self {
        Self { kind, rule: rule.to_owned(), pointer: format!("{pointer}{}", self.pointer), ..self.clone() }
    }

    /// One of `short_word`, `regex_case`, `regex_empty`, `regex_costly`, `unsatisfiable`, `unannounced`, `no_action`,
    /// `no_policy`, `same_condition`, `pattern_everywhere`, `unused_window`, `unusable_entry`.
    pub fn tag(&self) -> &'static str {
        self.tag
    }
}

/// Prefix of a message such as `rule "demo", /when: `, with its known parts.
fn format_subject(kind: &str, key: &str, pointer: &str) -> String {
    match (key, pointer) {
        ("", "") => String::new(),
        ("", pointer) => format!("{kind}, {pointer}: "),
        (key, "") => format!("{kind} \"{key}\": "),
        (key, pointer) => format!("{kind} \"{key}\", {pointer}: "),
    }
}

/// Maximum errors listed for one document, so that the answer to a hostile one stays small.
pub(crate) const ERRORS_LISTED: usize = 100;
/// Maximum errors of all documents together, and maximum warnings of one kind in a plan.
pub(crate) const ERRORS_LISTED_IN_ALL: usize = 10_000;

/// Quotes a name for a message, and shortens a long one.
pub(crate) fn quote(name: &str) -> String {
    match name.char_indices().nth(64) {
        Some((end, _)) => format!("\"{}…\"", &name[..end]),
        None => format!("\"{name}\""),
    }
}

/// Escapes a key for a JSON Pointer.
pub(crate) fn escape_key(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Returns ` (did you mean "..."?)`, or an empty text without a similar candidate.
pub(crate) fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    // The limit bounds the time: an organisation may have tens of thousands of fields, and a document a hundred unknown
    // ones.
    let nearest = tidegate_schemas::nearest(name, candidates.into_iter().take(2_000));
    nearest.map_or_else(String::new, |candidate| format!(" (did you mean \"{candidate}\"?)"))
}

/// Returns the beginning of a text, cut between characters.
pub(crate) fn excerpt(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
