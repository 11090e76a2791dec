//! The conditions that look at an item or its user: one file a kind.
//!
//! It does not combine them.

pub(crate) mod constraint;
mod count;
mod domain;
mod field;
mod formula;
mod geo;
mod media;
mod score;
mod strikes;
pub(crate) mod text;

use tidegate_schemas::ids::{ItemKey, Millis, SubmissionId};

pub use self::text::needle::pattern_fault;
pub(crate) use self::{
    constraint::{Allowed, Constraint, Subject, contradict},
    count::{CountLeaf, values_of},
    domain::DomainLeaf,
    field::{FieldLeaf, Sought},
    formula::FormulaLeaf,
    geo::{GeoLeaf, Places},
    media::MediaLeaf,
    score::ScoreLeaf,
    strikes::StrikesLeaf,
    text::{Needle, TextLeaf, in_word},
};
use crate::{
    compile::Context,
    evaluate::Mask,
    explain::Explained,
    facts::{Facts, Need},
    form::{Condition, GeoSource},
    limits::{Limits, Spent, Steps},
    views::Views,
};

#[derive(Debug)]
pub(crate) enum Leaf {
    Text(TextLeaf),
    Field(FieldLeaf),
    Strikes(StrikesLeaf),
    Count(CountLeaf),
    Media(MediaLeaf),
    Score(ScoreLeaf),
    Geo(GeoLeaf),
    Domain(DomainLeaf),
    Formula(FormulaLeaf),
}

/// A leaf that a fact has decided.
pub(crate) struct Settled {
    pub(crate) mask: Mask,
    pub(crate) explained: Explained,
    /// Why it is errored.
    pub(crate) reason: Option<String>,
}

