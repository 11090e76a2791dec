//! Do the bytes of every released schema stay readable, and the encoder's bytes what they were?
//!
//! `TIDEGATE_BLESS=1` writes the golden files of schemas that have none yet.

use std::{fs, path::PathBuf};

use apache_avro::{Schema, types::Value};
use bytes::Bytes;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{
    super::{
        Appeal, Callback, Command, ContextItem, Coordinates, DeadLetter, Decision, Evaluation, Header,
        ItemEntry, Items, JobClass, Mention, Record, RelatedActions, ReleasedSchema, Report, SCHEMAS, Source,
        Strike, Variant, Verdict, read_value, resolve,
    },
    decoded, encoded, for_each_record, parse, schema_of,
};
use crate::ids::{ConfigVersion, ItemKey, Millis, OrgId};

/// One record of each type with no two fields alike, so that a swap of two shows.
trait Sample: Record {
    fn sample() -> Self;
}

fn id<T: From<Uuid>>(n: u128) -> T {
    T::from(Uuid::from_u128(0x1111_2222_3333_4444_5555_6666_7777_8800 + n))
}

fn entry() -> ItemEntry {
    ItemEntry {
        submission_id: id(1),
        type_id: "post".into(),
        id: "post-1".into(),
        type_version: Some("v2".into()),
        variant: Variant::Partial,
        data: Bytes::from_static("{\"text\": \"grüße 🦀\"}".as_bytes()),
        origin: Some(Coordinates { append_ms: Millis(1_700_000_000_001), offset: 1 << 40, position: 17 }),
        keyed: true,
    }
}

fn context(n: u8) -> ContextItem {
    ContextItem {
        type_id: "comment".into(),
        id: format!("comment-{n}").into(),
        type_version: None,
        variant: Variant::Original,
        data: Bytes::from_static(b"{}"),
        fault: (n > 1).then(|| "text: missing".into()),
        as_sent: (n == 2).then(|| Bytes::from_static(b"{\"typeVersion\":5}")),
    }
}

fn mention(id: &str, known: bool) -> Mention {
    Mention { id: id.into(), known }
}

impl Sample for Items {
    fn sample() -> Self {
        let second =
            ItemEntry { submission_id: id(2), type_version: None, origin: None, keyed: false, ..entry() };
        Self {
            org: "acme".into(),
            config_version: ConfigVersion(300),
            source: Source::Retroact,
            received_at: Millis(1_700_000_000_000),
            request_id: "req-1".into(),
            report_id: Some(id(3)),
            items: vec![entry(), second],
        }
    }
}

impl Sample for Report {
    fn sample() -> Self {
        Self {
            org: "acme".into(),
            config_version: ConfigVersion(301),
            report_id: id(4),
            keyed: true,
            received_at: Millis(1_700_000_000_010),
            request_id: "req-2".into(),
            reported_at: Millis(1_700_000_000_009),
            reporter: ItemKey::new("user", "reporter"),
            item: entry(),
            policy_id: Some(mention("spam", false)),
            reason: Some("it is \"spam\"".into()),
            csam: false,
            thread: vec![context(1), context(2)],
            reported_in_thread: vec![ItemKey::new("comment", "comment-1")],
            additional: vec![context(3)],
        }
    }
}

impl Sample for Appeal {
    fn sample() -> Self {
        Self {
            org: "acme".into(),
            config_version: ConfigVersion(302),
            appeal_id: "appeal-1".into(),
            received_at: Millis(1_700_000_000_020),
            request_id: "req-3".into(),
            appealed_at: Millis(1_700_000_000_019),
            appealed_by: ItemKey::new("user", "author"),
            item: entry(),
            actions_taken: vec![mention("hide", true), mention("ban", false)],
            violating_policies: vec![mention("scam", true)],
            reason: Some("it was a joke".into()),
            additional: vec![context(1)],
        }
    }
}

