//! Checks new documents and reports all errors at once: form, names, addresses, headers, rules and their
//! examples. Stored configurations are only compiled, so that a stricter check stops none of them.

use std::collections::HashSet;

use serde_json::Value;
use tidegate_egress::{headers::check_headers, target::Target};
use tidegate_schemas::{
    documents::{
        ActionKind, DocumentFault, DocumentKind, DocumentSet, Endpoint, Event, MissingReference, Origin,
        ParsedDocuments, Rule, Signal, Status, parse, parse_all,
    },
    ids::{ConfigVersion, Millis, OrgId, SignalId},
    nearest::{hint, truncate_name},
};

use super::{File, NextContent, inline};
use crate::{
    Compiled, ScoreSignal, Settings, UnresolvedHeader,
    compile::{BankEntries, collect_warnings, compile, find_pattern_faults, limit_warnings},
    content::Content,
    endpoint,
};

/// Warnings about documents that are valid but probably unintended: a bounded number of each kind, and the
/// total.
#[derive(Debug)]
pub struct Warnings {
    pub listed_warnings: Vec<DocumentFault>,
    pub total: usize,
}

/// Checks files as the complete configuration of an organisation. `unreadable_files` are faults of files that
/// could not be read; `max_per_kind` bounds the listed warnings of one kind.
pub fn lint_files(
    files: &[File],
    unreadable_files: &[DocumentFault],
    settings: &Settings,
    now: Millis,
    max_per_kind: usize,
) -> Result<Warnings, Vec<DocumentFault>> {
    let mut parsed = parse_all(files);
    unreadable_files.iter().cloned().for_each(|fault| parsed.add_unreadable_file(fault));
    let next_content = super::build_next_content(&Content::default(), &parsed, true, settings);
    let (_, warnings) = check_content(
        &OrgId::new("lint"),
        ConfigVersion(0),
        &next_content,
        &parsed,
        settings,
        &BankEntries::new(),
        now,
    )?;
    Ok(Warnings { total: warnings.len(), listed_warnings: limit_warnings(warnings, max_per_kind) })
}

/// Compiles files without a service, and returns the configuration with its warnings.
pub fn compile_offline(
    files: &[File],
    settings: &Settings,
) -> Result<(Compiled, Vec<DocumentFault>), Vec<DocumentFault>> {
    let documents = parse(files)?;
    let policy_keys = super::list_policy_keys(&documents);
    let content = Content::default().with_successor(
        DocumentSet::collect(documents)?,
        &policy_keys,
        settings.item_type_versions,
    );
    content.set.validate()?;
    let faults = find_pattern_faults(&content, &settings.rules);
    if !faults.is_empty() {
        return Err(faults);
    }
    let prefix = &settings.header_variable_prefix;
    let entries = BankEntries::new();
    let compiled =
        compile(&OrgId::new("offline"), ConfigVersion(0), &content, &entries, &settings.rules, prefix)?;
    let warnings = limit_warnings(collect_warnings(&content, &compiled), MAX_WARNINGS_PER_KIND);
    Ok((compiled, warnings))
}

