//! Chooses the queue of a report with the routing list for reports, from facts about the report and its item.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use serde_json::{Value, json};
use tidegate_catalog::{
    Compiled,
    routing::{RankedChoice, Router, RoutingInput},
};
use tidegate_rules::{Facts, Need, Outcome, Scan};
use tidegate_schemas::{
    documents::RoutingList,
    ids::{Millis, ReportId},
    records::{ItemEntry, Source, Variant},
};
use tidegate_store::{Store, tables::review::reports::Report};

use crate::{
    Deps, Error,
    items::{
        evaluate::{self, PreparedItem, ScanResult},
        stored,
    },
    jobs::{self, routing},
    scores,
    users::reporters,
};

/// Source of all reports: the only `reporter.kind` of the platform API.
pub const SOURCE: &str = "user";

/// Result of routing a report.
#[derive(Debug)]
pub(super) struct RoutedReport {
    pub(super) choice: RankedChoice,
    /// True if a condition needs a score that is not stored.
    pub(super) lacks_scores: bool,
}

/// Routes a report with the present facts.
pub(super) async fn route(
    deps: &Deps,
    config: &Arc<Compiled>,
    report: &Report,
) -> Result<RoutedReport, Error> {
    let list = RoutingList::Reports;
    let Some(router) = config.router(list) else {
        return Ok(RoutedReport { choice: RankedChoice::without_list(list), lacks_scores: false });
    };
    let cause_facts = collect_cause_facts(deps, config, report).await?;
    let entry = reported_entry(report);
    // A version that does not fit its type is routed by the facts about the cause alone.
    let prepared = evaluate::prepare(Arc::clone(config), Source::Report, &entry, report.written_at).ok();
    let written_at = report.written_at;
    let KeptScores { facts, is_complete } = match &prepared {
        Some(prepared) => {
            let needed = needed_scores(router, prepared, &cause_facts, written_at);
            load_kept_scores(&deps.store, prepared, needed).await?
        }
        None => KeptScores { facts: Facts::new(), is_complete: true },
    };
    let values = prepared.as_ref().map(PreparedItem::fields);
    let choice = router.choose(RoutingInput {
        item: &report.item,
        values,
        cause_facts: &cause_facts,
        facts: &facts,
        now: written_at,
    });
    Ok(RoutedReport { choice, lacks_scores: !is_complete })
}

/// Scans the list for the report of an item that was just evaluated. `None` if its conditions need no scores.
#[boxed]
pub async fn scan_scores(
    deps: &Deps,
    prepared: &PreparedItem,
    outcome: &Outcome,
    report_id: ReportId,
) -> Result<Option<Scan>, Error> {
    let config = &prepared.config;
    let Some(router) = config.router(RoutingList::Reports) else { return Ok(None) };
    if !router.asks_models() {
        return Ok(None);
    }
    let report = deps.store.get::<Report>(&(config.org().clone(), report_id)).await?;
    // Child-safety reports are never routed.
    let Some(report) = report.filter(|report| !report.csam) else { return Ok(None) };
    let mut cause_facts = collect_cause_facts(deps, config, &report).await?;
    // The item's own row is stored only after its scores are known, so its findings are added here.
    add_rules(&mut cause_facts, outcome);
    cause_facts["media"] = json!({ "banks": routing::matched_banks(&prepared.media.rows) });
    let scan = scan_list(router, prepared, &cause_facts, report.written_at);
    Ok((!scan.pending_needs().is_empty()).then_some(scan))
}

/// Reported item in the version of the report.
fn reported_entry(report: &Report) -> ItemEntry {
    ItemEntry {
        submission_id: report.submission_id,
        type_id: report.item.type_id.clone(),
        id: report.item.id.clone(),
        type_version: report.type_version.clone(),
        variant: report.variant.as_known().unwrap_or(Variant::Original),
        data: report.data.clone(),
        origin: None,
        keyed: false,
    }
}

