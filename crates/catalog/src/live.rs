//! The configurations that run in this process: compiled in the background, swapped when one changes.
//!
//! It changes no configuration (`change`) and keeps no old ones: work in flight holds the `Arc` that it began with.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
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
    banks::{self, AllHeld, Banks, hashes::Hashes, ledger},
    compile::compile,
    content::{Content, joined},
    flights::Flights,
    members::{self, Failing, Heartbeat},
    processing_load::{LoadReport, ProcessingLoad},
    snapshots,
};

/// One a process; every role asks the same one.
pub struct Live(Arc<Inner>);

struct Inner {
    store: Store,
    settings: Settings,
    clock: Clock,
    orgs: ArcSwap<HashMap<OrgId, Arc<Compiled>>>,
    /// Current versions that do not compile here. They are not tried again until they are replaced.
    failing: Mutex<BTreeMap<OrgId, Failing>>,
    /// The entries of the banks that run here, by organisation.
    banks: Mutex<HashMap<OrgId, AllHeld>>,
    /// The banks of hashes that run here, by organisation.
    hashes: Mutex<HashMap<OrgId, Arc<Hashes>>>,
    /// Switches entries off that match too much.
    writer: Banks,
    /// Revisions of banks with which a failing configuration was tried.
    tried: Mutex<HashMap<OrgId, Revisions>>,
    loading: Flights<OrgId>,
    compilers: Semaphore,
    answered: Mutex<Instant>,
    /// Last version that was looked for and not found, for each organisation.
    not_found: Mutex<HashMap<OrgId, (Asked, Error)>>,
    opened_at_epoch: i64,
    /// Id of this process among the members.
    member_id: Uuid,
    load: Arc<ProcessingLoad>,
}

/// Revisions of an organisation's banks.
type Revisions = BTreeMap<BankId, i64>;

/// A version that somebody needs.
#[derive(Clone, Copy)]
struct Asked {
    version: ConfigVersion,
    since: Millis,
    at: Instant,
}

/// Time for which a missing version is not looked for again, however many wait for it.
const NOT_FOUND_FOR: Duration = Duration::from_millis(500);

/// Whoever changes a bank settles the change right away, unless it died.
const LEFT_UNSETTLED: Duration = Duration::from_secs(10);

/// Costly rules of one configuration that are logged.
const TOLD: usize = 20;

impl Live {
    /// Compiles every organisation's current configuration. One that does not compile is missing here and alarmed.
    pub async fn open(store: Store, settings: Settings) -> Result<Self, Error> {
        Self::open_with_clock(store, settings, system_clock()).await
    }

    pub async fn open_with_clock(store: Store, settings: Settings, clock: Clock) -> Result<Self, Error> {
        let compilers = match settings.compilers {
            0 => std::thread::available_parallelism().map_or(2, usize::from).max(2),
            some => some,
        };
        // Before the heads: what moves in between is seen again at the first poll.
        let opened_at_epoch = snapshots::epoch(&store).await?;
        let writer = Banks::with_clock(store.clone(), &settings, Arc::clone(&clock));
        let live = Self(Arc::new(Inner {
            writer,
            store,
            settings,
            clock,
            orgs: ArcSwap::default(),
            failing: Mutex::default(),
            banks: Mutex::default(),
            hashes: Mutex::default(),
            tried: Mutex::default(),
            loading: Flights::new(),
            compilers: Semaphore::new(compilers),
            answered: Mutex::new(Instant::now()),
            not_found: Mutex::default(),
            opened_at_epoch,
            member_id: CauseId::random().0,
            load: Arc::default(),
        }));
        let mut loads = JoinSet::new();
        for head in snapshots::heads(&live.0.store).await? {
            loads.spawn(Arc::clone(&live.0).load(head));
        }
        for loaded in loads.join_all().await {
            if let Err(Error::Store(error)) = loaded {
                return Err(error.into());
            }
        }
        Ok(live)
    }

    /// Returns the configuration that runs for an organisation, without asking the store.
    pub fn org(&self, org: &OrgId) -> Option<Arc<Compiled>> {
        self.0.org(org)
    }

    /// The organisations that run here.
    pub fn orgs(&self) -> Vec<OrgId> {
        let mut orgs: Vec<_> = self.0.orgs.load().keys().cloned().collect();
        orgs.sort_unstable();
        orgs
    }

