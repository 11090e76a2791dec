//! Do a reader and a writer one version apart understand each other, and is every breaking change refused?

use apache_avro::{Schema, types::Value};
use proptest::{collection::vec, prelude::any, proptest};
use serde_json::{Value as Json, json};

use super::{
    super::{
        AvroError, Callback, Command, Decision, Items, Record, SCHEMAS, compatible, read_value, resolve,
        write_value,
    },
    decoded,
    draw::{Draw, Entropy},
    encoded, for_each_record, named_types, parse, schema_of,
};

type Object = serde_json::Map<String, Json>;

/// The next version of a schema: each record has a new first field, each enum with a default a new symbol.
fn next<R: Record>() -> Schema {
    edited::<R>(&mut |object| match object["type"].as_str().unwrap() {
        "record" => object["fields"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({"name": "novel", "type": ["null", "string"], "default": null, "doc": "New."})),
        "enum" if object.contains_key("default") => {
            object["symbols"].as_array_mut().unwrap().push(json!("novel"));
        }
        _ => {}
    })
}

fn edited<R: Record>(edit: &mut dyn FnMut(&mut Object)) -> Schema {
    let mut json = serde_json::from_str(R::SCHEMA).unwrap();
    named_types(&mut json, edit);
    parse(&json.to_string())
}

