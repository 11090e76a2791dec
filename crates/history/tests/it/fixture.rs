//! Store of a test, on either engine.

use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_store::tables::{
    callbacks::deliveries::{Delivery, DeliveryByDay},
    catalog::audit::AuditEntry,
    history::{child_safety_items::ChildSafetyItem, events::HistoryEvent},
    items::{history::ItemOfHour, items::Item},
    review::jobs::Job,
};
use tidegate_store::{Migration, Row as _, Store, Table, cql, embedded, system_clock};
use tidegate_test_support::servers;

fn tables() -> [&'static Table; 8] {
    [
        HistoryEvent::TABLE,
        ChildSafetyItem::TABLE,
        Job::TABLE,
        Item::TABLE,
        ItemOfHour::TABLE,
        Delivery::TABLE,
        DeliveryByDay::TABLE,
        AuditEntry::TABLE,
    ]
}

pub(crate) struct Fixture {
    pub(crate) store: Store,
    place: Place,
}

enum Place {
    Folder(tempfile::TempDir),
    Keyspace(Box<cql::Settings>),
}

impl Fixture {
    pub(crate) fn embedded() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = fjall::Database::builder(folder.path()).open().unwrap();
        let engine =
            embedded::Engine::open_tables(&db, embedded::Settings::default(), &tables(), system_clock());
        Self { store: Store::Embedded(engine.unwrap()), place: Place::Folder(folder) }
    }

    /// Returns `None` if no server is named.
    pub(crate) async fn cql(case: &str) -> Option<Self> {
        static CASES: AtomicU32 = AtomicU32::new(0);
        let address = servers::cql(&format!("history, {case}"))?;
        let number = CASES.fetch_add(1, Ordering::Relaxed);
        let settings = cql::Settings {
            contact_points: address.split(',').map(str::to_owned).collect(),
            keyspace: format!(
                "history_{}_{}_{number}",
                tidegate_schemas::ids::Millis::now().0,
                std::process::id()
            ),
            replication: Some(cql::Replication::Simple(1)),
            // A busy machine must not fail the test.
            request_timeout_ms: 30_000,
            settle_timeout_ms: 60_000,
            ..cql::Settings::default()
        };
        let engine = cql::Engine::connect_tables(settings.clone(), &tables(), system_clock()).await.unwrap();
        let store = Store::Cql(engine);
        store.migrate(Migration::Expand).await.unwrap();
        Some(Self { store, place: Place::Keyspace(Box::new(settings)) })
    }

    pub(crate) async fn end(self) {
        self.store.close().await.unwrap();
        match self.place {
            Place::Folder(folder) => folder.close().unwrap(),
            Place::Keyspace(settings) => {
                let session = scylla::client::session_builder::SessionBuilder::new()
                    .known_nodes(&settings.contact_points);
                let session = Box::pin(session.build()).await.unwrap();
                session.query_unpaged(format!("DROP KEYSPACE {}", settings.keyspace), ()).await.unwrap();
            }
        }
    }
}
