//! Tests of the embedded engine only: its format, limits, turns of organisations, and sweep.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, AtomicUsize, Ordering},
    mpsc,
};

use futures::{FutureExt, poll};
use tidegate_schemas::ids::{DAY_MS, Millis, OrgId};
use tidegate_store::{Error, Row as _, Store, WriteTime, embedded};
use tidegate_test_support::eventually;

use crate::{
    facts::event,
    fixture::{MINUTE, open_folder, table},
    tables::{Counter, Event, Fleeting},
    versioned::counter,
};

#[tokio::test]
async fn data_of_a_newer_format_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let tables = [table::<Event>()];
    let store = open_folder(folder.path(), &tables);
    store.close().await.unwrap();
    drop(store);
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    let meta = db.keyspace("store.meta", fjall::KeyspaceCreateOptions::default).unwrap();
    meta.insert("format", 2_u32.to_be_bytes()).unwrap();
    let clock = tidegate_store::system_clock();
    let error =
        embedded::Engine::open_tables(&db, embedded::Settings::default(), &tables, clock).err().unwrap();
    assert!(matches!(error, Error::NewerFormat { found: 2, known: 1 }), "{error}");
}

#[tokio::test]
async fn keyspace_is_created_with_the_first_row() {
    let folder = tempfile::tempdir().unwrap();
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    let open = || {
        let (settings, tables) = (embedded::Settings::default(), [table::<Event>(), table::<Fleeting>()]);
        let clock = tidegate_store::system_clock();
        Store::Embedded(embedded::Engine::open_tables(&db, settings, &tables, clock).unwrap())
    };
    let keyspaces_exist = || ["store.events", "store.fleeting"].map(|name| db.keyspace_exists(name));
    let store = open();
    let (row, absent_row) = (event(1, "p", None), Fleeting { org: OrgId::new("o"), seq: 1, n: 1 });
    assert!(store.get::<Event>(&row.to_key()).await.unwrap().is_none());
    let splits = store.splits::<Event>(4).await.unwrap();
    for split in &splits {
        assert_eq!(store.scan_all::<Event>(split).all().await.unwrap(), []);
    }
    assert_eq!(keyspaces_exist(), [false, false]);
    store.put_rows(WriteTime(1), std::slice::from_ref(&row)).await.unwrap();
    assert_eq!(keyspaces_exist(), [true, false]);
    store.close().await.unwrap();
    let store = open();
    assert_eq!(store.get::<Event>(&row.to_key()).await.unwrap(), Some(row));
    assert!(store.get::<Fleeting>(&absent_row.to_key()).await.unwrap().is_none());
    assert_eq!(keyspaces_exist(), [true, false]);
    store.close().await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn removed_or_moved_folder_refuses_writes() {
    for is_moved in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let (data, aside) = (place.path().join("data"), place.path().join("aside"));
        let store = open_folder(&data, &[table::<Event>(), table::<Counter>()]);
        store.ping().await.unwrap();
        if is_moved {
            std::fs::rename(&data, &aside).unwrap();
        } else {
            std::fs::remove_dir_all(&data).unwrap();
        }
        let assert_folder_removed =
            |error: Error| assert!(matches!(error, Error::FolderRemoved(_)) && error.is_final(), "{error}");
        assert_folder_removed(store.ping().await.unwrap_err());
        assert_folder_removed(store.put_rows(WriteTime(1), &[event(1, "p", None)]).await.unwrap_err());
        assert_folder_removed(store.insert_new(&counter("c", 1)).await.unwrap_err());
        store.close().await.unwrap();
        drop(store);
        assert!(!data.exists());
    }
}

#[tokio::test]
async fn oversized_key_is_refused_and_later_writes_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_folder(folder.path(), &[table::<Event>()]);
    let long_row = event_of_org("o".repeat(70_000));
    let error = store.put_rows(WriteTime(1), std::slice::from_ref(&long_row)).await.unwrap_err();
    assert!(matches!(error, Error::KeyTooLong { table: "events", .. }), "{error}");
    assert!(matches!(store.get::<Event>(&long_row.to_key()).await, Err(Error::KeyTooLong { .. })));
    store.put_rows(WriteTime(1), &[event(1, "p", None)]).await.unwrap();
    let unknown = Fleeting { org: OrgId::new("o"), seq: 1, n: 1 };
    let error = store.put_rows(WriteTime::from_append(Millis::now(), 0), &[unknown]).await.unwrap_err();
    assert!(matches!(error, Error::UnknownTable("fleeting")), "{error}");
    store.close().await.unwrap();
}

fn event_of_org(org: String) -> Event {
    Event { org: OrgId::new(org), ..event(1, "p", None) }
}

