//! Conditions that look at an item or at what is known beside it: one file a kind, one table of all kinds.
//!
//! A new kind is a file with its types and [`LeafKind`], and a line in the table. How conditions are combined is in
//! `logic`.

pub(crate) mod constraint;
pub(crate) mod context;
pub mod count;
pub mod domain;
pub mod field;
pub mod formula;
pub mod geo;
pub(crate) mod input;
mod kind;
pub mod media;
pub mod model_text;
pub(crate) mod needle;
pub mod op;
pub mod score;
pub mod strikes;
pub mod text;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_schemas::ids::RuleId;

use self::{
    constraint::Constraint,
    context::Context,
    input::{EvalInput, Settled},
    kind::{DocumentLeaf, LeafKind},
};
use crate::{
    facts::{Facts, Need},
    limits::{Limits, OutOfSteps, Steps},
    logic::{ConditionResult, Mask, Node, RuleUse},
    reader::Reader,
};

/// Makes the enums over all kinds of leaves, and the calls of each kind's functions. A line names the compiled leaf,
/// the condition as it is written, and the condition as explanations show it. A key is what documents call it.
macro_rules! leaf_kinds {
    (
        documents { $($document:ident($leaf:ty, $spec:ty, $explained:ty),)* }
        expressions { $($part:ident($part_leaf:ty, $part_spec:ty, $part_explained:ty),)* }
    ) => {
        leaf_kinds! { @all
            $($document($leaf, $spec, $explained, Some(<$leaf as DocumentLeaf>::KEY)),)*
            $($part($part_leaf, $part_spec, $part_explained, None),)*
        }

        impl LeafSpec {
            /// The keys of conditions that are leaves.
            pub(crate) const KEYS: &'static [&'static str] = &[$(<$leaf as DocumentLeaf>::KEY),*];

            /// Reads the condition that stands under one of [`Self::KEYS`].
            pub(crate) fn parse(key: &str, reader: &mut Reader<'_>, value: &Json) -> Option<Self> {
                $(if key == <$leaf as DocumentLeaf>::KEY {
                    return <$leaf as DocumentLeaf>::parse(reader, value).map(Self::$document);
                })*
                None
            }
        }
    };
    (@all $($kind:ident($leaf:ty, $spec:ty, $explained:ty, $key:expr),)*) => {
        /// A leaf as it is written.
        #[derive(Clone, Debug, PartialEq)]
        pub enum LeafSpec {
            $($kind($spec),)*
        }

        /// A leaf, ready to run.
        #[derive(Debug)]
        pub(crate) enum Leaf {
            $($kind($leaf),)*
        }

        /// A condition as it was evaluated.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Explained {
            All(AllExplained),
            Any(AllExplained),
            Not(NotExplained),
            Rule(RuleExplained),
            $($kind($explained),)*
            /// A part that was left out, because the item's explanations grew too long.
            Cut(CutExplained),
        }

        impl LeafSpec {
            /// True if the condition depends on facts that are not in the item.
            pub(crate) fn looks_up(&self) -> bool {
                match self {
                    $(Self::$kind(_) => <$leaf as LeafKind>::LOOKS_UP,)*
                }
            }

            /// Text that is equal for conditions that are one predicate: how they are written, and how their fields are
            /// read.
            pub(crate) fn identity(&self, context: &Context<'_>) -> String {
                let paths = match self {
                    $(Self::$kind(spec) => <$leaf as LeafKind>::paths(spec, context),)*
                };
                let resolved: Vec<_> = paths.iter().map(|path| context.resolved(path)).collect();
                format!("{self:?} {resolved:?}")
            }
        }

        impl Leaf {
            pub(crate) fn compile(spec: LeafSpec, context: &mut Context<'_>) -> Option<Self> {
                match spec {
                    $(LeafSpec::$kind(spec) => {
                        let key: Option<&str> = $key;
                        let leaf = match key {
                            Some(key) => context.at(key, |c| <$leaf as LeafKind>::compile(spec, c)),
                            None => <$leaf as LeafKind>::compile(spec, context),
                        };
                        leaf.map(Self::$kind)
                    })*
                }
            }

            /// Evaluates the leaf with the item alone: what it can still come to.
            pub(crate) fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps> {
                steps.take(1)?;
                match self {
                    $(Self::$kind(leaf) => leaf.evaluate(input, steps),)*
                }
            }

            /// True if it depends on facts that are not in the item.
            pub(crate) fn looks_up(&self) -> bool {
                match self {
                    $(Self::$kind(_) => <$leaf as LeafKind>::LOOKS_UP,)*
                }
            }

            /// True if a model answers it.
            pub(crate) fn asks_model(&self) -> bool {
                matches!(self, Self::Score(_) | Self::ModelText(_))
            }

            /// Facts that decide a leaf which the item leaves open.
            pub(crate) fn needs(&self, input: &EvalInput<'_>) -> Vec<Need> {
                match self {
                    $(Self::$kind(leaf) => leaf.needs(input),)*
                }
            }

            /// Decides the leaf with the facts that it needs.
            pub(crate) fn settle(
                &self,
                needs: &[Need],
                facts: &Facts,
                explained: Explained,
                limits: &Limits,
                steps: &mut Steps,
            ) -> Settled<Explained> {
                match (self, explained) {
                    $((Self::$kind(leaf), Explained::$kind(explained)) => {
                        let Settled { mask, explained, reason } =
                            leaf.settle(needs, facts, explained, limits, steps);
                        Settled { mask, explained: Explained::$kind(explained), reason }
                    })*
                    (_, explained) => Settled { mask: Mask::ERRORED, explained, reason: None },
                }
            }

            /// The leaf as an explanation shows it; see [`LeafKind::explain`].
            pub(crate) fn explain(
                &self,
                known: Mask,
                found: Option<&[(u32, u32)]>,
                input: &EvalInput<'_>,
                steps: &mut Steps,
            ) -> Explained {
                match self {
                    $(Self::$kind(leaf) => Explained::$kind(leaf.explain(known, found, input, steps)),)*
                }
            }

            /// Guess of how often an item holds what the leaf needs to pass; `None` if the engine cannot look for that.
            pub(crate) fn witness(&self) -> Option<f32> {
                match self {
                    $(Self::$kind(leaf) => leaf.witness(),)*
                }
            }

            /// Steps of an evaluation on the usual item, guessed.
            pub(crate) fn cost(&self) -> f32 {
                match self {
                    $(Self::$kind(leaf) => leaf.cost(),)*
                }
            }

            /// Constraints on the item's values where the leaf passes, or where it fails, for lint.
            pub(crate) fn lint(&self, passes: bool) -> Vec<Constraint> {
                match self {
                    $(Self::$kind(leaf) => leaf.lint(passes),)*
                }
            }

            /// Bytes of memory, as far as they depend on the document.
            pub(crate) fn memory(&self) -> usize {
                match self {
                    $(Self::$kind(leaf) => leaf.memory(),)*
                }
            }
        }

        impl Explained {
            pub fn outcome(&self) -> ConditionResult {
                match self {
                    Self::All(node) | Self::Any(node) => node.outcome,
                    Self::Not(node) => node.outcome,
                    Self::Rule(node) => node.outcome,
                    $(Self::$kind(leaf) => leaf.outcome,)*
                    Self::Cut(cut) => cut.outcome,
                }
            }
        }
    };
}

