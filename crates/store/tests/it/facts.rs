//! Puts and deletions: the stored rows, and the winners of conflicts.

use std::collections::BTreeSet;

use bytes::Bytes;
use tidegate_schemas::ids::*;
use tidegate_store::{Batch, Error, Row as _, RowRange, WriteTime};
use tidegate_test_support::eventually;
use uuid::Uuid;

use crate::{
    fixture::{Fixture, MINUTE},
    tables::{Colour, Counter, Event, Everything, Fleeting, Keyed},
    versioned::counter,
};

pub(crate) fn event(seq: i64, payload: &'static str, note: Option<&str>) -> Event {
    Event {
        org: OrgId::new("o"),
        at: 1,
        seq,
        payload: Bytes::from_static(payload.as_bytes()),
        note: note.map(str::to_owned),
    }
}

fn everything(at: i64) -> Everything {
    let id = Uuid::from_u128;
    Everything {
        org: OrgId::new("o\0\u{1}/ß\u{10ffff}"),
        at: Millis(at),
        id: SubmissionId(id(7)),
        text: "a\0b\u{10ffff}".to_owned(),
        long: i64::MIN,
        short: i32::MAX,
        yes: true,
        real: -0.1,
        uuid: id(u128::MAX),
        instant: Millis(-62_135_596_800_000),
        blob: Bytes::from(vec![0, 255, 0, 10]),
        shared: "shared".into(),
        colour: Colour::Green,
        no_text: None,
        no_long: None,
        no_short: None,
        no_yes: None,
        no_real: None,
        no_uuid: None,
        no_instant: None,
        no_blob: None,
        type_id: TypeId::new("post"),
        item_id: ItemId::new("a/b"),
        item: ItemKey::new("post", "a/b/c"),
        policy: PolicyId::new("p"),
        action: ActionId::new("hide"),
        rule: RuleId::new("r"),
        endpoint: EndpointId::new("e"),
        queue: QueueId::new("default"),
        appeal: AppealId::new(""),
        event: EventId(id(1)),
        cause: CauseId(id(2)),
        job: JobId(id(3)),
        report: ReportId(id(4)),
        decision: DecisionId(id(5)),
        api_key: ApiKeyId(id(6)),
        config: ConfigVersion(12),
        no_item: None,
    }
}

pub(crate) async fn every_column_type_is_read_back_unchanged(fixture: &Fixture) {
    let store = &fixture.store;
    let bare = everything(0);
    let full = Everything {
        at: Millis(i64::from(i32::MAX)),
        text: String::new(),
        blob: Bytes::new(),
        colour: Colour::Red,
        no_text: Some(String::new()),
        no_long: Some(0),
        no_short: Some(i32::MIN),
        no_yes: Some(false),
        no_real: Some(f64::MAX),
        no_uuid: Some(Uuid::nil()),
        no_instant: Some(Millis(1)),
        no_blob: Some(Bytes::new()),
        no_item: Some(ItemKey::new("user", "")),
        ..everything(0)
    };
    store.put_rows(WriteTime(1), &[bare.clone(), full.clone()]).await.unwrap();
    assert_eq!(store.get::<Everything>(&bare.to_key()).await.unwrap(), Some(bare.clone()));
    assert_eq!(store.get::<Everything>(&full.to_key()).await.unwrap(), Some(full.clone()));
    let scanned = store.scan::<Everything>(&bare.to_partition(), RowRange::all()).all().await.unwrap();
    assert_eq!(scanned, [full, bare], "the newest first");
}

