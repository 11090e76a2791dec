//! Cache of compiled configurations, shared by all roles of a process. A background task compiles new
//! versions and swaps them in; work in flight keeps the version it started with.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use async_recursion::async_recursion as boxed;
use parking_lot::Mutex;
use tidegate_schemas::{
    banks::HashKind,
    ids::{BankId, CauseId, ConfigVersion, Millis, OrgId},
};
use tidegate_store::{Clock, Store, system_clock, tables::catalog::configs::ConfigHead};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Compiled, Error, Settings,
    banks::{self, Banks, LoadedBanks, hashes::LiveHashBanks, ledger},
    compile::compile,
    content::{Content, join_faults},
    flights::Flights,
    members::{self, CompileFailure, Heartbeat},
    processing_load::{LoadReport, ProcessingLoad},
    snapshots,
};

/// Compiled configurations of all organisations. One instance per process.
pub struct LiveConfigs(Arc<Inner>);

struct Inner {
    store: Store,
    settings: Settings,
    clock: Clock,
    orgs: ArcSwap<HashMap<OrgId, Arc<Compiled>>>,
    /// Current versions that failed to compile. Retried when a newer version or a bank revision arrives.
    failed_versions: Mutex<BTreeMap<OrgId, CompileFailure>>,
    /// Loaded list banks, by organisation.
    loaded_banks: Mutex<HashMap<OrgId, LoadedBanks>>,
    /// Loaded hash banks, by organisation.
    hash_banks: Mutex<HashMap<OrgId, Arc<LiveHashBanks>>>,
    /// Writes quarantines of hash bank entries.
    bank_writer: Banks,
    /// Bank revisions at the last failed attempt of each organisation.
    revisions_at_failure: Mutex<HashMap<OrgId, BankRevisions>>,
    load_flights: Flights<OrgId>,
    compile_permits: Semaphore,
    last_store_answer: Mutex<Instant>,
    /// Negative cache: the last version that the store did not have, with the error to repeat.
    missing_versions: Mutex<HashMap<OrgId, (VersionRequest, Error)>>,
    opened_at_epoch: i64,
    /// Id of this process in the table of members.
    member_id: Uuid,
    own_load: Arc<ProcessingLoad>,
}

/// Revisions of an organisation's banks.
type BankRevisions = BTreeMap<BankId, i64>;

/// Request for a version at least this new.
#[derive(Clone, Copy)]
struct VersionRequest {
    version: ConfigVersion,
    since: Millis,
    requested_at: Instant,
}

/// Time for which a missing version is not looked up again, even if many records wait for it.
const MISSING_VERSION_TTL: Duration = Duration::from_millis(500);

/// Age at which an unsettled bank change counts as abandoned by a crashed process and is settled by this one.
const ABANDONED_CHANGE_AGE: Duration = Duration::from_secs(10);

/// Greatest number of costly rules of one configuration that are logged.
const MAX_LOGGED_OVERLOADS: usize = 20;

impl LiveConfigs {
    /// Compiles the current configuration of every organisation. One that does not compile is left out and
    /// alarmed.
    #[boxed]
    pub async fn open(store: Store, settings: Settings) -> Result<Self, Error> {
        Self::open_with_clock(store, settings, system_clock()).await
    }

    pub async fn open_with_clock(store: Store, settings: Settings, clock: Clock) -> Result<Self, Error> {
        let max_compilers = match settings.compilers {
            0 => std::thread::available_parallelism().map_or(2, usize::from).max(2),
            configured => configured,
        };
        // Read before the heads, so that a change in between is seen again at the first poll.
        let opened_at_epoch = snapshots::read_epoch(&store).await?;
        let bank_writer = Banks::with_clock(store.clone(), &settings, Arc::clone(&clock));
        let live = Self(Arc::new(Inner {
            bank_writer,
            store,
            settings,
            clock,
            orgs: ArcSwap::default(),
            failed_versions: Mutex::default(),
            loaded_banks: Mutex::default(),
            hash_banks: Mutex::default(),
            revisions_at_failure: Mutex::default(),
            load_flights: Flights::new(),
            compile_permits: Semaphore::new(max_compilers),
            last_store_answer: Mutex::new(Instant::now()),
            missing_versions: Mutex::default(),
            opened_at_epoch,
            member_id: CauseId::random().0,
            own_load: Arc::default(),
        }));
        let mut loads = JoinSet::new();
        for head in snapshots::load_heads(&live.0.store).await? {
            loads.spawn(Arc::clone(&live.0).load_version(head));
        }
        for load_result in loads.join_all().await {
            // Only an outage stops the start. A configuration that cannot run concerns its organisation alone.
            if let Err(Error::Store(error)) = load_result {
                return Err(error.into());
            }
        }
        Ok(live)
    }

