//! Decisions of a review tool that act on more than the job's item.

use crate::support::{Place, post, report};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn one_decision_acts_on_the_item_its_author_and_its_thread() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let ban = "action: ban\nkind: callback\nparameters: [{name: hours, type: NUMBER, required: true}]\n";
    let change = json!({ "files": [{ "name": "ban.yaml", "text": ban }] });
    assert_eq!(demo.command("/config", &change).await.0, 200);
    let mut report_body = report(&post("p1", "mallory", "hm"));
    report_body["reportedItemThread"] = json!([post("p2", "trudy", "hm too")]);
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&report_body)).await.0, 201);
    let job = demo.job("default", "p1").await;
    demo.whole_job(&job).await;
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let epoch =
        demo.command(&format!("{path}/claim"), &json!({ "reviewer": "ann" })).await.1["epoch"].clone();
    let decide = async |related: Value| {
        let decision_body = json!({
            "epoch": epoch, "verdict": "act", "actions": ["remove"], "reason": "seen", "related": related, "reviewer": "ann",
        });
        demo.command(&format!("{path}/decisions"), &decision_body).await
    };
    let item = |type_id: &str, id: &str| json!({ "id": id, "typeId": type_id });
    let strange = json!([{ "item": item("post", "p9"), "actions": ["remove"] }]);
    let (status, answer) = decide(strange).await;
    assert_eq!(
        (status.as_u16(), &answer["errors"][0]["pointer"]),
        (400, &json!("/related/0/item")),
        "{answer}"
    );
    let detail = answer["detail"].as_str().unwrap();
    assert!(detail.contains("user/mallory") && detail.contains("post/p2"), "{detail}");
    let misspelt = json!([{ "item": item("post", "p2"), "action": ["remove"] }]);
    assert_eq!(decide(misspelt).await.0, 400);

    let related = json!([
        { "item": item("user", "mallory"), "actions": [{ "id": "ban", "parameters": { "hours": 24 } }] },
        { "item": item("post", "p2"), "actions": ["remove"] },
    ]);
    let (status, accepted_decision) = decide(related).await;
    assert_eq!(status, 202, "{accepted_decision}");
    assert_eq!(accepted_decision["related"][0]["parameters"], json!({ "ban": { "hours": 24 } }));
    assert_eq!(accepted_decision["related"][1]["user"], item("user", "trudy"));
    assert_eq!(demo.admin(&path).await["decision"], accepted_decision);

    let callbacks = demo.wait_for_callbacks("decision.moderator", 3).await;
    let on = |id: &str| callbacks.iter().find(|body| body["item"]["id"] == id).unwrap();
    assert_eq!(
        (&on("mallory")["action"]["id"], &on("mallory")["custom"]["hours"]),
        (&json!("ban"), &json!(24))
    );
    assert_eq!((&on("p2")["creator"]["id"], &on("p2")["userStrikeCount"]), (&json!("trudy"), &json!(2)));
    for body in &callbacks {
        assert_eq!(body["decision"]["id"], accepted_decision["decisionId"], "{body}");
        assert_eq!(body["decision"]["related"].as_array().unwrap().len(), 2, "{body}");
    }
}
