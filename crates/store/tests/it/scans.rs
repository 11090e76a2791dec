//! Ranges, pages, cursors and splits.

use std::{collections::BTreeSet, ops::Bound};

use bytes::Bytes;
use futures::TryStreamExt as _;
use tidegate_schemas::ids::OrgId;
use tidegate_store::{Cursor, Error, Row as _, RowRange, Split, Store, WriteTime};

use crate::{
    facts::event,
    fixture::Fixture,
    tables::{Event, EventNote},
};

type Range = RowRange<<Event as tidegate_store::Row>::Cluster>;
type RowFilter = Box<dyn Fn(&Event) -> bool>;

fn row(org: &str, at: i64, seq: i64) -> Event {
    Event { org: OrgId::new(org), at, seq, payload: Bytes::from_static(b"payload"), note: None }
}

pub(crate) async fn pages_return_every_row_once_in_order(fixture: &Fixture) {
    const ROWS: i64 = 100_000;
    let store = &fixture.store;
    let rows: Vec<Event> = (0..ROWS).map(|n| row("o", n, 0)).collect();
    for part in rows.chunks(10_000) {
        store.put_rows(WriteTime(1), part).await.unwrap();
    }
    // Rows of neighbouring partitions, which the scan must not return.
    store
        .put_rows(WriteTime(1), &[row("n", 1, 1), row("o\0", 1, 1), row("oo", 1, 1), row("p", 1, 1)])
        .await
        .unwrap();

    let partition = Event::partition("o");
    let mut pages = store.scan::<Event>(&partition, RowRange::all().page_size(1_000));
    let mut next = 0;
    while let Some(page) = pages.next_page().await.unwrap() {
        assert!(page.len() <= 1_000);
        for row in page {
            assert_eq!(row.at, next);
            next += 1;
        }
    }
    assert_eq!((next, pages.cursor()), (ROWS, None));

    let streamed = store.scan::<Event>(&partition, RowRange::all().page_size(7_919)).stream();
    let count = streamed.try_fold(0, async |count, row| Ok(if row.at == count { count + 1 } else { count }));
    assert_eq!(count.await.unwrap(), ROWS);

    let mut first = store.scan::<Event>(&partition, RowRange::starting_at(50_000).limit(10));
    assert_eq!(first.all().await.unwrap().last().map(|row| row.at), Some(50_009));
    let handed_out = first.cursor().unwrap().to_string();
    let parsed_cursor: Cursor = handed_out.parse().unwrap();
    let second = store
        .scan::<Event>(&partition, RowRange::starting_at(50_000).limit(10).after(parsed_cursor))
        .all()
        .await
        .unwrap();
    assert_eq!(second.iter().map(|row| row.at).collect::<Vec<_>>(), (50_010..50_020).collect::<Vec<_>>());
}

pub(crate) async fn ranges_limits_and_cursors_agree_with_a_plain_filter(fixture: &Fixture) {
    let store = &fixture.store;
    let mut rows = Vec::new();
    for at in 0..5 {
        for seq in (0..4).rev() {
            rows.push(row("o", at, seq));
        }
    }
    store.put_rows(WriteTime(1), &rows).await.unwrap();

    let ranges: Vec<(&str, Range, RowFilter)> = vec![
        ("all", RowRange::all(), Box::new(|_| true)),
        ("since", RowRange::starting_at(2), Box::new(|row| row.at >= 2)),
        ("until", RowRange::ending_before(2), Box::new(|row| row.at < 2)),
        ("between", RowRange::range((), 1..=3), Box::new(|row| (1..=3).contains(&row.at))),
        ("after", RowRange::range((), (Bound::Excluded(1), Bound::Unbounded)), Box::new(|row| row.at > 1)),
        ("empty", RowRange::range((), 3..3), Box::new(|_| false)),
        ("backwards", RowRange::range((), (Bound::Included(3), Bound::Included(1))), Box::new(|_| false)),
        ("under", RowRange::with_prefix((3,)), Box::new(|row| row.at == 3)),
        ("under all", RowRange::with_prefix((3, 2)), Box::new(|row| row.at == 3 && row.seq == 2)),
        ("inside", RowRange::range((3,), 1..3), Box::new(|row| row.at == 3 && (1..3).contains(&row.seq))),
        (
            "inside, above",
            RowRange::range((3,), (Bound::Excluded(1), Bound::Unbounded)),
            Box::new(|row| row.at == 3 && row.seq > 1),
        ),
        ("inside, up to", RowRange::range((3,), ..=1), Box::new(|row| row.at == 3 && row.seq <= 1)),
        ("no such prefix", RowRange::with_prefix((9,)), Box::new(|_| false)),
    ];
    for (name, range, holds) in &ranges {
        let expected_rows: Vec<Event> = rows.iter().filter(|row| holds(row)).cloned().collect();
        let scanned_rows = scan(store, range.clone().page_size(3)).await.0;
        assert_eq!(scanned_rows, expected_rows, "{name}");
        let scanned_rows = scan(store, range.clone().limit(2)).await.0;
        assert_eq!(scanned_rows, expected_rows[..expected_rows.len().min(2)], "{name}, two of them");
        // The cursor points to every row of the partition, also outside of the range.
        for (index, from) in rows.iter().enumerate() {
            let cursor = scan(store, RowRange::with_prefix((from.at, from.seq)).limit(1))
                .await
                .1
                .expect("the limit was met");
            let expected_rows: Vec<Event> =
                rows[index + 1..].iter().filter(|row| holds(row)).cloned().collect();
            let scanned_rows = scan(store, range.clone().after(cursor).page_size(4)).await.0;
            assert_eq!(scanned_rows, expected_rows, "{name}, after {}/{}", from.at, from.seq);
        }
    }
}

