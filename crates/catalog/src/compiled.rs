//! Compiled configuration of an organisation, ready to run: immutable, one value a version.
//!
//! It does not come into being here; `compile` makes it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use serde_json::{Map, Value};
use tidegate_media::banks::{Bank, BankPublisher, HashBanks};
use tidegate_rules::{ExampleFacts, Plan, RuleError, RuleHead};
use tidegate_schemas::{
    documents::{self, ActionStrikes, RoutingList, Severity},
    ids::{
        ActionId, BankId, ConfigVersion, EndpointId, Millis, OrgId, PolicyId, QueueId, RuleId, SignalId,
        TypeId,
    },
};

use crate::{Endpoint, ItemType, ScoreSignal, routing::Router};

/// A policy under the id that platforms see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub id: PolicyId,
    pub key: String,
    pub name: String,
    pub parent_id: Option<PolicyId>,
    /// Text of the policy, for people.
    pub text: Option<String>,
    /// Guidance for moderators who apply it.
    pub guidelines: Option<String>,
    /// Harm of a violation: its own or the nearest ancestor's.
    pub severity: Severity,
    /// Strikes of a violation: its own or the nearest ancestor's.
    pub strikes: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    pub id: ActionId,
    pub name: String,
    pub kind: ActionKind,
    pub strikes: ActionStrikes,
    /// The parameters that have a default, with it.
    pub parameters: Map<String, Value>,
    pub(crate) document: Arc<documents::Action>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// Calls the platform back: at this endpoint, or else at those that take the event.
    Callback { endpoint: Option<EndpointId> },
    /// Opens a job in this queue, or else in the default one.
    EnqueueReview { queue: Option<QueueId> },
    /// Opens a job of child safety in this queue, or else in the one that every organisation has.
    EnqueueChildSafety { queue: Option<QueueId> },
}

impl Action {
    /// Returns what is wrong with parameters that somebody gives to the action.
    pub fn check_parameters(&self, given: &BTreeMap<String, Value>) -> Vec<String> {
        self.document.check_parameters(given)
    }

