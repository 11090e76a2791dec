//! Compiles documents to a runnable configuration, with every fault and warning at its document.
//!
//! Checks that apply to new documents only, such as those of addresses, live in `change::check`.

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
    error::document_path,
    routing::Router,
};

/// The queues that every organisation has.
const BUILT_IN_QUEUES: [(&str, &str); 3] =
    [("default", "Default"), ("appeals", "Appeals"), ("child-safety", "Child safety")];

/// Stored entries of each bank, in addition to the values of its document. `None` if the bank is switched off; the values of its
/// document do not count then either.
pub(crate) type BankEntries = BTreeMap<BankId, Option<Arc<[rules::BankEntry]>>>;

/// Compiles a version of a configuration. Headers of endpoints and signals may name environment variables that begin with
/// `variable_prefix`.
pub(crate) fn compile(
    org: &OrgId,
    version: ConfigVersion,
    content: &Content,
    entries: &BankEntries,
    limits: &Limits,
    variable_prefix: &str,
) -> Result<Compiled, Vec<DocumentFault>> {
    let set = &content.set;
    let item_types = compile_item_types(content);
    let policies = build_policies(org, content);
    let vocabulary = build_vocabulary(content, entries, &item_types);
    let (plan, routing) = match (
        compile_plan(org, content, &vocabulary, limits),
        compile_routing(content, &vocabulary, limits),
    ) {
        (Ok(plan), Ok(routing)) => (plan, routing),
        // Faults of both are collected, so that one attempt reports all of them.
        (plan, routing) => {
            let mut faults = plan.err().unwrap_or_default();
            faults.extend(routing.err().unwrap_or_default());
            return Err(faults);
        }
    };
    let queues = build_queues(content);
    Ok(Compiled {
        org: org.clone(),
        version,
        policy_indexes: index_policies(&policies),
        item_types,
        earlier_types: compile_earlier_types(content),
        policies,
        actions: set.actions.iter().map(|(id, (_, it))| (id.clone(), build_action(it))).collect(),
        endpoints: set
            .endpoints
            .iter()
            .map(|(id, (_, it))| (id.clone(), Endpoint::new(it, variable_prefix)))
            .collect(),
        thresholds: set.thresholds.values().map(|(_, it)| build_threshold(it)).collect(),
        removed_queues: build_removed_queues(content, &queues),
        queues,
        signals: set
            .signals
            .iter()
            .map(|(id, (_, it))| (id.clone(), Arc::new(ScoreSignal::new(it, variable_prefix))))
            .collect(),
        routing,
        plan,
        // `live` fills in these values for a configuration that it runs.
        overloaded_rules: 0,
        banks: BTreeMap::new(),
        bank_expires_at: None,
        hash_banks: hashes::banks_from_documents(&hashes::collect_documents(content)),
        hashes: Arc::new(BankPublisher::new(tidegate_media::banks::Settings::default())),
    })
}

/// Collects warnings about rules and routing that are valid but probably unintended.
pub(crate) fn collect_warnings(content: &Content, compiled: &Compiled) -> Vec<(&'static str, DocumentFault)> {
    let plan_warnings = compiled.plan.warnings();
    let mut all_warnings: Vec<_> = plan_warnings
        .iter()
        .map(|it| (it.tag(), fault_at(content, it.kind, &it.rule, &it.pointer, &it.detail)))
        .collect();
    for (list, router) in &compiled.routing {
        let Some((origin, _)) = content.set.routing.get(list.as_str()) else { continue };
        let routing_warnings = router.warnings().into_iter().map(|(tag, index, path, detail)| {
            (tag, DocumentFault::new(origin, format!("entries[{index}].{path}"), detail))
        });
        all_warnings.extend(routing_warnings);
    }
    all_warnings
}

