//! Chooses the queue of a report by the routing list for reports, from facts about the report and its item.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_catalog::{
    Compiled,
    routing::{RankedChoice, Routed, Router},
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
        evaluate::{self, Prepared, ScanResult},
        stored,
    },
    jobs, reporters, routing, scores,
};

/// Source of all reports today: the only `reporter.kind` that the platform API takes.
pub const SOURCE: &str = "user";

/// Choice of the list for a report.
#[derive(Debug)]
pub(super) struct RoutedReport {
    pub(super) choice: RankedChoice,
    /// True if a condition asks for a score that is not kept.
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
    let cause_facts = facts_of(deps, config, report).await?;
    let entry = entry_of(report);
    // A version that does not fit its type is routed by the cause alone.
    let prepared = evaluate::prepare(Arc::clone(config), Source::Report, &entry, report.written_at).ok();
    let now = report.written_at;
    let KeptScores { facts, is_complete } = match &prepared {
        Some(prepared) => {
            let needs = needed_scores(router, prepared, &cause_facts, now);
            kept_scores(&deps.store, prepared, needs).await?
        }
        None => KeptScores { facts: Facts::new(), is_complete: true },
    };
    let values = prepared.as_ref().map(Prepared::fields);
    let choice =
        router.choose(Routed { item: &report.item, values, known: &cause_facts, facts: &facts, now });
    Ok(RoutedReport { choice, lacks_scores: !is_complete })
}

/// Returns the conditions of the list for the report of an item that was just evaluated, if they need scores.
pub async fn scan_scores(
    deps: &Deps,
    prepared: &Prepared,
    outcome: &Outcome,
    report_id: ReportId,
) -> Result<Option<Scan>, Error> {
    let config = &prepared.config;
    let Some(router) = config.router(RoutingList::Reports) else { return Ok(None) };
    if !router.asks_models() {
        return Ok(None);
    }
    let report = deps.store.get::<Report>(&(config.org().clone(), report_id)).await?;
    let Some(report) = report.filter(|report| !report.csam) else { return Ok(None) };
    let mut cause_facts = facts_of(deps, config, &report).await?;
    // The item's own row is stored after its scores are known.
    add_rules(&mut cause_facts, outcome);
    cause_facts["media"] = json!({ "banks": routing::banks(&prepared.media.shown) });
    let scan = scan_item(router, prepared, &cause_facts, report.written_at);
    Ok((!scan.needs().is_empty()).then_some(scan))
}

/// The reported item as the report sent it.
fn entry_of(report: &Report) -> ItemEntry {
    ItemEntry {
        submission_id: report.submission_id,
        type_id: report.item.type_id.clone(),
        id: report.item.id.clone(),
        type_version: report.type_version.clone(),
        variant: report.variant.parse().unwrap_or(Variant::Original),
        data: report.data.clone(),
        origin: None,
        keyed: false,
    }
}

/// Adds the rules that match the item as if the platform had submitted it, as far as its own data decide them, if the list asks for
/// rules. A reported item is evaluated as such, which only rules with `on: report` see.
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
    // Costly rules must not hold up a thread of the runtime. What panics here panics again, and by its name, in the evaluation.
    let outcome = tokio::task::spawn_blocking(scan).await.ok().flatten().unwrap_or_default();
    add_rules(cause_facts, &outcome);
}

/// Facts about the report and its item, by the names that conditions use. Media are those of the newest version of the item that
/// is evaluated; rules are its and those of the item as it was reported.
async fn facts_of(deps: &Deps, config: &Arc<Compiled>, report: &Report) -> Result<Value, Error> {
    let (store, org) = (&deps.store, &report.org);
    let mut cause_facts = match stored::newest_evaluated(store, org, &report.item).await? {
        Some(row) => routing::findings(&row)?,
        None => json!({}),
    };
    add_rules_of_submitted(config, entry_of(report), report.written_at, &mut cause_facts).await;
    let policy: Option<Value> = report.policy.as_deref().map(serde_json::from_str).transpose().ok().flatten();
    let policy = policy.as_ref().and_then(|policy| policy["id"].as_str());
    cause_facts["report"] = json!({
        "source": SOURCE,
        "policy": policy.map(|id| routing::policy_key(config, id)),
        "reason": report.reason,
        "reporters": jobs::reporters(store, org, &report.item, &report.reporter).await?,
        "accuracy": reporters::accuracy(store, org, &report.reporter).await?,
    });
    Ok(cause_facts)
}

fn add_rules(cause_facts: &mut Value, outcome: &Outcome) {
    let mut matched: Vec<Value> = cause_facts["rules"]["matched"].as_array().cloned().unwrap_or_default();
    for rule in outcome.matched.iter().map(|matched| json!(matched.rule)) {
        if !matched.contains(&rule) {
            matched.push(rule);
        }
    }
    cause_facts["rules"] = json!({ "matched": matched });
}

/// Scores that the conditions of a list ask for.
#[derive(Debug)]
pub struct KeptScores {
    pub facts: Facts,
    /// True if all of them are known.
    pub is_complete: bool,
}

fn scan_item(router: &Router, prepared: &Prepared, cause_facts: &Value, now: Millis) -> Scan {
    let (values, facts) = (Some(prepared.fields()), Facts::new());
    router.scan(Routed { item: &prepared.key, values, known: cause_facts, facts: &facts, now })
}

/// Returns the scores that the list asks for, with the facts about the cause.
pub fn needed_scores(router: &Router, prepared: &Prepared, cause_facts: &Value, now: Millis) -> Vec<Need> {
    scan_item(router, prepared, cause_facts, now).needs().to_vec()
}

/// Looks up scores that models gave the item, without asking any model. A condition on one that is not kept is errored, so its
/// entry does not match.
pub async fn kept_scores(store: &Store, prepared: &Prepared, needs: Vec<Need>) -> Result<KeptScores, Error> {
    let config = &prepared.config;
    let mut kept_scores = KeptScores { facts: Facts::new(), is_complete: true };
    for need in needs {
        let Need::Score { model, .. } = &need else { continue };
        let Some(signal) = config.signal(model) else {
            kept_scores.facts.failed(need, "no_signal");
            continue;
        };
        let inputs = prepared.score_inputs(signal);
        if inputs.is_empty() {
            kept_scores.facts.unknown(need);
            continue;
        }
        match scores::remembered(store, config.org(), signal, &inputs).await? {
            Some(scores) => kept_scores.facts.scores(need, (*scores).clone()),
            None => {
                kept_scores.facts.failed(need, "not_asked");
                kept_scores.is_complete = false;
            }
        }
    }
    Ok(kept_scores)
}