/// Adds the rules that would match the item as a submission of the platform, as far as the item's data decide them.
/// No effect if the list does not read rules. A reported item itself is evaluated by rules with `on: report` only.
#[boxed]
pub async fn add_rules_of_submitted(
    config: &Arc<Compiled>,
    entry: ItemEntry,
    at: Millis,
    cause_facts: &mut Value,
) {
    if !config.router(RoutingList::Reports).is_some_and(Router::uses_matched_rules) {
        return;
    }
    let config = Arc::clone(config);
    let scan = move || {
        let prepared = evaluate::prepare(config, Source::Api, &entry, at).ok()?;
        let outcome = match evaluate::scan(&prepared) {
            ScanResult::Finished(outcome) => outcome,
            ScanResult::Waiting(scan) => evaluate::finish(&prepared, scan, &Facts::new()),
        };
        Some(outcome)
    };
    // Costly rules must not block a runtime thread. A panic is ignored here: the evaluation of the item repeats and
    // reports it.
    let outcome = tokio::task::spawn_blocking(scan).await.ok().flatten().unwrap_or_default();
    add_rules(cause_facts, &outcome);
}

/// Collects facts about the report and its item, by the names in conditions. Media are those of the newest evaluated
/// version. Rules are those of that version and of the version in the report.
async fn collect_cause_facts(deps: &Deps, config: &Arc<Compiled>, report: &Report) -> Result<Value, Error> {
    let (store, org) = (&deps.store, &report.org);
    let mut cause_facts = match stored::load_newest_evaluated(store, org, &report.item).await? {
        Some(row) => routing::findings(&row)?,
        None => json!({}),
    };
    add_rules_of_submitted(config, reported_entry(report), report.written_at, &mut cause_facts).await;
    let policy: Option<Value> = report.policy.as_deref().map(serde_json::from_str).transpose().ok().flatten();
    let policy = policy.as_ref().and_then(|policy| policy["id"].as_str());
    cause_facts["report"] = json!({
        "source": SOURCE,
        "policy": policy.map(|id| routing::policy_key(config, id)),
        "reason": report.reason,
        "reporters": jobs::count_reporters(store, org, &report.item, &report.reporter).await?,
        "accuracy": reporters::load_accuracy(store, org, &report.reporter).await?,
    });
    Ok(cause_facts)
}

fn add_rules(cause_facts: &mut Value, outcome: &Outcome) {
    let mut rules: Vec<Value> = cause_facts["rules"]["matched"].as_array().cloned().unwrap_or_default();
    for rule in outcome.matched.iter().map(|rule_match| json!(rule_match.rule)) {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    cause_facts["rules"] = json!({ "matched": rules });
}

/// Stored scores for the conditions of a list.
#[derive(Debug)]
pub struct KeptScores {
    pub facts: Facts,
    /// True if all needed scores are stored.
    pub is_complete: bool,
}

fn scan_list(router: &Router, prepared: &PreparedItem, cause_facts: &Value, now: Millis) -> Scan {
    let (values, facts) = (Some(prepared.fields()), Facts::new());
    router.scan(RoutingInput { item: &prepared.key, values, cause_facts, facts: &facts, now })
}

/// Returns the scores that the list needs with these facts about the cause.
pub fn needed_scores(
    router: &Router,
    prepared: &PreparedItem,
    cause_facts: &Value,
    now: Millis,
) -> Vec<Need> {
    scan_list(router, prepared, cause_facts, now).pending_needs().to_vec()
}

/// Loads stored scores of the item without calling a model. A condition on a missing score is errored, so its entry
/// does not match.
#[boxed]
pub async fn load_kept_scores(
    store: &Store,
    prepared: &PreparedItem,
    needs: Vec<Need>,
) -> Result<KeptScores, Error> {
    let config = &prepared.config;
    let mut stored_scores = KeptScores { facts: Facts::new(), is_complete: true };
    for need in needs {
        let Need::Score { model, .. } = &need else { continue };
        let Some(signal) = config.signal(model) else {
            stored_scores.facts.set_failed(need, "no_signal");
            continue;
        };
        let inputs = prepared.score_inputs(signal);
        // Without an input no model is ever called, so the fact is unknown instead of failed.
        if inputs.is_empty() {
            stored_scores.facts.set_unknown(need);
            continue;
        }
        match scores::load_stored(store, config.org(), signal, &inputs).await? {
            Some(scores) => stored_scores.facts.set_scores(need, (*scores).clone()),
            None => {
                stored_scores.facts.set_failed(need, "not_asked");
                stored_scores.is_complete = false;
            }
        }
    }
    Ok(stored_scores)
}
