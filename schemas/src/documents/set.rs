//! All documents of an organisation by key, with checks of the references between them. Addresses and conditions are
//! checked in `tidegate-catalog` and `tidegate-rules`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Action, ActionStrikes, Bank, Document, DocumentFault, DocumentKind as Kind, Endpoint, FieldDocument,
    ItemType, MissingReference, Origin, Policy, Queue, QueueClass, Routing, Rule, Signal, Threshold, Window,
    built_in_class,
};
use crate::{
    ids::{ActionId, BankId, EndpointId, QueueId, RuleId, SignalId, TypeId, WindowId},
    item_types::Scalar,
    nearest::{hint, truncate_name},
};

/// Documents of an organisation, by kind and key, with their origins.
#[derive(Clone, Debug, Default)]
pub struct DocumentSet {
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

impl DocumentSet {
    /// Builds the set. The second of two documents with the same kind and key is an error.
    pub fn collect(documents: Vec<(Origin, Document)>) -> Result<Self, Vec<DocumentFault>> {
        let (set, faults) = Self::gather(documents);
        if faults.is_empty() { Ok(set) } else { Err(faults) }
    }

    /// Builds the set like [`collect`](Self::collect), and also returns it if there are errors. Of two documents with
    /// the same key, the set contains the first.
    pub fn gather(documents: Vec<(Origin, Document)>) -> (Self, Vec<DocumentFault>) {
        let mut set = Self::default();
        let mut faults = Vec::new();
        for (origin, document) in documents {
            let (kind, key) = (document.kind().name(), document.key().to_owned());
            if let Some(first) = set.insert(origin.clone(), document) {
                let place =
                    if first.line > 0 { format!("{}:{}", first.file, first.line) } else { first.file };
                faults.push(DocumentFault::new(
                    &origin,
                    kind,
                    format!("`{key}` is already defined in {place}."),
                ));
            }
        }
        (set, faults)
    }

    /// Inserts a document. If the key exists, returns the origin of the existing document and inserts none.
    fn insert(&mut self, origin: Origin, document: Document) -> Option<Origin> {
        fn insert_new<K: Ord, T>(
            map: &mut BTreeMap<K, (Origin, T)>,
            key: K,
            origin: Origin,
            document: T,
        ) -> Option<Origin> {
            // The first document stays, so that references to it still resolve.
            if let Some((first, _)) = map.get(&key) {
                return Some(first.clone());
            }
            map.insert(key, (origin, document));
            None
        }
        match document {
            Document::ItemType(it) => insert_new(&mut self.item_types, it.key.clone(), origin, it),
            Document::Policy(it) => insert_new(&mut self.policies, it.key.clone(), origin, it),
            Document::Action(it) => insert_new(&mut self.actions, it.key.clone(), origin, it),
            Document::Rule(it) => insert_new(&mut self.rules, it.key.clone(), origin, it),
            Document::Endpoint(it) => insert_new(&mut self.endpoints, it.key.clone(), origin, it),
            Document::Threshold(it) => insert_new(&mut self.thresholds, it.key.clone(), origin, it),
            Document::Queue(it) => insert_new(&mut self.queues, it.key.clone(), origin, it),
            Document::Routing(it) => insert_new(&mut self.routing, it.key.clone(), origin, it),
            Document::Window(it) => insert_new(&mut self.windows, it.key.clone(), origin, it),
            Document::Bank(it) => insert_new(&mut self.banks, it.key.clone(), origin, it),
            Document::Signal(it) => insert_new(&mut self.signals, it.key.clone(), origin, it),
        }
    }

    /// Returns all documents, ordered by kind and key.
    pub fn documents(&self) -> Vec<(Origin, Document)> {
        fn documents_of<K, T: Clone>(
            map: &BTreeMap<K, (Origin, T)>,
            wrap: fn(T) -> Document,
        ) -> impl Iterator<Item = (Origin, Document)> {
            map.values().map(move |(origin, it)| (origin.clone(), wrap(it.clone())))
        }
        documents_of(&self.item_types, Document::ItemType)
            .chain(documents_of(&self.policies, Document::Policy))
            .chain(documents_of(&self.actions, Document::Action))
            .chain(documents_of(&self.rules, Document::Rule))
            .chain(documents_of(&self.endpoints, Document::Endpoint))
            .chain(documents_of(&self.thresholds, Document::Threshold))
            .chain(documents_of(&self.queues, Document::Queue))
            .chain(documents_of(&self.routing, Document::Routing))
            .chain(documents_of(&self.windows, Document::Window))
            .chain(documents_of(&self.banks, Document::Bank))
            .chain(documents_of(&self.signals, Document::Signal))
            .collect()
    }

