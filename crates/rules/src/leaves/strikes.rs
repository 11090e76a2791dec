//! Whether the item's user has a number of strike points.
//!
//! It does not sum them; the caller looks the standing up.

use tidegate_schemas::ids::ItemKey;

use crate::{
    evaluate::Mask,
    explain::{Explained, StrikesExplained},
    facts::{Facts, Need, Within},
    form::{Op, Strikes},
    leaves::{
        Settled,
        constraint::{Allowed, Constraint, Subject},
    },
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct StrikesLeaf(pub(super) Strikes);

impl StrikesLeaf {
    pub(crate) fn judge(&self, user: Option<&ItemKey>) -> Mask {
        if user.is_some() { Mask::PENDING } else { Mask::INAPPLICABLE }
    }

    pub(crate) fn need(&self, user: &ItemKey) -> Need {
        Need::Strikes { user: user.clone(), within: self.0.within }
    }

    pub(super) fn constraints(&self, passes: bool) -> Vec<Constraint> {
        let subject = Subject::Strikes { within: self.0.within.map(Within::millis) };
        let constraint = Constraint { subject, allowed: Allowed::Order(Op::Gte, self.0.at_least.into()) };
        vec![if passes { constraint } else { constraint.negated() }]
    }

    pub(super) fn settle(&self, needs: &[Need], facts: &Facts) -> Settled {
        let points = needs.first().map_or(Err("not_looked_up"), |need| facts.points(need));
        match points {
            Ok(points) => {
                let mask = Mask::decided(points >= self.0.at_least);
                Settled { mask, explained: self.explain(mask, Some(points), None), reason: None }
            }
            Err(reason) => Settled {
                mask: Mask::ERRORED,
                explained: self.explain(Mask::ERRORED, None, Some(reason.to_owned())),
                reason: Some(format!("strikes: {reason}")),
            },
        }
    }

    pub(crate) fn explain(&self, known: Mask, points: Option<i64>, reason: Option<String>) -> Explained {
        Explained::Strikes(StrikesExplained {
            outcome: known.verdict(),
            at_least: self.0.at_least,
            within: self.0.within.map(|within| within.to_string()),
            points,
            reason,
        })
    }
}
