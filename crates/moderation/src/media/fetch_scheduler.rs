//! Permits for media fetches, and the set of known hosts, which get more of them.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_scheduler::{Limits, Permit, Scheduler, fair_queue::QueueFull};
use tidegate_schemas::ids::OrgId;

use super::lru::LruCache;
use crate::metrics;
use crate::outbound::host_breaker::OrgHost;

/// Bounded set of hosts that delivered a medium and have not rested since.
type KnownHosts = Arc<Mutex<LruCache<OrgHost, ()>>>;

/// Cheap to clone; clones share all limits.
#[derive(Clone)]
pub(super) struct FetchScheduler {
    scheduler: Scheduler,
    known_hosts: KnownHosts,
}

/// Right to fetch from one host, released on drop.
pub(super) struct FetchPermit {
    host: Arc<str>,
    _permit: Permit,
}

impl FetchScheduler {
    /// Creates a scheduler that remembers at most `known_hosts` hosts.
    pub(super) fn new(limits: Limits, known_hosts: usize) -> Self {
        let known_hosts = KnownHosts::new(Mutex::new(LruCache::new(known_hosts)));
        let hosts_for_scheduler = Arc::clone(&known_hosts);
        let is_known = move |org: &OrgId, hosts: &[Arc<str>]| {
            let mut known_hosts = hosts_for_scheduler.lock();
            hosts.iter().all(|host| is_known(&mut known_hosts, org, host))
        };
        let scheduler =
            Scheduler::new(limits, is_known, |totals| metrics::media_requests_running(totals.running));
        Self { scheduler, known_hosts }
    }

    /// Waits for a permit. Dropping the future leaves the queue.
    pub(super) async fn acquire(&self, host: &OrgHost) -> Result<FetchPermit, QueueFull> {
        let permit = self.scheduler.acquire(&host.org, std::slice::from_ref(&host.host), 0).await?;
        Ok(FetchPermit { host: Arc::clone(&host.host), _permit: permit })
    }

    /// True if the host delivered a medium to the org and has not rested since.
    pub(super) fn is_known(&self, org: &OrgId, host: &Arc<str>) -> bool {
        is_known(&mut self.known_hosts.lock(), org, host)
    }

    /// Marks the host as known after it delivered a medium, or as unknown when it rests.
    pub(super) fn set_known(&self, host: &OrgHost, gave_medium: bool) {
        let was_known = {
            let mut known_hosts = self.known_hosts.lock();
            let was_known = known_hosts.get(host).is_some();
            if gave_medium {
                known_hosts.insert(host.clone(), ());
            } else {
                known_hosts.remove(host);
            }
            was_known
        };
        // Only a change can let waiting fetches of the host start.
        if was_known != gave_medium {
            self.scheduler.refresh(&host.org, std::slice::from_ref(&host.host));
        }
    }
}

fn is_known(known_hosts: &mut LruCache<OrgHost, ()>, org: &OrgId, host: &Arc<str>) -> bool {
    known_hosts.get(&OrgHost { org: org.clone(), host: Arc::clone(host) }).is_some()
}

impl FetchPermit {
    pub(super) fn host(&self) -> &Arc<str> {
        &self.host
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, poll};

    use super::{super::Settings, *};

    fn host(org: &str, host: &str) -> OrgHost {
        OrgHost { org: OrgId::new(org), host: host.into() }
    }

    /// Number of permits that the org gets at once for these hosts, one after the other.
    fn acquired<'h>(
        scheduler: &FetchScheduler,
        org: &str,
        hosts: impl IntoIterator<Item = &'h str>,
    ) -> Vec<FetchPermit> {
        let acquire = |name| scheduler.acquire(&host(org, name)).now_or_never();
        hosts.into_iter().filter_map(acquire).map(Result::unwrap).collect()
    }

    #[test]
    fn each_fetch_setting_bounds_its_own_count() {
        let settings = Settings {
            fetches: 20,
            fetches_per_host_in_all: 6,
            fetches_per_host: 4,
            fetches_per_org: 12,
            ..Settings::default()
        };
        let scheduler = FetchScheduler::new(settings.limits(), 99);
        let names: Vec<_> = (0..30).map(|nth| format!("{nth}.example")).collect();
        let one_host = || std::iter::repeat_n("one.example", 30);
        // Each org leaves as many of the host's six permits as it holds.
        let (first, second) = (acquired(&scheduler, "a", one_host()), acquired(&scheduler, "b", one_host()));
        assert_eq!((first.len(), second.len()), (3, 2));
        drop((first, second));
        let wide = Settings { fetches_per_host_in_all: 20, ..settings };
        let wide = FetchScheduler::new(wide.limits(), 99);
        wide.set_known(&host("a", "one.example"), true);
        assert_eq!(acquired(&wide, "a", one_host()).len(), 4, "of one host");
        names.iter().for_each(|name| scheduler.set_known(&host("a", name), true));
        let unknown = acquired(&scheduler, "b", names.iter().map(String::as_str));
        assert_eq!(unknown.len(), 6, "half of what the org may have");
        let known = acquired(&scheduler, "a", names.iter().map(String::as_str));
        assert_eq!(known.len(), 7, "as many as are left in all");
        drop(unknown);
        let more = acquired(&scheduler, "a", names.iter().rev().map(String::as_str));
        assert_eq!(known.len() + more.len(), 10, "half of all");
    }

    #[tokio::test]
    async fn known_host_gets_the_half_that_unknown_hosts_leave() {
        let limits = Limits { running_per_org: 4, ..Limits::UNLIMITED };
        let scheduler = FetchScheduler::new(limits, 2);
        let (good, other) = (host("o", "good"), host("p", "good"));
        let _hanging = acquired(&scheduler, "o", ["a", "b"]);
        let mut waiting = scheduler.acquire(&good).boxed();
        assert!(poll!(&mut waiting).is_pending());
        scheduler.set_known(&other, true);
        assert!(poll!(&mut waiting).is_pending(), "it gave a medium to another org");
        scheduler.set_known(&good, true);
        drop(waiting.now_or_never().unwrap().unwrap());
        scheduler.set_known(&good, false);
        assert!(scheduler.acquire(&good).now_or_never().is_none(), "it rests");
        for nth in 0..3 {
            scheduler.set_known(&host("o", &nth.to_string()), true);
        }
        let is_known = |name: &str| scheduler.is_known(&OrgId::new("o"), &name.into());
        assert_eq!(["0", "1", "2"].map(is_known), [false, true, true], "two are remembered");
    }
}