leaf_kinds! {
    documents {
        Text(text::TextLeaf, text::Text, text::TextExplained),
        Field(field::FieldLeaf, field::Comparison, field::FieldExplained),
        Strikes(strikes::StrikesLeaf, strikes::Strikes, strikes::StrikesExplained),
        Count(count::CountLeaf, count::Count, count::CountExplained),
        Media(media::MediaLeaf, media::MediaTest, media::MediaExplained),
        Score(score::ScoreLeaf, score::Score, score::ScoreExplained),
        ModelText(model_text::ModelTextLeaf, model_text::ModelText, model_text::ModelTextExplained),
        Geo(geo::GeoLeaf, geo::Geo, geo::GeoExplained),
        Domain(domain::DomainLeaf, domain::DomainTest, domain::DomainExplained),
    }
    expressions {
        Formula(formula::FormulaLeaf, formula::Formula, formula::FormulaExplained),
    }
}

/// The evaluation of all or any of several conditions, as explanations show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllExplained {
    pub outcome: ConditionResult,
    pub of: Vec<Explained>,
}

/// The evaluation of a negated condition, as explanations show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotExplained {
    pub outcome: ConditionResult,
    pub of: Box<Explained>,
}

/// The evaluation of another rule's condition, as explanations show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleExplained {
    pub outcome: ConditionResult,
    pub key: RuleId,
    pub of: Box<Explained>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CutExplained {
    pub outcome: ConditionResult,
}

