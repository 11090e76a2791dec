//! Rows on a real cluster, behind an unreliable link.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_store::{Migration, Store, cql};
use tidegate_stream::{Topic, health::Readiness};
use tidegate_test_support::{Proxy, servers};

use super::world::{World, entry, post};

/// Returns a keyspace name that is unique to this run.
pub(crate) fn new_keyspace(what: &str) -> String {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    format!("{what}_{started}_{}", std::process::id())
}

pub(crate) fn settings(address: &str, keyspace: &str) -> cql::Settings {
    cql::Settings {
        contact_points: vec![address.to_owned()],
        keyspace: keyspace.to_owned(),
        replication: Some(cql::Replication::Simple(1)),
        ..cql::Settings::default()
    }
}

pub(crate) async fn drop_keyspace(address: &str, keyspace: &str) {
    let session = scylla::client::session_builder::SessionBuilder::new().known_node(address);
    let session = Box::pin(session.build()).await.unwrap();
    session.query_unpaged(format!("DROP KEYSPACE {keyspace}"), ()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn store_outage_only_delays_items() {
    let Some(addresses) = servers::cql("processing, an outage of the store") else { return };
    let address = addresses.split(',').next().unwrap();
    let keyspace = new_keyspace("processing");
    let proxy = Proxy::to(address).await.unwrap();
    let through = proxy.address().to_string();
    let store = Store::open_cql(settings(&through, &keyspace)).await.unwrap();
    store.migrate(Migration::Expand).await.unwrap();

    let mut world = World::on(store).await;
    world.start();
    let first = world.submit_text("p1", "hello").await;
    world.wait_until_evaluated(&post("p1"), first).await;
    let scam = entry(&post("p2"), "scamcoin");
    let submission = scam.submission_id;
    let record = world.prepare(vec![scam]).await;

    proxy.refuse().await.unwrap();
    proxy.cut();
    world.send(record).await;
    world
        .wait_for("the complaint", async || {
            matches!(world.deps.health.readiness(), Readiness::NotReady { .. }).then_some(())
        })
        .await;
    assert!(world.callbacks().await.is_empty());

    proxy.pass().await.unwrap();
    world.wait_for("readiness", async || world.deps.health.readiness().is_ready().then_some(())).await;
    let row = world.wait_until_evaluated(&post("p2"), submission).await;
    assert!(row.matched.contains("demo-scam"));
    world.drain().await;
    assert_eq!(world.events("action.automatic").await.len(), 1);
    assert!(world.tail(Topic::DeadLetters).await.is_empty(), "an outage is not poison");
    world.deps.store.close().await.unwrap();
    drop_keyspace(address, &keyspace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_the_cluster_rejects_is_dead_lettered() {
    let Some(addresses) = servers::cql("processing, rows above the limit") else { return };
    let address = addresses.split(',').next().unwrap();
    let keyspace = format!("processing_rows_{}", tidegate_schemas::ids::SubmissionId::random().0.simple());
    let keyspace = &keyspace[..48];
    // The limit of the servers is covered by the store's tests; a refusal by the store has the same effect here.
    let settings =
        cql::Settings { max_row_bytes: 20_000, batch_bytes: 10_000, ..settings(address, keyspace) };
    let store = Store::open_cql(settings).await.unwrap();
    store.migrate(Migration::Expand).await.unwrap();
    let world = World::on(store.clone()).await;
    super::poison::too_large_rows(world).await;
    store.close().await.unwrap();
    drop_keyspace(address, keyspace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_items_are_found_by_time_on_a_cluster() {
    let Some(addresses) = servers::cql("processing, stored items by time") else { return };
    let address = addresses.split(',').next().unwrap();
    let keyspace = format!("processing_time_{}", tidegate_schemas::ids::SubmissionId::random().0.simple());
    let keyspace = &keyspace[..48];
    let store = Store::open_cql(settings(address, keyspace)).await.unwrap();
    store.migrate(Migration::Expand).await.unwrap();
    super::history::items_are_found_by_time(World::on(store.clone()).await).await;
    store.close().await.unwrap();
    drop_keyspace(address, keyspace).await;
}