    /// The current version, read through to the store.
    pub async fn latest(&self, org: &OrgId) -> Result<Arc<Compiled>, Error> {
        let head = snapshots::head(&self.0.store, org).await?;
        let head = head.ok_or_else(|| Error::NoSuchOrg(org.clone()))?;
        match self.org(org) {
            Some(here) if here.version() >= head.config_version => Ok(here),
            _ => Arc::clone(&self.0).load(head).await,
        }
    }

    /// This version or a later one, read through to the store; it does not wait.
    ///
    /// A configuration that was changed after `since` will do whatever its number is. Numbers go back only when an
    /// older store is restored: then the version is gone for good, and what was configured after the record that names
    /// it is newer than what the record was checked against.
    pub async fn find(
        &self,
        org: &OrgId,
        version: ConfigVersion,
        since: Millis,
    ) -> Result<Arc<Compiled>, Error> {
        if let Some(here) = self.org(org).filter(|here| here.version() >= version) {
            return Ok(here);
        }
        let asked = Asked { version, since, at: Instant::now() };
        if let Some(error) = self.0.not_found_lately(org, &asked) {
            return Err(error);
        }
        let found = self.read_through(org, version, since).await;
        self.0.remember(org, asked, found.as_ref().err());
        found
    }

    async fn read_through(
        &self,
        org: &OrgId,
        version: ConfigVersion,
        since: Millis,
    ) -> Result<Arc<Compiled>, Error> {
        let head = snapshots::head(&self.0.store, org).await?;
        let head = head.ok_or_else(|| Error::NoSuchOrg(org.clone()))?;
        if head.config_version < version && head.changed_at <= since {
            let head = head.config_version;
            return Err(Error::NoSuchVersion { org: org.clone(), wanted: version, head });
        }
        Arc::clone(&self.0).load(head).await
    }

    /// Returns the number of organisations that run here.
    pub fn running(&self) -> usize {
        self.0.orgs.load().len()
    }

    /// True if the store answered lately, so that the running configurations are known to be current.
    pub fn ready(&self) -> bool {
        self.0.answered.lock().elapsed() < self.0.settings.stale_after()
    }

    /// The organisations whose current version does not compile here: what they run is an older one, or nothing.
    pub fn failing(&self) -> Vec<Failing> {
        self.0.failing.lock().values().cloned().collect()
    }

    /// Measurements of this process, which tells them to the others.
    pub fn processing_load(&self) -> &Arc<ProcessingLoad> {
        &self.0.load
    }

    /// Returns the measurements of all processes that evaluate items. Those of others are some seconds old.
    pub async fn loads(&self) -> Result<LoadReport, Error> {
        let others = members::loads_of_others(&self.0.store, self.0.member_id).await?;
        Ok(self.0.load.report(std::time::Instant::now()).joined(others))
    }

    /// Returns a follower for callers that keep their own schedule.
    pub fn follower(&self) -> Follower {
        Follower::new(Arc::clone(&self.0))
    }

    /// Follows the changes until it is told to stop.
    pub async fn run(&self, stop: CancellationToken) {
        let mut follower = self.follower();
        let mut tick = tokio::time::interval(self.0.settings.poll());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(loaded) = follower.loads.join_next() => follower.loaded(loaded.unwrap_or(false)),
                _ = tick.tick() => follower.poll().await,
            }
            follower.beat().await;
        }
        follower.heartbeat.leave(&self.0.store, (self.0.clock)()).await;
    }
}

