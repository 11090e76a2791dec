//! Test installation in a temporary folder, with helpers to request callbacks and read deliveries.

use std::{fs, path::Path, sync::Arc};

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_catalog::{Change, Changes, LiveConfigs, MasterKey, Secrets, orgs};
use tidegate_egress::{Client, Secret};
use tidegate_processors::{
    Health, RoleError, Settings as Processing,
    callbacks::{Deps, Pause, Settings, deliver},
};
use tidegate_schemas::{
    ids::{EndpointId, EventId, ItemKey, Millis, OrgId},
    records::{Callback, Command},
};
use tidegate_store::{
    RowRange, Store,
    tables::callbacks::deliveries::{Attempt, Delivery},
};
use tidegate_stream::{
    Log, Record, Topic,
    consumer::inbox::DrainResult,
    page_reader::{Order, Query},
};
use tidegate_test_support::{PATIENCE, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) struct World {
    folder: TempDir,
    pub(crate) deps: Deps,
    changes: Changes,
    pub(crate) settings: Settings,
    running: Option<(CancellationToken, JoinHandle<Result<DrainResult, RoleError>>)>,
}

pub(crate) fn org() -> OrgId {
    OrgId::new("acme")
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some((stop, _)) = &self.running {
            stop.cancel();
        }
    }
}

/// Settings with twelve attempts within about two seconds.
pub(crate) fn quick_settings() -> Settings {
    let pauses = [
        "0s", "50ms", "50ms", "100ms", "100ms", "200ms", "200ms", "200ms", "200ms", "200ms", "200ms", "200ms",
    ];
    Settings {
        schedule: pauses.map(|pause| pause.parse::<Pause>().unwrap()).to_vec(),
        lease_margin_ms: 100,
        hold_recheck_ms: 200,
        poll_ms: 20,
        sweep_ms: 200,
        longest_deferral_ms: 500,
        ..Settings::default()
    }
}

impl World {
    pub(crate) async fn new(settings: Settings) -> Self {
        Self::calling_for(settings, 60_000).await
    }

    /// Creates a world with a limit of milliseconds per call.
    pub(crate) async fn calling_for(settings: Settings, total_timeout_ms: u64) -> Self {
        let world = Self::open(tempfile::tempdir().unwrap(), settings, total_timeout_ms).await;
        orgs::create(&world.deps.store, &org(), "Acme", Millis::now()).await.unwrap();
        world
    }

    async fn open(folder: TempDir, settings: Settings, total_timeout_ms: u64) -> Self {
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
        let store = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
        let catalog = tidegate_catalog::Settings { secret_cache_seconds: 0, ..Default::default() };
        let live = Arc::new(LiveConfigs::open(store.clone(), catalog.clone()).await.unwrap());
        let secrets = Secrets::new(store.clone(), MasterKey::new([7; 32]), &catalog);
        let changes = Changes::new(store.clone(), secrets.clone(), &catalog);
        let client = Client::new(tidegate_egress::Settings {
            allow_cidrs: vec!["127.0.0.0/8".parse().unwrap()],
            connect_timeout_ms: total_timeout_ms,
            total_timeout_ms,
            ..Default::default()
        });
        let deps = Deps { log, store, live, secrets, client: client.unwrap(), health: Health::default() };
        Self { folder, deps, changes, settings, running: None }
    }

    /// Configures endpoints by name and URL.
    pub(crate) async fn endpoints(&self, endpoints: &[(&str, String)]) {
        let documents: Vec<_> =
            endpoints.iter().map(|(name, url)| format!("endpoint: {name}\nurl: {url}\n")).collect();
        self.configure(&documents.join("---\n")).await;
    }

    pub(crate) async fn configure(&self, documents: &str) {
        self.change(documents, false).await;
    }

    /// Loads the latest configuration in place of the task that follows changes.
    pub(crate) async fn load_latest_config(&self) {
        self.deps.live.load_latest(&org()).await.unwrap();
    }

