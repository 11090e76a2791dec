//! Reads files with one JSON value per line.

use std::{collections::BTreeMap, io::BufRead};

use serde_json::{Map, Value};
use tidegate_schemas::banks::BankKind;

use crate::{
    FileEntries,
    entry::{Change, complete_entry, field_name},
    plain_lines::read_lines,
    unique_keys::parse_unique,
};

/// Returns the entries of an NDJSON file.
pub(crate) fn json_entries(file: impl BufRead + 'static, kind: BankKind) -> FileEntries {
    Box::new(read_lines(file, move |text| parse_entry(text, kind)))
}

fn parse_entry(line: &str, bank: BankKind) -> Result<Change, String> {
    let entry = parse_unique(line)?;
    let object = match entry {
        Value::String(_) => return Ok(Change::Add(entry)),
        Value::Object(object) => object,
        _ => return Err("it is neither a text nor an object".to_owned()),
    };
    let (mut fields, mut keys_by_field) = (Map::new(), BTreeMap::new());
    for (key, value) in object {
        let Some(name) = field_name(&key) else {
            let shortened_key: String = key.chars().take(64).collect();
            return Err(format!(
                "`{shortened_key}` is none of value, labels, source, expiresAt, signal_type, max_distance, content_id, note and disabled"
            ));
        };
        if let Some(earlier_key) = keys_by_field.insert(name, key.clone()) {
            return Err(format!("it has both `{earlier_key}` and `{key}`, which are the same"));
        }
        let is_valid = match name {
            "labels" => value.as_array().is_some_and(|labels| labels.iter().all(Value::is_string)),
            "distance" => value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
            "disabled" => value.is_boolean(),
            _ => value.is_string(),
        };
        match value {
            // `null` means the same as a missing field.
            Value::Null => {}
            value if is_valid => drop(fields.insert(name.to_owned(), value)),
            _ => {
                return Err(format!(
                    "`{key}` has the wrong type: labels are a list of texts, the distance is a number, `disabled` is true or false"
                ));
            }
        }
    }
    complete_entry(fields, bank)
}