/// Follows the changes, and remembers how far it is.
pub struct Follower {
    live: Arc<Inner>,
    /// Loads that go on; whether each came to an end that is final for its version.
    loads: JoinSet<bool>,
    seen: i64,
    /// The last epoch whose changes all run here.
    settled: i64,
    /// A load was cut off by an outage, so the heads must be read again.
    again: bool,
    heads_due: Instant,
    heartbeat: Heartbeat,
    /// Time when everything that the store had ran here.
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
            seen: epoch,
            settled: epoch,
            again: false,
            heads_due,
            heartbeat,
            current_at,
        }
    }

    /// Asks once what changed, and waits until it runs here: one step is enough for whatever was changed before it.
    pub async fn step(&mut self) {
        self.poll().await;
        while let Some(loaded) = self.loads.join_next().await {
            self.loaded(loaded.unwrap_or(false));
        }
        self.beat().await;
    }

    async fn poll(&mut self) {
        self.live.look_after_hashes();
        let asked_at = Instant::now();
        match self.follow().await {
            Ok(()) => {
                *self.live.answered.lock() = Instant::now();
                if self.is_current() {
                    self.current_at = asked_at;
                }
            }
            Err(error) => {
                crate::metrics::poll_failed();
                tracing::debug!(tag = error.tag(), "cannot ask for changed configurations");
            }
        }
    }

    async fn follow(&mut self) -> Result<(), Error> {
        let epoch = snapshots::epoch(&self.live.store).await?;
        let expired = self.live.has_expired_entries();
        if epoch != self.seen || self.again || expired || Instant::now() >= self.heads_due {
            let heads = snapshots::heads(&self.live.store).await?;
            let banks = self.live.bank_revisions().await?;
            let none = Revisions::new();
            for head in heads {
                let head_org = head.org.clone();
                let banks = banks.get(&head_org).unwrap_or(&none);
                if self.live.is_new(&head, banks) || self.live.is_behind(&head.org, banks) {
                    let load = Arc::clone(&self.live).load(head);
                    self.loads.spawn(async move {
                        !matches!(load.await, Err(error) if can_be_tried_again(&error))
                    });
                }
                if let Some(hashes) = self.live.hashes_of(&head_org).filter(|it| it.is_behind(banks)) {
                    let store = self.live.store.clone();
                    self.loads.spawn(async move {
                        let caught_up = hashes.catch_up(&store).await;
                        caught_up.inspect_err(|error| tracing::warn!(tag = error.tag(), "{error}")).is_ok()
                    });
                }
            }
            (self.seen, self.again) = (epoch, false);
            self.heads_due = Instant::now() + self.live.settings.heads_every();
        }
        Ok(())
    }

    fn loaded(&mut self, is_final: bool) {
        self.again |= !is_final;
    }

    fn is_current(&self) -> bool {
        self.loads.is_empty() && !self.again
    }

    /// Tells the others how far this process is: at once when it got further, else now and then.
    async fn beat(&mut self) {
        if self.is_current() {
            self.settled = self.seen;
        }
        crate::metrics::age(self.current_at.elapsed());
        let failing = || self.live.failing.lock().values().cloned().collect();
        let load = || self.live.load.report(std::time::Instant::now()).into_json();
        let now = (self.live.clock)();
        let beaten = self.heartbeat.beat(&self.live.store, self.settled, failing, load, now).await;
        if let Err(error) = beaten {
            tracing::debug!(tag = error.tag(), "cannot renew the membership");
        }
    }
}

/// The version may run here after all; a version that does not compile will not.
fn can_be_tried_again(error: &Error) -> bool {
    !matches!(error, Error::NotCompiled { .. })
}

impl Inner {
    fn org(&self, org: &OrgId) -> Option<Arc<Compiled>> {
        self.orgs.load().get(org).cloned()
    }

    /// `banks` are the revisions of all banks that the organisation ever had.
    fn is_new(&self, head: &ConfigHead, banks: &Revisions) -> bool {
        let runs = self.org(&head.org).is_some_and(|here| here.version() >= head.config_version);
        !runs && self.known_failure(head, banks).is_none()
    }

    /// True if a bank has other entries by now than those that run here.
    fn is_behind(&self, org: &OrgId, banks: &Revisions) -> bool {
        let Some(here) = self.org(org) else { return false };
        let tried = self.tried.lock();
        // What did not compile is not tried again until something else is there.
        let is_tried = tried.get(org).is_some_and(|tried| !have_moved(tried, banks));
        !is_tried && (have_moved(&here.banks, banks) || self.has_expired(&here))
    }

    fn has_expired(&self, here: &Compiled) -> bool {
        here.bank_expires_at.is_some_and(|end| end <= (self.clock)())
    }

    fn has_expired_entries(&self) -> bool {
        self.orgs.load().values().any(|here| self.has_expired(here))
    }

    /// Reads the bank revisions of all organisations. A change whose writer died before it was settled is settled here.
    async fn bank_revisions(&self) -> Result<HashMap<OrgId, Revisions>, Error> {
        let mut all: HashMap<OrgId, Revisions> = HashMap::new();
        for head in ledger::heads(&self.store).await? {
            let is_left =
                head.settled < head.revision && head.changed_at.plus(LEFT_UNSETTLED) < (self.clock)();
            if is_left && let Err(error) = ledger::settle(&self.store, &head).await {
                tracing::warn!(tag = error.tag(), org = %head.org, bank = %head.bank, "{error}");
            }
            all.entry(head.org).or_default().insert(head.bank, head.revision);
        }
        Ok(all)
    }

