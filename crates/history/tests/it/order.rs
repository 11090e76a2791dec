//! Rows of any period and part: each row once, in the order of the dataset.

use std::{collections::BTreeSet, ops::Range};

use proptest::{
    collection::{btree_set, vec},
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tidegate_history::{Dataset, Part, RowPosition, RowReader, RowRequest, StoredRow, Visibility};
use tidegate_schemas::ids::{DAY_MS, EventId, HOUR_MS, Kind, Millis, OrgId, derive};
use tidegate_store::{Store, tables::items::history::random_bits_of};
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::{fixture::Fixture, stored::write_row};

/// Start of a day, not long ago: rows of some tables expire.
fn first_day() -> Millis {
    Millis((Millis::now().day() - 4) * DAY_MS)
}

#[derive(Clone, Debug)]
struct Case {
    dataset: Dataset,
    rows: BTreeSet<(i64, u128)>,
    /// Offsets at which the period is split.
    cuts: BTreeSet<i64>,
    parts: u32,
}

/// Times of rows: many at the bounds of days, hours and minutes, and several in the same millisecond.
fn offsets() -> impl Strategy<Value = i64> {
    let bounds = (0..3_i64, 0..24_i64, -2..3_i64);
    let bounds = bounds.prop_map(|(day, hour, near)| day * DAY_MS + hour * HOUR_MS + near);
    prop_oneof![
        3 => bounds.prop_map(|offset| offset.max(0)),
        2 => 0..3 * DAY_MS,
        2 => (0..20_i64).prop_map(|near| DAY_MS + 12 * HOUR_MS + near),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let dataset = proptest::sample::select(Dataset::ALL);
    let rows = btree_set((offsets(), any::<u128>()), 0..60);
    (dataset, rows, vec(offsets(), 0..4), 1..6_u32).prop_map(|(dataset, rows, cuts, parts)| Case {
        dataset,
        rows,
        cuts: cuts.into_iter().collect(),
        parts,
    })
}

/// Place of a row in the order of its dataset. Items are ordered within their hour by the random bits of their ids.
fn order_of(dataset: Dataset, position: &RowPosition) -> (i64, i64, Uuid) {
    match dataset {
        Dataset::Items | Dataset::Evaluations => {
            (position.at.hour(), random_bits_of(position.id.into()), position.id)
        }
        _ => (position.at.0, 0, position.id),
    }
}

fn build_request(org: &OrgId, dataset: Dataset, period: &Range<Millis>) -> RowRequest {
    RowRequest {
        org: org.clone(),
        dataset,
        since: period.start,
        until: period.end,
        part: Part::WHOLE,
        after: None,
        visibility: Visibility::All,
    }
}

async fn read_positions(store: &Store, request: RowRequest) -> Vec<RowPosition> {
    let mut reader = RowReader::new(store, request);
    let mut positions = Vec::new();
    while let Some(page) = reader.next_page().await.unwrap() {
        positions.extend(page.iter().map(StoredRow::position));
    }
    positions
}

async fn check(store: &Store, case: &Case) {
    let dataset = case.dataset;
    let org = OrgId::new(EventId::random().to_string());
    let first_day = first_day();
    let mut expected = Vec::new();
    for (offset, id) in &case.rows {
        let position = RowPosition { at: Millis(first_day.0 + offset), id: Uuid::from_u128(*id) };
        expected.push(write_row(store, &org, dataset, position).await);
    }
    expected.sort_by_key(|position| order_of(dataset, position));
    let all_days = first_day..Millis(first_day.0 + 4 * DAY_MS);
    let rows_of_all_days = read_positions(store, build_request(&org, dataset, &all_days)).await;
    assert_eq!(rows_of_all_days, expected, "the whole period");

    let cuts = case.cuts.iter().map(|offset| Millis(first_day.0 + offset));
    let starts: Vec<_> = [all_days.start].into_iter().chain(cuts.clone()).collect();
    let ends: Vec<_> = cuts.chain([all_days.end]).collect();
    let mut split_rows = Vec::new();
    for (start, end) in starts.into_iter().zip(ends) {
        for number in 1..=case.parts {
            let part = Part::new(number, case.parts).unwrap();
            let request = RowRequest { part, ..build_request(&org, dataset, &(start..end)) };
            let rows = read_positions(store, request).await;
            assert!(rows.is_sorted_by_key(|position| order_of(dataset, position)), "{part} of {start:?}");
            assert!(rows.iter().all(|row| (start..end).contains(&row.at)), "{part} of {start:?}: {rows:?}");
            split_rows.extend(rows);
        }
    }
    split_rows.sort_by_key(|position| order_of(dataset, position));
    assert_eq!(split_rows, expected, "the parts of the periods");

    for (index, after) in rows_of_all_days.iter().enumerate().step_by(1 + rows_of_all_days.len() / 8) {
        let request = RowRequest { after: Some(*after), ..build_request(&org, dataset, &all_days) };
        assert_eq!(
            read_positions(store, request).await,
            rows_of_all_days[index + 1..],
            "the rows after {after:?}"
        );
    }
}

fn run(runtime: &Runtime, store: &Store, cases_run: u32) {
    let mut runner =
        TestRunner::new(Config { cases: cases_run, failure_persistence: None, ..Config::default() });
    let result = runner.run(&cases(), |case| {
        runtime.block_on(check(store, &case));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn embedded_rows_are_read_once_in_order_however_split() {
    let runtime = Runtime::new().unwrap();
    let fixture = runtime.block_on(async { Fixture::embedded() });
    run(&runtime, &fixture.store, 60);
    runtime.block_on(fixture.end());
}

#[test]
fn cql_rows_are_read_once_in_order_however_split() {
    let runtime = Runtime::new().unwrap();
    if let Some(fixture) = runtime.block_on(Fixture::cql("order")) {
        run(&runtime, &fixture.store, 10);
        runtime.block_on(fixture.end());
    }
}

/// More rows than a page of the reader and of the store.
#[tokio::test]
async fn rows_beyond_one_page_are_all_read() {
    let fixture = Fixture::embedded();
    let org = OrgId::new("o");
    let first_day = first_day();
    for dataset in [Dataset::Reports, Dataset::Items] {
        let mut expected = Vec::new();
        for number in 0..3_300_u32 {
            let at = Millis(first_day.0 + i64::from(number % 700));
            let id: Uuid = derive(Kind::JobCause, &[&number.to_be_bytes()]);
            expected.push(write_row(&fixture.store, &org, dataset, RowPosition { at, id }).await);
        }
        expected.sort_by_key(|position| order_of(dataset, position));
        let period = first_day..Millis(first_day.0 + DAY_MS);
        let request = build_request(&org, dataset, &period);
        assert_eq!(read_positions(&fixture.store, request.clone()).await, expected);
        let after = Some(expected[1_500]);
        assert_eq!(read_positions(&fixture.store, RowRequest { after, ..request }).await, expected[1_501..]);
    }
    fixture.end().await;
}
