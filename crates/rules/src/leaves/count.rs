//! The condition `count`: a window has counted at least a number for the item. The caller looks the count up.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_schemas::{
    documents::{DocumentKind, MissingReference},
    ids::WindowId,
};

use super::{
    constraint::{Allowed, Constraint, Subject},
    context::Context,
    input::{EvalInput, LeafDecision, values_of},
    kind::{DocumentLeaf, LeafKind},
    op::Op,
};
use crate::{
    error::{did_you_mean, excerpt, quote},
    facts::{Facts, Need},
    limits::{Limits, OutOfSteps, Steps},
    logic::{ConditionResult, Mask},
    reader::{Object, Reader, is_present},
    vocabulary::Kind,
    windows::{Amount, Measure, WindowKey},
};

/// Test whether the count of a window for the item reaches a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    pub window: WindowId,
    /// Smallest amount that passes: `gt: 2` is a millionth more than two.
    pub at_least: Amount,
}

#[derive(Debug)]
pub(crate) struct CountLeaf {
    window: WindowId,
    at_least: Amount,
    /// Slot of the path by which the window counts. `None` for the item's user.
    key_slot: Option<usize>,
}

impl LeafKind for CountLeaf {
    type Spec = Count;
    type Explained = CountExplained;

    const LOOKS_UP: bool = true;

    fn paths(spec: &Count, context: &Context<'_>) -> Vec<String> {
        context.window(&spec.window).and_then(|window| window.path.clone()).into_iter().collect()
    }

    fn lint(&self, passes: bool) -> Vec<Constraint> {
        // With several keys the largest count decides. All conditions on a window have the same keys, so their orders limit
        // one number.
        let subject = Subject::Count(self.window.clone());
        let constraint = Constraint { subject, allowed: Allowed::Order(Op::Gte, self.at_least.0.into()) };
        vec![if passes { constraint } else { constraint.negated() }]
    }

    fn compile(count: Count, context: &mut Context<'_>) -> Option<Self> {
        let window = context.window(&count.window);
        let Some((path, kind, measure)) =
            window.map(|window| (window.path.clone(), window.kind, window.measure))
        else {
            if context.is_invalid_window(&count.window) {
                return None;
            }
            let suggestion = did_you_mean(count.window.as_str(), context.window_keys());
            let detail = format!("unknown window {}{suggestion}", quote(count.window.as_str()));
            let reference = MissingReference::Document(DocumentKind::Window, count.window.to_string());
            context.at("window", |c| c.push_missing(reference, detail));
            return None;
        };
        context.mark_used(&count.window);
        let by = match &path {
            None => None,
            Some(path) => Some(context.at("window", |c| {
                let (slot, kinds) = c.resolve_slot(path)?;
                if let Some((type_id, other)) = kinds.iter().find(|(_, other)| Some(*other) != kind) {
                    let (path, other) = (quote(path), other.name());
                    let counts = kind.map_or("another kind", Kind::name);
                    let detail =
                        format!("the window counts by {path}, {counts}, but that is {other} in {type_id}");
                    c.error("type", detail);
                    return None;
                }
                Some(slot)
            })?),
        };
        // Numbers of items are whole, so more than two means at least three.
        let at_least = if measure == Measure::Sum { count.at_least } else { count.at_least.round_up() };
        Some(Self { window: count.window, at_least, key_slot: by })
    }

    fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        let has_key = match self.key_slot {
            None => input.user.is_some(),
            Some(slot) => {
                let values = input.fields.slot(slot).values.as_deref().unwrap_or_default();
                steps.take(u64::try_from(values.len()).unwrap_or(u64::MAX))?;
                !values.is_empty()
            }
        };
        // Without a key the window has no count for the item.
        Ok(if has_key { Mask::PENDING } else { Mask::INAPPLICABLE })
    }

    fn collect_needs(&self, input: &EvalInput<'_>) -> Vec<Need> {
        let (keys, _) = values_of(self.key_slot, input, WindowKey::from_value);
        let need = |key| Need::Count { window: self.window.clone(), key, at_least: self.at_least };
        keys.into_iter().map(need).collect()
    }

    /// One key with a sufficient count suffices. Without one, a missing count makes the condition errored, because it might
    /// suffice.
    fn settle(
        &self,
        needs: &[Need],
        facts: &Facts,
        explained: CountExplained,
        limits: &Limits,
        _steps: &mut Steps,
    ) -> LeafDecision<CountExplained> {
        let mut largest: Option<(&WindowKey, Amount)> = None;
        let mut failure = None;
        for need in needs {
            let Need::Count { key, .. } = need else { continue };
            match facts.window_amount(need) {
                Ok(counted) => {
                    if largest.is_none_or(|(_, amount)| counted > amount) {
                        largest = Some((key, counted));
                    }
                    // The first sufficient key decides, and is the one that is shown.
                    if counted >= self.at_least {
                        largest = Some((key, counted));
                        break;
                    }
                }
                Err(reason) => failure = failure.or(Some((key, reason))),
            }
        }
        let short = |key: &WindowKey| excerpt(key.as_str(), limits.excerpt_bytes).to_owned();
        let passed = largest.is_some_and(|(_, counted)| counted >= self.at_least);
        let (mask, shown_count, reason) = match (failure, largest) {
            (Some((key, reason)), _) if !passed => (Mask::ERRORED, Some((key, None)), Some(reason)),
            (_, largest) => {
                (Mask::from_bool(passed), largest.map(|(key, counted)| (key, Some(counted.to_json()))), None)
            }
        };
        let (key, counted) = shown_count.unzip();
        let explained = CountExplained {
            outcome: mask.result(),
            key: key.map(short),
            counted: counted.flatten(),
            reason: reason.map(str::to_owned),
            ..explained
        };
        LeafDecision { mask, explained, reason: reason.map(|reason| format!("count: {reason}")) }
    }

    fn explain(
        &self,
        mask: Mask,
        _found_needles: Option<&[(u32, u32)]>,
        _input: &EvalInput<'_>,
        _steps: &mut Steps,
    ) -> CountExplained {
        CountExplained {
            outcome: mask.result(),
            window: self.window.clone(),
            at_least: self.at_least.to_json(),
            key: None,
            counted: None,
            reason: None,
        }
    }
}

impl DocumentLeaf for CountLeaf {
    const KEY: &'static str = "count";

    fn parse(reader: &mut Reader<'_>, value: &Json) -> Option<Count> {
        reader.count(value)
    }
}

impl Reader<'_> {
    fn count(&mut self, value: &Json) -> Option<Count> {
        let object = self.object(value, &["window", "gte", "gt"])?;
        let window = self.required(object, "window", |r, v| r.text(v).map(WindowId::new));
        let at_least = self.at_least(object)?;
        Some(Count { window: window?, at_least })
    }

    fn at_least(&mut self, object: &Object) -> Option<Amount> {
        let at_least = match (is_present(object, "gte"), is_present(object, "gt")) {
            (true, false) => self.required(object, "gte", Self::amount),
            (false, true) => self.required(object, "gt", Self::amount).map(Amount::next),
            _ => return self.error("shape", "expected either `gte` or `gt`"),
        }?;
        if at_least <= Amount::ZERO {
            return self.error("type", "every count meets this: expected a larger number");
        }
        Some(at_least)
    }
}

/// Explanation of a condition on a count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountExplained {
    pub outcome: ConditionResult,
    pub window: WindowId,
    pub at_least: Json,
    /// Key of the count that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Amount, or a lower bound: counting stops at the largest number that a rule compares with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Json>,
    /// Reason for which the count is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
