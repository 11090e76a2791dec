//! Settings of a rule that restrict its effects: rollout, limits and result after an error. They are applied in
//! `tidegate-moderation`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Period;

/// Percentage with two decimals, stored in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Percent(u16);

impl Percent {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(10_000);

    /// `None` if the percentage is not between 0 and 100, or has more than two decimals.
    pub fn new(percent: f64) -> Option<Self> {
        let hundredths = (percent * 100.0).round();
        // Decimal fractions have no exact float, so a small difference is tolerated.
        let is_whole = (percent * 100.0 - hundredths).abs() < 1e-6;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and 10,000"
        )]
        ((0.0..=10_000.0).contains(&hundredths) && is_whole).then_some(Self(hundredths as u16))
    }

    pub const fn hundredths(self) -> u16 {
        self.0
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Whole percentages are written without `.0`.
        if self.0.is_multiple_of(100) {
            serializer.serialize_u16(self.0 / 100)
        } else {
            serializer.serialize_f64(f64::from(self.0) / 100.0)
        }
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(f64::deserialize(deserializer)?)
            .ok_or_else(|| de::Error::custom("a percentage is between 0 and 100, with at most two decimals"))
    }
}

/// Share of a live rule's matches with effects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollout {
    pub percent: Percent,
    /// Salt of the draw: rules with the same salt select the same items. The rule's key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
    #[serde(default, skip_serializing_if = "RolloutBy::is_item")]
    pub by: RolloutBy,
}

/// Unit of the draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutBy {
    #[default]
    Item,
    /// User of the item, or the item if it has no user.
    User,
}

impl RolloutBy {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    fn is_item(&self) -> bool {
        *self == Self::Item
    }
}

/// Limits for the effects of a live rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleLimits {
    /// Maximum number of items per day (UTC) with effects of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions_per_day: Option<u32>,
    /// Period in which the rule has effects for only one item of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_user_cooldown: Option<Period>,
    /// Number of matches per hour above which the rule has no effects until its document changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm_per_hour: Option<u32>,
}

/// Result of a rule after an evaluation error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    #[default]
    NotMatched,
    Matched,
    /// The item is sent to review.
    Review,
}

impl OnError {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    pub(super) fn is_not_matched(&self) -> bool {
        *self == Self::NotMatched
    }
}

/// Maximum cooldown. The row that stores the cooldown must not expire before it ends.
const MAX_COOLDOWN: Period = Period::of_seconds(90 * 86_400);

impl RuleLimits {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        if self.actions_per_day == Some(0) {
            let message =
                "The limit must be at least 1. For a rule without effects, set `status: background`.";
            faults.push(("limits.actions_per_day".into(), message.into()));
        }
        if self.alarm_per_hour == Some(0) {
            let message = "The limit must be at least 1: the first match would already exceed it.";
            faults.push(("limits.alarm_per_hour".into(), message.into()));
        }
        let is_valid_cooldown = |it: Period| it.seconds() > 0 && it <= MAX_COOLDOWN;
        if !self.per_user_cooldown.is_none_or(is_valid_cooldown) {
            let message = "The cooldown must be between one second and 90 days.";
            faults.push(("limits.per_user_cooldown".into(), message.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentage_is_between_0_and_100_with_two_decimals() {
        for (percent, hundredths) in [(0.0, 0), (0.01, 1), (2.0, 200), (33.33, 3_333), (100.0, 10_000)] {
            assert_eq!(Percent::new(percent).map(Percent::hundredths), Some(hundredths), "{percent}");
        }
        for wrong in [-0.01, 100.01, 0.001, f64::NAN, f64::INFINITY] {
            assert_eq!(Percent::new(wrong), None, "{wrong}");
        }
    }
}
