//! Conditions on an item or on facts about it: one file for each kind, one table of all kinds. A new kind is a file with its
//! types and [`LeafKind`], and a line in the table. `logic` combines conditions.

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
    input::{EvalInput, LeafDecision},
    kind::{DocumentLeaf, LeafKind},
};
use crate::{
    facts::{Facts, Need},
    limits::{Limits, OutOfSteps, Steps},
    logic::{ConditionResult, Mask, Node, RuleUse},
    reader::Reader,
};

/// Generates the enums of all kinds of leaves and the dispatch to the functions of each kind. A line names the compiled
/// leaf, the condition as written, and the condition in explanations. Kinds under `documents` have a key in documents; kinds
/// under `expressions` are written only as part of an expression.
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
            /// Keys of the conditions that are leaves.
            pub(crate) const KEYS: &'static [&'static str] = &[$(<$leaf as DocumentLeaf>::KEY),*];

            /// Reads the condition under one of [`Self::KEYS`].
            pub(crate) fn parse(key: &str, reader: &mut Reader<'_>, value: &Json) -> Option<Self> {
                $(if key == <$leaf as DocumentLeaf>::KEY {
                    return <$leaf as DocumentLeaf>::parse(reader, value).map(Self::$document);
                })*
                None
            }
        }
    };
    (@all $($kind:ident($leaf:ty, $spec:ty, $explained:ty, $key:expr),)*) => {
        /// Leaf as written in a document.
        #[derive(Clone, Debug, PartialEq)]
        pub enum LeafSpec {
            $($kind($spec),)*
        }

        /// Compiled leaf.
        #[derive(Debug)]
        pub(crate) enum Leaf {
            $($kind($leaf),)*
        }

        /// Condition with its outcome.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Explained {
            All(AllExplained),
            Any(AllExplained),
            Not(NotExplained),
            Rule(RuleExplained),
            $($kind($explained),)*
            /// Part that was left out because the item's explanations exceed their limit.
            Cut(CutExplained),
        }

        impl LeafSpec {
            /// True if the condition depends on facts beyond the item.
            pub(crate) fn looks_up(&self) -> bool {
                match self {
                    $(Self::$kind(_) => <$leaf as LeafKind>::LOOKS_UP,)*
                }
            }

            /// Text that is equal for conditions that form one predicate: equal documents, with an equal resolution of their
            /// fields.
            pub(crate) fn identity(&self, context: &Context<'_>) -> String {
                let paths = match self {
                    $(Self::$kind(spec) => <$leaf as LeafKind>::paths(spec, context),)*
                };
                let resolved: Vec<_> = paths.iter().map(|path| context.resolve_path(path)).collect();
                format!("{self:?} {resolved:?}")
            }
        }

        impl Leaf {
            pub(crate) fn compile(spec: LeafSpec, context: &mut Context<'_>) -> Option<Self> {
                match spec {
                    $(LeafSpec::$kind(spec) => {
                        let key: Option<&str> = $key;
                        // Errors point at the key of the condition; a part of an expression has none.
                        let leaf = match key {
                            Some(key) => context.at(key, |c| <$leaf as LeafKind>::compile(spec, c)),
                            None => <$leaf as LeafKind>::compile(spec, context),
                        };
                        leaf.map(Self::$kind)
                    })*
                }
            }

            /// Returns the possible outcomes with the item alone.
            pub(crate) fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps> {
                steps.take(1)?;
                match self {
                    $(Self::$kind(leaf) => leaf.evaluate(input, steps),)*
                }
            }

            /// True if the leaf depends on facts beyond the item.
            pub(crate) fn looks_up(&self) -> bool {
                match self {
                    $(Self::$kind(_) => <$leaf as LeafKind>::LOOKS_UP,)*
                }
            }

            /// True if the leaf depends on the answer of a model.
            pub(crate) fn asks_model(&self) -> bool {
                matches!(self, Self::Score(_) | Self::ModelText(_))
            }

            /// Facts that decide the leaf where the item alone does not.
            pub(crate) fn collect_needs(&self, input: &EvalInput<'_>) -> Vec<Need> {
                match self {
                    $(Self::$kind(leaf) => leaf.collect_needs(input),)*
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
            ) -> LeafDecision<Explained> {
                match (self, explained) {
                    $((Self::$kind(leaf), Explained::$kind(explained)) => {
                        let LeafDecision { mask, explained, reason } =
                            leaf.settle(needs, facts, explained, limits, steps);
                        LeafDecision { mask, explained: Explained::$kind(explained), reason }
                    })*
                    // Each leaf explains its own kind, so another kind is a mistake, and must not let a rule pass.
                    (_, explained) => LeafDecision { mask: Mask::ERRORED, explained, reason: None },
                }
            }

            /// Explains the leaf; see [`LeafKind::explain`].
            pub(crate) fn explain(
                &self,
                mask: Mask,
                found_needles: Option<&[(u32, u32)]>,
                input: &EvalInput<'_>,
                steps: &mut Steps,
            ) -> Explained {
                match self {
                    $(Self::$kind(leaf) => Explained::$kind(leaf.explain(mask, found_needles, input, steps)),)*
                }
            }

            /// Estimated share of items that meet the requirement of the leaf. `None` if the engine cannot index it.
            pub(crate) fn witness(&self) -> Option<f32> {
                match self {
                    $(Self::$kind(leaf) => leaf.witness(),)*
                }
            }

            /// Estimated steps of an evaluation on a typical item.
            pub(crate) fn cost(&self) -> f32 {
                match self {
                    $(Self::$kind(leaf) => leaf.cost(),)*
                }
            }

            /// Constraints on the item's values if the leaf passes, or if it fails, for lint.
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

/// Explanation of a condition with all or any of several parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllExplained {
    pub outcome: ConditionResult,
    pub of: Vec<Explained>,
}

/// Explanation of a negated condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotExplained {
    pub outcome: ConditionResult,
    pub of: Box<Explained>,
}

