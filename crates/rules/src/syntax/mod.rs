//! Rule and window documents as trees, and their parsing. Fields and their types are checked when rules are compiled.

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
    item::Trigger,
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

/// Action that a match requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionUse {
    pub id: ActionId,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Json>,
}

/// Rule document.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub key: RuleId,
    pub name: String,
    pub status: Status,
    pub expires_at: Option<Millis>,
    pub on: Vec<Trigger>,
    /// Empty for all types.
    pub item_types: Vec<TypeId>,
    pub when: Condition,
    /// Number of parts of the condition, including those of its expressions.
    pub nodes: usize,
    pub policies: Vec<PolicyId>,
    pub actions: Vec<ActionUse>,
    pub enforcement: Enforcement,
    pub tests: Vec<Test>,
}

/// Node of a rule's condition tree.
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

/// Window document.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    pub key: WindowId,
    /// Empty for all types.
    pub item_types: Vec<TypeId>,
    /// Path by which the window counts. `None` for the item's user.
    pub by: Option<String>,
    pub condition: Option<Condition>,
    pub measure: Measure,
    /// Path with the numbers to add up, or with the values to count distinctly.
    pub measured: Option<String>,
    /// Milliseconds.
    pub length_millis: i64,
    /// Milliseconds.
    pub bucket: i64,
}

/// Test in a rule document, with the expected result.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    pub name: Option<String>,
    /// Item type of the example. `None` if the rule has only one.
    pub item_type: Option<TypeId>,
    /// `data` of the item.
    pub item: Json,
    pub facts: ExampleFacts,
    pub matches: bool,
}

/// Facts about the item of an example.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExampleFacts {
    /// Strike points of the user, over every period.
    pub strikes: i64,
    /// Counts of windows, for every key. Other windows have counted zero.
    pub counts: Vec<(WindowId, Amount)>,
    /// Scores of models. Other models have none.
    pub scores: Vec<(String, Scores)>,
    /// Texts that models return. Other models return none.
    pub texts: Vec<(String, Vec<Arc<str>>)>,
    /// Media by address, or one for all addresses. Other media are unknown.
    pub media: Vec<(Option<String>, Media)>,
}
