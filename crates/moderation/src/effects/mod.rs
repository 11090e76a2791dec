//! Plans of effects: stored once per cause, then carried out.
//!
//! The first plan stored for a cause is the one that is carried out, so a replay under newer rules writes the same
//! rows and sends the same events. All ids in a plan are derived, so carrying it out twice is harmless. Plans of items
//! are made in `plan`, those of decisions and strikes in `review::decisions` and `strikes`.

mod actions;
mod apply;
mod bounded_list;
pub mod events;
mod plan;
mod planned_queue;
mod rule_gates;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_catalog::Compiled;
use tidegate_rules::Omissions;
use tidegate_schemas::{
    documents::Event,
    ids::{
        ActionId, CauseId, ConfigVersion, EndpointId, EventId, ItemKey, Millis, OrgId, RuleId, SubmissionId,
    },
    string_enum,
};
use tidegate_store::{
    Inserted, Replaced, Store,
    tables::items::{plans, rules::Finding},
};
use uuid::Uuid;

pub(crate) use actions::{ActionInput, copy_of, subscribers};
pub use apply::apply;
pub(crate) use apply::open_job;
pub use plan::plan_item;
pub use planned_queue::PlannedQueue;
pub(crate) use rule_gates::event_of;
pub use rule_gates::{Again, Claim, Evaluated, Expected, Refused, Watch, claims};

use crate::{
    Deps, Error,
    priority::Signals,
    rules::stats::{RuleHit, RuleOutcome},
    standing,
};

/// Reason that is shown for actions of content that a newer version has overtaken.
const SUPERSEDED: &str = "superseded";

/// All effects of one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub org: OrgId,
    pub cause: Uuid,
    pub kind: Kind,
    pub config_version: ConfigVersion,
    /// Findings for the item's row. Only plans of items have them.
    pub evaluation: Option<Findings>,
    pub taken: Vec<PlannedAction>,
    pub callbacks: Vec<PlannedCallback>,
    pub strikes: Vec<PlannedStrike>,
    pub reviews: Vec<PlannedReview>,
    /// Findings of a decision about the rules that led to it.
    #[serde(default)]
    pub verdicts: Vec<PlannedFinding>,
    /// Outcomes of rules, for the statistics. Not stored, so that a replay does not count them again.
    #[serde(skip)]
    pub counted: Vec<RuleOutcome>,
}

string_enum! {
    /// Kind of a plan's cause.
    pub enum Kind {
        Item = "item",
        Decision = "decision",
        Threshold = "threshold",
    }
}

/// Findings of the rules, in the form of the item's row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    pub evaluated_at: Millis,
    pub matched: String,
    pub errored: String,
    pub actions: String,
    /// Plans that were stored before media were fetched have none.
    #[serde(default = "no_media")]
    pub media: String,
    #[serde(default, skip_serializing_if = "Omissions::is_empty")]
    pub left_out: Omissions,
    /// User who made the item, or the user that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<ItemKey>,
}

impl Findings {
    /// Findings of an item without media on which no rule matched or failed.
    pub(crate) fn nothing(evaluated_at: Millis, user: Option<ItemKey>) -> Self {
        let none = || "[]".to_owned();
        Self {
            evaluated_at,
            matched: none(),
            errored: none(),
            actions: none(),
            media: none(),
            left_out: Omissions::default(),
            user,
        }
    }

    /// True if there is nothing to publish.
    pub(crate) fn is_silent(&self) -> bool {
        self.matched == "[]" && self.errored == "[]" && self.left_out.is_empty()
    }

    /// The left-out parts in the form of rows and records.
    pub(crate) fn left_out(&self) -> Option<String> {
        (!self.left_out.is_empty()).then(|| json!(self.left_out).to_string())
    }
}

fn no_media() -> String {
    "[]".to_owned()
}

