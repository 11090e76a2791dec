//! The strict JSON scan against `serde_json`, and against hostile texts.

use std::time::{Duration, Instant};

use proptest::{prelude::*, test_runner::Config};
use serde_json::Value;
use tidegate_schemas::{
    json::{self, Kind, Node},
    validation_error::{Pointer, ValidationError},
};

fn faults(text: &[u8]) -> Vec<ValidationError> {
    json::scan(text).map(|_| Vec::new()).unwrap_or_else(|faults| faults)
}

fn single_error(text: &str) -> (String, String) {
    let mut errors = faults(text.as_bytes());
    assert_eq!(errors.len(), 1, "{text}: {errors:?}");
    let fault = errors.remove(0);
    assert_eq!(fault.status, 400);
    (fault.pointer.unwrap_or_default(), fault.detail)
}

/// The scanned text as a tree. Its keys must be distinct.
fn tree(node: Node<'_>) -> Value {
    match node.kind() {
        Kind::Null => Value::Null,
        Kind::Bool(value) => Value::Bool(value),
        Kind::Number => serde_json::from_str(node.number().unwrap()).unwrap(),
        Kind::String => Value::String(node.str().unwrap().into_owned()),
        Kind::Array => node.elements().map(tree).collect(),
        Kind::Object => {
            Value::Object(node.entries().map(|(key, node)| (key.into_owned(), tree(node))).collect())
        }
    }
}

#[test]
fn syntax_errors_have_line_column_and_pointer() {
    let cases = [
        ("", "", "Line 1, column 1"),
        ("  \n ", "", "Line 2, column 2"),
        ("{", "", "Line 1, column 2"),
        ("{\"a\":1,}", "/a", "Line 1, column 8"),
        ("{\"items\":[{\"id\":\"x\"},\n {\"id\": tru}]}", "/items/1/id", "Line 2, column 9"),
        ("{\"é\": x}", "/é", "Line 1, column 7"),
        ("{\"a/b\":[0,1,01]}", "/a~1b/2", "a number may not begin with 0"),
        ("[1 2]", "/0", "expected `,` or `]`"),
        ("{\"a\" 1}", "/a", "expected `:`"),
        ("{1:2}", "", "a key in quotes"),
        ("[\"\\x\"]", "/0", "unknown escape"),
        ("[\"\u{1}\"]", "/0", "control character"),
        ("[\"\\u12g4\"]", "/0", "four hexadecimal digits"),
        ("[1]]", "", "expected the end of the text"),
        ("{} {}", "", "expected the end of the text"),
        ("null{\"items\":[]}", "", "expected the end of the text"),
        ("[1.]", "/0", "after `.`"),
        ("[-]", "/0", "after `-`"),
        ("[1e]", "/0", "exponent"),
        ("[+1]", "/0", "expected a value"),
        ("[NaN]", "/0", "expected a value"),
        ("['a']", "/0", "expected a value"),
        ("\u{feff}[]", "", "expected a value"),
        ("[\"a", "/0", "inside a string"),
    ];
    for (text, pointer, detail) in cases {
        let (at, why) = single_error(text);
        assert_eq!(at, pointer, "{text}");
        assert!(why.contains(detail), "{text}: {why}");
    }
}

#[test]
fn invalid_utf8_is_reported_with_its_position() {
    for (text, place) in [
        (&b"[\"a\xff\"]"[..], "column 4"),
        (b"\xc3(", "column 1"),
        (b"[\n\"\xed\xa0\x80\"]", "Line 2, column 2"),
    ] {
        let errors = faults(text);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].detail.contains(place) && errors[0].detail.contains("UTF-8"), "{errors:?}");
    }
}