    /// Returns the live configuration of an organisation, without a read of the store.
    pub fn org(&self, org: &OrgId) -> Option<Arc<Compiled>> {
        self.0.org(org)
    }

    /// Returns the organisations with a live configuration.
    pub fn orgs(&self) -> Vec<OrgId> {
        let mut orgs: Vec<_> = self.0.orgs.load().keys().cloned().collect();
        orgs.sort_unstable();
        orgs
    }

    /// Returns the current version, read from the store if it is not live yet.
    #[boxed]
    pub async fn load_latest(&self, org: &OrgId) -> Result<Arc<Compiled>, Error> {
        let head = snapshots::load_head(&self.0.store, org).await?;
        let head = head.ok_or_else(|| Error::NoSuchOrg(org.clone()))?;
        match self.org(org) {
            Some(compiled) if compiled.version() >= head.config_version => Ok(compiled),
            _ => Arc::clone(&self.0).load_version(head).await,
        }
    }

    /// Returns this version or a later one, read from the store if it is not live yet. Never waits for a
    /// future version.
    ///
    /// A configuration changed after `since` is accepted with any number. Numbers decrease only when an older
    /// store is restored. The requested version is then lost, and a configuration made after the record that
    /// names it is newer than the one the record was checked against.
    #[boxed]
    pub async fn find_version(
        &self,
        org: &OrgId,
        version: ConfigVersion,
        since: Millis,
    ) -> Result<Arc<Compiled>, Error> {
        if let Some(compiled) = self.org(org).filter(|compiled| compiled.version() >= version) {
            return Ok(compiled);
        }
        let request = VersionRequest { version, since, requested_at: Instant::now() };
        if let Some(error) = self.0.find_cached_miss(org, &request) {
            return Err(error);
        }
        let result = self.read_through(org, version, since).await;
        self.0.update_missing_versions(org, request, result.as_ref().err());
        result
    }

    async fn read_through(
        &self,
        org: &OrgId,
        version: ConfigVersion,
        since: Millis,
    ) -> Result<Arc<Compiled>, Error> {
        let head = snapshots::load_head(&self.0.store, org).await?;
        let head = head.ok_or_else(|| Error::NoSuchOrg(org.clone()))?;
        if head.config_version < version && head.changed_at <= since {
            let head = head.config_version;
            return Err(Error::NoSuchVersion { org: org.clone(), wanted: version, head });
        }
        Arc::clone(&self.0).load_version(head).await
    }

    /// Returns the number of organisations with a live configuration.
    pub fn count_running_orgs(&self) -> usize {
        self.0.orgs.load().len()
    }

    /// True if the store answered within `stale_after_ms`, so that the live configurations are known to be
    /// current.
    pub fn is_ready(&self) -> bool {
        self.0.last_store_answer.lock().elapsed() < self.0.settings.stale_after()
    }

    /// Returns the current versions that failed to compile here. Their organisations run an older version or
    /// none.
    pub fn list_compile_failures(&self) -> Vec<CompileFailure> {
        self.0.failed_versions.lock().values().cloned().collect()
    }

    /// Returns the measurements of this process, which its heartbeat publishes to the other processes.
    pub fn processing_load(&self) -> &Arc<ProcessingLoad> {
        &self.0.own_load
    }

    /// Returns the measurements of all processes that evaluate items. Those of other processes are some
    /// seconds old.
    #[boxed]
    pub async fn read_load_report(&self) -> Result<LoadReport, Error> {
        let other_loads = members::loads_of_others(&self.0.store, self.0.member_id).await?;
        Ok(self.0.own_load.report(std::time::Instant::now()).merge(other_loads))
    }

    /// Returns a follower for callers with a schedule of their own.
    pub fn follower(&self) -> Follower {
        Follower::new(Arc::clone(&self.0))
    }

