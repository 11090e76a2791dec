//! Refused requests: status, pointers of all faults, and no record in the log.

use axum::{
    body::{Body, Bytes},
    http::{Request, header},
};
use futures::stream;
use serde_json::{Value, json};

use crate::support::{APPEAL, Answer, ITEMS, POLICIES, REPORT, Service, appeal, post, report, service};

#[tokio::test]
async fn text_that_is_not_strict_json_is_refused_everywhere() {
    let service = service().await;
    let deep = format!(
        r#"{{"items":[{{"id":"a","typeId":"post","data":{{"text":"x","deep":{}1{}}}}}]}}"#,
        "[".repeat(64),
        "]".repeat(64)
    );
    let item = |data: &str| format!(r#"{{"items":[{{"id":"a","typeId":"post","data":{data}}}]}}"#);
    let bad = [
        ("nothing", String::new()),
        ("a beginning", r#"{"items":["#.to_owned()),
        ("two documents", r#"{"items":[]}{"items":[]}"#.to_owned()),
        ("no JSON at all", "items=1".to_owned()),
        ("nesting", deep),
        ("a key twice", r#"{"items":[],"items":[]}"#.to_owned()),
        ("a key twice inside data", item(r#"{"text":"x","a":{"b":1,"b":2}}"#)),
        ("a lone surrogate", item(r#"{"text":"\ud800"}"#)),
        ("a lone surrogate in an unknown field", item(r#"{"text":"x","y":"\udc00"}"#)),
        ("a number that is none", item(r#"{"text":"x","likes":01}"#)),
        ("a comma too many", item(r#"{"text":"x",}"#)),
    ];
    for (name, body) in bad {
        for path in [ITEMS, REPORT, APPEAL] {
            let answer = service.post_text(path, body.clone()).await;
            assert_eq!(answer.status, 400, "{name}: {answer:?}");
            answer.assert_envelope();
        }
    }
    let not_utf8 = service.post_text(ITEMS, &b"{\"items\":[\"\xff\"]}"[..]).await;
    assert_eq!(not_utf8.status, 400);
    service.assert_nothing_appended().await;
}

#[tokio::test]
async fn one_invalid_item_refuses_the_batch_and_lists_all_faults() {
    let service = service().await;
    let answer = service
        .submit(json!([
            post("good"),
            {"id": "a", "typeId": "post", "data": {"likes": "many", "createdAt": "yesterday"}},
            {"id": "b", "typeId": "pots", "data": {}},
            {"id": "c", "type": {"id": "versioned", "version": "2025"}, "data": {}},
            {"id": "d", "typeId": "versioned", "typeVersion": "2025", "data": {}},
        ]))
        .await;
    assert_eq!(answer.status, 400);
    let mut faults = answer.faults();
    faults.sort_unstable();
    assert_eq!(
        faults,
        [
            "/items/1/data/createdAt",
            "/items/1/data/likes",
            "/items/1/data/text",
            "/items/2/typeId",
            "/items/3/type/version",
            "/items/4/typeVersion",
        ]
    );
    let text = answer.body.to_string();
    assert!(text.contains("Did you mean `post`?"), "{text}");
    assert!(!text.contains("yesterday") && !text.contains("many"), "values are not echoed: {text}");
    service.assert_nothing_appended().await;
}

#[tokio::test]
async fn values_other_than_items_are_refused() {
    let service = service().await;
    let item = |change: Value| {
        let mut item = post("a");
        item.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({"items": [item]})
    };
    let bad = [
        (json!([]), ""),
        (json!({}), "/items"),
        (json!({"items": {}}), "/items"),
        (json!({"items": [1]}), "/items/0"),
        (item(json!({"id": 1})), "/items/0/id"),
        (item(json!({"id": ""})), "/items/0/id"),
        (item(json!({"data": []})), "/items/0/data"),
        (item(json!({"data": null})), "/items/0/data"),
        (item(json!({"typeSchemaVariant": "whole"})), "/items/0/typeSchemaVariant"),
        (item(json!({"id": "x".repeat(513)})), "/items/0/id"),
    ];
    for (body, pointer) in bad {
        let answer = service.post(ITEMS, &body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.faults(), [pointer], "{body}");
    }
    service.assert_nothing_appended().await;
}

#[tokio::test]
async fn batch_above_the_item_limit_is_refused_with_counted_faults() {
    let service = service().await;
    let answer = service.submit((0..1_001).map(|n| post(&n.to_string())).collect()).await;
    assert_eq!((answer.status.as_u16(), answer.faults()), (400, vec!["/items"]));
    let answer = service
        .submit((0..150).map(|n| json!({"id": n.to_string(), "typeId": "post", "data": {}})).collect())
        .await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.faults().len(), 100);
    assert!(answer.body["detail"].as_str().unwrap().contains("50 more"), "{}", answer.body["detail"]);
    service.assert_nothing_appended().await;
}

#[tokio::test]
async fn oversized_body_is_413_with_or_without_content_length() {
    let service = service().await;
    let large = Bytes::from(vec![b' '; 9 << 20]);
    let with_length = service.post_text(ITEMS, large.clone()).await;
    let chunks = large.chunks(1 << 16).map(|chunk| Ok::<_, std::io::Error>(large.slice_ref(chunk)));
    let chunks: Vec<_> = chunks.collect();
    let without_length = service.post_text(ITEMS, Body::from_stream(stream::iter(chunks))).await;
    let lying = service.request("POST", ITEMS).header(header::CONTENT_LENGTH, "9437184");
    let lying = service.ask(lying.body(Body::from("{}")).unwrap()).await;
    let text = "x".repeat((1 << 20) + 1);
    let item = service.submit(json!([{"id": "a", "typeId": "post", "data": {"text": text}}])).await;
    assert_eq!(item.faults(), ["/items/0/data"]);
    for answer in [with_length, without_length, lying, item] {
        assert_eq!(answer.status, 413, "{:?}", answer.body);
        answer.assert_envelope();
    }
    service.assert_nothing_appended().await;
}

#[tokio::test]
async fn other_content_types_are_415() {
    let service = service().await;
    let send = async |kind: Option<&str>| -> Answer {
        let mut request = Request::builder().method("POST").uri(ITEMS).header("x-api-key", &service.key);
        if let Some(kind) = kind {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        service.ask(request.body(Body::from(r#"{"items":[]}"#)).unwrap()).await
    };
    for kind in [None, Some("text/plain"), Some("application/xml"), Some("application/jsonp")] {
        let answer = send(kind).await;
        assert_eq!(answer.status, 415, "{kind:?}");
        answer.assert_envelope();
    }
    assert_eq!(send(Some("application/json; charset=utf-8")).await.status, 202);
    for kind in
        ["Application/JSON", "application/json;charset=\"UTF-8\"", "application/json; odd=1; Charset=utf8"]
    {
        assert_eq!(send(Some(kind)).await.status, 202, "{kind}");
    }
    for kind in
        ["application/json; charset=iso-8859-1", "application/json; charset=utf-8; CHARSET = \"utf-16\""]
    {
        let answer = send(Some(kind)).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body["title"]),
            (415, &json!("The body must be UTF-8.")),
            "{kind}"
        );
        answer.assert_envelope();
    }
}

#[tokio::test]
async fn unknown_content_coding_is_415_before_the_body_is_read() {
    let service = service().await;
    for (path, codings) in [
        (ITEMS, &["gzip, zstd"][..]),
        (ITEMS, &["identity, br"]),
        (ITEMS, &["zstd", "zstd"]),
        (REPORT, &["deflate"]),
        (APPEAL, &["x-none"]),
    ] {
        let mut request = service.request("POST", path);
        for coding in codings {
            request = request.header(header::CONTENT_ENCODING, *coding);
        }
        // The body never ends, so a read would hang.
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let answer = service.ask(request.body(body).unwrap()).await;
        assert_eq!(answer.status, 415, "{codings:?}");
        answer.assert_envelope();
        assert_eq!(answer.body["title"], "The compression of the body is not supported.");
        assert_eq!(answer.header("accept-encoding"), "gzip, zstd");
    }
    service.assert_nothing_appended().await;
    let plain = service.request("POST", ITEMS).header(header::CONTENT_ENCODING, "Identity");
    let plain = plain.body(Body::from(json!({"items": [post("a")]}).to_string())).unwrap();
    assert_eq!(service.ask(plain).await.status, 202);
}

#[tokio::test]
async fn unknown_routes_and_methods_get_the_same_envelope() {
    let service = service().await;
    for (method, path, status) in [
        ("GET", "/", 404),
        ("GET", "/api/v1/nothing", 404),
        ("POST", "/api/v2/report", 404),
        ("GET", ITEMS, 405),
        ("DELETE", REPORT, 405),
        ("POST", POLICIES, 405),
    ] {
        let answer = service.ask(service.request(method, path).body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, status, "{method} {path}");
        answer.assert_envelope();
        assert_eq!(answer.body["instance"], path);
        assert_eq!(answer.headers.contains_key(header::ALLOW), status == 405);
    }
}

#[tokio::test]
async fn report_is_refused_with_the_faults_of_all_parts() {
    let service = service().await;
    let answer = service
        .post(
            REPORT,
            &json!({
                "reporter": {"kind": "bot", "id": "u", "typeId": "user"},
                "reportedAt": "soon",
                "reportedItem": {"id": "p", "typeId": "post"},
                "reportedForReason": {"csam": "yes"},
                "reportedItemThread": {},
                "reportedItemsInThread": [{"id": "x"}],
            }),
        )
        .await;
    assert_eq!(answer.status, 400);
    let mut faults = answer.faults();
    faults.sort_unstable();
    assert_eq!(
        faults,
        [
            "/reportedAt",
            "/reportedForReason/csam",
            "/reportedItem/data",
            "/reportedItemThread",
            "/reportedItemsInThread/0/typeId",
            "/reporter/kind",
        ]
    );
    for (key, value, pointer) in [
        ("reportedItem", json!({"id": "p", "typeId": "post", "data": {}}), "/reportedItem/data/text"),
        ("reportedItem", json!({"id": "p", "typeId": "none", "data": {}}), "/reportedItem/typeId"),
        (
            "reportedItem",
            json!({"id": "p", "typeId": "post", "typeSchemaVariant": "partial", "data": {"likes": "q"}}),
            "/reportedItem/data/likes",
        ),
    ] {
        assert_refused(&service, REPORT, report(), key, value, pointer).await;
    }
    service.assert_nothing_appended().await;
}

/// Faults of shape and faults of data in one list, in document order.
#[tokio::test]
async fn shape_and_data_faults_are_listed_in_document_order() {
    let service = service().await;
    let items = r#"{"items":[
        {"id":1,"typeId":"post","data":{"text":1,"likes":"z"}},
        {"typeId":"psot","data":{}},
        {"data":{"title":2},"id":"a","typeId":"post"},
        3,
        {"id":"b","typeId":"post","typeVersion":5,"data":{}},
        {"id":"c","typeId":"versioned","typeVersion":"2025","typeSchemaVariant":5,"data":{}},
        {"id":"d","type":{"id":"post","schemaVariant":"whole"},"data":{"likes":"z"}},
        {"id":"e","type":{"id":"post","schemaVariant":"partial","version":5},"data":{"likes":"z"}},
        {"id":"f","type":{"id":"post"},"typeId":"post","data":{"likes":"z"}}
    ]}"#;
    let report = r#"{
        "reportedItemsInThread":[{"id":5,"typeId":"none"}],
        "reporter":{"kind":"z","id":"u","typeId":"post"},"reportedAt":"x",
        "reportedItem":{"id":"p","typeId":"post","typeSchemaVariant":"partial","data":{"likes":"q","title":1}}}"#;
    let users = r#"{"reporter":{"typeId":"usr","kind":"user"},"reportedAt":"x",
        "reportedItem":{"id":"p","typeId":"psot","data":{}}}"#;
    let appeal = r#"{"actionsTaken":[1],"appealId":"","appealedBy":{"id":5,"typeId":"post"},
        "appealedAt":"2026-01-02T03:04:05.006Z","additionalItems":[{"id":1,"typeId":"post","data":{"likes":"z"}}],
        "actionedItem":{"typeId":"post","data":{"text":1,"likes":"q"}}}"#;
    for (path, body, faults) in [
        (
            ITEMS,
            items,
            &[
                "/items/0/id",
                "/items/0/data/text",
                "/items/0/data/likes",
                "/items/1/typeId",
                "/items/1/id",
                "/items/2/data/title",
                "/items/2/data/text",
                "/items/3",
                "/items/4/typeVersion",
                "/items/4/data/text",
                "/items/5/typeVersion",
                "/items/5/typeSchemaVariant",
                "/items/6/type/schemaVariant",
                "/items/6/data/likes",
                "/items/7/type/version",
                "/items/7/data/likes",
                "/items/8/data/likes",
                "/items/8/data/text",
            ][..],
        ),
        (
            REPORT,
            report,
            &[
                "/reportedItemsInThread/0/id",
                "/reporter/kind",
                "/reportedAt",
                "/reportedItem/data/likes",
                "/reportedItem/data/title",
            ],
        ),
        (REPORT, users, &["/reporter/id", "/reportedAt", "/reportedItem/typeId"]),
        (
            APPEAL,
            appeal,
            &[
                "/actionsTaken/0",
                "/appealId",
                "/appealedBy/id",
                "/actionedItem/data/text",
                "/actionedItem/data/likes",
                "/actionedItem/id",
            ],
        ),
    ] {
        let answer = service.post_text(path, body).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.faults(), faults, "{body}");
    }
    service.assert_nothing_appended().await;
}

#[tokio::test]
async fn first_hundred_faults_of_any_kind_are_listed() {
    let service = service().await;
    let item = json!({"id": 1, "typeId": "post", "data": {"likes": "z"}});
    let answer = service.submit(vec![item; 60].into()).await;
    // Items are written with their keys sorted.
    let of_item = |n| ["data/likes", "data/text", "id"].map(|key| format!("/items/{n}/{key}"));
    assert_eq!(answer.faults(), (0..34).flat_map(of_item).take(100).collect::<Vec<_>>());
    assert!(answer.body["detail"].as_str().unwrap().contains("80 more"), "{}", answer.body["detail"]);

    let marked = vec![r#"{"id":"","typeId":5}"#; 120].join(",");
    let body =
        format!(r#"{{"reportedItemsInThread":[{marked}],"reporter":{{"kind":"z"}},"reportedAt":"x"}}"#);
    let answer = service.post_text(REPORT, body).await;
    let faults = answer.faults();
    let first = (0..50).flat_map(|n| ["id", "typeId"].map(|key| format!("/reportedItemsInThread/{n}/{key}")));
    assert_eq!(faults, first.collect::<Vec<_>>());
    // `kind`, `id`, `typeId` of the reporter, `reportedAt` and `reportedItem`.
    assert!(answer.body["detail"].as_str().unwrap().contains("145 more"), "{}", answer.body["detail"]);
}

#[tokio::test]
async fn new_type_is_not_listed_among_the_faults_of_a_request() {
    let service = service().await;
    service.apply("item_type: fresh\nkind: CONTENT\nfields: [{name: n, type: NUMBER}]\n").await;
    let answer = service.submit(json!([{"id": 1, "typeId": "fresh", "data": {"n": "z"}}])).await;
    let mut faults = answer.faults();
    faults.sort_unstable();
    assert_eq!(faults, ["/items/0/data/n", "/items/0/id"]);
}

#[tokio::test]
async fn invalid_appeal_is_refused_and_claims_no_id() {
    let service = service().await;
    for (key, value, pointer) in [
        ("appealId", json!(""), "/appealId"),
        ("appealedAt", json!(5), "/appealedAt"),
        ("appealedBy", json!({"id": "u"}), "/appealedBy/typeId"),
        ("actionedItem", json!({"id": "p", "typeId": "post", "data": {}}), "/actionedItem/data/text"),
        ("actionsTaken", json!("limit_reach"), "/actionsTaken"),
        ("actionsTaken", json!([1]), "/actionsTaken/0"),
        ("violatingPolicies", json!(["p"]), "/violatingPolicies/0"),
        ("additionalItems", json!([1]), "/additionalItems/0"),
    ] {
        assert_refused(&service, APPEAL, appeal("a-1"), key, value, pointer).await;
    }
    service.assert_nothing_appended().await;
    assert_eq!(service.post(APPEAL, &appeal("a-1")).await.status, 204);
}

async fn assert_refused(
    service: &Service,
    path: &str,
    mut body: Value,
    key: &str,
    value: Value,
    pointer: &str,
) {
    body[key] = value;
    let answer = service.post(path, &body).await;
    assert_eq!(answer.status, 400, "{body}: {answer:?}");
    assert_eq!(answer.faults(), [pointer], "{body}");
}
