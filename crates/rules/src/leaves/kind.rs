//! Interface of a leaf: one kind of condition on an item or on facts about it.

use std::fmt::Debug;

use serde_json::Value as Json;

use super::{
    constraint::Constraint,
    context::Context,
    input::{EvalInput, LeafDecision},
};
use crate::{
    facts::{Facts, Need},
    limits::{Limits, OutOfSteps, Steps},
    logic::Mask,
    reader::Reader,
};

/// Compiled condition. The defaults suit conditions that the item alone decides and that the engine cannot index.
pub(crate) trait LeafKind: Sized {
    /// Condition as written.
    type Spec: Debug;
    /// Condition in explanations.
    type Explained;

    /// True if the condition depends on facts beyond the item.
    const LOOKS_UP: bool = false;

    fn compile(spec: Self::Spec, context: &mut Context<'_>) -> Option<Self>;

    /// Paths that the condition reads. Conditions with equal documents and an equal resolution of these paths form one
    /// predicate.
    fn paths(spec: &Self::Spec, context: &Context<'_>) -> Vec<String>;

    /// Returns the possible outcomes with the item alone.
    fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps>;

    /// Facts that decide the condition where the item alone does not.
    fn collect_needs(&self, _input: &EvalInput<'_>) -> Vec<Need> {
        Vec::new()
    }

    /// Decides the condition with the facts that it needs.
    fn settle(
        &self,
        _needs: &[Need],
        _facts: &Facts,
        explained: Self::Explained,
        _limits: &Limits,
        _steps: &mut Steps,
    ) -> LeafDecision<Self::Explained> {
        LeafDecision { mask: Mask::ERRORED, explained, reason: None }
    }

    /// Explains the condition with the outcome `mask`. `found_needles` are the needles of a text condition that the scan has
    /// found, each after the number of its predicate.
    fn explain(
        &self,
        mask: Mask,
        found_needles: Option<&[(u32, u32)]>,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> Self::Explained;

    /// Estimated share of items that meet the requirement of the condition, from 0 to 1. `None` if the engine cannot index
    /// it.
    fn witness(&self) -> Option<f32> {
        None
    }

    /// Estimated steps of an evaluation on a typical item.
    fn cost(&self) -> f32 {
        1.0
    }

    /// Constraints on the item's values if the condition passes, or if it fails, for lint.
    fn lint(&self, _passes: bool) -> Vec<Constraint> {
        Vec::new()
    }

    /// Bytes of memory, as far as they depend on the document.
    fn memory(&self) -> usize {
        0
    }
}

/// Leaf with a key in documents; the other kinds are parts of expressions.
pub(crate) trait DocumentLeaf: LeafKind {
    const KEY: &'static str;

    fn parse(reader: &mut Reader<'_>, value: &Json) -> Option<Self::Spec>;
}

/// Bytes of a typical text, for estimates.
pub(crate) const TYPICAL_TEXT_BYTES: usize = 300;

/// Converts a length for an estimate.
#[allow(clippy::cast_precision_loss, reason = "a guess")]
pub(crate) fn guess(count: usize) -> f32 {
    count as f32
}
