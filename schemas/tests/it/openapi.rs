//! Published description of the API against the readers and the rendered bodies.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tidegate_schemas::{
    documents::Event, ids::ItemKey, openapi::DOCUMENT, validation_error::tag, wire::partial_items,
};
use tidegate_test_support::openapi::contract;

use crate::agreement::{self, Body};

fn document() -> Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

/// Collects the values of all members with this name, at any depth.
fn collect_members<'v>(value: &'v Value, name: &str, values: &mut Vec<&'v Value>) {
    match value {
        Value::Object(members) => {
            values.extend(members.get(name));
            members.values().for_each(|value| collect_members(value, name, values));
        }
        Value::Array(list) => list.iter().for_each(|value| collect_members(value, name, values)),
        _ => {}
    }
}

fn texts_of_members<'v>(value: &'v Value, name: &str) -> Vec<&'v str> {
    let mut values = Vec::new();
    collect_members(value, name, &mut values);
    values.into_iter().filter_map(Value::as_str).collect()
}

#[test]
fn document_is_openapi_3_1() {
    let spec = oas3::from_json(DOCUMENT).unwrap();
    let version = spec.validate_version().unwrap();
    assert_eq!((version.major, version.minor), (3, 1));
    assert!(oas3::from_json(DOCUMENT.replace(r#""in": "header""#, r#""in": "body""#)).is_err());
}

#[test]
fn every_reference_resolves_and_every_component_is_used() {
    let document = document();
    let references: BTreeSet<&str> = texts_of_members(&document, "$ref").into_iter().collect();
    for reference in &references {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference} does not resolve");
    }
    for (kind, parts) in document["components"].as_object().unwrap() {
        for name in parts.as_object().unwrap().keys().filter(|_| kind != "securitySchemes") {
            let reference = format!("#/components/{kind}/{name}");
            assert!(references.contains(reference.as_str()), "{reference} is not used");
        }
    }
    let ids = texts_of_members(&document, "operationId");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
}

#[test]
fn every_schema_is_a_json_schema() {
    let document = document();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        jsonschema::draft202012::meta::validate(schema).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn examples_match_their_schemas() {
    let document = document();
    let mut examples = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let content = &operation["requestBody"]["content"]["application/json"];
            for example in content["examples"].as_object().into_iter().flatten().map(|(_, it)| &it["value"]) {
                contract().check_request(method, path, example).unwrap();
                agreement::check(Body::of(path).unwrap(), example);
                examples += 1;
            }
        }
    }
    assert!(examples >= 5, "{examples} examples");
}

#[test]
fn every_kind_of_callback_is_a_webhook() {
    let document = document();
    for event in Event::ALL {
        let webhook = &document["webhooks"][event.as_str()]["post"];
        let schema = webhook.pointer("/requestBody/content/application~1json/schema/$ref").unwrap();
        let schema = document.pointer(&schema.as_str().unwrap()[1..]).unwrap();
        assert_eq!(schema["properties"]["type"]["const"], event.as_str());
        let partial = json!({"type": event.as_str()});
        assert!(contract().check_webhook(&partial).unwrap_err().contains("occurredAt"));
    }
}

/// JSON blocks of a page, in order.
fn blocks(page: &str) -> Vec<Value> {
    let blocks = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks
        .map(|block| serde_json::from_str(block).unwrap_or_else(|error| panic!("{block}: {error}")))
        .collect()
}

#[test]
fn examples_of_the_guides_match_their_schemas() {
    let guides = [
        (
            include_str!("../../../docs/guides/platform-api.md"),
            &["ContentRequest", "Outcome", "ActionsRequest"][..],
        ),
        (include_str!("../../../docs/guides/partial-items.md"), &["PartialItemsRequest", "PartialItems"]),
    ];
    for (guide, schemas) in guides {
        let blocks = blocks(guide);
        assert_eq!(blocks.len(), schemas.len(), "each example needs the name of its schema");
        for (block, schema) in blocks.iter().zip(schemas) {
            contract().check(schema, block).unwrap_or_else(|error| panic!("{schema}, {block}: {error}"));
        }
    }
}

#[test]
fn request_for_partial_items_matches_its_schema() {
    let body = partial_items::request(&[ItemKey::new("post", "p-1"), ItemKey::new("user", "u-1")]);
    contract().check("PartialItemsRequest", &serde_json::from_slice(&body).unwrap()).unwrap();
}

/// Bodies that are refused with status 400, by path.
fn invalid_bodies() -> BTreeMap<&'static str, Vec<Value>> {
    let item = json!({"id": "i", "typeId": "t", "data": {}});
    let content = |name: &str, value: Value| {
        let mut body = json!({"contentType": "post", "contentId": "p", "content": {}});
        body[name] = value;
        body
    };
    let action = |name: &str, value: Value| {
        let mut body = json!({"actionId": "a", "itemId": "i", "itemTypeId": "t"});
        body[name] = value;
        body
    };
    BTreeMap::from([
        (
            "/api/v1/content",
            vec![
                json!({}),
                json!([]),
                content("contentType", json!("")),
                content("contentType", json!(null)),
                content("contentId", json!(7)),
                content("content", json!([])),
                content("userId", json!("")),
                content("userId", json!({})),
                content("sync", json!("true")),
            ],
        ),
        (
            "/api/v1/actions",
            vec![
                json!({}),
                json!({"actions": {}}),
                json!({"actions": null, "actionId": "a", "itemId": "i", "itemTypeId": "t"}),
                json!({"actions": [{}]}),
                json!({"actions": ["a"]}),
                action("actionId", json!("")),
                action("itemId", json!(1)),
                action("itemTypeId", json!(null)),
                action("policyIds", json!("scam")),
                action("policyIds", json!([""])),
                action("parameters", json!([])),
                action("note", json!(1)),
                action("actorId", json!("")),
                action("reportedItems", json!([{"id": "i"}])),
            ],
        ),
        (
            "partial items",
            vec![
                json!({}),
                json!(null),
                json!({"items": null}),
                json!({"items": [{"id": "i", "typeId": "t"}]}),
                json!({"items": [{"id": 1, "typeId": "t", "data": {}}]}),
                json!({"items": [{"id": "i", "type": "t", "data": {}}]}),
                json!({"items": [{"id": "i", "typeId": "t", "data": null}]}),
            ],
        ),
        ("/api/v1/items/async", vec![json!({"items": [item, {"id": "i"}]}), json!({"item": []})]),
    ])
}

