//! Rows of the datasets, written directly to the tables, with the line that an export has for each.

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_history::Dataset;
use tidegate_schemas::{
    documents::Event,
    history::{
        ActionSource, ActionTakenEvent, AppealEvent, DecidedJob, DecisionEvent, EventOfKind, JobOpenedEvent,
        RelatedAction, ReportEvent, RuleVersion, StrikeChange, StrikeEvent,
    },
    ids::{
        ActionId, AppealId, ConfigVersion, DecisionId, EndpointId, EventId, ItemKey, JobId, Kind, Millis,
        OrgId, PolicyId, QueueId, RuleId, SubmissionId, derive,
    },
    records::{JobClass, Source, Variant, Verdict},
};
use tidegate_store::{
    Fact, Store, WriteTime,
    tables::{
        callbacks::deliveries::{Delivery, DeliveryByDay, DeliveryState},
        catalog::audit::AuditEntry,
        history::{
            child_safety_items::ChildSafetyItem,
            events::{EventHead, HistoryEvent},
        },
        items::{
            history::{ItemOfHour, random_bits_of, shard_of},
            items::{Item, SubmissionState},
        },
        review::jobs::{DecisionState, Job, JobState, SubjectJob},
    },
};
use uuid::Uuid;

/// Writer of rows of an organisation.
pub(crate) struct Rows<'a> {
    pub(crate) store: &'a Store,
    pub(crate) org: &'a OrgId,
}

/// Row to write. Its values are derived from the number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRow<'a> {
    pub(crate) at: Millis,
    pub(crate) number: u32,
    pub(crate) item: &'a str,
    pub(crate) is_child_safety: bool,
}

pub(crate) fn id_of(number: u32) -> Uuid {
    derive(Kind::JobCause, &[b"row", &number.to_be_bytes()])
}

/// Text with characters that JSON escapes.
fn reason_of(number: u32) -> String {
    format!("line \"{number}\"\nwith a tab\t and é")
}

