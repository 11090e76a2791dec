//! Health probes: the roles that run, and whether log, store and configurations answer.
//!
//! A background task checks the parts. Probes only read its latest result, so they never wait for a server.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_catalog::LiveConfigs;
use tidegate_store::Store;
use tidegate_stream::{Log, health::Readiness};
use tidegate_web::{HttpServer, RequestCounts};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Interval between two checks of the parts.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Age of the last check above which the process counts as overloaded. A check takes at most `STORE_TIMEOUT` once it gets to run.
const MAX_CHECK_AGE: Duration = Duration::from_secs(15);
/// Time limit for an answer of the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Health of the process, shared by all clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    /// Reason why the process cannot work any more, once it has lost a part for good.
    fatal_error: watch::Sender<Option<String>>,
}

#[derive(Debug, Default)]
struct State {
    roles: BTreeMap<&'static str, Role>,
    /// Reasons why parts are not ready, by part.
    complaints: BTreeMap<&'static str, String>,
    /// Warnings by part.
    warnings: BTreeMap<&'static str, String>,
    /// Time of the last check of the parts.
    checked_at: Option<Instant>,
    /// True once all parts of the roles are open.
    is_open: bool,
    is_stopping: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Starting,
    Running,
    Ended,
}

/// Answer of `/readyz`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) ready: bool,
    pub(crate) roles: BTreeMap<&'static str, Role>,
    /// Reasons why the process is not ready, by part.
    pub(crate) complaints: BTreeMap<&'static str, String>,
    /// Warnings by part: the process is ready, but an operator should look.
    pub(crate) warnings: BTreeMap<&'static str, String>,
}

impl Health {
    pub(crate) fn set_role(&self, name: &'static str, state: Role) {
        self.0.state.lock().roles.insert(name, state);
    }

    /// Notes that all parts of the roles are open.
    pub(crate) fn set_open(&self) {
        self.0.state.lock().is_open = true;
    }

    pub(crate) fn set_stopping(&self) {
        self.0.state.lock().is_stopping = true;
    }

    pub(crate) fn set_complaint(&self, name: &'static str, complaint: Option<String>) {
        let mut state = self.0.state.lock();
        match complaint {
            Some(reason) => state.complaints.insert(name, reason),
            None => state.complaints.remove(name),
        };
    }

    fn set_warning(&self, name: &'static str, warning: Option<String>) {
        let mut state = self.0.state.lock();
        match warning {
            Some(reason) => state.warnings.insert(name, reason),
            None => state.warnings.remove(name),
        };
    }

    pub(crate) fn report(&self) -> Report {
        let state = self.0.state.lock();
        let mut complaints = state.complaints.clone();
        if state.is_stopping {
            complaints.insert("process", "stopping".to_owned());
        } else if !state.is_open {
            complaints.insert("process", "starting".to_owned());
        }
        // No check has run while the process starts, so its age does not count yet.
        let check_age = state.checked_at.map_or(Duration::ZERO, |checked_at| checked_at.elapsed());
        if check_age > MAX_CHECK_AGE {
            // Replaces "stopping" or "starting": both are expected, an overload is not.
            complaints.insert(
                "process",
                format!("the last check of its parts was {check_age:.0?} ago: the process is overloaded"),
            );
        }
        // A role that ended leaves part of the work undone, so the process is not ready even while others run.
        let all_running = state.roles.values().all(|role| *role == Role::Running);
        Report {
            ready: all_running && complaints.is_empty(),
            roles: state.roles.clone(),
            complaints,
            warnings: state.warnings.clone(),
        }
    }

    /// Waits until a part is lost for good, and returns the reason.
    pub(crate) async fn wait_for_fatal_error(&self) -> String {
        let mut receiver = self.0.fatal_error.subscribe();
        // The wait cannot fail: `self` holds the sender.
        let reason = receiver.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        reason.unwrap_or_default()
    }

    fn set_fatal_error(&self, reason: String) {
        self.0.fatal_error.send_if_modified(|fatal_error| {
            let is_first = fatal_error.is_none();
            // The first reason is kept: later ones may be its consequences.
            fatal_error.get_or_insert(reason);
            is_first
        });
    }

    /// Checks the parts until `stop` is cancelled.
    pub(crate) async fn watch(self, parts: Parts, stop: CancellationToken) {
        let mut recent_counts = [("api", Vec::new()), ("admin", Vec::new())];
        loop {
            self.check_parts(&parts).await;
            for ((name, counts), server) in recent_counts.iter_mut().zip([&parts.http.api, &parts.http.admin])
            {
                let (complaint, warning) = assess_load(counts, server.request_counts());
                self.set_complaint(name, complaint);
                self.set_warning(name, warning);
            }
            self.0.state.lock().checked_at = Some(Instant::now());
            if stop.run_until_cancelled(tokio::time::sleep(CHECK_INTERVAL)).await.is_none() {
                return;
            }
        }
    }

    /// Checks the store until `stop` is cancelled, for a process without other parts.
    pub(crate) async fn watch_store(self, store: Store, stop: CancellationToken) {
        loop {
            self.check_store(&store).await;
            self.0.state.lock().checked_at = Some(Instant::now());
            if stop.run_until_cancelled(tokio::time::sleep(CHECK_INTERVAL)).await.is_none() {
                return;
            }
        }
    }

