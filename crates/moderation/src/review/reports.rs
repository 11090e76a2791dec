//! Handles reports: stores the report, opens its job, and submits the reported item for rules with `on: report`.

use async_recursion::async_recursion as boxed;
use tidegate_catalog::routing::Choice;
use tidegate_schemas::{
    documents::RoutingList,
    history::{HistoryKind, ReportEvent},
    ids::{JobId, Millis, PolicyId},
    records::{self, Coordinates, JobClass, Record as _, Source},
};
use tidegate_store::{
    Store, WriteTime,
    tables::{
        history::events::{EventHead, HistoryEvent, shard_of},
        review::{jobs::CauseKind, reports::Report},
    },
};
use tidegate_stream::{Record, Topic};
use uuid::Uuid;

use super::{
    report_routing,
    rerouting::{RerouteTrigger, reroute_waiting_job},
};
use crate::{
    Deps, Error, effects,
    items::{context, context_media, stored::RESENT},
    jobs::{
        self, BuiltInQueue, Cause, JobRequest, Placement,
        priority::{self, PrioritySignals},
        routing, user_history,
    },
    partial_items,
};

/// Stores the report, opens its job and appends its item to the log. `is_resent` is true for a replayed dead letter.
#[boxed]
pub async fn accept(
    deps: &Deps,
    report: &records::Report,
    written_at: Millis,
    is_resent: bool,
) -> Result<(), Error> {
    let written_at = load_recorded_time(&deps.store, report).await?.unwrap_or(written_at);
    let row = report_row(report, written_at)?;
    // Before the job, so that every reviewer of the job finds the report.
    deps.store.put_rows(WriteTime::from_append(written_at, 0), std::slice::from_ref(&row)).await?;
    let request = job_request(deps, report, &row, written_at).await?;
    let user_rows = user_history::report_rows(&row, request.placement.user.as_ref());
    deps.store.put_rows(WriteTime::from_append(written_at, 0), &user_rows).await?;
    let job = jobs::open_or_join(&deps.store, &request, Millis::now()).await?;
    deps.store
        .put_rows(WriteTime::from_append(written_at, 0), &[history_row(report, written_at, job)])
        .await?;
    if let (Some(config), JobClass::Review) = (&request.placement.config, request.class) {
        let occasion = RerouteTrigger::Reported(report.report_id);
        reroute_waiting_job(deps, config, &request.subject, occasion, Millis::now()).await?;
    }
    submit_item(deps, report, is_resent).await?;
    fetch_context_media(deps, report).await?;
    partial_items::ask_for_report(deps, report, job, written_at).await
}

/// Hands over the media of the context items. Media of the reported item are fetched with its submission.
async fn fetch_context_media(deps: &Deps, report: &records::Report) -> Result<(), Error> {
    let cause = cause_id(report);
    let context_items = report.thread.iter().chain(&report.additional).enumerate();
    let entries = context_items.map(|(nth, item)| context_media::build_entry(&report.org, cause, nth, item));
    context_media::hand_over(deps, build_record(report, Vec::new()), cause, entries).await
}

/// Builds a record for items of the report.
fn build_record(report: &records::Report, items: Vec<records::ItemEntry>) -> records::Items {
    records::Items {
        org: report.org.clone(),
        config_version: report.config_version,
        source: Source::Report,
        received_at: report.received_at,
        request_id: report.request_id.clone(),
        report_id: Some(report.report_id),
        items,
    }
}

fn cause_id(report: &records::Report) -> Uuid {
    jobs::report_cause_id(report.report_id)
}

