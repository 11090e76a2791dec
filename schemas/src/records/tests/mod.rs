//! Checks the records against their schemas. Each file holds one question.
#![allow(clippy::unwrap_used)]

pub(crate) mod draw;
mod drift;
mod evolution;
mod golden;
mod reader;

use apache_avro::Schema;
use bytes::Bytes;
use serde_json::Value as Json;

use super::{Record, RecordDecodeError, ReleasedSchema, SCHEMAS};

fn schema_of<R: Record>() -> Schema {
    parse(R::SCHEMA)
}

fn parse(text: &str) -> Schema {
    Schema::parse_str(text).unwrap()
}

fn encoded<R: Record>(record: &R) -> Vec<u8> {
    let mut datum = Vec::new();
    record.encode(&mut datum);
    datum
}

fn decoded<R: Record>(datum: &[u8]) -> Result<R, RecordDecodeError> {
    R::decode(&Bytes::copy_from_slice(datum))
}

/// Calls a generic function for each record type.
macro_rules! for_each_record {
    ($check:ident($($argument:expr),*)) => {{
        $check::<crate::records::Items>($($argument),*);
        $check::<crate::records::Report>($($argument),*);
        $check::<crate::records::Appeal>($($argument),*);
        $check::<crate::records::Decision>($($argument),*);
        $check::<crate::records::Strike>($($argument),*);
        $check::<crate::records::Callback>($($argument),*);
        $check::<crate::records::Evaluation>($($argument),*);
        $check::<crate::records::DeadLetter>($($argument),*);
    }};
}
use for_each_record;

fn is_current(schema: &ReleasedSchema) -> bool {
    let newest = SCHEMAS.iter().filter(|other| other.name == schema.name).map(|other| other.id).max();
    newest == Some(schema.id)
}

/// Calls `visit` with each JSON object of a schema that declares a named type.
fn named_types(schema: &mut Json, visit: &mut dyn FnMut(&mut serde_json::Map<String, Json>)) {
    match schema {
        Json::Array(entries) => entries.iter_mut().for_each(|entry| named_types(entry, visit)),
        Json::Object(object) => {
            for (key, value) in object.iter_mut() {
                if key != "default" {
                    named_types(value, visit);
                }
            }
            if matches!(object.get("type").and_then(Json::as_str), Some("record" | "enum" | "fixed")) {
                visit(object);
            }
        }
        _ => {}
    }
}
