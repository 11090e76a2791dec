//! A user of the platform as a moderator sees them.

use crate::support::{Place, post, report};
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn user_is_shown_with_strikes_jobs_and_outcome_of_reports() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    for n in 1..=4 {
        demo.submit(&post(&format!("s{n}"), "mallory", "scamcoin")).await;
    }
    demo.received("user.threshold", 1).await;
    let sent = report(&post("p3", "mallory", "hm"));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&sent)).await.0, 201);
    let job = demo.job("default", "p3").await;
    demo.decide(&job, "ignore", &[]).await;
    demo.received("decision.moderator", 1).await;

    let user = demo.admin("/users/user/mallory").await;
    assert_eq!((&user["strikes"], &user["id"]), (&json!(4), &json!("mallory")), "{user}");
    assert_eq!(user["newestStrikes"].as_array().unwrap().len(), 4, "{user}");
    assert_eq!(user["newestStrikes"][0]["reversed"], false, "{user}");
    let standing = &user["standing"][0];
    assert_eq!((&standing["strikes"], &standing["limit"]), (&json!(4), &json!(3)), "{user}");
    assert_eq!((&user["jobs"], &user["actions"]), (&json!([]), &json!([])), "{user}");
    assert_eq!(user["reports"], json!({ "decided": 0, "upheld": 0 }), "{user}");

    let sent = report(&json!({ "id": "mallory", "typeId": "user", "data": {} }));
    assert_eq!(demo.platform(Method::POST, "/api/v1/report", Some(&sent)).await.0, 201);
    let job = demo.job("default", "mallory").await;
    demo.decide(&job, "act", &["remove"]).await;
    demo.received("decision.moderator", 2).await;
    let user = demo.admin("/users/user/mallory").await;
    assert_eq!(
        (&user["jobs"][0]["id"], &user["jobs"][0]["state"]),
        (&job["id"], &json!("decided")),
        "{user}"
    );
    assert_eq!(user["actions"][0]["action"], "remove", "{user}");
    assert_eq!(user["latestItem"]["source"], "report", "{user}");

    let shown = place.tell(&["users", "show", "user", "alice"]).await;
    let reporter: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(reporter["reports"], json!({ "decided": 2, "upheld": 1, "accuracy": 0.5 }), "{reporter}");

    let admin = |path: &'static str| demo.admin_as(demo.var("TIDEGATE_ADMIN_KEY"), Method::GET, path, None);
    let (status, answer) = admin("/users/user/nobody").await;
    assert_eq!(status, 404, "{answer}");
    let (status, answer) = admin("/users/post/s1").await;
    assert_eq!(status, 400, "{answer}");
    assert!(answer.to_string().contains("kind `USER`"), "{answer}");
}
