//! Compiles documents to what runs, with every fault and warning at its document.
//!
//! It reads no store and judges no address; see `change::check` for what only new documents are held to.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tidegate_media::banks::{BankPublisher, entry_id};
use tidegate_rules::{self as rules, Limits, Plan, RuleSource, Vocabulary};
use tidegate_schemas::{
    banks::BankKind,
    documents::{self, DocumentFault, Origin, RoutingList},
    hex,
    ids::{BankId, ConfigVersion, Kind as IdKind, OrgId, PolicyId, QueueId, TypeId, derive},
    item_types,
};
use uuid::Uuid;

use crate::{
    Endpoint, ItemType, ScoreSignal,
    banks::hashes,
    compiled::{Action, ActionKind, Compiled, Policy, Queue, Threshold},
    content::{Content, EarlierType},
    error::path,
    routing::Router,
};

/// The queues that every organisation has.
const BUILT_IN_QUEUES: [(&str, &str); 3] =
    [("default", "Default"), ("appeals", "Appeals"), ("child-safety", "Child safety")];

/// Bank entries beside those of documents, by id; `None` if the bank is switched off, documents and all.
pub(crate) type BankEntries = BTreeMap<BankId, Option<Arc<[rules::BankEntry]>>>;

pub(crate) fn compile(
    org: &OrgId,
    version: ConfigVersion,
    content: &Content,
    entries: &BankEntries,
    limits: &Limits,
    variable_prefix: &str,
) -> Result<Compiled, Vec<DocumentFault>> {
    let set = &content.set;
    let item_types = item_types(content);
    let policies = policies(org, content);
    let vocabulary = vocabulary(content, entries, &item_types);
    let (plan, routing) =
        match (plan(org, content, &vocabulary, limits), routing(content, &vocabulary, limits)) {
            (Ok(plan), Ok(routing)) => (plan, routing),
            (plan, routing) => {
                let mut faults = plan.err().unwrap_or_default();
                faults.extend(routing.err().unwrap_or_default());
                return Err(faults);
            }
        };
    let queues = queues(content);
    Ok(Compiled {
        org: org.clone(),
        version,
        policy_places: policy_places(&policies),
        item_types,
        earlier_types: earlier_types(content),
        policies,
        actions: set.actions.iter().map(|(id, (_, it))| (id.clone(), action(it))).collect(),
        endpoints: set
            .endpoints
            .iter()
            .map(|(id, (_, it))| (id.clone(), Endpoint::new(it, variable_prefix)))
            .collect(),
        thresholds: set.thresholds.values().map(|(_, it)| threshold(it)).collect(),
        removed_queues: removed_queues(content, &queues),
        queues,
        signals: set
            .signals
            .iter()
            .map(|(id, (_, it))| (id.clone(), Arc::new(ScoreSignal::new(it, variable_prefix))))
            .collect(),
        routing,
        plan,
        overloaded: 0,
        banks: BTreeMap::new(),
        bank_expires_at: None,
        hash_banks: hashes::configured(&hashes::documents(content)),
        hashes: Arc::new(BankPublisher::new(tidegate_media::banks::Settings::default())),
    })
}

/// Returns warnings about rules of the compiled configuration that are allowed but hardly meant.
pub(crate) fn warnings(content: &Content, compiled: &Compiled) -> Vec<(&'static str, DocumentFault)> {
    let told = compiled.plan.warnings();
    let mut all: Vec<_> = told
        .iter()
        .map(|it| (it.tag(), place(content, it.kind, &it.rule, &it.pointer, &it.detail)))
        .collect();
    for (list, router) in &compiled.routing {
        let Some((origin, _)) = content.set.routing.get(list.as_str()) else { continue };
        let told = router.warnings().into_iter().map(|(tag, index, path, detail)| {
            (tag, DocumentFault::new(origin, format!("entries[{index}].{path}"), detail))
        });
        all.extend(told);
    }
    all
}

