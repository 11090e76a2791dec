//! `GET /admin/v1/rules/stats` and `POST /admin/v1/rules/baselines`: what rules came to, and how often they are expected to
//! match.

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use tidegate_moderation::rules::{
    baselines::{self, Measured, Measurement},
    stats::{self, Stats},
};
use tidegate_schemas::ids::{DAY_MS, Millis, RuleId};
use tidegate_web::{Problem, Query};

use super::{instant, span};
use crate::admin::{
    Api, List,
    caller::Caller,
    extract::{Body, invalid},
    faults,
};

/// Each day is read by itself.
const MOST_DAYS: i64 = 400;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// The last 30 days, if left out.
    since: Option<String>,
    until: Option<String>,
    rule: Option<RuleId>,
    #[serde(rename = "org")]
    _org: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Line {
    rule: RuleId,
    version: String,
    #[serde(flatten)]
    stats: Stats,
}

pub(super) async fn stats(
    State(api): State<Api>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<List<Line>>, Problem> {
    let until = wanted.until.as_deref().map_or_else(|| Ok(Millis::now()), |text| instant("", text))?;
    let since =
        wanted.since.as_deref().map_or(Ok(Millis(until.0 - 30 * DAY_MS)), |text| instant("", text))?;
    if since > until || until.0 - since.0 > MOST_DAYS * DAY_MS {
        return Err(invalid("", format!("`since` is before `until`, and at most {MOST_DAYS} days.")));
    }
    let store = &api.deps.moderation.store;
    let rule = wanted.rule.as_ref();
    let stats_by_rule = stats::read(store, &caller.org, since, until, rule, caller.clearance()).await;
    let lines = stats_by_rule.map_err(faults::moderation)?.into_iter().map(|((rule, version), stats)| Line {
        rule,
        version,
        stats,
    });
    Ok(Json(List::whole(lines.collect())))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Recorded {
    since: String,
    until: String,
    #[serde(default)]
    sample_percent: Option<f64>,
    items: u64,
    rules: Vec<Measured>,
}

#[derive(Serialize)]
pub(super) struct Answer {
    recorded: usize,
}

pub(super) async fn record(
    State(api): State<Api>,
    caller: Caller,
    Body(recorded): Body<Recorded>,
) -> Result<Json<Answer>, Problem> {
    let span = span(&recorded.since, &recorded.until, recorded.sample_percent)?;
    if span.time.end.0 - span.time.start.0 < DAY_MS {
        return Err(invalid("/since", "A day is the least: quiet hours would pass for all."));
    }
    if recorded.items == 0 {
        return Err(invalid("/items", "Nothing was looked at, so nothing is known."));
    }
    let measurement = Measurement {
        since: span.time.start,
        until: span.time.end,
        items: recorded.items,
        percent: recorded.sample_percent.unwrap_or(100.0),
        by: caller.name.to_string(),
    };
    let store = &api.deps.moderation.store;
    let done = baselines::record(store, &caller.org, &measurement, &recorded.rules, Millis::now()).await;
    done.map_err(faults::moderation)?;
    Ok(Json(Answer { recorded: recorded.rules.len() }))
}