    async fn check_store(&self, store: &Store) {
        let complaint = match tokio::time::timeout(STORE_TIMEOUT, store.ping()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                // The store has closed for good, so only a new process can use it.
                if error.is_final() {
                    self.set_fatal_error(error.to_string());
                }
                Some(error.to_string())
            }
            Err(_) => Some(format!("no answer within {STORE_TIMEOUT:?}")),
        };
        self.set_complaint("store", complaint);
    }

    async fn check_parts(&self, parts: &Parts) {
        self.check_store(&parts.store).await;
        if let Some(reason) = parts.log.fatal_error() {
            self.set_fatal_error(reason.to_owned());
        }
        self.set_complaint("log", reason_not_ready(parts.log.readiness()));
        self.set_complaint("processing", reason_not_ready(parts.processing.readiness()));
        let config_complaint =
            (!parts.live.is_ready()).then(|| "configurations may be out of date".to_owned());
        self.set_complaint("configurations", config_complaint);
    }
}

/// Number of checks over which refusals are counted.
const WINDOW_CHECKS: usize = 10;

/// Returns a complaint if a server refused most of its recent requests because a limit of all organisations is reached, and a
/// warning if it refused most of them because their organisations had their share or processing is behind. Adds `current` to the
/// `recent` counts of the server.
fn assess_load(recent: &mut Vec<RequestCounts>, current: RequestCounts) -> (Option<String>, Option<String>) {
    recent.push(current);
    // One check more than the window, because requests are counted between two checks.
    if recent.len() > WINDOW_CHECKS + 1 {
        recent.remove(0);
    }
    let oldest = recent.first().copied().unwrap_or_default();
    // `CHECK_INTERVAL` is one second, so the checks count the seconds.
    let (requests, seconds) = (current.requests - oldest.requests, recent.len() - 1);
    let most_refused = |refused: u64, reason: &str| {
        // Single refusals are normal; the server is overloaded once they are the majority.
        let is_most = refused.saturating_mul(2) > requests && requests > 0;
        is_most.then(|| format!("{refused} of {requests} requests in {seconds} s were refused: {reason}"))
    };
    let budget_complaint =
        most_refused(current.refused - oldest.refused, "a limit of all organisations together is reached");
    let share_warning = most_refused(
        current.refused_by_share - oldest.refused_by_share,
        "their organisations or connections have their share",
    );
    let lag_warning = most_refused(
        current.refused_by_lag - oldest.refused_by_lag,
        "processing is behind ingest.max_lag_seconds",
    );
    (budget_complaint, share_warning.or(lag_warning))
}

fn reason_not_ready(readiness: Readiness) -> Option<String> {
    match readiness {
        Readiness::Ready => None,
        Readiness::NotReady { why } => Some(why),
    }
}

/// Parts that are probed.
pub(crate) struct Parts {
    pub(crate) log: Log,
    pub(crate) store: Store,
    pub(crate) live: Arc<LiveConfigs>,
    pub(crate) processing: tidegate_processors::Health,
    pub(crate) http: HttpServers,
}

/// Servers that report refused requests.
#[derive(Clone)]
pub(crate) struct HttpServers {
    pub(crate) api: HttpServer,
    pub(crate) admin: HttpServer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_requests_are_a_complaint_or_a_warning() {
        let mut recent = Vec::new();
        let load = |requests, refused, refused_by_share| RequestCounts {
            requests,
            refused,
            refused_by_share,
            ..RequestCounts::default()
        };
        assert_eq!(assess_load(&mut recent, load(0, 0, 0)), (None, None));
        assert_eq!(assess_load(&mut recent, load(100, 50, 50)), (None, None));
        let (complaint, warning) = assess_load(&mut recent, load(200, 101, 60));
        assert!(complaint.is_some_and(|why| why.contains("101 of 200 requests")) && warning.is_none());
        for _ in 0..WINDOW_CHECKS {
            assess_load(&mut recent, load(200, 101, 60));
        }
        let (complaint, warning) = assess_load(&mut recent, load(210, 101, 70));
        assert!(complaint.is_none() && warning.is_some_and(|why| why.contains("10 of 10 requests in 10 s")));
    }

    #[test]
    fn process_with_overdue_checks_is_not_ready() {
        let health = Health::default();
        health.set_open();
        health.0.state.lock().checked_at = Some(Instant::now());
        assert!(health.report().ready);
        health.0.state.lock().checked_at = Instant::now().checked_sub(MAX_CHECK_AGE * 2);
        let report = health.report();
        assert!(!report.ready && report.complaints["process"].contains("overloaded"), "{report:?}");
    }

    #[test]
    fn ready_requires_open_parts_running_roles_and_no_complaint() {
        let health = Health::default();
        health.set_role("ingest", Role::Starting);
        assert!(!health.report().ready);
        health.set_role("ingest", Role::Running);
        assert!(!health.report().ready, "not opened yet");
        health.set_open();
        assert!(health.report().ready);
        health.set_complaint("store", Some("away".to_owned()));
        assert!(!health.report().ready);
        health.set_complaint("store", None);
        assert!(health.report().ready);
        health.set_stopping();
        assert!(!health.report().ready);
    }
}
