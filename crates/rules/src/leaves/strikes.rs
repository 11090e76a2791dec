//! Whether the item's user has a number of strike points.
//!
//! It does not sum them; the caller looks the standing up.

use tidegate_schemas::ids::ItemKey;

use crate::{
    evaluate::Mask,
    explain::{Explained, StrikesExplained},
    facts::Need,
    form::Strikes,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct StrikesLeaf(pub(crate) Strikes);

impl StrikesLeaf {
    pub(crate) fn judge(&self, user: Option<&ItemKey>) -> Mask {
        if user.is_some() { Mask::PENDING } else { Mask::INAPPLICABLE }
    }

    pub(crate) fn need(&self, user: &ItemKey) -> Need {
        Need::Strikes { user: user.clone(), within: self.0.within }
    }

    pub(crate) fn settle(&self, points: i64) -> Mask {
        if points >= self.0.at_least { Mask::PASSED } else { Mask::FAILED }
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
