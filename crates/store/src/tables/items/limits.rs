//! Counters behind the limits of rules: actions a day, matches an hour, alarms, and cooldowns of users.
//!
//! `tidegate-moderation` compares them with the limits.

use tidegate_schemas::ids::{ItemKey, Millis, OrgId, RuleId, SubmissionId};

use crate::table;

table! {
    /// Number of items of a day on which a rule was allowed to act. It is counted before the plan is stored, so a crash
    /// in between leaves it too high, never too low. Expires after the last possible record of that day.
    Versioned RuleDay in "rule_days" ttl Some(35 days);
    partition { org: OrgId, rule: RuleId, day: i64 }
    cluster {}
    values { taken: i64 }
}

table! {
    /// Number of matches of one version of a rule in an hour, counted up to its alarm.
    Versioned RuleHour in "rule_version_hours" ttl Some(35 days);
    partition { org: OrgId, rule: RuleId, rule_version: String, hour: i64 }
    cluster {}
    values { taken: i64 }
}

table! {
    /// Alarm of one version of a rule that matched more often than its author expected. That version takes no more actions.
    Versioned RuleAlarm in "rule_alarms" ttl None;
    partition { org: OrgId, rule: RuleId, rule_version: String }
    cluster {}
    values { hour: i64, submission_id: SubmissionId, raised_at: Millis }
}

table! {
    /// Last submission of a user on which a rule was allowed to act, and the end of its cooldown. Expires after the
    /// longest cooldown that a rule may have.
    Versioned Cooldown in "cooldowns" ttl Some(91 days);
    partition { org: OrgId, rule: RuleId, user: ItemKey }
    cluster {}
    values { holder: SubmissionId, since: Millis, until: Millis }
}
