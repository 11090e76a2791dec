//! What a plan must know beyond the item, and what the caller found out.
//!
//! It fetches nothing.

use std::{collections::HashMap, fmt};

use tidegate_schemas::ids::{ItemKey, Millis};

/// A span of time back from an item's append time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Within(i64);

const UNITS: [(&str, i64); 5] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
const LONGEST: i64 = 3_660 * 86_400_000;

impl Within {
    /// `30d`, `24h`, `15m`, `90s`, `2w`: a whole number and one unit, at most ten years.
    pub fn parse(text: &str) -> Option<Self> {
        let (digits, unit) =
            text.split_at(text.len().checked_sub(1).filter(|at| text.is_char_boundary(*at))?);
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let span = digits.parse::<i64>().ok()?.checked_mul(*millis)?;
        (1..=LONGEST).contains(&span).then_some(Self(span))
    }

    pub(crate) const fn of_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub fn millis(self) -> i64 {
        self.0
    }

    /// The first instant inside the span that ends at `now`.
    pub fn since(self, now: Millis) -> Millis {
        Millis(now.0.saturating_sub(self.0))
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fitting = UNITS.iter().find(|(_, millis)| self.0 % millis == 0);
        match fitting {
            Some((name, millis)) => write!(f, "{}{name}", self.0 / millis),
            None => write!(f, "{}ms", self.0),
        }
    }
}

/// One look-up that undecided rules wait for. Equal needs of several items have one answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// The sum of the user's strike points, over `within` or over all that have not expired.
    Strikes { user: ItemKey, within: Option<Within> },
}

/// The answers. A need without one counts as failed.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    strikes: HashMap<Need, Result<i64, String>>,
}

impl Facts {
    pub fn new() -> Self {
        Self::default()
    }

    /// The user's standing is `points`.
    pub fn strikes(&mut self, need: Need, points: i64) {
        self.strikes.insert(need, Ok(points));
    }

    /// The look-up failed. `reason` is stored with the item, so it is a tag and no payload.
    pub fn failed(&mut self, need: Need, reason: impl Into<String>) {
        self.strikes.insert(need, Err(reason.into()));
    }

    pub(crate) fn points(&self, need: &Need) -> Result<i64, &str> {
        match self.strikes.get(need) {
            Some(Ok(points)) => Ok(*points),
            Some(Err(reason)) => Err(reason),
            None => Err("not_looked_up"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_and_a_unit() {
        assert_eq!(Within::parse("30d").map(Within::millis), Some(2_592_000_000));
        assert_eq!(Within::parse("14d").map(|w| w.to_string()).as_deref(), Some("2w"));
        assert_eq!(Within::parse("90s").map(|w| w.to_string()).as_deref(), Some("90s"));
        for bad in ["", "d", "0d", "-1d", "+1d", "1", "1y", "1 d", "5é", "99999999999999999999d", "4000d"] {
            assert_eq!(Within::parse(bad), None, "{bad}");
        }
    }
}
