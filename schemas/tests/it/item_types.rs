//! Item types against data: every scalar's accepted and refused forms, containers, roles, partial data.

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_schemas::{
    documents::{self, FieldDocument},
    ids::{ItemKey, Millis, TypeId},
    item_types::{Container, ItemType, Kind, Mode, Number, Role, Scalar, Value, Values},
    json,
    validation_error::{Pointer, ValidationError, ValidationErrors, tag},
};

fn compile(yaml: &str) -> ItemType {
    let parsed = documents::parse(&[("type.yaml", yaml)]).unwrap_or_else(|faults| panic!("{faults:?}"));
    let documents::Document::ItemType(document) = &parsed[0].1 else { panic!("no item type") };
    let types: Arc<[TypeId]> = [TypeId::new("post"), TypeId::new("user"), TypeId::new("thread")].into();
    ItemType::compile(document, "7", &types)
}

fn one_field(scalar: Scalar, container: Option<Container>, strict: bool) -> ItemType {
    let field = FieldDocument { name: "f".into(), scalar, required: false, container, role: None };
    let document = documents::ItemType {
        key: "t".into(),
        name: None,
        kind: Kind::Content,
        fields: vec![field],
        strict,
        version: None,
        earlier_versions: Vec::new(),
    };
    ItemType::compile(&document, "1", &[TypeId::new("user")].into())
}

/// Checks data in both ways: with and without its values, the errors must be the same.
fn check(item_type: &ItemType, data: &str, mode: Mode) -> Result<Values, Vec<ValidationError>> {
    let base = Pointer::Text("/items/3/data");
    let result = item_type.check(data.as_bytes(), mode, &base);
    if let Ok(tape) = json::scan(data.as_bytes()) {
        let mut faults = ValidationErrors::default();
        item_type.check_scanned(tape.root(data.as_bytes()), mode, &base, &mut faults);
        assert_eq!(result.as_ref().err(), faults.or(Some(())).err().as_ref());
    }
    result
}

