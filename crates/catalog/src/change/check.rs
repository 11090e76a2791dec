//! Checks of new documents, all errors at once: form, names, addresses, headers, rules and their examples.
//!
//! It changes nothing. A stored configuration is only compiled: what was valid once goes on running.

use std::collections::HashSet;

use serde_json::Value;
use tidegate_egress::{headers::check_headers, target::Target};
use tidegate_schemas::{
    documents::{
        ActionKind, DocumentFault, DocumentKind, Endpoint, Event, Missing, Origin, Parsed, Rule, Set, Signal,
        Status, parse, parse_all,
    },
    ids::{ConfigVersion, Millis, OrgId, SignalId},
    nearest::{hint, shown},
};

use super::{File, Next, inline};
use crate::{
    Compiled, ScoreSignal, Settings, Unresolved,
    compile::{BankEntries, compile, listed, pattern_faults, warnings},
    content::Content,
    endpoint,
};

/// Warnings about what is allowed and hardly meant: a bounded number of each kind, and the total.
#[derive(Debug)]
pub struct Warnings {
    pub listed: Vec<DocumentFault>,
    pub total: usize,
}

/// Checks files by themselves, as for an organisation that has nothing else. `unread`: why other files could not be
/// read; `each`: warnings of one kind to be listed.
pub fn lint(
    files: &[File],
    unread: &[DocumentFault],
    settings: &Settings,
    now: Millis,
    each: usize,
) -> Result<Warnings, Vec<DocumentFault>> {
    let mut parsed = parse_all(files);
    unread.iter().cloned().for_each(|fault| parsed.lacks(fault));
    let next = super::succession(&Content::default(), &parsed, true, settings);
    let (_, warnings) =
        whole(&OrgId::new("lint"), ConfigVersion(0), &next, &parsed, settings, &BankEntries::new(), now)?;
    Ok(Warnings { total: warnings.len(), listed: listed(warnings, each) })
}

/// Files compiled by themselves, with the warnings: what they would do, without a service that does it.
pub fn offline(
    files: &[File],
    settings: &Settings,
) -> Result<(Compiled, Vec<DocumentFault>), Vec<DocumentFault>> {
    let given = parse(files)?;
    let created = super::created_policies(&given);
    let content =
        Content::default().succeeded_by(Set::collect(given)?, &created, settings.item_type_versions);
    content.set.validate()?;
    let faults = pattern_faults(&content, &settings.rules);
    if !faults.is_empty() {
        return Err(faults);
    }
    let prefix = &settings.header_variable_prefix;
    let entries = BankEntries::new();
    let compiled =
        compile(&OrgId::new("offline"), ConfigVersion(0), &content, &entries, &settings.rules, prefix)?;
    let warnings = listed(warnings(&content, &compiled), LISTED);
    Ok((compiled, warnings))
}

