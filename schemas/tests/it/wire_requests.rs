//! Requests of a platform: every field is read, and every error has a pointer.

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_schemas::{
    ids::{ItemKey, Millis},
    item_types::Mode,
    json as scanned,
    records::Variant,
    validation_error::ValidationError,
    wire::{Limits, answers, policies},
};

/// Defines readers that also check each request of these tests against the published schemas.
macro_rules! held_to_its_schema {
    ($($module:ident: $content:ty = $kind:ident),+) => {$(
        mod $module {
            pub(super) use tidegate_schemas::wire::$module::*;
            use tidegate_schemas::wire::{Limits, RequestRejection, Request};

            use crate::agreement::{Body, check_parsed};

            pub(super) fn parse(body: &bytes::Bytes, limits: &Limits) -> Result<Request<$content>, RequestRejection> {
                check_parsed(Body::$kind, body, tidegate_schemas::wire::$module::parse(body, limits))
            }
        }
    )+};
}

held_to_its_schema! {
    items: Vec<SubmittedItem> = Items,
    reports: ReportRequest = Report,
    appeals: AppealRequest = Appeal
}

fn body(value: &Value) -> Bytes {
    Bytes::from(serde_json::to_vec(value).unwrap())
}

fn limits() -> Limits {
    Limits::default()
}

fn places(errors: &[ValidationError]) -> Vec<&str> {
    errors.iter().map(|fault| fault.pointer.as_deref().unwrap_or_default()).collect()
}

fn item(n: u32) -> Value {
    json!({
        "id": format!("id-{n}"), "typeId": format!("type-{n}"), "data": {"images": [format!("https://a.example/{n}")]},
        "typeVersion": format!("version-{n}"), "typeSchemaVariant": if n.is_multiple_of(2) { "original" } else { "partial" },
    })
}

fn assert_item(item: &items::SubmittedItem, n: u32) {
    assert_eq!(item.key(), ItemKey::new(format!("type-{n}"), format!("id-{n}")));
    assert_eq!(item.type_version, Some(format!("version-{n}")));
    assert_eq!(item.variant, if n.is_multiple_of(2) { Variant::Original } else { Variant::Partial });
    assert_eq!(item.mode(), if n.is_multiple_of(2) { Mode::Strict } else { Mode::Partial });
    assert_eq!(item.data, format!("{{\"images\":[\"https://a.example/{n}\"]}}"));
}

fn assert_context(entry: &items::ContextItem, n: u32) {
    assert_eq!((entry.id.as_str(), entry.type_id.as_str()), (&*format!("id-{n}"), &*format!("type-{n}")));
    assert_eq!(entry.type_version, Some(format!("version-{n}")));
    assert_eq!(entry.variant, if n.is_multiple_of(2) { Variant::Original } else { Variant::Partial });
    assert_eq!(entry.data, format!("{{\"images\":[\"https://a.example/{n}\"]}}"));
    assert_eq!(entry.fault, None);
}

fn report() -> Value {
    json!({
        "reporter": {"kind": "user", "id": "reporter-id", "typeId": "reporter-type"},
        "reportedAt": "2026-01-02T03:04:05.006Z",
        "reportedItem": item(2),
        "reportedForReason": {"policyId": "policy-1", "reason": "the reason", "csam": true},
        "reportedItemThread": [item(3), item(4)],
        "reportedItemsInThread": [{"id": "marked-id", "typeId": "marked-type"}],
        "additionalItems": [item(5)],
    })
}

fn appeal() -> Value {
    json!({
        "appealId": "appeal-1",
        "appealedBy": {"id": "appealer-id", "typeId": "appealer-type"},
        "appealedAt": "2026-02-03T04:05:06.007Z",
        "actionedItem": item(6),
        "actionsTaken": ["action-1", "action-2"],
        "appealReason": "the appeal's reason",
        "violatingPolicies": [{"id": "policy-2", "name": "ignored"}, {"id": "policy-3"}],
        "additionalItems": [item(7), item(8)],
    })
}