pub(crate) async fn key_columns_of_every_type_keep_the_table_order(fixture: &Fixture) {
    let mut rows = Vec::new();
    for name in ["", "a", "a\0", "a\0b", "ab", "ß", "\u{10ffff}"] {
        for short in [i32::MIN, -1, 0, i32::MAX] {
            for long in [i64::MIN, -1, 0, i64::MAX] {
                for yes in [false, true] {
                    for cause in [0, 1, u128::from(u64::MAX) << 64] {
                        // All UUIDs have one version, because engines agree only on the order of those.
                        let cause =
                            uuid::Builder::from_custom_bytes(Uuid::from_u128(cause).into_bytes()).into_uuid();
                        let n = rows.len() as i64;
                        let (name, cause) = (name.to_owned(), CauseId(cause));
                        let (org, user) = (OrgId::new("o"), ItemKey::new("user", "u"));
                        rows.push(Keyed { org, day: -3, user, name, short, long, yes, cause, n });
                    }
                }
            }
        }
    }
    fixture.store.put_rows(WriteTime(1), &rows).await.unwrap();
    rows.sort_by(|a, b| {
        let desc_asc = b.name.cmp(&a.name).then(a.short.cmp(&b.short)).then(b.long.cmp(&a.long));
        desc_asc.then(a.yes.cmp(&b.yes)).then(b.cause.cmp(&a.cause))
    });
    let partition = Keyed::partition("o", -3, ItemKey::new("user", "u"));
    let scanned =
        fixture.store.scan::<Keyed>(&partition, RowRange::all().page_size(100)).all().await.unwrap();
    assert_eq!(scanned.len(), rows.len());
    assert!(scanned == rows, "not in the order of the table");
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Put(i64),
    Delete(i64),
}

pub(crate) async fn older_write_loses_in_every_order_of_arrival(fixture: &Fixture) {
    let store = &fixture.store;
    let sets = [
        [Change::Put(10), Change::Put(20), Change::Put(30)],
        [Change::Put(10), Change::Delete(20), Change::Put(30)],
        [Change::Put(10), Change::Put(20), Change::Delete(30)],
        [Change::Delete(10), Change::Put(20), Change::Delete(15)],
    ];
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let mut seq = 0;
    for set in sets {
        for (index, order) in orders.iter().enumerate() {
            seq += 1;
            let row = |at: i64| Event { note: Some(at.to_string()), ..event(seq, "", None) };
            let key = row(0).to_key();
            let mut together = Batch::new();
            for step in order {
                match set[*step] {
                    Change::Put(at) => drop(together.put_owned(WriteTime(at), row(at))),
                    Change::Delete(at) => drop(together.delete::<Event>(WriteTime(at), &key)),
                }
                // Half of the cases send one call per change, the others a single call.
                if index % 2 == 0 {
                    store.write(std::mem::take(&mut together)).await.unwrap();
                }
            }
            store.write(together).await.unwrap();
            let last = set.iter().max_by_key(|change| match change {
                Change::Put(at) | Change::Delete(at) => *at,
            });
            let expected_row = match last {
                Some(Change::Put(at)) => Some(row(*at)),
                _ => None,
            };
            assert_eq!(
                store.get::<Event>(&key).await.unwrap(),
                expected_row,
                "{set:?} in the order {order:?}"
            );
        }
    }
}

pub(crate) async fn a_put_replaces_the_whole_row(fixture: &Fixture) {
    let store = &fixture.store;
    store.put_rows(WriteTime(1), &[event(1, "first", Some("note"))]).await.unwrap();
    store.put_rows(WriteTime(2), &[event(1, "second", None)]).await.unwrap();
    let row = store.get::<Event>(&event(1, "", None).to_key()).await.unwrap().unwrap();
    assert_eq!(row, event(1, "second", None), "the note of the first put is left over");
    store.put_rows(WriteTime(1), &[event(1, "first", Some("note"))]).await.unwrap();
    assert_eq!(store.get::<Event>(&row.to_key()).await.unwrap(), Some(row), "a newer null is kept");
}

pub(crate) async fn deletion_wins_over_a_put_of_the_same_time(fixture: &Fixture) {
    let store = &fixture.store;
    for (seq, put_first) in [(1, true), (2, false)] {
        let row = event(seq, "p", None);
        if put_first {
            store.put_rows(WriteTime(5), std::slice::from_ref(&row)).await.unwrap();
        }
        store.delete::<Event>(WriteTime(5), &row.to_key()).await.unwrap();
        if !put_first {
            store.put_rows(WriteTime(5), std::slice::from_ref(&row)).await.unwrap();
        }
        assert_eq!(store.get::<Event>(&row.to_key()).await.unwrap(), None, "put first: {put_first}");
    }
}