/// Keeps a bounded number of warnings of each kind, and appends a count of those dropped.
pub(crate) fn limit_warnings(
    warnings: Vec<(&'static str, DocumentFault)>,
    max_per_kind: usize,
) -> Vec<DocumentFault> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut listed_warnings = Vec::new();
    for (kind, warning) in warnings {
        let count = counts.entry(kind).or_default();
        *count += 1;
        if *count <= max_per_kind {
            listed_warnings.push(warning);
        }
    }
    for (kind, count) in counts.into_iter().filter(|(_, count)| *count > max_per_kind) {
        listed_warnings
            .push(general_fault(format!("And {} more warnings of the kind `{kind}`.", count - max_per_kind)));
    }
    listed_warnings
}

/// Returns a fault about all documents together.
fn general_fault(message: String) -> DocumentFault {
    DocumentFault::new(&Origin::default(), "", message)
}

/// Finds invalid patterns in the documents of regex banks. Stored configurations ignore them, so only changes
/// are refused.
pub(crate) fn find_pattern_faults(content: &Content, limits: &Limits) -> Vec<DocumentFault> {
    let banks = content.set.banks.values().filter(|(_, bank)| bank.kind == BankKind::Regex);
    let faults = banks.flat_map(|(origin, bank)| {
        (0..).zip(&bank.entries).filter_map(move |(index, entry): (usize, _)| {
            let reason = rules::pattern_error(entry.trim(), limits)?;
            // Faults of the rule engine begin with `it`, which the sentence below replaces.
            let reason = reason.strip_prefix("it ").unwrap_or(&reason);
            Some(DocumentFault::new(origin, format!("entries[{index}]"), format!("The pattern {reason}.")))
        })
    });
    faults.collect()
}

/// Returns a fault at the document that it concerns.
fn fault_at(content: &Content, kind: &str, key: &str, pointer: &str, detail: &str) -> DocumentFault {
    let set = &content.set;
    // A document with a blank key cannot be named, so the fault has no document.
    if key.is_empty() && pointer.is_empty() {
        return general_fault(detail.to_owned());
    }
    let origin = match kind {
        "bank" => set.banks.get(key).map(|(origin, _)| origin.clone()),
        "window" => set.windows.get(key).map(|(origin, _)| origin.clone()),
        _ => set.rules.get(key).map(|(origin, _)| origin.clone()),
    };
    DocumentFault::new(&origin.unwrap_or_default(), document_path(pointer), detail)
}

/// Derives the id that platforms see. A key always has the same id.
pub(crate) fn derive_policy_id(org: &OrgId, key: &str) -> PolicyId {
    let id: Uuid = derive(IdKind::Policy, &[org.as_str().as_bytes(), key.as_bytes()]);
    PolicyId::new(id.to_string())
}

fn compile_item_types(content: &Content) -> BTreeMap<TypeId, ItemType> {
    let types: Arc<[TypeId]> = content.set.item_types.keys().cloned().collect();
    let compiled = content.set.item_types.iter().map(|(id, (_, document))| {
        let version = content.type_versions.get(id).copied().unwrap_or(1).to_string();
        let inner = item_types::ItemType::compile(document, &version, &types);
        (id.clone(), ItemType::new(inner))
    });
    compiled.collect()
}

fn compile_earlier_types(content: &Content) -> BTreeMap<TypeId, Vec<(u64, ItemType)>> {
    let types: Arc<[TypeId]> = content.set.item_types.keys().cloned().collect();
    let compile_form = |earlier: &EarlierType| {
        let number = earlier.number;
        let inner = item_types::ItemType::compile(&earlier.document, &number.to_string(), &types);
        (number, ItemType::new(inner))
    };
    let compile_forms = |forms: &Vec<EarlierType>| forms.iter().map(compile_form).collect();
    content.earlier_types.iter().map(|(id, forms)| (id.clone(), compile_forms(forms))).collect()
}

