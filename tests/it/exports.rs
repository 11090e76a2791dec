//! Exports of the history, with the real binary: every effect of the service is a row of its dataset.

use std::collections::BTreeMap;

use crate::support::{Demo, Place, appeal, operator, post, report, text};
use anyhow::bail;
use reqwest::Method;
use serde_json::{Value, json};
use tidegate_schemas::{
    history::AppealEvent,
    ids::{AppealId, DAY_MS, ItemKey, JobId, Kind, Millis, OrgId, derive},
};
use tidegate_store::{
    Migration, Row as _, Store, WriteTime, cql, system_clock,
    tables::history::{
        child_safety_items::ChildSafetyItem,
        events::{EventHead, HistoryEvent},
        handled_times::{self, HandledTime},
    },
};
use tidegate_test_support::{PATIENCE, eventually_ok, servers};

const DATASETS: [&str; 10] = [
    "items",
    "evaluations",
    "reports",
    "jobs",
    "decisions",
    "appeals",
    "actions",
    "strikes",
    "deliveries",
    "audit",
];

async fn send_report(demo: &Demo, item: &Value, csam: bool) {
    let mut report_body = report(item);
    report_body["reportedForReason"] = json!({ "csam": csam });
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
}

async fn send_appeal(demo: &Demo, id: &str, item: &Value) -> Value {
    let body = appeal(id, item);
    assert_eq!(demo.platform(Method::POST, "/api/v1/report/appeal", Some(&body)).await.0, 204);
    demo.job("appeals", item["id"].as_str().unwrap()).await
}

/// Exports a dataset to standard output. Returns its rows.
async fn export(place: &Place, dataset: &str, options: &[&str]) -> Vec<Value> {
    let args: Vec<_> =
        ["export", dataset, "--since", "1d", "-o", "-"].iter().chain(options).copied().collect();
    let rows = place.run_ok(&args).await;
    rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until the processors have reported how far they are.
async fn wait_for_snapshot_time(place: &Place) {
    let data = place.data();
    let args = ["export", "appeals", "--since", "1d", "-o", "-", "--data", data.to_str().unwrap()];
    eventually_ok("a snapshot time", PATIENCE, async || {
        let output = place.run(&args).await;
        if output.status.success() { Ok(()) } else { bail!("{}", text(&output.stderr)) }
    })
    .await
    .unwrap();
}

/// Counts rows by the value of a column.
fn count_by(rows: &[Value], column: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(row[column].as_str().unwrap_or("-").to_owned()).or_default() += 1;
    }
    counts
}

fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Waits until the export of a dataset has this number of rows, and returns them.
async fn wait_for_rows(place: &Place, dataset: &str, count: usize) -> Vec<Value> {
    eventually_ok("all rows", PATIENCE, async || {
        let rows = export(place, dataset, &[]).await;
        if rows.len() == count { Ok(rows) } else { bail!("{dataset}: {} rows: {rows:#?}", rows.len()) }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn every_effect_is_a_row_of_its_dataset() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    wait_for_snapshot_time(&place).await;
    // Four matches of a rule: four actions and strikes, and one crossed threshold.
    for number in 1..=4 {
        demo.submit(&post(&format!("s{number}"), "mallory", "scamcoin")).await;
    }
    demo.wait_for_callbacks("user.threshold", 1).await;
    // Two reports of one item, one decision; one report with an action; one child-safety report.
    send_report(&demo, &post("r1", "bob", "hm"), false).await;
    let job = demo.job("default", "r1").await;
    demo.decide(&job, "ignore", &[]).await;
    send_report(&demo, &post("r2", "bob", "hm"), false).await;
    let job = demo.job("default", "r2").await;
    demo.decide(&job, "act", &["remove"]).await;
    send_report(&demo, &post("c1", "carol", "hm"), true).await;
    demo.job("child-safety", "c1").await;
    // The platform acts itself. Both removals carry two points, so their author crosses the threshold too.
    let actions = json!({ "actions": [{ "actionId": "remove", "itemId": "r1", "itemTypeId": "post" }] });
    assert_eq!(demo.platform(Method::POST, "/api/v1/actions/", Some(&actions)).await.0, 202);
    // One accepted appeal reverses a strike, one is rejected.
    let job = send_appeal(&demo, "a1", &post("s1", "mallory", "scamcoin")).await;
    demo.decide(&job, "accept", &[]).await;
    let job = send_appeal(&demo, "a2", &post("s2", "mallory", "scamcoin")).await;
    demo.decide(&job, "reject", &[]).await;
    demo.wait_for_callbacks("appeal.decision", 2).await;
    demo.wait_for_callbacks("decision.moderator", 3).await;

    let strikes = wait_for_rows(&place, "strikes", 7).await;
    assert_eq!(count_by(&strikes, "kind"), counts(&[("issued", 6), ("reversed", 1)]));
    let reversal = strikes.iter().find(|row| row["kind"] == "reversed").unwrap();
    let reversed = strikes.iter().find(|row| row["strikeId"] == reversal["reversedStrikeId"]).unwrap();
    assert_eq!((&reversed["itemId"], &reversed["points"]), (&json!("s1"), &reversal["points"]));

    let actions = wait_for_rows(&place, "actions", 8).await;
    let expected = counts(&[("moderator", 1), ("platform", 1), ("rule", 4), ("threshold", 2)]);
    assert_eq!(count_by(&actions, "source"), expected);

    let decisions = wait_for_rows(&place, "decisions", 5).await;
    let expected = counts(&[("accept", 1), ("act", 2), ("ignore", 1), ("reject", 1)]);
    assert_eq!(count_by(&decisions, "verdict"), expected);
    assert_eq!(count_by(&decisions, "source"), counts(&[("moderator", 4), ("platform", 1)]));
    assert_eq!(wait_for_rows(&place, "appeals", 2).await.len(), 2);
    // The token of the machine has every scope, so it sees the child-safety report.
    let reports = wait_for_rows(&place, "reports", 3).await;
    assert_eq!(reports.iter().filter(|row| row["childSafety"] == true).count(), 1);
    let jobs = wait_for_rows(&place, "jobs", 5).await;
    assert_eq!(count_by(&jobs, "class"), counts(&[("appeal", 2), ("child_safety", 1), ("review", 2)]));

    let (_, overview) = demo.admin_as(&operator(&place), Method::GET, "/exports", None).await;
    let until = overview["settledUntil"].as_str().unwrap();
    for dataset in DATASETS {
        let rows = export(&place, dataset, &[]).await;
        assert!(!rows.is_empty(), "{dataset}");
        let mut parts = Vec::new();
        for part in ["1/3", "2/3", "3/3"] {
            let folder = format!("parts-{dataset}");
            let period = ["--since", "2026-01-01", "--until", until];
            let args = ["export", dataset, "--part", part, "-o", &folder];
            place.run_ok(&args.iter().chain(&period).copied().collect::<Vec<_>>()).await;
            parts.push(folder);
        }
        let joined = place.run(&["export", "join", &parts[0]]).await;
        assert!(joined.status.success(), "{dataset}: {}", text(&joined.stderr));
    }
    assert!(demo.stop().await.success());
}

#[tokio::test]
async fn export_without_the_scope_leaves_child_safety_out() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    wait_for_snapshot_time(&place).await;
    send_report(&demo, &post("r1", "bob", "hm"), false).await;
    send_report(&demo, &post("c1", "carol", "hm"), true).await;
    demo.job("default", "r1").await;
    demo.job("child-safety", "c1").await;
    wait_for_rows(&place, "reports", 2).await;
    let (status, created_key) =
        demo.command("/keys", &json!({ "name": "data", "scopes": ["exports:read"] })).await;
    assert_eq!(status, 201, "{created_key}");
    let server = demo.var("TIDEGATE_ADMIN_URL").to_owned();
    let key = created_key["key"].as_str().unwrap();
    for dataset in ["items", "evaluations", "reports", "jobs", "decisions", "actions"] {
        let args = ["export", dataset, "--since", "1d", "-o", "-", "--server", &server, "--token", key];
        let output = place.run(&args).await;
        assert!(output.status.success(), "{dataset}: {}", text(&output.stderr));
        assert!(!text(&output.stdout).contains("\"c1\""), "{dataset}");
    }
    let args = ["export", "reports", "--since", "1d", "-o", "-", "--server", &server, "--token", key];
    assert_eq!(text(&place.run(&args).await.stdout).lines().count(), 1);
    assert!(demo.stop().await.success());
}

#[tokio::test]
async fn invalid_requests_name_place_and_remedy() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    wait_for_snapshot_time(&place).await;
    for (args, message) in [
        (&["export", "decisions", "--since", "1d", "-o", "-", "--columns", "verdct"][..], "verdict"),
        (&["export", "decisions", "--since", "2026-02-02", "--until", "2026-02-01", "-o", "-"], "not before"),
        (&["export", "decisions", "--since", "1d", "--until", "2999-01-01", "-o", "-"], "all stored"),
        (&["export", "decision", "--since", "1d", "-o", "-"], "decisions"),
        (&["export", "decisions", "--since", "soon", "-o", "-"], "2026-11-01"),
        (&["export", "decisions", "--since", "1d", "--until", "1h", "--part", "1/2", "-o", "-"], "folder"),
        (&["export", "decisions", "--since", "1d", "--part", "1/2", "-o", "parts"], "--until"),
    ] {
        let data = place.data();
        let args: Vec<_> = args.iter().copied().chain(["--data", data.to_str().unwrap()]).collect();
        let output = place.run(&args).await;
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(message), "{args:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    assert!(demo.stop().await.success());
}

const FIRST_DAY: Millis = Millis(20_000 * DAY_MS);

fn appeal_event(org: &OrgId, number: i64) -> HistoryEvent {
    let id = derive(Kind::JobCause, &[b"appeal", format!("a{number}").as_bytes()]);
    let at = Millis(FIRST_DAY.0 + number * DAY_MS / 40);
    let item = ItemKey::new("post", format!("p{number}").as_str());
    let event = AppealEvent {
        appeal_id: AppealId::new(format!("a{number}")),
        appealed_by: ItemKey::new("user", "mallory"),
        appealed_at: at,
        received_at: at,
        actions: Vec::new(),
        policies: Vec::new(),
        reason: None,
        job_id: JobId(id),
    };
    let head = EventHead { org, id, at, item: &item, is_child_safety: number % 10 == 9 };
    HistoryEvent::new(head, &event)
}

#[tokio::test]
async fn parts_of_a_cluster_join_into_one_export() {
    let Some(address) = servers::cql("exports from a cluster") else { return };
    let keyspace = format!("exports_{}_{}", Millis::now().0, std::process::id());
    let settings = cql::Settings {
        contact_points: address.split(',').map(str::to_owned).collect(),
        keyspace: keyspace.clone(),
        replication: Some(cql::Replication::Simple(1)),
        request_timeout_ms: 30_000,
        settle_timeout_ms: 60_000,
        ..cql::Settings::default()
    };
    let tables = [HistoryEvent::TABLE, ChildSafetyItem::TABLE, HandledTime::TABLE];
    let engine = cql::Engine::connect_tables(settings, &tables, system_clock()).await.unwrap();
    let store = Store::Cql(engine);
    store.migrate(Migration::Expand).await.unwrap();
    let org = OrgId::new("acme");
    for number in 0..100 {
        let event = appeal_event(&org, number);
        store.put_rows(WriteTime::from_append(event.at, 0), &[event]).await.unwrap();
    }
    let until = Millis(FIRST_DAY.0 + 10 * DAY_MS);
    for topic in handled_times::TOPICS {
        let row = HandledTime {
            name: handled_times::ALL.to_owned(),
            topic: topic.to_owned(),
            partition_index: 0,
            until,
            partition_count: 1,
            seen_at: until,
        };
        store.put_rows(WriteTime::from_append(until, 0), &[row]).await.unwrap();
    }
    store.close().await.unwrap();

    let place = Place::new();
    let file = format!(
        "[store]\nengine = \"cql\"\n[store.cql]\ncontact_points = [\"{address}\"]\nkeyspace = \"{keyspace}\"\n"
    );
    std::fs::write(place.folder.path().join("cluster.toml"), file).unwrap();
    let run = async |options: &[&str]| {
        let since = FIRST_DAY.iso();
        let args =
            ["export", "appeals", "--since", &since, "--direct", "--config", "cluster.toml", "--org", "acme"];
        let args: Vec<_> = args.iter().chain(options).copied().collect();
        let output = place.run(&args).await;
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let all_rows = run(&["-o", "-", "--rows-per-second", "100000"]).await;
    let ids = |lines: &str| -> Vec<String> {
        lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["appealId"].as_str().unwrap().to_owned())
            .collect()
    };
    // In order of time, without child-safety material.
    let expected: Vec<_> =
        (0..100).filter(|number| number % 10 != 9).map(|number| format!("a{number}")).collect();
    assert_eq!(ids(&all_rows), expected);
    assert_eq!(ids(&run(&["-o", "-", "--child-safety"]).await).len(), 100);

    for part in ["1/3", "3/3"] {
        run(&["-o", "parts", "--part", part, "--until", &until.iso()]).await;
    }
    let incomplete = place.run(&["export", "join", "parts"]).await;
    assert!(
        !incomplete.status.success() && text(&incomplete.stderr).contains("2"),
        "{}",
        text(&incomplete.stderr)
    );
    run(&["-o", "parts", "--part", "2/3", "--until", &until.iso()]).await;
    let joined = place.run(&["export", "join", "parts"]).await;
    assert!(joined.status.success(), "{}", text(&joined.stderr));
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(place.folder.path().join("parts")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "ndjson") {
            rows.extend(ids(&std::fs::read_to_string(path).unwrap()));
        }
    }
    rows.sort_by_key(|id| id[1..].parse::<u32>().unwrap());
    assert_eq!(rows, expected);
}