/// What leaves look at.
pub(crate) struct Scene<'a> {
    pub(crate) views: Views<'a>,
    pub(crate) user: Option<&'a ItemKey>,
    pub(crate) now: Millis,
    pub(crate) submission: SubmissionId,
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
            Condition::Count(count) => context.at("count", |c| CountLeaf::compile(count, c)).map(Self::Count),
            Condition::Media(media) => context.at("media", |c| MediaLeaf::compile(media, c)).map(Self::Media),
            Condition::Score(score) => Some(Self::Score(ScoreLeaf::new(score))),
            Condition::Geo(geo) => context.at("geo", |c| GeoLeaf::compile(geo, c)).map(Self::Geo),
            Condition::Domain(domain) => {
                context.at("domain", |c| DomainLeaf::compile(domain, c)).map(Self::Domain)
            }
            Condition::Formula(formula) => FormulaLeaf::compile(&formula, context).map(Self::Formula),
            Condition::All(_) | Condition::Any(_) | Condition::Not(_) | Condition::Expr(_) => None,
        }
    }

    /// Bytes that it takes, as far as they depend on its document.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Text(text) => text.memory(),
            Self::Field(field) => field.memory(),
            _ => 0,
        }
    }

    /// Whether a condition of this kind depends on what is not in the item.
    pub(crate) fn looks_up(condition: &Condition) -> bool {
        matches!(
            condition,
            Condition::Strikes(_) | Condition::Count(_) | Condition::Media(_) | Condition::Score(_)
        )
    }

    /// What two conditions must have in common to be one predicate: their words, and how their fields are read.
    pub(crate) fn identity(condition: &Condition, context: &mut Context<'_>) -> Option<String> {
        let resolved = match condition {
            Condition::Text(text) => {
                let paths: Vec<_> = text.fields.iter().map(|field| context.resolved(field)).collect();
                format!("{paths:?}")
            }
            Condition::Field(field) => format!("{:?}", context.resolved(&field.path)),
            Condition::Media(media) => {
                let paths: Vec<_> = media.fields.iter().map(|field| context.resolved(field)).collect();
                format!("{paths:?}")
            }
            Condition::Count(count) => {
                let by = context.window(&count.window).and_then(|window| window.path.clone());
                format!("{:?}", by.map(|by| context.resolved(&by)))
            }
            Condition::Geo(geo) => match &geo.source {
                GeoSource::Hashes(fields) => {
                    let paths: Vec<_> = fields.iter().map(|field| context.resolved(field)).collect();
                    format!("{paths:?}")
                }
                GeoSource::Pair { lat, lng } => {
                    format!("{:?} {:?}", context.resolved(lat), context.resolved(lng))
                }
            },
            Condition::Domain(domain) => {
                let paths: Vec<_> = domain.fields.iter().map(|field| context.resolved(field)).collect();
                format!("{paths:?}")
            }
            Condition::Strikes(_) | Condition::Score(_) => String::new(),
            Condition::Formula(formula) => {
                let paths = formula.body.paths();
                let paths: Vec<_> = paths.into_iter().map(|path| context.resolved(path)).collect();
                format!("{paths:?}")
            }
            Condition::All(_) | Condition::Any(_) | Condition::Not(_) | Condition::Expr(_) => return None,
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
            Self::Count(count) => count.judge(scene, steps),
            Self::Media(media) => media.judge(scene, steps),
            Self::Score(_) => Ok(Mask::OPEN),
            Self::Geo(geo) => geo.judge(scene, steps),
            Self::Domain(domain) => domain.judge(scene, steps),
            Self::Formula(formula) => formula.judge(scene, steps),
        }
    }

    /// What the item's values must be for the condition to pass, or to fail.
    pub(crate) fn constraints(&self, passes: bool) -> Vec<Constraint> {
        match self {
            Self::Text(text) => text.constraints(passes),
            Self::Field(field) => field.constraints(passes),
            Self::Strikes(strikes) => strikes.constraints(passes),
            Self::Count(count) => count.constraints(passes),
            Self::Score(score) => score.constraints(passes),
            Self::Media(_) | Self::Geo(_) | Self::Domain(_) | Self::Formula(_) => Vec::new(),
        }
    }

    /// Whether it can depend on what is not in the item.
    pub(crate) fn asks(&self) -> bool {
        matches!(self, Self::Strikes(_) | Self::Count(_) | Self::Media(_) | Self::Score(_))
    }

    /// What must be looked up to decide a leaf that the item leaves open.
    pub(crate) fn needs(&self, scene: &Scene<'_>) -> Vec<Need> {
        match self {
            Self::Text(_) | Self::Field(_) | Self::Geo(_) | Self::Domain(_) | Self::Formula(_) => Vec::new(),
            Self::Strikes(strikes) => scene.user.map(|user| strikes.need(user)).into_iter().collect(),
            Self::Count(count) => count.needs(scene),
            Self::Media(media) => media.needs(scene),
            Self::Score(score) => vec![score.need(scene)],
        }
    }

    /// What the leaf comes to with the facts in it.
    pub(crate) fn settle(
        &self,
        needs: &[Need],
        facts: &Facts,
        explained: Explained,
        limits: &Limits,
    ) -> Settled {
        match self {
            Self::Strikes(strikes) => strikes.settle(needs, facts),
            Self::Count(count) => count.settle(needs, facts, limits),
            Self::Media(media) => media.settle(needs, facts, explained, limits),
            Self::Score(score) => score.settle(needs, facts),
            Self::Text(_) | Self::Field(_) | Self::Geo(_) | Self::Domain(_) | Self::Formula(_) => {
                Settled { mask: Mask::ERRORED, explained, reason: None }
            }
        }
    }

    /// The leaf as an explanation shows it: `known` is what it came to, `found` its needles that are
    /// known to be there, each behind its own number.
    pub(crate) fn explain(
        &self,
        known: Mask,
        found: Option<&[(u32, u32)]>,
        scene: &Scene<'_>,
        steps: &mut Steps,
    ) -> Explained {
        match self {
            Self::Text(text) => text.explain(known, found, scene, steps),
            Self::Field(field) => field.explain(known, scene, steps),
            Self::Strikes(strikes) => strikes.explain(known, None, None),
            Self::Count(count) => count.explain(known, None, None),
            Self::Media(media) => media.explain(known, scene),
            Self::Score(score) => score.explain(known, None, None),
            Self::Geo(geo) => geo.explain(known, scene, steps),
            Self::Domain(domain) => domain.explain(known, scene, steps),
            Self::Formula(formula) => formula.explain(known, scene),
        }
    }
}