fn build_policies(org: &OrgId, content: &Content) -> Vec<Policy> {
    // A removed policy keeps its place in the order, but has no document.
    let existing = content.policy_order.iter().filter_map(|key| content.set.policies.get(key));
    let policy = |(_, document): &(Origin, documents::Policy)| Policy {
        id: derive_policy_id(org, &document.key),
        key: document.key.clone(),
        name: document.display_name().to_owned(),
        parent_id: document.parent.as_deref().map(|key| derive_policy_id(org, key)),
        text: document.text.clone(),
        guidelines: document.guidelines.clone(),
        severity: inherited_value(content, document, |policy| policy.severity).unwrap_or_default(),
        strikes: inherited_value(content, document, |policy| policy.strikes).unwrap_or(0).into(),
    };
    existing.map(policy).collect()
}

/// Indexes policies by id and by key.
fn index_policies(policies: &[Policy]) -> HashMap<PolicyId, usize> {
    let by_key = policies.iter().enumerate().map(|(index, it)| (PolicyId::new(&it.key), index));
    let by_id = policies.iter().enumerate().map(|(index, it)| (it.id.clone(), index));
    // Ids overwrite keys: a key that looks like the id of another policy must not hide that policy.
    by_key.chain(by_id).collect()
}

/// Returns a value of the policy or of its nearest ancestor that has one.
fn inherited_value<T>(
    content: &Content,
    policy: &documents::Policy,
    value: impl Fn(&documents::Policy) -> Option<T>,
) -> Option<T> {
    let parent = |policy: &&documents::Policy| {
        content.set.policies.get(policy.parent.as_deref()?).map(|(_, document)| document)
    };
    // Documents that are only checked may contain a cycle of parents, which validation reports.
    let max_depth = content.set.policies.len();
    std::iter::successors(Some(policy), parent).take(max_depth).find_map(value)
}