    /// Follows changes until `stop` is cancelled.
    #[boxed]
    pub async fn run(&self, stop: CancellationToken) {
        let mut follower = self.follower();
        let mut tick = tokio::time::interval(self.0.settings.poll());
        // A slow store must not get several polls at once afterwards.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(load_result) = follower.loads.join_next() => follower.record_load(load_result.unwrap_or(false)),
                _ = tick.tick() => follower.poll().await,
            }
            follower.send_heartbeat().await;
        }
        follower.heartbeat.remove_member(&self.0.store, (self.0.clock)()).await;
    }
}

/// Follows changes of configurations and banks.
pub struct Follower {
    live: Arc<Inner>,
    /// Running loads. Each returns true if its result is final for the version.
    loads: JoinSet<bool>,
    seen_epoch: i64,
    /// Last epoch with all of its changes live here.
    applied_epoch: i64,
    /// An outage interrupted a load, so the heads must be read again although the epoch is the same.
    needs_reread: bool,
    heads_due: Instant,
    heartbeat: Heartbeat,
    /// Time at which all stored changes were last known to be live here.
    current_at: Instant,
}

impl Follower {
    fn new(live: Arc<Inner>) -> Self {
        let heartbeat = Heartbeat::new(
            live.member_id,
            live.settings.member_label.clone(),
            live.settings.member_every(),
            (live.clock)(),
        );
        let epoch = live.opened_at_epoch;
        let current_at = Instant::now();
        let heads_due = current_at + live.settings.heads_every();
        Self {
            live,
            loads: JoinSet::new(),
            seen_epoch: epoch,
            applied_epoch: epoch,
            needs_reread: false,
            heads_due,
            heartbeat,
            current_at,
        }
    }

    /// Polls once and waits for the loads. Changes made before the call are live after it.
    #[boxed]
    pub async fn step(&mut self) {
        self.poll().await;
        while let Some(load_result) = self.loads.join_next().await {
            self.record_load(load_result.unwrap_or(false));
        }
        self.send_heartbeat().await;
    }

    async fn poll(&mut self) {
        self.live.maintain_hash_banks();
        let polled_at = Instant::now();
        match self.check_for_changes().await {
            Ok(()) => {
                *self.live.last_store_answer.lock() = Instant::now();
                if self.is_current() {
                    // The time before the poll, as a change after it may not be live yet.
                    self.current_at = polled_at;
                }
            }
            Err(error) => {
                crate::metrics::count_poll_failure();
                tracing::debug!(tag = error.tag(), "cannot ask for changed configurations");
            }
        }
    }

    async fn check_for_changes(&mut self) -> Result<(), Error> {
        let epoch = snapshots::read_epoch(&self.live.store).await?;
        let has_expired = self.live.has_expired_entries();
        // The heads are also read at intervals, in case a bump of the epoch was lost.
        if epoch != self.seen_epoch || self.needs_reread || has_expired || Instant::now() >= self.heads_due {
            let heads = snapshots::load_heads(&self.live.store).await?;
            let banks = self.live.load_bank_revisions().await?;
            let no_revisions = BankRevisions::new();
            for head in heads {
                let head_org = head.org.clone();
                let banks = banks.get(&head_org).unwrap_or(&no_revisions);
                if self.live.needs_load(&head, banks) || self.live.has_newer_entries(&head.org, banks) {
                    let load = Arc::clone(&self.live).load_version(head);
                    self.loads
                        .spawn(async move { !matches!(load.await, Err(error) if is_retryable(&error)) });
                }
                if let Some(hashes) = self.live.hash_banks_of(&head_org).filter(|it| it.is_behind(banks)) {
                    let store = self.live.store.clone();
                    self.loads.spawn(async move {
                        let result = hashes.catch_up(&store).await;
                        result.inspect_err(|error| tracing::warn!(tag = error.tag(), "{error}")).is_ok()
                    });
                }
            }
            (self.seen_epoch, self.needs_reread) = (epoch, false);
            self.heads_due = Instant::now() + self.live.settings.heads_every();
        }
        Ok(())
    }

    fn record_load(&mut self, is_final: bool) {
        self.needs_reread |= !is_final;
    }

    fn is_current(&self) -> bool {
        self.loads.is_empty() && !self.needs_reread
    }

