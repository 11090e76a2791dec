//! `GET /admin/v1/rules/stats` and `POST /admin/v1/rules/baselines`: counts the matches and outcomes of rules, and records the
//! expected match rates.

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use tidegate_moderation::rules::{
    baselines::{self, Measurement, RuleMeasurement},
    stats::{self, RuleVersionStats},
};
use tidegate_schemas::ids::{DAY_MS, Millis, RuleId};
use tidegate_web::{Problem, Query};

use super::{parse_instant, parse_span};
use crate::{
    admin::request::{Body, Caller, faults, invalid},
    api::{Api, ListResponse},
};

/// Longest period of a request. Bounded because each day costs a read.
const MAX_DAYS: i64 = 400;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatsQuery {
    /// Left out: 30 days before `until`.
    since: Option<String>,
    until: Option<String>,
    rule: Option<RuleId>,
    #[serde(rename = "org")]
    _org: Option<String>,
}

#[derive(Serialize)]
pub(super) struct RuleStatsResponse {
    rule: RuleId,
    version: String,
    #[serde(flatten)]
    stats: RuleVersionStats,
}

pub(super) async fn list_stats(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<StatsQuery>,
) -> Result<Json<ListResponse<RuleStatsResponse>>, Problem> {
    let end = query.until.as_deref().map_or_else(|| Ok(Millis::now()), |text| parse_instant("", text))?;
    let start =
        query.since.as_deref().map_or(Ok(Millis(end.0 - 30 * DAY_MS)), |text| parse_instant("", text))?;
    if start > end || end.0 - start.0 > MAX_DAYS * DAY_MS {
        return Err(invalid("", format!("`since` must be before `until`, by at most {MAX_DAYS} days.")));
    }
    let store = &api.deps.moderation.store;
    let rule = query.rule.as_ref();
    let stats_by_rule = stats::load_stats(store, &caller.org, start, end, rule, caller.clearance()).await;
    let lines = stats_by_rule
        .map_err(faults::moderation_problem)?
        .into_iter()
        .map(|((rule, version), stats)| RuleStatsResponse { rule, version, stats });
    Ok(Json(ListResponse::unpaged(lines.collect())))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RecordBaselinesRequest {
    since: String,
    until: String,
    #[serde(default)]
    sample_percent: Option<f64>,
    items: u64,
    rules: Vec<RuleMeasurement>,
}

#[derive(Serialize)]
pub(super) struct RecordBaselinesResponse {
    recorded: usize,
}

pub(super) async fn record_baselines(
    State(api): State<Api>,
    caller: Caller,
    Body(request): Body<RecordBaselinesRequest>,
) -> Result<Json<RecordBaselinesResponse>, Problem> {
    let span = parse_span(&request.since, &request.until, request.sample_percent)?;
    // Rates vary over a day. A baseline of quiet hours would report every normal hour as too frequent.
    if span.time.end.0 - span.time.start.0 < DAY_MS {
        return Err(invalid(
            "/since",
            "The period is shorter than a day: a rate of some hours does not represent the whole day.",
        ));
    }
    // The expected rate is matches divided by items.
    if request.items == 0 {
        return Err(invalid(
            "/items",
            "The number of items is 0: a match rate needs at least one evaluated item.",
        ));
    }
    let measurement = Measurement {
        since: span.time.start,
        until: span.time.end,
        items: request.items,
        percent: request.sample_percent.unwrap_or(100.0),
        by: caller.name.to_string(),
    };
    let store = &api.deps.moderation.store;
    let result =
        baselines::store_baselines(store, &caller.org, &measurement, &request.rules, Millis::now()).await;
    result.map_err(faults::moderation_problem)?;
    Ok(Json(RecordBaselinesResponse { recorded: request.rules.len() }))
}