impl Rows<'_> {
    async fn put<R: Fact>(&self, at: Millis, row: R) {
        self.store.put_rows(WriteTime::from_append(at, 0), &[row]).await.unwrap();
    }

    pub(crate) async fn put_event<E: EventOfKind>(&self, row: NewRow<'_>, id: Uuid, event: &E) {
        let item = ItemKey::new("post", row.item);
        let head =
            EventHead { org: self.org, id, at: row.at, item: &item, is_child_safety: row.is_child_safety };
        self.put(row.at, HistoryEvent::new(head, event)).await;
    }

    /// Writes an event with a text that is no JSON.
    pub(crate) async fn put_unreadable_report(&self, row: NewRow<'_>) {
        let item = ItemKey::new("post", row.item);
        let id = id_of(row.number);
        let head = EventHead { org: self.org, id, at: row.at, item: &item, is_child_safety: false };
        let event = HistoryEvent::new(head, &JobOpenedEvent { class: JobClass::Review });
        let kind = tidegate_schemas::history::HistoryKind::Report;
        self.put(row.at, HistoryEvent { kind, event: "{".to_owned(), ..event }).await;
    }

    /// Opens a child-safety job of an item.
    pub(crate) async fn restrict(&self, item: &str, at: Millis) {
        let item = ItemKey::new("post", item);
        let job_id = JobId::random();
        self.put(at, ChildSafetyItem::new(self.org, &item, at)).await;
        let pointer = SubjectJob {
            org: self.org.clone(),
            class: JobClass::ChildSafety,
            type_id: item.type_id.clone(),
            item_id: item.id.clone(),
            generation: 1,
            job_id,
            previous_job_id: None,
            version: 0,
        };
        self.store.insert_new(&pointer).await.unwrap();
    }

    /// Writes a decision of the job with actions on related items.
    pub(crate) async fn put_decision(&self, row: NewRow<'_>, related: Vec<RelatedAction>) {
        let (at, number) = (row.at, row.number);
        let (earlier, job_id) = (Millis(at.0 - 1_500), JobId(id_of(number + 1_000_000)));
        let job = DecidedJob {
            job_id,
            class: JobClass::Review,
            queue: Some(QueueId::new("default")),
            created_at: Some(earlier),
            reviewed_policies: vec![PolicyId::new("spam")],
        };
        let event = DecisionEvent {
            source: ActionSource::Moderator,
            decided_by: "ann".to_owned(),
            decided_at: at,
            verdict: Verdict::Act,
            job: Some(job),
            appeal_id: None,
            actions: vec![ActionId::new("remove")],
            policies: vec![PolicyId::new("scam")],
            reason: Some(reason_of(number)),
            related,
        };
        self.put_event(row, id_of(number), &event).await;
    }

    /// Writes a row of the dataset and returns its line.
    pub(crate) async fn write(&self, dataset: Dataset, row: NewRow<'_>) -> Value {
        let NewRow { at, number, item, is_child_safety } = row;
        let (id, user) = (id_of(number), ItemKey::new("user", format!("u{number}")));
        let (earlier, job_id) = (Millis(at.0 - 1_500), JobId(id_of(number + 1_000_000)));
        let action = ActionId::new("remove");
        let reason = reason_of(number);
        match dataset {
            Dataset::Reports => {
                let event = ReportEvent {
                    reporter: user,
                    reported_at: earlier,
                    received_at: at,
                    policy: (number % 2 == 0).then(|| PolicyId::new("scam")),
                    reason: Some(reason.clone()),
                    job_id,
                };
                self.put_event(row, id, &event).await;
                json!({
                    "reportId": id, "recordedAt": at.iso(), "reportedAt": earlier.iso(), "receivedAt": at.iso(),
                    "itemTypeId": "post", "itemId": item, "reporterTypeId": "user",
                    "reporterId": format!("u{number}"), "policyId": event.policy, "reason": reason,
                    "jobId": job_id, "childSafety": is_child_safety,
                })
            }
            Dataset::Decisions => {
                let related = vec![RelatedAction { item: user, action: ActionId::new("ban") }];
                self.put_decision(row, related).await;
                json!({
                    "decisionId": id, "recordedAt": at.iso(), "decidedAt": at.iso(), "source": "moderator",
                    "decidedBy": "ann", "jobId": job_id, "class": "review", "queue": "default",
                    "jobCreatedAt": earlier.iso(), "itemTypeId": "post", "itemId": item, "verdict": "act",
                    "actions": ["remove"], "policies": ["scam"], "reviewedPolicies": ["spam"], "appealId": null,
                    "reason": reason,
                    "related": [{"itemTypeId": "user", "itemId": format!("u{number}"), "action": "ban"}],
                    "childSafety": is_child_safety,
                })
            }
            Dataset::Appeals => {
                let appeal_id = format!("appeal~{number}");
                let event = AppealEvent {
                    appeal_id: AppealId::new(&appeal_id),
                    appealed_by: user,
                    appealed_at: earlier,
                    received_at: at,
                    actions: vec![action],
                    policies: Vec::new(),
                    reason: None,
                    job_id,
                };
                let id = derive(Kind::JobCause, &[b"appeal", appeal_id.as_bytes()]);
                self.put_event(row, id, &event).await;
                json!({
                    "appealId": appeal_id, "recordedAt": at.iso(), "appealedAt": earlier.iso(),
                    "receivedAt": at.iso(), "itemTypeId": "post", "itemId": item, "appealedByTypeId": "user",
                    "appealedById": format!("u{number}"), "actions": ["remove"], "policies": [], "reason": null,
                    "jobId": job_id, "childSafety": is_child_safety,
                })
            }
            Dataset::Actions => {
                let event = ActionTakenEvent {
                    source: ActionSource::Rule,
                    action,
                    acted_at: earlier,
                    user: Some(user),
                    points: 3,
                    policies: vec![PolicyId::new("scam")],
                    rules: vec![RuleVersion { rule: RuleId::new("r"), version: "1".to_owned() }],
                    decision_id: Some(DecisionId(job_id.0)),
                    submission_id: Some(SubmissionId(job_id.0)),
                    threshold: None,
                    actor: None,
                };
                self.put_event(row, id, &event).await;
                json!({
                    "eventId": id, "recordedAt": at.iso(), "actedAt": earlier.iso(), "source": "rule",
                    "action": "remove", "itemTypeId": "post", "itemId": item, "userTypeId": "user",
                    "userId": format!("u{number}"), "strikePoints": 3, "policies": ["scam"],
                    "rules": [{"rule": "r", "version": "1"}], "decisionId": job_id, "submissionId": job_id,
                    "threshold": null, "actor": null, "childSafety": is_child_safety,
                })
            }
            Dataset::Strikes => {
                let event = StrikeEvent {
                    change: StrikeChange::Reversed,
                    user,
                    points: 2,
                    action,
                    reversed: Some(EventId(job_id.0)),
                };
                self.put_event(row, id, &event).await;
                json!({
                    "strikeId": id, "recordedAt": at.iso(), "kind": "reversed", "userTypeId": "user",
                    "userId": format!("u{number}"), "points": 2, "action": "remove", "itemTypeId": "post",
                    "itemId": item, "reversedStrikeId": job_id, "childSafety": is_child_safety,
                })
            }
            Dataset::Jobs => self.write_job(row).await,
            Dataset::Items | Dataset::Evaluations => self.write_item(dataset, row).await,
            Dataset::Deliveries => self.write_delivery(row).await,
            Dataset::Audit => {
                let entry = AuditEntry {
                    org: self.org.clone(),
                    day: at.day(),
                    at,
                    entry_id: id,
                    actor: "ann".to_owned(),
                    action: "POST /keys".to_owned(),
                    object: "/keys".to_owned(),
                    request_id: "r".to_owned(),
                    status: (number % 2 == 0).then_some(201),
                    detail: Some("{\"id\":1}".to_owned()),
                };
                let status = entry.status;
                self.put(at, entry).await;
                json!({
                    "entryId": id, "at": at.iso(), "actor": "ann", "action": "POST /keys", "object": "/keys",
                    "requestId": "r", "status": status, "detail": "{\"id\":1}",
                })
            }
        }
    }

    async fn write_job(&self, row: NewRow<'_>) -> Value {
        let (at, id) = (row.at, id_of(row.number));
        let class = if row.is_child_safety { JobClass::ChildSafety } else { JobClass::Review };
        let decision =
            json!({"decisionId": id, "verdict": "act", "decidedBy": "ann", "decidedAt": at, "more": 1});
        self.put_event(row, id, &JobOpenedEvent { class }).await;
        let job = Job {
            org: self.org.clone(),
            job_id: JobId(id),
            class,
            queue: QueueId::new("default"),
            state: JobState::Decided,
            item: ItemKey::new("post", row.item),
            generation: 1,
            priority: 4,
            created_at: at,
            appeal_id: None,
            epoch: 1,
            claimed_by: Some("ann".to_owned()),
            lease_until: None,
            decision: Some(decision.to_string()),
            decision_state: Some(DecisionState::Appended),
            queued_at: None,
            signals: None,
            routed_by: None,
            routed_for: None,
            closed_at: Some(at),
            moves: None,
            skips: None,
            version: 0,
        };
        self.store.insert_new(&job).await.unwrap();
        json!({
            "jobId": id, "createdAt": at.iso(), "class": class, "queue": "default", "state": "decided",
            "itemTypeId": "post", "itemId": row.item, "generation": 1, "priority": 4, "appealId": null,
            "claimedBy": "ann", "decisionId": id, "verdict": "act", "decidedBy": "ann", "decidedAt": at.iso(),
            "decisionState": "appended", "closedAt": at.iso(), "routedBy": null,
            "childSafety": row.is_child_safety,
        })
    }

    async fn write_item(&self, dataset: Dataset, row: NewRow<'_>) -> Value {
        let (at, id, number) = (row.at, id_of(row.number), row.number);
        let submission = Item {
            org: self.org.clone(),
            type_id: "post".into(),
            item_id: row.item.into(),
            append_ms: at,
            offset: i64::from(number),
            position: 0,
            submission_id: SubmissionId(id),
            source: Source::Api.into(),
            variant: Variant::Original.into(),
            type_version: None,
            data: Bytes::from(format!("{{\"text\":\"{number}\"}}")),
            state: SubmissionState::Evaluated.into(),
            config_version: ConfigVersion(7),
            request_id: "r".to_owned(),
            received_at: at,
            evaluated_at: Some(at),
            report_id: None,
            matched: r#"[{"rule":"r","version":"1"}]"#.to_owned(),
            errored: "[]".to_owned(),
            actions: r#"[{"id":"remove","eventId":"e"}]"#.to_owned(),
            media: "[]".to_owned(),
            left_out: None,
            followed_by: None,
        };
        let draw = random_bits_of(submission.submission_id);
        let place = ItemOfHour {
            org: self.org.clone(),
            hour: at.hour(),
            shard: shard_of(draw),
            draw,
            submission_id: submission.submission_id,
            type_id: submission.type_id.clone(),
            item_id: submission.item_id.clone(),
            append_ms: at,
            offset: submission.offset,
            position: 0,
        };
        self.put(at, submission).await;
        self.put(at, place).await;
        if dataset == Dataset::Items {
            return json!({
                "submissionId": id, "appendedAt": at.iso(), "receivedAt": at.iso(), "itemTypeId": "post",
                "itemId": row.item, "typeVersion": null, "variant": "original", "source": "api",
                "state": "evaluated", "reportId": null, "configVersion": 7, "requestId": "r",
            });
        }
        json!({
            "submissionId": id, "appendedAt": at.iso(), "evaluatedAt": at.iso(), "itemTypeId": "post",
            "itemId": row.item, "configVersion": 7,
            "matched": [{"rule": "r", "version": "1", "suppressed": null}], "errored": [],
            "actions": [{"action": "remove", "eventId": "e", "suppressed": null}], "media": [], "leftOut": null,
        })
    }

    async fn write_delivery(&self, row: NewRow<'_>) -> Value {
        let (at, id) = (row.at, id_of(row.number));
        let item = ItemKey::new("post", row.item);
        let delivery = Delivery {
            org: self.org.clone(),
            event_id: EventId(id),
            event_type: Event::AutomaticAction.into(),
            endpoint: Some(EndpointId::new("platform")),
            subject: item.clone(),
            state: DeliveryState::Delivered,
            attempts: 2,
            next_at: None,
            body: Bytes::from_static(b"{}"),
            sequence: 5,
            occurred_at: at,
            created_at: at,
            delivered_at: Some(at),
            held_reason: None,
            last_status: Some(204),
            last_error: None,
            shard: 0,
            round: 0,
            tries: 0,
            blocked: 0,
            gone: 0,
            applied: 0,
            listed_at: None,
            written: 0,
        };
        let place = DeliveryByDay {
            org: self.org.clone(),
            day: at.day(),
            at,
            event_id: delivery.event_id,
            subject: item,
        };
        self.put(at, delivery).await;
        self.put(at, place).await;
        json!({
            "eventId": id, "createdAt": at.iso(), "eventType": "action.automatic", "endpoint": "platform",
            "itemTypeId": "post", "itemId": row.item, "state": "delivered", "attempts": 2,
            "occurredAt": at.iso(), "deliveredAt": at.iso(), "nextAt": null, "heldReason": null,
            "lastStatus": 204, "lastError": null, "sequence": 5,
        })
    }
}
