//! The context in which conditions are compiled: the document at hand, the place in it, and what was gathered so far.

use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
};

use tidegate_schemas::{
    banks::BankKind,
    documents::{DocumentKind, Missing},
    ids::{BankId, TypeId, WindowId},
};

use crate::{
    error::{ERRORS_LISTED, ERRORS_LISTED_IN_ALL, RuleError, Warning, did_you_mean, shown},
    fields::Path,
    limits::Limits,
    vocabulary::{Bank, BankEntry, Container, Kind, Route, Vocabulary},
    windows::Measure,
};

/// A window that conditions may ask about.
#[derive(Debug)]
pub(crate) struct DeclaredWindow {
    pub(crate) key: WindowId,
    pub(crate) measure: Measure,
    /// The path by whose values it counts, and their kind; the item's user if there is none.
    pub(crate) path: Option<String>,
    pub(crate) kind: Option<Kind>,
    /// True once a rule asks about it.
    pub(crate) used: bool,
}

/// Document at hand, place in it, and results so far.
pub(crate) struct Context<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) vocabulary: &'a Vocabulary,
    pub(crate) kind: &'static str,
    pub(crate) rule: String,
    pub(crate) pointer: String,
    pub(crate) item_types: Vec<TypeId>,
    /// True if only conditions that the item alone decides may be compiled.
    pub(crate) local: bool,
    /// True inside an expression: errors name it as a whole.
    pub(crate) in_expr: bool,
    pub(crate) windows: Vec<DeclaredWindow>,
    /// Windows with errors of their own: that they are missing is no error of the rules that name them.
    pub(crate) invalid_windows: HashSet<String>,
    words: usize,
    regexes: usize,
    slots: HashMap<Path, usize>,
    pub(crate) paths: Vec<Path>,
    pub(crate) errors: Vec<RuleError>,
    /// Number of errors before this document.
    pub(crate) errors_before: usize,
    pub(crate) warnings: Vec<Warning>,
    /// Number of warnings by tag, with those that are not kept.
    warned: HashMap<&'static str, usize>,
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
            local: false,
            in_expr: false,
            windows: Vec::new(),
            invalid_windows: HashSet::new(),
            words: 0,
            regexes: 0,
            slots: HashMap::new(),
            paths: Vec::new(),
            errors: Vec::new(),
            errors_before: 0,
            warnings: Vec::new(),
            warned: HashMap::new(),
        }
    }

    /// Starts a document: errors and paths are its from now on.
    pub(crate) fn start_document(&mut self, kind: &'static str, key: &str, item_types: &[TypeId]) {
        self.errors_before = self.errors.len();
        self.kind = kind;
        key.clone_into(&mut self.rule);
        self.pointer.clear();
        self.item_types = item_types.to_vec();
        self.local = kind != "rule";
    }

    /// A window by its key.
    pub(crate) fn window(&self, key: &WindowId) -> Option<&DeclaredWindow> {
        self.windows.iter().find(|known| known.key == *key)
    }

    pub(crate) fn window_keys(&self) -> impl Iterator<Item = &str> {
        self.windows.iter().map(|known| known.key.as_str())
    }

    pub(crate) fn is_invalid_window(&self, key: &WindowId) -> bool {
        self.invalid_windows.contains(key.as_str())
    }

    /// Remembers that a condition asks about a window.
    pub(crate) fn uses(&mut self, key: &WindowId) {
        if let Some(window) = self.windows.iter_mut().find(|known| known.key == *key) {
            window.used = true;
        }
    }

    pub(crate) fn extend_errors(&mut self, errors: Vec<RuleError>) {
        let room = ERRORS_LISTED_IN_ALL.saturating_sub(self.errors.len());
        self.errors.extend(errors.into_iter().take(room));
    }

    pub(crate) fn error(&mut self, tag: &'static str, detail: String) {
        self.push_error(RuleError::new(self.kind, &self.rule, &self.pointer, tag, detail));
    }

    pub(crate) fn missing(&mut self, what: Missing, detail: String) {
        let tag = match what {
            Missing::Document(DocumentKind::ItemType, _) => "unknown_item_type",
            Missing::Document(DocumentKind::Window, _) => "unknown_window",
            Missing::Document(..) => "unknown_bank",
            Missing::Field => "unknown_field",
        };
        let error = RuleError::new(self.kind, &self.rule, &self.pointer, tag, detail);
        self.push_error(error.of(what));
    }

    pub(crate) fn push_error(&mut self, error: RuleError) {
        if self.errors.len() < ERRORS_LISTED_IN_ALL.min(self.errors_before + ERRORS_LISTED) {
            self.errors.push(error);
        }
    }

    pub(crate) fn warn(&mut self, tag: &'static str, detail: String) {
        self.keep(Warning::new(self.kind, &self.rule, &self.pointer, tag, detail));
    }

    pub(crate) fn keep(&mut self, warning: Warning) {
        let of_kind = self.warned.entry(warning.tag()).or_default();
        *of_kind += 1;
        if *of_kind <= ERRORS_LISTED_IN_ALL {
            self.warnings.push(warning);
        }
    }

    /// Takes back the warnings from the given one on.
    pub(crate) fn drop_warnings(&mut self, from: usize) {
        for warning in self.warnings.drain(from..) {
            if let Some(of_kind) = self.warned.get_mut(warning.tag()) {
                *of_kind -= 1;
            }
        }
    }

    /// Says how many warnings are not kept.
    pub(crate) fn name_further_warnings(&mut self) {
        for (tag, count) in std::mem::take(&mut self.warned) {
            if count > ERRORS_LISTED_IN_ALL {
                let detail =
                    format!("and {} more warnings of this kind, `{tag}`", count - ERRORS_LISTED_IN_ALL);
                self.warnings.push(Warning::new("rule", "", "", tag, detail));
            }
        }
    }

    /// Runs with the path one step deeper, so that errors are named there.
    pub(crate) fn at<T>(&mut self, segment: impl Display, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.deeper(segment);
        let result = run(self);
        self.pointer.truncate(length);
        result
    }

    /// Adds a step to the path, and returns the length to which it is cut back afterwards.
    pub(crate) fn deeper(&mut self, segment: impl Display) -> usize {
        let length = self.pointer.len();
        if !self.in_expr {
            self.pointer = format!("{}/{segment}", self.pointer);
        }
        length
    }

    pub(crate) fn count_words(&mut self, words: usize) -> Option<()> {
        let most = self.limits.words_in_all;
        self.words = self.words.saturating_add(words);
        if self.words > most {
            self.error(
                "limit",
                format!("all rules together list more than {most} words: use fewer, or raise `words_in_all`"),
            );
        }
        (self.words <= most).then_some(())
    }

    pub(crate) fn count_regex(&mut self) -> Option<()> {
        let most = self.limits.regexes_in_all;
        self.regexes += 1;
        if self.regexes > most {
            self.error("limit", format!("all rules together have more than {most} regular expressions: use fewer, or raise `regexes_in_all`"));
        }
        (self.regexes <= most).then_some(())
    }

    /// Returns how the item types of the rule read a path.
    pub(crate) fn resolved(&self, path: &str) -> Vec<(&TypeId, Route, Kind)> {
        self.vocabulary.resolve(&self.item_types, path)
    }

    /// A bank of one of these kinds.
    pub(crate) fn bank(&mut self, key: &BankId, kinds: &[BankKind]) -> Option<&'a Bank> {
        let banks = self.vocabulary.banks();
        self.at("bank", |c| {
            let Some(bank) = banks.iter().find(|bank| bank.key == *key) else {
                let near = did_you_mean(key.as_str(), banks.iter().map(|bank| bank.key.as_str()));
                let detail = format!("unknown bank {}{near}", shown(key.as_str()));
                c.missing(Missing::Document(DocumentKind::Bank, key.to_string()), detail);
                return None;
            };
            if !kinds.contains(&bank.kind) {
                let (key, kind) = (shown(key.as_str()), bank.kind.name());
                let wanted: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
                c.error("type", format!("bank {key} is of kind {kind}: expected {}", wanted.join(" or ")));
                return None;
            }
            Some(bank)
        })
    }

    /// Leaves an entry out: one that came into a bank later must not stop the rules that were there before.
    pub(crate) fn unusable(&mut self, bank: &BankId, entry: &BankEntry, why: &str) {
        let (bank, id) = (shown(bank.as_str()), shown(&entry.id.to_string()));
        self.at("bank", |c| {
            c.warn("unusable_entry", format!("entry {id} of bank {bank} is left out: {why}"));
        });
    }

    /// Container at a path; an error if it differs between the item types of the rule.
    pub(crate) fn container(&mut self, path: &str) -> Option<Container> {
        let vocabulary = self.vocabulary;
        let types = self.item_types.clone();
        let mut containers = vocabulary.containers(&types, path);
        let (first, container) = containers.next()?;
        if let Some((other, _)) = containers.find(|(_, other)| *other != container) {
            let detail = format!(
                "field {} holds one value in {first} and several in {other}, or the other way round: name the item types",
                shown(path)
            );
            self.error("type", detail);
            return None;
        }
        Some(container)
    }

    /// True if a path holds one value in all item types of the rule.
    pub(crate) fn is_single(&self, path: &str) -> bool {
        self.vocabulary.containers(&self.item_types, path).all(|(_, container)| container == Container::One)
    }

    /// The slot of a path, and the kinds that it has in the item types of the rule.
    pub(crate) fn path(&mut self, path: &str) -> Option<(usize, Vec<(&'a TypeId, Kind)>)> {
        let (slot, kinds) = self.path_as_declared(path)?;
        Some((slot, kinds.into_iter().map(|(type_id, kind)| (type_id, kind.plain())).collect()))
    }

    /// The slots of the paths below `in`, each a text in all item types of the rule; `what` a field is not that is
    /// none.
    pub(crate) fn texts(&mut self, paths: &[String], what: &str) -> Option<Vec<usize>> {
        let mut slots = Vec::with_capacity(paths.len());
        self.at("in", |c| {
            for (nth, path) in paths.iter().enumerate() {
                slots.extend(c.at(nth, |c| {
                    let (slot, kinds) = c.path(path)?;
                    if let Some((type_id, kind)) = kinds.iter().find(|(_, kind)| *kind != Kind::Text) {
                        let (path, kind) = (shown(path), kind.name());
                        c.error(
                            "type",
                            format!("field {path} of item type \"{type_id}\" is {kind}: expected a {what}"),
                        );
                        return None;
                    }
                    Some(slot)
                }));
            }
        });
        (slots.len() == paths.len()).then_some(slots)
    }

    /// The slot of a path that has this kind in all item types of the rule.
    pub(crate) fn path_of(&mut self, path: &str, wanted: Kind, name: &str) -> Option<usize> {
        let (slot, kinds) = self.path_as_declared(path)?;
        if let Some((type_id, kind)) = kinds.iter().find(|(_, kind)| *kind != wanted) {
            let (path, kind) = (shown(path), kind.name());
            self.error(
                "type",
                format!("field {path} of item type \"{type_id}\" is {kind}: expected a field of type {name}"),
            );
            return None;
        }
        Some(slot)
    }

    /// The slot of a path with kinds as they are declared: a geohash is more than a text.
    pub(crate) fn path_as_declared(&mut self, path: &str) -> Option<(usize, Vec<(&'a TypeId, Kind)>)> {
        let vocabulary = self.vocabulary;
        let resolved = vocabulary.resolve(&self.item_types, path);
        if resolved.is_empty() {
            let near = did_you_mean(path, vocabulary.fields(&self.item_types));
            let detail = format!("unknown field {} in {}{near}", shown(path), self.shown_types());
            self.missing(Missing::Field, detail);
            return None;
        }
        let mut routes: Vec<Route> = Vec::new();
        let mut kinds = Vec::with_capacity(resolved.len());
        for (type_id, route, kind) in resolved {
            if !routes.contains(&route) {
                routes.push(route);
            }
            // The tree holds type ids for the vocabulary's life, so errors can name them without copies.
            kinds.push((vocabulary.types().find(|known| *known == type_id)?, kind));
        }
        let path = Path { name: path.to_owned(), routes };
        let next = self.paths.len();
        let slot = *self.slots.entry(path).or_insert_with_key(|path| {
            self.paths.push(path.clone());
            next
        });
        Some((slot, kinds))
    }

    /// The item types in which a path was looked for.
    fn shown_types(&self) -> String {
        match self.item_types.as_slice() {
            [] => "every item type".to_owned(),
            [one] => format!("item type {}", shown(one.as_str())),
            several => {
                let first: Vec<_> = several.iter().take(3).map(|it| shown(it.as_str())).collect();
                let more = if several.len() > 3 { ", ..." } else { "" };
                format!("item types {}{more}", first.join(", "))
            }
        }
    }

    /// Checks that all item types that a document names exist.
    pub(crate) fn known_types(&mut self, item_types: &[TypeId]) -> Option<()> {
        let vocabulary = self.vocabulary;
        self.at("item_types", |c| {
            for (nth, type_id) in item_types.iter().enumerate() {
                if !vocabulary.knows(type_id) {
                    let near = did_you_mean(type_id.as_str(), vocabulary.types().map(TypeId::as_str));
                    let detail = format!("unknown item type {}{near}", shown(type_id.as_str()));
                    let missing = Missing::Document(DocumentKind::ItemType, type_id.to_string());
                    c.at(nth, |c| c.missing(missing, detail));
                }
            }
        });
        item_types.iter().all(|type_id| vocabulary.knows(type_id)).then_some(())
    }
}
