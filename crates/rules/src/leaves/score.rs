//! The condition `score`: a model's number for the item lies in a range. The caller asks the model.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{
    constraint::{Allowed, Constraint, Subject},
    context::Context,
    input::{EvalInput, LeafDecision},
    kind::{DocumentLeaf, LeafKind},
    op::{Op, order_holds},
};
use crate::{
    facts::{Facts, Need, NoAnswer},
    item::Number,
    limits::{Limits, OutOfSteps, Steps},
    logic::{ConditionResult, Mask},
    reader::{Reader, is_present},
};

/// Test whether a model's number for the item lies in a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    pub model: String,
    /// Label of one of the model's numbers. `None` for the number of the whole item.
    pub label: Option<String>,
    /// Orders; all must hold.
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

    fn evaluate(&self, _input: &EvalInput<'_>, _steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        Ok(Mask::OPEN)
    }

    fn collect_needs(&self, input: &EvalInput<'_>) -> Vec<Need> {
        vec![Need::Score { model: self.0.model.clone(), submission: input.submission }]
    }

    fn settle(
        &self,
        needs: &[Need],
        facts: &Facts,
        explained: ScoreExplained,
        _limits: &Limits,
        _steps: &mut Steps,
    ) -> LeafDecision<ScoreExplained> {
        let scores =
            needs.first().map_or(Err(NoAnswer::Failed("not_looked_up")), |need| facts.scores_of(need));
        let score = scores.and_then(|scores| {
            let score = match &self.0.label {
                None => scores.overall,
                Some(label) => scores.labels.get(label).copied(),
            };
            score.ok_or(NoAnswer::Unknown)
        });
        let (mask, score, reason) = match score {
            Ok(score) if score.is_finite() => {
                let number = Number::Fraction(score);
                let passed = self.0.tests.iter().all(|(op, end)| order_holds(*op, number, *end));
                (Mask::from_bool(passed), Some(score), None)
            }
            // A model that returns no finite number has failed.
            Ok(_) => (Mask::ERRORED, None, Some("not_a_number")),
            Err(NoAnswer::Unknown) => (Mask::INAPPLICABLE, None, None),
            Err(NoAnswer::Failed(reason)) => (Mask::ERRORED, None, Some(reason)),
            // No outcome depends on a skipped score, and the rule must not pass by it.
            Err(NoAnswer::Skipped) => {
                let explained = ScoreExplained { outcome: ConditionResult::Skipped, ..explained };
                return LeafDecision { mask: Mask::ERRORED, explained, reason: None };
            }
        };
        let explained =
            ScoreExplained { outcome: mask.result(), score, reason: reason.map(str::to_owned), ..explained };
        LeafDecision { mask, explained, reason: reason.map(|reason| format!("score: {reason}")) }
    }

    fn explain(
        &self,
        mask: Mask,
        _found_needles: Option<&[(u32, u32)]>,
        _input: &EvalInput<'_>,
        _steps: &mut Steps,
    ) -> ScoreExplained {
        let compared = self.0.tests.iter().map(|(op, end)| (op.as_str().to_owned(), end.to_json()));
        ScoreExplained {
            outcome: mask.result(),
            model: self.0.model.clone(),
            label: self.0.label.clone(),
            compared: compared.collect(),
            score: None,
            reason: None,
        }
    }

    fn lint(&self, passes: bool) -> Vec<Constraint> {
        // If one of several tests fails, it is unknown which one, so only a single test constrains a failed condition.
        let constraining_tests = self.0.tests.iter().filter(|_| passes || self.0.tests.len() == 1);
        constraining_tests
            .map(|(op, end)| {
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
        let test_count = ORDERS.iter().filter(|(name, _)| is_present(object, name)).count();
        let mut tests = Vec::with_capacity(test_count);
        for (name, op) in ORDERS {
            tests.extend(reader.optional(object, name, Reader::number).map(|number| (op, number)));
        }
        if test_count == 0 {
            return reader
                .error("shape", "the condition has no operator: expected one or more of lt, lte, gt, gte");
        }
        (tests.len() == test_count && (label.is_some() || !is_present(object, "label"))).then_some(())?;
        Some(Score { model: model?, label, tests })
    }
}

/// Explanation of a condition on a score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreExplained {
    pub outcome: ConditionResult,
    pub model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub compared: Map<String, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Reason for which the score is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
