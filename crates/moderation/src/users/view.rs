//! View of a user for moderators: strikes, standing, jobs and actions about the user, and the outcome of their
//! reports.

use std::collections::HashSet;

use async_recursion::async_recursion as boxed;
use serde::Serialize;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    ids::{ActionId, CauseId, EventId, ItemId, ItemKey, Millis, OrgId, TypeId},
    records::JobClass,
};
use tidegate_store::{
    RowRange, Store,
    tables::{
        items::strikes::{ActionByItem, Strike, StrikeReversal},
        review::jobs::{Job, SubjectJob},
    },
};

use super::reporters::{self, ReporterRecord};
use crate::{
    Error,
    child_safety::Clearance,
    effects::strike_points,
    items::stored,
    jobs::{
        summary::{self, JobSummaryResponse},
        user_history,
    },
};

/// Number of newest strikes in the view.
const MAX_STRIKES: usize = 50;

/// Maximum number of actions read. They are not stored in order of time.
const MAX_ACTIONS: usize = 500;

/// User in an answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UserResponse {
    pub type_id: TypeId,
    pub id: ItemId,
    /// Points over all time.
    pub strikes: i64,
    /// Current points for each threshold.
    pub standing: Vec<ThresholdStanding>,
    /// Newest strikes, newest first.
    pub newest_strikes: Vec<StrikeView>,
    /// Newest job about the user in each class.
    pub jobs: Vec<JobSummaryResponse>,
    /// Actions on the user, newest first. The views of items contain the actions on the user's items.
    pub actions: Vec<ActionView>,
    /// Outcome of the user's reports.
    pub reports: ReporterRecord,
    /// The user's own item, if the platform sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_item: Option<stored::ItemResponse>,
}

/// Current points of a user against a threshold.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThresholdStanding {
    pub threshold: String,
    pub strikes: i64,
    /// Points at which the threshold is crossed.
    pub limit: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_seconds: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StrikeView {
    pub event_id: CauseId,
    pub at: String,
    pub points: i64,
    pub action: ActionId,
    /// Reviewer, or `actorId` of a platform action. Omitted together with the item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// `None` if the item has a child-safety job that the caller may not see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<ItemKey>,
    /// True if an accepted appeal reversed the strike.
    pub reversed: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionView {
    pub event_id: EventId,
    pub at: String,
    pub action: ActionId,
    pub points: i64,
    /// Reviewer, or `actorId` of a platform action; absent for rules and thresholds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// Loads the view of a user. `None` if no item, strike, job, action or report names the user. Parts beyond the
/// clearance are omitted.
#[boxed]
pub async fn load_view(
    store: &Store,
    config: &Compiled,
    user: &ItemKey,
    clearance: Clearance,
    now: Millis,
) -> Result<Option<UserResponse>, Error> {
    let org = config.org();
    let newest_strikes = load_newest_strikes(store, org, user, clearance).await?;
    let jobs = load_jobs(store, org, user, clearance).await?;
    let actions = load_actions(store, org, user).await?;
    let report_record = reporters::load_outcome(store, org, user, clearance).await?;
    let latest_item = stored::load_answer(store, org, user, None).await?;
    let is_unknown = newest_strikes.is_empty() && jobs.is_empty() && actions.is_empty();
    // The user's lists are checked last, because they cost several reads per stretch of time.
    if is_unknown
        && report_record.decided == 0
        && latest_item.is_none()
        && !user_history::has_entries(store, org, user, now).await?
    {
        return Ok(None);
    }
    let mut standing = Vec::new();
    for threshold in config.thresholds() {
        let period_start = threshold.within.map_or(Millis(0), |within| now.minus(within));
        standing.push(ThresholdStanding {
            threshold: threshold.key.clone(),
            strikes: strike_points::load_total(store, org, user, period_start).await?,
            limit: threshold.strikes,
            within_seconds: threshold.within.map(|within| within.as_secs()),
        });
    }
    Ok(Some(UserResponse {
        type_id: user.type_id.clone(),
        id: user.id.clone(),
        strikes: strike_points::load_total(store, org, user, Millis(0)).await?,
        standing,
        newest_strikes,
        jobs,
        actions,
        reports: report_record,
        latest_item,
    }))
}

async fn load_newest_strikes(
    store: &Store,
    org: &OrgId,
    user: &ItemKey,
    clearance: Clearance,
) -> Result<Vec<StrikeView>, Error> {
    let partition = (org.clone(), user.clone());
    let strikes = store.scan::<Strike>(&partition, RowRange::all().limit(MAX_STRIKES)).all().await?;
    if strikes.is_empty() {
        return Ok(Vec::new());
    }
    // All of them, because reversals are keyed by their own cause instead of the strike's.
    let reversals = store.scan::<StrikeReversal>(&partition, RowRange::all()).all().await?;
    let reversed: HashSet<CauseId> = reversals.into_iter().map(|row| row.reversed).collect();
    let struck_items: Vec<_> = strikes.iter().map(|strike| strike.item.clone()).collect();
    let withheld = clearance.withheld_items(store, org, &struck_items).await?;
    let action_key = |strike: &Strike| {
        let ItemKey { type_id, id } = strike.item.clone();
        (org.clone(), type_id, id, EventId(strike.cause.0))
    };
    let action_keys: Vec<_> = strikes.iter().map(action_key).collect();
    let actions = store.get_many::<ActionByItem>(&action_keys).await?;
    let to_view = |(row, action): (Strike, Option<ActionByItem>)| {
        let item = (!withheld.contains(&row.item)).then_some(row.item);
        StrikeView {
            event_id: row.cause,
            at: row.at.iso(),
            points: row.points,
            action: row.action,
            actor: action.and_then(|action| action.actor).filter(|_| item.is_some()),
            item,
            reversed: reversed.contains(&row.cause),
        }
    };
    Ok(strikes.into_iter().zip(actions).map(to_view).collect())
}

async fn load_jobs(
    store: &Store,
    org: &OrgId,
    user: &ItemKey,
    clearance: Clearance,
) -> Result<Vec<JobSummaryResponse>, Error> {
    // An appeal is its own subject, so appeal jobs are never about a user.
    let mut classes = vec![JobClass::Review];
    if clearance.covers_child_safety() {
        classes.push(JobClass::ChildSafety);
    }
    let keys: Vec<_> = classes
        .into_iter()
        .map(|class| (org.clone(), class, user.type_id.clone(), user.id.clone()))
        .collect();
    let pointers = store.get_many::<SubjectJob>(&keys).await?.into_iter().flatten();
    let jobs: Vec<_> = pointers.map(|pointer| (org.clone(), pointer.job_id)).collect();
    store.get_many::<Job>(&jobs).await?.into_iter().flatten().map(summary::summarize).collect()
}

async fn load_actions(store: &Store, org: &OrgId, user: &ItemKey) -> Result<Vec<ActionView>, Error> {
    let partition = (org.clone(), user.type_id.clone(), user.id.clone());
    let mut rows = store.scan::<ActionByItem>(&partition, RowRange::all().limit(MAX_ACTIONS)).all().await?;
    // The table is not ordered by time.
    rows.sort_by_key(|row| std::cmp::Reverse(row.at));
    let to_view = |row: ActionByItem| ActionView {
        event_id: row.event_id,
        at: row.at.iso(),
        action: row.action,
        points: row.points,
        actor: row.actor,
    };
    Ok(rows.into_iter().map(to_view).collect())
}