/// Keeps a bounded number of warnings of each kind, and says how many more there are.
pub(crate) fn listed(warnings: Vec<(&'static str, DocumentFault)>, each: usize) -> Vec<DocumentFault> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut listed = Vec::new();
    for (kind, warning) in warnings {
        let count = counts.entry(kind).or_default();
        *count += 1;
        if *count <= each {
            listed.push(warning);
        }
    }
    for (kind, count) in counts.into_iter().filter(|(_, count)| *count > each) {
        listed.push(general(format!("And {} more warnings of the kind `{kind}`.", count - each)));
    }
    listed
}

/// Returns an error about all documents together.
fn general(message: String) -> DocumentFault {
    DocumentFault::new(&Origin::default(), "", message)
}

/// Patterns in the documents of banks that are none. They are left out where the documents run already.
pub(crate) fn pattern_faults(content: &Content, limits: &Limits) -> Vec<DocumentFault> {
    let banks = content.set.banks.values().filter(|(_, bank)| bank.kind == BankKind::Regex);
    let faults = banks.flat_map(|(origin, bank)| {
        (0..).zip(&bank.entries).filter_map(move |(nth, entry): (usize, _)| {
            let why = rules::pattern_error(entry.trim(), limits)?;
            let why = why.strip_prefix("it ").unwrap_or(&why);
            Some(DocumentFault::new(origin, format!("entries[{nth}]"), format!("The pattern {why}.")))
        })
    });
    faults.collect()
}

/// Returns an error at its place in the documents.
fn place(content: &Content, kind: &str, key: &str, pointer: &str, detail: &str) -> DocumentFault {
    let set = &content.set;
    // A key that is blank is a fault at its place.
    if key.is_empty() && pointer.is_empty() {
        return general(detail.to_owned());
    }
    let origin = match kind {
        "bank" => set.banks.get(key).map(|(origin, _)| origin.clone()),
        "window" => set.windows.get(key).map(|(origin, _)| origin.clone()),
        _ => set.rules.get(key).map(|(origin, _)| origin.clone()),
    };
    DocumentFault::new(&origin.unwrap_or_default(), path(pointer), detail)
}

/// The id that platforms see: the same for a key for ever.
pub(crate) fn policy_id(org: &OrgId, key: &str) -> PolicyId {
    let id: Uuid = derive(IdKind::Policy, &[org.as_str().as_bytes(), key.as_bytes()]);
    PolicyId::new(id.to_string())
}

fn item_types(content: &Content) -> BTreeMap<TypeId, ItemType> {
    let types: Arc<[TypeId]> = content.set.item_types.keys().cloned().collect();
    let compiled = content.set.item_types.iter().map(|(id, (_, document))| {
        let version = content.type_versions.get(id).copied().unwrap_or(1).to_string();
        let inner = item_types::ItemType::compile(document, &version, &types);
        (id.clone(), ItemType::new(inner))
    });
    compiled.collect()
}

fn earlier_types(content: &Content) -> BTreeMap<TypeId, Vec<(u64, ItemType)>> {
    let types: Arc<[TypeId]> = content.set.item_types.keys().cloned().collect();
    let compiled = |earlier: &EarlierType| {
        let number = earlier.number;
        let inner = item_types::ItemType::compile(&earlier.document, &number.to_string(), &types);
        (number, ItemType::new(inner))
    };
    let forms = |forms: &Vec<EarlierType>| forms.iter().map(compiled).collect();
    content.earlier_types.iter().map(|(id, earlier)| (id.clone(), forms(earlier))).collect()
}

fn policies(org: &OrgId, content: &Content) -> Vec<Policy> {
    let existing = content.policy_order.iter().filter_map(|key| content.set.policies.get(key));
    let policy = |(_, document): &(Origin, documents::Policy)| Policy {
        id: policy_id(org, &document.key),
        key: document.key.clone(),
        name: document.display_name().to_owned(),
        parent_id: document.parent.as_deref().map(|key| policy_id(org, key)),
        text: document.text.clone(),
        guidelines: document.guidelines.clone(),
        severity: inherited(content, document, |policy| policy.severity).unwrap_or_default(),
        strikes: inherited(content, document, |policy| policy.strikes).unwrap_or(0).into(),
    };
    existing.map(policy).collect()
}

/// Returns the place of each policy by its id and by its key.
fn policy_places(policies: &[Policy]) -> HashMap<PolicyId, usize> {
    let by_key = policies.iter().enumerate().map(|(place, it)| (PolicyId::new(&it.key), place));
    let by_id = policies.iter().enumerate().map(|(place, it)| (it.id.clone(), place));
    // Ids come last: a key that looks like the id of another policy must not hide that one.
    by_key.chain(by_id).collect()
}

/// Returns a value of the policy or of its nearest ancestor that has it.
fn inherited<T>(
    content: &Content,
    policy: &documents::Policy,
    value: impl Fn(&documents::Policy) -> Option<T>,
) -> Option<T> {
    let parent = |policy: &&documents::Policy| {
        content.set.policies.get(policy.parent.as_deref()?).map(|(_, document)| document)
    };
    // Documents that are only checked may name an ancestor in a circle, which the check reports.
    let longest = content.set.policies.len();
    std::iter::successors(Some(policy), parent).take(longest).find_map(value)
}

fn action(document: &documents::Action) -> Action {
    let default = |it: &documents::Parameter| Some((it.name.clone(), it.default.clone()?));
    Action {
        id: document.key.clone(),
        name: document.display_name().to_owned(),
        kind: match document.kind {
            documents::ActionKind::Callback => ActionKind::Callback { endpoint: document.endpoint.clone() },
            documents::ActionKind::EnqueueReview => {
                ActionKind::EnqueueReview { queue: document.queue.clone() }
            }
            documents::ActionKind::EnqueueChildSafety => {
                ActionKind::EnqueueChildSafety { queue: document.queue.clone() }
            }
        },
        strikes: document.strikes,
        parameters: document.parameters.iter().filter_map(default).collect(),
        document: Arc::new(document.clone()),
    }
}

fn threshold(document: &documents::Threshold) -> Threshold {
    Threshold {
        key: document.key.clone(),
        strikes: document.strikes.into(),
        within: Some(document.within.duration()),
        action: document.action.clone(),
    }
}

fn queues(content: &Content) -> Vec<Queue> {
    let built_in = BUILT_IN_QUEUES.iter().map(|(key, name)| match content.set.queues.get(*key) {
        Some((_, document)) => queue(document),
        None => {
            let key = QueueId::new(key);
            Queue { name: (*name).to_owned(), document: documents::Queue::plain(key.clone()), key }
        }
    });
    let own = content
        .set
        .queues
        .values()
        .filter(|(_, it)| BUILT_IN_QUEUES.iter().all(|(key, _)| *key != it.key.as_str()));
    built_in.chain(own.map(|(_, document)| queue(document))).collect()
}

fn removed_queues(content: &Content, present: &[Queue]) -> Vec<Queue> {
    // The queues that every organisation has stay when their documents go.
    let removed = content.removed_queues.iter().filter(|(key, _)| present.iter().all(|it| it.key != **key));
    removed
        .map(|(key, class)| {
            queue(&documents::Queue { class: Some(*class), ..documents::Queue::plain(key.clone()) })
        })
        .collect()
}

fn queue(document: &documents::Queue) -> Queue {
    Queue { key: document.key.clone(), name: document.display_name().to_owned(), document: document.clone() }
}

fn routing(
    content: &Content,
    vocabulary: &Vocabulary,
    limits: &Limits,
) -> Result<BTreeMap<RoutingList, Router>, Vec<DocumentFault>> {
    let types: Vec<TypeId> = content.set.item_types.keys().cloned().collect();
    let (mut routers, mut faults) = (BTreeMap::new(), Vec::new());
    for document in content.set.routing.values() {
        // A list that is none is refused when the document is read.
        let Some(list) = document.1.list() else { continue };
        match Router::compile(list, document, &types, vocabulary.clone(), limits) {
            Ok(router) => drop(routers.insert(list, router)),
            Err(found) => faults.extend(found),
        }
    }
    if faults.is_empty() { Ok(routers) } else { Err(faults) }
}

/// The names that conditions may use.
fn vocabulary(
    content: &Content,
    entries: &BankEntries,
    item_types: &BTreeMap<TypeId, ItemType>,
) -> Vocabulary {
    let mut vocabulary = Vocabulary::of(item_types.values().map(|item_type| &**item_type));
    for (_, window) in content.set.windows.values() {
        vocabulary.window(form(window));
    }
    for (key, (_, document)) in &content.set.banks {
        vocabulary.bank(bank(key, document, entries.get(key)));
    }
    vocabulary
}

fn plan(
    org: &OrgId,
    content: &Content,
    vocabulary: &Vocabulary,
    limits: &Limits,
) -> Result<Plan, Vec<DocumentFault>> {
    let documents: Vec<(Value, String)> =
        content.set.rules.values().map(|(_, rule)| (rule_form(org, rule), content_hash(rule))).collect();
    let sources: Vec<RuleSource<'_>> =
        documents.iter().map(|(document, version)| RuleSource { document, version }).collect();
    Plan::compile(&sources, vocabulary, limits).map_err(|faults| {
        let placed = |it: &rules::RuleError| place(content, it.kind, &it.rule, &it.pointer, &it.detail);
        faults.iter().map(|it| DocumentFault { missing: it.missing.clone(), ..placed(it) }).collect()
    })
}

fn form(document: &impl serde::Serialize) -> Value {
    serde_json::to_value(document).expect("documents have string keys and finite numbers only")
}

/// The entries of its document, and those that were added to it.
fn bank(
    key: &BankId,
    document: &documents::Bank,
    added: Option<&Option<Arc<[rules::BankEntry]>>>,
) -> rules::Bank {
    let kind = document.kind;
    // Rules speak of hashes by their bank's name; what is in it is found before they are asked.
    if kind.hash().is_some() || matches!(added, Some(None)) {
        return rules::Bank { key: key.clone(), kind, entries: [].into() };
    }
    let added = added.and_then(Option::as_ref);
    if let Some(added) = added.filter(|_| document.entries.is_empty()) {
        // The usual case of a large bank, whose entries then stay one list.
        return rules::Bank { key: key.clone(), kind, entries: Arc::clone(added) };
    }
    // Checked when the document was read.
    let values = document.entries.iter().filter_map(|value| kind.canonical(value).ok());
    let written = values.map(|value| {
        let id = entry_id(key, kind, &value);
        (id, rules::BankEntry { id, value: value.into(), labels: Arc::default() })
    });
    let mut entries: BTreeMap<_, _> = written.collect();
    entries.extend(added.into_iter().flat_map(|added| added.iter().map(|entry| (entry.id, entry.clone()))));
    rules::Bank { key: key.clone(), kind, entries: entries.into_values().collect() }
}

/// The rule as `rules` reads it: policies by id, actions in their long form.
fn rule_form(org: &OrgId, rule: &documents::Rule) -> Value {
    let mut form = form(rule);
    if !rule.policies.is_empty() {
        form["policies"] = rule.policies.iter().map(|key| json!(policy_id(org, key))).collect();
    }
    if !rule.actions.is_empty() {
        let long = |it: &documents::RuleAction| json!({"id": it.id, "params": it.params});
        form["actions"] = rule.actions.iter().map(long).collect();
    }
    form
}

/// Returns the hash under which a rule's matches are counted.
fn content_hash(rule: &documents::Rule) -> String {
    let text = serde_json::to_vec(rule).expect("documents have string keys and finite numbers only");
    hex(&Sha256::digest(text)[..8])
}
