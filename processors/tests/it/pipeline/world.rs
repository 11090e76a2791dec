//! Test installation in a temporary folder, with helpers to send records and read rows.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use serde_json::Value;
use tempfile::TempDir;
use tidegate_catalog::{Change, Changes, LiveConfigs, MasterKey, Secrets, orgs};
use tidegate_egress::Client;
use tidegate_media::{Decoders, Limits};
use tidegate_moderation::{
    self as moderation,
    child_safety::{AuthorizedJob, Clearance},
    media::{MediaInspector, Settings as SignalSettings},
    scores::{self, Scorer},
};
use tidegate_processors::{Deps, Health, PartialItemsDeps, RoleError, Settings, process};
use tidegate_schemas::{
    ids::{ConfigVersion, EventId, ItemKey, JobId, Millis, OrgId, SubmissionId},
    records::{self, Callback, ItemEntry, Items, Source, Variant},
};
use tidegate_store::{Row, RowRange, Store, tables::items::items::Item};
use tidegate_stream::{
    Log, Record, Topic,
    consumer::inbox::DrainResult,
    page_reader::{Order, Query},
    record::PageRecord,
};
use tidegate_test_support::{PATIENCE, eventually, openapi::contract};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const DOCUMENTS: &str = r"
item_type: post
kind: CONTENT
fields:
  - {name: text, type: STRING, required: true}
  - {name: author, type: RELATED_ITEM, role: creator}
---
item_type: user
kind: USER
fields: [{name: name, type: STRING}]
---
policy: scam
name: Scam
---
endpoint: platform
url: https://platform.example/callbacks
---
action: limit_reach
kind: callback
endpoint: platform
strikes: 1
---
action: ban
kind: callback
endpoint: platform
---
action: look
kind: enqueue_review
---
rule: demo-scam
name: Scam
status: live
on: [item, report]
item_types: [post]
when: {text: {in: [text], words: [scamcoin]}}
policies: [scam]
actions: [limit_reach]
---
rule: doubtful
status: live
on: [item, report]
item_types: [post]
when: {text: {in: [text], words: [doubtful]}}
actions: [look]
---
rule: known-offender
status: live
item_types: [post]
when: {all: [{text: {in: [text], words: [hello]}}, {strikes: {gte: 2, within: 30d}}]}
actions: [ban]
---
threshold: three
strikes: 3
within: 30d
action: ban
";

pub(crate) struct World {
    folder: TempDir,
    pub(crate) deps: Deps,
    changes: Changes,
    pub(crate) settings: Settings,
    /// Loopback ports from which media may be fetched.
    ports: Vec<u16>,
    running: Option<(CancellationToken, JoinHandle<Result<DrainResult, RoleError>>)>,
}

pub(crate) fn org() -> OrgId {
    OrgId::new("acme")
}

/// Loads the job for a caller with clearance for all classes.
pub(crate) async fn authorize(store: &Store, job: JobId) -> AuthorizedJob {
    AuthorizedJob::load(store, &org(), job, Clearance::ChildSafety).await.unwrap().unwrap()
}

pub(crate) fn post(id: &str) -> ItemKey {
    ItemKey::new("post", id)
}

pub(crate) fn user(id: &str) -> ItemKey {
    ItemKey::new("user", id)
}

