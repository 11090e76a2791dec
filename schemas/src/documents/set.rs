//! All documents of an organisation together: by key, and whether what one names exists in another.
//!
//! It does not compile anything and does not judge addresses or conditions.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Action, ActionStrikes, Bank, Document, DocumentFault, DocumentKind as Kind, Endpoint, FieldDocument,
    ItemType, Missing, Origin, Policy, Queue, QueueClass, Routing, Rule, Signal, Threshold, Window,
    built_in_class,
};
use crate::{
    ids::{ActionId, BankId, EndpointId, QueueId, RuleId, SignalId, TypeId, WindowId},
    item_types::Scalar,
    nearest::{hint, shown},
};

/// The documents of an organisation, each kind by key, each with its origin.
#[derive(Clone, Debug, Default)]
pub struct Set {
    pub item_types: BTreeMap<TypeId, (Origin, ItemType)>,
    pub policies: BTreeMap<String, (Origin, Policy)>,
    pub actions: BTreeMap<ActionId, (Origin, Action)>,
    pub rules: BTreeMap<RuleId, (Origin, Rule)>,
    pub endpoints: BTreeMap<EndpointId, (Origin, Endpoint)>,
    pub thresholds: BTreeMap<String, (Origin, Threshold)>,
    pub queues: BTreeMap<QueueId, (Origin, Queue)>,
    pub routing: BTreeMap<String, (Origin, Routing)>,
    pub windows: BTreeMap<WindowId, (Origin, Window)>,
    pub banks: BTreeMap<BankId, (Origin, Bank)>,
    pub signals: BTreeMap<SignalId, (Origin, Signal)>,
}

impl Set {
    /// Puts documents under their keys; of two with one key and kind, the second is a fault.
    pub fn collect(documents: Vec<(Origin, Document)>) -> Result<Self, Vec<DocumentFault>> {
        let (set, faults) = Self::gather(documents);
        if faults.is_empty() { Ok(set) } else { Err(faults) }
    }

    /// Collects like [`collect`](Self::collect), and returns the set even if there are errors: of two documents with
    /// one key, the first is in the set.
    pub fn gather(documents: Vec<(Origin, Document)>) -> (Self, Vec<DocumentFault>) {
        let mut set = Self::default();
        let mut faults = Vec::new();
        for (origin, document) in documents {
            let (kind, key) = (document.kind().name(), document.key().to_owned());
            if let Some(first) = set.insert(origin.clone(), document) {
                let place =
                    if first.line > 0 { format!("{}:{}", first.file, first.line) } else { first.file };
                faults.push(DocumentFault::new(&origin, kind, format!("`{key}` stands in {place} already.")));
            }
        }
        (set, faults)
    }

    /// Puts a document in unless its key is taken; then says by whom.
    fn insert(&mut self, origin: Origin, document: Document) -> Option<Origin> {
        fn put<K: Ord, T>(
            map: &mut BTreeMap<K, (Origin, T)>,
            key: K,
            origin: Origin,
            document: T,
        ) -> Option<Origin> {
            if let Some((first, _)) = map.get(&key) {
                return Some(first.clone());
            }
            map.insert(key, (origin, document));
            None
        }
        match document {
            Document::ItemType(it) => put(&mut self.item_types, it.key.clone(), origin, it),
            Document::Policy(it) => put(&mut self.policies, it.key.clone(), origin, it),
            Document::Action(it) => put(&mut self.actions, it.key.clone(), origin, it),
            Document::Rule(it) => put(&mut self.rules, it.key.clone(), origin, it),
            Document::Endpoint(it) => put(&mut self.endpoints, it.key.clone(), origin, it),
            Document::Threshold(it) => put(&mut self.thresholds, it.key.clone(), origin, it),
            Document::Queue(it) => put(&mut self.queues, it.key.clone(), origin, it),
            Document::Routing(it) => put(&mut self.routing, it.key.clone(), origin, it),
            Document::Window(it) => put(&mut self.windows, it.key.clone(), origin, it),
            Document::Bank(it) => put(&mut self.banks, it.key.clone(), origin, it),
            Document::Signal(it) => put(&mut self.signals, it.key.clone(), origin, it),
        }
    }

    /// All documents in the order of kinds and keys.
    pub fn documents(&self) -> Vec<(Origin, Document)> {
        fn all<K, T: Clone>(
            map: &BTreeMap<K, (Origin, T)>,
            wrap: fn(T) -> Document,
        ) -> impl Iterator<Item = (Origin, Document)> {
            map.values().map(move |(origin, it)| (origin.clone(), wrap(it.clone())))
        }
        all(&self.item_types, Document::ItemType)
            .chain(all(&self.policies, Document::Policy))
            .chain(all(&self.actions, Document::Action))
            .chain(all(&self.rules, Document::Rule))
            .chain(all(&self.endpoints, Document::Endpoint))
            .chain(all(&self.thresholds, Document::Threshold))
            .chain(all(&self.queues, Document::Queue))
            .chain(all(&self.routing, Document::Routing))
            .chain(all(&self.windows, Document::Window))
            .chain(all(&self.banks, Document::Bank))
            .chain(all(&self.signals, Document::Signal))
            .collect()
    }