#[test]
fn duplicate_keys_are_found_at_any_depth_and_notation() {
    let text = r#"{"a":1,"data":{"x":{"k":1,"\u006b":2,"k":3},"list":[{},{"k":1,"k":1}]},"a":2}"#;
    let pointers: Vec<_> = faults(text.as_bytes()).into_iter().map(|fault| fault.pointer.unwrap()).collect();
    assert_eq!(pointers, ["/data/x/k", "/data/x/k", "/data/list/1/k", "/a"]);
    let mut members: Vec<String> = (0..5000).map(|n| format!("\"k{n}\":{n}")).collect();
    assert!(json::scan(format!("{{{}}}", members.join(",")).as_bytes()).is_ok());
    members.push("\"k\\u0037\":0".into());
    assert_eq!(single_error(&format!("{{{}}}", members.join(","))).0, "/k7");
    assert!(json::scan(br#"[{"a":1},{"a":1},{"b":{"a":1},"a":1}]"#).is_ok());
}

#[test]
fn lone_surrogates_are_found_in_values_and_keys() {
    for (text, pointer) in [
        (r#"{"items":[{"data":{"t":"\ud800"}}]}"#, "/items/0/data/t"),
        (r#"["\udc00"]"#, "/0"),
        (r#"["\ud800\ud800\udc00"]"#, "/0"),
        (r#"["\ud83dx"]"#, "/0"),
        (r#"{"a":{"\ud800":1}}"#, "/a/\u{fffd}"),
    ] {
        let (at, why) = single_error(text);
        assert_eq!(at, pointer, "{text}");
        assert!(why.contains("surrogate"));
    }
    assert!(json::scan(r#"["\ud83d\ude00","\uffff","\\ud800"]"#.as_bytes()).is_ok());
}

#[test]
fn sixty_four_levels_are_accepted_sixty_five_refused() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(json::scan(nested(64).as_bytes()).is_ok());
    let errors = faults(nested(65).as_bytes());
    assert_eq!(errors[0].title, "JSON nested too deeply");
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    assert!(json::scan(objects(64).as_bytes()).is_ok());
    assert_eq!(single_error(&objects(65)).0, "/a".repeat(64));
}

#[test]
fn hundred_errors_are_listed_and_others_counted() {
    let text = format!("[{}0]", "\"\\ud800\",".repeat(150));
    let errors = faults(text.as_bytes());
    assert_eq!(errors.len(), 101);
    assert!(errors[100].detail.contains("50 more"));
}

#[test]
fn pointer_of_an_error_in_data_starts_with_its_base() {
    let errors = json::scan_at(br#"{"a":{"b":1,"b":2}}"#, &Pointer::Root.key("items").index(3).key("data"))
        .unwrap_err();
    assert_eq!(errors[0].pointer.as_deref(), Some("/items/3/data/a/b"));
}

#[test]
fn digest_ignores_only_key_order_space_and_escapes() {
    let digest = |text: &str| json::scan(text.as_bytes()).unwrap().root(text.as_bytes()).digest();
    let original_digest = digest(r#"{"a":[1,"é"],"b":{"x":null,"y":true}}"#);
    assert_eq!(original_digest, digest("{ \"b\" : {\"y\":true,\n\"\\u0078\":null}, \"a\":[1,\"\\u00e9\"] }"));
    for other in [
        r#"{"a":["é",1],"b":{"x":null,"y":true}}"#,
        r#"{"a":[1.0,"é"],"b":{"x":null,"y":true}}"#,
        r#"{"a":["1","é"],"b":{"x":null,"y":true}}"#,
        r#"{"a":[1,"é"],"b":{"x":null,"y":false}}"#,
        r#"{"a":[1],"b":{"x":null,"y":true}}"#,
    ] {
        assert_ne!(original_digest, digest(other), "{other}");
    }
    assert_ne!(digest("[[],[]]"), digest("[[[]]]"));
}

/// Checks that the scan and `serde_json` read the same values. Only stricter rules of the scan may refuse a text.
fn agree(text: &[u8]) -> Result<(), TestCaseError> {
    let ours = json::scan(text);
    let theirs = serde_json::from_slice::<Value>(text);
    match (ours, theirs) {
        (Ok(tape), Ok(value)) => prop_assert_eq!(tree(tape.root(text)), value),
        (Err(_), Err(_)) => {}
        (Err(errors), Ok(_)) => {
            let stricter = |fault: &ValidationError| {
                matches!(fault.title, "Duplicate key" | "JSON nested too deeply" | "More problems")
            };
            prop_assert!(errors.iter().all(stricter), "{:?}: {:?}", String::from_utf8_lossy(text), errors);
        }
        (Ok(_), Err(error)) => {
            prop_assert!(false, "{:?}: {}", String::from_utf8_lossy(text), error);
        }
    }
    Ok(())
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[a-z\"\\\\\n]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 16, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..16).prop_map(Value::from),
            prop::collection::btree_map("[a-c/~\"é]{0,3}", inner, 0..16)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(Config { cases: 600, ..Config::default() })]

    #[test]
    fn valid_json_is_accepted_with_its_values(value in any_json(), pretty: bool) {
        let text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
        prop_assert!(json::scan(&text).is_ok());
        agree(&text)?;
    }

    #[test]
    fn mutated_json_is_judged_as_serde_judges_it(
        value in any_json(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            any::<u8>(), prop::sample::select(b"{}[]\",:\\ue0123456789+-.truefalsn \n\0".to_vec()),
        ], 0..3_u8), 1..4),
    ) {
        let mut text = serde_json::to_vec(&value).unwrap();
        for (at, byte, how) in edits {
            let at = at.index(text.len() + 1);
            match how {
                0 => text.insert(at, byte),
                1 if at < text.len() => { text.remove(at); }
                _ if at < text.len() => text[at] = byte,
                _ => {}
            }
        }
        agree(&text)?;
    }

    #[test]
    fn text_from_json_letters_is_judged_as_serde_judges_it(
        parts in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\"", "\"", "\\", "\\u", "\\ud83d", "\\ude00", "00", "d8", "-", "0", "1", "9", ".", "e", "E",
            "+", "true", "false", "null", "tru", " ", "\n", "\t", "\u{b}", "é", "\u{0}", "\u{7f}",
        ]), 0..14),
    ) {
        agree(parts.concat().as_bytes())?;
    }
}

#[test]
fn scan_memory_is_bounded_by_text_length() {
    const SIZE: usize = 1 << 20;
    let fill = |head: &str, body: &str, tail: &str| {
        let mut text = String::with_capacity(SIZE + 64);
        text.push_str(head);
        while text.len() < SIZE {
            text.push_str(body);
        }
        text + tail
    };
    let keys = |prefix: &str, count: usize| {
        let all: Vec<String> = (0..count).map(|n| format!("\"{prefix}{n}\":0")).collect();
        format!("{{{}}}", all.join(","))
    };
    let texts = [
        ("open arrays", fill("", "[", "")),
        ("open objects", fill("", "{\"a\":", "")),
        ("tiny members", fill("[", "0,", "0]")),
        ("tiny objects", fill("[", "{},", "{}]")),
        ("many keys", keys("k", 80_000)),
        ("long equal beginnings", keys(&"p".repeat(300), 3_500)),
        ("the same key again and again", fill("{", "\"a\":0,", "\"a\":0}")),
        ("escaped keys", fill("{", "\"\\u0061\":0,", "\"\\u0061\":0}")),
        (
            "duplicates of a huge key",
            format!("[{}0]", format!("{{\"{0}\":1,\"{0}\":2}},", "k".repeat(9000)).repeat(230)),
        ),
        ("one string", fill("\"", "aaaaaaaaaaaaaaaa", "\"")),
        ("escapes", fill("\"", "\\n\\u0000", "\"")),
        ("lone surrogates", fill("[", "\"\\ud800\",", "0]")),
        ("a long number", fill("", "1234567890", "")),
        ("space", fill("", " \n\t\r", "")),
        ("a string without an end", fill("\"", "a\\\"", "")),
    ];
    let began = Instant::now();
    for (name, text) in &texts {
        let errors = faults(text.as_bytes());
        assert!(errors.len() <= 101, "{name}");
        let answer: usize = errors
            .iter()
            .map(|fault| fault.detail.len() + fault.pointer.as_ref().map_or(0, String::len))
            .sum();
        assert!(answer < 200_000, "{name}: the answer has {answer} bytes");
    }
    // Quadratic work would take hours.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}