#[test]
fn every_field_of_a_request_is_read() {
    let request_body = body(&json!({"items": [item(0), item(1)], "more": {"is": "ignored"}}));
    let request = items::parse(&request_body, &limits()).unwrap();
    assert_eq!(request.content.len(), 2);
    for (n, item) in (0..).zip(&request.content) {
        assert_item(item, n);
        assert_eq!(item.data_in(request.root()).raw(), &item.data[..]);
        // A slice, not a copy.
        assert!(request_body.as_ptr_range().contains(&item.data.as_ptr()));
    }

    let request = reports::parse(&body(&report()), &limits()).unwrap();
    let report = &request.content;
    assert_eq!(report.reporter, ItemKey::new("reporter-type", "reporter-id"));
    assert_eq!(report.reported_at, Millis(1_767_323_045_006));
    assert_item(&report.item, 2);
    assert_eq!(report.policy_id.as_deref(), Some("policy-1"));
    assert_eq!(report.reason.as_deref(), Some("the reason"));
    assert!(report.csam);
    assert_eq!((report.thread.len(), report.additional.len()), (2, 1));
    assert_context(&report.thread[0], 3);
    assert_context(&report.thread[1], 4);
    assert_context(&report.additional[0], 5);
    assert_eq!(report.additional[0].data_in(request.root()).unwrap().raw(), &report.additional[0].data[..]);
    assert_eq!(report.reported_in_thread, [ItemKey::new("marked-type", "marked-id")]);

    let request = appeals::parse(&body(&appeal()), &limits()).unwrap();
    let appeal = &request.content;
    assert_eq!(appeal.appeal_id.as_str(), "appeal-1");
    assert_eq!(appeal.appealed_by, ItemKey::new("appealer-type", "appealer-id"));
    assert_eq!(appeal.appealed_at, Millis(1_770_091_506_007));
    assert_item(&appeal.item, 6);
    assert_eq!(appeal.actions_taken, ["action-1", "action-2"]);
    assert_eq!(appeal.reason.as_deref(), Some("the appeal's reason"));
    assert_eq!(appeal.violating_policies, ["policy-2", "policy-3"]);
    assert_context(&appeal.additional[0], 7);
    assert_context(&appeal.additional[1], 8);
}

#[test]
fn optional_members_may_be_absent_or_null() {
    let bare = json!({"id": "i", "typeId": "t", "data": {}});
    let request = items::parse(&body(&json!({"items": [bare]})), &limits()).unwrap();
    assert_eq!(request.content[0].variant, Variant::Original);
    assert_eq!(request.content[0].type_version, None);
    assert!(items::parse(&body(&json!({"items": []})), &limits()).unwrap().content.is_empty());

    let reporter = json!({"kind": "user", "id": "u", "typeId": "t"});
    let minimal_report =
        json!({"reporter": reporter, "reportedAt": "2026-01-02T03:04:05Z", "reportedItem": bare});
    assert!(reports::parse(&body(&minimal_report), &limits()).is_ok());
    let mut nulls = minimal_report;
    for key in ["reportedForReason", "reportedItemThread", "reportedItemsInThread", "additionalItems"] {
        nulls[key] = Value::Null;
    }
    assert!(reports::parse(&body(&nulls), &limits()).is_ok());
    nulls["reportedForReason"] = json!({"policyId": null, "reason": null, "csam": null});
    assert!(!reports::parse(&body(&nulls), &limits()).unwrap().content.csam);

    let minimal_appeal = json!({"appealId": "a", "appealedBy": {"id": "u", "typeId": "t"}, "appealedAt": "2026-01-02T03:04Z",
        "actionedItem": bare, "actionsTaken": []});
    assert!(appeals::parse(&body(&minimal_appeal), &limits()).is_ok());
}

