//! The interface of a leaf: one kind of condition that looks at an item or at what is known beside it.

use std::fmt::Debug;

use serde_json::Value as Json;

use super::{
    constraint::Constraint,
    context::Context,
    input::{EvalInput, Settled},
};
use crate::{
    facts::{Facts, Need},
    limits::{Limits, OutOfSteps, Steps},
    logic::Mask,
    reader::Reader,
};

/// A compiled condition. What a leaf does not implement is right for conditions that the item alone decides and that
/// the engine has no index for.
pub(crate) trait LeafKind: Sized {
    /// The condition as it is written.
    type Spec: Debug;
    /// The condition as explanations show it.
    type Explained;

    /// True if it depends on facts that are not in the item.
    const LOOKS_UP: bool = false;

    fn compile(spec: Self::Spec, context: &mut Context<'_>) -> Option<Self>;

    /// Paths of the item that the condition reads. Conditions that read them alike and are written alike are one
    /// predicate.
    fn paths(spec: &Self::Spec, context: &Context<'_>) -> Vec<String>;

    /// Evaluates the condition with the item alone: what it can still come to.
    fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps>;

    /// Facts that decide a condition which the item leaves open.
    fn needs(&self, _scene: &EvalInput<'_>) -> Vec<Need> {
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
    ) -> Settled<Self::Explained> {
        Settled { mask: Mask::ERRORED, explained, reason: None }
    }

    /// The condition as an explanation shows it. `known` is what it came to; `found` are needles of a text condition
    /// that are known to be there, each behind the number of its predicate.
    fn explain(
        &self,
        known: Mask,
        found: Option<&[(u32, u32)]>,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> Self::Explained;

    /// Guess of how often an item holds what the condition needs to pass, from 0 to 1; `None` if the engine cannot look
    /// for that.
    fn witness(&self) -> Option<f32> {
        None
    }

    /// Steps of an evaluation on the usual item, guessed.
    fn cost(&self) -> f32 {
        1.0
    }

    /// Constraints on the item's values where the condition passes, or where it fails, for lint.
    fn lint(&self, _passes: bool) -> Vec<Constraint> {
        Vec::new()
    }

    /// Bytes of memory, as far as they depend on the document.
    fn memory(&self) -> usize {
        0
    }
}

/// A leaf that documents name by a key of its own; the others are parts of expressions.
pub(crate) trait DocumentLeaf: LeafKind {
    const KEY: &'static str;

    fn parse(reader: &mut Reader<'_>, value: &Json) -> Option<Self::Spec>;
}

/// Bytes of the usual text.
pub(crate) const USUAL_TEXT: usize = 300;

/// A length as the number of a guess.
#[allow(clippy::cast_precision_loss, reason = "a guess")]
pub(crate) fn guess(count: usize) -> f32 {
    count as f32
}