/// Warnings with their kinds.
pub(super) type TaggedWarnings = Vec<(&'static str, DocumentFault)>;

/// Greatest number of warnings of one kind in a response.
pub(super) const MAX_WARNINGS_PER_KIND: usize = 100;

/// Returns the compiled content with its warnings, or all faults of the files and the content.
pub(super) fn check_content(
    org: &OrgId,
    version: ConfigVersion,
    NextContent { content, duplicates }: &NextContent,
    parsed: &ParsedDocuments,
    settings: &Settings,
    entries: &BankEntries,
    now: Millis,
) -> Result<(Compiled, TaggedWarnings), Vec<DocumentFault>> {
    let mut faults = content.set.validate().err().unwrap_or_default();
    faults.extend(find_pattern_faults(content, &settings.rules));
    for (origin, document) in content.set.endpoints.values() {
        check_endpoint(origin, document, settings, &mut faults);
    }
    for (origin, document) in content.set.signals.values() {
        check_signal(origin, document, settings, &mut faults);
    }
    check_scores(&content.set, &mut faults);
    let mut warnings = Vec::new();
    let compiled =
        match compile(org, version, content, entries, &settings.rules, &settings.header_variable_prefix) {
            Err(compile_faults) => {
                // The rules check keys and names again, in other words than the checks of documents: the
                // first fault reported at a place is kept.
                let reported_places: HashSet<_> =
                    faults.iter().chain(&parsed.faults).map(fault_place).collect();
                let new_faults: Vec<_> = compile_faults
                    .iter()
                    .filter(|fault| !reported_places.contains(&fault_place(fault)))
                    .cloned()
                    .collect();
                faults.extend(new_faults);
                None
            }
            Ok(compiled) => {
                warnings = collect_warnings(content, &compiled);
                // Item types with faults may lack fields, which would fail valid examples.
                if parsed.faults.is_empty() {
                    faults.extend(inline::find_failed_examples(&compiled, content, now));
                }
                Some(compiled)
            }
        };
    // A missing document may stand in a file that could not be read.
    faults.retain(|fault| !parsed.is_in_doubt(fault));
    faults.extend(parsed.faults.iter().chain(duplicates).cloned());
    warnings.extend(warn_undelivered_callbacks(&content.set).into_iter().map(|it| ("unheard", it)));
    warnings
        .extend(warn_missing_child_safety_endpoint(&content.set).into_iter().map(|it| ("child_safety", it)));
    warnings.extend(warn_expired_rules(&content.set, now).into_iter().map(|it| ("expired", it)));
    if let (Some(compiled), true) = (compiled, faults.is_empty()) {
        return Ok((compiled, warnings));
    }
    faults.sort_by(|left, right| fault_place(left).cmp(&fault_place(right)).then(left.line.cmp(&right.line)));
    faults.dedup();
    Err(faults)
}

fn fault_place(fault: &DocumentFault) -> (&str, Option<usize>, &str) {
    (&fault.origin.file, fault.origin.index, &fault.path)
}

fn check_endpoint(
    origin: &Origin,
    document: &Endpoint,
    settings: &Settings,
    faults: &mut Vec<DocumentFault>,
) {
    if let Err(error) = Target::parse(&document.url) {
        faults.push(DocumentFault::new(origin, "url", sentence(&error)));
    }
    let endpoint = endpoint::Endpoint::new(document, &settings.header_variable_prefix);
    check_all_headers(origin, &endpoint.headers, &endpoint.check_references(), faults);
}

fn check_signal(origin: &Origin, document: &Signal, settings: &Settings, faults: &mut Vec<DocumentFault>) {
    if let Err(error) = Target::parse(&document.url) {
        faults.push(DocumentFault::new(origin, "url", sentence(&error)));
    }
    let signal = ScoreSignal::new(document, &settings.header_variable_prefix);
    check_all_headers(origin, signal.headers(), &signal.check_references(), faults);
}

fn check_all_headers(
    origin: &Origin,
    headers: &[(String, String)],
    references: &[UnresolvedHeader],
    faults: &mut Vec<DocumentFault>,
) {
    let mut header_faults = Vec::new();
    for header in headers {
        if let Err(error) = check_headers(std::slice::from_ref(header)) {
            header_faults.push(DocumentFault::new(origin, "headers", sentence(&error)));
        }
    }
    // The headers together, for faults such as two spellings of a name. They would repeat any fault of a
    // single header.
    if let (true, Err(error)) = (header_faults.is_empty(), check_headers(headers)) {
        header_faults.push(DocumentFault::new(origin, "headers", sentence(&error)));
    }
    faults.extend(header_faults);
    faults.extend(
        references.iter().map(|reference| DocumentFault::new(origin, "headers", sentence(reference))),
    );
}

/// Checks that conditions on models name existing signals, and labels or texts that these have.
fn check_scores(set: &DocumentSet, faults: &mut Vec<DocumentFault>) {
    let rule_conditions =
        set.rules.values().map(|(origin, rule)| (origin, "when".to_owned(), &rule.when, false));
    let routing_conditions = set.routing.values().flat_map(|(origin, routing)| {
        let conditions = routing.entries.iter().enumerate();
        conditions.filter_map(move |(index, entry)| {
            Some((origin, format!("entries[{index}].when"), entry.when.as_ref()?, true))
        })
    });
    for (origin, path, when, is_routing) in rule_conditions.chain(routing_conditions) {
        let mut conditions = Vec::new();
        collect_model_conditions(when, &path, &mut conditions);
        for (path, is_text, score) in conditions {
            let Some(model) = score.get("model").and_then(Value::as_str) else { continue };
            let Some((_, signal)) = set.signals.get(model) else {
                let suggestion = hint(model, set.signals.keys().map(SignalId::as_str));
                let message = format!("There is no signal `{}`.{suggestion}", truncate_name(model));
                let missing_document =
                    Some(MissingReference::Document(DocumentKind::Signal, model.to_owned()));
                let fault = DocumentFault::new(origin, format!("{path}.model"), message);
                faults.push(DocumentFault { missing: missing_document, ..fault });
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
                    if let Some(labels) = signal.known_labels().filter(|labels| !labels.contains(label)) {
                        let suggestion = hint(label, labels);
                        let message = format!(
                            "The signal `{model}` has no label `{}`.{suggestion}",
                            truncate_name(label)
                        );
                        faults.push(DocumentFault::new(origin, format!("{path}.label"), message));
                    }
                }
                None => {}
            }
        }
    }
}

