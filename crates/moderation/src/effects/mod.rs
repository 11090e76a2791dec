//! Plans of effects: stored once per cause, then carried out.
//!
//! The first stored plan of a cause is the one carried out, so a replay under newer rules writes the same rows and
//! sends the same events. All ids in a plan are derived, so carrying it out twice is harmless. `plan` builds the
//! plans of items; `review::decisions` and `users::strikes` build the others.

mod actions;
mod apply;
mod bounded_list;
mod history_rows;
use async_recursion::async_recursion as boxed;
pub mod events;
mod plan;
mod planned_queue;
mod rule_gates;
pub mod strike_points;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_catalog::Compiled;
use tidegate_rules::Omissions;
use tidegate_schemas::{
    documents::Event,
    history::DecisionEvent,
    ids::{
        ActionId, CauseId, ConfigVersion, EndpointId, EventId, ItemKey, Millis, OrgId, PolicyId, RuleId,
        SubmissionId,
    },
};
use tidegate_store::{
    InsertOutcome, ReplaceOutcome, Store,
    tables::items::{
        plans::{self, PlanKind},
        rules::Finding,
    },
};
use uuid::Uuid;

pub(crate) use actions::{ActionInput, copy_of, subscribers};
pub use apply::apply;
pub(crate) use apply::open_job;
pub(crate) use history_rows::decision_row as decision_history_row;
pub use plan::plan_item;
pub use planned_queue::PlannedQueue;
pub(crate) use rule_gates::derive_event_id;
pub use rule_gates::{
    AlarmCheck, AlarmThreshold, EvaluatedSubmission, LimitRefusals, Repetition, RuleLimitRequest,
    limit_requests,
};

use crate::{
    Deps, Error,
    jobs::priority::PrioritySignals,
    rules::stats::{RuleHit, RuleOutcome},
};

/// Reason stored for actions on a version that a newer one has replaced.
const SUPERSEDED: &str = "superseded";

/// All effects of one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub org: OrgId,
    pub cause: Uuid,
    pub kind: PlanKind,
    pub config_version: ConfigVersion,
    /// Result of the rules, for the item's row. Only plans of items have it.
    pub evaluation: Option<Findings>,
    pub taken: Vec<PlannedAction>,
    pub callbacks: Vec<PlannedCallback>,
    pub strikes: Vec<PlannedStrike>,
    pub reviews: Vec<PlannedReview>,
    /// Verdicts of a decision on the rules that led to it.
    #[serde(default)]
    pub verdicts: Vec<PlannedFinding>,
    /// Append time of the record that this plan was made for. Absent in plans of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_at: Option<Millis>,
    /// True if the effects concern child-safety material.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_child_safety: bool,
    /// History event of the decision. Only plans of decisions have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Box<DecisionEvent>>,
    /// Actions of crossed thresholds. Only plans of thresholds have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threshold_actions: Vec<PlannedThresholdAction>,
    /// Outcomes of rules, for the statistics. Not stored: a replay would count them again.
    #[serde(skip)]
    pub rule_outcomes: Vec<RuleOutcome>,
}

/// Results of the rules, in the form of the item's row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    pub evaluated_at: Millis,
    pub matched: String,
    pub errored: String,
    pub actions: String,
    /// Absent in plans stored before media were fetched.
    #[serde(default = "no_media")]
    pub media: String,
    #[serde(default, skip_serializing_if = "Omissions::is_empty")]
    pub left_out: Omissions,
    /// Creator of the item. A user item is its own creator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<ItemKey>,
}

impl Findings {
    /// Findings of an item that has no media and that no rule matched.
    pub(crate) fn empty(evaluated_at: Millis, user: Option<ItemKey>) -> Self {
        let empty_list = || "[]".to_owned();
        Self {
            evaluated_at,
            matched: empty_list(),
            errored: empty_list(),
            actions: empty_list(),
            media: empty_list(),
            left_out: Omissions::default(),
            user,
        }
    }

    /// True if the evaluation has no result to publish.
    pub(crate) fn is_silent(&self) -> bool {
        self.matched == "[]" && self.errored == "[]" && self.left_out.is_empty()
    }

