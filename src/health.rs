//! Health probes: the roles that run, and whether log, store and configurations answer.
//!
//! It asks nobody when a probe comes: a task of its own looks at the parts, and probes read what it saw.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_catalog::Live;
use tidegate_store::Store;
use tidegate_stream::{Log, health::Readiness};
use tidegate_web::{HttpServer, Load};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Interval at which the store is asked.
const EVERY: Duration = Duration::from_secs(1);
/// A look at the parts that is older means that the process does not get round to it.
const STALE: Duration = Duration::from_secs(15);
/// An answer that takes longer counts as none.
const PATIENCE: Duration = Duration::from_secs(5);

/// One a process; a clone is the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    /// Resource that this process has lost for good, and the reason.
    lost: watch::Sender<Option<String>>,
}

#[derive(Debug, Default)]
struct State {
    roles: BTreeMap<&'static str, Role>,
    /// Complaints by part.
    complaints: BTreeMap<&'static str, String>,
    /// Warnings by part.
    warnings: BTreeMap<&'static str, String>,
    /// Time of the last look at the parts.
    looked_at: Option<Instant>,
    opened: bool,
    stopping: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Starting,
    Running,
    Ended,
}

/// The answer of `/readyz`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) ready: bool,
    pub(crate) roles: BTreeMap<&'static str, Role>,
    /// Why not, one entry a part.
    pub(crate) complaints: BTreeMap<&'static str, String>,
    /// Warnings by part: it is ready, but an operator should look.
    pub(crate) warnings: BTreeMap<&'static str, String>,
}

impl Health {
    pub(crate) fn role(&self, name: &'static str, state: Role) {
        self.0.state.lock().roles.insert(name, state);
    }

    /// Everything that the roles need is open.
    pub(crate) fn opened(&self) {
        self.0.state.lock().opened = true;
    }

    pub(crate) fn stopping(&self) {
        self.0.state.lock().stopping = true;
    }

    pub(crate) fn part(&self, name: &'static str, fault: Option<String>) {
        let mut state = self.0.state.lock();
        match fault {
            Some(why) => state.complaints.insert(name, why),
            None => state.complaints.remove(name),
        };
    }

    fn warn(&self, name: &'static str, warning: Option<String>) {
        let mut state = self.0.state.lock();
        match warning {
            Some(why) => state.warnings.insert(name, why),
            None => state.warnings.remove(name),
        };
    }

    pub(crate) fn report(&self) -> Report {
        let state = self.0.state.lock();
        let mut complaints = state.complaints.clone();
        if state.stopping {
            complaints.insert("process", "stopping".to_owned());
        } else if !state.opened {
            complaints.insert("process", "starting".to_owned());
        }
        let silent_for = state.looked_at.map_or(Duration::ZERO, |at| at.elapsed());
        if silent_for > STALE {
            complaints.insert(
                "process",
                format!("its parts were last looked at {silent_for:.0?} ago: it is overloaded"),
            );
        }
        let running = state.roles.values().all(|role| *role == Role::Running);
        Report {
            ready: running && complaints.is_empty(),
            roles: state.roles.clone(),
            complaints,
            warnings: state.warnings.clone(),
        }
    }

    /// Done when something that the roles need can never be used again by this process.
    pub(crate) async fn lost(&self) -> String {
        let mut lost = self.0.lost.subscribe();
        // Its sender is here.
        let why = lost.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        why.unwrap_or_default()
    }

