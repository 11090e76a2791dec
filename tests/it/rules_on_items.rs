//! Rules on stored items, with the real binary: backtests of candidates, statistics of rules, and retroactive runs.

use std::{collections::BTreeSet, fs, process::Stdio, time::Duration};

use crate::support::{Demo, Place, appeal, post, text};
use reqwest::Method;
use serde_json::{Value, json};
use tidegate_test_support::{PATIENCE, eventually};

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
    rules.iter().find(|entry| entry["rule"] == rule).unwrap_or_else(|| panic!("no {rule}: {report}"))
}

#[tokio::test]
async fn backtest_reports_new_and_lost_matches_with_verdicts() {
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

    let json_report = place.run_ok(&["rules", "backtest", "candidate", "--since", "1d", "--json"]).await;
    let report: Value = serde_json::from_str(&json_report).unwrap();
    let offers = of(&report, "offers");
    assert_eq!([&offers["hits"], &offers["liveHits"], &offers["newHits"], &offers["lostHits"]], [3, 2, 1, 0]);
    assert_eq!(offers["decided"], json!({"confirmed": 1, "rejected": 1}), "{report}");
    assert_eq!(offers["precision"], 0.5);
    // The items arrived within one hour of the requested day, or around the turn of an hour.
    let per_day = offers["hitsPerDay"].as_f64().unwrap();
    assert!((35.0..=72.01).contains(&per_day), "{report}");
    // The count is lower if the hour ended meanwhile.
    assert!((1.0..=3.0).contains(&offers["busiestHour"].as_f64().unwrap()), "{report}");
    let second = of(&report, "second");
    assert_eq!([&second["hits"], &second["newHits"]], [3, 3]);
    let overlap = &second["overlaps"][0];
    assert_eq!((&overlap["rule"], &overlap["both"]), (&json!("offers"), &json!(2)));
    assert!((overlap["jaccard"].as_f64().unwrap() - 0.5).abs() < 1e-9);
    assert_eq!(report["uncountedWindows"], json!(["by-author"]));
    assert_eq!((&report["guessed"], &of(&report, "many")["hits"]), (&json!(2), &json!(0)));
    assert!(!report["rules"].as_array().unwrap().iter().any(|rule| rule["rule"] == "demo-scam"), "{report}");

    let text_report = place.run_ok(&["rules", "backtest", "candidate", "--rule", "second"]).await;
    assert!(text_report.contains("second (absent -> background): 3 hits, 3 new, 0 lost"), "{text_report}");
    assert!(
        text_report.contains("offers matches 2 of them, too (0.50)")
            && !text_report.contains("offers (live)"),
        "{text_report}"
    );

    let few = place.run_ok(&["rules", "backtest", "candidate", "--sample", "0.000001", "--json"]).await;
    let few: Value = serde_json::from_str(&few).unwrap();
    assert_eq!((&few["items"], &few["rules"][0]["hits"]), (&json!(0), &json!(0)));
    // The backtest left the configuration unchanged.
    assert!(demo.admin("/config").await["files"].to_string().find("second").is_none());
    drop(demo);
}

#[tokio::test]
async fn stored_item_is_explained_under_live_and_candidate_rules() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    configure(&demo, LIVE).await;
    send(&demo, &[("b", "beta")]).await;
    folder(&place, CANDIDATE);

    let explain = async |args: &[&str]| -> Value {
        let command = ["rules", "explain", "--item", "post/b"];
        serde_json::from_str(&place.run_ok(&[&command, args].concat()).await).unwrap()
    };
    let outcome = |answer: &Value| answer["tree"]["text"]["outcome"].clone();
    let live = explain(&["--rule", "offers"]).await;
    assert_eq!((outcome(&live), &live["isNoConcern"]), (json!("failed"), &json!(false)), "{live}");
    let candidate = explain(&["--rule", "offers", "--config", "candidate"]).await;
    assert_eq!(outcome(&candidate), "passed", "{candidate}");
    assert_eq!(candidate["tree"]["text"]["hits"][0]["sought"], "beta");
    // Only the candidate has the window, so the service has no counts for it.
    let explained_items = explain(&["--rule", "many", "--config", "candidate"]).await;
    assert_eq!(explained_items["isGuessed"], true, "{explained_items}");

    let data = place.data();
    for (item, rule, named) in [
        ("post/none", "offers", "no stored item `none`"),
        ("post/b", "second", "no rule `second`"),
        ("post", "offers", "as in post/1234"),
    ] {
        let args = ["rules", "explain", "--data", data.to_str().unwrap(), "--item", item, "--rule", rule];
        let output = place.run(&args).await;
        assert_ne!(output.status.code(), Some(0));
        assert!(text(&output.stderr).contains(named), "{}", text(&output.stderr));
    }
}

