//! Manifest of an exported day. It is written last, so a reader that sees it sees all of its files.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::Millis;

use super::cron::{day_start, format_day, parse_day};
use crate::destination::is_relative_key;

/// Folder of the manifests. Readers of partitioned tables skip names with this first character.
pub(crate) const MANIFEST_FOLDER: &str = "_manifests";
const FORM_VERSION: u32 = 1;

/// Finished file of a day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileSummary {
    /// Key below the destination, such as `decisions/day=2026-11-28/part-0001-of-0001.parquet`.
    pub name: String,
    pub rows: u64,
    pub bytes: u64,
    /// SHA-256 of the bytes, in hexadecimal digits.
    pub sha256: String,
}

/// Document `_manifests/day=2026-11-28.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DayManifest<'a> {
    pub form_version: u32,
    pub schedule: Cow<'a, str>,
    pub org: Cow<'a, str>,
    pub day: Cow<'a, str>,
    /// First instant of the day.
    pub since: Cow<'a, str>,
    /// First instant of the next day.
    pub until: Cow<'a, str>,
    pub exported_at: Cow<'a, str>,
    pub rows: u64,
    pub files: Vec<FileSummary>,
}

impl<'a> DayManifest<'a> {
    pub(crate) fn new(
        schedule: &'a str,
        org: &'a str,
        day: i64,
        exported_at: Millis,
        files: &[FileSummary],
    ) -> Self {
        Self {
            form_version: FORM_VERSION,
            schedule: schedule.into(),
            org: org.into(),
            day: format_day(day).into(),
            since: day_start(day).iso().into(),
            until: day_start(day.saturating_add(1)).iso().into(),
            exported_at: exported_at.iso().into(),
            rows: count_rows(files),
            files: files.to_vec(),
        }
    }

    /// Reads a manifest, and refuses file names that point out of the destination: its files may be deleted.
    pub fn parse(bytes: &[u8]) -> Result<DayManifest<'static>, String> {
        let manifest: DayManifest<'static> =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if manifest.form_version != FORM_VERSION {
            return Err(format!("form version {} is unknown", manifest.form_version));
        }
        match manifest.files.iter().find(|file| !is_data_key(&file.name)) {
            Some(file) => Err(format!("{:?} is no name of a data file", file.name)),
            None => Ok(manifest),
        }
    }
}

/// Number of rows of all files.
pub(crate) fn count_rows(files: &[FileSummary]) -> u64 {
    files.iter().map(|file| file.rows).sum()
}

/// True for a key below the destination that is no manifest.
pub(crate) fn is_data_key(name: &str) -> bool {
    is_relative_key(name) && name.split('/').next() != Some(MANIFEST_FOLDER)
}

/// Key of the manifest of a day.
pub fn manifest_key(day: i64) -> String {
    format!("{MANIFEST_FOLDER}/day={}.json", format_day(day))
}

/// Day of a manifest's key; `None` for the key of another file.
pub(crate) fn day_of_manifest(key: &str) -> Option<i64> {
    let name = key.strip_prefix(MANIFEST_FOLDER)?.strip_prefix("/day=")?;
    parse_day(name.strip_suffix(".json")?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn file(name: &str) -> FileSummary {
        FileSummary { name: name.to_owned(), rows: 2, bytes: 10, sha256: "00".to_owned() }
    }

    #[test]
    fn manifest_names_the_day_and_its_bounds() {
        let files = [file("decisions/day=2026-11-28/part-0001-of-0001.parquet"), file("b")];
        let day = parse_day("2026-11-28").unwrap();
        let manifest = DayManifest::new("nightly", "acme", day, Millis(0), &files);
        let text = serde_json::to_string(&manifest).unwrap();
        for part in [
            r#""day":"2026-11-28""#,
            r#""since":"2026-11-28T00:00:00.000Z""#,
            r#""until":"2026-11-29T00:00:00.000Z""#,
            r#""rows":4"#,
            r#""exportedAt":"1970-01-01T00:00:00.000Z""#,
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(DayManifest::parse(text.as_bytes()).unwrap(), manifest);
    }

    #[test]
    fn manifest_with_foreign_names_is_refused() {
        for name in ["../x", "/etc/passwd", "", "_manifests/day=2026-11-28.json"] {
            let manifest = DayManifest::new("a", "acme", 1, Millis(0), &[file(name)]);
            let bytes = serde_json::to_vec(&manifest).unwrap();
            assert!(DayManifest::parse(&bytes).unwrap_err().contains("no name"), "{name}");
        }
        assert!(DayManifest::parse(b"{}").is_err());
    }

    #[test]
    fn day_is_read_from_the_key_of_its_manifest() {
        assert_eq!(day_of_manifest(&manifest_key(20_785)), Some(20_785));
        for key in ["_manifests/x.json", "_manifests/day=2026-11-28.json.partial", "day=2026-11-28.json"] {
            assert_eq!(day_of_manifest(key), None, "{key}");
        }
    }
}
