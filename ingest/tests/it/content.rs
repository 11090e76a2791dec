//! The legacy endpoint without a processor: refusals, appended records, and the end of the wait.

use serde_json::{Value, json};
use tidegate_schemas::records::Items;

use crate::support::{Answer, Service, service};

const CONTENT: &str = "/api/v1/content/";

fn content() -> Value {
    json!({"contentType": "post", "contentId": "p-1", "content": {"text": "hello"}})
}

fn with(key: &str, value: Value) -> Value {
    let mut body = content();
    body[key] = value;
    body
}

async fn service_with_short_wait() -> Service {
    Service::with(|settings, _, _| settings.content_wait_ms = 1).await
}

fn assert_deprecated(answer: &Answer) {
    assert_eq!(answer.header("deprecation"), "@1795651200");
    assert_eq!(answer.header("link"), r#"</api/v1/items/async/>; rel="successor-version""#);
}

/// Returns the data of the only item in the log.
fn data(mut records: Vec<Items>) -> Value {
    assert_eq!(records.len(), 1);
    let mut record = records.remove(0);
    assert_eq!(record.items.len(), 1);
    serde_json::from_slice(&record.items.remove(0).data).unwrap()
}

#[tokio::test]
async fn asynchronous_content_is_202() {
    let service = service_with_short_wait().await;
    let answer = service.post(CONTENT, &with("sync", json!(false))).await;
    assert_eq!((answer.status.as_u16(), &answer.body), (202, &json!(null)));
    assert_deprecated(&answer);
    let record = service.items().await.remove(0);
    assert_eq!(record.org, service.org);
    assert_eq!((record.items[0].type_id.as_str(), record.items[0].id.as_str()), ("post", "p-1"));
    assert_eq!(&record.items[0].data[..], br#"{"text":"hello"}"#);
}

#[tokio::test]
async fn content_timeout_is_503_with_the_look_up_address() {
    let service = service_with_short_wait().await;
    for sync in [json!(true), json!(null)] {
        let answer = service.post(CONTENT, &with("sync", sync)).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_deprecated(&answer);
        answer.assert_envelope();
        assert_eq!(answer.body["errors"][0]["type"], json!(["/errors/evaluation-timeout"]));
        assert!(!answer.header("retry-after").is_empty());
        let record = service.items().await.pop().unwrap();
        let submission = record.items[0].submission_id.to_string();
        assert!(
            answer.detail().contains(&format!("/api/v1/items/post/p-1?submission={submission}")),
            "{answer:?}"
        );
    }
    // A retry under the same key is the same submission.
    for _ in 0..2 {
        assert_eq!(service.post_keyed(CONTENT, "k-1", &content()).await.status, 503);
    }
    let records = service.items().await;
    let [.., first, second] = &*records else { panic!("{records:?}") };
    assert_eq!(first.items[0].submission_id, second.items[0].submission_id);
    assert!(first.items[0].keyed);
}

#[tokio::test]
async fn content_type_is_an_id_or_a_name() {
    let service = service_with_short_wait().await;
    service
        .apply("item_type: t-1\nname: Comment\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n")
        .await;
    for named in ["t-1", "Comment"] {
        assert_eq!(service.post(CONTENT, &with("contentType", json!(named))).await.status, 503, "{named}");
        let record = service.items().await.pop().unwrap();
        assert_eq!(record.items[0].type_id.as_str(), "t-1");
    }
    let answer = service.post(CONTENT, &with("contentType", json!("Coment"))).await;
    assert_eq!((answer.status.as_u16(), answer.faults()), (400, vec!["/contentType"]));
    assert_eq!(answer.body["errors"][0]["type"][0], "/errors/unrecognized-content-type");
    assert!(answer.detail().contains("Did you mean `Comment`?"), "{answer:?}");
    assert_deprecated(&answer);
}

#[tokio::test]
async fn invalid_content_is_refused_at_its_member() {
    let service = service_with_short_wait().await;
    for (body, pointer) in [
        (json!([]), ""),
        (with("contentId", json!("")), "/contentId"),
        (with("content", json!([])), "/content"),
        (with("content", json!({})), "/content/text"),
        (with("content", json!({"text": "x", "likes": "many"})), "/content/likes"),
        (with("userId", json!(5)), "/userId"),
        (with("sync", json!("yes")), "/sync"),
    ] {
        let answer = service.post(CONTENT, &body).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert_eq!(answer.faults(), [pointer], "{body}");
    }
    service.assert_nothing_appended().await;
}

#[tokio::test]
async fn user_id_is_the_creator_unless_the_content_names_one() {
    let user = |id: &str| json!({"id": id, "typeId": "user"});
    for (sent, creator) in [
        (json!({"text": "x"}), user("u-1")),
        (json!({"author": null, "text": "x"}), user("u-1")),
        (json!({"text": "x", "author": {"id": "u-2", "typeId": "user"}}), user("u-2")),
    ] {
        let service = service_with_short_wait().await;
        let mut body = with("content", sent);
        body["userId"] = "u-1".into();
        assert_eq!(service.post(CONTENT, &body).await.status, 503);
        assert_eq!(data(service.items().await), json!({"author": creator, "text": "x"}));
    }
    let service = service().await;
    service.apply("item_type: member\nkind: USER\n---\nitem_type: bare\nkind: CONTENT\nfields: []\n").await;
    let body = json!({"contentType": "bare", "contentId": "i", "content": {}, "userId": "u", "sync": false});
    assert_eq!(service.post(CONTENT, &body).await.status, 202, "a type without a creator accepts `userId`");
}

#[tokio::test]
async fn content_of_an_organisation_stays_its_own() {
    let service = service_with_short_wait().await;
    let other_org = service.other_org().await;
    service.apply("item_type: secret\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n").await;
    let request = |body: &Value| {
        let request = service.request("POST", CONTENT).header("x-api-key", &other_org);
        let mut request = request.body(axum::body::Body::from(body.to_string())).unwrap();
        request.headers_mut().insert("x-api-key", other_org.parse().unwrap());
        request
    };
    let answer = service.ask(request(&with("contentType", json!("secret")))).await;
    assert_eq!((answer.status.as_u16(), answer.faults()), (400, vec!["/contentType"]));
    assert!(!answer.body.to_string().contains("`secret`"), "{answer:?}");
    assert_eq!(service.ask(request(&with("sync", json!(false)))).await.status, 202);
    assert_eq!(service.items().await.remove(0).org.as_str(), "other");
}
