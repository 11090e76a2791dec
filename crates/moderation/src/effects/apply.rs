//! Carries out a plan: rows first, then records of the log. Repeating it is harmless.

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use tidegate_schemas::{
    ids::{JobId, Millis},
    records::{self, Command, JobClass, Record as _},
};
use tidegate_store::{
    Batch, WriteTime,
    tables::{
        items::{plans::PlanKind, strikes::ActionByItem},
        review::jobs::CauseKind,
    },
};
use tidegate_stream::{Record, Topic, failpoint};

use super::{Plan, PlannedCallback, PlannedFinding, PlannedReview, PlannedStrike, history_rows};
use crate::{
    Deps, Error,
    jobs::{self, Cause, JobRequest, Placement},
    rules::stats::{self, HitFinding, RuleHit},
};

/// Returns when every row is stored and the log has acknowledged every record.
#[boxed]
pub async fn apply(deps: &Deps, plan: &Plan) -> Result<(), Error> {
    // Every write time is the cause's own time, so a replay writes the same rows.
    let mut batch = Batch::new();
    for action in &plan.taken {
        let row = ActionByItem {
            org: plan.org.clone(),
            type_id: action.item.type_id.clone(),
            item_id: action.item.id.clone(),
            event_id: action.event_id,
            action: action.action.clone(),
            at: action.at,
            user: action.user.clone(),
            points: action.points,
            hits: hits_to_json(&action.hits)?,
            actor: action.actor.clone(),
            recorded_at: plan.recorded_at,
        };
        batch.put_owned(WriteTime::from_append(action.at, 0), row);
    }
    for row in history_rows::rows_of(plan) {
        batch.put_owned(WriteTime::from_append(row.at, 0), row);
    }
    deps.store.write(batch).await?;
    for review in &plan.reviews {
        open_job(deps, plan, review).await?;
    }
    for PlannedFinding { hit, item, finding, at } in &plan.verdicts {
        let finding =
            HitFinding { org: &plan.org, hit, item, finding: *finding, decision: plan.cause, at: *at };
        stats::record_finding(&deps.store, finding).await?;
    }
    failpoint!("after_apply_rows");
    // After all rows, so that a consumer of the records finds the rows of the plan.
    append_records(deps, plan).await
}

/// Opens or joins the job of a planned review. Returns the job.
pub(crate) async fn open_job(deps: &Deps, plan: &Plan, review: &PlannedReview) -> Result<JobId, Error> {
    let class = review.queue.class();
    let (kind, submission_id) = match plan.kind {
        // A threshold is crossed by a user, not by a submission.
        PlanKind::Threshold => (CauseKind::Threshold, None),
        PlanKind::Decision if class == JobClass::ChildSafety => (CauseKind::Escalation, None),
        PlanKind::Item | PlanKind::Decision => (CauseKind::Rule, Some(plan.cause.into())),
    };
    let request = JobRequest {
        org: plan.org.clone(),
        class,
        subject: review.subject.clone(),
        queue: review.queue.id().clone(),
        cause: Cause {
            id: review.cause,
            kind,
            at: review.at,
            report_id: None,
            appeal_id: None,
            submission_id,
            rules: serde_json::to_string(&review.rules).map_err(Error::corrupt("plan"))?,
            hits: hits_to_json(&review.hits)?,
            policies: review.policies.clone(),
            threshold: review
                .threshold
                .as_ref()
                .map(serde_json::to_string)
                .transpose()
                .map_err(Error::corrupt("plan"))?,
        },
        placement: Placement {
            routed_by: review.routed_by.clone(),
            routed_for: None,
            signals: review.signals,
            reporter: None,
            user: review.user.clone(),
            config: deps.live.org(&plan.org),
        },
    };
    jobs::open_or_join(&deps.store, &request, Millis::now()).await
}

fn hits_to_json(hits: &[RuleHit]) -> Result<Option<String>, Error> {
    if hits.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(hits).map(Some).map_err(Error::corrupt("plan"))
}

async fn append_records(deps: &Deps, plan: &Plan) -> Result<(), Error> {
    let mut records = Vec::with_capacity(plan.strikes.len() + plan.callbacks.len());
    for strike in &plan.strikes {
        let key = strike.user.log_key(&plan.org);
        records.push((Topic::Strikes, key, strike_record(plan, strike).to_datum()));
    }
    for callback in &plan.callbacks {
        let key = callback.subject.log_key(&plan.org);
        records.push((Topic::Callbacks, key, callback_record(plan, callback).to_datum()));
    }
    if records.is_empty() {
        return Ok(());
    }
    let log_records: Vec<_> = records
        .iter()
        .map(|(topic, key, datum)| (deps.log.partition(*topic, key), Record::new(key, datum.as_slice())))
        .collect();
    deps.log.append(&log_records).await?;
    failpoint!("after_callback_append");
    Ok(())
}

fn strike_record(plan: &Plan, strike: &PlannedStrike) -> records::Strike {
    records::Strike {
        org: plan.org.clone(),
        user: strike.user.clone(),
        cause: strike.cause,
        at: strike.at,
        points: strike.points,
        action: strike.action.clone(),
        item: strike.item.clone(),
        reverses: strike.reverses,
        config_version: plan.config_version,
    }
}

fn callback_record(plan: &Plan, callback: &PlannedCallback) -> records::Callback {
    records::Callback {
        org: plan.org.clone(),
        command: Command::Send,
        event_id: callback.event_id,
        event_type: callback.event_type.as_str().to_owned(),
        endpoint: callback.endpoint.clone(),
        subject: callback.subject.clone(),
        occurred_at: callback.occurred_at,
        body: Bytes::copy_from_slice(callback.body.as_bytes()),
    }
}