/// Explanation of the condition of another rule.
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
    /// Explanation of a match without any details.
    pub(crate) fn cut_match() -> Self {
        Self::Cut(CutExplained { outcome: ConditionResult::Passed })
    }

    /// Number of conditions and places in the explanation.
    pub(crate) fn size(&self) -> usize {
        let details = match self {
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
        1 + details
    }
}

/// Arranges explained leaves, in document order, in the tree of a rule, and names the rules that contributed parts of it.
/// `uses` are in preorder; if several refer to one node, the outer rule is first.
pub(crate) fn build_tree(
    node: &Node,
    uses: &[RuleUse],
    leaves: impl IntoIterator<Item = Explained>,
) -> Explained {
    TreeBuilder { leaves: leaves.into_iter(), uses, visited_nodes: 0 }.build(node)
}

struct TreeBuilder<'u, L> {
    leaves: L,
    /// Uses of the nodes that are not visited yet.
    uses: &'u [RuleUse],
    /// Number of visited nodes, which is the preorder number of the next node.
    visited_nodes: usize,
}

impl<L: Iterator<Item = Explained>> TreeBuilder<'_, L> {
    fn build(&mut self, node: &Node) -> Explained {
        let uses = self.uses;
        let use_count = uses.iter().take_while(|rule_use| rule_use.node == self.visited_nodes).count();
        let (node_uses, later_uses) = uses.split_at(use_count);
        self.uses = later_uses;
        self.visited_nodes += 1;
        let explained = match node {
            Node::All(inner) => {
                let of: Vec<_> = inner.iter().map(|node| self.build(node)).collect();
                let outcome = combine(&of, ConditionResult::Failed, ConditionResult::Passed);
                Explained::All(AllExplained { outcome, of })
            }
            Node::Any(inner) => {
                let of: Vec<_> = inner.iter().map(|node| self.build(node)).collect();
                let outcome = combine(&of, ConditionResult::Passed, ConditionResult::Failed);
                Explained::Any(AllExplained { outcome, of })
            }
            Node::Not(inner) => {
                let of = Box::new(self.build(inner));
                let outcome = match of.outcome() {
                    ConditionResult::Passed => ConditionResult::Failed,
                    ConditionResult::Failed => ConditionResult::Passed,
                    other => other,
                };
                Explained::Not(NotExplained { outcome, of })
            }
            Node::Leaf(_) => {
                // Each leaf of the rule has an explanation. If one were missing, the part must not read as a match.
                let placeholder = Explained::Cut(CutExplained { outcome: ConditionResult::Skipped });
                self.leaves.next().unwrap_or(placeholder)
            }
        };
        // The outer rule is first in the list, so it must be wrapped around the others last.
        node_uses.iter().rev().fold(explained, |of, rule_use| {
            let (outcome, key) = (of.outcome(), rule_use.rule.clone());
            Explained::Rule(RuleExplained { outcome, key, of: Box::new(of) })
        })
    }
}

/// Combines the outcomes of a node's parts. A part with the outcome `deciding` decides the node; `fallback` is the outcome if
/// all parts have the other one. A skipped part without a deciding one means that the node was not needed.
fn combine(of: &[Explained], deciding: ConditionResult, fallback: ConditionResult) -> ConditionResult {
    let order = [deciding, ConditionResult::Skipped, ConditionResult::Errored, ConditionResult::Inapplicable];
    order.into_iter().find(|verdict| of.iter().any(|part| part.outcome() == *verdict)).unwrap_or(fallback)
}