    /// Left-out parts in the form of rows and records.
    pub(crate) fn left_out(&self) -> Option<String> {
        (!self.left_out.is_empty()).then(|| json!(self.left_out).to_string())
    }
}

fn no_media() -> String {
    "[]".to_owned()
}

/// Action on an item. An accepted appeal reverses the item's actions from this list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedAction {
    pub item: ItemKey,
    pub event_id: EventId,
    pub action: ActionId,
    pub at: Millis,
    pub user: Option<ItemKey>,
    pub points: i64,
    #[serde(default)]
    pub hits: Vec<RuleHit>,
    /// Person or system that took the action; absent for actions of rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyId>,
}

/// Action of a threshold that a user crossed, for the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedThresholdAction {
    pub event_id: EventId,
    pub user: ItemKey,
    pub action: ActionId,
    pub threshold: String,
    pub at: Millis,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedCallback {
    pub event_id: EventId,
    pub event_type: Event,
    pub endpoint: Option<EndpointId>,
    pub subject: ItemKey,
    pub occurred_at: Millis,
    pub body: String,
    /// User whose strike total is added to the body. Not stored: a stored body contains the total already.
    #[serde(skip)]
    pub strike_user: Option<ItemKey>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStrike {
    pub user: ItemKey,
    pub cause: CauseId,
    pub at: Millis,
    pub points: i64,
    pub action: ActionId,
    pub item: ItemKey,
    pub reverses: Option<CauseId>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedReview {
    pub subject: ItemKey,
    /// User under whom the job is listed: the subject's creator, or the subject itself if it is a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<ItemKey>,
    pub queue: PlannedQueue,
    pub cause: Uuid,
    pub at: Millis,
    pub rules: Vec<RuleId>,
    #[serde(default)]
    pub hits: Vec<RuleHit>,
    /// Policies of the rules or the decision that ask for the review.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyId>,
    /// Severity and reach, for the priority.
    #[serde(default)]
    pub signals: PrioritySignals,
    /// Routing list and entry that chose the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routed_by: Option<String>,
    /// Threshold that the subject crossed. Absent in plans of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<events::CrossedThreshold>,
    /// True if no action names a queue, so that routing may choose one. Not stored: a stored plan is routed already.
    #[serde(skip)]
    pub is_routable: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedFinding {
    pub hit: RuleHit,
    pub item: ItemKey,
    pub finding: Finding,
    /// Append time of the decision.
    pub at: Millis,
}

impl Plan {
    pub fn empty(org: &OrgId, cause: Uuid, kind: PlanKind, config_version: ConfigVersion) -> Self {
        Self {
            org: org.clone(),
            cause,
            kind,
            config_version,
            evaluation: None,
            taken: Vec::new(),
            callbacks: Vec::new(),
            strikes: Vec::new(),
            reviews: Vec::new(),
            verdicts: Vec::new(),
            recorded_at: None,
            is_child_safety: false,
            decision: None,
            threshold_actions: Vec::new(),
            rule_outcomes: Vec::new(),
        }
    }

    /// Plan that only stores media, for an item that rules do not act on.
    pub fn without_effects(
        org: &OrgId,
        submission: SubmissionId,
        appended_at: Millis,
        media: String,
        version: ConfigVersion,
    ) -> Self {
        let findings = Findings { media, ..Findings::empty(appended_at, None) };
        Self { evaluation: Some(findings), ..Self::empty(org, submission.0, PlanKind::Item, version) }
    }

    /// True if the plan does more than store findings.
    pub fn has_effects(&self) -> bool {
        !(self.taken.is_empty()
            && self.callbacks.is_empty()
            && self.strikes.is_empty()
            && self.reviews.is_empty())
    }

    /// Drops all effects and keeps the findings. Used when a newer version of the item was processed first.
    pub fn supersede(&mut self) -> Result<(), Error> {
        self.taken.clear();
        self.callbacks.clear();
        self.strikes.clear();
        self.reviews.clear();
        let Some(findings) = &mut self.evaluation else { return Ok(()) };
        let mut actions: Vec<serde_json::Map<String, serde_json::Value>> =
            serde_json::from_str(&findings.actions).map_err(Error::corrupt("plan"))?;
        for action in &mut actions {
            // The list must not refer to an event that is never sent.
            action.remove("eventId");
            action.entry("suppressed").or_insert_with(|| SUPERSEDED.into());
        }
        findings.actions = serde_json::to_string(&actions).map_err(Error::corrupt("plan"))?;
        Ok(())
    }
}

/// Loads the plan of a cause.
pub async fn load_plan(store: &Store, org: &OrgId, cause: Uuid) -> Result<Option<Plan>, Error> {
    let row = store.get::<plans::Plan>(&(org.clone(), cause)).await?;
    row.map(|row| serde_json::from_str(&row.plan).map_err(Error::corrupt("plan"))).transpose()
}

/// Adds strike totals to the bodies of callbacks. The plan's own strikes count; strikes whose records are still
/// unread do not.
async fn count_strikes(store: &Store, plan: &mut Plan) -> Result<(), Error> {
    let mut totals: HashMap<ItemKey, i64> = HashMap::new();
    for callback in &mut plan.callbacks {
        let Some(user) = callback.strike_user.take() else { continue };
        // Most callbacks of a plan concern one user, so the total is read once.
        let total = match totals.get(&user) {
            Some(total) => *total,
            None => {
                let planned =
                    plan.strikes.iter().filter(|strike| strike.user == user && strike.reverses.is_none());
                let planned_points: i64 = planned.map(|strike| strike.points).sum();
                let total =
                    strike_points::load_total(store, &plan.org, &user, Millis(0)).await? + planned_points;
                totals.insert(user, total);
                total
            }
        };
        callback.body = events::with_strikes(&callback.body, total);
    }
    Ok(())
}

/// Stores the plan if the cause has none yet. Returns the plan to carry out: this one, or the one stored first.
#[boxed]
pub async fn adopt(store: &Store, mut plan: Plan, now: Millis) -> Result<Plan, Error> {
    // Totals belong to the stored body: a replay must send the same text.
    count_strikes(store, &mut plan).await?;
    let row = plans::Plan {
        org: plan.org.clone(),
        cause: plan.cause,
        kind: plan.kind.into(),
        plan: serde_json::to_string(&plan).map_err(Error::corrupt("plan"))?,
        created_at: now,
        version: 1,
    };
    let inserted = store.insert_new(&row).await?;
    tidegate_stream::failpoint!("after_plan");
    // If a plan exists, an earlier run or another owner was first and may have carried out part of it.
    match inserted {
        InsertOutcome::New => Ok(plan),
        InsertOutcome::Existing(first) => serde_json::from_str(&first.plan).map_err(Error::corrupt("plan")),
    }
}

/// Replaces a stored plan by its superseded form, before any of it is carried out. Returns the plan to carry out. The
/// new form is stored first, so that no later replay carries out the old one.
#[boxed]
pub async fn replace_superseded(store: &Store, mut plan: Plan) -> Result<Plan, Error> {
    plan.supersede()?;
    let Some(row) = store.get::<plans::Plan>(&(plan.org.clone(), plan.cause)).await? else { return Ok(plan) };
    let text = serde_json::to_string(&plan).map_err(Error::corrupt("plan"))?;
    match store.replace(&plans::Plan { plan: text, ..row.clone() }, row.version).await? {
        ReplaceOutcome::Done | ReplaceOutcome::Missing => Ok(plan),
        // Another owner of the record replaced the plan first.
        ReplaceOutcome::Conflict(row) => serde_json::from_str(&row.plan).map_err(Error::corrupt("plan")),
    }
}

/// Loads the configuration of an org at the version of a record, or a later one. `written_at` is the record's time.
#[boxed]
pub async fn load_config(
    deps: &Deps,
    org: &OrgId,
    version: ConfigVersion,
    written_at: Millis,
) -> Result<std::sync::Arc<Compiled>, Error> {
    Ok(deps.live.find_version(org, version, written_at).await?)
}