#[tokio::test]
async fn invalid_backtests_are_refused_with_a_reason() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let body = |since: &str, until: &str, cursor: Value| json!({"files": [{"name": "r.yaml", "text": LIVE}], "since": since, "until": until, "cursor": cursor});
    let now = tidegate_schemas::ids::Millis::now();
    let (hour_ago, long_ago) =
        (now.minus(Duration::from_secs(3_600)).iso(), now.minus(Duration::from_secs(200 * 86_400)).iso());
    for (request_body, named) in [
        (body(&long_ago, &now.iso(), Value::Null), "kept for 100 days"),
        (body(&now.iso(), &hour_ago, Value::Null), "must be after"),
        (body("yesterday", &hour_ago, Value::Null), "not an instant"),
        (body(&hour_ago, &now.iso(), json!("odd")), "does not belong"),
        (
            json!({"files": [{"name": "r.yaml", "text": "rule: x\nwhen: {}\n"}], "since": hour_ago, "until": now.iso()}),
            "r.yaml",
        ),
    ] {
        let (status, answer) = demo.command("/rules/backtest", &request_body).await;
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

async fn stats(demo: &Demo, rule: &str) -> Value {
    let stats = demo.admin(&format!("/rules/stats?rule={rule}")).await;
    stats["items"].as_array().unwrap().first().cloned().unwrap_or_default()
}

#[tokio::test]
async fn rule_stats_count_outcomes_and_survive_a_restart() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    configure(&demo, LIVE).await;
    send(&demo, &[("a", "alpha"), ("ab", "alpha again"), ("s", "buy scamcoin")]).await;
    for (item, verdict, actions) in [("a", "act", &["limit_reach"][..]), ("ab", "ignore", &[])] {
        let job = demo.job("default", item).await;
        demo.whole_job(&job).await;
        demo.decide(&job, verdict, actions).await;
    }
    let appeal_body = appeal("appeal-1", &post("s", "mallory", "buy scamcoin"));
    let (status, answer) = demo.platform(Method::POST, "/api/v1/report/appeal", Some(&appeal_body)).await;
    assert_eq!(status, 204, "{answer}");
    let job = demo.job("appeals", "s").await;
    demo.whole_job(&job).await;
    demo.decide(&job, "accept", &[]).await;

    let rule_stats = eventually("the counts and verdicts", PATIENCE, async || {
        let (offers, scam) = (stats(&demo, "offers").await, stats(&demo, "demo-scam").await);
        let is_there = offers["confirmed"] == 1
            && offers["rejected"] == 1
            && offers["hits"] == 2
            && scam["overturned"] == 1
            && scam["hits"] == 1;
        is_there.then_some((offers, scam))
    });
    let (offers, scam) = rule_stats.await.unwrap();
    assert_eq!((&offers["acted"], &offers["precision"]), (&json!(2), &json!(0.5)), "{offers}");
    assert_eq!((&scam["acted"], &scam["precision"]), (&json!(1), &json!(0.0)), "{scam}");

    assert!(demo.stop().await.success());
    let demo = place.start().await.unwrap();
    send(&demo, &[("b", "alpha once more")]).await;
    eventually("three hits, two of them of before", PATIENCE, async || {
        (stats(&demo, "offers").await["hits"] == 3).then_some(())
    })
    .await
    .unwrap();
    let stats_text = place.run_ok(&["rules", "stats", "--rule", "offers", "--since", "2d"]).await;
    assert!(
        stats_text.contains("3 hits, acted on 3")
            && stats_text.contains("confirmed 1, rejected 1, overturned 0: 50 %"),
        "{stats_text}"
    );
    let stats_json = place.run_ok(&["rules", "stats", "--json"]).await;
    assert!(stats_json.lines().count() >= 2, "{stats_json}");
    let (status, answer) = demo
        .admin_as(
            demo.var("TIDEGATE_ADMIN_KEY"),
            Method::GET,
            "/rules/stats?since=2020-01-01T00:00:00Z",
            None,
        )
        .await;
    assert_eq!(status, 400, "{answer}");
}