/// Collects the conditions on models with their paths; the flag is true for a condition on a text. Other
/// checks report malformed conditions.
fn collect_model_conditions<'a>(
    condition: &'a Value,
    path: &str,
    conditions: &mut Vec<(String, bool, &'a Value)>,
) {
    for key in ["all", "any"] {
        for (index, part) in condition.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
            collect_model_conditions(part, &format!("{path}.{key}[{index}]"), conditions);
        }
    }
    if let Some(inner) = condition.get("not") {
        collect_model_conditions(inner, &format!("{path}.not"), conditions);
    }
    for (key, is_text) in [("score", false), ("model_text", true)] {
        conditions.extend(condition.get(key).map(|value| (format!("{path}.{key}"), is_text, value)));
    }
}

/// Warns about callback actions without a receiving endpoint. Their callbacks are held until an endpoint
/// receives them.
fn warn_undelivered_callbacks(set: &DocumentSet) -> Vec<DocumentFault> {
    let has_receiver = set.endpoints.values().any(|(_, it)| it.accepts_event(Event::AutomaticAction));
    let undelivered_actions = set
        .actions
        .values()
        .filter(|(_, it)| it.kind == ActionKind::Callback && it.endpoint.is_none() && !has_receiver);
    let message = "No endpoint takes `action.automatic`: callbacks of this action are held until one does.";
    undelivered_actions.map(|(origin, _)| DocumentFault::new(origin, "endpoint", message)).collect()
}

/// Warns about actions of kind `enqueue_child_safety` if no endpoint receives child-safety material: all
/// callbacks about their items would be held.
fn warn_missing_child_safety_endpoint(set: &DocumentSet) -> Vec<DocumentFault> {
    if set.endpoints.is_empty() || set.endpoints.values().any(|(_, endpoint)| endpoint.child_safety) {
        return Vec::new();
    }
    let escalating_actions =
        set.actions.values().filter(|(_, action)| action.kind == ActionKind::EnqueueChildSafety);
    let message = "No endpoint says `child_safety: true`: once this action has handed an item over, all callbacks about the item are held until one does.";
    escalating_actions.map(|(origin, _)| DocumentFault::new(origin, "kind", message)).collect()
}

/// Warns about rules that are no longer evaluated.
fn warn_expired_rules(set: &DocumentSet, now: Millis) -> Vec<DocumentFault> {
    let is_expired =
        |rule: &Rule| rule.status != Status::Archived && rule.expires_at.is_some_and(|end| end <= now);
    let message = "The rule has expired, so it is not evaluated: archive it, or set another `expires_at`.";
    let expired_rules = set.rules.values().filter(|(_, rule)| is_expired(rule));
    expired_rules.map(|(origin, _)| DocumentFault::new(origin, "expires_at", message)).collect()
}

/// Converts an error's text to a sentence, like the other faults.
fn sentence(error: &impl ToString) -> String {
    let mut text = error.to_string();
    if let Some(first) = text.get(..1) {
        let first = first.to_uppercase();
        text.replace_range(..1, &first);
    }
    text.push('.');
    text
}
