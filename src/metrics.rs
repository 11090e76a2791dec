//! Metrics of the program: the recorder, the help of every crate's metrics, and the reference in `docs/metrics.md`.

use std::time::Duration;

use anyhow::Context as _;
use metrics::{describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;

use crate::telemetry::BUILD;

const BUILD_INFO: &str = "tidegate_build_info";

/// Histogram buckets in seconds, from a fast append to a slow callback.
const SECONDS_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Registers unit and help of every metric of every crate with the recorder.
fn describe() {
    describe_gauge!(BUILD_INFO, "Version, commit and profile of this build as labels; always 1.");
    tidegate_catalog::metrics::describe();
    tidegate_exporter::schedule::metrics::describe();
    tidegate_image_decode::metrics::describe();
    tidegate_ingest::metrics::describe();
    tidegate_media::metrics::describe();
    tidegate_moderation::metrics::describe();
    tidegate_processors::metrics::describe();
    tidegate_store::metrics::describe();
    tidegate_stream::metrics::describe();
    tidegate_web::metrics::describe();
}

/// Installs the recorder of the process.
pub(crate) fn install() -> anyhow::Result<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        // Names of all histograms of durations end so.
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS_BUCKETS)
        .and_then(PrometheusBuilder::install_recorder)
        .context("metrics cannot be set up")?;
    // Descriptions only reach a recorder that is installed already.
    describe();
    gauge!(BUILD_INFO, "version" => BUILD.version, "commit" => BUILD.commit, "profile" => BUILD.profile)
        .set(1);
    Ok(handle)
}

/// Drains histograms regularly, because they would grow between two scrapes.
pub(crate) async fn upkeep(handle: PrometheusHandle, stop: CancellationToken) {
    const INTERVAL: Duration = Duration::from_secs(5);
    while stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_some() {
        handle.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{collections::BTreeMap, fs, path::Path, sync::Mutex};

    use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

    use super::*;

    /// Kind, unit and help of a metric.
    type Description = (&'static str, Option<Unit>, String);

    /// Recorder that keeps descriptions by name.
    #[derive(Default)]
    struct Descriptions(Mutex<BTreeMap<String, Description>>);

    impl Descriptions {
        fn insert(&self, name: &KeyName, kind: &'static str, unit: Option<Unit>, help: &SharedString) {
            let previous =
                self.0.lock().unwrap().insert(name.as_str().to_owned(), (kind, unit, help.to_string()));
            assert!(previous.is_none(), "{} is described twice", name.as_str());
        }
    }

    impl Recorder for Descriptions {
        fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
            self.insert(&name, "counter", unit, &help);
        }

        fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
            self.insert(&name, "gauge", unit, &help);
        }

        fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
            self.insert(&name, "histogram", unit, &help);
        }

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    fn collect_descriptions() -> BTreeMap<String, Description> {
        let recorder = Descriptions::default();
        metrics::with_local_recorder(&recorder, describe);
        recorder.0.into_inner().unwrap()
    }

    /// `TIDEGATE_BLESS=1` writes the reference.
    #[test]
    fn metrics_reference_is_up_to_date() {
        let mut page = String::from(
            "# Metrics\n\nServed at `/metrics` of the operations port. Generated from the code; `TIDEGATE_BLESS=1 cargo test -p tidegate \
             metrics` writes it.\n\n| name | kind | unit | meaning |\n|---|---|---|---|\n",
        );
        for (name, (kind, unit, help)) in collect_descriptions() {
            let unit = unit.map_or("", |unit| unit.as_str());
            page.push_str(&format!("| `{name}` | {kind} | {unit} | {help} |\n"));
        }
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md"));
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            fs::write(path, &page).unwrap();
        }
        assert_eq!(
            fs::read_to_string(path).unwrap_or_default(),
            page,
            "TIDEGATE_BLESS=1 writes docs/metrics.md"
        );
    }

    /// Names of metrics in the sources, each of which needs a description.
    #[test]
    fn every_metric_in_the_sources_is_described() {
        fn collect(folder: &Path, names: &mut Vec<(String, String)>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                if path.is_dir() && name != "tests" && name != "target" {
                    collect(&path, names);
                } else if name == "metrics.rs" {
                    let text = fs::read_to_string(&path).unwrap();
                    let constants = text.split(": &str = \"tidegate_").skip(1);
                    let names_here =
                        constants.map(|rest| format!("tidegate_{}", rest.split('"').next().unwrap()));
                    names.extend(names_here.map(|name| (path.display().to_string(), name)));
                } else if name.ends_with(".rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    for macro_name in ["counter!(", "gauge!(", "histogram!("] {
                        assert!(!text.contains(macro_name), "{} records beside metrics.rs", path.display());
                    }
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut names = Vec::new();
        for folder in ["src", "ingest/src", "processors/src", "console/src", "exporter/src", "schemas/src"] {
            collect(&root.join(folder), &mut names);
        }
        for folder in fs::read_dir(root.join("crates")).unwrap() {
            collect(&folder.unwrap().path().join("src"), &mut names);
        }
        assert!(names.len() > 60, "{} names", names.len());
        let descriptions = collect_descriptions();
        for (file, name) in names {
            assert!(descriptions.contains_key(&name), "{name} of {file} has no description");
        }
    }
}
