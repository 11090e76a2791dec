//! Rule and window documents as trees, and their reading.
//!
//! Which fields exist and what their types are is checked when rules are compiled.

mod enforcement;
mod example_facts;
mod expr;
mod read;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use self::read::example_facts;
pub use self::read::{parse, parse_window};

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tidegate_schemas::{
    ids::{ActionId, Millis, PolicyId, RuleId, TypeId, WindowId},
    string_enum,
};

use crate::{
    enforcement::Enforcement,
    facts::{Media, Scores},
    item::On,
    leaves::LeafSpec,
    windows::{Amount, Measure},
};

string_enum! {
    /// State of a rule: whether it has effects. Every rule that is not archived is evaluated.
    pub enum Status {
        Draft = "draft",
        Background = "background",
        Live = "live",
        Archived = "archived",
    }
}

/// An action that a match asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionUse {
    pub id: ActionId,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Json>,
}

/// A rule document.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub key: RuleId,
    pub name: String,
    pub status: Status,
    pub expires_at: Option<Millis>,
    pub on: Vec<On>,
    /// Empty: all.
    pub item_types: Vec<TypeId>,
    pub when: Condition,
    /// Parts of the condition, with those of its expressions.
    pub nodes: usize,
    pub policies: Vec<PolicyId>,
    pub actions: Vec<ActionUse>,
    pub enforcement: Enforcement,
    pub tests: Vec<Test>,
}

/// A node of a rule's condition tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Leaf(LeafSpec),
    /// Condition of an expression.
    Expr(Box<Condition>),
    /// Condition of another rule.
    Rule(RuleId),
}

/// A window document.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    pub key: WindowId,
    /// Empty: all.
    pub item_types: Vec<TypeId>,
    /// The path whose values are counted apart; the item's user if left out.
    pub by: Option<String>,
    pub condition: Option<Condition>,
    pub measure: Measure,
    /// The path that is summed up or whose different values are counted.
    pub measured: Option<String>,
    /// Milliseconds.
    pub over: i64,
    /// Milliseconds.
    pub bucket: i64,
}

/// An example beside the rule that says whether it must match.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    pub name: Option<String>,
    /// The item type of the example; the rule's only one if left out.
    pub item_type: Option<TypeId>,
    /// The `data` of an item.
    pub item: Json,
    pub facts: ExampleFacts,
    pub matches: bool,
}

/// Facts beside an item that is only tried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExampleFacts {
    /// The standing of its user, whatever the window.
    pub strikes: i64,
    /// Counts of windows, whatever the key; the others have counted nothing.
    pub counts: Vec<(WindowId, Amount)>,
    /// Scores of models; the others have none.
    pub scores: Vec<(String, Scores)>,
    /// Texts that models return; the others return none.
    pub texts: Vec<(String, Vec<Arc<str>>)>,
    /// Media by address, or one for all; the others are not known.
    pub media: Vec<(Option<String>, Media)>,
}
