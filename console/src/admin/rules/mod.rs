//! `/admin/v1/rules`: backtests, explains, counts and re-runs rules on stored items. Rules themselves are documents of the
//! configuration (`config`).

mod backtest;
mod explain;
mod retroactions;
mod routing;
mod stats;

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use axum::{
    Router,
    routing::{get, post},
};
use tidegate_moderation::items::history::{self, HistoryCursor, Sample, SampledPeriod};
use tidegate_schemas::{ids::Millis, item_types::datetime};
use tidegate_web::Problem;

use crate::{admin::request::invalid, api::Api};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/rules/backtest", post(backtest::run_step))
        .route("/rules/explain", post(explain::explain_rule))
        .route("/routing/explain", post(routing::explain_routing))
        .route("/rules/baselines", post(stats::record_baselines))
        .route("/rules/stats", get(stats::list_stats))
        .route("/rules/retroactions", get(retroactions::list_runs).post(retroactions::begin_run))
        .route("/rules/retroactions/{run}/step", post(retroactions::run_step))
}

/// Working time of one request. A long run consists of many requests, so that it can be watched, stopped and continued.
const STEP_TIME: Duration = Duration::from_secs(2);

/// Working time of a request, measured from its start.
struct TimeBudget(Instant);

impl TimeBudget {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn is_spent(&self) -> bool {
        self.0.elapsed() >= STEP_TIME
    }
}

fn parse_span(since: &str, until: &str, percent: Option<f64>) -> Result<SampledPeriod, Problem> {
    let time: Range<Millis> = parse_instant("/since", since)?..parse_instant("/until", until)?;
    if time.is_empty() {
        return Err(invalid("/until", "It must be after `since`."));
    }
    let oldest = Millis::now().minus(history::retention());
    if time.start < oldest {
        let days = history::retention().as_secs() / 86_400;
        return Err(invalid(
            "/since",
            format!("Stored items are kept for {days} days: the earliest time is {}.", oldest.iso()),
        ));
    }
    let sample = Sample::of_percent(percent.unwrap_or(100.0))
        .ok_or_else(|| invalid("/samplePercent", "It is above 0 and at most 100."))?;
    Ok(SampledPeriod { time, sample })
}

fn parse_instant(pointer: &str, text: &str) -> Result<Millis, Problem> {
    datetime::parse(text).ok_or_else(|| {
        invalid(pointer, "The value is not an instant; expected the form 2026-12-31T00:00:00Z.")
    })
}

fn parse_cursor(cursor: Option<&str>) -> Result<Option<HistoryCursor>, Problem> {
    let place = cursor.map(str::parse).transpose();
    place.map_err(|_| invalid("/cursor", "The cursor does not belong to this run."))
}
