//! The demo from end to end: submissions, decisions of moderators, callbacks, and a second start.

use crate::support::{Place, appeal, post, report};
use reqwest::Method;
use serde_json::{Value, json};
use tidegate_test_support::{PATIENCE, eventually};

#[tokio::test]
async fn a_scam_is_acted_on_called_back_and_told() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    demo.submit(&post("p1", "mallory", "buy scamcoin today")).await;
    demo.submit(&post("p2", "mallory", "a quiet evening")).await;

    let callbacks = demo.wait_for_callbacks("action.automatic", 1).await;
    let callback = &callbacks[0];
    assert_eq!(callback["item"], json!({ "id": "p1", "typeId": "post", "typeName": "Post" }));
    assert_eq!(callback["action"]["id"], "limit_reach");
    assert_eq!(callback["rules"][0]["id"], "demo-scam");
    assert_eq!(callback["policies"][0]["name"], "Scams and fraud");
    assert!(callback["sequence"].is_number(), "{callback}");

    let item = demo.evaluated("post", "p1").await;
    assert_eq!(item["matchedRules"], json!([{ "id": "demo-scam", "name": "Mentions scamcoin" }]));
    assert_eq!(item["actions"][0]["id"], "limit_reach");
    assert_eq!(item["media"], json!([]));
    assert_eq!(item["deliveries"][0]["eventId"], callback["id"]);
    let quiet = demo.evaluated("post", "p2").await;
    assert_eq!((&quiet["matchedRules"], &quiet["actions"]), (&json!([]), &json!([])));

    let event = callback["id"].as_str().unwrap();
    let delivery = demo.admin(&format!("/deliveries/{event}")).await;
    assert_eq!(delivery["body"], *callback);
    let delivery_list = demo.admin("/deliveries?itemId=p1").await;
    assert_eq!(delivery_list["items"][0]["eventId"], callback["id"], "{delivery_list}");

    let (status, _) = demo.command(&format!("/deliveries/{event}/resend"), &json!({})).await;
    assert_eq!(status, 202);
    let resent_callbacks = demo.wait_for_callbacks("action.automatic", 2).await;
    assert_eq!(resent_callbacks[0], resent_callbacks[1], "a resend has the same event id and body");
    assert_eq!(demo.stop().await.code(), Some(0));
}

#[tokio::test]
async fn a_report_becomes_a_job_and_its_decision_a_callback() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let (status, reported) =
        demo.platform(Method::POST, "/api/v1/report", Some(&report(&post("p3", "mallory", "hm")))).await;
    assert_eq!(status, 201, "{reported}");
    let job = demo.job("default", "p3").await;
    let job_details = demo.whole_job(&job).await;
    assert_eq!(job_details["causes"][0]["report"]["id"], reported["reportId"]);

    let decision_response = demo.decide(&job, "act", &["remove"]).await;
    assert_eq!(decision_response["verdict"], "act");
    let callbacks = demo.wait_for_callbacks("decision.moderator", 1).await;
    assert_eq!(callbacks[0]["action"]["id"], "remove");
    assert_eq!(callbacks[0]["item"]["id"], "p3");
    let decided_job = demo.admin(&format!("/jobs/{}", job["id"].as_str().unwrap())).await;
    assert_eq!(decided_job["state"], "decided");

    // The next report opens a new generation of the job.
    let later_report =
        demo.platform(Method::POST, "/api/v1/report", Some(&report(&post("p3", "mallory", "hm")))).await;
    assert_eq!(later_report.0, 201);
    let next = demo.job("default", "p3").await;
    assert_ne!(next["id"], job["id"]);
    assert_eq!(next["generation"], 2);
}

#[tokio::test]
async fn a_child_safety_report_goes_to_its_own_queue_only() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let mut report_body = report(&post("p4", "mallory", "hm"));
    report_body["reportedForReason"] = json!({ "csam": true });
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    assert_eq!(demo.job("child-safety", "p4").await["class"], "child_safety");
    demo.evaluated("post", "p4").await;
    let all = demo.admin("/jobs?state=all&itemId=p4").await;
    assert_eq!(all["items"].as_array().unwrap().len(), 1, "{all}");
}

