//! Rules on stored items, with the binary itself: what a candidate would do, what rules did, and acting on the past.

#![allow(clippy::unwrap_used)]

mod running;

use std::fs;

use reqwest::Method;
use running::{Demo, Place, post, text};
use serde_json::{Value, json};

const LIVE: &str = "\
action: look
kind: enqueue_review
---
rule: offers
status: live
item_types: [post]
when: {text: {in: [text], words: [alpha]}}
actions: [look]
";

const CANDIDATE: &str = "\
rule: offers
status: live
item_types: [post]
when: {text: {in: [text], words: [alpha, beta]}}
actions: [look]
---
window: by-author
item_types: [post]
over: 1h
---
rule: second
status: background
item_types: [post]
when: {text: {in: [text], words: [beta, gamma]}}
---
rule: many
item_types: [post]
when: {all: [{text: {in: [text], words: [alpha]}}, {count: {window: by-author, gte: 1}}]}
";

async fn configure(demo: &Demo, documents: &str) {
    let change = json!({"files": [{"name": "rules.yaml", "text": documents}]});
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 200, "{answer}");
}

async fn send(demo: &Demo, items: &[(&str, &str)]) {
    for (id, text) in items {
        demo.submit(&post(id, "mallory", text)).await;
        demo.evaluated("post", id).await;
    }
}

fn folder(place: &Place, documents: &str) {
    let folder = place.folder.path().join("candidate");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("rules.yaml"), documents).unwrap();
}

fn of<'a>(report: &'a Value, rule: &str) -> &'a Value {
    let rules = report["rules"].as_array().unwrap();
    rules.iter().find(|told| told["rule"] == rule).unwrap_or_else(|| panic!("no {rule}: {report}"))
}

#[tokio::test]
async fn a_backtest_says_which_matches_come_and_go_and_what_moderators_thought() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    configure(&demo, LIVE).await;
    send(
        &demo,
        &[("a", "alpha"), ("b", "beta"), ("g", "gamma"), ("ab", "alpha and beta"), ("n", "nothing of it")],
    )
    .await;
    for (item, verdict, actions) in [("a", "act", &["limit_reach"][..]), ("ab", "ignore", &[])] {
        let job = demo.job("default", item).await;
        demo.whole_job(&job).await;
        demo.decide(&job, verdict, actions).await;
    }
    folder(&place, CANDIDATE);

    let told = place.tell(&["rules", "backtest", "candidate", "--since", "1d", "--json"]).await;
    let report: Value = serde_json::from_str(&told).unwrap();
    let offers = of(&report, "offers");
    assert_eq!([&offers["hits"], &offers["liveHits"], &offers["newHits"], &offers["lostHits"]], [3, 2, 1, 0]);
    assert_eq!(offers["decided"], json!({"confirmed": 1, "rejected": 1}), "{report}");
    assert_eq!(offers["precision"], 0.5);
    assert!((offers["hitsPerDay"].as_f64().unwrap() - 3.0).abs() < 0.01, "{report}");
    // Fewer if the hour ended meanwhile.
    assert!((1.0..=3.0).contains(&offers["busiestHour"].as_f64().unwrap()), "{report}");
    let second = of(&report, "second");
    assert_eq!([&second["hits"], &second["newHits"]], [3, 3]);
    let overlap = &second["overlaps"][0];
    assert_eq!((&overlap["rule"], &overlap["both"]), (&json!("offers"), &json!(2)));
    assert!((overlap["jaccard"].as_f64().unwrap() - 0.5).abs() < 1e-9);
    assert_eq!(report["uncountedWindows"], json!(["by-author"]));
    assert_eq!((&report["guessed"], &of(&report, "many")["hits"]), (&json!(2), &json!(0)));
    assert!(!report["rules"].as_array().unwrap().iter().any(|rule| rule["rule"] == "demo-scam"), "{report}");

    let told = place.tell(&["rules", "backtest", "candidate", "--rule", "second"]).await;
    assert!(told.contains("second (absent -> background): 3 hits, 3 new, 0 lost"), "{told}");
    assert!(
        told.contains("offers matches 2 of them, too (0.50)") && !told.contains("offers (live)"),
        "{told}"
    );

    let few = place.tell(&["rules", "backtest", "candidate", "--sample", "0.000001", "--json"]).await;
    let few: Value = serde_json::from_str(&few).unwrap();
    assert_eq!((&few["items"], &few["rules"][0]["hits"]), (&json!(0), &json!(0)));
    // Nothing was changed by trying.
    assert!(demo.admin("/config").await["files"].to_string().find("second").is_none());
    drop(demo);
}

#[tokio::test]
async fn what_a_backtest_cannot_do_is_told() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let body = |since: &str, until: &str, cursor: Value| json!({"files": [{"name": "r.yaml", "text": LIVE}], "since": since, "until": until, "cursor": cursor});
    let now = tidegate_schemas::ids::Millis::now();
    let (hour_ago, long_ago) = (
        now.minus(std::time::Duration::from_secs(3_600)).iso(),
        now.minus(std::time::Duration::from_secs(200 * 86_400)).iso(),
    );
    for (wanted, named) in [
        (body(&long_ago, &now.iso(), Value::Null), "100 days back"),
        (body(&now.iso(), &hour_ago, Value::Null), "must be after"),
        (body("yesterday", &hour_ago, Value::Null), "An instant such as"),
        (body(&hour_ago, &now.iso(), json!("odd")), "not a cursor"),
        (
            json!({"files": [{"name": "r.yaml", "text": "rule: x\nwhen: {}\n"}], "since": hour_ago, "until": now.iso()}),
            "r.yaml",
        ),
    ] {
        let (status, answer) = demo.command("/rules/backtest", &wanted).await;
        assert_eq!(status, 400, "{answer}");
        assert!(answer.to_string().contains(named), "{named}: {answer}");
    }
    let stranger = demo.admin_as("nobody", Method::POST, "/rules/backtest", Some(&json!({}))).await;
    assert_eq!(stranger.0, 401);

    folder(&place, LIVE);
    let data = place.data();
    let data = data.to_str().unwrap();
    for (args, named) in [
        (["--since", "1h", "--until", "2h"], "is not before"),
        (["--since", "soon", "--sample", "10"], "neither an instant"),
    ] {
        let args: Vec<_> =
            ["rules", "backtest", "candidate", "--data", data].into_iter().chain(args).collect();
        let output = place.run(&args).await;
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(named), "{}", text(&output.stderr));
    }
}
