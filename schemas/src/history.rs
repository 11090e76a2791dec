//! Events of an organisation's history, in the form of the table `history_events`.
//!
//! `tidegate-moderation` writes them with the effects, `tidegate-history` reads them for exports. A field that is added later
//! needs a default, because stored events lack it.

use serde::{Deserialize, Serialize};

use crate::{
    ids::{
        ActionId, AppealId, DecisionId, EventId, ItemKey, JobId, Millis, PolicyId, QueueId, RuleId,
        SubmissionId,
    },
    records::{JobClass, Verdict},
    string_enum,
};

string_enum! {
    /// Kind of a history event.
    pub enum HistoryKind {
        Report = "report",
        Decision = "decision",
        Appeal = "appeal",
        Action = "action",
        Strike = "strike",
        /// A job was opened. The job's row has its state.
        Job = "job",
    }
}

string_enum! {
    /// Origin of a decision or an action.
    pub enum ActionSource {
        Rule = "rule",
        Moderator = "moderator",
        /// The platform took the action through `/api/v1/actions`.
        Platform = "platform",
        /// A user reached a threshold of strikes.
        Threshold = "threshold",
    }
}

string_enum! {
    /// Change of a user's strikes.
    pub enum StrikeChange {
        Issued = "issued",
        Reversed = "reversed",
    }
}

/// Event that the table stores as JSON under its kind.
pub trait EventOfKind: Serialize {
    const KIND: HistoryKind;

    /// Returns the JSON of the event.
    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("events have string keys only")
    }
}

macro_rules! kinds {
    ($($Event:ident: $Kind:ident),+ $(,)?) => {$(
        impl EventOfKind for $Event {
            const KIND: HistoryKind = HistoryKind::$Kind;
        }
    )+};
}

kinds! {
    ReportEvent: Report,
    DecisionEvent: Decision,
    AppealEvent: Appeal,
    ActionTakenEvent: Action,
    StrikeEvent: Strike,
    JobOpenedEvent: Job,
}

/// A job was opened. The event counts only if its time equals the creation time in the job's row: another time was left by a
/// process that lost the race to open the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOpenedEvent {
    pub class: JobClass,
}

/// A user of the platform reported an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportEvent {
    pub reporter: ItemKey,
    pub reported_at: Millis,
    pub received_at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Job that the report opened or joined.
    pub job_id: JobId,
}

/// A decision was released, and its effects were planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionEvent {
    pub source: ActionSource,
    pub decided_by: String,
    pub decided_at: Millis,
    pub verdict: Verdict,
    /// Absent if the platform took the actions itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<DecidedJob>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub appeal_id: Option<AppealId>,
    pub actions: Vec<ActionId>,
    pub policies: Vec<PolicyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<RelatedAction>,
}

/// Job of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecidedJob {
    pub job_id: JobId,
    pub class: JobClass,
    /// Absent in events of decisions that were made before this table existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Millis>,
    /// Policies of the reports, rules and appeals that led to the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviewed_policies: Vec<PolicyId>,
}

/// Action of a decision on a related item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelatedAction {
    pub item: ItemKey,
    pub action: ActionId,
}

/// A user of the platform appealed against actions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppealEvent {
    pub appeal_id: AppealId,
    pub appealed_by: ItemKey,
    pub appealed_at: Millis,
    pub received_at: Millis,
    pub actions: Vec<ActionId>,
    pub policies: Vec<PolicyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub job_id: JobId,
}

/// An action was taken on an item or a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionTakenEvent {
    pub source: ActionSource,
    pub action: ActionId,
    /// Time of the cause: the append of the item or of the decision.
    pub acted_at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<ItemKey>,
    #[serde(default)]
    pub points: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleVersion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_id: Option<DecisionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<SubmissionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// Version of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleVersion {
    pub rule: RuleId,
    pub version: String,
}

/// Strikes were issued to a user or reversed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StrikeEvent {
    pub change: StrikeChange,
    pub user: ItemKey,
    pub points: i64,
    pub action: ActionId,
    /// Strike that a reversal cancels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reversed: Option<EventId>,
}