fn build_action(document: &documents::Action) -> Action {
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

fn build_threshold(document: &documents::Threshold) -> Threshold {
    Threshold {
        key: document.key.clone(),
        strikes: document.strikes.into(),
        within: Some(document.within.duration()),
        action: document.action.clone(),
    }
}

fn build_queues(content: &Content) -> Vec<Queue> {
    let built_in = BUILT_IN_QUEUES.iter().map(|(key, name)| match content.set.queues.get(*key) {
        Some((_, document)) => build_queue(document),
        None => {
            let key = QueueId::new(key);
            Queue { name: (*name).to_owned(), document: documents::Queue::plain(key.clone()), key }
        }
    });
    // A document with the key of a built-in queue replaces that queue, and adds none.
    let custom_queues = content
        .set
        .queues
        .values()
        .filter(|(_, it)| BUILT_IN_QUEUES.iter().all(|(key, _)| *key != it.key.as_str()));
    built_in.chain(custom_queues.map(|(_, document)| build_queue(document))).collect()
}

fn build_removed_queues(content: &Content, current_queues: &[Queue]) -> Vec<Queue> {
    // A built-in queue remains when its document is removed.
    let removed =
        content.removed_queues.iter().filter(|(key, _)| current_queues.iter().all(|it| it.key != **key));
    removed
        .map(|(key, class)| {
            build_queue(&documents::Queue { class: Some(*class), ..documents::Queue::plain(key.clone()) })
        })
        .collect()
}

fn build_queue(document: &documents::Queue) -> Queue {
    Queue { key: document.key.clone(), name: document.display_name().to_owned(), document: document.clone() }
}

fn compile_routing(
    content: &Content,
    vocabulary: &Vocabulary,
    limits: &Limits,
) -> Result<BTreeMap<RoutingList, Router>, Vec<DocumentFault>> {
    let types: Vec<TypeId> = content.set.item_types.keys().cloned().collect();
    let (mut routers, mut faults) = (BTreeMap::new(), Vec::new());
    for document in content.set.routing.values() {
        // An unknown list is refused when the document is read.
        let Some(list) = document.1.list() else { continue };
        match Router::compile(list, document, &types, vocabulary.clone(), limits) {
            Ok(router) => drop(routers.insert(list, router)),
            Err(list_faults) => faults.extend(list_faults),
        }
    }
    if faults.is_empty() { Ok(routers) } else { Err(faults) }
}

/// Builds the names that conditions may use.
fn build_vocabulary(
    content: &Content,
    entries: &BankEntries,
    item_types: &BTreeMap<TypeId, ItemType>,
) -> Vocabulary {
    let mut vocabulary = Vocabulary::from_item_types(item_types.values().map(|item_type| &**item_type));
    for (_, window) in content.set.windows.values() {
        vocabulary.add_window(to_json(window));
    }
    for (key, (_, document)) in &content.set.banks {
        vocabulary.add_bank(build_bank(key, document, entries.get(key)));
    }
    vocabulary
}

fn compile_plan(
    org: &OrgId,
    content: &Content,
    vocabulary: &Vocabulary,
    limits: &Limits,
) -> Result<Plan, Vec<DocumentFault>> {
    let documents: Vec<(Value, String)> =
        content.set.rules.values().map(|(_, rule)| (rule_to_json(org, rule), hash_rule(rule))).collect();
    let sources: Vec<RuleSource<'_>> =
        documents.iter().map(|(document, version)| RuleSource { document, version }).collect();
    Plan::compile(&sources, vocabulary, limits).map_err(|faults| {
        let to_fault = |it: &rules::RuleError| fault_at(content, it.kind, &it.rule, &it.pointer, &it.detail);
        faults.iter().map(|it| DocumentFault { missing: it.missing.clone(), ..to_fault(it) }).collect()
    })
}

fn to_json(document: &impl serde::Serialize) -> Value {
    serde_json::to_value(document).expect("documents have string keys and finite numbers only")
}

/// Builds a bank from the values of its document and its stored entries.
fn build_bank(
    key: &BankId,
    document: &documents::Bank,
    stored_entries: Option<&Option<Arc<[rules::BankEntry]>>>,
) -> rules::Bank {
    let kind = document.kind;
    // Conditions name hash banks, but `media` compares their entries before the rules are evaluated.
    if kind.hash_kind().is_some() || matches!(stored_entries, Some(None)) {
        return rules::Bank { key: key.clone(), kind, entries: [].into() };
    }
    let stored_entries = stored_entries.and_then(Option::as_ref);
    if let Some(stored_entries) = stored_entries.filter(|_| document.entries.is_empty()) {
        // The common case of a large bank: the plan shares the loaded list.
        return rules::Bank { key: key.clone(), kind, entries: Arc::clone(stored_entries) };
    }
    // Values were validated when the document was read.
    let values = document.entries.iter().filter_map(|value| kind.canonical(value).ok());
    let document_entries = values.map(|value| {
        let id = entry_id(key, kind, &value);
        (id, rules::BankEntry { id, value: value.into(), labels: Arc::default() })
    });
    // Stored entries overwrite values of the document, as they carry labels.
    let mut entries: BTreeMap<_, _> = document_entries.collect();
    entries.extend(
        stored_entries.into_iter().flat_map(|added| added.iter().map(|entry| (entry.id, entry.clone()))),
    );
    rules::Bank { key: key.clone(), kind, entries: entries.into_values().collect() }
}

/// Converts a rule for the rule engine: policies by id, actions in their long form.
fn rule_to_json(org: &OrgId, rule: &documents::Rule) -> Value {
    let mut json_form = to_json(rule);
    if !rule.policies.is_empty() {
        json_form["policies"] = rule.policies.iter().map(|key| json!(derive_policy_id(org, key))).collect();
    }
    if !rule.actions.is_empty() {
        let long_form = |it: &documents::RuleAction| json!({"id": it.id, "params": it.params});
        json_form["actions"] = rule.actions.iter().map(long_form).collect();
    }
    json_form
}

/// Hashes a rule's content. Its matches are counted under this hash.
fn hash_rule(rule: &documents::Rule) -> String {
    let text = serde_json::to_vec(rule).expect("documents have string keys and finite numbers only");
    hex(&Sha256::digest(text)[..8])
}
