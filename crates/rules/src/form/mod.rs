//! The shape of a rule document.
//!
//! It does not know which fields exist or what their types are: that is checked when rules are compiled.

pub mod expr;
mod read;

pub(crate) use self::read::{FINER, around};
pub use self::read::{parse, parse_window};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tidegate_schemas::ids::{ActionId, BankId, Millis, PolicyId, RuleId, TypeId, WindowId};

use crate::{
    facts::{Media, MediaState, Scores, Within},
    item::Number,
    life::Life,
    vocabulary::Container,
    windows::{Amount, Measure},
};

/// Whether a rule has effects. Every rule that is not archived is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Draft,
    Background,
    Live,
    Archived,
}

/// What brings an item before a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    Item,
    Report,
    /// Rules are not asked about these.
    Appeal,
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
    pub policies: Vec<PolicyId>,
    pub actions: Vec<ActionUse>,
    pub life: Life,
    pub tests: Vec<Test>,
}

/// A node of a rule's condition tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Text(Text),
    Field(Comparison),
    Strikes(Strikes),
    Count(Count),
    Media(MediaTest),
    Score(Score),
    Geo(Geo),
    Domain(DomainTest),
    /// What an expression is made of.
    Expr(Box<Condition>),
    /// A part of an expression that no other condition says.
    Formula(expr::Formula),
}

/// In which form a text is searched, from the finest to the coarsest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum View {
    /// As it was sent.
    Raw,
    /// Each character in lower case, a final sigma as sigma. The default, except for regular expressions.
    Lower,
    /// Letters for which a reader takes other characters: `fr33`, `ｆｒｅｅ` and Cyrillic look-alikes are `free`.
    Folded,
    /// Folded, with letters that stand several times in a row once; a word must have no more of them than the text.
    Collapsed,
}

/// Words or patterns, searched in named fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    pub fields: Vec<String>,
    pub view: View,
    pub search: Search,
    /// How many of the words or patterns must be found, each at least once.
    pub min_distinct: usize,
}

/// What a text condition looks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Search {
    /// `any_of`, or `words` for whole words.
    AnyOf { words: Vec<String>, whole: bool },
    /// `min_distinct` is the number of words.
    AllOf { words: Vec<String>, whole: bool },
    /// One of these regular expressions.
    Regex(Vec<String>),
    /// One of a bank's words or patterns.
    Bank { bank: BankId, whole: bool },
}

/// Comparisons of one field, all of which must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub path: String,
    /// How many of a list's or map's values must meet the tests; if left out, one must meet those that ask for
    /// something, and all those that deny something.
    pub of: Option<Of>,
    /// Texts are compared in lower case.
    pub ignore_case: bool,
    pub tests: Vec<(Op, Json)>,
    /// What the field must be, if the comparison would mean another thing on others.
    pub container: Option<Container>,
}

/// How many of several values must meet all tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    Any,
    All,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Eq,
    Ne,
    Lt,
    Lte,
    Gt,
    Gte,
    In,
    NotIn,
    /// The text begins with one of these.
    StartsWith,
    EndsWith,
    Contains,
    Exists,
}

impl Op {
    pub(crate) const NAMES: [(&'static str, Self); 12] = [
        ("eq", Self::Eq),
        ("ne", Self::Ne),
        ("lt", Self::Lt),
        ("lte", Self::Lte),
        ("gt", Self::Gt),
        ("gte", Self::Gte),
        ("in", Self::In),
        ("not_in", Self::NotIn),
        ("starts_with", Self::StartsWith),
        ("ends_with", Self::EndsWith),
        ("contains", Self::Contains),
        ("exists", Self::Exists),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, op)| *op == self).map_or("", |(name, _)| name)
    }
}

/// The standing of the item's user reaches a number of strike points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strikes {
    /// The least number of points that passes: `gt: 2` is `gte: 3`.
    pub at_least: i64,
    pub within: Option<Within>,
}

/// What a window has counted for the item reaches a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    pub window: WindowId,
    /// The least amount that passes: `gt: 2` is a millionth more than two.
    pub at_least: Amount,
}

/// A medium of named fields is like an entry of a bank, or could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTest {
    pub fields: Vec<String>,
    /// One of these; empty: asks for a match.
    pub states: Vec<MediaState>,
    /// Empty: any bank.
    pub banks: Vec<BankId>,
    /// Of hash; empty: any.
    pub kinds: Vec<String>,
    /// The entry has one of these; empty: whatever it has.
    pub labels: Vec<String>,
    /// How many bits may differ; if left out, as many as the bank allows.
    pub max_distance: Option<u32>,
}

/// A model's number for the item lies in a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    pub model: String,
    /// Which of its numbers; the one for the whole if left out.
    pub label: Option<String>,
    /// Orders only; all of them must hold.
    pub tests: Vec<(Op, Number)>,
}

/// A place of the item lies in one of several areas.
#[derive(Clone, Debug, PartialEq)]
pub struct Geo {
    pub source: GeoSource,
    pub within: Vec<Circle>,
    /// Geohashes, each with all that is inside.
    pub cells: Vec<String>,
    pub bank: Option<BankId>,
}

/// The paths that hold places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GeoSource {
    /// Geohashes.
    Hashes(Vec<String>),
    /// Degrees.
    Pair { lat: String, lng: String },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Circle {
    pub lat: f64,
    pub lng: f64,
    pub metres: f64,
}

/// An address or a text names a host in one of several domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainTest {
    pub fields: Vec<String>,
    /// In their canonical form; each with all that is below it.
    pub domains: Vec<String>,
    pub bank: Option<BankId>,
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
    /// In milliseconds.
    pub over: i64,
    /// In milliseconds.
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
    pub around: Around,
    pub matches: bool,
}

/// What is known beside an item that is only tried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Around {
    /// The standing of its user, whatever the window.
    pub strikes: i64,
    /// What windows have counted, whatever the key; the others have counted nothing.
    pub counts: Vec<(WindowId, Amount)>,
    /// What models say; the others say nothing.
    pub scores: Vec<(String, Scores)>,
    /// What is known of media: of the one with this address, or of all. Nothing is known of others.
    pub media: Vec<(Option<String>, Media)>,
}
