//! JSON Schema of a bundle, for validators outside this crate.
//!
//! `bundle::validate` uses the Rust form instead; a test keeps the two equal.

use crate::form::{KIND, Naming, SCHEMA_URL};

const SCHEMA: &str = include_str!("../../../schemas/data-bundle/v1.json");

/// Schema (draft 2020-12) for the given naming and `schema` value.
pub fn text(naming: Naming, url: Option<&str>) -> String {
    let url = url.unwrap_or(naming.schema());
    SCHEMA
        .replace(&quoted(SCHEMA_URL), &quoted(url))
        .replace(&quoted(KIND), &quoted(naming.kind()))
        .replace(&quoted(Naming::Service.stored_by()), &quoted(naming.stored_by()))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_constants_are_those_that_are_asked_for() {
        assert_eq!(text(Naming::Service, None), SCHEMA);
        let delib = text(Naming::Delib, Some("https://example.org/a\"b"));
        let delib: serde_json::Value = serde_json::from_str(&delib).unwrap();
        for at in ["/$id", "/properties/schema/const"] {
            assert_eq!(delib.pointer(at).unwrap(), "https://example.org/a\"b");
        }
        assert_eq!(delib["properties"]["kind"]["const"], "delib-data-bundle");
        let card = &delib["$defs"]["dataCard"];
        assert!(
            card["properties"].get("storedByDelib").is_some()
                && card["properties"].get("storedByService").is_none()
        );
        assert!(card["required"].as_array().unwrap().contains(&"storedByDelib".into()));
    }
}