#[test]
fn nested_type_equals_flat_type_and_yields_to_type_id() {
    let nested =
        json!({"id": "i", "type": {"id": "t", "version": "v", "schemaVariant": "partial"}, "data": {"a": 1}});
    let request = items::parse(&body(&json!({"items": [nested]})), &limits()).unwrap();
    let item = &request.content[0];
    assert_eq!(item.key(), ItemKey::new("t", "i"));
    assert_eq!((item.type_version.as_deref(), item.variant), (Some("v"), Variant::Partial));

    for beside in [json!({"id": "other", "version": 5}), json!("t"), json!(null)] {
        let flat = json!({"type": beside, "id": "i", "typeVersion": "v", "typeId": "t", "data": {}});
        let request = items::parse(&body(&json!({"items": [flat]})), &limits()).unwrap();
        let item = &request.content[0];
        assert_eq!((item.type_id.as_str(), item.type_version.as_deref()), ("t", Some("v")));
        assert_eq!(item.variant, Variant::Original);
    }
    for (flat, value) in [("typeVersion", "v"), ("typeSchemaVariant", "partial")] {
        let mut both = json!({"id": "i", "type": {"id": "t"}, "data": {}});
        both[flat] = value.into();
        let errors = items::parse(&body(&json!({"items": [both]})), &limits()).unwrap_err().into_vec();
        assert_eq!(places(&errors), ["/items/0"]);
        assert!(errors[0].detail.contains("Send `typeId` instead"));
    }
    let wrong = json!({"items": [
        {"id": "i", "type": "t", "data": {}},
        {"id": "i", "type": {"version": 5, "schemaVariant": "origninal"}, "data": {}},
    ]});
    let errors = items::parse(&body(&wrong), &limits()).unwrap_err().into_vec();
    assert_eq!(
        places(&errors),
        ["/items/0/type", "/items/1/type/schemaVariant", "/items/1/type/version", "/items/1/type/id"]
    );
    assert!(errors[1].detail.ends_with("Did you mean `original`?"));
}

#[test]
fn every_error_of_a_batch_has_a_pointer() {
    let long = "x".repeat(513);
    let wrong = json!({"items": [
        {"id": "i", "typeId": "t", "data": {}},
        {"id": 7, "typeId": "", "data": []},
        {},
        "item",
        {"id": long, "typeId": "t", "data": {}, "typeVersion": 3, "typeSchemaVariant": "whole"},
        {"id": "i", "typeId": "t", "data": null},
    ]});
    let errors = items::parse(&body(&wrong), &limits()).unwrap_err().into_vec();
    let mut at = places(&errors);
    at.sort_unstable();
    assert_eq!(
        at,
        [
            "/items/1/data",
            "/items/1/id",
            "/items/1/typeId",
            "/items/2/data",
            "/items/2/id",
            "/items/2/typeId",
            "/items/3",
            "/items/4/id",
            "/items/4/typeSchemaVariant",
            "/items/4/typeVersion",
            "/items/5/data",
        ]
    );
    assert!(errors.iter().all(|fault| fault.status == 400));
    for (wrong, at) in [
        (json!({}), "/items"),
        (json!({"items": {}}), "/items"),
        (json!({"items": null}), "/items"),
        (json!([]), ""),
    ] {
        let errors = items::parse(&body(&wrong), &limits()).unwrap_err().into_vec();
        assert_eq!(places(&errors), [at], "{wrong}");
    }
    let empty_items: Vec<Value> = (0..60).map(|_| json!({})).collect();
    let errors = items::parse(&body(&json!({"items": empty_items})), &limits()).unwrap_err().into_vec();
    assert_eq!(errors.len(), 101);
    assert!(errors[100].detail.contains("80 more"));
}

