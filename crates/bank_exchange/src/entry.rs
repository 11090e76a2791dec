//! Entries of a file: their position, and the change of the bank that each requests.

use std::fmt;

use serde_json::{Map, Value};
use tidegate_schemas::{
    banks::{BankKind, HashKind},
    item_types::datetime,
};

/// Change of a bank that an entry requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A text, or an object with `value` and further fields.
    Add(Value),
    /// A value that its source withdraws, under the source's name for it.
    Withdraw(Value),
    /// All values that a source listed under one name.
    WithdrawByReference { source: String, reference: String },
    /// A hash of another kind than the bank's, which is skipped.
    OtherKind,
}

/// One entry of a file.
pub struct FileEntry {
    pub position: Position,
    /// The change, or the reason why the entry is refused.
    pub change: Result<Change, String>,
}

impl FileEntry {
    pub(crate) const fn at_line(line: u64, change: Result<Change, String>) -> Self {
        Self { position: Position { line, record: None }, change }
    }
}

/// Position of an entry in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1; the first one of an entry over several lines.
    pub line: u64,
    /// Number of the record in an exchange's file, all of which may be one line.
    pub(crate) record: Option<u64>,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        self.record.map_or(Ok(()), |record| write!(f, ", record {record}"))
    }
}

/// Returns the kind of hash that exchanges and tools call `name`, if banks support it.
pub(crate) fn hash_kind(name: &str) -> Option<HashKind> {
    match name.trim().to_ascii_lowercase().as_str() {
        "hash_pdq" | "imagepdq" => Some(HashKind::Pdq),
        "hash_md5" | "video_md5" | "videomd5" => Some(HashKind::Md5),
        "hash_sha1" | "sha-1" => Some(HashKind::Sha1),
        "hash_sha256" | "sha-256" => Some(HashKind::Sha256),
        "pdna" | "hash_pdna" | "hash_photodna" => Some(HashKind::Photodna),
        "hash_netclean" => Some(HashKind::Netclean),
        other => HashKind::from_name(other),
    }
}

/// Names of columns and keys in files, with the names that the service expects.
const FIELDS: [(&str, &str); 16] = [
    ("value", "value"),
    ("hash", "value"),
    ("labels", "labels"),
    ("source", "source"),
    ("expiresAt", "expiresAt"),
    ("expires_at", "expiresAt"),
    ("expiresat", "expiresAt"),
    ("signal_type", "signalType"),
    ("signalType", "signalType"),
    ("distance", "distance"),
    ("max_distance", "distance"),
    ("maxDistance", "distance"),
    ("reference", "reference"),
    ("content_id", "reference"),
    ("note", "note"),
    ("disabled", "disabled"),
];

/// Returns the service's name of a column or key.
pub(crate) fn field_name(name: &str) -> Option<&'static str> {
    FIELDS.into_iter().find(|(alias, _)| *alias == name).map(|(_, field)| field)
}

/// Completes an entry: removes the hash kind, which the service knows, and refuses entries for which the service would refuse the
/// whole request.
pub(crate) fn complete_entry(mut entry: Map<String, Value>, bank: BankKind) -> Result<Change, String> {
    let kind_name = entry.remove("signalType");
    if !entry.get("value").is_some_and(Value::is_string) {
        return Err("its `value` is not a text".to_owned());
    }
    if entry.get("expiresAt").and_then(Value::as_str).is_some_and(|text| datetime::parse(text).is_none()) {
        return Err("its expiry is not a time such as 2026-12-31T00:00:00Z".to_owned());
    }
    match kind_name.as_ref().and_then(Value::as_str) {
        // Files of exchanges mix kinds, so entries of another kind are skipped and not refused.
        Some(name) if hash_kind(name).is_none() || hash_kind(name) != bank.hash_kind() => {
            Ok(Change::OtherKind)
        }
        _ => Ok(Change::Add(Value::Object(entry))),
    }
}
