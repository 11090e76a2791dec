//! Reroutes waiting jobs of reported items after the item is evaluated or another report joins.
//!
//! A report opens its job before rules and media of the item are evaluated, so the first routing uses older findings.
//! A job that is claimed, decided or moved by hand stays in its queue.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use tidegate_catalog::{
    Compiled,
    routing::{Choice, RankedChoice},
};
use tidegate_schemas::{
    documents::RoutingList,
    ids::{ItemKey, Millis, OrgId, ReportId},
    records::JobClass,
};
use tidegate_store::{
    ReplaceOutcome,
    tables::review::{
        jobs::{Job, JobCause, JobState, SubjectJob},
        reports::Report,
    },
};

use super::{moves, report_routing};
use crate::{
    Deps, Error,
    jobs::{
        job_moves,
        priority::{self, PrioritySignals},
        report_cause_id, subject_key,
    },
    metrics,
};

/// Number of moves after which a job is not rerouted. Leaves room for moves by hand.
const MOST_MOVES: usize = 50;

/// Event that causes rerouting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RerouteTrigger {
    /// The report opened or joined the job.
    Reported(ReportId),
    /// The item was evaluated, in the report's version if the report sent it.
    Evaluated(Option<ReportId>),
}

impl RerouteTrigger {
    fn report_id(self) -> Option<ReportId> {
        match self {
            Self::Reported(report) => Some(report),
            Self::Evaluated(report) => report,
        }
    }
}

/// Moves the waiting review job of an item to the queue that the routing list for reports now chooses. The list is
/// applied to the report behind the present queue and to the report of the occasion; the entry nearer to the top of
/// the list wins. A repeated call has no further effect.
#[boxed]
pub async fn reroute_waiting_job(
    deps: &Deps,
    config: &Arc<Compiled>,
    item: &ItemKey,
    occasion: RerouteTrigger,
    now: Millis,
) -> Result<(), Error> {
    let org = config.org();
    if config.router(RoutingList::Reports).is_none() {
        return Ok(());
    }
    let Some(pointer) = deps.store.get::<SubjectJob>(&subject_key(org, JobClass::Review, item)).await? else {
        return Ok(());
    };
    let Some(mut job) = deps.store.get::<Job>(&(org.clone(), pointer.job_id)).await? else { return Ok(()) };
    loop {
        let Some(routed_for) = reroutable_report(&job, occasion, now)? else { return Ok(()) };
        let Some((report, choice)) = choose_queue(deps, config, (&job, routed_for), occasion).await? else {
            return Ok(());
        };
        let routed_job =
            Job { routed_by: choice.routed_by, routed_for: Some(report.report_id), ..job.clone() };
        let is_moved = choice.queue != job.queue;
        // Same queue and same entry: the row need not change.
        if !is_moved && routed_job.routed_by == job.routed_by {
            return Ok(());
        }
        let next = if is_moved {
            let signals = PrioritySignals {
                reach: priority::read_reach(config, &choice.queue, &report.data).or(signals_of(&job)?.reach),
                ..signals_of(&job)?
            };
            moves::prepare_move(&deps.store, config, &routed_job, &choice.queue, signals, now).await?.0
        } else {
            routed_job
        };
        match deps.store.replace(&next, job.version).await? {
            ReplaceOutcome::Done => {
                if is_moved {
                    metrics::job_rerouted();
                }
                return Ok(());
            }
            // The row changed meanwhile: by a cause, a claim, a decision or a move.
            ReplaceOutcome::Conflict(current) => job = current,
            ReplaceOutcome::Missing => return Ok(()),
        }
    }
}

fn signals_of(job: &Job) -> Result<PrioritySignals, Error> {
    Ok(PrioritySignals::parse_from(job)?.unwrap_or_default())
}

/// Returns the report behind the present queue if the job waits and can be rerouted.
fn reroutable_report(job: &Job, occasion: RerouteTrigger, now: Millis) -> Result<Option<ReportId>, Error> {
    let is_claimed = job.lease_until.is_some_and(|until| until > now);
    // A job of version 1 has only its own report, which has just routed it.
    let is_just_opened = matches!(occasion, RerouteTrigger::Reported(_)) && job.version == 1;
    let may_be_routed = job.state == JobState::Open && job.class == JobClass::Review && !is_claimed;
    if !may_be_routed || is_just_opened || job_moves::parse_moves(job)?.len() >= MOST_MOVES {
        return Ok(None);
    }
    Ok(job.routed_for)
}

/// Routes both reports with the present facts. `None` if a choice depends on a score that is no longer stored.
async fn choose_queue(
    deps: &Deps,
    config: &Arc<Compiled>,
    (job, routed_for): (&Job, ReportId),
    occasion: RerouteTrigger,
) -> Result<Option<(Report, Choice)>, Error> {
    let mut best: Option<(Report, RankedChoice)> = None;
    let mut reports = vec![routed_for];
    if let Some(report_id) = occasion.report_id().filter(|report| *report != routed_for) {
        // A replayed report may belong to an earlier job of the item, so its cause is checked.
        let cause = (job.org.clone(), job.job_id, report_cause_id(report_id));
        reports.extend(deps.store.get::<JobCause>(&cause).await?.map(|_| report_id));
    }
    for report_id in reports {
        let Some(report) = load_report(deps, config.org(), report_id).await? else { continue };
        let routed_report = report_routing::route(deps, config, &report).await?;
        // Without the scores the entry could not match, and the job would move away from its correct queue.
        if routed_report.lacks_scores && matches!(occasion, RerouteTrigger::Reported(_)) {
            return Ok(None);
        }
        if best.as_ref().is_none_or(|(_, best)| routed_report.choice.is_before(best)) {
            best = Some((report, routed_report.choice));
        }
    }
    Ok(best.map(|(report, ranked)| (report, ranked.choice)))
}

/// Loads a report for routing. Reports of child sexual abuse material are never routed.
async fn load_report(deps: &Deps, org: &OrgId, report_id: ReportId) -> Result<Option<Report>, Error> {
    let report = deps.store.get::<Report>(&(org.clone(), report_id)).await?;
    Ok(report.filter(|report| !report.csam))
}
