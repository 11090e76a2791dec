//! Console of a test with an embedded store, and a client of its exports.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tempfile::TempDir;
use tidegate_catalog::{
    Changes, Keys, LiveConfigs, MasterKey, Secrets, Security,
    keys::{NewKey, Scopes},
    orgs,
};
use tidegate_console::{Deps, LocalToken, Settings};
use tidegate_schemas::ids::{DAY_MS, Millis, OrgId};
use tidegate_store::{
    RowRange, Store, WriteTime,
    tables::{
        catalog::audit::AuditEntry,
        history::handled_times::{self, HandledTime},
    },
};
use tidegate_stream::Log;
use tidegate_test_support::PATIENCE;
use tidegate_web::HttpServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Token of the operator.
pub(crate) const OPERATOR: &str = "operator-token";

pub(crate) struct Service {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) store: Store,
    pub(crate) org: OrgId,
    pub(crate) other_org: OrgId,
    keys: Keys,
    client: reqwest::Client,
    _stop: tokio_util::sync::DropGuard,
    _folder: TempDir,
}

/// Answer with its body. The body is an error if the connection ended before it was complete.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: Result<String, reqwest::Error>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.text.as_ref().unwrap()).unwrap()
    }

    /// Returns the rows of a complete export.
    pub(crate) fn rows(&self) -> Vec<Value> {
        let text = self.text.as_ref().unwrap();
        assert_eq!(self.status, 200, "{text}");
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Start of the day before yesterday.
pub(crate) fn first_day() -> Millis {
    Millis((Millis::now().day() - 2) * DAY_MS)
}

/// Writes the times that processors report, so that exports have an end.
async fn put_handled_times(store: &Store, until: Millis) {
    let row = |topic: &&str| HandledTime {
        name: handled_times::ALL.to_owned(),
        topic: (*topic).to_owned(),
        partition_index: 0,
        until,
        partition_count: 1,
        seen_at: until,
    };
    let rows: Vec<_> = handled_times::TOPICS.iter().map(row).collect();
    store.put_rows(WriteTime::from_append(until, 0), &rows).await.unwrap();
}

impl Service {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(set: impl FnOnce(&mut tidegate_web::Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = fjall::Database::builder(folder.path().join("db")).open().unwrap();
        let store = Store::open_embedded(&database, tidegate_store::embedded::Settings::default()).unwrap();
        let log = Log::open_embedded(database, &tidegate_stream::settings::Settings::default()).unwrap();
        let catalog = tidegate_catalog::Settings::default();
        let (org, other_org) = (OrgId::new("acme"), OrgId::new("other"));
        for org in [&org, &other_org] {
            orgs::create(&store, org, "Org", first_day()).await.unwrap();
        }
        put_handled_times(&store, Millis::now().minus(Duration::from_secs(60))).await;
        let master = MasterKey::load(&Security::default(), Some(folder.path())).unwrap();
        let secrets = Secrets::new(store.clone(), master, &catalog);
        let changes = Changes::new(store.clone(), secrets.clone(), &catalog);
        let keys = Keys::new(store.clone(), &catalog);
        let live = Arc::new(LiveConfigs::open(store.clone(), catalog).await.unwrap());
        let deps = Deps {
            moderation: tidegate_moderation::Deps {
                log,
                store: store.clone(),
                live,
                partial_items: Arc::default(),
            },
            keys: keys.clone(),
            secrets,
            banks: changes.banks(),
            changes,
            local_token: Arc::new(LocalToken::new(OPERATOR.to_owned())),
            window_rows: 1_000,
        };
        let mut http = tidegate_web::Settings::default();
        set(&mut http);
        let http = HttpServer::new("console", http).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(tidegate_console::run(deps, Settings::default(), http, listener, stop.clone()));
        Self {
            address,
            store,
            org,
            other_org,
            keys,
            client: new_client(),
            _stop: stop.drop_guard(),
            _folder: folder,
        }
    }

    pub(crate) async fn key(&self, scopes: &str) -> String {
        self.key_of(&self.org, scopes).await
    }

    pub(crate) async fn key_of(&self, org: &OrgId, scopes: &str) -> String {
        let scopes: Scopes = scopes.parse().unwrap();
        let new_key = NewKey { org: org.clone(), name: "exporter".to_owned(), scopes, expires_at: None };
        self.keys.create(new_key).await.unwrap().token.reveal()
    }

    /// Sends a request and returns when the head of the answer has arrived.
    pub(crate) async fn open(&self, key: &str, path: &str) -> reqwest::Response {
        let url = format!("http://{}/admin/v1{path}", self.address);
        self.client.get(url).bearer_auth(key).send().await.unwrap()
    }

    pub(crate) async fn get(&self, key: &str, path: &str) -> Answer {
        let response = self.open(key, path).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, headers, text: response.text().await }
    }

    pub(crate) async fn post(&self, key: &str, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("http://{}/admin/v1{path}", self.address);
        let response = self.client.post(url).bearer_auth(key).json(body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap_or(Value::Null))
    }

    /// Returns the audit entries of exports, the oldest first.
    pub(crate) async fn export_entries(&self) -> Vec<AuditEntry> {
        let mut entries = Vec::new();
        for day in [Millis::now().day() - 1, Millis::now().day()] {
            let partition = (self.org.clone(), day);
            let rows = self.store.scan::<AuditEntry>(&partition, RowRange::all()).all().await.unwrap();
            entries.extend(rows.into_iter().rev().filter(|entry| entry.action == "GET /exports/{dataset}"));
        }
        entries
    }
}

#[expect(clippy::disallowed_methods, reason = "a test talks to the server that it started")]
fn new_client() -> reqwest::Client {
    let _first = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
}
