//! Context in which conditions are compiled: the current document, the position in it, and the results so far.

use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
};

use tidegate_schemas::{
    banks::BankKind,
    documents::{DocumentKind, MissingReference},
    ids::{BankId, TypeId, WindowId},
};

use crate::{
    error::{ERRORS_LISTED, ERRORS_LISTED_IN_ALL, RuleError, Warning, did_you_mean, quote},
    fields::Path,
    limits::Limits,
    vocabulary::{Bank, BankEntry, Container, Kind, Route, Vocabulary},
    windows::Measure,
};

/// Window that conditions may ask about.
#[derive(Debug)]
pub(crate) struct DeclaredWindow {
    pub(crate) key: WindowId,
    pub(crate) measure: Measure,
    /// Path by which the window counts, and the kind of its values. Without a path it counts by the item's user.
    pub(crate) path: Option<String>,
    pub(crate) kind: Option<Kind>,
    /// True once a rule asks about it.
    pub(crate) is_used: bool,
}

/// Current document, position in it, and results so far.
pub(crate) struct Context<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) vocabulary: &'a Vocabulary,
    pub(crate) kind: &'static str,
    pub(crate) rule: String,
    pub(crate) pointer: String,
    pub(crate) item_types: Vec<TypeId>,
    /// True if only conditions without a look-up may be compiled.
    pub(crate) is_local: bool,
    /// True inside an expression, because errors refer to the expression as a whole.
    pub(crate) is_in_expr: bool,
    pub(crate) windows: Vec<DeclaredWindow>,
    /// Windows with errors of their own. A rule that names one gets no second error.
    pub(crate) invalid_windows: HashSet<String>,
    words: usize,
    regexes: usize,
    slots: HashMap<Path, usize>,
    pub(crate) paths: Vec<Path>,
    pub(crate) errors: Vec<RuleError>,
    /// Number of errors before this document.
    pub(crate) errors_before: usize,
    pub(crate) warnings: Vec<Warning>,
    /// Number of warnings by tag, including those beyond the limit.
    warning_counts: HashMap<&'static str, usize>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(vocabulary: &'a Vocabulary, limits: &'a Limits) -> Self {
        Self {
            limits,
            vocabulary,
            kind: "rule",
            rule: String::new(),
            pointer: String::new(),
            item_types: Vec::new(),
            is_local: false,
            is_in_expr: false,
            windows: Vec::new(),
            invalid_windows: HashSet::new(),
            words: 0,
            regexes: 0,
            slots: HashMap::new(),
            paths: Vec::new(),
            errors: Vec::new(),
            errors_before: 0,
            warnings: Vec::new(),
            warning_counts: HashMap::new(),
        }
    }

    /// Starts a document: later errors and positions refer to it.
    pub(crate) fn start_document(&mut self, kind: &'static str, key: &str, item_types: &[TypeId]) {
        self.errors_before = self.errors.len();
        self.kind = kind;
        key.clone_into(&mut self.rule);
        self.pointer.clear();
        self.item_types = item_types.to_vec();
        // Items are counted in windows before any look-up, so conditions of windows use the item only.
        self.is_local = kind != "rule";
    }

    pub(crate) fn window(&self, key: &WindowId) -> Option<&DeclaredWindow> {
        self.windows.iter().find(|window| window.key == *key)
    }

    pub(crate) fn window_keys(&self) -> impl Iterator<Item = &str> {
        self.windows.iter().map(|window| window.key.as_str())
    }

    pub(crate) fn is_invalid_window(&self, key: &WindowId) -> bool {
        self.invalid_windows.contains(key.as_str())
    }

    /// Marks a window as used by a condition.
    pub(crate) fn mark_used(&mut self, key: &WindowId) {
        if let Some(window) = self.windows.iter_mut().find(|window| window.key == *key) {
            window.is_used = true;
        }
    }

    pub(crate) fn extend_errors(&mut self, errors: Vec<RuleError>) {
        let room = ERRORS_LISTED_IN_ALL.saturating_sub(self.errors.len());
        self.errors.extend(errors.into_iter().take(room));
    }

    pub(crate) fn error(&mut self, tag: &'static str, detail: String) {
        self.push_error(RuleError::new(self.kind, &self.rule, &self.pointer, tag, detail));
    }

    pub(crate) fn push_missing(&mut self, missing: MissingReference, detail: String) {
        let tag = match missing {
            MissingReference::Document(DocumentKind::ItemType, _) => "unknown_item_type",
            MissingReference::Document(DocumentKind::Window, _) => "unknown_window",
            MissingReference::Document(..) => "unknown_bank",
            MissingReference::Field => "unknown_field",
        };
        let error = RuleError::new(self.kind, &self.rule, &self.pointer, tag, detail);
        self.push_error(error.with_missing(missing));
    }

    pub(crate) fn push_error(&mut self, error: RuleError) {
        // One document with many errors must not displace the errors of the others.
        if self.errors.len() < ERRORS_LISTED_IN_ALL.min(self.errors_before + ERRORS_LISTED) {
            self.errors.push(error);
        }
    }

    pub(crate) fn warn(&mut self, tag: &'static str, detail: String) {
        self.push_warning(Warning::new(self.kind, &self.rule, &self.pointer, tag, detail));
    }

    pub(crate) fn push_warning(&mut self, warning: Warning) {
        let count = self.warning_counts.entry(warning.tag()).or_default();
        *count += 1;
        if *count <= ERRORS_LISTED_IN_ALL {
            self.warnings.push(warning);
        }
    }

    /// Removes the warnings from this index on.
    pub(crate) fn drop_warnings(&mut self, from: usize) {
        for warning in self.warnings.drain(from..) {
            if let Some(count) = self.warning_counts.get_mut(warning.tag()) {
                *count -= 1;
            }
        }
    }

    /// Adds a warning for each tag with the number of warnings beyond the limit.
    pub(crate) fn summarize_further_warnings(&mut self) {
        for (tag, count) in std::mem::take(&mut self.warning_counts) {
            if count > ERRORS_LISTED_IN_ALL {
                let detail =
                    format!("and {} more warnings of this kind, `{tag}`", count - ERRORS_LISTED_IN_ALL);
                self.warnings.push(Warning::new("rule", "", "", tag, detail));
            }
        }
    }

    /// Runs with the position one step deeper, so that errors refer to it.
    pub(crate) fn at<T>(&mut self, segment: impl Display, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.push_segment(segment);
        let result = run(self);
        self.pointer.truncate(length);
        result
    }

    /// Adds a step to the position, and returns the length to restore afterwards.
    pub(crate) fn push_segment(&mut self, segment: impl Display) -> usize {
        let length = self.pointer.len();
        // The document has no paths inside of an expression.
        if !self.is_in_expr {
            self.pointer = format!("{}/{segment}", self.pointer);
        }
        length
    }

    pub(crate) fn count_words(&mut self, words: usize) -> Option<()> {
        let limit = self.limits.words_in_all;
        self.words = self.words.saturating_add(words);
        if self.words > limit {
            self.error(
                "limit",
                format!(
                    "all rules together list more than {limit} words: use fewer, or raise `words_in_all`"
                ),
            );
        }
        (self.words <= limit).then_some(())
    }

    pub(crate) fn count_regex(&mut self) -> Option<()> {
        let limit = self.limits.regexes_in_all;
        self.regexes += 1;
        if self.regexes > limit {
            self.error("limit", format!("all rules together have more than {limit} regular expressions: use fewer, or raise `regexes_in_all`"));
        }
        (self.regexes <= limit).then_some(())
    }

    /// Routes and kinds of a path in the item types of the rule.
    pub(crate) fn resolve_path(&self, path: &str) -> Vec<(&TypeId, Route, Kind)> {
        self.vocabulary.resolve(&self.item_types, path)
    }

    /// Bank of one of these kinds.
    pub(crate) fn resolve_bank(&mut self, key: &BankId, kinds: &[BankKind]) -> Option<&'a Bank> {
        let banks = self.vocabulary.banks();
        self.at("bank", |c| {
            let Some(bank) = banks.iter().find(|bank| bank.key == *key) else {
                let suggestion = did_you_mean(key.as_str(), banks.iter().map(|bank| bank.key.as_str()));
                let detail = format!("unknown bank {}{suggestion}", quote(key.as_str()));
                c.push_missing(MissingReference::Document(DocumentKind::Bank, key.to_string()), detail);
                return None;
            };
            if !kinds.contains(&bank.kind) {
                let (key, kind) = (quote(key.as_str()), bank.kind.name());
                let expected_kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
                c.error(
                    "type",
                    format!("bank {key} is of kind {kind}: expected {}", expected_kinds.join(" or ")),
                );
                return None;
            }
            Some(bank)
        })
    }

    /// Warns of an entry instead of failing: one that is added to a bank later must not stop the existing rules.
    pub(crate) fn warn_unusable_entry(&mut self, bank: &BankId, entry: &BankEntry, reason: &str) {
        let (bank, id) = (quote(bank.as_str()), quote(&entry.id.to_string()));
        self.at("bank", |c| {
            c.warn("unusable_entry", format!("entry {id} of bank {bank} is left out: {reason}"));
        });
    }

    /// Container at a path. Adds an error if it differs between the item types of the rule.
    pub(crate) fn resolve_container(&mut self, path: &str) -> Option<Container> {
        let vocabulary = self.vocabulary;
        let types = self.item_types.clone();
        let mut containers = vocabulary.containers(&types, path);
        let (first, container) = containers.next()?;
        if let Some((other, _)) = containers.find(|(_, other)| *other != container) {
            let detail = format!(
                "field {} holds one value in {first} and several in {other}, or the other way round: name the item types",
                quote(path)
            );
            self.error("type", detail);
            return None;
        }
        Some(container)
    }

    /// True if the path holds one value in all item types of the rule.
    pub(crate) fn is_single(&self, path: &str) -> bool {
        self.vocabulary.containers(&self.item_types, path).all(|(_, container)| container == Container::One)
    }

    /// Slot of a path, and its kinds in the item types of the rule.
    pub(crate) fn resolve_slot(&mut self, path: &str) -> Option<(usize, Vec<(&'a TypeId, Kind)>)> {
        let (slot, kinds) = self.resolve_declared_slot(path)?;
        Some((slot, kinds.into_iter().map(|(type_id, kind)| (type_id, kind.plain())).collect()))
    }

    /// Slots of the paths below `in`, each a text in all item types of the rule. `expected_kind` is for the error message.
    pub(crate) fn resolve_text_slots(&mut self, paths: &[String], expected_kind: &str) -> Option<Vec<usize>> {
        let mut slots = Vec::with_capacity(paths.len());
        self.at("in", |c| {
            for (nth, path) in paths.iter().enumerate() {
                slots.extend(c.at(nth, |c| {
                    let (slot, kinds) = c.resolve_slot(path)?;
                    if let Some((type_id, kind)) = kinds.iter().find(|(_, kind)| *kind != Kind::Text) {
                        let (path, kind) = (quote(path), kind.name());
                        c.error(
                            "type",
                            format!("field {path} of item type \"{type_id}\" is {kind}: expected a {expected_kind}"),
                        );
                        return None;
                    }
                    Some(slot)
                }));
            }
        });
        (slots.len() == paths.len()).then_some(slots)
    }

    /// Slot of a path that has the kind `expected` in all item types of the rule.
    pub(crate) fn resolve_slot_of_kind(&mut self, path: &str, expected: Kind, name: &str) -> Option<usize> {
        let (slot, kinds) = self.resolve_declared_slot(path)?;
        if let Some((type_id, kind)) = kinds.iter().find(|(_, kind)| *kind != expected) {
            let (path, kind) = (quote(path), kind.name());
            self.error(
                "type",
                format!("field {path} of item type \"{type_id}\" is {kind}: expected a field of type {name}"),
            );
            return None;
        }
        Some(slot)
    }

    /// Slot of a path with its declared kinds, which distinguish a geohash from a text.
    pub(crate) fn resolve_declared_slot(&mut self, path: &str) -> Option<(usize, Vec<(&'a TypeId, Kind)>)> {
        let vocabulary = self.vocabulary;
        let resolved = vocabulary.resolve(&self.item_types, path);
        if resolved.is_empty() {
            let suggestion = did_you_mean(path, vocabulary.fields(&self.item_types));
            let detail =
                format!("unknown field {} in {}{suggestion}", quote(path), self.describe_item_types());
            self.push_missing(MissingReference::Field, detail);
            return None;
        }
        let mut routes: Vec<Route> = Vec::new();
        let mut kinds = Vec::with_capacity(resolved.len());
        for (type_id, route, kind) in resolved {
            if !routes.contains(&route) {
                routes.push(route);
            }
            // The type ids of the vocabulary outlive this call, so errors can refer to them without copies.
            kinds.push((vocabulary.types().find(|declared_type| *declared_type == type_id)?, kind));
        }
        let path = Path { name: path.to_owned(), routes };
        let next = self.paths.len();
        // Conditions on one path share a slot, so that the field is read once for an item.
        let slot = *self.slots.entry(path).or_insert_with_key(|path| {
            self.paths.push(path.clone());
            next
        });
        Some((slot, kinds))
    }

    /// Names the item types of the rule for a message.
    fn describe_item_types(&self) -> String {
        match self.item_types.as_slice() {
            [] => "every item type".to_owned(),
            [one] => format!("item type {}", quote(one.as_str())),
            several => {
                let names: Vec<_> = several.iter().take(3).map(|type_id| quote(type_id.as_str())).collect();
                let ellipsis = if several.len() > 3 { ", ..." } else { "" };
                format!("item types {}{ellipsis}", names.join(", "))
            }
        }
    }

    /// Checks that the item types of a document exist.
    pub(crate) fn check_item_types(&mut self, item_types: &[TypeId]) -> Option<()> {
        let vocabulary = self.vocabulary;
        self.at("item_types", |c| {
            for (nth, type_id) in item_types.iter().enumerate() {
                if !vocabulary.has_type(type_id) {
                    let suggestion = did_you_mean(type_id.as_str(), vocabulary.types().map(TypeId::as_str));
                    let detail = format!("unknown item type {}{suggestion}", quote(type_id.as_str()));
                    let reference = MissingReference::Document(DocumentKind::ItemType, type_id.to_string());
                    c.at(nth, |c| c.push_missing(reference, detail));
                }
            }
        });
        item_types.iter().all(|type_id| vocabulary.has_type(type_id)).then_some(())
    }
}