/// Warnings, each with its kind.
pub(super) type Kinds = Vec<(&'static str, DocumentFault)>;

/// Warnings of one kind that an answer lists.
pub(super) const LISTED: usize = 100;

/// All faults of what was read and of the content that it makes, or what that compiles to and its warnings.
pub(super) fn whole(
    org: &OrgId,
    version: ConfigVersion,
    Next { content, doubled }: &Next,
    parsed: &Parsed,
    settings: &Settings,
    entries: &BankEntries,
    now: Millis,
) -> Result<(Compiled, Kinds), Vec<DocumentFault>> {
    let mut faults = content.set.validate().err().unwrap_or_default();
    faults.extend(pattern_faults(content, &settings.rules));
    for (origin, document) in content.set.endpoints.values() {
        check_endpoint(origin, document, settings, &mut faults);
    }
    for (origin, document) in content.set.signals.values() {
        check_signal(origin, document, settings, &mut faults);
    }
    check_scores(&content.set, &mut faults);
    let mut told = Vec::new();
    let compiled =
        match compile(org, version, content, entries, &settings.rules, &settings.header_variable_prefix) {
            Err(found) => {
                // Keys and names are checked by their documents and the set, and again by the rules, in other words:
                // the first told at a place stays.
                let told: HashSet<_> = faults.iter().chain(&parsed.faults).map(place).collect();
                let new: Vec<_> =
                    found.iter().filter(|fault| !told.contains(&place(fault))).cloned().collect();
                faults.extend(new);
                None
            }
            Ok(compiled) => {
                told = warnings(content, &compiled);
                // Of types that were not read whole, examples say nothing.
                if parsed.faults.is_empty() {
                    faults.extend(inline::run(&compiled, content, now));
                }
                Some(compiled)
            }
        };
    faults.retain(|fault| !parsed.is_in_doubt(fault));
    faults.extend(parsed.faults.iter().chain(doubled).cloned());
    told.extend(unheard(&content.set).into_iter().map(|it| ("unheard", it)));
    told.extend(kept_from_endpoints(&content.set).into_iter().map(|it| ("child_safety", it)));
    told.extend(expired(&content.set, now).into_iter().map(|it| ("expired", it)));
    if let (Some(compiled), true) = (compiled, faults.is_empty()) {
        return Ok((compiled, told));
    }
    faults.sort_by(|left, right| place(left).cmp(&place(right)).then(left.line.cmp(&right.line)));
    faults.dedup();
    Err(faults)
}

fn place(fault: &DocumentFault) -> (&str, Option<usize>, &str) {
    (&fault.origin.file, fault.origin.index, &fault.path)
}

fn check_endpoint(
    origin: &Origin,
    document: &Endpoint,
    settings: &Settings,
    faults: &mut Vec<DocumentFault>,
) {
    if let Err(found) = Target::parse(&document.url) {
        faults.push(DocumentFault::new(origin, "url", sentence(&found)));
    }
    let endpoint = endpoint::Endpoint::new(document, &settings.header_variable_prefix);
    check_all_headers(origin, &endpoint.headers, &endpoint.check_references(), faults);
}

fn check_signal(origin: &Origin, document: &Signal, settings: &Settings, faults: &mut Vec<DocumentFault>) {
    if let Err(found) = Target::parse(&document.url) {
        faults.push(DocumentFault::new(origin, "url", sentence(&found)));
    }
    let signal = ScoreSignal::new(document, &settings.header_variable_prefix);
    check_all_headers(origin, signal.headers(), &signal.check_references(), faults);
}

fn check_all_headers(
    origin: &Origin,
    headers: &[(String, String)],
    references: &[Unresolved],
    faults: &mut Vec<DocumentFault>,
) {
    let mut alone = Vec::new();
    for header in headers {
        if let Err(found) = check_headers(std::slice::from_ref(header)) {
            alone.push(DocumentFault::new(origin, "headers", sentence(&found)));
        }
    }
    // One by one finds all of them; together finds what only the whole can have, such as two spellings of a name.
    if let (true, Err(found)) = (alone.is_empty(), check_headers(headers)) {
        alone.push(DocumentFault::new(origin, "headers", sentence(&found)));
    }
    faults.extend(alone);
    faults.extend(references.iter().map(|found| DocumentFault::new(origin, "headers", sentence(found))));
}

/// Conditions on models name signals that exist, and labels or a text that those have.
fn check_scores(set: &Set, faults: &mut Vec<DocumentFault>) {
    let of_rules = set.rules.values().map(|(origin, rule)| (origin, "when".to_owned(), &rule.when, false));
    let of_routing = set.routing.values().flat_map(|(origin, routing)| {
        let conditions = routing.entries.iter().enumerate();
        conditions.filter_map(move |(nth, entry)| {
            Some((origin, format!("entries[{nth}].when"), entry.when.as_ref()?, true))
        })
    });
    for (origin, path, when, is_routing) in of_rules.chain(of_routing) {
        let mut conditions = Vec::new();
        model_conditions_in(when, &path, &mut conditions);
        for (path, is_text, score) in conditions {
            let Some(model) = score.get("model").and_then(Value::as_str) else { continue };
            let Some((_, signal)) = set.signals.get(model) else {
                let near = hint(model, set.signals.keys().map(SignalId::as_str));
                let message = format!("There is no signal `{}`.{near}", shown(model));
                let missing = Some(Missing::Document(DocumentKind::Signal, model.to_owned()));
                let fault = DocumentFault::new(origin, format!("{path}.model"), message);
                faults.push(DocumentFault { missing, ..fault });
                continue;
            };
            if is_routing && signal.cache.duration().is_zero() {
                let message = format!(
                    "The signal `{model}` keeps no answers, and routing asks no model itself: set `cache` of the signal."
                );
                faults.push(DocumentFault::new(origin, path.clone(), message));
            }
            match score.get("label").and_then(Value::as_str) {
                _ if is_text && signal.output.text.is_none() => {
                    let message = format!("The signal `{model}` has no text: add `output.text` to it.");
                    faults.push(DocumentFault::new(origin, path, message));
                }
                _ if is_text => {}
                _ if !signal.output.has_numbers() => {
                    let message =
                        format!("The signal `{model}` has a text and no numbers: use `model_text`.");
                    faults.push(DocumentFault::new(origin, path, message));
                }
                None if signal.output.score.is_none() => {
                    let message = format!("The signal `{model}` has numbers for labels only: add `label`.");
                    faults.push(DocumentFault::new(origin, path, message));
                }
                Some(label) => {
                    if let Some(known) = signal.known_labels().filter(|known| !known.contains(label)) {
                        let near = hint(label, known);
                        let message = format!("The signal `{model}` has no label `{}`.{near}", shown(label));
                        faults.push(DocumentFault::new(origin, format!("{path}.label"), message));
                    }
                }
                None => {}
            }
        }
    }
}

/// Gathers the conditions on models, each with its path; the flag is true for one on a text. What is no condition is
/// told elsewhere.
fn model_conditions_in<'a>(condition: &'a Value, path: &str, found: &mut Vec<(String, bool, &'a Value)>) {
    for key in ["all", "any"] {
        for (nth, part) in condition.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
            model_conditions_in(part, &format!("{path}.{key}[{nth}]"), found);
        }
    }
    if let Some(inner) = condition.get("not") {
        model_conditions_in(inner, &format!("{path}.not"), found);
    }
    for (key, is_text) in [("score", false), ("model_text", true)] {
        found.extend(condition.get(key).map(|of| (format!("{path}.{key}"), is_text, of)));
    }
}

