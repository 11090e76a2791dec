//! Results of rule versions: daily counts, verdicts of moderators, and baselines measured before a version went live.
//!
//! `tidegate-moderation` and the processors write them.

use tidegate_schemas::{
    ids::{DecisionId, ItemKey, Millis, OrgId, RuleId},
    string_enum,
};
use uuid::Uuid;

use crate::{string_column, table};

string_enum! {
    /// Finding of moderators about a match of a rule.
    pub enum Finding {
        /// They acted, or upheld an action.
        Confirmed = "confirmed",
        /// They found no violation.
        Rejected = "rejected",
        /// They accepted an appeal against the action.
        Overturned = "overturned",
    }
}

string_column!(Finding);

table! {
    /// Daily counts of a rule version's results, as counted by one process. The process rewrites its row; another
    /// process, or the same one after a restart, has a row of its own.
    Fact RuleCount in "rule_counts" ttl Some(400 days), window 15 days;
    partition { org: OrgId, day: i64 }
    cluster { rule: RuleId [Asc], rule_version: String [Asc], writer: Uuid [Asc] }
    values {
        hits: i64,
        acted: i64,
        background: i64,
        rollout: i64,
        limited: i64,
        cooldown: i64,
        alarm: i64,
        errored: i64,
    }
}

table! {
    /// Moderators' judgement of a rule's match on an item; the last decision counts. `day` is that of the match.
    Fact RuleVerdict in "rule_verdicts" ttl Some(400 days), window 15 days;
    partition { org: OrgId, day: i64 }
    cluster { rule: RuleId [Asc], rule_version: String [Asc], item: ItemKey [Asc] }
    values { verdict: Finding, decision_id: DecisionId, decided_at: Millis }
}

table! {
    /// Matches of a rule version in a test run over stored items.
    Fact RuleBaseline in "rule_baselines" ttl None;
    partition { org: OrgId, rule: RuleId }
    cluster { rule_version: String [Asc] }
    values {
        busiest_hour: i64,
        hits: i64,
        items: i64,
        since: Millis,
        until: Millis,
        recorded_at: Millis,
        recorded_by: String,
    }
}