pub(crate) async fn batch_writes_several_tables_with_their_own_times(fixture: &Fixture) {
    let store = &fixture.store;
    let current_time = Millis::now();
    let keyed = Keyed {
        org: OrgId::new("o"),
        day: 1,
        user: ItemKey::new("user", "u"),
        name: "n".to_owned(),
        short: 1,
        long: 1,
        yes: true,
        cause: CauseId(Uuid::nil()),
        n: 9,
    };
    let fleeting = Fleeting { org: OrgId::new("o"), seq: 1, n: 1 };
    store.put_rows(WriteTime(50), &[event(1, "older", None), event(3, "gone", None)]).await.unwrap();
    let (kept, lost) = (event(1, "newer", None), event(2, "p", None));
    let mut batch = Batch::new();
    batch
        .put_row(WriteTime(60), &kept)
        .put_row(WriteTime(10), &keyed)
        .put_owned(WriteTime::from_append(current_time, 1), fleeting.clone());
    batch.put_row(WriteTime(40), &lost).delete::<Event>(WriteTime(41), &lost.to_key());
    batch.delete::<Event>(WriteTime(51), &event(3, "", None).to_key()).require_sync();
    store.write(batch).await.unwrap();
    let events = store.scan::<Event>(&kept.to_partition(), RowRange::all()).all().await.unwrap();
    assert_eq!(events, [kept]);
    assert_eq!(store.get::<Keyed>(&keyed.to_key()).await.unwrap(), Some(keyed));
    assert_eq!(store.get::<Fleeting>(&fleeting.to_key()).await.unwrap(), Some(fleeting));
}

pub(crate) async fn a_batch_of_many_times_40_kib_is_written_whole(fixture: &Fixture) {
    let payload = Bytes::from(vec![7; 9 << 10]);
    // Two partitions, rows of several sizes, some bigger than a chunk.
    let rows: Vec<Event> = (0..200)
        .map(|n| {
            let size = if n % 20 == 0 { 60 << 10 } else { 9 << 10 };
            let payload = if size > payload.len() { Bytes::from(vec![8; size]) } else { payload.clone() };
            let org = OrgId::new(if n % 2 == 0 { "even" } else { "odd" });
            Event { org, at: n, seq: 0, payload, note: None }
        })
        .collect();
    fixture.store.put_rows(WriteTime(1), &rows).await.unwrap();
    for (org, remainder) in [("even", 0), ("odd", 1)] {
        let stored_rows =
            fixture.store.scan::<Event>(&Event::partition(org), RowRange::all()).all().await.unwrap();
        let expected_rows: Vec<&Event> = rows.iter().filter(|row| row.at % 2 == remainder).collect();
        assert!(stored_rows.iter().eq(expected_rows), "rows of `{org}` are missing or differ");
    }
}

pub(crate) async fn row_of_one_mebibyte_is_read_back(fixture: &Fixture) {
    let payload: Bytes = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    let rows: Vec<Event> =
        (1..=3).map(|seq| Event { payload: payload.clone(), ..event(seq, "", None) }).collect();
    fixture.store.put_rows(WriteTime(1), &rows).await.unwrap();
    for row in rows {
        assert!(fixture.store.get::<Event>(&row.to_key()).await.unwrap() == Some(row));
    }
}

/// Default row limit of both engines, below the default limit of Cassandra.
const LIMIT: usize = 15 << 20;

