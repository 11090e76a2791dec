//! Whether a model's number for the item lies in a range.
//!
//! It asks no model; the caller does.

use serde_json::Map;

use crate::{
    evaluate::Mask,
    explain::{Explained, ScoreExplained},
    facts::{Facts, Missing, Need},
    form::Score,
    item::Number,
    leaves::{
        Scene, Settled,
        constraint::{Allowed, Constraint, Subject, holds},
    },
};

#[derive(Debug)]
pub(crate) struct ScoreLeaf(Score);

impl ScoreLeaf {
    pub(super) fn new(score: Score) -> Self {
        Self(score)
    }

    pub(super) fn need(&self, scene: &Scene<'_>) -> Need {
        Need::Score { model: self.0.model.clone(), submission: scene.submission }
    }

    pub(crate) fn model(&self) -> &str {
        &self.0.model
    }

    pub(super) fn constraints(&self, passes: bool) -> Vec<Constraint> {
        // Of several tests that do not all hold nobody knows which one fails.
        let told = self.0.tests.iter().filter(|_| passes || self.0.tests.len() == 1);
        told.map(|(op, end)| {
            let subject = Subject::Score { model: self.0.model.clone(), label: self.0.label.clone() };
            let constraint = Constraint { subject, allowed: Allowed::Order(*op, *end) };
            if passes { constraint } else { constraint.negated() }
        })
        .collect()
    }

    pub(super) fn settle(&self, needs: &[Need], facts: &Facts) -> Settled {
        let scores =
            needs.first().map_or(Err(Missing::Failed("not_looked_up")), |need| facts.scores_of(need));
        let score = scores.and_then(|scores| {
            let score = match &self.0.label {
                None => scores.whole,
                Some(label) => scores.labels.get(label).copied(),
            };
            score.ok_or(Missing::Nobody)
        });
        match score {
            Ok(score) if score.is_finite() => {
                let mask = Mask::decided(
                    self.0.tests.iter().all(|(op, end)| holds(*op, Number::Fraction(score), *end)),
                );
                Settled { mask, explained: self.explain(mask, Some(score), None), reason: None }
            }
            Err(Missing::Nobody) => {
                let mask = Mask::INAPPLICABLE;
                Settled { mask, explained: self.explain(mask, None, None), reason: None }
            }
            failed => {
                let reason = if let Err(Missing::Failed(reason)) = failed { reason } else { "not_a_number" };
                Settled {
                    mask: Mask::ERRORED,
                    explained: self.explain(Mask::ERRORED, None, Some(reason.to_owned())),
                    reason: Some(format!("score: {reason}")),
                }
            }
        }
    }

    pub(super) fn explain(&self, known: Mask, score: Option<f64>, reason: Option<String>) -> Explained {
        let compared = self.0.tests.iter().map(|(op, end)| (op.name().to_owned(), end.to_json()));
        Explained::Score(ScoreExplained {
            outcome: known.verdict(),
            model: self.0.model.clone(),
            label: self.0.label.clone(),
            compared: compared.collect::<Map<_, _>>(),
            score,
            reason,
        })
    }
}
