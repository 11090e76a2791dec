//! License of a package: an id of the SPDX list, a custom id, or the URI of its text.
//!
//! `spdx.txt` lists the ids of the SPDX License List 3.27.0, including deprecated ones.

use serde_json::{Value, json};
use strsim::levenshtein;

use crate::bundle::validate::formats::is_uri;

const IDS: &str = include_str!("spdx.txt");
/// Prefix of custom license ids.
const CUSTOM_PREFIX: &str = "LicenseRef-";

/// Returns the license as a package describes it, or an error message.
pub(crate) fn license_value(license: &str) -> Result<Value, String> {
    let printable = license.escape_debug();
    // Neither SPDX ids nor custom ids contain a colon.
    if license.contains(':') {
        let path = is_uri(license.as_bytes()).then(|| json!({ "path": license }));
        return path.ok_or_else(|| format!("--license {printable} is not a URI"));
    }
    let is_custom = license.strip_prefix(CUSTOM_PREFIX).is_some_and(|name| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
    });
    if is_custom || IDS.lines().any(|id| id == license) {
        return Ok(json!({ "name": license }));
    }
    let suggestion =
        nearest_id(license).map_or_else(|| "such as CC-BY-4.0".to_owned(), |id| format!("{id} is"));
    Err(format!(
        "--license {printable} is neither an SPDX id ({suggestion}), nor {CUSTOM_PREFIX} with letters, \
            digits, dots and hyphens, nor a URI"
    ))
}

/// Finds the id that was probably meant, if few letters differ.
fn nearest_id(license: &str) -> Option<&'static str> {
    // No id is longer, and the distance is quadratic in the length.
    if license.len() > 60 {
        return None;
    }
    let license = license.to_lowercase();
    let candidates = IDS.lines().map(|id| (levenshtein(&license, &id.to_lowercase()), id));
    candidates
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= 1 + license.len() / 6)
        .map(|candidate| candidate.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn license_list_is_sorted_and_unique() {
        let ids: Vec<_> = IDS.lines().collect();
        assert!(ids.len() > 600 && ids.is_sorted_by(|one, other| one < other));
        for id in ids {
            assert_eq!(license_value(id), Ok(json!({ "name": id })));
        }
    }
}