    /// Checks that everything a document names exists, and that no policy is its own ancestor.
    pub fn validate(&self) -> Result<(), Vec<DocumentFault>> {
        let mut faults = Vec::new();
        self.check_policies(&mut faults);
        for (origin, action) in self.actions.values() {
            if let Some(endpoint) = &action.endpoint {
                known(&self.endpoints, endpoint.as_str(), Kind::Endpoint, origin, "endpoint", &mut faults);
            }
            if let (Some(queue), Some(class)) = (&action.queue, action.kind.queue_class()) {
                self.check_queue(origin, queue, class, "queue", &mut faults);
            }
        }
        for (origin, threshold) in self.thresholds.values() {
            known(&self.actions, threshold.action.as_str(), Kind::Action, origin, "action", &mut faults);
            if let Some((_, action)) = self.actions.get(&threshold.action) {
                let given = BTreeMap::new();
                let found = action.check_parameters(&given);
                faults.extend(found.into_iter().map(|why| DocumentFault::new(origin, "action", why)));
            }
        }
        for (origin, rule) in self.rules.values() {
            self.check_rule(origin, rule, &mut faults);
        }
        for (origin, window) in self.windows.values() {
            for (index, item_type) in window.item_types.iter().enumerate() {
                let path = format!("item_types[{index}]");
                known(&self.item_types, item_type.as_str(), Kind::ItemType, origin, &path, &mut faults);
            }
        }
        self.check_queues(&mut faults);
        self.check_routing(&mut faults);
        self.check_signals(&mut faults);
        for (origin, bank) in self.banks.values() {
            self.check_bank(origin, bank, &mut faults);
            if let Some(file) = &bank.file {
                let message = format!("There is no file `{}` beside the document.", shown(file));
                faults.push(DocumentFault::new(origin, "file", message));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// A field that a signal sends is one of some item type.
    fn check_signals(&self, faults: &mut Vec<DocumentFault>) {
        let names: BTreeSet<&str> = self
            .item_types
            .values()
            .flat_map(|(_, item_type)| item_type.fields.iter().map(|field| &*field.name))
            .chain(["images"])
            .collect();
        for (origin, signal) in self.signals.values() {
            for (index, field) in signal.fields.iter().enumerate() {
                if !names.contains(field.as_str()) {
                    let near = hint(field, names.iter().copied());
                    let message = format!("No item type has a field `{}`.{near}", shown(field));
                    let missing = Some(Missing::Field);
                    let fault = DocumentFault::new(origin, format!("fields[{index}]"), message);
                    faults.push(DocumentFault { missing, ..fault });
                }
            }
        }
    }

    /// A bank takes back what other banks of hashes say, and what they say is not taken back by themselves.
    fn check_bank(&self, origin: &Origin, bank: &Bank, faults: &mut Vec<DocumentFault>) {
        for (index, other) in bank.suppresses.iter().enumerate() {
            let path = format!("suppresses[{index}]");
            if !known(&self.banks, other.as_str(), Kind::Bank, origin, &path, faults) {
                continue;
            }
            let (_, named) = &self.banks[other];
            if named.kind.hash().is_none() || *other == bank.key || !named.suppresses.is_empty() {
                let message = format!("`{other}` has no matches that could be taken back.");
                faults.push(DocumentFault::new(origin, path, message));
            }
        }
    }

    /// Returns the class of a queue: one of the organisation's own, or one that everybody has.
    fn queue_class(&self, queue: &QueueId) -> Option<QueueClass> {
        let own = || self.queues.get(queue).map(|(_, queue)| queue.class());
        built_in_class(queue.as_str()).or_else(own)
    }

    /// Checks that a queue exists and holds jobs of the class.
    fn check_queue(
        &self,
        origin: &Origin,
        queue: &QueueId,
        wanted: QueueClass,
        path: &str,
        faults: &mut Vec<DocumentFault>,
    ) {
        match self.queue_class(queue) {
            None => drop(known(&self.queues, queue.as_str(), Kind::Queue, origin, path, faults)),
            Some(class) if class != wanted => {
                let (class, wanted) = (class.as_str(), wanted.as_str());
                let message = format!(
                    "Jobs of the class `{wanted}` do not go to `{queue}`: its class is `{class}`. Name another queue."
                );
                faults.push(DocumentFault::new(origin, path, message));
            }
            Some(_) => {}
        }
    }

    fn check_queues(&self, faults: &mut Vec<DocumentFault>) {
        for (origin, queue) in self.queues.values() {
            for (index, action) in queue.hidden_actions.iter().enumerate() {
                let path = format!("hidden_actions[{index}]");
                known(&self.actions, action.as_str(), Kind::Action, origin, &path, faults);
            }
            let Some(reach) = &queue.order.reach else { continue };
            let fields = || self.item_types.values().flat_map(|(_, it)| &it.fields);
            let is_number = |it: &&FieldDocument| it.scalar == Scalar::Number && it.container.is_none();
            if !fields().filter(is_number).any(|it| it.name == reach.field) {
                let near = hint(&reach.field, fields().filter(is_number).map(|it| it.name.as_str()));
                let message = format!("No item type has a NUMBER field `{}`.{near}", shown(&reach.field));
                let missing = Some(Missing::Field);
                let fault = DocumentFault::new(origin, "order.reach.field", message);
                faults.push(DocumentFault { missing, ..fault });
            }
        }
    }

    fn check_routing(&self, faults: &mut Vec<DocumentFault>) {
        for (origin, routing) in self.routing.values() {
            let Some(list) = routing.list() else { continue };
            for (index, entry) in routing.entries.iter().enumerate() {
                let path = format!("entries[{index}].queue");
                self.check_queue(origin, &entry.queue, list.class(), &path, faults);
                for (nth, item_type) in entry.item_types.iter().enumerate() {
                    let path = format!("entries[{index}].item_types[{nth}]");
                    known(&self.item_types, item_type.as_str(), Kind::ItemType, origin, &path, faults);
                }
            }
        }
    }

    fn check_rule(&self, origin: &Origin, rule: &Rule, faults: &mut Vec<DocumentFault>) {
        for (index, item_type) in rule.item_types.iter().enumerate() {
            let path = format!("item_types[{index}]");
            known(&self.item_types, item_type.as_str(), Kind::ItemType, origin, &path, faults);
        }
        for (index, policy) in rule.policies.iter().enumerate() {
            known(&self.policies, policy, Kind::Policy, origin, &format!("policies[{index}]"), faults);
        }
        for (index, taken) in rule.actions.iter().enumerate() {
            let path = format!("actions[{index}]");
            known(&self.actions, taken.id.as_str(), Kind::Action, origin, &path, faults);
            if let Some((_, action)) = self.actions.get(&taken.id) {
                let found = action.check_parameters(&taken.params);
                let path = format!("{path}.params");
                faults.extend(found.into_iter().map(|why| DocumentFault::new(origin, path.clone(), why)));
                if action.strikes == ActionStrikes::FromPolicies && rule.policies.is_empty() {
                    let message = format!(
                        "The strikes of `{}` come from policies, and the rule has none: name its `policies`.",
                        action.key
                    );
                    faults.push(DocumentFault::new(origin, format!("actions[{index}]"), message));
                }
            }
        }
        for (index, test) in rule.tests.iter().enumerate() {
            if let Some(item_type) = &test.item_type {
                let path = format!("tests[{index}].item_type");
                known(&self.item_types, item_type.as_str(), Kind::ItemType, origin, &path, faults);
            }
        }
    }

    fn check_policies(&self, faults: &mut Vec<DocumentFault>) {
        let parent = |key: &str| self.policies.get(key).and_then(|(_, policy)| policy.parent.as_deref());
        let mut reported = BTreeSet::new();
        for (key, (origin, policy)) in &self.policies {
            let Some(first) = policy.parent.as_deref() else { continue };
            if !known(&self.policies, first, Kind::Policy, origin, "parent", faults) {
                continue;
            }
            // A walk that comes back to its start is a cycle; one that gets caught elsewhere is not its fault.
            let mut walk = vec![key.as_str()];
            let mut above = Some(first);
            while let Some(next) = above.filter(|next| !walk.contains(next)) {
                walk.push(next);
                above = parent(next);
            }
            if above == Some(key) && reported.insert(walk.iter().min().copied()) {
                walk.push(key);
                let message = format!("The policy is its own ancestor: {}.", walk.join(" → "));
                faults.push(DocumentFault::new(origin, "parent", message));
            }
        }
    }
}

/// Reports a name that no document of the kind has.
fn known<K: Ord + std::borrow::Borrow<str> + AsRef<str>, T>(
    map: &BTreeMap<K, T>,
    key: &str,
    kind: Kind,
    origin: &Origin,
    path: &str,
    faults: &mut Vec<DocumentFault>,
) -> bool {
    if map.contains_key(key) {
        return true;
    }
    let near = hint(key, map.keys().map(AsRef::as_ref));
    let message = format!("There is no {} `{key}`.{near}", kind.name().replace('_', " "));
    let missing = Some(Missing::Document(kind, key.to_owned()));
    faults.push(DocumentFault { missing, ..DocumentFault::new(origin, path, message) });
    false
}
