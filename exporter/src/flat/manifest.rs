//! Manifest of an export: its dataset, columns, range and files with digests. Equal rows give an equal manifest.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};
use tidegate_history::{Column, ColumnType, Dataset, Part};
use tidegate_schemas::ids::Millis;

use super::{
    names::{FlatFormat, Partition, file_name},
    output_file::{FileSummary, OutputFile},
};
use crate::{
    error::{ConvertError, ErrorKind},
    timestamp::{MAX_MILLIS, MIN_MILLIS, Timestamp},
};

/// Version of the manifest's form.
pub const MANIFEST_VERSION: u32 = 1;

/// Description of an export or of one of its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    pub schema_version: u32,
    pub dataset: Dataset,
    /// `dsa` for statements of reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    pub format: FlatFormat,
    /// `none` for a file or stream.
    pub partition_by: Partition,
    pub columns: Vec<ManifestColumn>,
    /// Conditions of `--where`.
    #[serde(rename = "where")]
    pub conditions: Vec<String>,
    /// First instant of the range.
    pub since: String,
    /// End of the range, exclusive.
    pub until: String,
    /// Number of parts of the export.
    pub parts: u32,
    /// Number of the part, from 1. Absent if the manifest describes the complete export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    pub rows: u64,
    pub bytes: u64,
    pub files: Vec<FileSummary>,
    /// Fields of the profile that the service does not know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_fields: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestColumn {
    pub name: String,
    /// `text`, `integer`, `boolean`, `time`, `texts` or `structs`.
    #[serde(rename = "type")]
    pub column_type: String,
    pub nullable: bool,
    /// Members of structs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Self>,
}

impl From<&Column> for ManifestColumn {
    fn from(column: &Column) -> Self {
        let (name_of_type, members) = match column.column_type {
            ColumnType::Text => ("text", &[][..]),
            ColumnType::Integer => ("integer", &[][..]),
            ColumnType::Boolean => ("boolean", &[][..]),
            ColumnType::Time => ("time", &[][..]),
            ColumnType::Texts => ("texts", &[][..]),
            ColumnType::Structs(members) => ("structs", members),
        };
        Self {
            name: column.name.to_owned(),
            column_type: name_of_type.to_owned(),
            nullable: column.is_nullable,
            members: members.iter().map(Self::from).collect(),
        }
    }
}

impl Manifest {
    /// Adds a finished file.
    pub(super) fn push_file(&mut self, file: FileSummary) {
        self.rows += file.rows;
        self.bytes += file.bytes;
        self.files.push(file);
    }

    /// Returns the part that the manifest describes.
    pub(super) fn described_part(&self) -> Option<Part> {
        Part::new(self.part.unwrap_or(1), self.parts)
    }

    /// Reads a manifest from a file.
    pub fn read(path: &Path) -> Result<Self, ConvertError> {
        let bytes = fs::read(path).map_err(|error| ConvertError::io("reading", path, error))?;
        let invalid =
            |detail: String| ConvertError::content(&file_name(path), None, ErrorKind::Format, detail);
        let json: serde_json::Value = serde_json::from_slice(&bytes)
            .map_err(|error| invalid(format!("the manifest is not JSON: {error}")))?;
        // Checked first: a later version can have members that this one does not know.
        match json.get("schemaVersion").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(MANIFEST_VERSION) => {}
            Some(version) => {
                return Err(invalid(format!(
                    "the manifest has schemaVersion {version} instead of {MANIFEST_VERSION}"
                )));
            }
            None => return Err(invalid("the manifest has no schemaVersion".to_owned())),
        }
        serde_json::from_value(json).map_err(|error| invalid(format!("the manifest is invalid: {error}")))
    }

    /// Writes the manifest to a folder, and replaces an older one.
    pub(super) fn write(&self, path: &Path) -> Result<(), ConvertError> {
        let mut file = OutputFile::create(path, &file_name(path))?;
        serde_json::to_writer_pretty(file.buffer(), self)
            .map_err(|error| ConvertError::io("writing", path, error.into()))?;
        file.buffer().push(b'\n');
        file.finish(0)?.publish().map(drop)
    }

    /// Describes the first difference between two manifests of one export, apart from part and files.
    pub(super) fn find_difference(&self, other: &Self) -> Option<String> {
        let columns = |manifest: &Self| {
            let names: Vec<_> = manifest.columns.iter().map(|column| column.name.as_str()).collect();
            names.join(",")
        };
        let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let members = [
            ("dataset", self.dataset.to_string(), other.dataset.to_string()),
            ("profile", optional(&self.profile), optional(&other.profile)),
            ("format", self.format.to_string(), other.format.to_string()),
            ("partitionBy", self.partition_by.to_string(), other.partition_by.to_string()),
            ("columns", columns(self), columns(other)),
            ("where", self.conditions.join(" and "), other.conditions.join(" and ")),
            ("since", self.since.clone(), other.since.clone()),
            ("until", self.until.clone(), other.until.clone()),
            ("parts", self.parts.to_string(), other.parts.to_string()),
        ];
        let difference = members.into_iter().find(|(_, first, second)| first != second);
        match difference {
            Some((name, first, second)) => Some(format!("`{name}` is `{first}` instead of `{second}`")),
            // Equal names with other types: written by another version.
            None if self.columns != other.columns => Some("the types of its columns differ".to_owned()),
            None => None,
        }
    }
}

/// Formats an end of the range.
pub(super) fn format_time(time: Millis) -> String {
    Timestamp { millis: time.0.clamp(MIN_MILLIS, MAX_MILLIS), has_millis: true }.to_string()
}
