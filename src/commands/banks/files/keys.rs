//! Reads a JSON value, but for one of which an object says something twice: a map would keep what comes last.
//!
//! What is said is not its matter.

use serde_json::Value;
use tidegate_schemas::wire::{fault::Pointer, json::scan_to};

/// How deep it may be nested, as far as `serde_json` goes.
const DEPTH: usize = 128;

pub(super) fn said_once(text: &str) -> Result<Value, String> {
    let value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    match scan_to(text.as_bytes(), &Pointer::Root, DEPTH) {
        Ok(_) => Ok(value),
        Err(faults) => Err(faults.into_iter().next().map(|fault| fault.detail).unwrap_or_default()),
    }
}
