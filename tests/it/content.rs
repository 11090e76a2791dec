//! The legacy endpoint from end to end: its answers, no media fetches, and one outcome even after a kill.

use std::collections::BTreeSet;

use crate::support::{Demo, Place};
use anyhow::bail;
use reqwest::Method;
use serde_json::{Value, json};
use tidegate_test_support::{PATIENCE, eventually_ok};

fn content(id: &str, text: &str) -> Value {
    json!({ "contentType": "post", "contentId": id, "content": { "text": text }, "userId": "mallory" })
}

async fn send(demo: &Demo, body: &Value) -> (u16, Value) {
    let (status, answer) = demo.platform(Method::POST, "/api/v1/content/", Some(body)).await;
    (status.as_u16(), answer)
}

#[tokio::test]
async fn content_is_answered_with_its_outcome() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let mut scam = content("c1", "buy scamcoin today");
    // A fetch of this address would fail and appear in the answer.
    scam["content"]["images"] = json!(["http://127.0.0.1:9/x.png"]);
    let (status, answer) = send(&demo, &scam).await;
    assert_eq!(status, 200, "{answer}");
    let rule = &answer["matchedRules"][0];
    assert_eq!((&rule["id"], &rule["name"]), (&json!("demo-scam"), &json!("Mentions scamcoin")), "{answer}");
    assert_eq!(rule["policies"][0]["name"], "Scams and fraud");
    assert_eq!(answer["actionsTriggered"][0]["id"], "limit_reach");
    assert!(answer["actionsTriggered"][0]["name"].is_string(), "{answer}");
    assert_eq!(answer["derivedFields"], json!({}));

    let item = demo.evaluated("post", "c1").await;
    assert_eq!(item["submissionId"], answer["submissionId"]);
    assert_eq!(item["media"], json!([]), "media are not fetched");
    assert_eq!(item["data"]["author"], json!({ "id": "mallory", "typeId": "user" }));
    let callbacks = demo.wait_for_callbacks("action.automatic", 1).await;
    assert_eq!(
        (&callbacks[0]["item"]["id"], &callbacks[0]["action"]["id"]),
        (&json!("c1"), &json!("limit_reach"))
    );

    let (status, answer) = send(&demo, &content("c2", "a quiet evening")).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!((&answer["matchedRules"], &answer["actionsTriggered"]), (&json!([]), &json!([])));
    assert_eq!(answer["erroredRules"], json!([]));

    let mut async_content = content("c3", "more scamcoin");
    async_content["sync"] = false.into();
    assert_eq!(send(&demo, &async_content).await, (202, Value::Null));
    assert_eq!(demo.evaluated("post", "c3").await["matchedRules"][0]["id"], "demo-scam");
    assert_eq!(demo.stop().await.code(), Some(0));
}

#[tokio::test]
async fn content_of_a_killed_process_has_one_outcome() {
    let place = Place::new();
    // The wait ends before most evaluations do.
    let short_wait = [("TIDEGATE__INGEST__CONTENT_WAIT_MS", "1")];
    let mut demo = place.start_with(&short_wait).await.unwrap();
    let (status, answer) = send(&demo, &content("k1", "buy scamcoin today")).await;
    assert!(status == 200 || status == 503, "{status}: {answer}");
    if status == 503 {
        assert_eq!(answer["errors"][0]["type"], json!(["/errors/evaluation-timeout"]), "{answer}");
    }
    demo.process.kill().await.unwrap();

    let demo = place.start().await.unwrap();
    let item = demo.evaluated("post", "k1").await;
    assert_eq!(item["actions"][0]["id"], "limit_reach", "{item}");
    let deliveries = eventually_ok("the callback to be delivered", PATIENCE, async || {
        let delivery_list = demo.admin("/deliveries?itemId=k1").await;
        let all = delivery_list["items"].as_array().unwrap().clone();
        if all.iter().any(|it| it["state"] == "delivered") { Ok(all) } else { bail!("{delivery_list}") }
    })
    .await
    .unwrap();
    let events: BTreeSet<_> = deliveries.iter().map(|it| it["eventId"].to_string()).collect();
    assert_eq!(events, BTreeSet::from([item["actions"][0]["eventId"].to_string()]), "{deliveries:?}");
}

#[tokio::test]
async fn content_is_told_what_its_answer_leaves_out() {
    let place = Place::new();
    let demo = place.start_with(&[("TIDEGATE__CATALOG__RULES__STORED_MATCHES", "1")]).await.unwrap();
    let rules = (0..3).map(|n| {
        format!(
            "rule: any-{n}\nstatus: live\nitem_types: [post]\nwhen: {{field: {{path: text, exists: true}}}}\n"
        )
    });
    let text = rules.collect::<Vec<_>>().join("---\n");
    let files = json!({ "files": [{ "name": "rules.yaml", "text": text }] });
    let (status, applied) = demo.command("/config", &files).await;
    assert_eq!(status, 200, "{applied}");

    let (status, answer) = send(&demo, &content("m1", "a quiet evening")).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["matchedRules"].as_array().map(Vec::len), Some(1), "{answer}");
    assert_eq!(answer["matchedMore"], 2, "{answer}");
    let item = demo.evaluated("post", "m1").await;
    for name in ["matchedMore", "erroredMore", "uncounted", "truncated"] {
        assert_eq!(answer.get(name), item.get(name), "{name}: {answer} {item}");
    }
    let (_, later_answer) = send(&demo, &content("m2", "a quiet evening")).await;
    assert!(
        later_answer.get("erroredMore").is_none() && later_answer.get("uncounted").is_none(),
        "{later_answer}"
    );
}

#[tokio::test]
async fn content_names_the_rules_that_could_not_be_decided() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    // The guard refuses this address, so the model never answers.
    let text = "signal: toxicity\nurl: http://10.0.0.1/\ninput: text\noutput: {score: /score}\n---\n\
        rule: scored\nname: Toxic\nstatus: live\nitem_types: [post]\n\
        when: {score: {model: toxicity, gte: 0.5}}\nactions: [limit_reach]\n";
    let files = json!({ "files": [{ "name": "scored.yaml", "text": text }] });
    let (status, applied) = demo.command("/config", &files).await;
    assert_eq!(status, 200, "{applied}");

    let (status, answer) = send(&demo, &content("e1", "a quiet evening")).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["matchedRules"], json!([]), "{answer}");
    let errored = answer["erroredRules"].as_array().unwrap();
    assert_eq!(
        (errored.len(), &errored[0]["id"], &errored[0]["name"]),
        (1, &json!("scored"), &json!("Toxic")),
        "{answer}"
    );
    assert!(errored[0]["reason"].as_str().unwrap().starts_with("score: "), "{answer}");
    let item = demo.evaluated("post", "e1").await;
    assert_eq!(item["erroredRules"][0]["reason"], errored[0]["reason"], "{item}");
    assert_eq!(demo.stop().await.code(), Some(0));
}