#[tokio::test]
async fn an_appeal_is_decided_and_the_platform_is_told() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    for (id, verdict, platform_outcome) in [("a1", "accept", "ACCEPT"), ("a2", "reject", "REJECT")] {
        let item = post(id, id, "scamcoin was a joke");
        demo.submit(&item).await;
        demo.evaluated("post", id).await;
        let appeal_response =
            demo.platform(Method::POST, "/api/v1/report/appeal", Some(&appeal(id, &item))).await;
        assert_eq!(appeal_response.0, 204);
        let job = demo.job("appeals", id).await;
        assert_eq!(job["appealId"], id);
        demo.decide(&job, verdict, &[]).await;
        let expected_outcome = json!([id, platform_outcome]);
        let callbacks = demo.wait_for_callbacks("appeal.decision", if id == "a1" { 1 } else { 2 }).await;
        let outcomes: Vec<Value> =
            callbacks.iter().map(|body| json!([body["appealId"], body["appealDecision"]])).collect();
        assert!(outcomes.contains(&expected_outcome), "{outcomes:?}");
    }
}

#[tokio::test]
async fn an_accepted_appeal_takes_back_only_what_was_taken_before_it() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let first = post("p1", "mallory", "scamcoin, the first time");
    demo.submit(&first).await;
    demo.wait_for_callbacks("action.automatic", 1).await;
    let appeal_response =
        demo.platform(Method::POST, "/api/v1/report/appeal", Some(&appeal("a1", &first))).await;
    assert_eq!(appeal_response.0, 204);
    let job = demo.job("appeals", "p1").await;
    demo.submit(&post("p1", "mallory", "scamcoin, the second time")).await;
    demo.wait_for_callbacks("action.automatic", 2).await;
    demo.decide(&job, "accept", &[]).await;
    demo.wait_for_callbacks("appeal.decision", 1).await;
    // The second strike still counts, so two more make three.
    for id in ["p2", "p3"] {
        demo.submit(&post(id, "mallory", "scamcoin")).await;
    }
    let callbacks = demo.wait_for_callbacks("user.threshold", 1).await;
    assert_eq!(callbacks[0]["userStrikeCount"], 3);
}

#[tokio::test]
async fn three_strikes_cross_the_threshold_once() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    for n in 1..=4 {
        demo.submit(&post(&format!("s{n}"), "mallory", "scamcoin")).await;
    }
    demo.submit(&post("other", "bob", "scamcoin")).await;
    demo.wait_for_callbacks("action.automatic", 5).await;
    let callbacks = demo.wait_for_callbacks("user.threshold", 1).await;
    assert_eq!(callbacks[0]["action"]["id"], "suspend");
    assert_eq!(callbacks[0]["creator"], json!({ "id": "mallory", "typeId": "user" }));
    assert_eq!(callbacks[0]["userStrikeCount"], 3);
    let crossed = json!({"id": "three-strikes", "limit": 3, "strikes": 3});
    assert_eq!(callbacks[0]["threshold"], crossed);
    // The effects of the fourth strike precede the effects of later items.
    for n in 1..=3 {
        demo.submit(&post(&format!("t{n}"), "eve", "scamcoin")).await;
    }
    let callbacks = demo.wait_for_callbacks("user.threshold", 2).await;
    let mut users: Vec<_> = callbacks.iter().map(|body| body["creator"]["id"].as_str().unwrap()).collect();
    users.sort_unstable();
    assert_eq!(users, ["eve", "mallory"], "each user crosses the threshold once");
}