/// Fills the new fields of a value of the next version, as only its writer would.
fn fill(value: &mut Value) {
    match value {
        Value::Record(fields) => {
            for (name, field) in fields {
                if name == "novel" {
                    *field = Value::Union(1, Box::new(Value::String("filled".into())));
                } else {
                    fill(field);
                }
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(fill),
        Value::Union(_, inner) => fill(inner),
        _ => {}
    }
}

fn passes_between_versions<R: Record + Draw + PartialEq + std::fmt::Debug>(entropy: &[u8]) {
    let (present, next) = (schema_of::<R>(), next::<R>());
    let record = R::draw(&mut Entropy(entropy));

    let upgraded = resolve(&present, &next, &encoded(&record)).unwrap();
    let mut value = read_value(&next, &mut upgraded.as_slice(), None).unwrap();

    fill(&mut value);
    let written = write_value(&next, value).unwrap();
    assert_ne!(written, upgraded);
    let read = resolve(&next, &present, &written).unwrap();
    assert_eq!(decoded::<R>(&read).as_ref(), Ok(&record));
    assert_eq!(read, encoded(&record));
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn an_older_reader_reads_a_newer_writer_and_the_reverse(entropy in vec(any::<u8>(), 0..600)) {
        for_each_record!(passes_between_versions(&entropy));
    }
}

#[test]
fn unknown_symbol_becomes_the_default() {
    let callback = Callback { command: Command::Send, ..Callback::draw(&mut Entropy(&[])) };
    let (present, next) = (schema_of::<Callback>(), next::<Callback>());
    let upgraded = resolve(&present, &next, &encoded(&callback)).unwrap();
    let mut value = read_value(&next, &mut upgraded.as_slice(), None).unwrap();
    let Value::Record(fields) = &mut value else { panic!("a record") };
    let (_, command) = fields.iter_mut().find(|(name, _)| name == "command").unwrap();
    *command = Value::Enum(4, "novel".into());
    let written = write_value(&next, value).unwrap();

    let read: Callback = decoded(&resolve(&next, &present, &written).unwrap()).unwrap();
    assert_eq!(read.command, Command::Hold);
}

#[test]
fn unknown_verdict_is_an_error() {
    let next = edited::<Decision>(&mut |object| {
        if object["name"] == "Verdict" {
            object["symbols"].as_array_mut().unwrap().insert(0, json!("novel"));
        }
    });
    let why = compatible(&schema_of::<Decision>(), &next).unwrap_err();
    assert_eq!(why, "verdict: `novel` is added, but the older enum has no default to read it as");

    // The symbols have moved by one: the same index now means another verdict, or one that nobody knows.
    let decision = Decision::draw(&mut Entropy(&[]));
    let malformed = resolve(&next, &schema_of::<Decision>(), &encoded(&decision)).unwrap_err();
    assert!(
        matches!(malformed.error(), AvroError::Unresolvable(why) if why.contains("symbol")),
        "{malformed}"
    );
    assert_eq!(malformed.record(), "Decision");
}

#[test]
fn datum_that_violates_the_writer_schema_is_refused() {
    let (present, next) = (schema_of::<Items>(), next::<Items>());
    let items = Items::draw(&mut Entropy(&[3; 200]));
    let datum = resolve(&present, &next, &encoded(&items)).unwrap();
    for end in 0..datum.len() {
        resolve(&next, &present, &datum[..end]).unwrap_err();
    }
    let malformed = resolve(&next, &present, &[0, 2, b'o', 0, 7]).unwrap_err();
    assert_eq!((malformed.path().as_str(), malformed.tag()), ("source", "unknown_symbol"));
}

#[test]
fn recursive_writer_schema_does_not_overflow_the_stack() {
    let text =
        r#"{"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}"#;
    let schema = parse(text);
    assert_eq!(resolve(&schema, &schema, &[2; 1_000_000]).unwrap_err().error(), &AvroError::Depth);
    assert_eq!(resolve(&schema, &schema, &[2, 2, 0]).unwrap(), [2, 2, 0]);
    compatible(&schema, &schema).unwrap();
}

#[test]
fn every_schema_is_compatible_with_its_predecessors() {
    for (at, older) in SCHEMAS.iter().enumerate() {
        for newer in SCHEMAS.iter().skip(at).filter(|newer| newer.name == older.name) {
            assert!(older.id <= newer.id, "{}: versions stand in the order of their ids", older.name);
            compatible(&parse(older.text), &parse(newer.text)).unwrap_or_else(|why| {
                panic!("{} with id {} may not follow id {}: {why}", newer.name, newer.id, older.id)
            });
        }
    }
    fn next_is_compatible<R: Record>() {
        compatible(&schema_of::<R>(), &next::<R>()).unwrap();
    }
    for_each_record!(next_is_compatible());
}

/// Why the schema of `Items` may not be followed by one in which the type `name` is edited so.
fn refused(name: &str, edit: fn(&mut Object)) -> String {
    let next = edited::<Items>(&mut |object| {
        if object["name"] == name {
            edit(object);
        }
    });
    compatible(&schema_of::<Items>(), &next).unwrap_err()
}

#[test]
fn breaking_changes_are_refused_with_their_path() {
    let push = |object: &mut Object| {
        object["fields"].as_array_mut().unwrap().push(json!({"name": "novel", "type": "string"}));
    };
    assert_eq!(refused("Items", push), "novel: the field is new and has no default");
    assert_eq!(refused("ItemEntry", push), "items[].novel: the field is new and has no default");
    assert_eq!(
        refused("ItemEntry", |object| drop(object["fields"].as_array_mut().unwrap().remove(1))),
        "items[].type_id: the field is removed"
    );
    assert_eq!(
        refused("ItemEntry", |object| object["fields"][1]["name"] = json!("renamed")),
        "items[].type_id: the field is removed"
    );
    assert_eq!(
        refused("ItemEntry", |object| object["fields"][1]["type"] = json!("bytes")),
        "items[].type_id: the type differs"
    );
    assert_eq!(
        refused("ItemEntry", |object| object["fields"][3]["type"] = json!(["null", "string", "long"])),
        "items[].type_version: the branches of a union differ"
    );
    assert_eq!(
        refused("Source", |object| drop(object["symbols"].as_array_mut().unwrap().pop())),
        "source: the symbol `retroact` is removed"
    );
    assert!(
        refused("Coordinates", |object| object["name"] = json!("Place"))
            .starts_with("items[].origin: the type was called")
    );
}
