//! Framing, versions side by side, and bytes of other programs.

use apache_avro::types::Value;
use proptest::prelude::*;
use serde_json::json;
use tidegate_schemas::{
    ids::{CauseId, ConfigVersion, ItemKey, Millis, OrgId, SubmissionId},
    records::{ItemEntry, Items, Source, Strike, Variant, read_value, write_value},
};
use tidegate_test_support::{PATIENCE, eventually};

use super::*;
use crate::schema_registry::{self, fake::FakeRegistry};

fn items(data: &[&[u8]]) -> Items {
    let entry = |data: &&[u8]| ItemEntry {
        submission_id: SubmissionId::random(),
        type_id: "post".into(),
        id: "p1".into(),
        type_version: None,
        variant: Variant::Original,
        data: Bytes::copy_from_slice(data),
        origin: None,
        keyed: false,
    };
    Items {
        org: OrgId::from("o1"),
        config_version: ConfigVersion(7),
        source: Source::Api,
        received_at: Millis(1),
        request_id: "r1".to_owned(),
        report_id: None,
        items: data.iter().map(entry).collect(),
    }
}

fn framed(codec: &Codec, topic: Topic, record: &impl Record) -> Bytes {
    let (mut datum, mut out) = (Vec::new(), Vec::new());
    record.encode(&mut datum);
    codec.frame(topic, &datum, &mut out);
    out.into()
}

fn with_id(id: u32, datum: &[u8]) -> Bytes {
    [&[MAGIC][..], &id.to_be_bytes(), datum].concat().into()
}

#[test]
fn framed_record_begins_with_zero_byte_and_big_endian_id() {
    let codec = Codec::checked_in();
    let mut out = Vec::new();
    codec.frame(Topic::ItemsSlow, b"datum", &mut out);
    assert_eq!(out, [&[0][..], &Items::SCHEMA_ID.to_be_bytes(), b"datum"].concat());
}

#[test]
fn every_topic_unframes_its_own_records() {
    let codec = Codec::checked_in();
    for topic in Topic::ALL {
        let mut out = Vec::new();
        codec.frame(topic, b"datum", &mut out);
        assert_eq!(codec.unframe(topic, &out.into()).unwrap(), &b"datum"[..]);
    }
}

