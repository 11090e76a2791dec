//! Refuses a JSON object that says something twice: a map would keep what comes last.
//!
//! What is said is not its matter.

use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Deserializer;

/// Several keys may name one field.
pub(super) fn named_once(object: &str, field: impl Fn(&str) -> Option<&'static str>) -> Result<(), String> {
    let keys = Deserializer::from_str(object).deserialize_map(Keys);
    let keys = keys.map_err(|error| format!("it is no JSON: {error}"))?;
    // One that is unknown is refused for that.
    for (at, key) in keys.iter().enumerate().take_while(|(_, key)| field(key).is_some()) {
        if let Some(earlier) = keys[..at].iter().find(|earlier| field(earlier) == field(key)) {
            return Err(if earlier == key {
                format!("it has `{key}` twice")
            } else {
                format!("it has both `{earlier}` and `{key}`, which are the same")
            });
        }
    }
    Ok(())
}

/// As they stand.
struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut keys = Vec::new();
        while let Some((key, IgnoredAny)) = map.next_entry()? {
            keys.push(key);
        }
        Ok(keys)
    }
}