    /// Checks that all references resolve, and that no policy is its own ancestor.
    pub fn validate(&self) -> Result<(), Vec<DocumentFault>> {
        let mut faults = Vec::new();
        self.check_policies(&mut faults);
        for (origin, action) in self.actions.values() {
            if let Some(endpoint) = &action.endpoint {
                check_exists(
                    &self.endpoints,
                    endpoint.as_str(),
                    Kind::Endpoint,
                    origin,
                    "endpoint",
                    &mut faults,
                );
            }
            if let (Some(queue), Some(class)) = (&action.queue, action.kind.queue_class()) {
                self.check_queue(origin, queue, class, "queue", &mut faults);
            }
        }
        for (origin, threshold) in self.thresholds.values() {
            check_exists(
                &self.actions,
                threshold.action.as_str(),
                Kind::Action,
                origin,
                "action",
                &mut faults,
            );
            if let Some((_, action)) = self.actions.get(&threshold.action) {
                // A threshold passes no arguments, so its action must not require any.
                let no_arguments = BTreeMap::new();
                let messages = action.check_parameters(&no_arguments);
                faults.extend(messages.into_iter().map(|why| DocumentFault::new(origin, "action", why)));
            }
        }
        for (origin, rule) in self.rules.values() {
            self.check_rule(origin, rule, &mut faults);
        }
        for (origin, window) in self.windows.values() {
            for (index, item_type) in window.item_types.iter().enumerate() {
                let path = format!("item_types[{index}]");
                check_exists(
                    &self.item_types,
                    item_type.as_str(),
                    Kind::ItemType,
                    origin,
                    &path,
                    &mut faults,
                );
            }
        }
        self.check_queues(&mut faults);
        self.check_routing(&mut faults);
        self.check_signals(&mut faults);
        for (origin, bank) in self.banks.values() {
            self.check_bank(origin, bank, &mut faults);
            if let Some(file) = &bank.file {
                let message = format!(
                    "The file `{}` does not exist. Its path is relative to the document.",
                    truncate_name(file)
                );
                faults.push(DocumentFault::new(origin, "file", message));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// Checks that each field of a signal is a field of an item type.
    fn check_signals(&self, faults: &mut Vec<DocumentFault>) {
        let names: BTreeSet<&str> = self
            .item_types
            .values()
            .flat_map(|(_, item_type)| item_type.fields.iter().map(|field| &*field.name))
            // All item types have `images` without declaring it.
            .chain(["images"])
            .collect();
        for (origin, signal) in self.signals.values() {
            for (index, field) in signal.fields.iter().enumerate() {
                if !names.contains(field.as_str()) {
                    let suggestion = hint(field, names.iter().copied());
                    let message = format!("No item type has a field `{}`.{suggestion}", truncate_name(field));
                    let missing_name = Some(MissingReference::Field);
                    let fault = DocumentFault::new(origin, format!("fields[{index}]"), message);
                    faults.push(DocumentFault { missing: missing_name, ..fault });
                }
            }
        }
    }

    /// Checks that a bank suppresses only other banks of hashes that suppress none themselves: with chains, the result
    /// would depend on the order of the banks.
    fn check_bank(&self, origin: &Origin, bank: &Bank, faults: &mut Vec<DocumentFault>) {
        for (index, other) in bank.suppresses.iter().enumerate() {
            let path = format!("suppresses[{index}]");
            if !check_exists(&self.banks, other.as_str(), Kind::Bank, origin, &path, faults) {
                continue;
            }
            let (_, suppressed_bank) = &self.banks[other];
            if suppressed_bank.kind.hash_kind().is_none()
                || *other == bank.key
                || !suppressed_bank.suppresses.is_empty()
            {
                let message = format!(
                    "`{other}` cannot be suppressed: only another bank of hashes without `suppresses` can."
                );
                faults.push(DocumentFault::new(origin, path, message));
            }
        }
    }

    /// Returns the class of a queue, built-in or defined by a document.
    fn queue_class(&self, queue: &QueueId) -> Option<QueueClass> {
        let own_class = || self.queues.get(queue).map(|(_, queue)| queue.class());
        // Built-in queues exist without a document.
        built_in_class(queue.as_str()).or_else(own_class)
    }

    /// Checks that a queue exists and holds jobs of the class.
    fn check_queue(
        &self,
        origin: &Origin,
        queue: &QueueId,
        required_class: QueueClass,
        path: &str,
        faults: &mut Vec<DocumentFault>,
    ) {
        match self.queue_class(queue) {
            None => drop(check_exists(&self.queues, queue.as_str(), Kind::Queue, origin, path, faults)),
            Some(class) if class != required_class => {
                let (class, required_class) = (class.as_str(), required_class.as_str());
                let message = format!(
                    "The queue `{queue}` has the class `{class}`, but the jobs have the class `{required_class}`. Name another queue."
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
                check_exists(&self.actions, action.as_str(), Kind::Action, origin, &path, faults);
            }
            let Some(reach) = &queue.order.reach else { continue };
            let fields = || self.item_types.values().flat_map(|(_, it)| &it.fields);
            let is_number = |it: &&FieldDocument| it.scalar == Scalar::Number && it.container.is_none();
            if !fields().filter(is_number).any(|it| it.name == reach.field) {
                let suggestion = hint(&reach.field, fields().filter(is_number).map(|it| it.name.as_str()));
                let message =
                    format!("No item type has a NUMBER field `{}`.{suggestion}", truncate_name(&reach.field));
                let missing_name = Some(MissingReference::Field);
                let fault = DocumentFault::new(origin, "order.reach.field", message);
                faults.push(DocumentFault { missing: missing_name, ..fault });
            }
        }
    }

    fn check_routing(&self, faults: &mut Vec<DocumentFault>) {
        for (origin, routing) in self.routing.values() {
            // An unknown list is already reported by the check of the document.
            let Some(list) = routing.list() else { continue };
            for (index, entry) in routing.entries.iter().enumerate() {
                let path = format!("entries[{index}].queue");
                self.check_queue(origin, &entry.queue, list.class(), &path, faults);
                for (nth, item_type) in entry.item_types.iter().enumerate() {
                    let path = format!("entries[{index}].item_types[{nth}]");
                    check_exists(&self.item_types, item_type.as_str(), Kind::ItemType, origin, &path, faults);
                }
            }
        }
    }

    fn check_rule(&self, origin: &Origin, rule: &Rule, faults: &mut Vec<DocumentFault>) {
        for (index, item_type) in rule.item_types.iter().enumerate() {
            let path = format!("item_types[{index}]");
            check_exists(&self.item_types, item_type.as_str(), Kind::ItemType, origin, &path, faults);
        }
        for (index, policy) in rule.policies.iter().enumerate() {
            check_exists(&self.policies, policy, Kind::Policy, origin, &format!("policies[{index}]"), faults);
        }
        for (index, rule_action) in rule.actions.iter().enumerate() {
            let path = format!("actions[{index}]");
            check_exists(&self.actions, rule_action.id.as_str(), Kind::Action, origin, &path, faults);
            if let Some((_, action)) = self.actions.get(&rule_action.id) {
                let messages = action.check_parameters(&rule_action.params);
                let path = format!("{path}.params");
                faults.extend(messages.into_iter().map(|why| DocumentFault::new(origin, path.clone(), why)));
                if action.strikes == ActionStrikes::FromPolicies && rule.policies.is_empty() {
                    let message = format!(
                        "The action `{}` takes its strikes from policies, but the rule has none. Add `policies` to the rule.",
                        action.key
                    );
                    faults.push(DocumentFault::new(origin, format!("actions[{index}]"), message));
                }
            }
        }
        for (index, test) in rule.tests.iter().enumerate() {
            if let Some(item_type) = &test.item_type {
                let path = format!("tests[{index}].item_type");
                check_exists(&self.item_types, item_type.as_str(), Kind::ItemType, origin, &path, faults);
            }
        }
    }

    fn check_policies(&self, faults: &mut Vec<DocumentFault>) {
        let parent = |key: &str| self.policies.get(key).and_then(|(_, policy)| policy.parent.as_deref());
        let mut reported = BTreeSet::new();
        for (key, (origin, policy)) in &self.policies {
            let Some(first) = policy.parent.as_deref() else { continue };
            if !check_exists(&self.policies, first, Kind::Policy, origin, "parent", faults) {
                continue;
            }
            // A path back to its start is a cycle. A path that ends in another cycle is reported for the policies of
            // that cycle.
            let mut path = vec![key.as_str()];
            let mut ancestor = Some(first);
            while let Some(next) = ancestor.filter(|next| !path.contains(next)) {
                path.push(next);
                ancestor = parent(next);
            }
            // A cycle is reported once, although the walk finds it from each of its policies.
            if ancestor == Some(key) && reported.insert(path.iter().min().copied()) {
                path.push(key);
                let message = format!("The policy is its own ancestor: {}.", path.join(" → "));
                faults.push(DocumentFault::new(origin, "parent", message));
            }
        }
    }
}

/// Reports an error unless a document with this key exists. Returns true if it exists.
fn check_exists<K: Ord + std::borrow::Borrow<str> + AsRef<str>, T>(
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
    let suggestion = hint(key, map.keys().map(AsRef::as_ref));
    let message = format!("There is no {} `{key}`.{suggestion}", kind.name().replace('_', " "));
    let missing_name = Some(MissingReference::Document(kind, key.to_owned()));
    faults.push(DocumentFault { missing: missing_name, ..DocumentFault::new(origin, path, message) });
    false
}
