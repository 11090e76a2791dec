//! Store in a temporary folder, with the services on it and documents to apply.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use tempfile::TempDir;
use tidegate_catalog::{Change, Changes, LiveConfigs, MasterKey, Secrets, Security, Settings, members, orgs};
use tidegate_schemas::ids::{ConfigVersion, Millis, OrgId};
use tidegate_store::{Clock, Migration, Store, cql, embedded};
use tidegate_test_support::{PATIENCE, eventually, servers};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const POST: &str = "\
item_type: post
kind: CONTENT
fields:
  - {name: text, type: STRING, required: true}
  - {name: author, type: RELATED_ITEM, role: creator}
---
item_type: user
kind: USER
---
policy: scam
name: Scam
---
policy: crypto
parent: scam
---
action: limit_reach
kind: callback
strikes: 1
parameters: [{name: hours, type: NUMBER, default: 24}]
---
action: look
kind: enqueue_review
---
rule: demo-scam
status: live
item_types: [post]
when: {text: {in: [text], words: [scamcoin]}}
policies: [crypto]
actions: [limit_reach]
tests:
  - {item: {text: buy scamcoin now}, expect: match}
  - {item: {text: buy bread}, expect: no_match}
---
endpoint: platform
url: https://platform.example/callbacks
headers: {Authorization: 'Bearer ${CALLBACK_TOKEN}'}
---
threshold: three
strikes: 3
within: 90d
action: limit_reach
";

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) org: OrgId,
    pub(crate) settings: Settings,
    pub(crate) folder: TempDir,
}

impl World {
    /// Creates an organisation with an empty configuration.
    pub(crate) async fn new() -> Self {
        let world = Self::empty();
        orgs::create(&world.store, &world.org, "Org", Millis(1)).await.unwrap();
        world
    }

    /// Creates the same on Cassandra or ScyllaDB; `None` if no server is configured.
    pub(crate) async fn on_cql(case: &str) -> Option<Self> {
        let address = servers::cql(&format!("catalog, {case}"))?;
        let world = Self::empty();
        let settings = cql::Settings {
            contact_points: address.split(',').map(str::to_owned).collect(),
            keyspace: format!("catalog_{}_{}", Millis::now().0, std::process::id()),
            replication: Some(cql::Replication::Simple(1)),
            // A busy machine must not fail the test.
            request_timeout_ms: 30_000,
            settle_timeout_ms: 60_000,
            ..cql::Settings::default()
        };
        let store = Store::open_cql(settings).await.unwrap();
        store.migrate(Migration::Expand).await.unwrap();
        let world = Self { store, ..world };
        orgs::create(&world.store, &world.org, "Org", Millis(1)).await.unwrap();
        Some(world)
    }

    pub(crate) fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        Self { store, org: OrgId::new("org"), settings: Settings::default(), folder }
    }

    pub(crate) fn secrets(&self) -> Secrets {
        let key = MasterKey::load(&Security::default(), Some(self.folder.path())).unwrap();
        Secrets::new(self.store.clone(), key, &self.settings)
    }

    pub(crate) fn changes(&self) -> Changes {
        Changes::new(self.store.clone(), self.secrets(), &self.settings)
    }

    pub(crate) async fn apply(&self, yaml: &str) -> ConfigVersion {
        self.changes().apply(&self.org, change(yaml)).await.unwrap().version
    }

    /// Starts another process on the same store, and waits until it is listed as a member.
    pub(crate) async fn live(&self) -> Running {
        let before = members::list(&self.store).await.unwrap().len();
        let running =
            Running::of(LiveConfigs::open(self.store.clone(), self.settings.clone()).await.unwrap());
        let member_listed = async || (members::list(&self.store).await.unwrap().len() > before).then_some(());
        eventually("the member to be listed", PATIENCE, member_listed).await.unwrap();
        running
    }

    /// Starts a process with a manual clock.
    pub(crate) async fn live_with_clock(&self, clock: &ManualClock) -> Running {
        let live = LiveConfigs::open_with_clock(self.store.clone(), self.settings.clone(), clock.clock());
        Running::of(live.await.unwrap())
    }
}

pub(crate) fn open(folder: &Path) -> Store {
    let db = fjall::Database::builder(folder.join("db")).open().unwrap();
    Store::open_embedded(&db, embedded::Settings::default()).unwrap()
}

pub(crate) struct Running {
    pub(crate) live: Arc<LiveConfigs>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn of(live: LiveConfigs) -> Self {
        let (live, stop) = (Arc::new(live), CancellationToken::new());
        let task = {
            let (live, stop) = (Arc::clone(&live), stop.clone());
            tokio::spawn(async move { live.run(stop).await })
        };
        Self { live, stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

pub(crate) fn files(yaml: &str) -> Vec<(String, String)> {
    vec![("all.yaml".to_owned(), yaml.to_owned())]
}

pub(crate) fn change(yaml: &str) -> Change {
    Change { files: files(yaml), author: "tests".to_owned(), expected_version: None, prune: false }
}

/// Clock that stands still until it is advanced.
#[derive(Clone)]
pub(crate) struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_800_000_000_000)))
    }

    pub(crate) fn clock(&self) -> Clock {
        let manual_clock = self.clone();
        Arc::new(move || manual_clock.now())
    }

    pub(crate) fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn advance(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}
