//! Files with one JSON value a line.

use std::{collections::BTreeMap, io::BufRead};

use serde_json::{Map, Value};
use tidegate_schemas::banks::BankKind;

use crate::{
    FileEntries,
    entry::{Change, complete, field},
    plain_lines::lines,
    unique_keys::parse_unique,
};

/// Returns the entries of an NDJSON file.
pub(crate) fn json_entries(file: impl BufRead + 'static, kind: BankKind) -> FileEntries {
    Box::new(lines(file, move |text| object(text, kind)))
}

fn object(line: &str, bank: BankKind) -> Result<Change, String> {
    let entry = parse_unique(line)?;
    let object = match entry {
        Value::String(_) => return Ok(Change::Add(entry)),
        Value::Object(object) => object,
        _ => return Err("it is neither a text nor an object".to_owned()),
    };
    let (mut read, mut named) = (Map::new(), BTreeMap::new());
    for (key, value) in object {
        let Some(name) = field(&key) else {
            let shown: String = key.chars().take(64).collect();
            return Err(format!(
                "`{shown}` is none of value, labels, source, expiresAt, signal_type, max_distance, content_id, note and disabled"
            ));
        };
        if let Some(earlier) = named.insert(name, key.clone()) {
            return Err(format!("it has both `{earlier}` and `{key}`, which are the same"));
        }
        let fits = match name {
            "labels" => value.as_array().is_some_and(|all| all.iter().all(Value::is_string)),
            "distance" => value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
            "disabled" => value.is_boolean(),
            _ => value.is_string(),
        };
        match value {
            Value::Null => {}
            value if fits => drop(read.insert(name.to_owned(), value)),
            _ => {
                return Err(format!(
                    "`{key}` is not what it should be: a text, of labels a list of texts, of the distance a number"
                ));
            }
        }
    }
    complete(read, bank)
}