    fn known_failure(&self, head: &ConfigHead, banks: &Revisions) -> Option<Error> {
        let failing = self.failing.lock();
        let known = failing.get(&head.org).filter(|known| known.version == head.config_version)?;
        let tried = self.tried.lock();
        if tried.get(&head.org).is_some_and(|tried| have_moved(tried, banks)) {
            return None;
        }
        Some(Error::NotCompiled {
            org: head.org.clone(),
            version: head.config_version,
            reason: known.reason.clone(),
        })
    }

    fn not_found_lately(&self, org: &OrgId, asked: &Asked) -> Option<Error> {
        let not_found = self.not_found.lock();
        let (before, error) = not_found.get(org)?;
        let is_as_much = asked.version >= before.version && asked.since >= before.since;
        (is_as_much && asked.at < before.at + NOT_FOUND_FOR).then(|| error.again()).flatten()
    }

    fn remember(&self, org: &OrgId, asked: Asked, error: Option<&Error>) {
        let mut not_found = self.not_found.lock();
        match error.and_then(Error::again) {
            Some(error) => {
                not_found.insert(org.clone(), (asked, error));
            }
            None => {
                not_found.remove(org);
            }
        }
    }

    /// Makes the version of a head run here, unless it does or a later one does.
    async fn load(self: Arc<Self>, head: ConfigHead) -> Result<Arc<Compiled>, Error> {
        let _flight = self.loading.enter(&head.org).await;
        let banks = self.revisions_of(&head.org).await?;
        if let Some(here) = self.org(&head.org).filter(|here| here.version() >= head.config_version)
            && !self.is_behind(&head.org, &banks)
        {
            return Ok(here);
        }
        if let Some(error) = self.known_failure(&head, &banks) {
            return Err(error);
        }
        let text = match snapshots::read(&self.store, &head).await {
            Ok(text) => text,
            Err(error) => {
                if let Error::Unreadable { reason, .. } = &error {
                    tracing::error!(org = %head.org, version = head.config_version.0, reason, "a configuration cannot be read");
                }
                return Err(error);
            }
        };
        // Nobody closes the semaphore.
        let _permit = self.compilers.acquire().await;
        let began = Instant::now();
        let (org, version) = (head.org.clone(), head.config_version);
        let decoded = tokio::task::spawn_blocking(move || Content::decode(&text, version)).await;
        let content = match decoded.unwrap_or_else(|panic| Err(format!("the reader failed: {panic}"))) {
            Ok(content) => content,
            Err(reason) => return Err(self.failed(&head, &AllHeld::new(), reason)),
        };
        let before = self.banks.lock().get(&org).cloned().unwrap_or_default();
        let held = banks::catch_up(&self.store, &org, &content, &before).await?;
        self.banks.lock().insert(org.clone(), held.clone());
        let of_hashes = banks::hashes::documents(&content);
        let compiled = self.compile(&head, content, &held).await;
        crate::metrics::compiled(began.elapsed());
        match compiled {
            Ok(compiled) => {
                let hashes = self.hashes_of(&org).unwrap_or_else(|| self.new_hashes(&org));
                hashes.configure(&self.store, of_hashes, (self.clock)()).await?;
                Ok(self.install(Compiled { hashes: hashes.publisher(), ..compiled }))
            }
            Err(reason) => Err(self.failed(&head, &held, reason)),
        }
    }

    fn hashes_of(&self, org: &OrgId) -> Option<Arc<Hashes>> {
        self.hashes.lock().get(org).cloned()
    }

    fn new_hashes(&self, org: &OrgId) -> Arc<Hashes> {
        let new = || Arc::new(Hashes::new(org.clone(), &self.settings.hash_banks, (self.clock)()));
        Arc::clone(self.hashes.lock().entry(org.clone()).or_insert_with(new))
    }

    fn look_after_hashes(&self) {
        let now = (self.clock)();
        let all: Vec<_> = self.hashes.lock().values().cloned().collect();
        let mut sizes: HashMap<HashKind, (usize, usize)> = HashMap::new();
        for hashes in &all {
            hashes.look_after(&self.store, &self.writer, now);
            for size in hashes.publisher().sizes() {
                let (entries, bytes) = sizes.entry(size.kind).or_default();
                *entries += size.entries;
                *bytes += size.bytes;
            }
        }
        for (kind, (entries, bytes)) in sizes {
            crate::metrics::bank_size(kind.name(), entries, bytes);
        }
    }

