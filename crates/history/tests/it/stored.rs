//! Writes a row of each dataset directly to the tables.

use bytes::Bytes;
use tidegate_history::{Dataset, RowPosition};
use tidegate_schemas::{
    documents::Event,
    history::{
        ActionSource, ActionTakenEvent, AppealEvent, DecisionEvent, JobOpenedEvent, ReportEvent,
        StrikeChange, StrikeEvent,
    },
    ids::{
        ActionId, AppealId, ConfigVersion, ItemKey, JobId, Kind, Millis, OrgId, QueueId, SubmissionId, derive,
    },
    records::{JobClass, Source, Variant, Verdict},
};
use tidegate_store::{
    Store, WriteTime,
    tables::{
        callbacks::deliveries::{Delivery, DeliveryByDay, DeliveryState},
        catalog::audit::AuditEntry,
        history::events::{EventHead, HistoryEvent},
        items::{
            history::{ItemOfHour, random_bits_of, shard_of},
            items::{Item, SubmissionState},
        },
        review::jobs::{Job, JobState},
    },
};
use uuid::Uuid;

/// Writes the row of a dataset. Returns its position.
pub(crate) async fn write_row(
    store: &Store,
    org: &OrgId,
    dataset: Dataset,
    position: RowPosition,
) -> RowPosition {
    let RowPosition { at, id } = position;
    let item = ItemKey::new("post", "p");
    let head = |id| EventHead { org, id, at, item: &item, is_child_safety: false };
    match dataset {
        Dataset::Reports => {
            let event = ReportEvent {
                reporter: ItemKey::new("user", "u"),
                reported_at: at,
                received_at: at,
                policy: None,
                reason: None,
                job_id: JobId(id),
            };
            put(store, at, HistoryEvent::new(head(id), &event)).await;
        }
        Dataset::Decisions => {
            let event = DecisionEvent {
                source: ActionSource::Moderator,
                decided_by: "ann".to_owned(),
                decided_at: at,
                verdict: Verdict::Act,
                job: None,
                appeal_id: None,
                actions: vec![ActionId::new("remove")],
                policies: Vec::new(),
                reason: None,
                related: Vec::new(),
            };
            put(store, at, HistoryEvent::new(head(id), &event)).await;
        }
        Dataset::Appeals => {
            let appeal_id = AppealId::new(id.to_string());
            let event = AppealEvent {
                appealed_by: ItemKey::new("user", "u"),
                appealed_at: at,
                received_at: at,
                actions: Vec::new(),
                policies: Vec::new(),
                reason: None,
                job_id: JobId(id),
                appeal_id,
            };
            let id = appeal_row_id(id);
            put(store, at, HistoryEvent::new(head(id), &event)).await;
            return RowPosition { at, id };
        }
        Dataset::Actions => {
            let event = ActionTakenEvent {
                source: ActionSource::Platform,
                action: ActionId::new("remove"),
                acted_at: at,
                user: None,
                points: 0,
                policies: Vec::new(),
                rules: Vec::new(),
                decision_id: None,
                submission_id: None,
                threshold: None,
                actor: None,
            };
            put(store, at, HistoryEvent::new(head(id), &event)).await;
        }
        Dataset::Strikes => {
            let event = StrikeEvent {
                change: StrikeChange::Issued,
                user: ItemKey::new("user", "u"),
                points: 1,
                action: ActionId::new("remove"),
                reversed: None,
            };
            put(store, at, HistoryEvent::new(head(id), &event)).await;
        }
        Dataset::Jobs => {
            put(store, at, HistoryEvent::new(head(id), &JobOpenedEvent { class: JobClass::Review })).await;
            store.insert_new(&job(org, &item, position)).await.unwrap();
        }
        Dataset::Items | Dataset::Evaluations => {
            let row = submission(org, position);
            let draw = random_bits_of(row.submission_id);
            let place = ItemOfHour {
                org: org.clone(),
                hour: at.hour(),
                shard: shard_of(draw),
                draw,
                submission_id: row.submission_id,
                type_id: row.type_id.clone(),
                item_id: row.item_id.clone(),
                append_ms: at,
                offset: row.offset,
                position: row.position,
            };
            put(store, at, row).await;
            put(store, at, place).await;
        }
        Dataset::Deliveries => {
            let row = delivery(org, &item, position);
            let place =
                DeliveryByDay { org: org.clone(), day: at.day(), at, event_id: row.event_id, subject: item };
            put(store, at, row).await;
            put(store, at, place).await;
        }
        Dataset::Audit => {
            let entry = AuditEntry {
                org: org.clone(),
                day: at.day(),
                at,
                entry_id: id,
                actor: "ann".to_owned(),
                action: "POST /keys".to_owned(),
                object: "/keys".to_owned(),
                request_id: String::new(),
                status: Some(201),
                detail: None,
            };
            put(store, at, entry).await;
        }
    }
    position
}

/// Returns the id by which the row of an appeal is ordered.
fn appeal_row_id(id: Uuid) -> Uuid {
    derive(Kind::JobCause, &[b"appeal", id.to_string().as_bytes()])
}

async fn put<R: tidegate_store::Fact>(store: &Store, at: Millis, row: R) {
    store.put_rows(WriteTime::from_append(at, 0), &[row]).await.unwrap();
}

fn job(org: &OrgId, item: &ItemKey, position: RowPosition) -> Job {
    Job {
        org: org.clone(),
        job_id: JobId(position.id),
        class: JobClass::Review,
        queue: QueueId::new("default"),
        state: JobState::Open,
        item: item.clone(),
        generation: 1,
        priority: 1,
        created_at: position.at,
        appeal_id: None,
        epoch: 0,
        claimed_by: None,
        lease_until: None,
        decision: None,
        decision_state: None,
        queued_at: None,
        signals: None,
        routed_by: None,
        routed_for: None,
        closed_at: None,
        moves: None,
        skips: None,
        version: 0,
    }
}

fn submission(org: &OrgId, position: RowPosition) -> Item {
    Item {
        org: org.clone(),
        type_id: "post".into(),
        // Each submission has an item of its own, so that no two rows share their coordinates.
        item_id: position.id.to_string().as_str().into(),
        append_ms: position.at,
        offset: 0,
        position: 0,
        submission_id: SubmissionId(position.id),
        source: Source::Api.into(),
        variant: Variant::Original.into(),
        type_version: None,
        data: Bytes::from_static(b"{}"),
        state: SubmissionState::Evaluated.into(),
        config_version: ConfigVersion(1),
        request_id: String::new(),
        received_at: position.at,
        evaluated_at: None,
        report_id: None,
        matched: "[]".to_owned(),
        errored: "[]".to_owned(),
        actions: "[]".to_owned(),
        media: "[]".to_owned(),
        left_out: None,
        followed_by: None,
    }
}

fn delivery(org: &OrgId, item: &ItemKey, position: RowPosition) -> Delivery {
    Delivery {
        org: org.clone(),
        event_id: position.id.into(),
        event_type: Event::AutomaticAction.into(),
        endpoint: None,
        subject: item.clone(),
        state: DeliveryState::Held,
        attempts: 0,
        next_at: None,
        body: Bytes::from_static(b"{}"),
        sequence: 1,
        occurred_at: position.at,
        created_at: position.at,
        delivered_at: None,
        held_reason: None,
        last_status: None,
        last_error: None,
        shard: 0,
        round: 0,
        tries: 0,
        blocked: 0,
        gone: 0,
        applied: 0,
        listed_at: None,
        written: 0,
    }
}
