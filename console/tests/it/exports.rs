//! Exports of the history over HTTP.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_history::Dataset;
use tidegate_schemas::{
    history::{RelatedAction, ReportEvent},
    ids::{DAY_MS, HOUR_MS, ItemKey, JobId, Millis, OrgId},
    item_types::datetime,
};
use tidegate_store::tables::items::history::random_bits_of;
use tidegate_test_support::{PATIENCE, eventually_ok};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    service::{OPERATOR, Service, first_day},
    stored::{NewRow, Rows, id_of},
};

const ALL_SCOPES: &str = "exports:read,child_safety";

/// Writes rows on two days, some of them in the same millisecond, and returns their lines in the order of the dataset.
async fn write_rows(service: &Service, org: &OrgId, dataset: Dataset) -> Vec<Value> {
    let rows = Rows { store: &service.store, org };
    let first_day = first_day().0;
    let mut lines = Vec::new();
    for number in 0..14_u32 {
        let offset = match number {
            0..5 => 9 * HOUR_MS + 7,
            5..9 => 9 * HOUR_MS + 30_000 * i64::from(number),
            _ => DAY_MS + HOUR_MS * i64::from(number),
        };
        let row = NewRow { at: Millis(first_day + offset), number, item: "p", is_child_safety: false };
        lines.push(rows.write(dataset, row).await);
    }
    sort_lines(dataset, &mut lines);
    lines
}

/// Time and id of a row, which are its first two columns.
fn position_of(dataset: Dataset, line: &Value) -> (Millis, String) {
    let [id, at] = [0, 1].map(|place| line[dataset.columns()[place].name].as_str().unwrap());
    (datetime::parse(at).unwrap(), id.to_owned())
}

fn sort_lines(dataset: Dataset, lines: &mut [Value]) {
    lines.sort_by_key(|line| {
        let (at, id) = position_of(dataset, line);
        match dataset {
            // Items are ordered within their hour by the random bits of their ids.
            Dataset::Items | Dataset::Evaluations => {
                let id: uuid::Uuid = id.parse().unwrap();
                (at.hour(), random_bits_of(id.into()), id.to_string())
            }
            // Ids of appeals are the platform's; their rows are ordered by a derived id.
            Dataset::Appeals => {
                let kind = tidegate_schemas::ids::Kind::JobCause;
                let id: uuid::Uuid = tidegate_schemas::ids::derive(kind, &[b"appeal", id.as_bytes()]);
                (at.0, 0, id.to_string())
            }
            _ => (at.0, 0, id),
        }
    });
}

fn period() -> String {
    format!("since={}&until={}", first_day().iso(), first_day().0 + 2 * DAY_MS)
}

fn is_audit_of_exports(line: &Value) -> bool {
    line["action"] == "GET /exports/{dataset}"
}

#[tokio::test]
async fn every_dataset_streams_its_rows_in_order() {
    let service = Service::start().await;
    let key = service.key(ALL_SCOPES).await;
    for dataset in Dataset::ALL {
        let expected = write_rows(&service, &service.org, *dataset).await;
        let answer = service.get(&key, &format!("/exports/{dataset}?{}", period())).await;
        assert_eq!(answer.headers["content-type"], "application/x-ndjson", "{dataset}: {answer:?}");
        assert_eq!(answer.headers["x-export-until"], Millis(first_day().0 + 2 * DAY_MS).iso().as_str());
        let rows: Vec<_> = answer.rows().into_iter().filter(|row| !is_audit_of_exports(row)).collect();
        // Audit rows of the other datasets' test rows stand in other tables, so only this dataset's rows are here.
        assert_eq!(rows, expected, "{dataset}");
        let first_line = answer.text.as_ref().unwrap().lines().next().unwrap();
        let mut remaining_text = first_line;
        for column in dataset.columns().iter().filter(|column| column.name != "data") {
            let name = format!("\"{}\":", column.name);
            remaining_text = remaining_text
                .split_once(&name)
                .unwrap_or_else(|| panic!("{name} is not in its place: {first_line}"))
                .1;
        }
    }
}

