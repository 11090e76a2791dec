//! Data that must survive an orderly end or a kill.

use std::{collections::BTreeSet, io::Write as _};

use bytes::Bytes;
use tidegate_schemas::ids::OrgId;
use tidegate_store::{Error, ReplaceOutcome, Row as _, RowRange, WriteTime};
use tidegate_test_support::Program;

use crate::{
    facts::event,
    fixture::{Fixture, MINUTE, open_place, table},
    tables::{Counter, Event},
    versioned::counter,
};

const PLACE: &str = "STORE_CONTRACT_PLACE";
const LIFE: &str = "STORE_CONTRACT_LIFE";
const LIVES: i64 = 4;

pub(crate) async fn written_rows_survive_a_restart(fixture: &Fixture) {
    let rows: Vec<Event> = (0..2_000).map(|seq| event(seq, "p", Some("n"))).collect();
    let place = fixture.lend().await;
    let tables = [table::<Event>(), table::<Counter>()];
    let store = open_place(&place, &tables).await;
    store.put_rows(WriteTime(3), &rows).await.unwrap();
    store.delete::<Event>(WriteTime(4), &rows[0].to_key()).await.unwrap();
    store.insert_new(&counter("c", 1)).await.unwrap();
    store.replace(&counter("c", 2), 1).await.unwrap();
    store.close().await.unwrap();
    drop(store);

    let store = open_place(&place, &tables).await;
    let stored_rows = store.scan::<Event>(&Event::partition("o"), RowRange::all()).all().await.unwrap();
    assert!(stored_rows.iter().rev().eq(&rows[1..]));
    let row = store.get::<Counter>(&counter("c", 0).to_key()).await.unwrap().unwrap();
    assert_eq!((row.n, row.version), (2, 2));
    // The write times survived too.
    store.put_rows(WriteTime(2), &[event(0, "older", None), event(1, "older", None)]).await.unwrap();
    assert_eq!(store.get::<Event>(&rows[0].to_key()).await.unwrap(), None);
    assert_eq!(store.get::<Event>(&rows[1].to_key()).await.unwrap().as_ref(), Some(&rows[1]));
    assert!(matches!(store.replace(&counter("c", 3), 1).await.unwrap(), ReplaceOutcome::Conflict(_)));
    store.close().await.unwrap();
}

pub(crate) async fn every_acknowledged_row_survives_the_death_of_the_process(fixture: &Fixture) {
    let place = fixture.lend().await;
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeSet::new();
    for life in 0..LIVES {
        let program = Program::new(std::env::current_exe().unwrap(), folder.path().join("output"))
            .args(["--exact", "restart::a_child_that_writes_until_it_is_killed", "--nocapture"])
            .env(PLACE, &place)
            .env(LIFE, life.to_string());
        let mut child = program.start().unwrap();
        // Each life is killed after another number of writes, during the following ones.
        child.line(&format!("acknowledged {life} {} ", 60 + 37 * life), MINUTE).await.unwrap();
        child.kill().await.unwrap();
        for line in child.output().unwrap().lines() {
            if let ["acknowledged", life, n, "."] = line.split(' ').collect::<Vec<_>>().as_slice() {
                acknowledged.insert((life.parse::<i64>().unwrap(), n.parse::<i64>().unwrap()));
            }
        }
    }
    assert!(acknowledged.len() > 4 * 60);

    let store = open_place(&place, &[table::<Event>(), table::<Counter>()]).await;
    for (life, n) in &acknowledged {
        for row in rows_of(*life, *n) {
            assert_eq!(store.get::<Event>(&row.to_key()).await.unwrap(), Some(row), "of {life} {n}");
        }
        if writes_conditionally(*life) {
            let key = counter(&format!("{life} {n}"), 0).to_key();
            let row = store.get::<Counter>(&key).await.unwrap().expect("an acknowledged insert is lost");
            assert_eq!((row.n, row.version), (2, 2), "an acknowledged replacement is lost");
        }
    }
    store.close().await.unwrap();
}

/// Every second life only puts, because a conditional write would sync the puts before it too.
fn writes_conditionally(life: i64) -> bool {
    life % 2 == 1
}

/// Small rows, many of which fit into a buffer that a kill would lose; other lives also write a row above any buffer.
fn rows_of(life: i64, n: i64) -> Vec<Event> {
    let row = |seq: i64, size: usize| Event {
        org: OrgId::new(format!("life {life}")),
        at: n,
        seq,
        payload: Bytes::from(vec![u8::try_from(n % 251).unwrap(); size]),
        note: None,
    };
    (0..3).map(|seq| row(seq, 50)).chain(writes_conditionally(life).then(|| row(3, 20_000))).collect()
}

/// Runs only as the child process of the test above, and returns at once in a run of the whole suite.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_writes_until_it_is_killed() {
    let (Ok(place), Ok(life)) = (std::env::var(PLACE), std::env::var(LIFE)) else { return };
    let life: i64 = life.parse().unwrap();
    let store = open_place(&place, &[table::<Event>(), table::<Counter>()]).await;
    for n in 0.. {
        store.put_rows(WriteTime(n), &rows_of(life, n)).await.unwrap();
        if writes_conditionally(life) {
            let row = counter(&format!("{life} {n}"), 1);
            assert!(store.insert_new(&row).await.unwrap().is_new());
            assert!(store.replace(&Counter { n: 2, ..row }, 1).await.unwrap().is_done());
        }
        // A dot at the end, so that a line torn by the kill does not count.
        writeln!(std::io::stdout(), "acknowledged {life} {n} .").unwrap();
    }
}

pub(crate) async fn closed_store_refuses_calls_by_name(fixture: &Fixture) {
    let store = &fixture.store;
    store.ping().await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(store.ping().await, Err(Error::Closed)));
    let error = store.put_rows(WriteTime(1), &[event(1, "p", None)]).await.unwrap_err();
    assert!(matches!(error, Error::Closed) && !error.is_outage());
}
