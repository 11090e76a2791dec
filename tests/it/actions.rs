//! Actions that the platform takes itself, from the request to strikes, callbacks and jobs.

use std::collections::BTreeSet;

use crate::support::{Place, post};
use reqwest::Method;
use serde_json::{Value, json};

const BAN: &str = "\
action: ban
kind: callback
parameters:
  - {name: hours, type: NUMBER, default: 24}
  - {name: why, type: STRING}
";

#[tokio::test]
async fn platform_actions_run_once_per_idempotency_key() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let change = json!({ "files": [{ "name": "ban.yaml", "text": BAN }] });
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 200, "{answer}");
    demo.submit(&post("m1", "mallory", "a quiet evening")).await;
    demo.evaluated("post", "m1").await;
    let (_, policies) = demo.platform(Method::GET, "/api/v1/policies/", None).await;
    let policy = &policies["policies"][1]["id"];
    let on = |action: &str| json!({ "actionId": action, "itemId": "m1", "itemTypeId": "post" });
    let mut ban = on("ban");
    ban["parameters"] = json!({ "why": "scams" });
    ban["note"] = "seen elsewhere".into();
    ban["actorId"] = "bot-7".into();
    ban["policyIds"] = json!([policy]);
    ban["reportedItems"] = json!([{ "id": "m2", "typeId": "post" }]);
    let body = json!({ "actions": [on("remove"), on("limit_reach"), ban, on("review")] });
    let send = async || {
        let (url, key) =
            (format!("{}/api/v1/actions/", demo.var("TIDEGATE_URL")), demo.var("TIDEGATE_API_KEY"));
        let request =
            crate::support::http().post(url).header("x-api-key", key).header("idempotency-key", "k-1");
        let answer = request.json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let first = send().await;
    assert_eq!(first.0, 202, "{}", first.1);
    assert_eq!(send().await, first, "a repeated request has the same ids");

    // Three points: the threshold of the demo.
    let threshold = demo.wait_for_callbacks("user.threshold", 1).await;
    assert_eq!(threshold[0]["action"]["id"], "suspend");
    let job = demo.job("default", "m1").await;
    assert_eq!(demo.whole_job(&job).await["causes"].as_array().unwrap().len(), 1);
    let callbacks = demo.wait_for_callbacks("decision.moderator", 4).await;
    let of = |action: &str| callbacks.iter().find(|body| body["action"]["id"] == action).unwrap();
    let ban = of("ban");
    assert_eq!(ban["item"]["id"], "m1");
    assert_eq!(ban["decisionReason"], "seen elsewhere");
    assert_eq!(
        (&ban["decision"]["actorId"], &of("remove")["decision"]["actorId"]),
        (&json!("bot-7"), &json!("api"))
    );
    let event = ban["id"].as_str().unwrap();
    assert_eq!(demo.admin(&format!("/deliveries/{event}")).await["body"]["decision"]["actorId"], "bot-7");
    assert_eq!(ban["policies"][0]["id"], *policy);
    let custom = &ban["custom"];
    assert_eq!((&custom["hours"], &custom["why"]), (&json!(24), &json!("scams")), "{ban}");
    assert_eq!(custom["reportedItems"], json!([{ "id": "m2", "typeId": "post" }]));
    assert_eq!(of("remove")["creator"], json!({ "id": "mallory", "typeId": "user" }));

    let user = demo.admin("/users/user/mallory").await;
    let strikes = user["newestStrikes"].as_array().unwrap();
    assert!(!strikes.is_empty() && strikes.iter().all(|strike| strike["actor"] == "api"), "{user}");

    // All three actions share the item and its order, so the two requests are complete once the later action is.
    let (status, answer) = demo.platform(Method::POST, "/api/v1/actions", Some(&on("suspend"))).await;
    assert_eq!(status, 202, "{answer}");
    demo.wait_for_callbacks("decision.moderator", 5).await;
    let all = demo.all_received().await.unwrap();
    let all = all.iter().filter(|body| body["type"] == "decision.moderator");
    let events: BTreeSet<_> = all.map(|body| body["id"].to_string()).collect();
    assert_eq!(events.len(), 5, "{events:?}");
    assert_eq!(demo.stop().await.code(), Some(0));
}