impl Explained {
    /// Explanation of a match that shows nothing of it.
    pub(crate) fn of_cut_match() -> Self {
        Self::Cut(CutExplained { outcome: ConditionResult::Passed })
    }

    /// Conditions and places shown.
    pub(crate) fn size(&self) -> usize {
        let shown = match self {
            Self::All(node) | Self::Any(node) => node.of.iter().map(Self::size).sum::<usize>(),
            Self::Not(node) => node.of.size(),
            Self::Rule(node) => node.of.size(),
            Self::Text(leaf) => leaf.fields.len() + leaf.hits.len(),
            Self::Geo(leaf) => leaf.fields.len() + leaf.hits.len(),
            Self::Domain(leaf) => leaf.fields.len() + leaf.hits.len(),
            Self::Media(leaf) => leaf.fields.len() + leaf.hits.len(),
            Self::ModelText(leaf) => leaf.hits.len(),
            Self::Formula(leaf) => leaf.values.len(),
            _ => 0,
        };
        1 + shown
    }
}

/// Hangs explained leaves, in document order, into their tree, and names the rules whose conditions are parts of it.
/// `uses` are in preorder; where several name one node, the outer rule comes first.
pub(crate) fn tree(node: &Node, uses: &[RuleUse], leaves: impl IntoIterator<Item = Explained>) -> Explained {
    TreeBuilder { leaves: leaves.into_iter(), uses, nodes: 0 }.explained(node)
}

struct TreeBuilder<'u, L> {
    leaves: L,
    /// Uses of the nodes that are still to come.
    uses: &'u [RuleUse],
    /// Number of nodes so far.
    nodes: usize,
}

impl<L: Iterator<Item = Explained>> TreeBuilder<'_, L> {
    fn explained(&mut self, node: &Node) -> Explained {
        let uses = self.uses;
        let here = uses.iter().take_while(|it| it.node == self.nodes).count();
        let (here, rest) = uses.split_at(here);
        self.uses = rest;
        self.nodes += 1;
        let explained = match node {
            Node::All(inner) => {
                let of: Vec<_> = inner.iter().map(|node| self.explained(node)).collect();
                let outcome = combine(&of, ConditionResult::Failed, ConditionResult::Passed);
                Explained::All(AllExplained { outcome, of })
            }
            Node::Any(inner) => {
                let of: Vec<_> = inner.iter().map(|node| self.explained(node)).collect();
                let outcome = combine(&of, ConditionResult::Passed, ConditionResult::Failed);
                Explained::Any(AllExplained { outcome, of })
            }
            Node::Not(inner) => {
                let of = Box::new(self.explained(inner));
                let outcome = match of.outcome() {
                    ConditionResult::Passed => ConditionResult::Failed,
                    ConditionResult::Failed => ConditionResult::Passed,
                    other => other,
                };
                Explained::Not(NotExplained { outcome, of })
            }
            Node::Leaf(_) => {
                let cut = Explained::Cut(CutExplained { outcome: ConditionResult::Skipped });
                self.leaves.next().unwrap_or(cut)
            }
        };
        here.iter().rev().fold(explained, |of, used| {
            let (outcome, key) = (of.outcome(), used.rule.clone());
            Explained::Rule(RuleExplained { outcome, key, of: Box::new(of) })
        })
    }
}

/// `deciding` settles a node alone; short of that, a node with a skipped part was itself not needed.
fn combine(of: &[Explained], deciding: ConditionResult, otherwise: ConditionResult) -> ConditionResult {
    let order = [deciding, ConditionResult::Skipped, ConditionResult::Errored, ConditionResult::Inapplicable];
    order.into_iter().find(|verdict| of.iter().any(|part| part.outcome() == *verdict)).unwrap_or(otherwise)
}
