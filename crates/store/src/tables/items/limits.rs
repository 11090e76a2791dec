//! Counts of rules that acted: on a day, and lately on a user.
//!
//! It does not know any rule's limits; `tidegate-moderation` does.

use tidegate_schemas::ids::{ItemKey, Millis, OrgId, RuleId, SubmissionId};

use crate::table;

table! {
    /// Number of items of a day on which a rule was allowed to act. A processor that dies between this and its plan
    /// leaves one too many here, so the number is never too low. Expires when no record of that day can come any more.
    Versioned RuleDay in "rule_days" ttl Some(35 days);
    partition { org: OrgId, rule: RuleId, day: i64 }
    cluster {}
    values { taken: i64 }
}

table! {
    /// Matches of an hour of one version of a rule, up to its alarm.
    Versioned RuleHour in "rule_version_hours" ttl Some(35 days);
    partition { org: OrgId, rule: RuleId, rule_version: String, hour: i64 }
    cluster {}
    values { taken: i64 }
}

table! {
    /// A rule, as one version of its document has it, that matched more often than its author expected: it acts no more.
    Versioned RuleAlarm in "rule_alarms" ttl None;
    partition { org: OrgId, rule: RuleId, rule_version: String }
    cluster {}
    values { hour: i64, submission_id: SubmissionId, raised_at: Millis }
}

table! {
    /// The last submission of a user that a rule was allowed to act on, and until when no other is. Expires after the
    /// longest cooldown that a rule may have.
    Versioned Cooldown in "cooldowns" ttl Some(91 days);
    partition { org: OrgId, rule: RuleId, user: ItemKey }
    cluster {}
    values { holder: SubmissionId, since: Millis, until: Millis }
}
