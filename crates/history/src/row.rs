//! Stored rows, and their values in the order of the dataset's columns.

use serde::Deserialize;
use tidegate_schemas::{
    history::{
        ActionTakenEvent, AppealEvent, DecisionEvent, HistoryKind, ReportEvent, RuleVersion, StrikeEvent,
    },
    ids::{AppealId, EndpointId, ItemKey, Millis, PolicyId, QueueId},
    records::JobClass,
};
use tidegate_store::tables::{
    callbacks::deliveries::Delivery,
    catalog::audit::AuditEntry,
    history::events::HistoryEvent,
    items::items::Item,
    review::jobs::{DecisionState, Job},
};

use crate::{Dataset, Error, RowPosition, Value};

/// Row of a dataset, as the store has it.
#[derive(Clone, Debug)]
pub enum StoredRow {
    Event(HistoryEvent),
    Job(Box<Job>),
    Item(Box<Item>),
    Delivery(Box<Delivery>),
    Audit(AuditEntry),
}

impl StoredRow {
    /// Returns the row's place in the order of its dataset.
    pub fn position(&self) -> RowPosition {
        let (at, id) = match self {
            Self::Event(row) => (row.at, row.id),
            Self::Job(row) => (row.created_at, row.job_id.0),
            Self::Item(row) => (row.append_ms, row.submission_id.0),
            Self::Delivery(row) => (row.created_at, row.event_id.0),
            Self::Audit(row) => (row.at, row.entry_id),
        };
        RowPosition { at, id }
    }