#[tokio::test]
async fn export_resumes_after_each_row() {
    let service = Service::start().await;
    let key = service.key(ALL_SCOPES).await;
    for dataset in Dataset::ALL {
        let lines = write_rows(&service, &service.org, *dataset).await;
        for (index, line) in lines.iter().enumerate() {
            let (at, id) = position_of(*dataset, line);
            let at = if index.is_multiple_of(2) { at.0.to_string() } else { at.iso() };
            let path = format!("/exports/{dataset}?{}&after={at}~{id}", period());
            assert_eq!(service.get(&key, &path).await.rows(), lines[index + 1..], "{path}");
        }
    }
}

#[tokio::test]
async fn parts_have_each_row_once() {
    let service = Service::start().await;
    let key = service.key(ALL_SCOPES).await;
    for dataset in Dataset::ALL {
        let lines = write_rows(&service, &service.org, *dataset).await;
        let mut rows_of_parts = Vec::new();
        for part in ["1/3", "2/3", "3/3"] {
            let rows =
                service.get(&key, &format!("/exports/{dataset}?{}&part={part}", period())).await.rows();
            assert!(rows.len() < lines.len(), "{dataset}: the part {part} has all rows");
            rows_of_parts.extend(rows);
        }
        sort_lines(*dataset, &mut rows_of_parts);
        assert_eq!(rows_of_parts, lines, "{dataset}");
    }
}

#[tokio::test]
async fn organisation_exports_its_own_rows_only() {
    let service = Service::start().await;
    let key = service.key(ALL_SCOPES).await;
    let other_key = service.key_of(&service.other_org, ALL_SCOPES).await;
    for dataset in Dataset::ALL {
        write_rows(&service, &service.org, *dataset).await;
        let other_rows = service.get(&other_key, &format!("/exports/{dataset}?{}", period())).await.rows();
        assert_eq!(other_rows, Vec::<Value>::new(), "{dataset}");
    }
    for dataset in Dataset::ALL {
        let path = format!("/exports/{dataset}?{}", period());
        let lines = service.get(&key, &path).await.rows();
        assert_eq!(lines.len(), 14, "{dataset}");
        let other_lines = write_rows(&service, &service.other_org, *dataset).await;
        assert_eq!(service.get(&key, &path).await.rows(), lines, "{dataset}");
        assert_eq!(service.get(&other_key, &path).await.rows(), other_lines, "{dataset}");
        let refused_answer = service.get(&other_key, &format!("{path}&org={}", service.org)).await;
        assert_eq!(refused_answer.status, 403, "{refused_answer:?}");
    }
    let operator = service.get(OPERATOR, &format!("/exports/audit?{}&org=acme", period())).await;
    assert_eq!(operator.rows().len(), 14, "the operator may export every organisation");
}

#[tokio::test]
async fn child_safety_rows_need_their_scope() {
    let service = Service::start().await;
    let (plain, cleared) = (service.key("exports:read").await, service.key(ALL_SCOPES).await);
    let rows = Rows { store: &service.store, org: &service.org };
    let at = Millis(first_day().0 + HOUR_MS);
    rows.restrict("restricted", at).await;
    for (dataset_number, dataset) in (0..).zip(Dataset::ALL) {
        let has_mark = dataset.columns().iter().any(|column| column.name == "childSafety");
        let mut visible_lines = Vec::new();
        for (number, (item, is_child_safety)) in
            (0..).zip([("p", false), ("restricted", false), ("q", has_mark), ("p", false)])
        {
            let number = 100 * dataset_number + number;
            let at = Millis(at.0 + i64::from(number));
            let line = rows.write(*dataset, NewRow { at, number, item, is_child_safety }).await;
            if item != "restricted" && !is_child_safety {
                visible_lines.push(line);
            }
        }
        sort_lines(*dataset, &mut visible_lines);
        let path = format!("/exports/{dataset}?{}", period());
        let all_rows = service.get(&cleared, &path).await.rows();
        let own_rows = all_rows.iter().filter(|row| {
            let (at_row, _) = position_of(*dataset, row);
            (at_row.0 - at.0) / 100 == i64::from(dataset_number)
        });
        assert_eq!(own_rows.count(), 4, "{dataset}");
        let answer = service.get(&plain, &path).await;
        if *dataset == Dataset::Audit {
            assert_eq!(answer.status, 403, "{answer:?}");
            assert!(answer.json()["detail"].as_str().unwrap().contains("`child_safety`"), "{answer:?}");
            continue;
        }
        let mut visible_rows = answer.rows();
        visible_rows.retain(|row| (position_of(*dataset, row).0.0 - at.0) / 100 == i64::from(dataset_number));
        assert_eq!(visible_rows, visible_lines, "{dataset}");
        assert!(!answer.text.unwrap().contains("restricted"), "{dataset}");
    }
}