/// Opens an embedded store with a limit of bytes per row.
pub(crate) fn store_of_rows(db: &fjall::Database, max_row_bytes: usize) -> Store {
    Store::open_embedded(db, tidegate_store::embedded::Settings { max_row_bytes, ..Default::default() })
        .unwrap()
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        Self::with_media_ports(settings, &[]).await
    }

    /// Creates a world that may fetch media from these loopback ports.
    pub(crate) async fn with_media_ports(settings: Settings, ports: &[u16]) -> Self {
        Self::configure_default(Self::open(tempfile::tempdir().unwrap(), settings, ports, None).await).await
    }

    /// Creates a world with its log in a folder and its rows in another store.
    pub(crate) async fn on(store: Store) -> Self {
        Self::configure_default(
            Self::open(tempfile::tempdir().unwrap(), Settings::default(), &[], Some(store)).await,
        )
        .await
    }

    /// Another processor with its own log on the store of an existing one.
    pub(crate) async fn beside_another(store: Store) -> Self {
        Self::open(tempfile::tempdir().unwrap(), Settings::default(), &[], Some(store)).await
    }

    async fn configure_default(world: Self) -> Self {
        orgs::create(&world.deps.store, &org(), "Acme", Millis::now()).await.unwrap();
        world.configure(DOCUMENTS, false).await;
        world
    }

    async fn open(folder: TempDir, settings: Settings, ports: &[u16], elsewhere: Option<Store>) -> Self {
        // Written at a stop only: a write during an image would spoil the copy.
        let settings = Settings { rule_counts_ms: 3_600_000, ..settings };
        let db = fjall::Database::builder(folder.path().join("data")).open().unwrap();
        let stream = tidegate_stream::settings::Settings {
            partitions: Some(4),
            consume: tidegate_stream::settings::ConsumeSettings {
                // Commits only at a stop, so every record of an image is replayed.
                commit_interval_ms: 3_600_000,
                ..Default::default()
            },
            ..Default::default()
        };
        let log = Log::open_embedded(db.clone(), &stream).unwrap();
        let store = elsewhere.unwrap_or_else(|| {
            Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap()
        });
        // The test does not follow changes of the catalog, which must not count as an outage.
        let mut catalog = tidegate_catalog::Settings { stale_after_ms: 3_600_000, ..Default::default() };
        // A low limit that tests can exceed.
        catalog.rules.matched = MATCHED;
        let live = Arc::new(LiveConfigs::open(store.clone(), catalog.clone()).await.unwrap());
        let secrets = Secrets::new(store.clone(), MasterKey::new([7; 32]), &catalog);
        let scorer = Scorer::new(
            Client::new(egress_settings(ports)).unwrap(),
            store.clone(),
            secrets.clone(),
            &scores::Settings { failures: 3, ..Default::default() },
        );
        let changes = Changes::new(store.clone(), secrets.clone(), &catalog);
        let client = Client::new(egress_settings(ports)).unwrap();
        let signals = MediaInspector::new(
            client.clone(),
            Decoders::new(Limits::default()).unwrap(),
            store.clone(),
            &SignalSettings::default(),
        );
        let partial_items = PartialItemsDeps { endpoints: Arc::default(), client, secrets };
        let deps = Deps { log, store, live, signals, scorer, partial_items, health: Health::default() };
        Self { folder, deps, changes, settings, ports: ports.to_vec(), running: None }
    }

    pub(crate) async fn configure(&self, documents: &str, prune: bool) {
        self.change(&org(), documents, prune).await;
    }

    pub(crate) async fn configure_org(&self, org: &OrgId, documents: &str) {
        self.change(org, documents, false).await;
    }

    async fn change(&self, org: &OrgId, documents: &str, prune: bool) {
        let change = Change {
            files: vec![("config.yaml".to_owned(), documents.to_owned())],
            author: "test".to_owned(),
            expected_version: None,
            prune,
        };
        self.changes.apply(org, change).await.unwrap();
        // Loads the version, as the task that follows changes would.
        self.deps.live.load_latest(org).await.unwrap();
    }

    pub(crate) fn start(&mut self) {
        let stop = CancellationToken::new();
        let running = tokio::spawn(process(self.deps.clone(), self.settings.clone(), stop.clone()));
        self.running = Some((stop, running));
    }

    pub(crate) async fn started() -> Self {
        let mut world = Self::new().await;
        world.start();
        world
    }

    pub(crate) async fn stop(&mut self) -> Result<DrainResult, RoleError> {
        let (stop, running) = self.running.take().unwrap();
        stop.cancel();
        running.await.unwrap()
    }

    /// Waits for the role to end without a stop and returns its result.
    pub(crate) async fn wait_for_end(&mut self) -> Result<DrainResult, RoleError> {
        let (_, running) = self.running.take().unwrap();
        tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap()
    }

    /// Opens a copy of the current disk content, as after a kill. No write may occur meanwhile.
    pub(crate) async fn image(&self) -> Self {
        // The engine cleans up its folder in the background, so the copy is repeated until the folder was stable.
        let data = self.folder.path().join("data");
        let folder = self
            .wait_for("an image of the folder", async || {
                let folder = tempfile::tempdir().unwrap();
                let before = files(&data).ok()?;
                copy(&data, &folder.path().join("data")).ok()?;
                (files(&data).ok()? == before).then_some(folder)
            })
            .await;
        Self::open(folder, self.settings.clone(), &self.ports, None).await
    }

    pub(crate) fn moderation(&self) -> moderation::Deps {
        let Deps { log, store, live, partial_items, .. } = self.deps.clone();
        moderation::Deps { log, store, live, partial_items: partial_items.endpoints }
    }

    pub(crate) async fn version(&self) -> ConfigVersion {
        self.deps.live.load_latest(&org()).await.unwrap().version()
    }

    pub(crate) async fn append<R: records::Record>(&self, topic: Topic, key: &[u8], record: &R) {
        let partition = self.deps.log.partition(topic, key);
        self.deps.log.append(&[(partition, Record::new(key, record.to_datum()))]).await.unwrap();
    }

    /// Builds one record with these items.
    pub(crate) async fn submit(&self, items: Vec<ItemEntry>) {
        self.submit_as(&org(), items).await;
    }

    pub(crate) async fn submit_as(&self, org: &OrgId, items: Vec<ItemEntry>) {
        let record = self.record(org, items).await;
        self.send(record).await;
    }

    /// Builds a record. Requires an available store.
    pub(crate) async fn prepare(&self, items: Vec<ItemEntry>) -> Items {
        self.record(&org(), items).await
    }

    pub(crate) async fn send(&self, record: Items) {
        let key = record.items[0].key().log_key(&record.org);
        self.append(Topic::Items, &key, &record).await;
    }

    async fn record(&self, org: &OrgId, items: Vec<ItemEntry>) -> Items {
        Items {
            org: org.clone(),
            config_version: self.deps.live.load_latest(org).await.unwrap().version(),
            source: Source::Api,
            received_at: Millis::now(),
            request_id: "request".to_owned(),
            report_id: None,
            items,
        }
    }

    pub(crate) async fn submit_text(&self, id: &str, text: &str) -> SubmissionId {
        let entry = entry(&post(id), text);
        let submission = entry.submission_id;
        self.submit(vec![entry]).await;
        submission
    }

    pub(crate) async fn versions(&self, item: &ItemKey) -> Vec<Item> {
        self.rows(&(org(), item.type_id.clone(), item.id.clone())).await
    }

    pub(crate) async fn wait_until_evaluated(&self, item: &ItemKey, submission: SubmissionId) -> Item {
        self.wait_for("an evaluated row", async || {
            self.versions(item).await.into_iter().find(|row| row.submission_id == submission)
        })
        .await
    }

    pub(crate) async fn rows<R: Row>(&self, partition: &R::Partition) -> Vec<R> {
        self.deps.store.scan::<R>(partition, RowRange::all()).all().await.unwrap()
    }

    pub(crate) async fn tail(&self, topic: Topic) -> Vec<PageRecord> {
        let query = Query { topic, order: Order::Oldest, limit: 1_000, after: None };
        self.deps.log.read_page(query).await.unwrap().records
    }

    /// Returns the callbacks. Each body is validated against the published description.
    pub(crate) async fn callbacks(&self) -> Vec<Callback> {
        let callbacks: Vec<Callback> =
            self.tail(Topic::Callbacks).await.iter().map(|tailed| tailed.decode().unwrap()).collect();
        for callback in callbacks.iter().filter(|callback| !callback.body.is_empty()) {
            let mut body: Value = serde_json::from_slice(&callback.body).unwrap();
            // The role `deliver` adds the sequence.
            body["sequence"] = 1.into();
            contract().check_webhook(&body).unwrap_or_else(|error| panic!("{error}\n{body}"));
        }
        callbacks
    }

    /// Returns the distinct events of one type among the callbacks.
    pub(crate) async fn events(&self, event_type: &str) -> Vec<EventId> {
        let callbacks = self.callbacks().await;
        let of_type = callbacks.iter().filter(|callback| callback.event_type == event_type);
        let mut events: Vec<_> = of_type.map(|callback| callback.event_id).collect();
        events.sort_unstable();
        events.dedup();
        events
    }

    pub(crate) async fn wait_for<T>(&self, what: &str, probe: impl AsyncFnMut() -> Option<T>) -> T {
        eventually(what, PATIENCE, probe).await.unwrap()
    }

    pub(crate) fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Stops, which fails unless every record that processing has read was completed. Records that it has not read yet
    /// stay.
    pub(crate) async fn drain(&mut self) {
        self.callbacks().await;
        assert_eq!(self.stop().await.unwrap(), DrainResult::Clean);
    }
}