    /// Returns the endpoint of the callback, if the action names one.
    pub fn endpoint(&self) -> Option<&EndpointId> {
        match &self.kind {
            ActionKind::Callback { endpoint } => endpoint.as_ref(),
            ActionKind::EnqueueReview { .. } | ActionKind::EnqueueChildSafety { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threshold {
    pub key: String,
    /// The sum at which a user has crossed it.
    pub strikes: i64,
    /// Period in which strikes count; without it they always do.
    pub within: Option<Duration>,
    pub action: ActionId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub key: QueueId,
    pub name: String,
    pub document: documents::Queue,
}

/// One version of an organisation's configuration.
#[derive(Debug)]
pub struct Compiled {
    pub(crate) org: OrgId,
    pub(crate) version: ConfigVersion,
    pub(crate) item_types: BTreeMap<TypeId, ItemType>,
    /// Superseded item types with the number of their last version, the oldest first.
    pub(crate) earlier_types: BTreeMap<TypeId, Vec<(u64, ItemType)>>,
    pub(crate) policies: Vec<Policy>,
    /// Places by id and by key.
    pub(crate) policy_places: HashMap<PolicyId, usize>,
    pub(crate) actions: BTreeMap<ActionId, Action>,
    pub(crate) endpoints: BTreeMap<EndpointId, Endpoint>,
    pub(crate) thresholds: Vec<Threshold>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) removed_queues: Vec<Queue>,
    pub(crate) signals: BTreeMap<SignalId, Arc<ScoreSignal>>,
    pub(crate) routing: BTreeMap<RoutingList, Router>,
    pub(crate) plan: Plan,
    /// Rules that their patterns bring to the end of their steps.
    pub(crate) overloaded: usize,
    /// The revisions of the banks whose entries are in the plan.
    pub(crate) banks: BTreeMap<BankId, i64>,
    /// Time when the first of these entries expires.
    pub(crate) bank_expires_at: Option<Millis>,
    /// The banks of hashes as they are configured.
    pub(crate) hash_banks: Vec<Bank>,
    /// Publisher of the organisation's hash banks, whatever the version: entries come and go without a new version.
    pub(crate) hashes: Arc<BankPublisher>,
}

impl Compiled {
    pub fn org(&self) -> &OrgId {
        &self.org
    }

    pub fn version(&self) -> ConfigVersion {
        self.version
    }

    pub fn item_type(&self, id: &TypeId) -> Option<&ItemType> {
        self.item_types.get(id)
    }

    /// Returns the item type as it was in the version that an item names; `None` if it takes no such version.
    ///
    /// A version of which no form is kept is judged as the next one that is kept, or as the current one.
    pub fn item_type_at(&self, id: &TypeId, version: Option<&str>) -> Option<&ItemType> {
        let current = self.item_types.get(id)?;
        let Some(named) = version.filter(|named| *named != current.version) else { return Some(current) };
        if !current.takes_version(named) {
            return None;
        }
        let earlier = self.earlier_types.get(id).map(Vec::as_slice).unwrap_or_default();
        let by_name = earlier.iter().rev().find(|(_, it)| it.version == named);
        let by_number = || {
            let number: u64 = named.parse().ok()?;
            earlier.iter().find(|(last, it)| it.is_numbered() && *last >= number)
        };
        Some(by_name.or_else(by_number).map_or(current, |(_, item_type)| item_type))
    }

    pub fn item_types(&self) -> impl Iterator<Item = &ItemType> {
        self.item_types.values()
    }

    /// Returns the policies in the order of their creation.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Returns the policy with this id or key.
    pub fn policy(&self, named: &PolicyId) -> Option<&Policy> {
        self.policy_places.get(named).map(|place| &self.policies[*place])
    }

    /// Returns the ids of policies that are named by id or key, each once. A name without a policy stays as it is.
    pub fn policy_ids(&self, named: &[PolicyId]) -> Vec<PolicyId> {
        let mut seen = HashSet::new();
        let ids = named.iter().map(|name| self.policy(name).map_or(name, |policy| &policy.id));
        ids.filter(|id| seen.insert(*id)).cloned().collect()
    }

    /// Returns the strikes that an action for these policies gives to the item's creator.
    pub fn strikes(&self, action: &Action, policies: &[PolicyId]) -> i64 {
        match action.strikes {
            ActionStrikes::Points(points) => points.into(),
            ActionStrikes::FromPolicies => policies
                .iter()
                .filter_map(|id| self.policy(id))
                .map(|policy| policy.strikes)
                .max()
                .unwrap_or(0),
        }
    }

    pub fn action(&self, id: &ActionId) -> Option<&Action> {
        self.actions.get(id)
    }

    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.actions.values()
    }

    pub fn endpoint(&self, id: &EndpointId) -> Option<&Endpoint> {
        self.endpoints.get(id)
    }

    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.values()
    }

    /// The endpoints at which events of this type arrive that name none.
    pub fn endpoints_for(&self, event_type: &str) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.values().filter(move |endpoint| endpoint.takes(event_type))
    }

    pub fn thresholds(&self) -> &[Threshold] {
        &self.thresholds
    }

    /// The queues that every organisation has, then its own.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// Queues that a configuration had before, without their settings. Jobs may still wait in them.
    pub fn removed_queues(&self) -> &[Queue] {
        &self.removed_queues
    }

    /// Returns the signal that conditions name as their model.
    pub fn signal(&self, model: &str) -> Option<&Arc<ScoreSignal>> {
        self.signals.get(model)
    }

    /// Returns the routing list for a kind of cause; without one, all jobs go to the default queue.
    pub fn router(&self, list: RoutingList) -> Option<&Router> {
        self.routing.get(&list)
    }

    pub fn queue(&self, id: &QueueId) -> Option<&Queue> {
        self.queues.iter().find(|queue| queue.key == *id)
    }

    /// The banks that media are compared with, as they are now.
    pub fn hash_banks(&self) -> HashBanks {
        self.hashes.current()
    }

    /// True if media are compared as this configuration says. A candidate's comparison may run nowhere.
    pub fn compares_media(&self) -> bool {
        let running = self.hashes.current();
        let runs = |bank: &Bank| running.banks().iter().any(|it| it.is_configured_as(bank));
        self.hash_banks.iter().all(runs)
    }

    /// Compares media with the banks that run for `live`.
    #[must_use]
    pub fn beside(self, live: &Self) -> Self {
        Self { hashes: Arc::clone(&live.hashes), ..self }
    }

    /// Reads what a line says is known beside its item, as an example says it; `beside` names its other keys.
    pub fn example_facts(&self, line: &Value, beside: &[&str]) -> Result<ExampleFacts, Vec<RuleError>> {
        let banks: Vec<_> = self.hash_banks.iter().map(|bank| bank.id.as_str()).collect();
        self.plan.example_facts(line, beside, &banks)
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn rule(&self, id: &RuleId) -> Option<&RuleHead> {
        self.plan.rule(id)
    }
}
