//! Writes `datapackage.json` and `manifest-sha256.txt`, which make the files a Frictionless Data package.

use std::{fs::File, io::Read as _, path::Path};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{FinishedFile, PartialFile, license};
use crate::bundle::read::read_bundle;
use crate::{
    error::ConvertError,
    input::name_of,
    json::write::encode_hex,
    meter::{Meter, Metered},
};

pub(crate) const FILES: [&str; 2] = ["datapackage.json", "manifest-sha256.txt"];

/// Describes the bundle, with its content still at `partial`, and its sidecars.
pub(crate) fn write(
    partial: &Path,
    out: &Path,
    sidecars: &[FinishedFile],
    license: Option<&str>,
    meter: &Meter,
) -> Result<Vec<FinishedFile>, ConvertError> {
    let card = read_bundle(partial, &mut (), meter)?;
    let folder = out.parent().unwrap_or(Path::new(""));
    let mut resources = Vec::new();
    let mut manifest = String::new();
    let files = sidecars.iter().map(|sidecar| (&*sidecar.partial, sidecar.path.as_path()));
    for (current_path, path) in [(partial, out)].into_iter().chain(files) {
        let (bytes, digest, first) = digest_file(current_path, meter)?;
        let name = name_of(path);
        manifest.push_str(&format!("{digest}  {name}\n"));
        let format = name.rsplit('.').next().unwrap_or_default();
        // Resource names of the format are restricted to lowercase letters, digits and hyphens.
        let slug: String = name
            .to_lowercase()
            .chars()
            .map(|character| if character.is_ascii_alphanumeric() { character } else { '-' })
            .collect();
        let mut resource =
            json!({ "name": slug, "path": name, "format": format, "hash": format!("sha256:{digest}") });
        // The Frictionless validator cannot determine the length of a Parquet file and rejects any stated one.
        if format != "parquet" {
            resource["bytes"] = bytes.into();
        }
        if let Some(columns) = columns(&name) {
            resource["schema"] = schema(columns, |column| format != "ndjson" || first.contains(column));
        }
        resources.push(resource);
    }
    let source = card.get("source").cloned().unwrap_or(Value::Null);
    let mut package = json!({
        "name": "data-bundle",
        "id": card.get("bundleId"),
        "created": card.get("exportedAt"),
        "title": source["title"],
        "description": source["description"],
        "sources": [{ "title": source["title"] }],
        "resources": resources,
    });
    // A generated URN of the source is not a valid path.
    if let Some(url) =
        source["url"].as_str().filter(|url| url.starts_with("https://") || url.starts_with("http://"))
    {
        package["sources"][0]["path"] = url.into();
    }
    if let Some(license) = license.and_then(|license| license::license_value(license).ok()) {
        package["licenses"] = json!([license]);
    }
    let text = serde_json::to_vec_pretty(&package).expect("JSON values are JSON");
    let [package_path, manifest_path] = FILES.map(|name| folder.join(name));
    let mut file = PartialFile::create(package_path)?;
    file.write(&text)?;
    file.write(b"\n")?;
    // The manifest covers the package description, so it is written last.
    let package_file = file.finish()?;
    manifest.push_str(&format!(
        "{}  {}\n",
        digest_file(&package_file.partial, meter)?.1,
        name_of(&package_file.path)
    ));
    let mut file = PartialFile::create(manifest_path)?;
    file.write(manifest.as_bytes())?;
    Ok(vec![package_file, file.finish()?])
}

/// Members of the first line of an NDJSON file.
struct Members(Map<String, Value>);

impl Members {
    /// True if the first line has this member, or if it is unknown: the file is empty, or the line longer than a
    /// block.
    fn contains(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.contains_key(name)
    }
}

/// Name, type and required flag of each column.
type Columns = [(&'static str, &'static str, bool)];

const ITEMS: &Columns = &[
    ("id", "string", true),
    ("phaseId", "string", true),
    ("type", "string", true),
    ("text", "string", true),
    ("status", "string", true),
    ("origin", "string", true),
    ("createdAt", "datetime", false),
];
const RESPONSES: &Columns = &[
    ("id", "string", true),
    ("phaseId", "string", true),
    ("subjectRef", "string", true),
    ("objectRef", "string", false),
    ("participantRef", "string", false),
    ("response", "string", true),
    ("count", "integer", true),
    ("occurredAt", "datetime", false),
];

/// Columns of a table; `None` for outcomes: their members vary.
fn columns(name: &str) -> Option<&'static Columns> {
    let is_list =
        |list: &str| ["parquet", "ndjson"].iter().any(|format| name.ends_with(&format!(".{list}.{format}")));
    if is_list("items") {
        Some(ITEMS)
    } else if is_list("responses") {
        Some(RESPONSES)
    } else {
        None
    }
}

/// Table Schema of the columns. Empty texts are values, not missing ones.
fn schema(columns: &Columns, is_present: impl Fn(&str) -> bool) -> Value {
    let fields: Vec<_> = columns
        .iter()
        .filter(|(name, ..)| is_present(name))
        .map(|(name, kind, required)| {
            let mut field = json!({ "name": name, "type": kind });
            if *required {
                field["constraints"] = json!({ "required": true });
            }
            field
        })
        .collect();
    json!({ "fields": fields, "primaryKey": "id", "missingValues": [] })
}

/// Size, digest and, for NDJSON, members of the first line. All rows of a conversion have the same members as the
/// first one.
fn digest_file(path: &Path, meter: &Meter) -> Result<(u64, String, Members), ConvertError> {
    let io_error = |error| ConvertError::from_io(&name_of(path), error);
    let mut file = Metered::new(File::open(path).map_err(io_error)?, meter);
    let (mut hash, mut bytes, mut block) = (Sha256::new(), 0, vec![0; 1 << 18]);
    let mut first_block = Vec::new();
    loop {
        let byte_count = file.read(&mut block).map_err(io_error)?;
        if byte_count == 0 {
            let line = first_block.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let members: Map<String, Value> = serde_json::from_slice(line).unwrap_or_default();
            return Ok((bytes, encode_hex(&hash.finalize()), Members(members)));
        }
        if bytes == 0 {
            first_block.extend_from_slice(&block[..byte_count]);
        }
        hash.update(&block[..byte_count]);
        bytes += byte_count as u64;
    }
}