#[tokio::test]
async fn retroaction_acts_once_and_supports_dry_run_list_and_resume() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    send(&demo, &[("g1", "gamma"), ("g2", "gamma rays"), ("n", "nothing of it")]).await;
    let late_rule = "rule: late\nstatus: live\nitem_types: [post]\nwhen: {text: {in: [text], words: [gamma]}}\nactions: [limit_reach]\n";
    configure(&demo, late_rule).await;

    let dry_run_text =
        place.run_ok(&["rules", "retroact", "late", "--since", "1h", "--dry-run", "--json"]).await;
    let dry_run: Value = serde_json::from_str(&dry_run_text).unwrap();
    assert_eq!((&dry_run["progress"]["sent"], &dry_run["dryRun"]), (&json!(2), &json!(true)), "{dry_run}");
    let run_output = place.run_ok(&["rules", "retroact", "late", "--since", "1h"]).await;
    assert!(
        run_output.contains("2 match, 2 were sent again") && run_output.contains("action limit_reach: 2"),
        "{run_output}"
    );
    let callbacks = demo.wait_for_callbacks("action.automatic", 2).await;
    assert!(callbacks.iter().all(|event| event["rules"][0]["id"] == "late"), "{callbacks:?}");
    let run = run_output.lines().next().unwrap().strip_prefix("run ").unwrap();
    let resume_output = place.run_ok(&["rules", "retroact", "--resume", run]).await;
    assert!(resume_output.contains("2 match, 2 were sent again"), "the run is complete: {resume_output}");
    let second_output = place.run_ok(&["rules", "retroact", "late", "--since", "1h"]).await;
    assert!(
        second_output.contains("0 were sent again") && second_output.contains("2 were acted on before"),
        "{second_output}"
    );
    let run_list = place.run_ok(&["rules", "retroact", "--list"]).await;
    assert_eq!(run_list.lines().count(), 3, "{run_list}");
    assert!(run_list.contains("tried: 3 items, 2 match") || run_list.contains("tried:"), "{run_list}");

    let nobody = late_rule.replace("late", "nobody").replace("when:", "rollout: {percent: 0}\nwhen:");
    configure(&demo, &nobody).await;
    for dry in [&["--dry-run"][..], &[]] {
        let args = [&["rules", "retroact", "nobody", "--since", "1h"], dry].concat();
        let outside = place.run_ok(&args).await;
        assert!(outside.contains("2 are outside of the rollout") && !outside.contains("before"), "{outside}");
    }

    let data = place.data();
    let data = data.to_str().unwrap();
    let refusal = place.run(&["rules", "retroact", "nowhere", "--since", "1h", "--data", data]).await;
    assert!(text(&refusal.stderr).contains("no rule `nowhere`"), "{}", text(&refusal.stderr));
    let all = demo.all_received().await.unwrap();
    assert_eq!(all.iter().filter(|event| event["type"] == "action.automatic").count(), 2, "{all:?}");
}