impl Sample for Decision {
    fn sample() -> Self {
        Self {
            org: "acme".into(),
            config_version: ConfigVersion(303),
            decision_id: id(5),
            job_id: id(6),
            class: JobClass::ChildSafety,
            item: ItemKey::new("post", "post-1"),
            appeal_id: Some("appeal-1".into()),
            decided_at: Millis(1_700_000_000_030),
            decided_by: "moderator".into(),
            verdict: Verdict::Act,
            actions: vec!["hide".into(), "ban".into()],
            policies: vec!["policy-1".into()],
            reason: Some("clear".into()),
            parameters: Some(r#"{"ban":{"hours":24}}"#.into()),
            reported_items: vec![ItemKey::new("post", "post-2")],
            related: vec![RelatedActions {
                item: ItemKey::new("comment", "comment-1"),
                user: Some(ItemKey::new("user", "author")),
                actions: vec!["warn".into()],
                policies: vec!["policy-2".into()],
                parameters: Some(r#"{"warn":{"text":"no"}}"#.into()),
            }],
        }
    }
}

impl Sample for Strike {
    fn sample() -> Self {
        Self {
            org: "acme".into(),
            user: ItemKey::new("user", "author"),
            cause: id(7),
            at: Millis(1_700_000_000_040),
            points: -3,
            action: "ban".into(),
            item: ItemKey::new("post", "post-1"),
            reverses: Some(id(8)),
            config_version: ConfigVersion(304),
        }
    }
}

impl Sample for Callback {
    fn sample() -> Self {
        Self {
            org: "acme".into(),
            command: Command::Resend,
            event_id: id(9),
            event_type: "action.automatic".into(),
            endpoint: Some("main".into()),
            subject: ItemKey::new("post", "post-1"),
            occurred_at: Millis(1_700_000_000_050),
            body: Bytes::from_static(b"{\"id\":\"x\"}"),
        }
    }
}

impl Sample for Evaluation {
    fn sample() -> Self {
        Self {
            org: "acme".into(),
            submission_id: id(10),
            item: ItemKey::new("post", "post-1"),
            evaluated_at: Millis(1_700_000_000_060),
            config_version: ConfigVersion(305),
            matched: "[{\"rule\":\"r\"}]".into(),
            errored: "[]".into(),
            left_out: Some("{\"truncated\":[\"text\"]}".into()),
        }
    }
}

impl Sample for DeadLetter {
    fn sample() -> Self {
        Self {
            org: Some(OrgId::new("acme")),
            topic: "items".into(),
            partition: 63,
            offset: 9_000_000_000,
            written_at: Millis(1_700_000_000_070),
            key: Bytes::from_static(b"key"),
            value: Bytes::from_static(b"value"),
            headers: vec![Header { name: "trace".into(), value: Bytes::from_static(b"t-1") }],
            submission_id: Some(id(11)),
            stage: "evaluate".into(),
            reason: "bad_length".into(),
            detail: "a length".into(),
            failed_at: Millis(1_700_000_000_080),
        }
    }
}

fn golden(name: &str, id: u32, kind: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", &format!("{name}.{id}.{kind}")].iter().collect()
}

fn json(value: Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Boolean(flag) => json!(flag),
        Value::Int(number) => json!(number),
        Value::Long(number) | Value::TimestampMillis(number) => json!(number),
        Value::String(text) | Value::Enum(_, text) => json!(text),
        Value::Bytes(bytes) => json!(String::from_utf8(bytes).unwrap()),
        Value::Fixed(_, bytes) => json!(Uuid::from_slice(&bytes).unwrap()),
        Value::Union(_, inner) => json(*inner),
        Value::Array(entries) => entries.into_iter().map(json).collect(),
        Value::Record(fields) => fields.into_iter().map(|(name, value)| (name, json(value))).collect(),
        other => panic!("no record has a {other:?}"),
    }
}

fn bless<R: Sample>() {
    let datum = encoded(&R::sample());
    let value = read_value(&schema_of::<R>(), &mut datum.as_slice(), None).unwrap();
    let text = serde_json::to_string_pretty(&json(value)).unwrap() + "\n";
    let (bytes, expected) = (golden(R::NAME, R::SCHEMA_ID, "bin"), golden(R::NAME, R::SCHEMA_ID, "json"));
    if !bytes.exists() {
        fs::write(bytes, datum).unwrap();
        fs::write(expected, text).unwrap();
    }
}

fn the_encoder_writes_its_golden_bytes<R: Sample + PartialEq + std::fmt::Debug>() {
    let datum = fs::read(golden(R::NAME, R::SCHEMA_ID, "bin")).unwrap();
    assert!(
        encoded(&R::sample()) == datum,
        "{}: the encoder writes other bytes than those in topics",
        R::NAME
    );
    assert_eq!(decoded::<R>(&datum), Ok(R::sample()));
}

fn the_present_reader_reads<R: Record>(older: &ReleasedSchema, writer: &Schema, datum: &[u8]) {
    if older.name == R::NAME && older.id != R::SCHEMA_ID {
        decoded::<R>(&resolve(writer, &schema_of::<R>(), datum).unwrap()).unwrap();
    }
}

#[test]
fn golden_records_stay_readable() {
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        for_each_record!(bless());
    }
    for_each_record!(the_encoder_writes_its_golden_bytes());
    for schema in SCHEMAS {
        let writer = parse(schema.text);
        let datum = fs::read(golden(schema.name, schema.id, "bin")).unwrap();
        let expected: Json =
            serde_json::from_str(&fs::read_to_string(golden(schema.name, schema.id, "json")).unwrap())
                .unwrap();
        let value = read_value(&writer, &mut datum.as_slice(), None).unwrap();
        assert_eq!(json(value), expected, "{} with id {}", schema.name, schema.id);
        for_each_record!(the_present_reader_reads(schema, &writer, &datum));
    }
}