/// An action on an item, for the list from which an accepted appeal is reversed.
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
    /// User whose strikes the body is to say. Not stored, since a stored body says them.
    #[serde(skip)]
    pub counts: Option<ItemKey>,
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
    /// User under whom the job is listed: the creator of the subject, or the user that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<ItemKey>,
    pub queue: PlannedQueue,
    pub cause: Uuid,
    pub at: Millis,
    pub rules: Vec<RuleId>,
    #[serde(default)]
    pub hits: Vec<RuleHit>,
    /// Severity and reach, for the priority.
    #[serde(default)]
    pub signals: Signals,
    /// Routing list and entry that chose the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routed_by: Option<String>,
    /// Threshold that the subject crossed; reviews of plans that were stored by earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<events::CrossedThreshold>,
    /// True if nobody has named a queue, so that routing may choose one. Not stored, since a stored plan is routed.
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
    pub fn empty(org: &OrgId, cause: Uuid, kind: Kind, config_version: ConfigVersion) -> Self {
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
            counted: Vec::new(),
        }
    }

    /// Plan of an item that no rule acts on: only its media were looked at.
    pub fn without_effects(
        org: &OrgId,
        submission: SubmissionId,
        appended_at: Millis,
        media: String,
        version: ConfigVersion,
    ) -> Self {
        let findings = Findings { media, ..Findings::nothing(appended_at, None) };
        Self { evaluation: Some(findings), ..Self::empty(org, submission.0, Kind::Item, version) }
    }

    /// True if anything is done beyond storing the findings.
    pub fn has_effects(&self) -> bool {
        !(self.taken.is_empty()
            && self.callbacks.is_empty()
            && self.strikes.is_empty()
            && self.reviews.is_empty())
    }

    /// Drops all effects and keeps the findings, because a newer version of the item came first.
    pub fn supersede(&mut self) -> Result<(), Error> {
        self.taken.clear();
        self.callbacks.clear();
        self.strikes.clear();
        self.reviews.clear();
        let Some(findings) = &mut self.evaluation else { return Ok(()) };
        let mut actions: Vec<serde_json::Map<String, serde_json::Value>> =
            serde_json::from_str(&findings.actions).map_err(Error::corrupt("plan"))?;
        for action in &mut actions {
            action.remove("eventId");
            action.entry("suppressed").or_insert_with(|| SUPERSEDED.into());
        }
        findings.actions = serde_json::to_string(&actions).map_err(Error::corrupt("plan"))?;
        Ok(())
    }
}

/// Returns the stored plan of a cause.
pub async fn stored(store: &Store, org: &OrgId, cause: Uuid) -> Result<Option<Plan>, Error> {
    let row = store.get::<plans::Plan>(&(org.clone(), cause)).await?;
    row.map(|row| serde_json::from_str(&row.plan).map_err(Error::corrupt("plan"))).transpose()
}

/// Adds the strikes of users to the bodies of their callbacks, those of the plan included. Strikes of causes whose records
/// were not read yet are missing.
async fn count_strikes(store: &Store, plan: &mut Plan) -> Result<(), Error> {
    let mut totals: HashMap<ItemKey, i64> = HashMap::new();
    for callback in &mut plan.callbacks {
        let Some(user) = callback.counts.take() else { continue };
        let total = match totals.get(&user) {
            Some(total) => *total,
            None => {
                let own = plan.strikes.iter().filter(|it| it.user == user && it.reverses.is_none());
                let own: i64 = own.map(|it| it.points).sum();
                let total = standing::total(store, &plan.org, &user, Millis(0)).await? + own;
                totals.insert(user, total);
                total
            }
        };
        callback.body = events::with_strikes(&callback.body, total);
    }
    Ok(())
}

/// Stores the plan unless the cause has one. Returns the plan to carry out.
pub async fn adopt(store: &Store, mut plan: Plan, now: Millis) -> Result<Plan, Error> {
    count_strikes(store, &mut plan).await?;
    let row = plans::Plan {
        org: plan.org.clone(),
        cause: plan.cause,
        kind: plan.kind.as_str().to_owned(),
        plan: serde_json::to_string(&plan).map_err(Error::corrupt("plan"))?,
        created_at: now,
        version: 1,
    };
    let inserted = store.insert_new(&row).await?;
    tidegate_stream::failpoint!("after_plan");
    match inserted {
        Inserted::New => Ok(plan),
        Inserted::Existing(first) => serde_json::from_str(&first.plan).map_err(Error::corrupt("plan")),
    }
}

/// Replaces a stored plan, of which nothing was carried out yet, by its superseded form. Returns the plan to carry out.
/// The new form is stored first, so that no later replay carries the old one out.
pub async fn set_aside(store: &Store, mut plan: Plan) -> Result<Plan, Error> {
    plan.supersede()?;
    let Some(row) = store.get::<plans::Plan>(&(plan.org.clone(), plan.cause)).await? else { return Ok(plan) };
    let text = serde_json::to_string(&plan).map_err(Error::corrupt("plan"))?;
    match store.replace(&plans::Plan { plan: text, ..row.clone() }, row.version).await? {
        Replaced::Yes | Replaced::Gone => Ok(plan),
        // Another owner of the same record was faster.
        Replaced::No(row) => serde_json::from_str(&row.plan).map_err(Error::corrupt("plan")),
    }
}

/// Returns the configuration of an org at the version that a record names, or a later one. `written_at` is the record's
/// time.
pub async fn config(
    deps: &Deps,
    org: &OrgId,
    version: ConfigVersion,
    written_at: Millis,
) -> Result<std::sync::Arc<Compiled>, Error> {
    Ok(deps.live.find(org, version, written_at).await?)
}