    fn lose(&self, why: String) {
        self.0.lost.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert(why);
            is_first
        });
    }

    /// Looks at the parts until it is told to stop.
    pub(crate) async fn watch(self, parts: Parts, stop: CancellationToken) {
        let mut loads = [("api", Vec::new()), ("admin", Vec::new())];
        loop {
            self.probe(&parts).await;
            for ((name, recent), http) in loads.iter_mut().zip([&parts.http.api, &parts.http.admin]) {
                let (complaint, warning) = overload(recent, http.load());
                self.part(name, complaint);
                self.warn(name, warning);
            }
            self.0.state.lock().looked_at = Some(Instant::now());
            if stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_none() {
                return;
            }
        }
    }

    async fn probe(&self, parts: &Parts) {
        let store = match tokio::time::timeout(PATIENCE, parts.store.ping()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                if error.is_final() {
                    self.lose(error.to_string());
                }
                Some(error.to_string())
            }
            Err(_) => Some(format!("no answer within {PATIENCE:?}")),
        };
        if let Some(why) = parts.log.fatal_error() {
            self.lose(why.to_owned());
        }
        self.part("store", store);
        self.part("log", reason_not_ready(parts.log.ready()));
        self.part("processing", reason_not_ready(parts.processing.readiness()));
        let live = (!parts.live.ready()).then(|| "configurations may be out of date".to_owned());
        self.part("configurations", live);
    }
}

/// Number of looks over which refusals are counted.
const LOOKS: usize = 10;

/// Returns a complaint if a server refused most of its recent requests because all together use up a budget, and a
/// warning if it refused most of them because their organisations had their share or processing is behind.
fn overload(recent: &mut Vec<Load>, now: Load) -> (Option<String>, Option<String>) {
    recent.push(now);
    if recent.len() > LOOKS + 1 {
        recent.remove(0);
    }
    let before = recent.first().copied().unwrap_or_default();
    let (requests, looks) = (now.requests - before.requests, recent.len() - 1);
    let most_refused = |refused: u64, why: &str| {
        let is_most = refused.saturating_mul(2) > requests && requests > 0;
        is_most.then(|| format!("{refused} of {requests} requests in {looks} s were refused: {why}"))
    };
    let all = most_refused(now.refused - before.refused, "a limit of all organisations together is reached");
    let share = most_refused(
        now.refused_by_share - before.refused_by_share,
        "their organisations or connections have their share",
    );
    let lag = most_refused(
        now.refused_by_lag - before.refused_by_lag,
        "processing is behind ingest.max_lag_seconds",
    );
    (all, share.or(lag))
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
    pub(crate) live: Arc<Live>,
    pub(crate) processing: tidegate_processors::Health,
    pub(crate) http: HttpServers,
}

/// The servers that may refuse for want of room.
#[derive(Clone)]
pub(crate) struct HttpServers {
    pub(crate) api: HttpServer,
    pub(crate) admin: HttpServer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_refuses_most_is_told_and_its_orgs_share_is_only_a_warning() {
        let mut recent = Vec::new();
        let load = |requests, refused, refused_by_share| Load {
            requests,
            refused,
            refused_by_share,
            ..Load::default()
        };
        assert_eq!(overload(&mut recent, load(0, 0, 0)), (None, None));
        assert_eq!(overload(&mut recent, load(100, 50, 50)), (None, None));
        let (complaint, warning) = overload(&mut recent, load(200, 101, 60));
        assert!(complaint.is_some_and(|why| why.contains("101 of 200 requests")) && warning.is_none());
        for _ in 0..LOOKS {
            overload(&mut recent, load(200, 101, 60));
        }
        let (complaint, warning) = overload(&mut recent, load(210, 101, 70));
        assert!(complaint.is_none() && warning.is_some_and(|why| why.contains("10 of 10 requests in 10 s")));
    }

    #[test]
    fn a_process_that_does_not_get_round_to_its_parts_is_not_ready() {
        let health = Health::default();
        health.opened();
        health.0.state.lock().looked_at = Some(Instant::now());
        assert!(health.report().ready);
        health.0.state.lock().looked_at = Instant::now().checked_sub(STALE * 2);
        let report = health.report();
        assert!(!report.ready && report.complaints["process"].contains("overloaded"), "{report:?}");
    }

    #[test]
    fn ready_means_opened_all_roles_running_and_no_complaint() {
        let health = Health::default();
        health.role("ingest", Role::Starting);
        assert!(!health.report().ready);
        health.role("ingest", Role::Running);
        assert!(!health.report().ready, "not opened yet");
        health.opened();
        assert!(health.report().ready);
        health.part("store", Some("away".to_owned()));
        assert!(!health.report().ready);
        health.part("store", None);
        assert!(health.report().ready);
        health.stopping();
        assert!(!health.report().ready);
    }
}