/// Actions whose callbacks nobody would take: they are kept as held until somebody does.
fn unheard(set: &Set) -> Vec<DocumentFault> {
    let heard = set.endpoints.values().any(|(_, it)| it.takes(Event::AutomaticAction));
    let silent = set
        .actions
        .values()
        .filter(|(_, it)| it.kind == ActionKind::Callback && it.endpoint.is_none() && !heard);
    let message = "No endpoint takes `action.automatic`: callbacks of this action are held until one does.";
    silent.map(|(origin, _)| DocumentFault::new(origin, "endpoint", message)).collect()
}

/// Warns about actions of kind `enqueue_child_safety` without an endpoint for child-safety material: all callbacks about the
/// items of such an action would be held.
fn kept_from_endpoints(set: &Set) -> Vec<DocumentFault> {
    if set.endpoints.is_empty() || set.endpoints.values().any(|(_, endpoint)| endpoint.child_safety) {
        return Vec::new();
    }
    let hand_over = set.actions.values().filter(|(_, action)| action.kind == ActionKind::EnqueueChildSafety);
    let message = "No endpoint says `child_safety: true`: once this action has handed an item over, all callbacks about the item are held until one does.";
    hand_over.map(|(origin, _)| DocumentFault::new(origin, "kind", message)).collect()
}

/// Rules that are evaluated no more.
fn expired(set: &Set, now: Millis) -> Vec<DocumentFault> {
    let over = |rule: &Rule| rule.status != Status::Archived && rule.expires_at.is_some_and(|end| end <= now);
    let message = "The rule has expired, so it is not evaluated: archive it, or set another `expires_at`.";
    let expired = set.rules.values().filter(|(_, rule)| over(rule));
    expired.map(|(origin, _)| DocumentFault::new(origin, "expires_at", message)).collect()
}

/// Returns an error's text as a sentence, like the other errors.
fn sentence(error: &impl ToString) -> String {
    let mut text = error.to_string();
    if let Some(first) = text.get(..1) {
        let first = first.to_uppercase();
        text.replace_range(..1, &first);
    }
    text.push('.');
    text
}