    /// Renews this process's row in the table of members: at once after progress, or else at the regular
    /// interval.
    async fn send_heartbeat(&mut self) {
        if self.is_current() {
            self.applied_epoch = self.seen_epoch;
        }
        crate::metrics::set_age(self.current_at.elapsed());
        let failing = || self.live.failed_versions.lock().values().cloned().collect();
        let load = || self.live.own_load.report(std::time::Instant::now()).into_json();
        let now = (self.live.clock)();
        let heartbeat_result =
            self.heartbeat.beat(&self.live.store, self.applied_epoch, failing, load, now).await;
        if let Err(error) = heartbeat_result {
            tracing::debug!(tag = error.tag(), "cannot renew the membership");
        }
    }
}

/// True if a later attempt may succeed. A version that does not compile never will.
fn is_retryable(error: &Error) -> bool {
    !matches!(error, Error::NotCompiled { .. })
}

impl Inner {
    fn org(&self, org: &OrgId) -> Option<Arc<Compiled>> {
        self.orgs.load().get(org).cloned()
    }

    /// True if the head's version has to be loaded. `banks` are the revisions of all banks that the
    /// organisation ever had.
    fn needs_load(&self, head: &ConfigHead, banks: &BankRevisions) -> bool {
        let is_running =
            self.org(&head.org).is_some_and(|compiled| compiled.version() >= head.config_version);
        !is_running && self.find_known_failure(head, banks).is_none()
    }

    /// True if a bank has a newer revision than the live one, or a live entry expired.
    fn has_newer_entries(&self, org: &OrgId, banks: &BankRevisions) -> bool {
        let Some(compiled) = self.org(org) else { return false };
        let failed_revisions = self.revisions_at_failure.lock();
        // With the same entries, the compilation would fail again.
        let has_failed_already =
            failed_revisions.get(org).is_some_and(|revisions| !has_newer_revision(revisions, banks));
        !has_failed_already && (has_newer_revision(&compiled.banks, banks) || self.has_expired(&compiled))
    }

    fn has_expired(&self, compiled: &Compiled) -> bool {
        compiled.bank_expires_at.is_some_and(|end| end <= (self.clock)())
    }

    fn has_expired_entries(&self) -> bool {
        self.orgs.load().values().any(|compiled| self.has_expired(compiled))
    }

    /// Reads the bank revisions of all organisations, and settles changes that a crashed process abandoned.
    async fn load_bank_revisions(&self) -> Result<HashMap<OrgId, BankRevisions>, Error> {
        let mut revisions_by_org: HashMap<OrgId, BankRevisions> = HashMap::new();
        for head in ledger::load_heads(&self.store).await? {
            let is_abandoned =
                head.settled < head.revision && head.changed_at.plus(ABANDONED_CHANGE_AGE) < (self.clock)();
            if is_abandoned && let Err(error) = ledger::settle(&self.store, &head).await {
                tracing::warn!(tag = error.tag(), org = %head.org, bank = %head.bank, "{error}");
            }
            revisions_by_org.entry(head.org).or_default().insert(head.bank, head.revision);
        }
        Ok(revisions_by_org)
    }

    fn find_known_failure(&self, head: &ConfigHead, banks: &BankRevisions) -> Option<Error> {
        let failed_versions = self.failed_versions.lock();
        let failure =
            failed_versions.get(&head.org).filter(|failure| failure.version == head.config_version)?;
        let failed_revisions = self.revisions_at_failure.lock();
        if failed_revisions.get(&head.org).is_some_and(|revisions| has_newer_revision(revisions, banks)) {
            return None;
        }
        Some(Error::NotCompiled {
            org: head.org.clone(),
            version: head.config_version,
            reason: failure.reason.clone(),
        })
    }

    fn find_cached_miss(&self, org: &OrgId, request: &VersionRequest) -> Option<Error> {
        let missing_versions = self.missing_versions.lock();
        let (cached_request, error) = missing_versions.get(org)?;
        let is_covered = request.version >= cached_request.version && request.since >= cached_request.since;
        (is_covered && request.requested_at < cached_request.requested_at + MISSING_VERSION_TTL)
            .then(|| error.clone_cacheable())
            .flatten()
    }

    fn update_missing_versions(&self, org: &OrgId, request: VersionRequest, error: Option<&Error>) {
        let mut missing_versions = self.missing_versions.lock();
        match error.and_then(Error::clone_cacheable) {
            Some(error) => {
                missing_versions.insert(org.clone(), (request, error));
            }
            None => {
                missing_versions.remove(org);
            }
        }
    }

