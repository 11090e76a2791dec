//! The contract of the store, the same code for each engine.
//!
//! Cassandra or ScyllaDB is included when `TIDEGATE_TEST_CQL` names it.
#![allow(clippy::unwrap_used)]

#[path = "contract/tables.rs"]
mod tables;

use tidegate_schemas::ids::*;
use tidegate_store::*;

#[tokio::test]
async fn smoke() {
    let dir = tempfile::tempdir().unwrap();
    let db = fjall::Database::builder(dir.path()).open().unwrap();
    let started = std::time::Instant::now();
    let engine =
        embedded::Engine::open_tables(&db, embedded::Settings::default(), tables::ALL, system_clock())
            .unwrap();
    eprintln!("open {:?}", started.elapsed());
    let store = Store::Embedded(engine);
    let org = OrgId::new("o");
    let c = tables::Counter {
        org: org.clone(),
        name: "a".into(),
        n: 1,
        holder: None,
        payload: "x".into(),
        version: 0,
    };
    assert_eq!(store.insert_new(&c).await.unwrap(), Inserted::New);
    assert_eq!(store.replace(&c, 1).await.unwrap(), Replaced::Yes);
    let got: tables::Counter = store.get(&c.to_key()).await.unwrap().unwrap();
    assert_eq!(got.version, 2);
    let rows: Vec<_> = (0..10)
        .map(|i| tables::Event { org: org.clone(), at: i / 3, seq: i, payload: "p".into(), note: None })
        .collect();
    store.put(WriteTime(5), &rows).await.unwrap();
    let got = store.scan::<tables::Event>(&(org.clone(),), At::range((1,), 4..)).all().await.unwrap();
    assert_eq!(got.iter().map(|r| r.seq).collect::<Vec<_>>(), [5, 4]);
    let mut p =
        store.scan::<tables::Event>(&tables::Event::partition("o"), At::since(1).page_size(2).limit(3));
    let got = p.all().await.unwrap();
    assert_eq!(got.iter().map(|r| r.seq).collect::<Vec<_>>(), [5, 4, 3]);
    let got = store.scan::<tables::Event>(&(org.clone(),), At::all().after(p.cursor())).all().await.unwrap();
    assert_eq!(got.iter().map(|r| r.seq).collect::<Vec<_>>(), [8, 7, 6, 9]);
    store.close().await.unwrap();
    assert!(matches!(store.ping().await, Err(Error::Closed)));
}