/// Scalar, value in JSON, and its lenient and strict reading. `None`: refused, `Some(None)`: absent.
type Row = (Scalar, &'static str, Option<Option<Value>>, Option<Option<Value>>);

fn text(value: &str) -> Option<Option<Value>> {
    Some(Some(Value::Text(value.into())))
}

fn value(value: Value) -> Option<Option<Value>> {
    Some(Some(value))
}

const ABSENT: Option<Option<Value>> = Some(None);
const REFUSED: Option<Option<Value>> = None;

#[allow(clippy::too_many_lines, reason = "a table")]
fn coercions() -> Vec<Row> {
    let int = |n| value(Value::Number(Number::Int(n)));
    let float = |n| value(Value::Number(Number::Float(n)));
    let yes = || value(Value::Bool(true));
    let no = || value(Value::Bool(false));
    let url = |s: &str| value(Value::Url(s.into()));
    let media = |s: &str| value(Value::Media(s.into()));
    let at = |ms| value(Value::DateTime(Millis(ms)));
    let geo = |s: &str| value(Value::Geohash(s.into()));
    let user = |id: &str| value(Value::Related(ItemKey::new("user", id)));
    use Scalar as S;
    let mut rows = vec![
        (S::String, r#""hi""#, text("hi"), text("hi")),
        (S::String, r#""""#, text(""), text("")),
        (S::String, r#""a\u00e9\n\ud83d\ude00\/""#, text("aé\n😀/"), text("aé\n😀/")),
        (S::String, "5", REFUSED, REFUSED),
        (S::String, "true", REFUSED, REFUSED),
        (S::String, "[]", REFUSED, REFUSED),
        (S::String, "{}", REFUSED, REFUSED),
        (S::Number, "5", int(5), int(5)),
        (S::Number, "18446744073709551615", int(u64::MAX.into()), int(u64::MAX.into())),
        (S::Number, "-9223372036854775809", int(i128::from(i64::MIN) - 1), int(i128::from(i64::MIN) - 1)),
        (S::Number, "-0.5", float(-0.5), float(-0.5)),
        (S::Number, "9223372036854775807", int(i64::MAX.into()), int(i64::MAX.into())),
        (
            S::Number,
            "170141183460469231731687303715884105728",
            float(1.701_411_834_604_692_3e38),
            float(1.701_411_834_604_692_3e38),
        ),
        (S::Number, "1e3", float(1000.0), float(1000.0)),
        (S::Number, "1e999", REFUSED, REFUSED),
        (S::Number, r#""42""#, int(42), REFUSED),
        (S::Number, r#"" 4.25 ""#, float(4.25), REFUSED),
        (S::Number, r#""""#, ABSENT, REFUSED),
        (S::Number, r#""  ""#, ABSENT, REFUSED),
        (S::Number, r#""NaN""#, REFUSED, REFUSED),
        (S::Number, r#""inf""#, REFUSED, REFUSED),
        (S::Number, r#""0x10""#, REFUSED, REFUSED),
        (S::Number, r#""1e999""#, REFUSED, REFUSED),
        (S::Number, "true", REFUSED, REFUSED),
        (S::Boolean, "true", yes(), yes()),
        (S::Boolean, "false", no(), no()),
        (S::Boolean, r#""true""#, yes(), REFUSED),
        (S::Boolean, r#""false""#, no(), REFUSED),
        (S::Boolean, r#""1""#, yes(), REFUSED),
        (S::Boolean, r#""0""#, no(), REFUSED),
        (S::Boolean, "1", yes(), REFUSED),
        (S::Boolean, "0", no(), REFUSED),
        (S::Boolean, "2", REFUSED, REFUSED),
        (S::Boolean, r#""True""#, yes(), REFUSED),
        (S::Boolean, r#""FALSE""#, no(), REFUSED),
        (S::Boolean, r#""yes""#, REFUSED, REFUSED),
        (S::Boolean, r#""""#, REFUSED, REFUSED),
        (
            S::Url,
            r#""https://a.example/x?y#z""#,
            url("https://a.example/x?y#z"),
            url("https://a.example/x?y#z"),
        ),
        (S::Url, r#""""#, ABSENT, REFUSED),
        (S::Url, r#""ftp://a.example""#, REFUSED, REFUSED),
        (S::Url, r#""javascript:alert(1)""#, REFUSED, REFUSED),
        (S::Url, r#""a.example/x""#, REFUSED, REFUSED),
        (S::Url, r#""//a.example/x""#, REFUSED, REFUSED),
        (S::Url, r#""https://""#, REFUSED, REFUSED),
        (S::Url, "1", REFUSED, REFUSED),
        (S::Datetime, r#""1970-01-01T00:00:01.000Z""#, at(1000), at(1000)),
        (S::Datetime, r#""1970-01-01T00:00:01Z""#, at(1000), REFUSED),
        (S::Datetime, r#""1970-01-01T01:00:01+01:00""#, at(1000), REFUSED),
        (S::Datetime, r#""1970-01-01T00:00:01""#, at(1000), REFUSED),
        (S::Datetime, r#""1970-01-01""#, REFUSED, REFUSED),
        (S::Datetime, r#""Thu, 01 Jan 1970 00:00:01 GMT""#, REFUSED, REFUSED),
        (S::Datetime, r#""""#, ABSENT, REFUSED),
        (S::Datetime, r#"" ""#, ABSENT, REFUSED),
        (S::Datetime, "1000", REFUSED, REFUSED),
        (S::Geohash, r#""u4pruydqqvj""#, geo("u4pruydqqvj"), geo("u4pruydqqvj")),
        (S::Geohash, r#""U4PRU""#, geo("u4pru"), REFUSED),
        (S::Geohash, r#""u4pruydqqvj8zz""#, geo("u4pruydqqvj8"), REFUSED),
        (S::Geohash, r#""u4pruydqqvj8a""#, REFUSED, REFUSED),
        (S::Geohash, r#""""#, ABSENT, REFUSED),
        (S::Geohash, r#""aaa""#, REFUSED, REFUSED),
        (S::RelatedItem, r#"{"id":"u1","typeId":"user"}"#, user("u1"), user("u1")),
        (S::RelatedItem, r#"{"id":"u1","typeId":"user","name":"x"}"#, user("u1"), user("u1")),
        (S::RelatedItem, r#"{"id":7,"typeId":"user"}"#, user("7"), REFUSED),
        (S::RelatedItem, r#"{"id":"","typeId":"user"}"#, REFUSED, REFUSED),
        (S::RelatedItem, r#"{"id":"u1"}"#, REFUSED, REFUSED),
        (S::RelatedItem, r#"{"id":"u1","typeId":"alien"}"#, REFUSED, REFUSED),
        (S::RelatedItem, r#""u1""#, REFUSED, REFUSED),
        (S::IpAddress, r#""203.0.113.7""#, text("203.0.113.7"), text("203.0.113.7")),
        (S::IpAddress, r#"" 2001:db8::1 ""#, text("2001:db8::1"), REFUSED),
        (S::IpAddress, r#""203.0.113""#, REFUSED, REFUSED),
        (S::IpAddress, r#""fe80::1%eth0""#, text("fe80::1"), REFUSED),
        (S::IpAddress, r#""fe80::1%""#, REFUSED, REFUSED),
        (S::IpAddress, r#""203.0.113.7%eth0""#, REFUSED, REFUSED),
        (S::IpAddress, r#""""#, ABSENT, REFUSED),
        (S::IpAddress, r#""  ""#, ABSENT, REFUSED),
        (S::EmailAddress, r#"" a@b.example ""#, text("a@b.example"), text(" a@b.example ")),
        (S::EmailAddress, r#""""#, ABSENT, text("")),
        (S::EmailAddress, "1", REFUSED, REFUSED),
        (S::UserId, r#"{"id":"u1","typeId":"anything"}"#, text("u1"), REFUSED),
        (S::UserId, r#"{"id":7,"typeId":"user"}"#, text("7"), REFUSED),
        (S::UserId, r#"{"id":"","typeId":"user"}"#, REFUSED, REFUSED),
        (S::UserId, r#"{"id":"u1"}"#, REFUSED, REFUSED),
        (S::PolicyId, r#"{"id":"p1","typeId":"user"}"#, REFUSED, REFUSED),
    ];
    for scalar in [S::Id, S::UserId, S::PolicyId] {
        rows.push((scalar, r#""a7""#, text("a7"), text("a7")));
        rows.push((scalar, "7", text("7"), REFUSED));
        rows.push((scalar, "12345678901234567890", text("12345678901234567890"), REFUSED));
        rows.push((scalar, "true", REFUSED, REFUSED));
    }
    for scalar in [S::Audio, S::Image, S::Video, S::Media] {
        rows.push((
            scalar,
            r#""http://a.example/m""#,
            media("http://a.example/m"),
            media("http://a.example/m"),
        ));
        rows.push((scalar, r#"{"url":"http://a.example/m"}"#, media("http://a.example/m"), REFUSED));
        rows.push((scalar, r#""""#, ABSENT, REFUSED));
        rows.push((scalar, r#""data:image/png;base64,x""#, REFUSED, REFUSED));
        rows.push((scalar, "[]", REFUSED, REFUSED));
    }
    for scalar in S::ALL {
        rows.push((scalar, "null", ABSENT, REFUSED));
    }
    rows
}

#[test]
fn strict_types_accept_exact_forms_only() {
    let rows = coercions();
    assert!(Scalar::ALL.iter().all(|scalar| rows.iter().filter(|row| row.0 == *scalar).count() >= 3));
    for (scalar, json, lenient, exact) in rows {
        for (strict, expected) in [(false, lenient), (true, exact)] {
            let item_type = one_field(scalar, None, strict);
            let result = check(&item_type, &format!(r#"{{"f":{json}}}"#), Mode::Strict);
            let result = result.map(|values| values.field("f").cloned()).map_err(|faults| {
                for fault in faults {
                    assert!(fault.pointer.as_deref().unwrap().starts_with("/items/3/data/f"), "{fault:?}");
                    assert_eq!(fault.status, 400);
                    assert_eq!(fault.tags, [tag::DATA_INVALID, tag::INVALID_INPUT]);
                }
            });
            assert_eq!(result.ok(), expected, "{} of {json}, strict: {strict}", scalar.name());
        }
    }
}

#[test]
fn arrays_drop_nulls_and_report_every_invalid_member() {
    let numbers = one_field(Scalar::Number, Some(Container::Array), false);
    let values = check(&numbers, r#"{"f":[1,null,"2",3.5]}"#, Mode::Strict).unwrap();
    let expected_numbers = [Number::Int(1), Number::Int(2), Number::Float(3.5)].map(Value::Number);
    assert_eq!(values.field("f"), Some(&Value::List(expected_numbers.into())));
    let faults = check(&numbers, r#"{"f":[1,"x",2,true]}"#, Mode::Strict).unwrap_err();
    let pointers: Vec<_> = faults.iter().map(|fault| fault.pointer.as_deref().unwrap()).collect();
    assert_eq!(pointers, ["/items/3/data/f/1", "/items/3/data/f/3"]);
    assert!(check(&numbers, r#"{"f":1}"#, Mode::Strict).is_err());
    assert!(
        check(&one_field(Scalar::Number, Some(Container::Array), true), r#"{"f":[null]}"#, Mode::Strict)
            .is_err()
    );
}

#[test]
fn maps_keep_client_order_and_escape_keys_in_pointers() {
    let map = one_field(Scalar::String, Some(Container::Map), false);
    let values = check(&map, r#"{"f":{"z":"1","a.b":"2","n":null}}"#, Mode::Strict).unwrap();
    let entry = |key: &str, value: &str| (key.to_owned(), Value::Text(value.to_owned()));
    assert_eq!(values.field("f"), Some(&Value::Map(vec![entry("z", "1"), entry("a.b", "2")])));
    assert_eq!(values.get("f.a.b").as_deref(), Some(&Value::Text("2".into())));
    let faults = check(&map, r#"{"f":{"a/b":1}}"#, Mode::Strict).unwrap_err();
    assert_eq!(faults[0].pointer.as_deref(), Some("/items/3/data/f/a~1b"));
}

const POST: &str = "
item_type: post
kind: CONTENT
fields:
  - {name: text, type: STRING, required: true}
  - {name: author, type: RELATED_ITEM, role: creator}
  - {name: thread, type: RELATED_ITEM, role: thread}
  - {name: parent, type: RELATED_ITEM, role: parent}
  - {name: createdAt, type: DATETIME, role: createdAt}
  - {name: cover, type: VIDEO}
  - {name: sounds, type: AUDIO, container: MAP}
";

#[test]
fn missing_field_error_suggests_a_similar_sent_name() {
    let post = compile(POST);
    let faults = check(&post, r#"{"txet":"hello"}"#, Mode::Strict).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].pointer.as_deref(), Some("/items/3/data/text"));
    assert_eq!(
        faults[0].detail,
        "The required field `text` is missing. Did you mean `text` instead of `txet`?"
    );
    assert_eq!(faults[0].title, "Invalid Data for Item");
    assert!(check(&post, r#"{"text":null}"#, Mode::Strict).is_err(), "null is absent");
}

#[test]
fn partial_data_may_lack_fields_but_values_are_validated() {
    let post = compile(POST);
    assert!(check(&post, "{}", Mode::Partial).is_ok());
    assert!(check(&post, r#"{"parent":{"id":"p","typeId":"post"}}"#, Mode::Partial).is_ok());
    assert!(check(&post, r#"{"text":1}"#, Mode::Partial).is_err());
}

#[test]
fn parent_requires_thread_and_time_thread_requires_time() {
    let post = compile(POST);
    let faults =
        check(&post, r#"{"text":"a","parent":{"id":"p","typeId":"post"}}"#, Mode::Strict).unwrap_err();
    assert_eq!(faults.len(), 2);
    for fault in faults {
        assert_eq!(fault.pointer.as_deref(), Some("/items/3/data/parent"));
        assert_eq!(fault.tags, [tag::ROLES_INVALID, tag::INVALID_INPUT]);
        assert_eq!(fault.title, "Invalid field roles for Item");
    }
    let complete_post = r#"{"text":"a","parent":{"id":"p","typeId":"post"},"thread":{"id":"t","typeId":"thread"},
        "createdAt":"2026-01-02T03:04:05.678Z"}"#;
    let values = check(&post, complete_post, Mode::Strict).unwrap();
    assert_eq!(values.related(Role::Parent), Some(&ItemKey::new("post", "p")));
    assert_eq!(values.role(Role::CreatedAt), Some(&Value::DateTime(Millis(1_767_323_045_678))));
}

#[test]
fn undeclared_images_are_media_other_fields_are_ignored() {
    let post = compile(POST);
    let data = r#"{"text":"a","cover":"https://a.example/v","sounds":{"en":"https://a.example/s"},
        "images":["https://a.example/1","https://a.example/2"],"extra":{"images":["nothing"]},"author":{"id":"u","typeId":"user"}}"#;
    let values = check(&post, data, Mode::Strict).unwrap();
    let media: Vec<_> =
        values.media().into_iter().map(|media| (media.path, media.url.to_owned(), media.scalar)).collect();
    let expected_media = [
        ("cover", "https://a.example/v", Scalar::Video),
        ("sounds.en", "https://a.example/s", Scalar::Audio),
        ("images.0", "https://a.example/1", Scalar::Image),
        ("images.1", "https://a.example/2", Scalar::Image),
    ];
    assert_eq!(media, expected_media.map(|(path, url, scalar)| (path.to_owned(), url.to_owned(), scalar)));
    assert_eq!(values.get("extra"), None);
    assert_eq!(values.creator(), Some(ItemKey::new("user", "u")));
    assert_eq!(values.get("author.id").as_deref(), Some(&Value::Text("u".into())));
    assert_eq!(values.get("author.typeId").as_deref(), Some(&Value::Text("user".into())));
    assert_eq!(values.get("images.1").as_deref(), Some(&Value::Media("https://a.example/2".into())));
    assert_eq!(values.get("images.2"), None);
    assert_eq!(
        values.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["text", "author", "cover", "sounds", "images"]
    );

    let faults =
        check(&post, r#"{"text":"a","images":["https://a.example/1",7]}"#, Mode::Strict).unwrap_err();
    assert_eq!(faults[0].pointer.as_deref(), Some("/items/3/data/images/1"));
}

#[test]
fn related_item_of_unknown_type_gets_a_suggestion() {
    let faults = check(&compile(POST), r#"{"text":"a","author":{"id":"u","typeId":"usr"}}"#, Mode::Strict)
        .unwrap_err();
    assert_eq!(faults[0].pointer.as_deref(), Some("/items/3/data/author/typeId"));
    assert_eq!(faults[0].detail, "`usr` is not an item type of this organisation. Did you mean `user`?");
}

#[test]
fn all_errors_are_listed_and_contain_no_values() {
    let post = compile(POST);
    let data = r#"{"text":["secret-1"],"author":"secret-2","createdAt":"secret-3","cover":"secret-4","sounds":{"en":"secret-5"}}"#;
    let faults = check(&post, data, Mode::Strict).unwrap_err();
    assert_eq!(faults.len(), 5, "{faults:?}");
    assert!(!format!("{faults:?}").contains("secret"));
    let many_images = format!(r#"{{"text":"a","images":[{}0]}}"#, "0,".repeat(499));
    let faults = check(&post, &many_images, Mode::Strict).unwrap_err();
    assert_eq!(faults.len(), 101);
    assert!(faults[100].detail.contains("400 more"));
}

#[test]
fn data_that_is_no_json_object_is_an_error() {
    for data in ["[]", "null", "\"x\"", "", "{", "{\"text\":\"\\ud800\"}"] {
        assert!(check(&compile(POST), data, Mode::Partial).is_err(), "{data}");
    }
}

#[test]
fn earlier_versions_are_accepted_later_ones_refused() {
    let accepted_versions = |item_type: &ItemType, all: &[&'static str]| -> Vec<&'static str> {
        all.iter().copied().filter(|version| item_type.accepts_version(version)).collect()
    };
    assert_eq!(
        accepted_versions(&compile(POST), &["0", "1", "6", "7", "8", "-1", "", "v7"]),
        ["1", "6", "7"]
    );
    let named_type =
        compile("item_type: post\nkind: CONTENT\nversion: '2026-01'\nearlier_versions: ['2025-07']\n");
    assert_eq!(
        accepted_versions(&named_type, &["1", "2025-01", "2025-07", "2026-01"]),
        ["2025-07", "2026-01"]
    );
}

#[test]
fn every_field_of_a_large_type_is_found() {
    let mut yaml = String::from("item_type: wide\nkind: USER\nversion: v3\nname: Wide one\nfields:\n");
    for n in 0..40 {
        yaml += &format!("  - {{name: f{n}, type: NUMBER}}\n");
    }
    let wide = compile(&yaml);
    assert_eq!((wide.version.as_str(), wide.name.as_str(), wide.kind), ("v3", "Wide one", Kind::User));
    let numbered = compile(POST);
    assert_eq!(numbered.version, "7");
    let data: Vec<String> = (0..40).map(|n| format!("\"f{n}\":{n}")).collect();
    let values = check(&wide, &format!("{{{}}}", data.join(",")), Mode::Strict).unwrap();
    for n in 0..40 {
        assert_eq!(values.field(&format!("f{n}")), Some(&Value::Number(Number::Int(n))));
    }
}

proptest! {
    #[test]
    fn no_value_of_any_shape_panics(json in any_json(), scalar in 0_usize..16, container in 0..3, strict: bool) {
        let container = [None, Some(Container::Array), Some(Container::Map)][usize::try_from(container).unwrap()];
        let item_type = one_field(Scalar::ALL[scalar], container, strict);
        drop(check(&item_type, &format!(r#"{{"f":{json}}}"#), Mode::Strict));
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value as Json, json};
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f64>().prop_map(|f| json!(f)),
        ".{0,12}".prop_map(Json::from),
        "https?://[a-z.:/@]{0,12}".prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::btree_map("id|typeId|url|[a-z~/]{0,4}", inner, 0..4)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}
