//! Formats, parts and partitions of exports, and the names of their files.

use std::path::Path;

use tidegate_history::Part;
use tidegate_schemas::string_enum;

use crate::timestamp::{DayCache, Timestamp};

string_enum! {
    /// Format of exported rows.
    pub enum FlatFormat {
        Parquet = "parquet",
        Ndjson = "ndjson",
        Csv = "csv",
    }
}

string_enum! {
    /// Partition of an export into folders.
    pub enum Partition {
        /// One file per part.
        Whole = "none",
        /// One folder per day, named `day=2026-11-28` as Hive does.
        Day = "day",
    }
}

/// Start of the names of day folders.
pub(super) const DAY_PREFIX: &str = "day=";
/// Milliseconds of a day.
const DAY_MILLIS: i64 = 86_400_000;

/// Name of the manifest of a complete export.
pub(super) const MANIFEST_NAME: &str = "manifest.json";

/// Name of a data file in the folder of its day.
pub(super) fn data_file_name(part: Part, format: FlatFormat) -> String {
    format!("{}.{format}", format_label(part))
}

pub(super) fn manifest_name(part: Part) -> String {
    if part.count() == 1 { MANIFEST_NAME.to_owned() } else { format!("manifest-{}.json", format_label(part)) }
}

/// Formats a part as `part-0001-of-0004`.
pub(super) fn format_label(part: Part) -> String {
    format!("part-{:04}-of-{:04}", part.number(), part.count())
}

/// Parses `part-0001-of-0004`.
fn parse_label(label: &str) -> Option<Part> {
    let (number, count) = label.strip_prefix("part-")?.split_once("-of-")?;
    let part = Part::new(number.parse().ok()?, count.parse().ok()?)?;
    // Refuses other spellings of the numbers.
    (format_label(part) == label).then_some(part)
}

/// Option that selects the part, for messages.
pub(super) fn part_option(part: Part) -> String {
    format!("--part {part}")
}

/// Formats days since 1970 as `2026-11-28`.
pub(super) fn format_day(day: i64) -> String {
    let midnight = Timestamp { millis: day.saturating_mul(DAY_MILLIS), has_millis: false };
    String::from_utf8_lossy(&midnight.text(&mut DayCache::default())[..10]).into_owned()
}

/// Returns the part of a name such as `manifest-part-0001-of-0004.json`.
pub(super) fn parse_manifest_name(name: &str) -> Option<Part> {
    parse_label(name.strip_prefix("manifest-")?.strip_suffix(".json")?)
}

/// Returns part and format of `part-0001-of-0004.csv` or `day=2026-11-28/part-0001-of-0004.csv`.
pub(super) fn parse_data_name(name: &str) -> Option<(Part, FlatFormat)> {
    let (day, file) = name.split_once('/').map_or((None, name), |(day, file)| (Some(day), file));
    if day.is_some_and(|day| !day.starts_with(DAY_PREFIX)) {
        return None;
    }
    let (label, extension) = file.split_once('.')?;
    Some((parse_label(label)?, extension.parse().ok()?))
}

/// Last component of a path, as text.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_one_spelling() {
        let part: Part = "2/4".parse().unwrap();
        assert_eq!((part.number(), part.count()), (2, 4));
        assert_eq!(data_file_name(part, FlatFormat::Parquet), "part-0002-of-0004.parquet");
        assert_eq!(manifest_name(part), "manifest-part-0002-of-0004.json");
        assert_eq!(parse_label("part-0002-of-0004"), Some(part));
        assert_eq!(manifest_name(Part::WHOLE), "manifest.json");
        for label in
            ["part-2-of-4", "part-0005-of-0004", "part-0000-of-0004", "part-+002-of-0004", "part-0001"]
        {
            assert_eq!(parse_label(label), None, "{label}");
        }
        for option in ["0/4", "5/4", "1", "a/b", "1/10000", "/", ""] {
            let error = option.parse::<Part>().unwrap_err().to_string();
            assert!(
                error.contains("such as 1/4") && error.contains("at most 9,999 parts"),
                "{option}: {error}"
            );
        }
    }

    #[test]
    fn data_files_are_recognised_by_their_names() {
        assert_eq!(format_day(20_785), "2026-11-28");
        assert_eq!(parse_data_name("part-0001-of-0001.csv"), Some((Part::WHOLE, FlatFormat::Csv)));
        let in_day = parse_data_name("day=2026-11-28/part-0001-of-0001.parquet");
        assert_eq!(in_day, Some((Part::WHOLE, FlatFormat::Parquet)));
        for name in [
            "part-0001-of-0001.parquet.partial",
            "other/part-0001-of-0001.csv",
            "day=x/day=y/part-0001-of-0001.csv",
            "part-0001-of-0001.txt",
            "notes.csv",
        ] {
            assert_eq!(parse_data_name(name), None, "{name}");
        }
    }
}