#[tokio::test]
async fn second_start_continues_pending_work() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    demo.submit(&post("p1", "mallory", "scamcoin")).await;
    demo.wait_for_callbacks("action.automatic", 1).await;
    let before = demo.env.clone();
    assert_eq!(demo.stop().await.code(), Some(0));
    assert!(!place.data().join("server.json").exists(), "a clean stop removes server.json");

    let mut demo = place.start().await.unwrap();
    for name in ["TIDEGATE_API_KEY", "TIDEGATE_ADMIN_KEY", "TIDEGATE_WEBHOOK_SECRET"] {
        assert_eq!(demo.env[name], before[name], "{name}");
    }
    demo.evaluated("post", "p1").await;
    demo.submit(&post("p2", "mallory", "scamcoin")).await;
    assert_eq!(demo.wait_for_callbacks("action.automatic", 2).await.len(), 2);

    // The process is killed, not stopped. The next start must still process the accepted items.
    demo.submit(&post("p3", "mallory", "scamcoin")).await;
    demo.process.kill().await.unwrap();
    let demo = place.start().await.unwrap();
    let callbacks = demo.wait_for_callbacks("action.automatic", 3).await;
    assert!(callbacks.iter().any(|body| body["item"]["id"] == "p3"));
    demo.wait_for_callbacks("user.threshold", 1).await;
}

#[tokio::test]
async fn demo_send_acts_as_the_platform() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let scam = place.run_ok(&["demo", "send", "scam"]).await;
    assert!(scam.contains("demo-scam") && scam.contains("limit_reach"), "{scam}");
    assert!(place.run_ok(&["demo", "send", "report"]).await.contains("reportId"));
    assert!(place.run_ok(&["demo", "send", "appeal"]).await.contains("appealed as"));
    demo.wait_for_callbacks("action.automatic", 2).await;
    let output = demo.process.output().unwrap();
    assert!(output.contains("verified callback  action.automatic  limit_reach"), "{output}");
    assert!(!output.contains("refused a callback"), "{output}");
}

/// Bound on the anonymous memory of an idle process, with room for another allocator and another machine.
const IDLE_ANONYMOUS_KIB: u64 = 64 << 10;

#[tokio::test]
async fn probes_and_metrics_answer_and_an_idle_process_is_small() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    assert_eq!(demo.operations("/livez").await.0, 200);
    let (status, ready) = demo.operations("/readyz").await;
    assert_eq!(status, 200, "{ready}");
    for role in ["ingest", "process", "deliver", "console"] {
        assert!(ready.contains(role), "{ready}");
    }
    assert!(demo.operations("/buildinfo").await.1.contains(env!("CARGO_PKG_VERSION")));
    let (_, metrics) = demo.operations("/metrics").await;
    assert!(metrics.contains("tidegate_build_info"), "{metrics}");

    // Code pages depend on the build and the machine; `benches/run start` measures the resident pages of a release build.
    let status = std::fs::read_to_string(format!("/proc/{}/status", demo.process.id().unwrap()));
    if let Ok(status) = status {
        let anonymous = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
        let kib: u64 = anonymous.split_whitespace().nth(1).unwrap().parse().unwrap();
        #[allow(clippy::print_stdout, reason = "the person who runs the test reads this figure")]
        {
            println!("anonymous memory when idle: {kib} KiB");
        }
        assert!(kib < IDLE_ANONYMOUS_KIB, "{kib} KiB");
    }
}

#[tokio::test]
async fn schedules_run_beside_the_other_roles() {
    let place = Place::new();
    let destination = place.folder.path().join("exports");
    std::fs::create_dir(&destination).unwrap();
    let schedules = format!(
        "[{{ name = \"nightly\", org = \"demo\", datasets = [\"decisions\"], cron = \"* * * * *\", destination = {{ url = {:?} }} }}]",
        destination.display().to_string()
    );
    let demo = place.start_with(&[("TIDEGATE__EXPORT__SCHEDULES", &schedules)]).await.unwrap();
    let (status, ready) = demo.operations("/readyz").await;
    assert!(status == 200 && ready.contains("\"export\":\"running\""), "{ready}");
    // The organisation's first day is the one before the start.
    let label = "{org=\"demo\",schedule=\"nightly\"}";
    let wait = eventually("the progress of the schedule", PATIENCE, async || {
        demo.operations("/metrics")
            .await
            .1
            .contains(&format!("tidegate_export_behind_days{label} "))
            .then_some(())
    });
    wait.await.unwrap();
}