    /// Replaces the configuration; documents that are not listed are removed.
    pub(crate) async fn configure_only(&self, documents: &str) {
        self.change(documents, true).await;
    }

    async fn change(&self, documents: &str, prune: bool) {
        let change = Change {
            files: vec![("config.yaml".to_owned(), documents.to_owned())],
            author: "test".to_owned(),
            expected_version: None,
            prune,
        };
        self.changes.apply(&org(), change).await.unwrap();
    }

    pub(crate) async fn secret(&self, endpoint: &str) -> Secret {
        self.deps.secrets.for_endpoint(&org(), &EndpointId::new(endpoint)).await.unwrap().unwrap()
    }

    pub(crate) fn start(&mut self) {
        let stop = CancellationToken::new();
        let role = deliver(self.deps.clone(), Processing::default(), self.settings.clone(), stop.clone());
        self.running = Some((stop, tokio::spawn(role)));
    }

    pub(crate) async fn stop(&mut self) -> DrainResult {
        let (stop, running) = self.running.take().unwrap();
        stop.cancel();
        tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap().unwrap()
    }

    /// Opens a copy of the current disk content, as after a kill. No write may occur meanwhile.
    pub(crate) async fn image(&self, settings: Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        copy(&self.folder.path().join("data"), &folder.path().join("data"));
        let total = self.deps.client.settings().total_timeout_ms;
        Self::open(folder, settings, total).await
    }

    pub(crate) async fn append(&self, record: &Callback) {
        let key = record.subject.log_key(&record.org);
        let partition = self.deps.log.partition(Topic::Callbacks, &key);
        self.deps.log.append(&[(partition, Record::from_content(&key, record))]).await.unwrap();
    }

    /// Requests a callback and returns its event id.
    pub(crate) async fn ask(&self, endpoint: &str) -> EventId {
        let record = callback(Some(endpoint));
        self.append(&record).await;
        record.event_id
    }

    pub(crate) async fn command(&self, event_id: EventId, command: Command) {
        let row = self.delivery(event_id).await.unwrap();
        self.append(&Callback {
            event_id,
            command,
            subject: row.subject,
            body: Bytes::new(),
            ..callback(None)
        })
        .await;
    }

    pub(crate) async fn delivery(&self, event_id: EventId) -> Option<Delivery> {
        self.deps.store.get::<Delivery>(&(org(), event_id)).await.unwrap()
    }

    pub(crate) async fn attempts(&self, event_id: EventId) -> Vec<Attempt> {
        self.deps.store.scan::<Attempt>(&(org(), event_id), RowRange::all()).all().await.unwrap()
    }

    pub(crate) async fn until_state(&self, event_id: EventId, state: &str) -> Delivery {
        self.wait_for(&format!("state {state}"), async || {
            self.delivery(event_id).await.filter(|row| row.state.as_str() == state)
        })
        .await
    }

    pub(crate) async fn wait_for<T>(&self, what: &str, probe: impl AsyncFnMut() -> Option<T>) -> T {
        eventually(what, PATIENCE, probe).await.unwrap()
    }

    pub(crate) async fn dead_letters(&self) -> usize {
        let query = Query { topic: Topic::DeadLetters, order: Order::Oldest, limit: 100, after: None };
        self.deps.log.read_page(query).await.unwrap().records.len()
    }
}

pub(crate) fn callback(endpoint: Option<&str>) -> Callback {
    let event_id = EventId::random();
    Callback {
        org: org(),
        command: Command::Send,
        event_id,
        event_type: "action.automatic".to_owned(),
        endpoint: endpoint.map(EndpointId::new),
        subject: ItemKey::new("post", event_id.to_string()),
        occurred_at: Millis::now(),
        body: format!(r#"{{"id":"{event_id}", "item":{{"id":"Zürich"}}, "weight":1.0}}"#).into(),
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
