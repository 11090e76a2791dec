//! Compiled configuration of an organisation: immutable, one value per version. `compile` builds it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use serde_json::{Map, Value};
use tidegate_media::banks::{Bank, BankPublisher, HashBanks};
use tidegate_rules::{ExampleFacts, Plan, RuleError, RuleHead};
use tidegate_schemas::{
    documents::{self, ActionStrikes, Event, RoutingList, Severity},
    ids::{
        ActionId, BankId, ConfigVersion, EndpointId, Millis, OrgId, PolicyId, QueueId, RuleId, SignalId,
        TypeId,
    },
};

use crate::{Endpoint, ItemType, ScoreSignal, routing::Router};

/// Policy under the id that platforms see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub id: PolicyId,
    pub key: String,
    pub name: String,
    pub parent_id: Option<PolicyId>,
    /// Text of the policy, for people.
    pub text: Option<String>,
    /// Guidance for moderators.
    pub guidelines: Option<String>,
    /// Severity of a violation, inherited from the nearest ancestor that has one.
    pub severity: Severity,
    /// Strikes of a violation, inherited from the nearest ancestor that has a value.
    pub strikes: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    pub id: ActionId,
    pub name: String,
    pub kind: ActionKind,
    pub strikes: ActionStrikes,
    /// Default values of the parameters that have one.
    pub parameters: Map<String, Value>,
    pub(crate) document: Arc<documents::Action>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// Sends a callback to this endpoint, or else to all endpoints that subscribe to the event.
    Callback { endpoint: Option<EndpointId> },
    /// Opens a job in this queue, or else in the default queue.
    EnqueueReview { queue: Option<QueueId> },
    /// Opens a child-safety job in this queue, or else in the built-in one.
    EnqueueChildSafety { queue: Option<QueueId> },
}

impl Action {
    /// Returns the faults of parameters for this action.
    pub fn check_parameters(&self, given: &BTreeMap<String, Value>) -> Vec<String> {
        self.document.check_parameters(given)
    }

    /// Returns the endpoint that the action names.
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
    /// Sum of strikes at which a user crosses the threshold.
    pub strikes: i64,
    /// Period in which strikes count; `None` counts all of them.
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
    /// Indexes in `policies` by id and by key.
    pub(crate) policy_indexes: HashMap<PolicyId, usize>,
    pub(crate) actions: BTreeMap<ActionId, Action>,
    pub(crate) endpoints: BTreeMap<EndpointId, Endpoint>,
    pub(crate) thresholds: Vec<Threshold>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) removed_queues: Vec<Queue>,
    pub(crate) signals: BTreeMap<SignalId, Arc<ScoreSignal>>,
    pub(crate) routing: BTreeMap<RoutingList, Router>,
    pub(crate) plan: Plan,
    /// Number of rules with patterns that can exhaust the step budget.
    pub(crate) overloaded_rules: usize,
    /// Revisions of the banks with entries in the plan.
    pub(crate) banks: BTreeMap<BankId, i64>,
    /// Time at which the first of these entries expires.
    pub(crate) bank_expires_at: Option<Millis>,
    /// Configured hash banks.
    pub(crate) hash_banks: Vec<Bank>,
    /// Publisher of the organisation's hash banks, shared by all versions: entries change without a new
    /// version.
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

    /// Returns the item type in the version that an item names; `None` if the type does not accept that
    /// version.
    ///
    /// A version that is no longer kept is checked against the next kept version, or against the current one.
    pub fn item_type_at(&self, id: &TypeId, version: Option<&str>) -> Option<&ItemType> {
        let current = self.item_types.get(id)?;
        let Some(requested_version) = version.filter(|name| *name != current.version) else {
            return Some(current);
        };
        if !current.accepts_version(requested_version) {
            return None;
        }
        let earlier_versions = self.earlier_types.get(id).map(Vec::as_slice).unwrap_or_default();
        // The newest first, as several versions may have the same name.
        let by_name = earlier_versions.iter().rev().find(|(_, it)| it.version == requested_version);
        let by_number = || {
            let number: u64 = requested_version.parse().ok()?;
            earlier_versions.iter().find(|(last, it)| it.is_numbered() && *last >= number)
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
    pub fn policy(&self, id_or_key: &PolicyId) -> Option<&Policy> {
        self.policy_indexes.get(id_or_key).map(|index| &self.policies[*index])
    }

    /// Resolves policies named by id or key to distinct ids. An unknown name is returned unchanged.
    pub fn policy_ids(&self, ids_or_keys: &[PolicyId]) -> Vec<PolicyId> {
        let mut listed_ids = HashSet::new();
        let ids = ids_or_keys.iter().map(|name| self.policy(name).map_or(name, |policy| &policy.id));
        ids.filter(|id| listed_ids.insert(*id)).cloned().collect()
    }

    /// Returns the strikes that an action for these policies adds to the creator of the item.
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

    /// Returns the endpoints that receive events of this type without an explicit endpoint.
    pub fn endpoints_for(&self, event: Event) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.values().filter(move |endpoint| endpoint.receives(event))
    }

    pub fn thresholds(&self) -> &[Threshold] {
        &self.thresholds
    }

    /// Returns the built-in queues, followed by the organisation's own.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// Returns queues of earlier versions, without their settings. Jobs may still wait in them.
    pub fn removed_queues(&self) -> &[Queue] {
        &self.removed_queues
    }

    /// Returns the signal that conditions name as `model`.
    pub fn signal(&self, model: &str) -> Option<&Arc<ScoreSignal>> {
        self.signals.get(model)
    }

    /// Returns the routing list for a kind of cause. Without one, all jobs are routed to the default queue.
    pub fn router(&self, list: RoutingList) -> Option<&Router> {
        self.routing.get(&list)
    }

    pub fn queue(&self, id: &QueueId) -> Option<&Queue> {
        self.queues.iter().find(|queue| queue.key == *id)
    }

    /// Returns the hash banks that media are compared with now.
    pub fn hash_banks(&self) -> HashBanks {
        self.hashes.current()
    }

    /// True if the live hash banks have the settings of this configuration. Those of a candidate may not be
    /// live.
    pub fn compares_media(&self) -> bool {
        let live_banks = self.hashes.current();
        let is_live = |bank: &Bank| live_banks.banks().iter().any(|it| it.is_configured_as(bank));
        self.hash_banks.iter().all(is_live)
    }

    /// Returns this configuration with the hash banks of `live`, for comparing media in a backtest.
    #[must_use]
    pub fn with_hash_banks_of(self, live: &Self) -> Self {
        Self { hashes: Arc::clone(&live.hashes), ..self }
    }

    /// Parses the facts of an example line; `beside` are the names of its other keys.
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