pub(crate) async fn oversized_row_is_refused_and_the_next_is_written(fixture: &Fixture) {
    let store = &fixture.store;
    let too_large = Bytes::from(vec![7; LIMIT]);
    let assert_too_large = |error: Error, name: &str| {
        assert!(matches!(error, Error::TooLarge { table, limit: LIMIT, .. } if table == name), "{error}");
        assert!(error.is_refusal() && !error.is_outage(), "{error}");
    };
    let row = Event { payload: too_large.clone(), ..event(1, "", None) };
    assert_too_large(store.put_rows(WriteTime(1), std::slice::from_ref(&row)).await.unwrap_err(), "events");
    let versioned = Counter { payload: too_large, ..counter("c", 0) };
    assert_too_large(store.insert_new(&versioned).await.unwrap_err(), "counters");
    store.insert_new(&counter("c", 0)).await.unwrap();
    assert_too_large(store.replace(&versioned, 1).await.unwrap_err(), "counters");

    let largest = Bytes::from(vec![8; LIMIT - 1_000]);
    let row = Event { payload: largest.clone(), ..row };
    store.put_rows(WriteTime(1), std::slice::from_ref(&row)).await.unwrap();
    assert!(store.get::<Event>(&row.to_key()).await.unwrap() == Some(row));
    let versioned = Counter { payload: largest, ..counter("c", 0) };
    assert!(store.replace(&versioned, 1).await.unwrap().is_done());
}

pub(crate) async fn overlong_key_is_a_refusal_and_no_outage(fixture: &Fixture) {
    let long_row = Event { org: OrgId::new("o".repeat(70_000)), ..event(1, "", None) };
    let error = fixture.store.put_rows(WriteTime(1), &[long_row]).await.unwrap_err();
    assert!(error.is_refusal() && !error.is_outage(), "{error}");
}

pub(crate) async fn expired_row_is_not_returned(fixture: &Fixture) {
    let store = &fixture.store;
    let row = |seq, n| Fleeting { org: OrgId::new("o"), seq, n };
    let hour = std::time::Duration::from_secs(3_600);
    let current_time = Millis::now();
    let expired_time = WriteTime::from_append(current_time.minus(hour), 0);
    let expiring_time = WriteTime::from_append(Millis(current_time.minus(hour).0 + 3_000), 0);
    let present_time = WriteTime::from_append(current_time, 0);

    store.put_rows(expired_time, &[row(1, 1), row(2, 1)]).await.unwrap();
    assert_eq!(
        store.get::<Fleeting>(&row(1, 1).to_key()).await.unwrap(),
        None,
        "the row was expired at its write"
    );
    store.put_rows(present_time, &[row(3, 1)]).await.unwrap();
    store.put_rows(expiring_time, &[row(1, 2), row(3, 2), row(4, 2)]).await.unwrap();
    eventually("the expired row to disappear", MINUTE, async || {
        store.get::<Fleeting>(&row(4, 2).to_key()).await.unwrap().is_none().then_some(())
    })
    .await
    .unwrap();
    // The row with an hour left stays when the other expires, and no older row appears.
    let expected_rows = vec![row(3, 1)];
    eventually("only the unexpired row to remain", MINUTE, async || {
        let rows = store.scan::<Fleeting>(&Fleeting::partition("o"), RowRange::all()).all().await.unwrap();
        (rows == expected_rows).then_some(())
    })
    .await
    .unwrap();
    store.put_rows(present_time, &[row(4, 3)]).await.unwrap();
    assert_eq!(
        store.get::<Fleeting>(&row(4, 3).to_key()).await.unwrap(),
        Some(row(4, 3)),
        "an expired row can be written again"
    );
}

pub(crate) async fn get_many_answers_in_the_order_of_the_keys(fixture: &Fixture) {
    let rows: Vec<Event> = (0..300).map(|seq| event(seq, "p", None)).collect();
    fixture.store.put_rows(WriteTime(1), &rows).await.unwrap();
    let keys: Vec<_> = (0..600).rev().map(|seq| event(seq, "", None).to_key()).collect();
    let fetched_rows = fixture.store.get_many::<Event>(&keys).await.unwrap();
    assert_eq!(fetched_rows.len(), 600);
    assert!(fetched_rows[..300].iter().all(Option::is_none));
    assert!(fetched_rows[300..].iter().flatten().eq(rows.iter().rev()));
    let distinct_seqs: BTreeSet<i64> = fetched_rows.iter().flatten().map(|row| row.seq).collect();
    assert_eq!(distinct_seqs.len(), 300);
}
