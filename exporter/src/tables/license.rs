//! License of a package: an id of SPDX's list, an operator's own id, or the address of its text.
//!
//! `spdx.txt` holds the ids of the SPDX License List 3.27.0, deprecated ones included.

use serde_json::{Value, json};
use strsim::levenshtein;

use crate::bundle::validate::formats::uri;

const IDS: &str = include_str!("spdx.txt");
/// Prefix of license ids that are on no list.
const OWN: &str = "LicenseRef-";

/// Returns the license as a package names it, or why that is impossible.
pub(crate) fn named(told: &str) -> Result<Value, String> {
    let shown = told.escape_debug();
    if told.contains(':') {
        let path = uri(told.as_bytes()).then(|| json!({ "path": told }));
        return path.ok_or_else(|| format!("--license {shown} is no URI"));
    }
    let own = told.strip_prefix(OWN).is_some_and(|name| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
    });
    if own || IDS.lines().any(|id| id == told) {
        return Ok(json!({ "name": told }));
    }
    let near = near(told).map_or_else(|| "such as CC-BY-4.0".to_owned(), |id| format!("{id} is"));
    Err(format!(
        "--license {shown} is no id of SPDX's list ({near}), nor {OWN} with letters, digits, dots and hyphens, nor a URI"
    ))
}

/// The id that was meant, if few letters differ.
fn near(told: &str) -> Option<&'static str> {
    // Longer ones there are not.
    if told.len() > 60 {
        return None;
    }
    let told = told.to_lowercase();
    let all = IDS.lines().map(|id| (levenshtein(&told, &id.to_lowercase()), id));
    all.min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= 1 + told.len() / 6)
        .map(|found| found.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order_and_holds_no_id_twice() {
        let ids: Vec<_> = IDS.lines().collect();
        assert!(ids.len() > 600 && ids.is_sorted_by(|one, other| one < other));
        for id in ids {
            assert_eq!(named(id), Ok(json!({ "name": id })));
        }
    }
}
