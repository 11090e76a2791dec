//! Compiles window documents.

use std::collections::HashSet;

use serde_json::Value as Json;
use tidegate_schemas::ids::TypeId;

use super::{Compiler, Tree};
use crate::{
    error::RuleError,
    leaves::context::{Context, DeclaredWindow},
    logic::Node,
    syntax,
    vocabulary::Kind,
    windows::{Measure, Window},
};

/// Compiled window.
#[derive(Debug)]
pub(crate) struct CountingWindow {
    pub(crate) window: Window,
    /// Empty for all types.
    pub(crate) item_types: HashSet<TypeId>,
    /// Slot of the path by which the window counts. `None` for the item's user.
    pub(crate) key_slot: Option<usize>,
    pub(crate) measured_slot: Option<usize>,
    /// Condition, with the predicates of its leaves.
    pub(crate) condition: Option<(Node, Vec<u32>)>,
}

impl Compiler<'_> {
    /// Compiles the windows of the vocabulary, so that conditions can use them.
    pub(super) fn compile_windows(&mut self) -> Vec<CountingWindow> {
        let (vocabulary, limits) = (self.context.vocabulary, self.context.limits);
        let documents = vocabulary.windows();
        let mut windows = Vec::with_capacity(documents.len());
        if documents.len() > limits.windows {
            let detail = format!(
                "there are {} windows, the limit is {}: remove some, or raise `windows`",
                documents.len(),
                limits.windows
            );
            self.context.extend_errors(vec![RuleError::new("window", "", "", "limit", detail)]);
            return windows;
        }
        for document in documents {
            match syntax::parse_window(document, limits) {
                Ok(window) => {
                    self.context.start_document("window", window.key.as_str(), &window.item_types);
                    if self.context.window(&window.key).is_some() {
                        self.context
                            .error("duplicate", "another window has the same key: rename one".to_owned());
                    }
                    let key = window.key.as_str().to_owned();
                    match self.compile_window(window) {
                        Some((declared, window)) => {
                            self.context.windows.push(declared);
                            windows.push(window);
                        }
                        // Rules that name the window get no second error.
                        None => drop(self.context.invalid_windows.insert(key)),
                    }
                }
                Err(errors) => {
                    let key = document.get("window").and_then(Json::as_str).unwrap_or_default();
                    self.context.invalid_windows.insert(key.to_owned());
                    self.context.extend_errors(errors);
                }
            }
        }
        windows
    }

    fn compile_window(&mut self, window: syntax::Window) -> Option<(DeclaredWindow, CountingWindow)> {
        self.context.check_item_types(&window.item_types)?;
        let by = window.by.as_ref().map(|path| self.context.at("by", |c| find_single_kind(path, c)));
        let measured = window.measured.as_ref().map(|path| match window.measure {
            Measure::Sum => self.context.at("sum", |c| {
                let (slot, kind) = find_single_kind(path, c)?;
                if kind != Kind::Number {
                    c.error("type", format!("the field is {}: `sum` takes numbers", kind.name()));
                }
                (kind == Kind::Number).then_some((slot, kind))
            }),
            Measure::Distinct | Measure::Count => self.context.at("distinct", |c| find_single_kind(path, c)),
        });
        let mut tree = Tree::default();
        let condition =
            window.condition.map(|condition| self.at("where", |c| c.compile_node(condition, &mut tree)));
        // Each part that is present must be valid.
        let (by, measured) = (require_valid(by)?, require_valid(measured)?);
        let condition = require_valid(condition)?.map(|node| (node, tree.leaves));
        let declared = DeclaredWindow {
            key: window.key.clone(),
            measure: window.measure,
            path: window.by,
            kind: by.map(|(_, kind)| kind),
            is_used: false,
        };
        let counting = CountingWindow {
            window: Window {
                key: window.key,
                measure: window.measure,
                length_millis: window.length_millis,
                bucket: window.bucket,
            },
            item_types: window.item_types.into_iter().collect(),
            key_slot: by.map(|(slot, _)| slot),
            measured_slot: measured.map(|(slot, _)| slot),
            condition,
        };
        Some((declared, counting))
    }
}

/// Warns of windows that no rule uses, because every item still writes rows for them.
pub(super) fn warn_of_unused(context: &mut Context<'_>) {
    let unused = context.windows.iter().filter(|window| !window.is_used);
    for key in unused.map(|window| window.key.clone()).collect::<Vec<_>>() {
        context.start_document("window", key.as_str(), &[]);
        context.warn("unused_window", "no rule uses the window: remove it".to_owned());
    }
}

/// Slot of a path that has one kind in all item types.
fn find_single_kind(path: &str, context: &mut Context<'_>) -> Option<(usize, Kind)> {
    let (slot, kinds) = context.resolve_slot(path)?;
    let (_, kind) = *kinds.first()?;
    if let Some((type_id, other)) = kinds.iter().find(|(_, other)| *other != kind) {
        let detail =
            format!("the field is {}, and {} in {type_id}: name the item types", kind.name(), other.name());
        context.error("type", detail);
        return None;
    }
    Some((slot, kind))
}

/// Returns `None` if the part is present and invalid.
#[allow(clippy::option_option, reason = "whether it is written, and whether it is right")]
fn require_valid<T>(part: Option<Option<T>>) -> Option<Option<T>> {
    part.map_or(Some(None), |part| part.map(Some))
}
