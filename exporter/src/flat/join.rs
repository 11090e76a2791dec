//! Joins the parts of an export that several processes wrote: checks them, and writes the manifest of the whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use sha2::{Digest as _, Sha256};
use tidegate_history::Part;

use super::{
    FileSummary, Manifest,
    folder::{list_data_files, list_manifests},
    names::{MANIFEST_NAME, file_name, manifest_name, parse_data_name, parse_manifest_name, part_option},
};
use crate::{
    error::{ConvertError, ErrorKind},
    json::write::encode_hex,
    meter::Meter,
};

/// Number of missing parts that a message lists.
const MAX_LISTED_PARTS: usize = 5;
/// Bytes read at once.
const BLOCK_BYTES: usize = 1 << 18;

/// Checks the part manifests of a folder and the digests of their files, and writes `manifest.json`. Parts that were
/// written on other machines are copied to the folder first; their names do not collide.
pub fn join_parts(folder: &Path, meter: &Meter) -> Result<Manifest, ConvertError> {
    let manifests = read_manifests(folder)?;
    let (first, count) = check_part_count(folder, &manifests)?;
    for (part, manifest) in &manifests {
        if let Some(difference) = manifest.find_difference(first) {
            let detail = format!(
                "{difference}, which the first part has: write this part again with the options of the others"
            );
            return Err(content_error(&manifest_name(*part), ErrorKind::Value, detail));
        }
    }
    let mut joined_manifest = Manifest { part: None, rows: 0, bytes: 0, files: Vec::new(), ..first.clone() };
    let mut listed_names = BTreeSet::new();
    for (part, manifest) in &manifests {
        for file in &manifest.files {
            check_name(*part, file)?;
            if !listed_names.insert(file.name.clone()) {
                let detail = format!("{} is listed twice", file.name);
                return Err(content_error(&manifest_name(*part), ErrorKind::Duplicate, detail));
            }
            meter.check_stop()?;
            check_digest(folder, *part, file, meter)?;
            joined_manifest.push_file(file.clone());
        }
    }
    for name in list_data_files(folder)? {
        if !listed_names.contains(&name) {
            let detail = format!("no manifest of the {count} parts lists the file: delete it");
            return Err(content_error(&name, ErrorKind::Value, detail));
        }
    }
    joined_manifest.files.sort_by(|first, second| first.name.cmp(&second.name));
    joined_manifest.write(&folder.join(MANIFEST_NAME))?;
    Ok(joined_manifest)
}

fn content_error(file: &str, kind: ErrorKind, detail: impl Into<String>) -> ConvertError {
    ConvertError::content(file, None, kind, detail)
}

fn read_manifests(folder: &Path) -> Result<BTreeMap<Part, Manifest>, ConvertError> {
    let mut manifests = BTreeMap::new();
    for name in list_manifests(folder)? {
        let Some(part) = parse_manifest_name(&name) else { continue };
        let manifest = Manifest::read(&folder.join(&name))?;
        if manifest.part.is_none() || manifest.described_part() != Some(part) {
            let detail = format!(
                "the manifest describes part {} of {}, unlike its name",
                manifest.part.unwrap_or_default(),
                manifest.parts
            );
            return Err(content_error(&name, ErrorKind::Value, detail));
        }
        manifests.insert(part, manifest);
    }
    Ok(manifests)
}

/// Returns the manifest of the first part and the number of parts, if all of them are there.
fn check_part_count<'m>(
    folder: &Path,
    manifests: &'m BTreeMap<Part, Manifest>,
) -> Result<(&'m Manifest, u32), ConvertError> {
    let Some((first_part, first)) = manifests.first_key_value() else {
        let detail = "the folder has no manifest of a part, such as manifest-part-0001-of-0004.json";
        return Err(content_error(&file_name(folder), ErrorKind::MissingFile, detail));
    };
    let count = first_part.count();
    if let Some(other) = manifests.keys().find(|part| part.count() != count) {
        let detail = format!(
            "the export has {} parts, but {} belongs to one of {count}: delete one of the exports",
            other.count(),
            manifest_name(*first_part)
        );
        return Err(content_error(&manifest_name(*other), ErrorKind::Value, detail));
    }
    let missing_parts: Vec<_> = (1..=count)
        .filter_map(|index| Part::new(index, count))
        .filter(|part| !manifests.contains_key(part))
        .collect();
    if let Some(part) = missing_parts.first() {
        let list = missing_parts.iter().take(MAX_LISTED_PARTS).map(|part| part.number().to_string());
        let list = list.collect::<Vec<_>>().join(", ");
        let ellipsis = if missing_parts.len() > MAX_LISTED_PARTS { ", ..." } else { "" };
        let (noun, verb) = if missing_parts.len() == 1 { ("part", "is") } else { ("parts", "are") };
        let detail = format!(
            "{noun} {list}{ellipsis} of {count} {verb} missing: write {} with {}",
            if missing_parts.len() == 1 { "it" } else { "each, the first" },
            part_option(*part)
        );
        return Err(content_error(&manifest_name(*part), ErrorKind::MissingFile, detail));
    }
    Ok((first, count))
}

/// Refuses a name that the part cannot have, such as a path outside of the folder.
fn check_name(part: Part, file: &FileSummary) -> Result<(), ConvertError> {
    if parse_data_name(&file.name).is_some_and(|(named_part, _)| named_part == part)
        && !file.name.contains(['\\', '\0'])
    {
        return Ok(());
    }
    let detail = "the manifest lists a file that does not belong to its part";
    Err(content_error(&manifest_name(part), ErrorKind::Value, detail))
}

fn check_digest(folder: &Path, part: Part, file: &FileSummary, meter: &Meter) -> Result<(), ConvertError> {
    let path = folder.join(&file.name);
    let mut input = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let detail = format!("the file is missing: write it again with {}", part_option(part));
            return Err(content_error(&file.name, ErrorKind::MissingFile, detail));
        }
        result => result.map_err(|error| ConvertError::io("reading", &path, error))?,
    };
    let (mut hash, mut bytes, mut block) = (Sha256::new(), 0_u64, vec![0; BLOCK_BYTES]);
    loop {
        meter.check_stop()?;
        let block_bytes =
            input.read(&mut block).map_err(|error| ConvertError::io("reading", &path, error))?;
        if block_bytes == 0 {
            break;
        }
        hash.update(&block[..block_bytes]);
        bytes += block_bytes as u64;
        meter.add_read(block_bytes as u64);
    }
    let difference = if bytes != file.bytes {
        format!("the file has {bytes} bytes instead of {}", file.bytes)
    } else if encode_hex(&hash.finalize()) != file.sha256 {
        "the SHA-256 of the file differs from the manifest".to_owned()
    } else {
        return Ok(());
    };
    let detail = format!("{difference}: copy or write the part again with {}", part_option(part));
    Err(content_error(&file.name, ErrorKind::Value, detail))
}
