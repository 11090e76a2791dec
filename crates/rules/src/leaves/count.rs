//! Whether a window has counted so much for the item.
//!
//! It does not count; the caller looks the window up.

use tidegate_schemas::{
    documents::{DocumentKind, Missing},
    ids::WindowId,
};

use crate::{
    compile::Context,
    evaluate::Mask,
    explain::{CountExplained, Explained, excerpt},
    facts::{Facts, Need},
    faults::{did_you_mean, shown},
    form::{Count, Op},
    item::Value,
    leaves::{
        Scene, Settled,
        constraint::{Allowed, Constraint, Subject},
    },
    limits::{Limits, Spent, Steps},
    windows::{Amount, Measure, WindowKey},
};

#[derive(Debug)]
pub(crate) struct CountLeaf {
    window: WindowId,
    at_least: Amount,
    /// Of the path by whose values the window counts; the item's user if there is none.
    by: Option<usize>,
}

impl CountLeaf {
    pub(super) fn compile(count: Count, context: &mut Context<'_>) -> Option<Self> {
        let known = context.window(&count.window);
        let Some((path, kind, measure)) = known.map(|it| (it.path.clone(), it.kind, it.window.measure))
        else {
            if context.faulty_windows.contains(count.window.as_str()) {
                return None;
            }
            let near = did_you_mean(
                count.window.as_str(),
                context.windows.iter().map(|known| known.window.key.as_str()),
            );
            let detail = format!("there is no window {}{near}", shown(count.window.as_str()));
            let missing = Missing::Document(DocumentKind::Window, count.window.to_string());
            context.at("window", |c| c.missing(missing, detail));
            return None;
        };
        context.uses(&count.window);
        let by = match &path {
            None => None,
            Some(path) => Some(context.at("window", |c| {
                let (slot, kinds) = c.path(path)?;
                if let Some((type_id, other)) = kinds.iter().find(|(_, other)| Some(*other) != kind) {
                    let (path, other) = (shown(path), other.name());
                    let counts = kind.map_or("another kind", crate::vocabulary::Kind::name);
                    let detail =
                        format!("the window counts by {path}, {counts}, which is {other} in {type_id}");
                    c.fault("type", detail);
                    return None;
                }
                Some(slot)
            })?),
        };
        // More than two items are three.
        let at_least = if measure == Measure::Sum { count.at_least } else { count.at_least.up() };
        Some(Self { window: count.window, at_least, by })
    }

    pub(super) fn constraints(&self, passes: bool) -> Vec<Constraint> {
        // A condition asks for the largest count of several keys; the same keys decide each of its conditions.
        let subject = Subject::Count(self.window.clone());
        let constraint = Constraint { subject, allowed: Allowed::Order(Op::Gte, self.at_least.0.into()) };
        vec![if passes { constraint } else { constraint.negated() }]
    }

    pub(super) fn judge(&self, scene: &Scene<'_>, steps: &mut Steps) -> Result<Mask, Spent> {
        let some = match self.by {
            None => scene.user.is_some(),
            Some(slot) => {
                let values = scene.views.slot(slot).values.as_deref().unwrap_or_default();
                steps.take(u64::try_from(values.len()).unwrap_or(u64::MAX))?;
                !values.is_empty()
            }
        };
        Ok(if some { Mask::PENDING } else { Mask::INAPPLICABLE })
    }

    pub(super) fn needs(&self, scene: &Scene<'_>) -> Vec<Need> {
        let (keys, _) = values_of(self.by, scene, WindowKey::of);
        let need = |key| Need::Count { window: self.window.clone(), key, at_least: self.at_least };
        keys.into_iter().map(need).collect()
    }

    /// One key with enough is enough; otherwise what is not known might be.
    pub(super) fn settle(&self, needs: &[Need], facts: &Facts, limits: &Limits) -> Settled {
        let mut most: Option<(&WindowKey, Amount)> = None;
        let mut failure = None;
        for need in needs {
            let Need::Count { key, .. } = need else { continue };
            match facts.counted(need) {
                Ok(counted) => {
                    if most.is_none_or(|(_, most)| counted > most) {
                        most = Some((key, counted));
                    }
                    if counted >= self.at_least {
                        most = Some((key, counted));
                        break;
                    }
                }
                Err(reason) => failure = failure.or(Some((key, reason))),
            }
        }
        let shown = |key: &WindowKey| excerpt(key.as_str(), limits.excerpt_bytes).to_owned();
        let passed = most.is_some_and(|(_, counted)| counted >= self.at_least);
        match (failure, most) {
            (Some((key, reason)), _) if !passed => Settled {
                mask: Mask::ERRORED,
                explained: self.explain(Mask::ERRORED, Some((shown(key), None)), Some(reason.to_owned())),
                reason: Some(format!("count: {reason}")),
            },
            (_, most) => {
                let mask = Mask::decided(passed);
                let most = most.map(|(key, counted)| (shown(key), Some(counted)));
                Settled { mask, explained: self.explain(mask, most, None), reason: None }
            }
        }
    }

    pub(super) fn explain(
        &self,
        known: Mask,
        decided: Option<(String, Option<Amount>)>,
        reason: Option<String>,
    ) -> Explained {
        let (key, counted) = decided.unzip();
        Explained::Count(CountExplained {
            outcome: known.verdict(),
            window: self.window.clone(),
            at_least: self.at_least.to_json(),
            key,
            counted: counted.flatten().map(Amount::to_json),
            reason,
        })
    }
}

/// What the values at a path are to a window, each once, and whether there are more than may be; without a path the
/// item's user.
pub(crate) fn values_of<T: PartialEq>(
    slot: Option<usize>,
    scene: &Scene<'_>,
    read: impl Fn(&Value<'_>) -> Option<T>,
) -> (Vec<T>, bool) {
    let Some(slot) = slot else {
        let user =
            scene.user.map(|user| Value::Related { type_id: user.type_id.as_str(), id: user.id.as_str() });
        return (user.and_then(|user| read(&user)).into_iter().collect(), false);
    };
    let mut known = Vec::new();
    for (_, value) in scene.views.slot(slot).values.iter().flatten() {
        let Some(value) = read(value).filter(|value| !known.contains(value)) else { continue };
        if known.len() == scene.limits.window_values {
            return (known, true);
        }
        known.push(value);
    }
    (known, false)
}