/// Chooses class and queue. A report of child sexual abuse material skips routing and never enters a review queue.
async fn job_request(
    deps: &Deps,
    report: &records::Report,
    row: &Report,
    written_at: Millis,
) -> Result<JobRequest, Error> {
    let (class, config, choice, routed_for) = if report.csam {
        // Child safety must not wait for a configuration, which only affects the job's priority.
        let choice = Choice { queue: BuiltInQueue::ChildSafety.into(), routed_by: None };
        (JobClass::ChildSafety, deps.live.org(&report.org), choice, None)
    } else {
        let config = effects::load_config(deps, &report.org, report.config_version, written_at).await?;
        let choice = report_routing::route(deps, &config, row).await?.choice.choice;
        routing::count_choice(&config, RoutingList::Reports, &choice);
        (JobClass::Review, Some(config), choice, Some(report.report_id))
    };
    let Choice { queue, routed_by } = choice;
    let policy = report.policy_id.as_ref().map(|policy| PolicyId::new(&policy.id));
    let user = config.as_deref().and_then(|config| user_history::creator_of(config, &report.item));
    let signals = config.as_deref().map_or_else(PrioritySignals::default, |config| PrioritySignals {
        severity: priority::highest_severity(config, policy.as_ref()),
        reach: priority::read_reach(config, &queue, &report.item.data),
        reporters: 0,
    });
    Ok(JobRequest {
        org: report.org.clone(),
        class,
        subject: report.item.key(),
        queue,
        cause: Cause {
            id: cause_id(report),
            kind: CauseKind::Report,
            at: written_at,
            report_id: Some(report.report_id),
            appeal_id: None,
            submission_id: Some(report.item.submission_id),
            rules: "[]".to_owned(),
            hits: None,
            threshold: None,
            policies: policy.iter().cloned().collect(),
        },
        placement: Placement {
            routed_by,
            routed_for,
            signals,
            reporter: Some(report.reporter.clone()),
            config,
            user,
        },
    })
}

async fn submit_item(deps: &Deps, report: &records::Report, is_resent: bool) -> Result<(), Error> {
    let key = report.item.key().log_key(&report.org);
    // A report from the dead letters keeps its original place among the item's versions, so it has no effects if a
    // newer version is stored.
    let coordinates =
        is_resent.then_some(Coordinates { append_ms: report.received_at, offset: 0, position: 0 });
    // A replay of the report appends the item again. With `keyed` the first submission is kept, as with an
    // idempotency key.
    let entry =
        records::ItemEntry { keyed: true, origin: report.item.origin.or(coordinates), ..report.item.clone() };
    let items = build_record(report, vec![entry]);
    let partition = deps.log.partition(Topic::Items, &key);
    let headers: &[(&str, &[u8])] = if is_resent { &[(RESENT, b"1")] } else { &[] };
    deps.log.append(&[(partition, Record::new(&key, items.to_datum()).with_headers(headers))]).await?;
    Ok(())
}

/// Returns the time under which the history lists the report already, so that a repeated record adds no second event. A row
/// without an event does not count: its record failed, and exports may have passed its time.
async fn load_recorded_time(store: &Store, report: &records::Report) -> Result<Option<Millis>, Error> {
    let Some(row) = store.get::<Report>(&(report.org.clone(), report.report_id)).await? else {
        return Ok(None);
    };
    let (id, at) = (report.report_id.0, row.written_at);
    let key = (report.org.clone(), HistoryKind::Report, at.day(), shard_of(id), at, id);
    Ok(store.get::<HistoryEvent>(&key).await?.map(|event| event.at))
}

fn history_row(report: &records::Report, at: Millis, job_id: JobId) -> HistoryEvent {
    let item = report.item.key();
    let head =
        EventHead { org: &report.org, id: report.report_id.0, at, item: &item, is_child_safety: report.csam };
    let event = ReportEvent {
        reporter: report.reporter.clone(),
        reported_at: report.reported_at,
        received_at: report.received_at,
        policy: report.policy_id.as_ref().map(|policy| PolicyId::new(&policy.id)),
        reason: report.reason.clone(),
        job_id,
    };
    HistoryEvent::new(head, &event)
}

fn report_row(report: &records::Report, written_at: Millis) -> Result<Report, Error> {
    Ok(Report {
        org: report.org.clone(),
        report_id: report.report_id,
        item: report.item.key(),
        type_version: report.item.type_version.clone(),
        variant: report.item.variant.into(),
        data: report.item.data.clone(),
        submission_id: report.item.submission_id,
        reporter: report.reporter.clone(),
        reported_at: report.reported_at,
        received_at: report.received_at,
        written_at,
        request_id: report.request_id.clone(),
        config_version: report.config_version,
        policy: context::mention_to_json(report.policy_id.as_ref())?,
        reason: report.reason.clone(),
        csam: report.csam,
        thread: context::items_to_json(&report.thread)?,
        reported_in_thread: context::keys_to_json(&report.reported_in_thread)?,
        additional: context::items_to_json(&report.additional)?,
    })
}