/// Of everything that a reader or writer sees: not of words and white space.
fn fingerprint(text: &str) -> String {
    fn canonical(json: &Json, out: &mut String) {
        match json {
            Json::Object(object) => {
                let mut keys: Vec<_> = object.iter().filter(|(key, _)| *key != "doc").collect();
                keys.sort_by_key(|(key, _)| *key);
                out.push('{');
                for (key, value) in keys {
                    out.push_str(&format!("{key:?}:"));
                    canonical(value, out);
                    out.push(',');
                }
                out.push('}');
            }
            Json::Array(entries) => {
                out.push('[');
                for entry in entries {
                    canonical(entry, out);
                    out.push(',');
                }
                out.push(']');
            }
            leaf => out.push_str(&leaf.to_string()),
        }
    }
    let mut text_of = String::new();
    canonical(&serde_json::from_str(text).unwrap(), &mut text_of);
    Sha256::digest(text_of).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_released_schema_never_changes() {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "avro", "fingerprints"].iter().collect();
    let released = fs::read_to_string(path).unwrap();
    let mut unknown = String::new();
    for schema in SCHEMAS {
        let ReleasedSchema { id, name, text } = schema;
        let line = format!("{id} {name} {}", fingerprint(text));
        match released.lines().find(|line| line.split(' ').next() == Some(&id.to_string())) {
            None => unknown += &format!("{line}\n"),
            Some(known) => assert_eq!(
                known, line,
                "{name}.avsc has changed under its id {id}. Topics hold data written with the older text: keep that \
                 as avro/{name}.v<n>.avsc, listed in SCHEMAS under {id}, and give the new text the next free id \
                 in its `record!` (only before {id} was ever released may its fingerprint be replaced)"
            ),
        }
    }
    assert!(unknown.is_empty(), "new schemas: once they are final, add to avro/fingerprints\n{unknown}");
    for line in released.lines() {
        assert!(SCHEMAS.iter().any(|schema| line.starts_with(&format!("{} ", schema.id))), "{line}: is gone");
    }
}
