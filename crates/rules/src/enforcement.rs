//! Limits on the effects of a rule's matches: the share of items, the number of actions, and the meaning of a failure.
//! Stateless: the caller keeps the counts.

use tidegate_schemas::{
    documents::Percent,
    ids::{ItemKey, Kind, RuleId, SubmissionId, derive},
};

pub use tidegate_schemas::documents::{OnError, RolloutBy};

use crate::facts::Lookback;

/// Limits of a rule in addition to its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforcement {
    pub rollout: Option<Rollout>,
    pub limits: ActionLimits,
    /// Share of the submissions with an action that moderators also review.
    pub review_sample: Option<Share>,
    pub on_error: OnError,
}

/// Share of its matches on which a live rule acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    pub share: Share,
    pub salt: Option<String>,
    pub by: RolloutBy,
}

/// Maximum number of actions of a live rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActionLimits {
    /// Items per day.
    pub actions_per_day: Option<i64>,
    /// Period in which the rule acts on at most one item of a user.
    pub per_user_cooldown: Option<Lookback>,
    /// Number of matches per hour above which the rule stops acting.
    pub alarm_per_hour: Option<i64>,
}

/// Maximum cooldown. The rows that store cooldowns are kept slightly longer.
pub(crate) const MAX_COOLDOWN: Lookback = Lookback::from_millis(90 * 86_400_000);

/// Share of all subjects, selected by a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(Percent);

const ALL_HUNDREDTHS: u128 = 10_000;

impl Share {
    /// `None` unless the number is between 0 and 100 with at most two decimals.
    pub fn from_percent(percent: f64) -> Option<Self> {
        Percent::new(percent).map(Self)
    }

    /// True if the share contains the subject. With the same salt, a larger share contains every subject of a smaller one.
    fn contains(self, draw: &[&[u8]]) -> bool {
        let hash_id: SubmissionId = derive(Kind::Share, draw);
        // Only the last seven bytes are used, because the earlier ones contain bits that are the same in every id.
        let place = hash_id.as_bytes()[9..].iter().fold(0, |place, byte| (place << 8) | u128::from(*byte));
        (place * ALL_HUNDREDTHS) >> 56 < u128::from(self.0.hundredths())
    }
}

impl Enforcement {
    /// True if the rollout includes the item. Every call returns the same answer.
    pub fn includes(&self, rule: &RuleId, item: &ItemKey, user: Option<&ItemKey>) -> bool {
        self.rollout.as_ref().is_none_or(|rollout| {
            let salt = rollout.salt.as_deref().unwrap_or(rule.as_str());
            let subject = match rollout.by {
                RolloutBy::Item => item,
                // An item without a user is drawn by itself.
                RolloutBy::User => user.unwrap_or(item),
            };
            let parts = ["rollout", salt, subject.type_id.as_str(), subject.id.as_str()];
            rollout.share.contains(&parts.map(str::as_bytes))
        })
    }

    /// True if moderators also review this submission, on which the rule acts.
    pub fn is_sampled(&self, rule: &RuleId, submission: SubmissionId) -> bool {
        self.review_sample.is_some_and(|share| {
            share.contains(&[b"review", rule.as_str().as_bytes(), submission.as_bytes()])
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn rollout(percent: f64, salt: Option<&str>, by: RolloutBy) -> Enforcement {
        let share = Share::from_percent(percent).unwrap();
        Enforcement {
            rollout: Some(Rollout { share, salt: salt.map(str::to_owned), by }),
            ..Enforcement::default()
        }
    }

    fn included(life: &Enforcement, rule: &str) -> Vec<usize> {
        let item = |nth: usize| ItemKey::new("post", nth.to_string());
        (0..10_000).filter(|nth| life.includes(&RuleId::new(rule), &item(*nth), None)).collect()
    }

    #[test]
    fn rollout_share_is_exact_and_larger_contains_smaller() {
        let (few, more) = (rollout(5.0, None, RolloutBy::Item), rollout(20.0, None, RolloutBy::Item));
        let (few, more) = (included(&few, "r"), included(&more, "r"));
        // Drawn once and for all, so these are no chances.
        assert!((400..600).contains(&few.len()) && (1_800..2_200).contains(&more.len()));
        assert!(few.iter().all(|nth| more.contains(nth)));
        assert_eq!(included(&rollout(100.0, None, RolloutBy::Item), "r").len(), 10_000);
        assert!(included(&rollout(0.0, None, RolloutBy::Item), "r").is_empty());
    }

    #[test]
    fn rollouts_are_independent_unless_they_share_a_salt() {
        let own = rollout(20.0, None, RolloutBy::Item);
        assert_ne!(included(&own, "a"), included(&own, "b"));
        let shared = rollout(20.0, Some("s"), RolloutBy::Item);
        assert_eq!(included(&shared, "a"), included(&shared, "b"));
    }

    #[test]
    fn rollout_by_user_includes_all_or_no_items_of_a_user() {
        let life = rollout(50.0, None, RolloutBy::User);
        let rule = RuleId::new("r");
        let mut both = [false; 2];
        for nth in 0..50 {
            let user = ItemKey::new("user", nth.to_string());
            let items: Vec<_> = (0..20)
                .map(|item| life.includes(&rule, &ItemKey::new("post", item.to_string()), Some(&user)))
                .collect();
            assert!(items.iter().all(|one| *one == items[0]));
            both[usize::from(items[0])] = true;
        }
        assert_eq!(both, [true, true]);
    }

    #[test]
    fn sample_is_independent_of_the_rollout() {
        let sampled =
            Enforcement { review_sample: Share::from_percent(10.0), ..rollout(10.0, None, RolloutBy::Item) };
        let rule = RuleId::new("r");
        let drawn: Vec<_> = (0..10_000_u128)
            .map(|nth| sampled.is_sampled(&rule, derive(Kind::Submission, &[&nth.to_be_bytes()])))
            .collect();
        let count = drawn.iter().filter(|one| **one).count();
        assert!((850..1_150).contains(&count), "{count}");
        assert!(!Enforcement::default().is_sampled(&rule, derive(Kind::Submission, &[])));
    }
}
