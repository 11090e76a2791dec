//! Parses JSON and refuses objects with a repeated key, since a map would silently keep the last value.

use serde_json::Value;
use tidegate_schemas::{json::scan_to, validation_error::Pointer};

/// Maximum nesting depth, the same as in `serde_json`.
const MAX_DEPTH: usize = 128;

/// Parses a JSON value and refuses one in which an object names a key twice.
pub(crate) fn parse_unique(text: &str) -> Result<Value, String> {
    let value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    match scan_to(text.as_bytes(), &Pointer::Root, MAX_DEPTH) {
        Ok(_) => Ok(value),
        Err(faults) => Err(faults.into_iter().next().map(|fault| fault.detail).unwrap_or_default()),
    }
}
