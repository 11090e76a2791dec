//! `/admin/v1/rules`: what rules would do and what they did, on stored items.
//!
//! Rules themselves are documents, in the configuration.

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
use tidegate_moderation::items::history::{self, HistoryCursor, Sample, Span};
use tidegate_schemas::{ids::Millis, item_types::datetime};
use tidegate_web::Problem;

use super::{Api, extract::invalid};

pub(super) use backtest::Trials;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/rules/backtest", post(backtest::step))
        .route("/rules/explain", post(explain::explain))
        .route("/routing/explain", post(routing::explain))
        .route("/rules/baselines", post(stats::record))
        .route("/rules/stats", get(stats::stats))
        .route("/rules/retroactions", get(retroactions::list).post(retroactions::begin))
        .route("/rules/retroactions/{run}/step", post(retroactions::step))
}

/// Stored items that are read at once; each may be a megabyte.
const ITEMS: usize = 64;

/// Time that one request works. A long run is many requests, so that it can be watched, stopped and continued.
const STEP: Duration = Duration::from_secs(2);

struct Budget(Instant);

impl Budget {
    fn begin() -> Self {
        Self(Instant::now())
    }

    fn is_spent(&self) -> bool {
        self.0.elapsed() >= STEP
    }
}

fn span(since: &str, until: &str, percent: Option<f64>) -> Result<Span, Problem> {
    let time: Range<Millis> = instant("/since", since)?..instant("/until", until)?;
    if time.is_empty() {
        return Err(invalid("/until", "It must be after `since`."));
    }
    let oldest = Millis::now().minus(history::kept());
    if time.start < oldest {
        let days = history::kept().as_secs() / 86_400;
        return Err(invalid(
            "/since",
            format!("Stored items are found {days} days back: not before {}.", oldest.iso()),
        ));
    }
    let sample = Sample::of_percent(percent.unwrap_or(100.0))
        .ok_or_else(|| invalid("/samplePercent", "It is above 0 and at most 100."))?;
    Ok(Span { time, sample })
}

fn instant(pointer: &str, text: &str) -> Result<Millis, Problem> {
    datetime::parse(text)
        .ok_or_else(|| invalid(pointer, "An instant such as 2026-12-31T00:00:00Z is needed."))
}

fn place(cursor: Option<&str>) -> Result<Option<HistoryCursor>, Problem> {
    let place = cursor.map(str::parse).transpose();
    place.map_err(|_| invalid("/cursor", "This is not a cursor of this run."))
}
