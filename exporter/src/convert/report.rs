//! Report of a finished conversion.
//!
//! It names no participant.

use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The format that was found or told.
    pub format: &'static str,
    pub variant: Option<&'static str>,
    pub participants: u64,
    pub items: u64,
    pub responses: u64,
    pub coverage: f64,
    /// Answers that a later one has replaced; nothing if that is not known, or they are too few to be told.
    pub superseded: Option<u64>,
    /// Places in texts that were replaced by tokens.
    pub redacted: u64,
    pub suitable: bool,
    pub publication: &'static str,
    pub notes: Vec<String>,
    pub bundle_id: Option<String>,
    pub bytes: u64,
    /// SHA-256 of everything behind the id.
    pub content_sha256: Option<String>,
    /// Names of the files that were written beside or instead of the bundle, or would be.
    pub files: Vec<String>,
    /// True if nothing was written.
    pub dry_run: bool,
}