/// Rows of all retroactive runs, the newest first.
async fn retroactions(demo: &Demo) -> Vec<Value> {
    demo.admin("/rules/retroactions").await["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn retroaction_acts_once_per_item_despite_repeated_kills() {
    // A step reads 64 items at once.
    const ITEMS: usize = 400;
    const PER_SECOND: &str = "50";
    let place = Place::new();
    let mut demo = place.start().await.unwrap();
    for nth in 0..ITEMS {
        demo.submit(&post(&format!("p{nth}"), &format!("author-{nth}"), "gamma")).await;
    }
    for nth in 0..ITEMS {
        demo.evaluated("post", &format!("p{nth}")).await;
    }
    let late_rule = "rule: late\nstatus: live\nitem_types: [post]\nwhen: {text: {in: [text], words: [gamma]}}\npolicies: [scam]\nactions: [limit_reach]\n";
    configure(&demo, late_rule).await;

    let data = place.data();
    let data = data.to_str().unwrap();
    let (mut run, mut killed) = (None::<String>, 0);
    // Each kill is a little later in a step, so the records of the step may or may not have been sent.
    for kill in 0..5_u64 {
        let run_args = match &run {
            Some(run) => vec!["--resume", run],
            None => vec!["late", "--since", "1h"],
        };
        let args =
            [&["rules", "retroact", "--per-second", PER_SECOND, "--data", data][..], &run_args[..]].concat();
        let mut command = tokio::process::Command::new(crate::support::BINARY);
        command.args(args).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().unwrap();
        let sent_count =
            |runs: &[Value]| runs.first().map_or(0, |run| run["progress"]["sent"].as_u64().unwrap());
        let before = sent_count(&retroactions(&demo).await);
        eventually("the run to move on", PATIENCE, async || {
            (sent_count(&retroactions(&demo).await) > before).then_some(())
        })
        .await
        .unwrap();
        tokio::time::sleep(Duration::from_millis(kill * 250)).await;
        demo.process.kill().await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        demo = place.start().await.unwrap();
        let newest = retroactions(&demo).await.remove(0);
        run = newest["id"].as_str().map(str::to_owned);
        if newest["finishedAt"].is_null() {
            let stderr = text(&output.stderr);
            assert!(stderr.contains(&format!("`--resume {}`", run.as_ref().unwrap())), "{stderr}");
            killed += 1;
        } else {
            break;
        }
    }
    assert!(killed > 0, "the run finished before the service could be killed");
    let run_text = place.run_ok(&["rules", "retroact", "--resume", run.as_ref().unwrap(), "--json"]).await;
    let finished_run: Value = serde_json::from_str(&run_text).unwrap();
    let of = |name: &str| finished_run["progress"][name].as_u64().unwrap();
    assert_eq!(of("matched"), ITEMS as u64, "{finished_run}");
    assert_eq!(of("sent") + of("doneBefore"), ITEMS as u64, "each item is counted once: {finished_run}");

    // The test counts events, not deliveries: a delivery without an answer at the kill is repeated.
    eventually("an event for each item", PATIENCE, async || {
        let all = demo.all_received().await.ok()?;
        let of_rule = all.iter().filter(|event| event["type"] == "action.automatic");
        let ids: BTreeSet<_> = of_rule.filter_map(|event| event["id"].as_str()).collect();
        (ids.len() >= ITEMS).then_some(())
    })
    .await
    .unwrap();
    assert!(demo.stop().await.success());
    let demo = place.start().await.unwrap();
    let events: Vec<Value> = demo.all_received().await.unwrap();
    let acted: Vec<_> = events.iter().filter(|event| event["type"] == "action.automatic").collect();
    let ids: BTreeSet<_> = acted.iter().map(|event| event["id"].as_str().unwrap()).collect();
    let items: BTreeSet<_> = acted.iter().map(|event| event["item"]["id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), items.len()), (ITEMS, ITEMS), "one event an item");
    let second_output = place.run_ok(&["rules", "retroact", "late", "--since", "1h"]).await;
    assert!(second_output.contains(&format!("{ITEMS} were acted on before")), "{second_output}");
}

#[tokio::test]
async fn recorded_backtest_is_the_baseline_of_the_rule_alarm() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    send(&demo, &[("a", "alpha")]).await;
    folder(&place, LIVE);
    let data = place.data();
    let backtest =
        ["rules", "backtest", "candidate", "--record", "--data", data.to_str().unwrap(), "--since"];
    let short = place.run(&[&backtest[..], &["1h"]].concat()).await;
    assert!(text(&short.stderr).contains("a record needs a day"), "{}", text(&short.stderr));
    // A request for two days is refused, too: the items still cover only a few seconds.
    let hollow = place.run(&[&backtest[..], &["2d"]].concat()).await;
    assert_eq!(hollow.status.code(), Some(1));
    assert!(text(&hollow.stderr).contains("a record needs a day"), "{}", text(&hollow.stderr));
    let report_text = place.run_ok(&["rules", "backtest", "candidate", "--all", "--json"]).await;
    let report: Value = serde_json::from_str(&report_text).unwrap();
    let offers = of(&report, "offers");
    let measured = json!([{"rule": "offers", "version": offers["version"], "hits": 1, "busiestHour": 1}]);
    let backtest_key =
        json!({"since": report["since"], "until": report["until"], "items": 1, "rules": measured});
    let (status, answer) = demo.command("/rules/baselines", &backtest_key).await;
    assert_eq!(status, 200, "{answer}");
    configure(&demo, LIVE).await;
    // The busiest hour has one match, so the minimum number of matches applies.
    for nth in 0..50 {
        demo.submit(&post(&format!("many-{nth}"), "mallory", "alpha")).await;
    }
    // The alarm may need more items, so each attempt submits one.
    eventually("the alarm", PATIENCE, async || {
        demo.submit(&post("over", "mallory", "alpha")).await;
        let item_view = demo.evaluated("post", "over").await;
        let offers = item_view["matchedRules"].as_array().unwrap().iter().find(|rule| rule["id"] == "offers");
        (offers.unwrap()["suppressed"] == "alarm").then_some(())
    })
    .await
    .unwrap();
    eventually("the alarm in the stats", PATIENCE, async || {
        let rule_stats = stats(&demo, "offers").await;
        rule_stats["alarmedAt"].is_string().then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn look_up_with_a_wait_returns_the_newest_version() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    for round in 0..20 {
        let id = format!("v{round}");
        let body = json!({ "items": [post(&id, "mallory", "older"), post(&id, "mallory", "newer")] });
        let (status, accepted) = demo.platform(Method::POST, "/api/v1/items/async/", Some(&body)).await;
        assert_eq!(status, 202, "{accepted}");
        let (status, item) =
            demo.platform(Method::GET, &format!("/api/v1/items/post/{id}?wait=10s"), None).await;
        assert_eq!((status.as_u16(), &item["data"]["text"]), (200, &json!("newer")), "round {round}: {item}");
    }
    assert_eq!(demo.stop().await.code(), Some(0));
}
