//! Compares the streaming validator with a JSON Schema validator over the published schema: both must accept the same
//! bundles.
//!
//! `TIDEGATE_EXPORTER_CASES` sets the number of generated bundles.

use std::{collections::BTreeMap, thread};

use crate::support::bundles::{bundle, check_with, finding_places, options};
use serde_json::{Value, json};
use tidegate_exporter::{
    bundle::validate::{Level, Options},
    form::{self, Answer, Format, Naming, Object, schema},
};

const CASES: u64 = 100_000;

/// xorshift64*: gives the same sequence for the same seed on every machine.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap() % below
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.next(all.len())]
    }

    fn word(&mut self, all: &[&'static str]) -> &'static str {
        all[self.next(all.len())]
    }
}

/// Location in a bundle, with its definition in the form.
struct Place {
    pointer: String,
    kind: &'static form::Value,
}

/// Object in a bundle.
struct ObjectPlace {
    pointer: String,
    form: &'static Object,
}

/// Lists all locations in `value` that the form defines.
fn places(
    value: &Value,
    form: &'static Object,
    at: &str,
    places: &mut Vec<Place>,
    object_places: &mut Vec<ObjectPlace>,
) {
    object_places.push(ObjectPlace { pointer: at.to_owned(), form });
    for field in form.fields {
        let Some(held) = value.get(field.name) else { continue };
        let pointer = format!("{at}/{}", field.name);
        match &field.value {
            form::Value::Object(inner) => self::places(held, inner, &pointer, places, object_places),
            form::Value::List { of, .. } => {
                for (index, entry) in held.as_array().unwrap().iter().enumerate() {
                    self::places(entry, of, &format!("{pointer}/{index}"), places, object_places);
                }
            }
            _ => {}
        }
        places.push(Place { pointer, kind: &field.value });
    }
}

const DATE_TIMES: [&str; 8] = [
    "2024-02-29T23:59:59Z",
    "2024-05-06t07:08:09z",
    "2024-05-06T07:08:09.123456789+05:30",
    "1998-12-31T23:59:60Z",
    "1998-12-31T15:59:60-08:00",
    "0001-01-01T00:00:00-00:00",
    "9999-12-31T23:59:59+23:59",
    "2000-02-29T00:00:00.0Z",
];

const NO_DATE_TIMES: [&str; 20] = [
    "",
    "2024-05-06",
    "07:08:09Z",
    "2024-05-06T07:08:09",
    "2024-05-06 07:08:09Z",
    "2023-02-29T00:00:00Z",
    "1900-02-29T00:00:00Z",
    "2024-00-01T00:00:00Z",
    "2024-04-31T00:00:00Z",
    "2024-05-06T24:00:00Z",
    "2024-05-06T07:60:00Z",
    "2024-05-06T07:08:60Z",
    "2024-05-06T07:08Z",
    "2024-05-06T07:08:09,5Z",
    "2024-05-06T07:08:09.Z",
    "2024-05-06T07:08:09+0100",
    "2024-05-06T07:08:09+24:00",
    "2024-05-06T07:08:09ZZ",
    "2024-5-6T07:08:09Z",
    "２024-05-06T07:08:09Z",
];

const URIS: [&str; 14] = [
    "https://example.org/a/b?c=d&e#f",
    "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    "mailto:a@b.example",
    "a:",
    "a:/",
    "file:///etc/x",
    "http://u:p@[2001:db8::1]:8080/",
    "http://[::ffff:192.0.2.1]/",
    "http://[v1.a:b]/",
    "x+y-z.1:%20%FF",
    "http://",
    "http://a:/",
    "http://a/(b)*'!$&+,;=:@",
    "tel:+1-816-555-1212",
];

const NO_URIS: [&str; 18] = [
    "",
    "example.org",
    "/a/b",
    "//example.org/a",
    ":a",
    "1a:b",
    "ä:b",
    "http://a b/",
    "http://a/%2",
    "http://a/%zz",
    "http://a/ü",
    "http://[::1",
    "http://[fe80::1%25eth0]/",
    "http://a:8o/",
    "http://a/#b#c",
    "http://a/\\",
    "http://a/{b}",
    "http://a/<b>",
];

const TEXTS: [&str; 7] =
    ["", "a", "ümlaut", "😀", "line\nbreak\t\"quoted\" \\", "\u{0}\u{7f}\u{2028}", "null"];

/// Text of `length` code points of several widths.
fn long(draw: &mut Draw, length: u64) -> Value {
    let letters = ["a", "é", "€", "😀"];
    json!((0..length).map(|_| *draw.of(&letters)).collect::<String>())
}

/// Numbers are inserted as text afterwards, since a JSON value would lose their notation.
fn number(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn other_type(draw: &mut Draw, kind: &form::Value) -> Value {
    let all = [json!(null), json!(true), number("3"), number("2.5"), json!("text"), json!([]), json!({})];
    loop {
        let value = draw.of(&all).clone();
        let has_type = match kind {
            form::Value::Text(_) => value.is_string(),
            form::Value::TextOrNull(_) => value.is_string() || value.is_null(),
            form::Value::Integer { .. } => value == all[2],
            form::Value::Number { .. } => value.is_number(),
            form::Value::Flag => value.is_boolean(),
            form::Value::Object(_) => value.is_object(),
            form::Value::List { .. } | form::Value::Texts => value.is_array(),
            _ => true,
        };
        if !has_type {
            return value;
        }
    }
}

/// Another valid value of the same kind.
fn draw_valid_value(draw: &mut Draw, kind: &form::Value) -> Option<Value> {
    let whole_numbers =
        ["1", "2", "1.0", "1e0", "20E-1", "3.00e2", "9007199254740993", "18446744073709551616"];
    Some(match kind {
        form::Value::Text(text) | form::Value::TextOrNull(text) => {
            if matches!(kind, form::Value::TextOrNull(_)) && draw.next(3) == 0 {
                return Some(json!(null));
            }
            match (text.format, text.max_chars) {
                (Some(Format::DateTime), _) => json!(draw.of(&DATE_TIMES)),
                (Some(Format::Uri), most) if draw.next(4) == 0 => {
                    json!(format!("a:{}", "b".repeat(usize::try_from(most).unwrap() - 2)))
                }
                (Some(Format::Uri), _) => json!(draw.of(&URIS)),
                (None, u64::MAX) => json!(draw.of(&TEXTS)),
                (None, most) => match draw.next(3) {
                    0 => long(draw, most),
                    1 => long(draw, text.min_chars),
                    _ => json!(draw.of(&TEXTS[1..])),
                },
            }
        }
        form::Value::Answer => json!(draw.of(&Answer::ALL).as_str()),
        form::Value::Integer { least: 0 } if draw.next(2) == 0 => {
            number(draw.word(&["0", "-0", "0.0", "0e5", "-0.0"]))
        }
        form::Value::Integer { .. } => number(draw.word(&whole_numbers)),
        form::Value::Number { from_zero_to_one: true } => {
            number(draw.word(&["0", "1", "-0.0", "1.0", "0.5", "1e-9", "10e-1", "0.999999999999"]))
        }
        form::Value::Number { .. } => number(draw.word(&["-1.5", "0", "1e300", "-1e-300", "12"])),
        form::Value::Flag => json!(draw.next(2) == 0),
        form::Value::Texts => json!([draw.of(&TEXTS), draw.of(&TEXTS)]),
        form::Value::Arbitrary => other_type(
            draw,
            &form::Value::Text(form::Text { min_chars: 0, max_chars: 9, format: None, author: None }),
        ),
        _ => return None,
    })
}

/// Rules of the schema, in the order of the cases.
const RULES: [&str; 12] = [
    "BND-SCH-01",
    "BND-SCH-02",
    "BND-SCH-03",
    "BND-SCH-04",
    "BND-SCH-05",
    "BND-SCH-06",
    "BND-SCH-07",
    "BND-SCH-08",
    "BND-SCH-09",
    "BND-SCH-10",
    "BND-SCH-11",
    "BND-SCH-12",
];

/// Value that breaks only this rule, if the location allows one.
fn draw_invalid_value(draw: &mut Draw, rule: usize, kind: &form::Value) -> Option<Value> {
    Some(match (rule, kind) {
        (
            0,
            form::Value::Schema | form::Value::Constant(_) | form::Value::Answer | form::Value::Arbitrary,
        ) => {
            return None;
        }
        (0, form::Value::Integer { .. }) if draw.next(2) == 0 => {
            number(draw.word(&["1.5", "1e-1", "2.000001", "0.5"]))
        }
        (0, form::Value::List { .. } | form::Value::Texts) if draw.next(2) == 0 => match kind {
            form::Value::Texts => json!(["a", 1]),
            _ => json!([null]),
        },
        (0, kind) => other_type(draw, kind),
        (3, form::Value::Schema | form::Value::Constant(_)) => {
            draw.of(&[json!("other"), json!(""), json!(null), json!(1), json!([])]).clone()
        }
        (4, form::Value::Answer) => {
            draw.of(&[json!("Agree"), json!("agree "), json!(""), json!(null), json!(1), json!({})]).clone()
        }
        (5, form::Value::Text(text)) if text.min_chars > 0 => json!(""),
        (6, form::Value::Text(text)) if text.max_chars < u64::MAX && text.format == Some(Format::Uri) => {
            json!(format!("a:{}", "b".repeat(usize::try_from(text.max_chars).unwrap() - 1)))
        }
        (6, form::Value::Text(text)) if text.max_chars < u64::MAX => long(draw, text.max_chars + 1),
        (7, form::Value::Text(text) | form::Value::TextOrNull(text))
            if text.format == Some(Format::DateTime) =>
        {
            json!(draw.of(&NO_DATE_TIMES))
        }
        (8, form::Value::Text(text)) if text.format == Some(Format::Uri) => json!(draw.of(&NO_URIS)),
        (9, form::Value::Integer { least: 1 }) => number(draw.word(&["0", "-1", "0.0", "-3.0", "-1e3"])),
        (9, form::Value::Integer { .. }) => number(draw.word(&["-1", "-1.0", "-1e0", "-100"])),
        (9, form::Value::Number { from_zero_to_one: true }) => number(draw.word(&["-0.5", "-1", "-1e-9"])),
        (10, form::Value::Number { from_zero_to_one: true }) => {
            number(draw.word(&["1.5", "2", "1.000001", "1e9"]))
        }
        (11, form::Value::List { least: 1.., .. }) => json!([]),
        _ => return None,
    })
}

/// Bundle that breaks exactly one rule.
fn draw_bundle(draw: &mut Draw) -> (Value, Option<usize>) {
    let mut bundle = bundle();
    let form = Naming::Service.bundle();
    for _ in 0..draw.next(4) {
        let (mut all, mut object_places) = (Vec::new(), Vec::new());
        places(&bundle, form, "", &mut all, &mut object_places);
        let place = draw.of(&all);
        if let Some(value) = draw_valid_value(draw, place.kind) {
            *bundle.pointer_mut(&place.pointer).unwrap() = value;
        }
        if draw.next(8) == 0 {
            let open: Vec<_> = object_places.iter().filter(|object_place| object_place.form.open).collect();
            let object_place = bundle.pointer_mut(&draw.of(&open).pointer).unwrap();
            object_place[*draw.of(&["extra", "", "é"])] = json!([{ "deep": [null, 1.5] }]);
        }
        if draw.next(8) == 0
            && let Some(outcome) =
                bundle["outcomes"].as_array_mut().unwrap().get_mut(1).and_then(Value::as_object_mut)
        {
            outcome.remove(*draw.of(&["rank", "score", "observations", "counts"]));
        }
    }
    if draw.next(2) == 0 {
        return (bundle, None);
    }
    let (mut all, mut object_places) = (Vec::new(), Vec::new());
    places(&bundle, form, "", &mut all, &mut object_places);
    let rule = draw.next(RULES.len());
    match rule {
        1 => {
            let object_place = loop {
                let object_place = draw.of(&object_places);
                if object_place.form.fields.iter().any(|field| field.required) {
                    break object_place;
                }
            };
            let required: Vec<_> = object_place.form.fields.iter().filter(|field| field.required).collect();
            let object = bundle.pointer_mut(&object_place.pointer).unwrap().as_object_mut().unwrap();
            object.remove(draw.of(&required).name);
        }
        2 => {
            let closed: Vec<_> =
                object_places.iter().filter(|object_place| !object_place.form.open).collect();
            let object_place = bundle.pointer_mut(&draw.of(&closed).pointer).unwrap();
            object_place[*draw.of(&["extra", "", "ID", "id ", "storedByDelib"])] = json!([1, { "a": null }]);
        }
        _ => loop {
            let place = draw.of(&all);
            if let Some(value) = draw_invalid_value(draw, rule, place.kind) {
                *bundle.pointer_mut(&place.pointer).unwrap() = value;
                break;
            }
        },
    }
    (bundle, Some(rule))
}

#[test]
fn validator_and_schema_accept_the_same_bundles() {
    let cases = std::env::var("TIDEGATE_EXPORTER_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let schema: Value = serde_json::from_str(&schema::text(Naming::Service, None)).unwrap();
    let oracle = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    let threads = 2;
    let counts: Vec<BTreeMap<Option<usize>, u64>> = thread::scope(|scope| {
        let works: Vec<_> = (0..threads)
            .map(|thread| {
                let oracle = &oracle;
                scope.spawn(move || {
                    let schema = Options { level: Level::Schema, ..options() };
                    let mut counts = BTreeMap::new();
                    for case in (thread..cases).step_by(2) {
                        let mut draw = Draw((case + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                        let (bundle, rule) = draw_bundle(&mut draw);
                        let text = bundle.to_string();
                        let report = check_with(text.as_bytes(), &schema);
                        assert_eq!(report.is_valid(), oracle.is_valid(&bundle), "case {case}: {text}");
                        let rules: Vec<_> = report.totals.iter().map(|(rule, _)| rule.id()).collect();
                        let expected_rules: Vec<_> = rule.map(|rule| RULES[rule]).into_iter().collect();
                        assert_eq!(
                            rules,
                            expected_rules,
                            "case {case}: {:?}: {text}",
                            finding_places(&report)
                        );
                        *counts.entry(rule).or_default() += 1;
                    }
                    counts
                })
            })
            .collect();
        works.into_iter().map(|work| work.join().unwrap()).collect()
    });
    let count = |rule: Option<usize>| counts.iter().filter_map(|counts| counts.get(&rule)).sum::<u64>();
    let valid = count(None) * 100 / cases.max(1);
    assert!((30..=70).contains(&valid), "{valid} % are valid");
    for (rule, id) in RULES.iter().enumerate() {
        // Holds for the full run; fewer cases find fewer faults.
        let case_count = count(Some(rule));
        assert!(case_count >= 500 * cases / CASES, "{id} {case_count}");
    }
}
