//! Reads StopNCII pages of hash records with a status.

use serde_json::{Map, Value};
use tidegate_schemas::banks::BankKind;

use super::{add, required_text, withdraw};
use crate::entry::{Change, hash_kind};

/// Returns the change that a record requests.
pub(crate) fn change(record: &Map<String, Value>, kind: BankKind) -> Result<Change, String> {
    let value = required_text(record, "hashValue")?;
    if hash_kind(required_text(record, "signalType")?) != kind.hash_kind() {
        return Ok(Change::OtherKind);
    }
    let is_withdrawn = match required_text(record, "hashStatus")? {
        "Active" => false,
        "Withdrawn" | "Deleted" => true,
        // An unknown status may mean "withdrawn", and a withdrawn hash must not be added.
        _ => return Err("its `hashStatus` is none of Active, Withdrawn and Deleted".to_owned()),
    };
    if is_withdrawn { withdraw(value, "stopncii", None, kind) } else { Ok(add(value, "stopncii", None, &[])) }
}
