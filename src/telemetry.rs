//! Log lines, metrics, and what this build is.
//!
//! It serves neither: lines go to standard error, `operations` answers for the metrics.

use std::time::Duration;

use anyhow::Context as _;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::settings::{LogFormat, Telemetry};

/// What `/buildinfo` and the metric of the same name say.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Build {
    pub(crate) version: &'static str,
    /// The commit, where the build was told it (`TIDEGATE_COMMIT`).
    pub(crate) commit: &'static str,
    pub(crate) profile: &'static str,
}

pub(crate) const BUILD: Build = Build {
    version: env!("CARGO_PKG_VERSION"),
    commit: match option_env!("TIDEGATE_COMMIT") {
        Some(commit) => commit,
        None => "unknown",
    },
    profile: if cfg!(debug_assertions) { "debug" } else { "release" },
};

/// Bounds in seconds that a request, an append and a callback all fit in.
const SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

pub(crate) fn log(settings: &Telemetry) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&settings.filter)
        .with_context(|| format!("telemetry.filter = {:?}", settings.filter))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let set = match settings.format {
        LogFormat::Text => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    set.map_err(|error| anyhow::anyhow!("log lines cannot be set up: {error}"))
}

pub(crate) fn metrics() -> anyhow::Result<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
        .and_then(PrometheusBuilder::install_recorder)
        .context("metrics cannot be set up")?;
    metrics::gauge!(
        "tidegate_build_info", "version" => BUILD.version, "commit" => BUILD.commit, "profile" => BUILD.profile
    )
    .set(1);
    Ok(handle)
}

/// Keeps histograms from growing between two scrapes.
pub(crate) async fn upkeep(handle: PrometheusHandle, stop: CancellationToken) {
    const EVERY: Duration = Duration::from_secs(5);
    while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        handle.run_upkeep();
    }
}