    /// Loads and compiles the version of a head, unless it or a later one is live.
    async fn load_version(self: Arc<Self>, head: ConfigHead) -> Result<Arc<Compiled>, Error> {
        // Concurrent loads of an organisation wait for the first one and find its result below.
        let _flight = self.load_flights.enter(&head.org).await;
        let banks = self.load_revisions_of(&head.org).await?;
        if let Some(compiled) =
            self.org(&head.org).filter(|compiled| compiled.version() >= head.config_version)
            && !self.has_newer_entries(&head.org, &banks)
        {
            return Ok(compiled);
        }
        if let Some(error) = self.find_known_failure(&head, &banks) {
            return Err(error);
        }
        let text = match snapshots::read_snapshot(&self.store, &head).await {
            Ok(text) => text,
            Err(error) => {
                if let Error::Unreadable { reason, .. } = &error {
                    tracing::error!(org = %head.org, version = head.config_version.0, reason, "a configuration cannot be read");
                }
                return Err(error);
            }
        };
        // An error would mean that the semaphore is closed, which never happens.
        let _permit = self.compile_permits.acquire().await;
        let started_at = Instant::now();
        let (org, version) = (head.org.clone(), head.config_version);
        let decoded = tokio::task::spawn_blocking(move || Content::decode(&text, version)).await;
        let content = match decoded.unwrap_or_else(|panic| Err(format!("the reader failed: {panic}"))) {
            Ok(content) => content,
            Err(reason) => return Err(self.record_failure(&head, &LoadedBanks::new(), reason)),
        };
        let previous_banks = self.loaded_banks.lock().get(&org).cloned().unwrap_or_default();
        let loaded_banks = banks::load_current(&self.store, &org, &content, &previous_banks).await?;
        // Kept even if the compilation fails, so that the next attempt reads only the feed.
        self.loaded_banks.lock().insert(org.clone(), loaded_banks.clone());
        let hash_documents = banks::hashes::collect_documents(&content);
        let compiled = self.compile(&head, content, &loaded_banks).await;
        crate::metrics::record_compile_time(started_at.elapsed());
        match compiled {
            Ok(compiled) => {
                let hash_banks = self.hash_banks_of(&org).unwrap_or_else(|| self.create_hash_banks(&org));
                // Before the configuration is live, so that it never compares media with the banks of the
                // previous one.
                hash_banks.configure(&self.store, hash_documents, (self.clock)()).await?;
                Ok(self.install(Compiled { hashes: hash_banks.publisher(), ..compiled }))
            }
            Err(reason) => Err(self.record_failure(&head, &loaded_banks, reason)),
        }
    }

    fn hash_banks_of(&self, org: &OrgId) -> Option<Arc<LiveHashBanks>> {
        self.hash_banks.lock().get(org).cloned()
    }

    fn create_hash_banks(&self, org: &OrgId) -> Arc<LiveHashBanks> {
        let create = || Arc::new(LiveHashBanks::new(org.clone(), &self.settings.hash_banks, (self.clock)()));
        Arc::clone(self.hash_banks.lock().entry(org.clone()).or_insert_with(create))
    }

    fn maintain_hash_banks(&self) {
        let now = (self.clock)();
        let all_hash_banks: Vec<_> = self.hash_banks.lock().values().cloned().collect();
        let mut sizes: HashMap<HashKind, (usize, usize)> = HashMap::new();
        for hash_banks in &all_hash_banks {
            hash_banks.run_maintenance(&self.store, &self.bank_writer, now);
            for size in hash_banks.publisher().sizes() {
                let (entries, bytes) = sizes.entry(size.kind).or_default();
                *entries += size.entries;
                *bytes += size.bytes;
            }
        }
        for (kind, (entries, bytes)) in sizes {
            crate::metrics::set_bank_size(kind.name(), entries, bytes);
        }
    }

    /// Reads the revisions of the loaded list banks.
    async fn load_revisions_of(&self, org: &OrgId) -> Result<BankRevisions, Error> {
        let banks: Vec<BankId> =
            self.loaded_banks.lock().get(org).into_iter().flat_map(|loaded| loaded.keys().cloned()).collect();
        let heads = ledger::load_heads_of(&self.store, org, banks.iter()).await?;
        Ok(heads.into_iter().map(|head| (head.bank, head.revision)).collect())
    }