/// Egress settings for loopback, with timeouts that no test reaches.
fn egress_settings(ports: &[u16]) -> tidegate_egress::Settings {
    tidegate_egress::Settings {
        // The name of this machine may resolve to IPv4 and IPv6.
        allow_cidrs: vec!["127.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()],
        connect_timeout_ms: 15_000,
        media: tidegate_egress::settings::MediaSettings {
            ports: ports.to_vec(),
            first_byte_ms: 600_000,
            idle_ms: 600_000,
            total_ms: 600_000,
            min_rate: 0,
            ..Default::default()
        },
        partial_items: tidegate_egress::settings::PartialItemsSettings {
            rest_ms: 10,
            longest_rest_ms: 20,
            ..Default::default()
        },
        ..Default::default()
    }
}

pub(crate) fn entry(item: &ItemKey, text: &str) -> ItemEntry {
    let data = serde_json::json!({"text": text, "author": {"typeId": "user", "id": "u1"}});
    entry_of(item, data.to_string())
}

pub(crate) fn entry_of(item: &ItemKey, data: String) -> ItemEntry {
    ItemEntry {
        submission_id: SubmissionId::random(),
        type_id: item.type_id.clone(),
        id: item.id.clone(),
        type_version: None,
        variant: Variant::Original,
        data: Bytes::from(data),
        origin: None,
        keyed: false,
    }
}

/// Number of listed matches of rules that are not live.
pub(crate) const MATCHED: usize = 5;

pub(crate) const SHORT: Duration = Duration::from_millis(1);

/// Returns all files of a folder with length and modification time.
fn files(folder: &Path) -> io::Result<BTreeMap<PathBuf, (u64, SystemTime)>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let (path, about) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        if about.is_dir() {
            all.extend(files(&path)?);
        } else {
            all.insert(path, (about.len(), about.modified()?));
        }
    }
    Ok(all)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
