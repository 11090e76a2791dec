//! The condition `strikes`: the item's user has at least a number of strike points. The caller looks the points up.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_schemas::ids::ItemKey;

use super::{
    constraint::{Allowed, Constraint, Subject},
    context::Context,
    input::{EvalInput, LeafDecision},
    kind::{DocumentLeaf, LeafKind},
    op::Op,
};
use crate::{
    facts::{Facts, Lookback, Need},
    limits::{Limits, OutOfSteps, Steps},
    logic::{ConditionResult, Mask},
    reader::{Reader, is_present},
};

/// Test whether the strike points of the item's user reach a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strikes {
    /// Smallest number of points that passes: `gt: 2` is `gte: 3`.
    pub at_least: i64,
    pub within: Option<Lookback>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StrikesLeaf(Strikes);

impl LeafKind for StrikesLeaf {
    type Spec = Strikes;
    type Explained = StrikesExplained;

    const LOOKS_UP: bool = true;

    fn compile(spec: Strikes, _context: &mut Context<'_>) -> Option<Self> {
        Some(Self(spec))
    }

    fn paths(_spec: &Strikes, _context: &Context<'_>) -> Vec<String> {
        Vec::new()
    }

    fn evaluate(&self, input: &EvalInput<'_>, _steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        // An item without a user has no strike points to compare.
        Ok(if input.user.is_some() { Mask::PENDING } else { Mask::INAPPLICABLE })
    }

    fn collect_needs(&self, input: &EvalInput<'_>) -> Vec<Need> {
        let need = |user: &ItemKey| Need::Strikes { user: user.clone(), within: self.0.within };
        input.user.map(need).into_iter().collect()
    }

    fn settle(
        &self,
        needs: &[Need],
        facts: &Facts,
        explained: StrikesExplained,
        _limits: &Limits,
        _steps: &mut Steps,
    ) -> LeafDecision<StrikesExplained> {
        match needs.first().map_or(Err("not_looked_up"), |need| facts.strike_points(need)) {
            Ok(points) => {
                let mask = Mask::from_bool(points >= self.0.at_least);
                let explained =
                    StrikesExplained { outcome: mask.result(), points: Some(points), ..explained };
                LeafDecision { mask, explained, reason: None }
            }
            Err(reason) => LeafDecision {
                mask: Mask::ERRORED,
                explained: StrikesExplained {
                    outcome: ConditionResult::Errored,
                    reason: Some(reason.to_owned()),
                    ..explained
                },
                reason: Some(format!("strikes: {reason}")),
            },
        }
    }

    fn explain(
        &self,
        mask: Mask,
        _found_needles: Option<&[(u32, u32)]>,
        _input: &EvalInput<'_>,
        _steps: &mut Steps,
    ) -> StrikesExplained {
        StrikesExplained {
            outcome: mask.result(),
            at_least: self.0.at_least,
            within: self.0.within.map(|within| within.to_string()),
            points: None,
            reason: None,
        }
    }

    fn lint(&self, passes: bool) -> Vec<Constraint> {
        let subject = Subject::Strikes { within: self.0.within.map(Lookback::millis) };
        let constraint = Constraint { subject, allowed: Allowed::Order(Op::Gte, self.0.at_least.into()) };
        vec![if passes { constraint } else { constraint.negated() }]
    }
}

impl DocumentLeaf for StrikesLeaf {
    const KEY: &'static str = "strikes";

    fn parse(reader: &mut Reader<'_>, value: &Json) -> Option<Strikes> {
        let object = reader.object(value, &["gte", "gt", "within"])?;
        let span = reader.optional(object, "within", |r, v| {
            let text = r.text(v)?;
            Lookback::parse(text)
                .or_else(|| r.error("type", "expected a span from 1s, such as 30d, 24h or 15m"))
        });
        let at_least = match (is_present(object, "gte"), is_present(object, "gt")) {
            (true, false) => reader.required(object, "gte", Reader::whole_number),
            (false, true) => reader.required(object, "gt", Reader::whole_number).map(|n| n.saturating_add(1)),
            _ => return reader.error("shape", "expected either `gte` or `gt`"),
        }?;
        if at_least < 1 {
            return reader.error("type", "every user meets this: expected 1 or more");
        }
        // An invalid span would be left out silently, and the condition would count all points.
        if is_present(object, "within") && span.is_none() {
            return None;
        }
        Some(Strikes { at_least, within: span })
    }
}

/// Explanation of a condition on strike points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrikesExplained {
    pub outcome: ConditionResult,
    pub at_least: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<i64>,
    /// Reason for which the points are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