#[test]
fn limits_apply_to_items_data_and_ids() {
    let one = json!({"id": "i", "typeId": "t", "data": {"a": "xxxxxxxx"}});
    let batch = |count: usize| body(&json!({"items": vec![one.clone(); count]}));
    assert!(items::parse(&batch(1000), &limits()).is_ok());
    let errors = items::parse(&batch(1001), &limits()).unwrap_err().into_vec();
    assert_eq!((places(&errors), errors[0].status), (vec!["/items"], 400));
    let small = Limits { data_bytes: 15, id_bytes: 1, ..limits() };
    let errors = items::parse(&batch(1), &small).unwrap_err().into_vec();
    assert_eq!((places(&errors), errors[0].status), (vec!["/items/0/data"], 413));
    assert!(items::parse(&batch(1), &Limits { data_bytes: 16, ..small.clone() }).is_ok());
    let both = body(&json!({"items": [{"id": 1, "typeId": "t", "data": {"a": "xxxxxxxx"}}]}));
    let errors = items::parse(&both, &small).unwrap_err().into_vec();
    assert_eq!(places(&errors), ["/items/0/data", "/items/0/id"]);
    let mut wide = report();
    wide["reportedItemThread"] = vec![item(1); 1_001].into();
    assert_eq!(
        places(&reports::parse(&body(&wide), &limits()).unwrap_err().into_vec()),
        ["/reportedItemThread"]
    );
    assert_eq!(limits().validate(), Ok(()));
    assert!(Limits { items: 0, ..limits() }.validate().is_err());
    assert!(Limits { data_bytes: 9 << 20, ..limits() }.validate().is_err());
    assert!(serde_json::from_str::<Limits>(r#"{"itmes": 5}"#).is_err());
    assert_eq!(serde_json::from_str::<Limits>(r#"{"items": 5}"#).unwrap(), Limits { items: 5, ..limits() });
}

/// Field of the body, an invalid value for it, and the pointers of the errors.
type InvalidField = (&'static str, Value, &'static [&'static str]);

#[test]
fn each_wrong_field_of_a_report_has_a_pointer() {
    let cases: Vec<InvalidField> = vec![
        ("/reporter", json!("u"), &["/reporter"]),
        ("/reporter/kind", json!("rule"), &["/reporter/kind"]),
        ("/reporter/kind", json!(1), &["/reporter/kind"]),
        ("/reporter/id", json!(""), &["/reporter/id"]),
        ("/reporter/typeId", json!(null), &["/reporter/typeId"]),
        ("/reportedAt", json!("yesterday"), &["/reportedAt"]),
        ("/reportedAt", json!(5), &["/reportedAt"]),
        ("/reportedItem", json!(null), &["/reportedItem"]),
        ("/reportedItem/data", json!("x"), &["/reportedItem/data"]),
        ("/reportedItem/id", json!({}), &["/reportedItem/id"]),
        ("/reportedForReason", json!("spam"), &["/reportedForReason"]),
        ("/reportedForReason/csam", json!("true"), &["/reportedForReason/csam"]),
        ("/reportedForReason/reason", json!(7), &["/reportedForReason/reason"]),
        ("/reportedForReason/policyId", json!(7), &["/reportedForReason/policyId"]),
        ("/reportedItemThread", json!({}), &["/reportedItemThread"]),
        ("/reportedItemThread/1", json!("x"), &["/reportedItemThread/1"]),
        ("/reportedItemsInThread/0", json!("x"), &["/reportedItemsInThread/0"]),
        (
            "/reportedItemsInThread/0",
            json!({}),
            &["/reportedItemsInThread/0/id", "/reportedItemsInThread/0/typeId"],
        ),
        ("/additionalItems", json!("x"), &["/additionalItems"]),
    ];
    for (place, value, expected) in cases {
        let mut spoiled = report();
        *spoiled.pointer_mut(place).unwrap() = value;
        let errors = reports::parse(&body(&spoiled), &limits()).unwrap_err().into_vec();
        assert_eq!(places(&errors), expected, "{place}");
    }
    let errors = reports::parse(&body(&json!({})), &limits()).unwrap_err().into_vec();
    assert_eq!(places(&errors), ["/reporter", "/reportedAt", "/reportedItem"]);
}

#[test]
fn each_wrong_field_of_an_appeal_has_a_pointer() {
    let cases: Vec<InvalidField> = vec![
        ("/appealId", json!(""), &["/appealId"]),
        ("/appealId", json!(5), &["/appealId"]),
        ("/appealedBy", json!("u"), &["/appealedBy"]),
        ("/appealedBy/id", json!(5), &["/appealedBy/id"]),
        ("/appealedAt", json!("2026-01"), &["/appealedAt"]),
        ("/actionedItem/typeId", json!(""), &["/actionedItem/typeId"]),
        ("/actionsTaken", json!(null), &["/actionsTaken"]),
        ("/actionsTaken/1", json!(5), &["/actionsTaken/1"]),
        ("/actionsTaken/1", json!(""), &["/actionsTaken/1"]),
        ("/appealReason", json!([]), &["/appealReason"]),
        ("/violatingPolicies/0", json!("p"), &["/violatingPolicies/0"]),
        ("/violatingPolicies/0/id", json!(1), &["/violatingPolicies/0/id"]),
        ("/additionalItems/1", json!(null), &["/additionalItems/1"]),
    ];
    for (place, value, expected) in cases {
        let mut spoiled = appeal();
        *spoiled.pointer_mut(place).unwrap() = value;
        let errors = appeals::parse(&body(&spoiled), &limits()).unwrap_err().into_vec();
        assert_eq!(places(&errors), expected, "{place}");
    }
    let errors = appeals::parse(&body(&json!({})), &limits()).unwrap_err().into_vec();
    assert_eq!(
        places(&errors),
        ["/appealId", "/appealedBy", "/appealedAt", "/actionedItem", "/actionsTaken"]
    );
}

#[test]
fn incomplete_thread_entry_is_kept_and_marked() {
    let mut lax = report();
    lax["reportedItemThread"] = json!([{"id": "a"}, {}, {"id": 5, "typeId": "t", "data": {"k": 1}}, {"id": "b", "typeId": "t", "data": [1]}]);
    let request = reports::parse(&body(&lax), &limits()).unwrap();
    let thread = &request.content.thread;
    assert_eq!(thread.len(), 4);
    assert_eq!((thread[0].id.as_str(), &thread[0].data[..]), ("a", &b"{}"[..]));
    assert_eq!(thread[0].fault.as_deref(), Some("`typeId` is missing. `data` is missing."));
    assert!(thread[1].fault.is_some() && thread[1].id.as_str().is_empty());
    assert_eq!((thread[2].type_id.as_str(), &thread[2].data[..]), ("t", &b"{\"k\":1}"[..]));
    assert_eq!(thread[2].fault.as_deref(), Some("`id` must be a string, not a number."));
    assert_eq!(&thread[3].data[..], b"[1]");
    assert!(thread[3].fault.as_deref().unwrap().contains("`data` must be an object"));
    let as_sent: Vec<_> = thread.iter().map(|item| item.as_sent.as_deref()).collect();
    assert_eq!(as_sent, [None, None, Some(&b"{\"id\":5}"[..]), None]);

    lax["reportedItemThread"] = json!([{"id": "x".repeat(600), "data": {}}]);
    let small = Limits { data_bytes: 605, ..limits() };
    let errors = reports::parse(&body(&lax), &small).unwrap_err().into_vec();
    assert_eq!((places(&errors), errors[0].status), (vec!["/reportedItemThread/0"], 413));

    lax["reportedItemThread"] = json!([{"data": {"a": "x".repeat(100)}}]);
    let small = Limits { data_bytes: 60, ..limits() };
    let errors = reports::parse(&body(&lax), &small).unwrap_err().into_vec();
    assert_eq!((places(&errors), errors[0].status), (vec!["/reportedItemThread/0/data"], 413));
}

#[test]
fn syntax_errors_precede_schema_errors() {
    let errors = items::parse(&Bytes::from_static(b"{\"items\":[{\"id\":1,\"id\":2}"), &limits())
        .unwrap_err()
        .into_vec();
    assert_eq!(errors.len(), 2);
    assert_eq!((errors[0].title, errors[1].title), ("Duplicate key", "Malformed JSON"));
    assert!(items::parse(&Bytes::new(), &limits()).is_err());
}

#[test]
fn errors_contain_no_values_of_data() {
    let wrong = r#"{"items":[{"id":"i","typeId":"t","data":"secret"},{"id":"i","typeId":"t","data":{"a":"secret","a":"secret","b":"\ud800secret"}}]}"#;
    let errors = items::parse(&Bytes::from_static(wrong.as_bytes()), &limits()).unwrap_err().into_vec();
    assert!(!format!("{errors:?}").contains("secret"), "{errors:?}");
}

#[test]
fn every_prefix_of_a_request_is_refused_without_a_panic() {
    for request in [body(&json!({"items": [item(0)]})), body(&report()), body(&appeal())] {
        for end in 0..request.len() {
            let part = request.slice(..end);
            assert!(items::parse(&part, &limits()).is_err());
            assert!(reports::parse(&part, &limits()).is_err());
            assert!(appeals::parse(&part, &limits()).is_err());
        }
    }
}

#[test]
fn appeal_digest_is_independent_of_notation() {
    let first = appeals::parse(&body(&appeal()), &limits()).unwrap().root().digest();
    let pretty = Bytes::from(serde_json::to_vec_pretty(&appeal()).unwrap());
    assert_eq!(appeals::parse(&pretty, &limits()).unwrap().root().digest(), first);
    let mut changed_appeal = appeal();
    changed_appeal["appealReason"] = json!("another");
    assert_ne!(appeals::parse(&body(&changed_appeal), &limits()).unwrap().root().digest(), first);
}

#[test]
fn responses_have_the_member_names_of_the_api() {
    let list = policies::Policies {
        policies: vec![policies::Policy { id: "p".into(), name: "P".into(), parent_id: None }],
    };
    assert_eq!(
        serde_json::to_value(&list).unwrap(),
        json!({"policies": [{"id": "p", "name": "P", "parentId": null}]})
    );

    let id = uuid(1);
    let accepted = answers::Submissions {
        submissions: vec![answers::Submission {
            id: "i".into(),
            type_id: "t".into(),
            submission_id: id.into(),
        }],
    };
    let expected_submissions =
        json!({"submissions": [{"id": "i", "typeId": "t", "submissionId": id.to_string()}]});
    assert_eq!(serde_json::to_value(&accepted).unwrap(), expected_submissions);
    let created = serde_json::to_value(answers::ReportCreated { report_id: id.into() }).unwrap();
    assert_eq!(created, json!({"reportId": id.to_string()}));

    let item = answers::Item {
        id: "i".into(),
        type_id: "t".into(),
        submission_id: id.into(),
        state: answers::ItemState::Evaluated,
        type_version: Some("v".into()),
        type_schema_variant: Variant::Partial.into(),
        data: serde_json::from_str("{ \"a\" : 1.50 }").unwrap(),
        matched_rules: vec![answers::MatchedRule { id: "r".into(), name: "R".into() }],
        actions: vec![answers::TakenAction { id: "a".into() }],
        media: vec![],
        deliveries: vec![answers::Delivery { event_id: uuid(2).into(), state: "delivered".into() }],
    };
    let text = serde_json::to_string(&item).unwrap();
    assert!(text.contains(r#""data":{ "a" : 1.50 }"#), "data keeps the client's bytes: {text}");
    let expected_item = json!({
        "id": "i", "typeId": "t", "submissionId": id.to_string(), "state": "evaluated", "typeVersion": "v",
        "typeSchemaVariant": "partial", "data": {"a": 1}, "matchedRules": [{"id": "r", "name": "R"}], "actions": [{"id": "a"}],
        "media": [], "deliveries": [{"eventId": uuid(2).to_string(), "state": "delivered"}],
    });
    let mut item_json: Value = serde_json::from_str(&text).unwrap();
    item_json["data"] = json!({"a": 1});
    assert_eq!(item_json, expected_item);
}

fn uuid(n: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(n)
}

#[test]
fn scan_of_data_alone_agrees_with_scan_of_request() {
    let request = items::parse(&body(&json!({"items": [item(0)]})), &limits()).unwrap();
    let item = &request.content[0];
    let data_tape = scanned::scan(&item.data).unwrap();
    assert_eq!(data_tape.root(&item.data).digest(), item.data_in(request.root()).digest());
}
