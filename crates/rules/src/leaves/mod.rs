//! The conditions that look at an item or its user: one file a kind.
//!
//! It does not combine them.

mod field;
mod strikes;
mod text;

use tidegate_schemas::ids::{ItemKey, Millis};

pub(crate) use self::{
    field::{FieldLeaf, Sought},
    strikes::StrikesLeaf,
    text::{Needle, TextLeaf, in_word},
};
use crate::{
    compile::Context,
    evaluate::Mask,
    explain::Explained,
    form::Condition,
    limits::{Limits, Spent, Steps},
    views::Views,
};

#[derive(Debug)]
pub(crate) enum Leaf {
    Text(TextLeaf),
    Field(FieldLeaf),
    Strikes(StrikesLeaf),
}

/// What leaves look at.
pub(crate) struct Scene<'a> {
    pub(crate) views: Views<'a>,
    pub(crate) user: Option<&'a ItemKey>,
    pub(crate) now: Millis,
    pub(crate) limits: &'a Limits,
}

impl Leaf {
    pub(crate) fn compile(condition: Condition, context: &mut Context<'_>) -> Option<Self> {
        match condition {
            Condition::Text(text) => context.at("text", |c| TextLeaf::compile(text, c)).map(Self::Text),
            Condition::Field(field) => {
                context.at("field", |c| FieldLeaf::compile(&field, c)).map(Self::Field)
            }
            Condition::Strikes(strikes) => Some(Self::Strikes(StrikesLeaf(strikes))),
            Condition::All(_) | Condition::Any(_) | Condition::Not(_) => None,
        }
    }

    /// What two conditions must have in common to be one predicate: their words, and how their fields are read.
    pub(crate) fn identity(condition: &Condition, context: &mut Context<'_>) -> Option<String> {
        let resolved = match condition {
            Condition::Text(text) => {
                let paths: Vec<_> = text.fields.iter().map(|field| context.resolved(field)).collect();
                format!("{paths:?}")
            }
            Condition::Field(field) => format!("{:?}", context.resolved(&field.path)),
            Condition::Strikes(_) => String::new(),
            Condition::All(_) | Condition::Any(_) | Condition::Not(_) => return None,
        };
        Some(format!("{condition:?} {resolved}"))
    }

    /// What the leaf can still come to.
    pub(crate) fn judge(&self, scene: &Scene<'_>, steps: &mut Steps) -> Result<Mask, Spent> {
        steps.take(1)?;
        match self {
            Self::Text(text) => text.judge(scene, steps),
            Self::Field(field) => field.judge(scene, steps),
            Self::Strikes(strikes) => Ok(strikes.judge(scene.user)),
        }
    }

    /// The leaf as an explanation shows it: `known` is what it came to, `found` which needles are known to be there.
    pub(crate) fn explain(
        &self,
        known: Mask,
        found: Option<Vec<usize>>,
        scene: &Scene<'_>,
        steps: &mut Steps,
    ) -> Explained {
        match self {
            Self::Text(text) => text.explain(known, found, scene, steps),
            Self::Field(field) => field.explain(known, scene),
            Self::Strikes(strikes) => strikes.explain(known, None, None),
        }
    }
}
