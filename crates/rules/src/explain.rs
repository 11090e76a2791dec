//! The tree that says why a rule matched: each condition's outcome, with values, words and places.
//!
//! It evaluates nothing.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tidegate_schemas::ids::WindowId;

use crate::{
    bank::EntryName,
    compile::Node,
    facts::{BankMatch, MediaState},
    form::View,
};

/// What a condition came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Passed,
    Failed,
    /// There is nothing to compare.
    Inapplicable,
    Errored,
    /// Not looked at, because it could not change the outcome.
    Skipped,
}

/// A condition as it was evaluated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Explained {
    All(AllExplained),
    Any(AllExplained),
    Not(NotExplained),
    Text(TextExplained),
    Field(FieldExplained),
    Strikes(StrikesExplained),
    Count(CountExplained),
    Media(MediaExplained),
    Score(ScoreExplained),
    Geo(GeoExplained),
    Domain(DomainExplained),
    Formula(FormulaExplained),
    /// A part that was left out, because the item's explanations grew too long.
    Cut(CutExplained),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllExplained {
    pub outcome: Verdict,
    pub of: Vec<Explained>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotExplained {
    pub outcome: Verdict,
    pub of: Box<Explained>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CutExplained {
    pub outcome: Verdict,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextExplained {
    pub outcome: Verdict,
    #[serde(rename = "in")]
    pub fields: Vec<String>,
    pub view: View,
    /// The first place of each word or pattern that was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<Hit>,
    /// More words or patterns were found than are shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// A place in a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    pub field: String,
    /// Index in a list or key in a map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<String>,
    /// The word or pattern as the rule has it.
    pub sought: String,
    /// Bytes of the original text, on character boundaries.
    pub start: usize,
    pub end: usize,
    /// The original text there; shortened if long.
    pub found: String,
    /// The bank's entry that is sought, if it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryName>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldExplained {
    pub outcome: Verdict,
    pub path: String,
    pub compared: Map<String, Json>,
    /// The item's value; of a list the values that decided. Absent if the field is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrikesExplained {
    pub outcome: Verdict,
    pub at_least: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<i64>,
    /// Why the points are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountExplained {
    pub outcome: Verdict,
    pub window: WindowId,
    pub at_least: Json,
    /// Whose count decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How much it is, or at least is: what lies beyond the largest number that a rule asks about is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Json>,
    /// Why the count is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MediaExplained {
    pub outcome: Verdict,
    #[serde(rename = "in")]
    pub fields: Vec<String>,
    /// The matches or states that were sought.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<MediaHit>,
    /// Why it is not known what a medium is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A medium that is what was sought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaHit {
    pub url: String,
    pub state: MediaState,
    /// The entry that it is like, if that was sought.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub found: Option<BankMatch>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreExplained {
    pub outcome: Verdict,
    pub model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub compared: Map<String, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Why the score is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeoExplained {
    pub outcome: Verdict,
    #[serde(rename = "in")]
    pub fields: Vec<String>,
    /// Each area in which a place lies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<GeoHit>,
}

/// A place in an area.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeoHit {
    pub field: String,
    /// A geohash, or latitude and longitude.
    pub place: String,
    /// A geohash, or latitude, longitude and metres.
    pub area: String,
    /// How far from the middle of a circle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metres: Option<f64>,
    /// The bank's entry that the area is, if it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryName>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainExplained {
    pub outcome: Verdict,
    #[serde(rename = "in")]
    pub fields: Vec<String>,
    /// The first host of each domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<Hit>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FormulaExplained {
    pub outcome: Verdict,
    pub formula: String,
    /// What its fields are; of a list the first values. Absent fields are left out.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Json>,
}

impl Explained {
    pub fn outcome(&self) -> Verdict {
        match self {
            Self::All(node) | Self::Any(node) => node.outcome,
            Self::Not(node) => node.outcome,
            Self::Text(leaf) => leaf.outcome,
            Self::Field(leaf) => leaf.outcome,
            Self::Strikes(leaf) => leaf.outcome,
            Self::Count(leaf) => leaf.outcome,
            Self::Media(leaf) => leaf.outcome,
            Self::Score(leaf) => leaf.outcome,
            Self::Geo(leaf) => leaf.outcome,
            Self::Domain(leaf) => leaf.outcome,
            Self::Formula(leaf) => leaf.outcome,
            Self::Cut(cut) => cut.outcome,
        }
    }

    /// Conditions and places shown.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::All(node) | Self::Any(node) => 1 + node.of.iter().map(Self::size).sum::<usize>(),
            Self::Not(node) => 1 + node.of.size(),
            Self::Text(leaf) => 1 + leaf.fields.len() + leaf.hits.len(),
            Self::Geo(leaf) => 1 + leaf.fields.len() + leaf.hits.len(),
            Self::Domain(leaf) => 1 + leaf.fields.len() + leaf.hits.len(),
            Self::Formula(leaf) => 1 + leaf.values.len(),
            Self::Media(leaf) => 1 + leaf.fields.len() + leaf.hits.len(),
            Self::Field(_) | Self::Strikes(_) | Self::Count(_) | Self::Score(_) | Self::Cut(_) => 1,
        }
    }
}

/// Hangs explained leaves, in document order, into their tree.
pub(crate) fn tree(node: &Node, leaves: &mut impl Iterator<Item = Explained>) -> Explained {
    match node {
        Node::All(inner) => {
            let of: Vec<_> = inner.iter().map(|node| tree(node, leaves)).collect();
            Explained::All(AllExplained { outcome: combine(&of, Verdict::Failed, Verdict::Passed), of })
        }
        Node::Any(inner) => {
            let of: Vec<_> = inner.iter().map(|node| tree(node, leaves)).collect();
            Explained::Any(AllExplained { outcome: combine(&of, Verdict::Passed, Verdict::Failed), of })
        }
        Node::Not(inner) => {
            let of = Box::new(tree(inner, leaves));
            let outcome = match of.outcome() {
                Verdict::Passed => Verdict::Failed,
                Verdict::Failed => Verdict::Passed,
                other => other,
            };
            Explained::Not(NotExplained { outcome, of })
        }
        Node::Leaf(_) => leaves.next().unwrap_or(Explained::Cut(CutExplained { outcome: Verdict::Skipped })),
    }
}

/// `deciding` settles a node alone; short of that, a node with a skipped part was itself not needed.
fn combine(of: &[Explained], deciding: Verdict, otherwise: Verdict) -> Verdict {
    let order = [deciding, Verdict::Skipped, Verdict::Errored, Verdict::Inapplicable];
    order.into_iter().find(|verdict| of.iter().any(|part| part.outcome() == *verdict)).unwrap_or(otherwise)
}

/// The beginning of a text, whole characters only.
pub(crate) fn excerpt(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
