//! Reads Tech Against Terrorism pages of hashes.

use serde_json::{Map, Value};
use tidegate_schemas::banks::BankKind;

use super::{add, flag, name, required_text, withdraw};
use crate::entry::{Change, hash_kind};

/// Returns the change that a record requests.
pub(crate) fn change(record: &Map<String, Value>, kind: BankKind) -> Result<Change, String> {
    let value = required_text(record, "hash_digest")?;
    if hash_kind(required_text(record, "algorithm")?) != kind.hash_kind() {
        return Ok(Change::OtherKind);
    }
    let reference = name(record, "id")?;
    if flag(record, "deleted")? {
        return withdraw(value, "tat", reference.as_deref(), kind);
    }
    let labels: Vec<String> = name(record, "ideology")?.into_iter().collect();
    Ok(add(value, "tat", reference, &labels))
}