async fn scan(store: &Store, range: Range) -> (Vec<Event>, Option<Cursor>) {
    let mut pages = store.scan::<Event>(&Event::partition("o"), range);
    let rows = pages.all().await.unwrap();
    (rows, pages.cursor())
}

pub(crate) async fn forged_cursor_cannot_leave_its_partition(fixture: &Fixture) {
    let store = &fixture.store;
    store.put_rows(WriteTime(1), &[row("o", 1, 1), row("p", 1, 1)]).await.unwrap();
    for text in ["", "00", "zz", "ABCDEF", "8000000000000001", &"00".repeat(17), &"f".repeat(200_000), "0"] {
        let error = match text.parse::<Cursor>() {
            Err(error) => error,
            Ok(cursor) => store
                .scan::<Event>(&Event::partition("o"), RowRange::all().after(cursor))
                .all()
                .await
                .expect_err("the text is not sixteen bytes long"),
        };
        assert!(matches!(error, Error::BadCursor), "{error}");
    }
    let highest: Cursor = "ff".repeat(16).parse().unwrap();
    assert_eq!(scan(store, RowRange::all().after(highest)).await.0, []);
    let lowest: Cursor = "00".repeat(16).parse().unwrap();
    assert_eq!(scan(store, RowRange::all().after(lowest)).await.0, [row("o", 1, 1)]);
}

pub(crate) async fn splits_return_every_row_once(fixture: &Fixture) {
    let store = &fixture.store;
    assert_eq!(read_splits(store, 4).await, BTreeSet::new(), "the splits of an empty table have no rows");
    let rows: Vec<Event> = (0..1_500)
        .flat_map(|n| {
            let org = format!("org {:x}", n * 7_919 % 1_500);
            [row(&org, n, 0), row(&org, n, 1)]
        })
        .collect();
    store.put_rows(WriteTime(1), &rows).await.unwrap();
    store.delete::<Event>(WriteTime(2), &rows[0].to_key()).await.unwrap();
    let expected_keys: BTreeSet<_> =
        rows[1..].iter().map(|row| (row.org.to_string(), row.at, row.seq)).collect();
    for parts in [1, 2, 3, 16, 100] {
        assert!(read_splits(store, parts).await == expected_keys, "{parts} splits");
    }
    let all_rows = store.scan_all::<Event>(&Split::whole_table()).all().await.unwrap();
    assert_eq!(all_rows.len(), expected_keys.len());
    // Rows written after the computation of the splits belong to a split, too.
    let splits = store.splits::<Event>(3).await.unwrap();
    store
        .put_rows(WriteTime(1), &[row("\0", 1, 1), row("\u{10ffff}", 1, 1), event(1, "p", None)])
        .await
        .unwrap();
    let mut count = 0;
    for split in splits {
        count += store.scan_all::<Event>(&split).all().await.unwrap().len();
    }
    assert_eq!(count, expected_keys.len() + 3);
}

async fn read_splits(store: &Store, parts: usize) -> BTreeSet<(String, i64, i64)> {
    let mut keys = BTreeSet::new();
    for split in store.splits::<Event>(parts).await.unwrap() {
        let mut pages = store.scan_all::<Event>(&split);
        while let Some(page) = pages.next_page().await.unwrap() {
            for row in page {
                let name = format!("{row:?}");
                assert!(keys.insert((row.org.to_string(), row.at, row.seq)), "the row {name} is read twice");
            }
        }
    }
    keys
}

pub(crate) async fn view_reads_its_columns_and_differs_from_its_table(fixture: &Fixture) {
    let store = &fixture.store;
    let rows = [event(3, "third", None), event(2, "second", Some("note")), event(1, "first", Some(""))];
    store.put_rows(WriteTime(1), &rows).await.unwrap();
    let noted =
        |row: &Event| EventNote { org: row.org.clone(), at: row.at, seq: row.seq, note: row.note.clone() };
    for _ in 0..2 {
        let scanned_notes =
            store.scan::<EventNote>(&EventNote::partition("o"), RowRange::all().page_size(2)).all().await;
        assert!(scanned_notes.unwrap().iter().eq(rows.iter().map(noted).collect::<Vec<_>>().iter()));
        let fetched_note = store.get::<EventNote>(&rows[1].to_key()).await.unwrap();
        assert_eq!(fetched_note, Some(noted(&rows[1])));
        // The table and its view have separate statements.
        assert_eq!(store.get::<Event>(&rows[1].to_key()).await.unwrap(), Some(rows[1].clone()));
        assert_eq!(store.scan::<Event>(&Event::partition("o"), RowRange::all()).all().await.unwrap(), rows);
    }
}
