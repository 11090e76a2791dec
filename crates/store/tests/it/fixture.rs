//! Provides each case with a store of its own, on either engine, that can be reopened.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tidegate_store::{Migration, Row, Store, Table, cql, embedded, system_clock};
use tidegate_test_support::servers;

pub(crate) struct Fixture {
    tables: Vec<&'static Table>,
    place: Place,
    pub(crate) store: Store,
}

enum Place {
    Folder(tempfile::TempDir),
    Keyspace(Box<cql::Settings>),
}

pub(crate) fn table<R: Row>() -> &'static Table {
    R::TABLE
}

impl Fixture {
    pub(crate) fn embedded(tables: &[&'static Table]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open_folder(folder.path(), tables);
        Self { tables: tables.to_vec(), place: Place::Folder(folder), store }
    }

    /// Returns `None` if no server is named.
    pub(crate) async fn cql(case: &str, tables: &[&'static Table]) -> Option<Self> {
        let address = servers::cql(&format!("store contract, {case}"))?;
        let settings = settings(&address);
        let store = connect(&settings, tables).await;
        store.migrate(Migration::Expand).await.unwrap();
        Some(Self { tables: tables.to_vec(), place: Place::Keyspace(Box::new(settings)), store })
    }

    /// Another store on the same data: a second process on a cluster, the same store on one machine.
    pub(crate) async fn sibling(&self) -> Store {
        match &self.place {
            Place::Folder(_) => self.store.clone(),
            Place::Keyspace(settings) => connect(settings, &self.tables).await,
        }
    }

    pub(crate) fn settings(&self) -> Option<&cql::Settings> {
        match &self.place {
            Place::Folder(_) => None,
            Place::Keyspace(settings) => Some(settings),
        }
    }

    /// Closes the store, so that another process can open its data, and returns the place as text.
    pub(crate) async fn lend(&self) -> String {
        self.store.close().await.unwrap();
        match &self.place {
            Place::Folder(folder) => format!("folder {}", folder.path().join("lent").display()),
            Place::Keyspace(settings) => {
                format!("cql {} {}", settings.contact_points.join(","), settings.keyspace)
            }
        }
    }

    pub(crate) async fn end(self) {
        // A case may have closed the store already.
        drop(self.store.close().await);
        if let Place::Keyspace(settings) = &self.place {
            let session =
                scylla::client::session_builder::SessionBuilder::new().known_nodes(&settings.contact_points);
            let session = Box::pin(session.build()).await.unwrap();
            session.query_unpaged(format!("DROP KEYSPACE {}", settings.keyspace), ()).await.unwrap();
        }
    }
}

/// Opens the store at a place returned by [`Fixture::lend`].
pub(crate) async fn open_place(place: &str, tables: &[&'static Table]) -> Store {
    match place.split(' ').collect::<Vec<_>>().as_slice() {
        ["folder", path] => open_folder(std::path::Path::new(path), tables),
        ["cql", address, keyspace] => {
            connect(&cql::Settings { keyspace: (*keyspace).to_owned(), ..settings(address) }, tables).await
        }
        _ => panic!("unknown place: {place}"),
    }
}

pub(crate) fn open_folder(path: &std::path::Path, tables: &[&'static Table]) -> Store {
    let db = fjall::Database::builder(path).open().unwrap();
    let settings = embedded::Settings::default();
    Store::Embedded(embedded::Engine::open_tables(&db, settings, tables, system_clock()).unwrap())
}

pub(crate) async fn connect(settings: &cql::Settings, tables: &[&'static Table]) -> Store {
    Store::Cql(cql::Engine::connect_tables(settings.clone(), tables, system_clock()).await.unwrap())
}

/// Returns a keyspace name that is unique among cases and runs.
pub(crate) fn settings(address: &str) -> cql::Settings {
    static CASES: AtomicU32 = AtomicU32::new(0);
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    cql::Settings {
        contact_points: address.split(',').map(str::to_owned).collect(),
        keyspace: format!(
            "contract_{}_{}_{}",
            started.as_millis(),
            std::process::id(),
            CASES.fetch_add(1, Ordering::Relaxed)
        ),
        replication: Some(cql::Replication::Simple(1)),
        // A busy machine must not fail the test.
        request_timeout_ms: 30_000,
        settle_timeout_ms: 60_000,
        ..cql::Settings::default()
    }
}

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