#[test]
fn refused_bodies_are_refused_by_the_schemas() {
    for (path, bodies) in invalid_bodies() {
        let kind = Body::of(path).unwrap();
        for body in bodies {
            assert!(agreement::is_refused(kind, &body), "{path}: the reader accepts {body}");
            agreement::check(kind, &body);
        }
    }
}

#[test]
fn bodies_with_unknown_members_and_nulls_are_accepted() {
    let action = json!({"actionId": "a", "itemId": "i", "itemTypeId": "t", "policyIds": null, "parameters": null,
        "note": null, "actorId": null, "reportedItems": null, "more": 1, "actions": null});
    let content =
        json!({"contentType": "post", "contentId": "p", "content": {}, "userId": null, "sync": null, "x": 1});
    let item = json!({"id": "i", "type": {"id": "t", "version": null}, "data": {}, "typeId": "u"});
    for (path, body) in [
        ("/api/v1/actions", json!({"actions": [action]})),
        ("/api/v1/content", content),
        ("partial items", json!({"items": [item], "more": []})),
    ] {
        let kind = Body::of(path).unwrap();
        assert!(!agreement::is_refused(kind, &body), "{path}: the reader refuses {body}");
        agreement::check(kind, &body);
    }
}

#[test]
fn error_matches_its_schema() {
    let error = json!({"status": 400, "type": [tag::INVALID_INPUT], "title": "t", "detail": "d", "pointer": "/items",
        "requestId": "r"});
    let mut problem = json!({"type": "about:blank", "title": "t", "status": 400, "detail": "d", "instance": "/docs",
        "errors": [error]});
    contract().check("Problem", &problem).unwrap();
    problem["errors"] = json!([]);
    assert!(contract().check("Problem", &problem).is_err());
}
