//! The condition `score`: a model's number for the item lies in a range. The caller asks the model.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{
    constraint::{Allowed, Constraint, Subject},
    context::Context,
    input::{EvalInput, Settled},
    kind::{DocumentLeaf, LeafKind},
    op::{Op, holds},
};
use crate::{
    facts::{Facts, Missing, Need},
    item::Number,
    limits::{Limits, OutOfSteps, Steps},
    logic::{ConditionResult, Mask},
    reader::{Reader, present},
};

/// A model's number for the item lies in a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    pub model: String,
    /// The label of one of its numbers; the number for the whole item if left out.
    pub label: Option<String>,
    /// Orders only; all of them must hold.
    pub tests: Vec<(Op, Number)>,
}

const ORDERS: [(&str, Op); 4] = [("lt", Op::Lt), ("lte", Op::Lte), ("gt", Op::Gt), ("gte", Op::Gte)];

#[derive(Debug)]
pub(crate) struct ScoreLeaf(Score);

impl ScoreLeaf {
    pub(crate) fn model(&self) -> &str {
        &self.0.model
    }
}

impl LeafKind for ScoreLeaf {
    type Spec = Score;
    type Explained = ScoreExplained;

    const LOOKS_UP: bool = true;

    fn compile(spec: Score, _context: &mut Context<'_>) -> Option<Self> {
        Some(Self(spec))
    }

    fn paths(_spec: &Score, _context: &Context<'_>) -> Vec<String> {
        Vec::new()
    }

    fn evaluate(&self, _scene: &EvalInput<'_>, _steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        Ok(Mask::OPEN)
    }

    fn needs(&self, input: &EvalInput<'_>) -> Vec<Need> {
        vec![Need::Score { model: self.0.model.clone(), submission: input.submission }]
    }

    fn settle(
        &self,
        needs: &[Need],
        facts: &Facts,
        explained: ScoreExplained,
        _limits: &Limits,
        _steps: &mut Steps,
    ) -> Settled<ScoreExplained> {
        let scores =
            needs.first().map_or(Err(Missing::Failed("not_looked_up")), |need| facts.scores_of(need));
        let score = scores.and_then(|scores| {
            let score = match &self.0.label {
                None => scores.whole,
                Some(label) => scores.labels.get(label).copied(),
            };
            score.ok_or(Missing::Nobody)
        });
        let (mask, score, reason) = match score {
            Ok(score) if score.is_finite() => {
                let number = Number::Fraction(score);
                let passed = self.0.tests.iter().all(|(op, end)| holds(*op, number, *end));
                (Mask::decided(passed), Some(score), None)
            }
            Ok(_) => (Mask::ERRORED, None, Some("not_a_number")),
            Err(Missing::Nobody) => (Mask::INAPPLICABLE, None, None),
            Err(Missing::Failed(reason)) => (Mask::ERRORED, None, Some(reason)),
            // No outcome depends on it; if one did, it must not pass.
            Err(Missing::Skipped) => {
                let explained = ScoreExplained { outcome: ConditionResult::Skipped, ..explained };
                return Settled { mask: Mask::ERRORED, explained, reason: None };
            }
        };
        let explained =
            ScoreExplained { outcome: mask.result(), score, reason: reason.map(str::to_owned), ..explained };
        Settled { mask, explained, reason: reason.map(|reason| format!("score: {reason}")) }
    }

    fn explain(
        &self,
        known: Mask,
        _found: Option<&[(u32, u32)]>,
        _scene: &EvalInput<'_>,
        _steps: &mut Steps,
    ) -> ScoreExplained {
        let compared = self.0.tests.iter().map(|(op, end)| (op.as_str().to_owned(), end.to_json()));
        ScoreExplained {
            outcome: known.result(),
            model: self.0.model.clone(),
            label: self.0.label.clone(),
            compared: compared.collect(),
            score: None,
            reason: None,
        }
    }

    fn lint(&self, passes: bool) -> Vec<Constraint> {
        // Of several tests that do not all hold nobody knows which one fails.
        let told = self.0.tests.iter().filter(|_| passes || self.0.tests.len() == 1);
        told.map(|(op, end)| {
            let subject = Subject::Score { model: self.0.model.clone(), label: self.0.label.clone() };
            let constraint = Constraint { subject, allowed: Allowed::Order(*op, *end) };
            if passes { constraint } else { constraint.negated() }
        })
        .collect()
    }
}

impl DocumentLeaf for ScoreLeaf {
    const KEY: &'static str = "score";

    fn parse(reader: &mut Reader<'_>, value: &Json) -> Option<Score> {
        let object = reader.object(value, &["model", "label", "lt", "lte", "gt", "gte"])?;
        let model = reader.required(object, "model", |r, v| r.text(v).map(str::to_owned));
        let label = reader.optional(object, "label", |r, v| r.text(v).map(str::to_owned));
        let written = ORDERS.iter().filter(|(name, _)| present(object, name)).count();
        let mut tests = Vec::with_capacity(written);
        for (name, op) in ORDERS {
            tests.extend(reader.optional(object, name, Reader::number).map(|number| (op, number)));
        }
        if written == 0 {
            return reader
                .error("shape", "the condition has no operator: expected one or more of lt, lte, gt, gte");
        }
        (tests.len() == written && (label.is_some() || !present(object, "label"))).then_some(())?;
        Some(Score { model: model?, label, tests })
    }
}

/// A condition on a score as it was evaluated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreExplained {
    pub outcome: ConditionResult,
    pub model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub compared: Map<String, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The reason for which the score is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