#[tokio::test]
async fn decision_on_a_restricted_related_item_is_left_out() {
    let service = Service::start().await;
    let plain = service.key("exports:read").await;
    let rows = Rows { store: &service.store, org: &service.org };
    let row = NewRow { at: first_day(), number: 1, item: "p", is_child_safety: false };
    let related = RelatedAction { item: ItemKey::new("post", "restricted"), action: "remove".into() };
    rows.put_decision(row, vec![related]).await;
    let path = format!("/exports/decisions?{}", period());
    assert_eq!(service.get(&plain, &path).await.rows().len(), 1);
    rows.restrict("restricted", first_day()).await;
    assert_eq!(service.get(&plain, &path).await.rows(), Vec::<Value>::new());
}

#[tokio::test]
async fn columns_are_selected_in_the_requested_order() {
    let service = Service::start().await;
    let key = service.key("exports:read").await;
    write_rows(&service, &service.org, Dataset::Items).await;
    let path = format!("/exports/items?{}&columns=data,state,submissionId", period());
    let text = service.get(&key, &path).await.text.unwrap();
    assert_eq!(text.lines().count(), 14);
    for line in text.lines() {
        let (data, end) = line.split_once("\",\"state\":\"evaluated\",\"submissionId\":\"").unwrap();
        assert!(data.starts_with(r#"{"data":"{\"text\":\""#) && end.ends_with("\"}"), "{line}");
    }
    let text = service.get(&key, &format!("/exports/items?{}", period())).await.text.unwrap();
    assert!(!text.contains("\"data\""), "content is exported on request only: {text}");
}

#[tokio::test]
async fn invalid_requests_are_refused_with_a_remedy() {
    let service = Service::start().await;
    let key = service.key("exports:read").await;
    let now = Millis::now();
    for (path, status, detail) in [
        ("report?since=0".to_owned(), 404, "Did you mean `reports`?"),
        ("reports?columns=reportId,itmeId".to_owned(), 400, "Did you mean `itemId`?"),
        ("reports?columns=itemId,itemId".to_owned(), 400, "names `itemId` twice"),
        ("reports?columns=".to_owned(), 400, "no column ``"),
        ("reports?since=yesterday".to_owned(), 400, "`since` is not an instant"),
        ("reports?until=1e9".to_owned(), 400, "`until` is not an instant"),
        ("reports?until=-9223372036854775808".to_owned(), 400, "`until` is not an instant"),
        ("reports?since=5&until=5".to_owned(), 400, "is not before the end"),
        // Rows of the last minute may still be added.
        (format!("reports?since={}&until={}", now.0 - 1, now.0), 400, "is not before the end"),
        ("reports?part=0/3".to_owned(), 400, "1/4"),
        ("reports?part=4/3".to_owned(), 400, "1/4"),
        ("reports?after=5".to_owned(), 400, "`after`"),
        ("reports?after=5~x".to_owned(), 400, "`after`"),
        ("reports?format=csv".to_owned(), 400, "format"),
    ] {
        let answer = service.get(&key, &format!("/exports/{path}")).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        let problem = answer.json();
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{path}: {problem}");
    }
    assert!(service.export_entries().await.is_empty(), "refused requests export no rows");
}

#[tokio::test]
async fn exports_need_their_scope_and_it_opens_no_other_route() {
    let service = Service::start().await;
    for (scopes, path, status, named_scope) in [
        ("exports:read", "/exports", 200, ""),
        ("exports:read", "/exports/reports", 200, ""),
        ("exports:read", "/jobs", 403, "`review`"),
        ("exports:read", "/keys", 403, "`admin`"),
        ("admin,review,child_safety", "/exports", 403, "`exports:read`"),
        ("admin,review,child_safety", "/exports/reports", 403, "`exports:read`"),
        ("items:read", "/exports/reports", 403, "`exports:read`"),
    ] {
        let answer = service.get(&service.key(scopes).await, path).await;
        assert_eq!(answer.status, status, "{scopes} {path}: {answer:?}");
        assert!(answer.text.as_ref().unwrap().contains(named_scope), "{scopes} {path}: {answer:?}");
    }
    assert_eq!(service.get("unknown", "/exports").await.status, 401);
}

#[tokio::test]
async fn only_a_caller_with_the_scope_grants_it() {
    let service = Service::start().await;
    let admin = service.key("admin").await;
    let body = json!({ "scopes": ["exports:read"] });
    let (status, problem) = service.post(&admin, "/keys", &body).await;
    assert_eq!(status, 403, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("`exports:read`"), "{problem}");
    let granting = service.key("admin,exports:read").await;
    let (status, created_key) = service.post(&granting, "/keys", &body).await;
    assert_eq!(status, 201, "{created_key}");
    let id = created_key["id"].as_str().unwrap();
    let rotate = format!("/keys/{id}/rotate");
    assert_eq!(service.post(&admin, &rotate, &json!({})).await.0, 403, "a rotation hands the scope over");
    // A leaked key can be revoked by every admin.
    assert_eq!(service.post(&admin, &format!("/keys/{id}/revoke"), &json!({})).await.0, 204);
}

#[tokio::test]
async fn datasets_are_listed_with_their_columns() {
    let service = Service::start().await;
    let list = service.get(&service.key("exports:read").await, "/exports").await.json();
    assert!(datetime::parse(list["settledUntil"].as_str().unwrap()).unwrap() < Millis::now());
    let datasets = list["items"].as_array().unwrap();
    assert_eq!(datasets.len(), Dataset::ALL.len());
    for (listed, dataset) in datasets.iter().zip(Dataset::ALL) {
        assert_eq!(listed["dataset"], dataset.as_str());
        let names: Vec<_> =
            listed["columns"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
        let expected: Vec<_> = dataset.columns().iter().map(|column| column.name).collect();
        assert_eq!(names, expected);
    }
    let column = |dataset: usize, column: usize| &datasets[dataset]["columns"][column];
    assert_eq!(column(0, 1)["type"], "time");
    assert_eq!((&column(0, 12)["name"], &column(0, 12)["default"]), (&json!("data"), &json!(false)));
    assert_eq!(column(1, 6)["members"][2]["nullable"], true, "{}", column(1, 6));
    assert_eq!(datasets[9]["scopes"], json!(["exports:read", "child_safety"]));
}

#[tokio::test]
async fn export_is_audited_with_its_rows() {
    let service = Service::start().await;
    let key = service.key("exports:read").await;
    write_rows(&service, &service.org, Dataset::Reports).await;
    let path = format!("/exports/reports?{}&part=1/1&columns=reportId", period());
    assert_eq!(service.get(&key, &path).await.rows().len(), 14);
    let complete_entry = async || match service.export_entries().await.as_slice() {
        [entry] if entry.status.is_some() => Ok(entry.clone()),
        entries => Err(anyhow::anyhow!("{entries:?}")),
    };
    let entry = eventually_ok("the entry of the export", PATIENCE, complete_entry).await.unwrap();
    assert_eq!((entry.actor.as_str(), entry.object.as_str()), ("exporter", "/exports/reports"));
    assert_eq!(entry.status, Some(200));
    let detail: Value = serde_json::from_str(entry.detail.as_ref().unwrap()).unwrap();
    assert_eq!((&detail["rows"], &detail["columns"]), (&json!(14), &json!(["reportId"])), "{detail}");
    assert_eq!((&detail["since"], &detail["childSafety"]), (&json!(first_day().iso()), &json!(false)));
}

#[tokio::test]
async fn failure_between_rows_leaves_the_body_incomplete() {
    let service = Service::start().await;
    let key = service.key("exports:read").await;
    let rows = Rows { store: &service.store, org: &service.org };
    let row = |number: u32| NewRow {
        at: Millis(first_day().0 + i64::from(number)),
        number,
        item: "p",
        is_child_safety: false,
    };
    for number in 0..2_000 {
        rows.write(Dataset::Reports, row(number)).await;
    }
    rows.put_unreadable_report(row(2_000)).await;
    let answer = service.get(&key, &format!("/exports/reports?{}", period())).await;
    assert_eq!(answer.status, 200);
    answer.text.unwrap_err();
    let [entry] = <[_; 1]>::try_from(service.export_entries().await).unwrap();
    assert_eq!(entry.status, None, "the export is not recorded as complete");
}

/// Writes more bytes than the system buffers for a connection.
async fn write_long_reports(service: &Service) {
    let rows = Rows { store: &service.store, org: &service.org };
    for number in 0..600_u32 {
        let at = Millis(first_day().0 + i64::from(number));
        let event = ReportEvent {
            reporter: ItemKey::new("user", "u"),
            reported_at: at,
            received_at: at,
            policy: None,
            reason: Some("long ".repeat(20_000)),
            job_id: JobId::NONE,
        };
        let row = NewRow { at, number, item: "p", is_child_safety: false };
        rows.put_event(row, id_of(number), &event).await;
    }
}

#[tokio::test]
async fn client_that_stops_reading_stops_the_export() {
    let service = Service::with(|settings| settings.unsent_stall_ms = 4_000).await;
    let key = service.key("exports:read").await;
    write_long_reports(&service).await;
    let path = format!("/admin/v1/exports/reports?{}", period());
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(service.address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {key}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut first_bytes = [0; 12];
        stream.read_exact(&mut first_bytes).await.unwrap();
        assert_eq!(&first_bytes, b"HTTP/1.1 200");
        streams.push(stream);
    }
    // An export of another organisation is served meanwhile.
    let other_key = service.key_of(&service.other_org, "exports:read").await;
    assert_eq!(service.get(&other_key, &format!("/exports/reports?{}", period())).await.status, 200);
    let refused_answer = service.get(&key, &format!("/exports/reports?{}", period())).await;
    assert_eq!(refused_answer.status, 429, "{refused_answer:?}");
    assert_eq!(refused_answer.headers["retry-after"], "5");
    let next_export = async || match service.open(&key, "/exports/jobs").await.status().as_u16() {
        200 => Ok(()),
        status => Err(anyhow::anyhow!("{status}")),
    };
    eventually_ok("the silent clients' exports end", PATIENCE, next_export).await.unwrap();
    let silent_exports: Vec<_> = service
        .export_entries()
        .await
        .into_iter()
        .filter(|entry| entry.object == "/exports/reports")
        .collect();
    assert_eq!(silent_exports.len(), 2);
    assert!(silent_exports.iter().all(|entry| entry.status.is_none()), "rows were read ahead of the client");
    drop(streams);
}

#[tokio::test]
async fn slow_client_receives_all_rows() {
    let service = Service::start().await;
    let key = service.key("exports:read").await;
    write_long_reports(&service).await;
    let mut response = service.open(&key, &format!("/exports/reports?{}&columns=reason", period())).await;
    let mut bytes = 0;
    let mut chunks = 0_u32;
    while let Some(chunk) = response.chunk().await.unwrap() {
        bytes += chunk.len();
        chunks += 1;
        if chunks.is_multiple_of(500) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert_eq!(bytes, 600 * (5 * 20_000 + r#"{"reason":""}"#.len() + 1));
}
