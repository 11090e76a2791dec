//! Can a struct and its schema drift apart?

use proptest::{collection::vec, prelude::any, prop_assert_eq, proptest};

use super::{
    super::{
        Appeal, Callback, Command, ContextItem, Coordinates, DeadLetter, Decision, Evaluation, Header,
        ItemEntry, Items, JobClass, Mention, Record, RelatedActions, Report, SCHEMAS, Source, Strike,
        Variant, Verdict, read_value, write_value,
    },
    decoded,
    draw::{Draw, Entropy},
    encoded, for_each_record, is_current, named_types, schema_of,
};
use crate::ids::ItemKey;

/// What either codec writes, the other reads, and writes again byte for byte.
fn agrees_with_apache_avro<R: Record + Draw + PartialEq + std::fmt::Debug>(entropy: &[u8]) {
    let schema = schema_of::<R>();
    let record = R::draw(&mut Entropy(entropy));
    let ours = encoded(&record);
    assert_eq!(ours.len(), record.size(), "{}: size() is what encode() appends", R::NAME);

    let mut rest = ours.as_slice();
    let value = read_value(&schema, &mut rest, Some(&schema)).unwrap();
    assert!(rest.is_empty(), "{}: apache-avro has read all", R::NAME);

    let theirs = write_value(&schema, value).unwrap();
    assert_eq!(ours, theirs, "{}", R::NAME);
    assert_eq!(decoded::<R>(&theirs).as_ref(), Ok(&record));
}

proptest! {
    #[test]
    fn what_one_codec_writes_the_other_reads(entropy in vec(any::<u8>(), 0..2_000)) {
        for_each_record!(agrees_with_apache_avro(&entropy));
    }

    #[test]
    fn every_integer_is_as_long_as_its_size_says(value in any::<i64>(), shift in 0..64_u32) {
        let value = value >> shift;
        let mut out = Vec::new();
        super::super::avro::write_long(&mut out, value);
        prop_assert_eq!(out.len(), super::super::avro::long_size(value));
    }
}

/// A round trip cannot see that two fields of one type are swapped, so names are compared.
#[test]
fn fields_and_symbols_have_their_schema_names_in_rust() {
    let rust: &[(&str, &[&str])] = &[
        ("Items", Items::NAMES),
        ("Report", Report::NAMES),
        ("Appeal", Appeal::NAMES),
        ("Decision", Decision::NAMES),
        ("Strike", Strike::NAMES),
        ("Callback", Callback::NAMES),
        ("Evaluation", Evaluation::NAMES),
        ("DeadLetter", DeadLetter::NAMES),
        ("ItemEntry", ItemEntry::NAMES),
        ("ContextItem", ContextItem::NAMES),
        ("Mention", Mention::NAMES),
        ("RelatedActions", RelatedActions::NAMES),
        ("Header", Header::NAMES),
        ("Coordinates", Coordinates::NAMES),
        ("ItemKey", ItemKey::NAMES),
        ("Source", Source::NAMES),
        ("Variant", Variant::NAMES),
        ("Verdict", Verdict::NAMES),
        ("JobClass", JobClass::NAMES),
        ("Command", Command::NAMES),
    ];
    let mut seen = Vec::new();
    for schema in SCHEMAS.iter().filter(|schema| is_current(schema)) {
        let mut json = serde_json::from_str(schema.text).unwrap();
        named_types(&mut json, &mut |object| {
            let name = object["name"].as_str().unwrap().to_owned();
            let names: Vec<String> = match object["type"].as_str().unwrap() {
                "record" => {
                    object["fields"].as_array().unwrap().iter().map(|field| text(&field["name"])).collect()
                }
                "enum" => object["symbols"].as_array().unwrap().iter().map(text).collect(),
                _ => return,
            };
            let (_, expected) = rust.iter().find(|(rust, _)| *rust == name).unwrap();
            assert_eq!(names, *expected, "{name} in {}.avsc", schema.name);
            seen.push(name);
        });
    }
    assert!(rust.iter().all(|(name, _)| seen.iter().any(|seen| seen == name)), "each has a schema");
}

fn text(json: &serde_json::Value) -> String {
    json.as_str().unwrap().to_owned()
}

#[test]
fn every_type_and_field_is_documented() {
    for schema in SCHEMAS {
        let mut json = serde_json::from_str(schema.text).unwrap();
        named_types(&mut json, &mut |object| {
            let documented = |json: &serde_json::Value| json.as_str().is_some_and(|doc| doc.ends_with('.'));
            if object["type"] != "fixed" {
                assert!(
                    object.get("doc").is_some_and(documented),
                    "{} in {}.avsc",
                    object["name"],
                    schema.name
                );
            }
            for field in object.get("fields").and_then(|fields| fields.as_array()).into_iter().flatten() {
                assert!(
                    field.get("doc").is_some_and(documented),
                    "{} in {}.avsc",
                    field["name"],
                    schema.name
                );
            }
        });
    }
}

#[test]
fn schema_ids_are_unique_and_the_newest_is_current() {
    let mut ids: Vec<u32> = SCHEMAS.iter().map(|schema| schema.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), SCHEMAS.len());
    fn newest_is_current<R: Record>() {
        let newest =
            SCHEMAS.iter().filter(|schema| schema.name == R::NAME).max_by_key(|schema| schema.id).unwrap();
        assert_eq!((newest.id, newest.text), (R::SCHEMA_ID, R::SCHEMA));
    }
    for_each_record!(newest_is_current());
}