    /// Calls `receive` with the values of the row in the order of `dataset.columns()`.
    pub fn read<R>(&self, dataset: Dataset, receive: impl FnOnce(&[Value<'_>]) -> R) -> Result<R, Error> {
        match self {
            Self::Event(row) => read_event(row, receive),
            Self::Job(row) => read_job(row, receive),
            Self::Item(row) if dataset == Dataset::Evaluations => read_evaluation(row, receive),
            Self::Item(row) => Ok(read_item(row, receive)),
            Self::Delivery(row) => Ok(read_delivery(row, receive)),
            Self::Audit(row) => Ok(read_audit(row, receive)),
        }
    }

    /// True if the row is marked as child-safety material.
    pub(crate) fn is_child_safety(&self) -> bool {
        match self {
            Self::Event(row) => row.child_safety,
            Self::Job(row) => row.class == JobClass::ChildSafety,
            Self::Item(_) | Self::Delivery(_) | Self::Audit(_) => false,
        }
    }

    /// Calls `check` with each item of the row.
    pub(crate) fn for_each_item(&self, mut check: impl FnMut(&ItemKey)) {
        match self {
            Self::Event(row) => {
                check(&row.item);
                if row.kind == HistoryKind::Decision
                    && let Ok(event) = serde_json::from_str::<RelatedItems>(&row.event)
                {
                    event.related.iter().for_each(|related| check(&related.item));
                }
            }
            Self::Job(row) => check(&row.item),
            Self::Item(row) => check(&ItemKey { type_id: row.type_id.clone(), id: row.item_id.clone() }),
            Self::Delivery(row) => check(&row.subject),
            Self::Audit(_) => {}
        }
    }
}

/// Items of a decision besides its own.
#[derive(Deserialize)]
struct RelatedItems {
    #[serde(default)]
    related: Vec<RelatedItem>,
}

#[derive(Deserialize)]
struct RelatedItem {
    item: ItemKey,
}

fn read_event<R>(row: &HistoryEvent, receive: impl FnOnce(&[Value<'_>]) -> R) -> Result<R, Error> {
    let id = row.id.to_string();
    let id = Value::text(id.as_str());
    let at = Value::Time(row.at);
    let child_safety = Value::Boolean(row.child_safety);
    let [type_id, item_id] = item_values(&row.item);
    match row.kind {
        HistoryKind::Report => {
            let event: ReportEvent = decode(row, &row.event)?;
            let [reporter_type, reporter_id] = item_values(&event.reporter);
            Ok(receive(&[
                id,
                at,
                Value::Time(event.reported_at),
                Value::Time(event.received_at),
                type_id,
                item_id,
                reporter_type,
                reporter_id,
                Value::optional_text(event.policy.as_ref().map(PolicyId::as_str)),
                Value::optional_text(event.reason.as_deref()),
                Value::text(event.job_id.to_string()),
                child_safety,
            ]))
        }
        HistoryKind::Decision => {
            let event: DecisionEvent = decode(row, &row.event)?;
            Ok(receive(&decision_values(&event, [id, at, type_id, item_id, child_safety])))
        }
        HistoryKind::Appeal => {
            let event: AppealEvent = decode(row, &row.event)?;
            let [user_type, user_id] = item_values(&event.appealed_by);
            Ok(receive(&[
                Value::text(event.appeal_id.as_str()),
                at,
                Value::Time(event.appealed_at),
                Value::Time(event.received_at),
                type_id,
                item_id,
                user_type,
                user_id,
                Value::Texts(event.actions.iter().map(|action| action.as_str().into()).collect()),
                Value::Texts(event.policies.iter().map(|policy| policy.as_str().into()).collect()),
                Value::optional_text(event.reason.as_deref()),
                Value::text(event.job_id.to_string()),
                child_safety,
            ]))
        }
        HistoryKind::Action => {
            let event: ActionTakenEvent = decode(row, &row.event)?;
            Ok(receive(&action_values(&event, [id, at, type_id, item_id, child_safety])))
        }
        HistoryKind::Strike => {
            let event: StrikeEvent = decode(row, &row.event)?;
            let [user_type, user_id] = item_values(&event.user);
            Ok(receive(&[
                id,
                at,
                Value::text(event.change.as_str()),
                user_type,
                user_id,
                Value::Integer(event.points),
                Value::text(event.action.as_str()),
                type_id,
                item_id,
                Value::optional_text(event.reversed.map(|strike| strike.to_string())),
                child_safety,
            ]))
        }
        // The reader replaces events of jobs by the rows of the jobs.
        HistoryKind::Job => Err(corrupt(row, "the event of a job has no columns")),
    }
}

fn decision_values<'e>(
    event: &'e DecisionEvent,
    [id, at, type_id, item_id, child_safety]: [Value<'e>; 5],
) -> [Value<'e>; 19] {
    let job = event.job.as_ref();
    let related = event.related.iter().map(|related| {
        let [type_id, item_id] = item_values(&related.item);
        vec![type_id, item_id, Value::text(related.action.as_str())]
    });
    let reviewed = job.map_or(&[][..], |job| &job.reviewed_policies);
    [
        id,
        at,
        Value::Time(event.decided_at),
        Value::text(event.source.as_str()),
        Value::text(event.decided_by.as_str()),
        Value::optional_text(job.map(|job| job.job_id.to_string())),
        Value::optional_text(job.map(|job| job.class.as_str())),
        Value::optional_text(job.and_then(|job| job.queue.as_ref()).map(QueueId::as_str)),
        Value::optional_time(job.and_then(|job| job.created_at)),
        type_id,
        item_id,
        Value::text(event.verdict.as_str()),
        Value::Texts(event.actions.iter().map(|action| action.as_str().into()).collect()),
        Value::Texts(event.policies.iter().map(|policy| policy.as_str().into()).collect()),
        Value::Texts(reviewed.iter().map(|policy| policy.as_str().into()).collect()),
        Value::optional_text(event.appeal_id.as_ref().map(AppealId::as_str)),
        Value::optional_text(event.reason.as_deref()),
        Value::Structs(related.collect()),
        child_safety,
    ]
}

fn action_values<'e>(
    event: &'e ActionTakenEvent,
    [id, at, type_id, item_id, child_safety]: [Value<'e>; 5],
) -> [Value<'e>; 17] {
    let [user_type, user_id] = event.user.as_ref().map_or([Value::Null, Value::Null], item_values);
    let rules = event
        .rules
        .iter()
        .map(|RuleVersion { rule, version }| vec![Value::text(rule.as_str()), Value::text(version.as_str())]);
    [
        id,
        at,
        Value::Time(event.acted_at),
        Value::text(event.source.as_str()),
        Value::text(event.action.as_str()),
        type_id,
        item_id,
        user_type,
        user_id,
        Value::Integer(event.points),
        Value::Texts(event.policies.iter().map(|policy| policy.as_str().into()).collect()),
        Value::Structs(rules.collect()),
        Value::optional_text(event.decision_id.map(|id| id.to_string())),
        Value::optional_text(event.submission_id.map(|id| id.to_string())),
        Value::optional_text(event.threshold.as_deref()),
        Value::optional_text(event.actor.as_deref()),
        child_safety,
    ]
}

/// Members of a job's decision that have columns.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobDecision {
    decision_id: String,
    verdict: String,
    decided_by: String,
    decided_at: Millis,
}

fn read_job<R>(row: &Job, receive: impl FnOnce(&[Value<'_>]) -> R) -> Result<R, Error> {
    let decision: Option<JobDecision> = match row.decision.as_deref() {
        Some(text) => Some(serde_json::from_str(text).map_err(|error| Error::Corrupt {
            dataset: "jobs",
            id: row.job_id.to_string(),
            reason: error.to_string(),
        })?),
        None => None,
    };
    let decision = decision.as_ref();
    let [type_id, item_id] = item_values(&row.item);
    Ok(receive(&[
        Value::text(row.job_id.to_string()),
        Value::Time(row.created_at),
        Value::text(row.class.as_str()),
        Value::text(row.queue.as_str()),
        Value::text(row.state.as_str()),
        type_id,
        item_id,
        Value::Integer(row.generation),
        Value::Integer(row.priority),
        Value::optional_text(row.appeal_id.as_ref().map(AppealId::as_str)),
        Value::optional_text(row.claimed_by.as_deref()),
        Value::optional_text(decision.map(|decision| decision.decision_id.as_str())),
        Value::optional_text(decision.map(|decision| decision.verdict.as_str())),
        Value::optional_text(decision.map(|decision| decision.decided_by.as_str())),
        Value::optional_time(decision.map(|decision| decision.decided_at)),
        Value::optional_text(row.decision_state.map(DecisionState::as_str)),
        Value::optional_time(row.closed_at),
        Value::optional_text(row.routed_by.as_deref()),
        Value::Boolean(row.class == JobClass::ChildSafety),
    ]))
}

fn read_item<R>(row: &Item, receive: impl FnOnce(&[Value<'_>]) -> R) -> R {
    receive(&[
        Value::text(row.submission_id.to_string()),
        Value::Time(row.append_ms),
        Value::Time(row.received_at),
        Value::text(row.type_id.as_str()),
        Value::text(row.item_id.as_str()),
        Value::optional_text(row.type_version.as_deref()),
        Value::text(row.variant.to_string()),
        Value::text(row.source.to_string()),
        Value::text(row.state.to_string()),
        Value::optional_text(row.report_id.map(|report| report.to_string())),
        Value::Integer(row.config_version.0),
        Value::text(row.request_id.as_str()),
        Value::Text(String::from_utf8_lossy(&row.data)),
    ])
}

/// Match in the stored list.
#[derive(Deserialize)]
struct MatchedRule {
    rule: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    suppressed: Option<String>,
}

#[derive(Deserialize)]
struct ErroredRule {
    rule: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedAction {
    id: String,
    #[serde(default)]
    event_id: Option<String>,
    #[serde(default)]
    suppressed: Option<String>,
}

#[derive(Deserialize)]
struct ListedMedia {
    state: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    matches: Vec<serde::de::IgnoredAny>,
}

fn read_evaluation<R>(row: &Item, receive: impl FnOnce(&[Value<'_>]) -> R) -> Result<R, Error> {
    let corrupt = |error: serde_json::Error| Error::Corrupt {
        dataset: "evaluations",
        id: row.submission_id.to_string(),
        reason: error.to_string(),
    };
    let matched_rules: Vec<MatchedRule> = serde_json::from_str(&row.matched).map_err(corrupt)?;
    let errored: Vec<ErroredRule> = serde_json::from_str(&row.errored).map_err(corrupt)?;
    let actions: Vec<ListedAction> = serde_json::from_str(&row.actions).map_err(corrupt)?;
    let media: Vec<ListedMedia> = serde_json::from_str(&row.media).map_err(corrupt)?;
    let matched_values = matched_rules.iter().map(|entry| {
        vec![
            Value::text(entry.rule.as_str()),
            Value::text(entry.version.as_str()),
            Value::optional_text(entry.suppressed.as_deref()),
        ]
    });
    let errored = errored.iter().map(|entry| {
        vec![
            Value::text(entry.rule.as_str()),
            Value::text(entry.version.as_str()),
            Value::text(entry.reason.as_str()),
        ]
    });
    let actions = actions.iter().map(|entry| {
        vec![
            Value::text(entry.id.as_str()),
            Value::optional_text(entry.event_id.as_deref()),
            Value::optional_text(entry.suppressed.as_deref()),
        ]
    });
    let media = media.iter().map(|entry| {
        vec![
            Value::text(entry.state.as_str()),
            Value::optional_text(entry.reason.as_deref()),
            Value::Integer(i64::try_from(entry.matches.len()).unwrap_or(i64::MAX)),
        ]
    });
    Ok(receive(&[
        Value::text(row.submission_id.to_string()),
        Value::Time(row.append_ms),
        Value::optional_time(row.evaluated_at),
        Value::text(row.type_id.as_str()),
        Value::text(row.item_id.as_str()),
        Value::Integer(row.config_version.0),
        Value::Structs(matched_values.collect()),
        Value::Structs(errored.collect()),
        Value::Structs(actions.collect()),
        Value::Structs(media.collect()),
        Value::optional_text(row.left_out.as_deref()),
    ]))
}

fn read_delivery<R>(row: &Delivery, receive: impl FnOnce(&[Value<'_>]) -> R) -> R {
    let [type_id, item_id] = item_values(&row.subject);
    receive(&[
        Value::text(row.event_id.to_string()),
        Value::Time(row.created_at),
        Value::text(row.event_type.to_string()),
        Value::optional_text(row.endpoint.as_ref().map(EndpointId::as_str)),
        type_id,
        item_id,
        Value::text(row.state.as_str()),
        Value::Integer(row.attempts),
        Value::Time(row.occurred_at),
        Value::optional_time(row.delivered_at),
        Value::optional_time(row.next_at),
        Value::optional_text(row.held_reason.as_deref()),
        row.last_status.map_or(Value::Null, Value::Integer),
        Value::optional_text(row.last_error.as_deref()),
        Value::Integer(row.sequence),
    ])
}

fn read_audit<R>(row: &AuditEntry, receive: impl FnOnce(&[Value<'_>]) -> R) -> R {
    receive(&[
        Value::text(row.entry_id.to_string()),
        Value::Time(row.at),
        Value::text(row.actor.as_str()),
        Value::text(row.action.as_str()),
        Value::text(row.object.as_str()),
        Value::text(row.request_id.as_str()),
        row.status.map_or(Value::Null, Value::Integer),
        Value::optional_text(row.detail.as_deref()),
    ])
}

fn item_values(item: &ItemKey) -> [Value<'_>; 2] {
    [Value::text(item.type_id.as_str()), Value::text(item.id.as_str())]
}

fn decode<'e, E: Deserialize<'e>>(row: &HistoryEvent, text: &'e str) -> Result<E, Error> {
    serde_json::from_str(text).map_err(|error| corrupt(row, &error.to_string()))
}

fn corrupt(row: &HistoryEvent, reason: &str) -> Error {
    Error::Corrupt { dataset: row.kind.as_str(), id: row.id.to_string(), reason: reason.to_owned() }
}