    /// Reads the revisions of the banks that run here or were tried.
    async fn revisions_of(&self, org: &OrgId) -> Result<Revisions, Error> {
        let banks: Vec<BankId> =
            self.banks.lock().get(org).into_iter().flat_map(|all| all.keys().cloned()).collect();
        let heads = ledger::heads_of(&self.store, org, banks.iter()).await?;
        Ok(heads.into_iter().map(|head| (head.bank, head.revision)).collect())
    }

    async fn compile(&self, head: &ConfigHead, content: Content, held: &AllHeld) -> Result<Compiled, String> {
        let (org, version) = (head.org.clone(), head.config_version);
        let (limits, prefix) = (self.settings.rules.clone(), self.settings.header_variable_prefix.clone());
        let (held, now) = (held.clone(), (self.clock)());
        let task = tokio::task::spawn_blocking(move || {
            let (entries, bank_expires_at) = banks::entries(&held, now);
            let compiled = compile(&org, version, &content, &entries, &limits, &prefix)
                .map_err(|faults| joined(&faults))?;
            let overloaded = warn_of_overloads(&compiled);
            Ok(Compiled { banks: revisions(&held), bank_expires_at, overloaded, ..compiled })
        });
        task.await.unwrap_or_else(|panic| Err(format!("the compiler failed: {panic}")))
    }

    fn install(&self, compiled: Compiled) -> Arc<Compiled> {
        let compiled = Arc::new(compiled);
        let org = compiled.org();
        self.orgs.rcu(|orgs| {
            let mut orgs = HashMap::clone(orgs);
            orgs.insert(org.clone(), Arc::clone(&compiled));
            orgs
        });
        let overloaded: usize = self.orgs.load().values().map(|it| it.overloaded).sum();
        crate::metrics::rules_overloaded(overloaded);
        let mut failing = self.failing.lock();
        failing.remove(org);
        self.tried.lock().remove(org);
        alarm(failing.len());
        crate::metrics::reloaded();
        tracing::info!(%org, version = compiled.version().0, "a configuration is live");
        compiled
    }

    fn failed(&self, head: &ConfigHead, held: &AllHeld, reason: String) -> Error {
        let (org, version) = (head.org.clone(), head.config_version);
        let running = self.org(&org).map(|here| here.version());
        tracing::error!(%org, version = version.0, running = running.map(|it| it.0), reason,
            "a configuration does not compile; what ran before goes on");
        let mut failing = self.failing.lock();
        self.tried.lock().insert(org.clone(), revisions(held));
        failing.insert(org.clone(), Failing { org: org.clone(), version, running, reason: reason.clone() });
        alarm(failing.len());
        Error::NotCompiled { org, version, reason }
    }
}

/// True if any of these banks has a later revision now.
fn have_moved(before: &Revisions, now: &Revisions) -> bool {
    before.iter().any(|(bank, revision)| now.get(bank).is_some_and(|now| now > revision))
}

fn revisions(held: &AllHeld) -> Revisions {
    held.iter().map(|(bank, held)| (bank.clone(), held.revision)).collect()
}

/// Rules that end as errored on any text that is not short: nobody who only looks at items would see why.
fn warn_of_overloads(compiled: &Compiled) -> usize {
    let overloads = compiled.plan.overloads();
    for overload in overloads.iter().take(TOLD) {
        let (rules, version) = (overloads.len(), compiled.version.0);
        tracing::warn!(org = %compiled.org, version, rule = %overload.rule, rules, "a rule is too costly: {overload}");
    }
    overloads.len()
}

fn alarm(failing: usize) {
    crate::metrics::failing_orgs(failing);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Roles spawn them; an `async fn` whose future is not `Send` would only be noticed there.
    #[test]
    fn what_roles_spawn_can_be_spawned() {
        fn sendable<T: Send>(_: impl Fn(&'static Live, &'static OrgId) -> T) {}
        sendable(|live, _| live.run(CancellationToken::new()));
        sendable(Live::latest);
        sendable(|live, org| live.find(org, ConfigVersion(1), Millis(0)));
    }
}