#[tokio::test]
async fn sweep_removes_only_expired_rows_and_old_tombstones() {
    let folder = tempfile::tempdir().unwrap();
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    let clock_millis = Arc::new(AtomicI64::new(1_000 * DAY_MS));
    let clock = {
        let clock_millis = Arc::clone(&clock_millis);
        Arc::new(move || Millis(clock_millis.load(Ordering::Relaxed)))
    };
    let settings = embedded::Settings {
        tombstone_days: 2,
        sweep_every_seconds: 0,
        sweep_rows_per_second: 1_000,
        ..embedded::Settings::default()
    };
    let tables = [table::<Event>(), table::<Fleeting>()];
    let store = Store::Embedded(embedded::Engine::open_tables(&db, settings, &tables, clock).unwrap());
    let at = |millis: i64| WriteTime::from_append(Millis(millis), 0);
    let fleeting = |seq: i64| Fleeting { org: OrgId::new("o"), seq, n: seq };

    // The rows fill more than one slice of the sweep.
    let rows: Vec<Fleeting> = (0..250).map(fleeting).collect();
    store.put_rows(at(1_000 * DAY_MS), &rows).await.unwrap();
    store.put_rows(at(1_000 * DAY_MS + 3_000_000), &[fleeting(250)]).await.unwrap();
    store.put_rows(at(1_000 * DAY_MS), &[event(1, "p", None), event(2, "p", None)]).await.unwrap();
    store.delete::<Event>(at(1_000 * DAY_MS + 1), &event(1, "", None).to_key()).await.unwrap();
    let stored_rows = |name: &str| {
        let keyspace = db.keyspace(name, fjall::KeyspaceCreateOptions::default).unwrap();
        keyspace.len().unwrap()
    };
    assert_eq!((stored_rows("store.fleeting"), stored_rows("store.events")), (251, 2));

    clock_millis.store(1_000 * DAY_MS + 3_600_000, Ordering::Relaxed);
    assert_eq!(
        store.get::<Fleeting>(&fleeting(1).to_key()).await.unwrap(),
        None,
        "an expired row is not returned, swept or not"
    );
    eventually("the expired rows to leave the disk", MINUTE, async || {
        (stored_rows("store.fleeting") == 1).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(store.get::<Fleeting>(&fleeting(250).to_key()).await.unwrap(), Some(fleeting(250)));
    assert_eq!(stored_rows("store.events"), 2, "the tombstone stays while a replay is possible");
    store.put_rows(at(1_000 * DAY_MS), &[event(1, "p", None)]).await.unwrap();
    assert_eq!(store.get::<Event>(&event(1, "", None).to_key()).await.unwrap(), None);

    clock_millis.store(1_002 * DAY_MS + 1, Ordering::Relaxed);
    eventually("the tombstone to leave the disk", MINUTE, async || {
        (stored_rows("store.events") == 1).then_some(())
    })
    .await
    .unwrap();
    assert!(store.get::<Event>(&event(2, "", None).to_key()).await.unwrap().is_some());
    store.close().await.unwrap();
    let dropped = tokio::task::spawn_blocking(move || drop(store));
    tokio::time::timeout(MINUTE, dropped).await.expect("the store is dropped").unwrap();
}

/// Opens a store with a writer that stops before each conditional operation until it is released. Also returns the
/// number of started operations.
fn store_with_held_writer(folder: &std::path::Path) -> (Store, mpsc::Sender<()>, Arc<AtomicUsize>) {
    let (release, releases) = mpsc::channel();
    let (releases, started) = (Mutex::new(releases), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&started);
    // The writer reads the clock before it reads the row to be replaced; callers read it on their own threads.
    let clock = Arc::new(move || {
        if std::thread::current().name() == Some("store-writer") {
            count.fetch_add(1, Ordering::SeqCst);
            let _closed = releases.lock().unwrap().recv();
        }
        Millis::now()
    });
    let db = fjall::Database::builder(folder).open().unwrap();
    // The writer takes each request as a separate group.
    let settings = embedded::Settings { group_bytes: 1, ..embedded::Settings::default() };
    let engine = embedded::Engine::open_tables(&db, settings, &[table::<Counter>()], clock).unwrap();
    (Store::Embedded(engine), release, started)
}

#[tokio::test]
async fn write_of_an_org_is_answered_before_the_backlog_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let (store, release, started) = store_with_held_writer(folder.path());
    let row = |org: &str, name: &str| Counter { org: OrgId::new(org), ..counter(name, 1) };
    let backlog: Vec<_> = (0..20).map(|nth| row("busy", &nth.to_string())).collect();
    let mut pending_writes: Vec<_> = backlog.iter().map(|row| store.insert_new(row).boxed()).collect();
    for write in &mut pending_writes {
        assert!(poll!(write).is_pending());
    }
    let wait_for_starts = async |count: usize| {
        let reached = async || (started.load(Ordering::SeqCst) == count).then_some(());
        eventually("the writer to begin the next operation", MINUTE, reached).await.unwrap();
    };
    wait_for_starts(1).await;
    let other_row = row("other", "only");
    let mut write = store.insert_new(&other_row).boxed();
    assert!(poll!(&mut write).is_pending());
    // The writer may have taken the first write before the second one was queued. The other org's turn is then the third
    // operation instead of the second, so the writer is held at its fourth.
    for count in 2..5 {
        release.send(()).unwrap();
        wait_for_starts(count).await;
    }
    let inserted =
        tokio::time::timeout(MINUTE, write).await.expect("the write is answered before the backlog");
    assert!(inserted.unwrap().is_new());
    let answered = pending_writes.iter_mut().filter_map(FutureExt::now_or_never).count();
    assert_eq!(answered, 2, "the other org had one of the first three turns");
    drop(release);
    for write in pending_writes.split_off(2) {
        assert!(write.await.unwrap().is_new());
    }
    store.close().await.unwrap();
}
