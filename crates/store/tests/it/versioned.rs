//! Conditional writes: one winner for each version, and no lost updates.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures::future::join_all;
use tidegate_schemas::ids::OrgId;
use tidegate_store::{InsertOutcome, ReplaceOutcome, Row as _, Store, Versioned as _};
use tidegate_test_support::eventually;

use crate::{
    fixture::{Fixture, MINUTE},
    tables::{Claim, Counter},
};

pub(crate) fn counter(name: &str, n: i64) -> Counter {
    Counter {
        org: OrgId::new("o"),
        name: name.to_owned(),
        n,
        holder: None,
        payload: Bytes::from_static(b"p"),
        version: 0,
    }
}

/// Adds one to a row: reads and replaces it until the replacement wins. Returns the new version.
pub(crate) async fn add_one(store: &Store, name: &str) -> i64 {
    let key = counter(name, 0).to_key();
    let mut row = store.get::<Counter>(&key).await.unwrap().expect("the row was inserted");
    loop {
        let read_version = row.version();
        row.n += 1;
        match store.replace(&row, read_version).await.unwrap() {
            ReplaceOutcome::Done => return read_version + 1,
            ReplaceOutcome::Conflict(current) => row = current,
            ReplaceOutcome::Missing => panic!("the row is missing"),
        }
    }
}

pub(crate) async fn each_write_increments_the_version(fixture: &Fixture) {
    let store = &fixture.store;
    let first = Counter { version: 77, holder: Some("a".to_owned()), ..counter("c", 1) };
    assert_eq!(store.replace(&first, 77).await.unwrap(), ReplaceOutcome::Missing);
    assert!(store.insert_new(&first).await.unwrap().is_new());
    let stored = Counter { version: 1, ..first.clone() };
    assert_eq!(store.get::<Counter>(&first.to_key()).await.unwrap(), Some(stored.clone()));
    assert_eq!(store.insert_new(&counter("c", 2)).await.unwrap(), InsertOutcome::Existing(stored.clone()));

    let second = counter("c", 2);
    assert_eq!(store.replace(&second, 2).await.unwrap(), ReplaceOutcome::Conflict(stored));
    assert_eq!(store.replace(&second, 1).await.unwrap(), ReplaceOutcome::Done);
    let stored = Counter { version: 2, ..second.clone() };
    assert_eq!(
        store.get::<Counter>(&first.to_key()).await.unwrap(),
        Some(stored.clone()),
        "the replacement removes the holder"
    );
    assert_eq!(store.replace(&second, 1).await.unwrap(), ReplaceOutcome::Conflict(stored));
}

pub(crate) async fn concurrent_inserts_of_one_row_have_one_winner(fixture: &Fixture) {
    let stores = [fixture.store.clone(), fixture.sibling().await];
    for round in 0..3 {
        let name = format!("race {round}");
        let tries = (0..40).map(|n| {
            let (store, row) = (stores[n % 2].clone(), counter(&name, n as i64));
            tokio::spawn(async move { (row.n, store.insert_new(&row).await.unwrap()) })
        });
        let answers: Vec<_> = join_all(tries).await.into_iter().map(Result::unwrap).collect();
        let new_values: Vec<i64> =
            answers.iter().filter(|(_, answer)| answer.is_new()).map(|(n, _)| *n).collect();
        assert_eq!(new_values.len(), 1, "round {round}");
        for (n, answer) in answers {
            match answer {
                InsertOutcome::New => {}
                InsertOutcome::Existing(row) => {
                    assert_eq!((row.n, row.version), (new_values[0], 1), "as seen by {n}");
                }
            }
        }
    }
}

pub(crate) async fn concurrent_replacements_lose_no_update(fixture: &Fixture) {
    let stores = Arc::new([fixture.store.clone(), fixture.sibling().await]);
    stores[0].insert_new(&counter("c", 0)).await.unwrap();
    let tasks = (0..200).map(|n| {
        let stores = Arc::clone(&stores);
        tokio::spawn(async move { add_one(&stores[n % 2], "c").await })
    });
    let mut won: Vec<i64> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    won.sort_unstable();
    assert!(won.iter().copied().eq(2..=201), "each version was won once");
    let row = stores[0].get::<Counter>(&counter("c", 0).to_key()).await.unwrap().unwrap();
    assert_eq!((row.n, row.version), (200, 201));
}

/// All writers replace the same version without a read in between, so that every round is a collision.
pub(crate) async fn one_writer_wins_each_version(fixture: &Fixture) {
    let stores = Arc::new([fixture.store.clone(), fixture.sibling().await]);
    stores[0].insert_new(&counter("c", 0)).await.unwrap();
    for version in 1..=5 {
        let tasks = (0..40).map(|n| {
            let stores = Arc::clone(&stores);
            tokio::spawn(async move {
                (n, stores[n % 2].replace(&counter("c", n as i64), version).await.unwrap())
            })
        });
        let answers: BTreeMap<usize, _> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
        let winners: Vec<usize> =
            answers.iter().filter(|(_, answer)| answer.is_done()).map(|(n, _)| *n).collect();
        assert_eq!(winners.len(), 1, "version {version}");
        for answer in answers.values() {
            if let ReplaceOutcome::Conflict(row) = answer {
                assert_eq!((row.n, row.version), (winners[0] as i64, version + 1));
            }
        }
    }
}

pub(crate) async fn expired_claim_can_be_taken_again(fixture: &Fixture) {
    let store = &fixture.store;
    let claim = |holder: &str| Claim {
        org: OrgId::new("o"),
        name: "n".to_owned(),
        holder: holder.to_owned(),
        version: 0,
    };
    assert!(store.insert_new(&claim("first")).await.unwrap().is_new());
    eventually("the claim to lapse", MINUTE, async || {
        match store.insert_new(&claim("second")).await.unwrap() {
            InsertOutcome::New => Some(()),
            InsertOutcome::Existing(row) => {
                assert_eq!((row.holder.as_str(), row.version), ("first", 1));
                None
            }
        }
    })
    .await
    .unwrap();
    assert_eq!(
        store.get::<Claim>(&claim("").to_key()).await.unwrap().map(|row| row.holder),
        Some("second".into())
    );
    // A replacement renews the full time to live of the whole row.
    assert!(store.replace(&claim("third"), 1).await.unwrap().is_done());
    eventually("the replaced claim to lapse", MINUTE, async || {
        store.get::<Claim>(&claim("").to_key()).await.unwrap().is_none().then_some(())
    })
    .await
    .unwrap();
    assert_eq!(store.replace(&claim("fourth"), 2).await.unwrap(), ReplaceOutcome::Missing);
}