    async fn compile(
        &self,
        head: &ConfigHead,
        content: Content,
        loaded_banks: &LoadedBanks,
    ) -> Result<Compiled, String> {
        let (org, version) = (head.org.clone(), head.config_version);
        let (limits, prefix) = (self.settings.rules.clone(), self.settings.header_variable_prefix.clone());
        let (loaded_banks, now) = (loaded_banks.clone(), (self.clock)());
        let task = tokio::task::spawn_blocking(move || {
            let (entries, bank_expires_at) = banks::active_entries(&loaded_banks, now);
            let compiled = compile(&org, version, &content, &entries, &limits, &prefix)
                .map_err(|faults| join_faults(&faults))?;
            let overloaded = log_overloads(&compiled);
            Ok(Compiled {
                banks: collect_revisions(&loaded_banks),
                bank_expires_at,
                overloaded_rules: overloaded,
                ..compiled
            })
        });
        task.await.unwrap_or_else(|panic| Err(format!("the compiler failed: {panic}")))
    }

    fn install(&self, compiled: Compiled) -> Arc<Compiled> {
        let compiled = Arc::new(compiled);
        let org = compiled.org();
        // Readers never wait: they use the old map until the new one is swapped in.
        self.orgs.rcu(|orgs| {
            let mut orgs = HashMap::clone(orgs);
            orgs.insert(org.clone(), Arc::clone(&compiled));
            orgs
        });
        let overloaded: usize = self.orgs.load().values().map(|it| it.overloaded_rules).sum();
        crate::metrics::set_overloaded_rules(overloaded);
        let mut failed_versions = self.failed_versions.lock();
        failed_versions.remove(org);
        self.revisions_at_failure.lock().remove(org);
        report_failing_orgs(failed_versions.len());
        crate::metrics::count_reload();
        tracing::info!(%org, version = compiled.version().0, "a configuration is live");
        compiled
    }

    fn record_failure(&self, head: &ConfigHead, loaded_banks: &LoadedBanks, reason: String) -> Error {
        let (org, version) = (head.org.clone(), head.config_version);
        let running = self.org(&org).map(|compiled| compiled.version());
        tracing::error!(%org, version = version.0, running = running.map(|it| it.0), reason,
            "a configuration does not compile; the organisation keeps its previous version");
        let mut failed_versions = self.failed_versions.lock();
        self.revisions_at_failure.lock().insert(org.clone(), collect_revisions(loaded_banks));
        failed_versions.insert(
            org.clone(),
            CompileFailure { org: org.clone(), version, running, reason: reason.clone() },
        );
        report_failing_orgs(failed_versions.len());
        Error::NotCompiled { org, version, reason }
    }
}

/// True if any of these banks has a later revision now.
fn has_newer_revision(old_revisions: &BankRevisions, new_revisions: &BankRevisions) -> bool {
    old_revisions
        .iter()
        .any(|(bank, revision)| new_revisions.get(bank).is_some_and(|new_revision| new_revision > revision))
}

fn collect_revisions(loaded_banks: &LoadedBanks) -> BankRevisions {
    loaded_banks.iter().map(|(bank, bank_entries)| (bank.clone(), bank_entries.revision)).collect()
}

/// Logs rules that exhaust their step budget on longer texts. Without the log, their failure shows at no
/// single item.
fn log_overloads(compiled: &Compiled) -> usize {
    let overloads = compiled.plan.overloads();
    for overload in overloads.iter().take(MAX_LOGGED_OVERLOADS) {
        let (rules, version) = (overloads.len(), compiled.version.0);
        tracing::warn!(org = %compiled.org, version, rule = %overload.rule, rules, "a rule is too costly: {overload}");
    }
    overloads.len()
}

fn report_failing_orgs(failing: usize) {
    crate::metrics::set_failing_orgs(failing);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Roles spawn these futures; a future that is not `Send` would otherwise fail to compile only there.
    #[test]
    fn futures_of_live_configs_are_send() {
        fn sendable<T: Send>(_: impl Fn(&'static LiveConfigs, &'static OrgId) -> T) {}
        sendable(|live, _| live.run(CancellationToken::new()));
        sendable(LiveConfigs::load_latest);
        sendable(|live, org| live.find_version(org, ConfigVersion(1), Millis(0)));
    }
}