#[test]
fn the_data_of_received_items_are_slices_of_the_received_buffer() {
    let codec = Codec::checked_in();
    let record = items(&[br#"{"text":"one"}"#, br#"{"text":"two"}"#]);
    let buffer = framed(&codec, Topic::Items, &record);
    let datum = codec.unframe(Topic::Items, &buffer).unwrap();
    let received = Items::decode(&datum).unwrap();
    assert_eq!(received, record);
    let bounds = buffer.as_ptr_range();
    for entry in &received.items {
        let own = entry.data.as_ptr_range();
        assert!(bounds.start <= own.start && own.end <= bounds.end, "a copy");
    }
}

/// The text of a schema with one more field at its end, as a newer program would have it.
fn newer(text: &str) -> String {
    let mut schema: serde_json::Value = serde_json::from_str(text).unwrap();
    let field = json!({ "name": "added_later", "type": "string", "default": "as before" });
    schema["fields"].as_array_mut().unwrap().push(field);
    schema.to_string()
}

/// The text without a field that has a default, as an older program had it.
fn older(text: &str, field: &str) -> String {
    let mut schema: serde_json::Value = serde_json::from_str(text).unwrap();
    let fields = schema["fields"].as_array_mut().unwrap();
    let before = fields.len();
    fields.retain(|own| own["name"] != field);
    assert_eq!(fields.len(), before - 1, "{field} is a field");
    schema.to_string()
}

/// What another version writes for the same record: ours, read with its schema and written again.
fn written_by(other: &str, record: &impl Record, ours: &str) -> Vec<u8> {
    let (ours, other) = (Schema::parse_str(ours).unwrap(), Schema::parse_str(other).unwrap());
    let mut datum = Vec::new();
    record.encode(&mut datum);
    let value: Value = read_value(&ours, &mut &*datum, Some(&other)).unwrap();
    write_value(&other, value).unwrap()
}

fn codec_knowing(name: &'static str, other: &str) -> Codec {
    let mut schemas = SCHEMAS.to_vec();
    schemas.push(ReleasedSchema { id: 77, name, text: other.to_owned().leak() });
    Codec::of_schemas(&schemas)
}

#[test]
fn a_reader_understands_the_writer_of_the_next_version() {
    let record = items(&[b"{}"]);
    let text = newer(Items::SCHEMA);
    let datum = written_by(&text, &record, Items::SCHEMA);
    let datum = codec_knowing(Items::NAME, &text).unframe(Topic::Items, &with_id(77, &datum)).unwrap();
    assert_eq!(Items::decode(&datum).unwrap(), record);
}

#[test]
fn a_reader_understands_the_writer_of_the_version_before() {
    let user = ItemKey { type_id: "user".into(), id: "u1".into() };
    let record = Strike {
        org: OrgId::from("o1"),
        user: user.clone(),
        cause: CauseId::random(),
        at: Millis(1),
        points: 3,
        action: "limit_reach".into(),
        item: user,
        reverses: None,
        config_version: ConfigVersion(7),
    };
    let text = older(Strike::SCHEMA, "reverses");
    let datum = written_by(&text, &record, Strike::SCHEMA);
    let datum = codec_knowing(Strike::NAME, &text).unframe(Topic::Strikes, &with_id(77, &datum)).unwrap();
    assert_eq!(Strike::decode(&datum).unwrap(), record);
}

#[test]
fn another_id_of_the_same_form_needs_no_copy() {
    let text = Items::SCHEMA.replace("Items of one request that share a partition.", "Reworded.");
    let record = items(&[b"{}"]);
    let mut datum = Vec::new();
    record.encode(&mut datum);
    let buffer = with_id(77, &datum);
    let datum = codec_knowing(Items::NAME, &text).unframe(Topic::Items, &buffer).unwrap();
    assert_eq!(datum.as_ptr(), buffer[FRAMING..].as_ptr());
}

#[test]
fn unknown_schema_id_differs_from_malformed_record() {
    let codec = Codec::checked_in();
    let unframe = |bytes: &[u8]| codec.unframe(Topic::Items, &Bytes::copy_from_slice(bytes)).unwrap_err();
    assert_eq!(unframe(&with_id(4711, b"x")), UnframeError::UnknownSchema(4711));
    assert_eq!(unframe(b"\0\0\0\0"), MalformedRecord::TooShort(4).into());
    assert_eq!(unframe(b"{\"text\":1}"), MalformedRecord::Magic(b'{').into());
    let foreign = unframe(&with_id(Strike::SCHEMA_ID, b"x")).to_string();
    assert!(foreign.contains("topic items") && foreign.contains("Strike"), "{foreign}");
    let damaged = codec_knowing(Items::NAME, &newer(Items::SCHEMA))
        .unframe(Topic::Items, &with_id(77, b"\xff"))
        .unwrap_err();
    assert!(matches!(damaged, UnframeError::Malformed(MalformedRecord::Datum { id: 77, .. })), "{damaged}");
}

proptest! {
    #[test]
    fn any_bytes_are_answered_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), framed: bool) {
        let codec = Codec::checked_in();
        let bytes = if framed { with_id(u32::try_from(bytes.len() % 12).unwrap(), &bytes) } else { bytes.into() };
        for topic in Topic::ALL {
            if let Ok(datum) = codec.unframe(topic, &bytes) {
                prop_assert_eq!(datum, bytes.slice(FRAMING..));
            }
        }
    }
}

#[tokio::test]
async fn ids_come_from_the_registry_and_a_newer_schema_is_read() {
    let fake = FakeRegistry::start().await;
    let settings = schema_registry::RegistrySettings {
        url: fake.url.clone(),
        retry_ms: 10,
        ..schema_registry::RegistrySettings::default()
    };
    let codec = Codec::registered(SchemaRegistry::new(&settings).unwrap(), "t").await.unwrap();
    assert_eq!(fake.requests_of("/apis/x/subjects/t.dead-letters-value/versions"), 1);
    let record = items(&[b"{}"]);
    let own = framed(&codec, Topic::Items, &record);
    assert_eq!(own[..FRAMING], [0, 0, 0, 0, 100], "the registry's number, not ours");
    assert_eq!(Items::decode(&codec.unframe(Topic::Items, &own).unwrap()).unwrap(), record);

    let text = newer(Items::SCHEMA);
    let newer = with_id(9, &written_by(&text, &record, Items::SCHEMA));
    assert_eq!(codec.unframe(Topic::Items, &newer), Err(UnframeError::UnknownSchema(9)));
    fake.add_schema(9, &text);
    let datum = eventually("the newer schema", PATIENCE, async || codec.unframe(Topic::Items, &newer).ok())
        .await
        .unwrap();
    assert_eq!(Items::decode(&datum).unwrap(), record);

    // While the registry is away what is known stays known, and what is not stays unknown: never malformed.
    fake.state.lock().unwrap().status = Some(500);
    assert!(codec.unframe(Topic::Items, &newer).is_ok());
    assert_eq!(codec.unframe(Topic::Items, &with_id(10, b"")), Err(UnframeError::UnknownSchema(10)));
    eventually("the outage", PATIENCE, async || codec.outage()).await.unwrap();
}
