//! Tests of joining the parts of an export.

use std::fs;

use tidegate_exporter::{
    error::ConvertError,
    flat::{ExportOptions, FlatFormat, Manifest, join_parts},
    meter::Meter,
};
use tidegate_history::Part;

use super::folders::{export, files, options};
use crate::support::Folder;

const PARTS: u32 = 3;

fn part_options(folder: &Folder, index: u32) -> ExportOptions {
    let mut options = options(folder, FlatFormat::Ndjson);
    options.part = Part::new(index, PARTS).unwrap();
    options
}

fn export_part(options: &ExportOptions) {
    let index = u64::from(options.part.number());
    export(options, (0..30).filter(|number| number % u64::from(PARTS) == index - 1));
}

fn export_parts(folder: &Folder) {
    (1..=PARTS).for_each(|index| export_part(&part_options(folder, index)));
}

fn join(folder: &Folder) -> Result<Manifest, ConvertError> {
    join_parts(&folder.path("out"), &Meter::default())
}

#[test]
fn joined_manifest_lists_the_files_of_all_parts() {
    let folder = Folder::new();
    export_parts(&folder);
    let manifest = join(&folder).unwrap();
    assert_eq!(Manifest::read(&folder.path("out/manifest.json")).unwrap(), manifest);
    assert_eq!((manifest.rows, manifest.parts, manifest.part, manifest.files.len()), (30, 3, None, 9));
    let listed: Vec<_> = manifest.files.iter().map(|file| file.name.clone()).collect();
    let data_files: Vec<_> =
        files(&folder, "out").into_iter().filter(|name| name.starts_with("day=")).collect();
    assert_eq!(listed, data_files);
    // Joining again gives the same manifest.
    assert_eq!(join(&folder).unwrap(), manifest);
    // A part that is written again invalidates the joined manifest.
    let error = tidegate_exporter::flat::Export::open(part_options(&folder, 2)).unwrap_err().to_string();
    assert!(error.starts_with("out holds a finished export (manifest"), "{error}");
    let mut repeated = part_options(&folder, 2);
    repeated.force = true;
    export_part(&repeated);
    assert!(!folder.path("out/manifest.json").exists());
    assert_eq!(join(&folder).unwrap(), manifest);
}

#[test]
fn lost_part_is_repeated_alone() {
    let folder = Folder::new();
    export_part(&part_options(&folder, 1));
    let error = join(&folder).unwrap_err();
    assert_eq!(
        error.to_string(),
        "manifest-part-0002-of-0003.json: parts 2, 3 of 3 are missing: write each, the first with --part 2/3"
    );
    export_part(&part_options(&folder, 3));
    let error = join(&folder).unwrap_err();
    assert_eq!(
        error.to_string(),
        "manifest-part-0002-of-0003.json: part 2 of 3 is missing: write it with --part 2/3"
    );
    assert_eq!(error.tag(), "missing_file");
    assert!(!folder.path("out/manifest.json").exists());
    export_part(&part_options(&folder, 2));
    join(&folder).unwrap();
}

/// Changes a complete set of parts, and returns the error of joining it.
fn join_error(change: impl FnOnce(&Folder)) -> String {
    let folder = Folder::new();
    export_parts(&folder);
    change(&folder);
    let error = join(&folder).unwrap_err();
    assert!(!folder.path("out/manifest.json").exists());
    assert!(matches!(error, ConvertError::Content { .. }), "{error:?}");
    error.to_string()
}

fn edit(folder: &Folder, from: &str, to: &str) {
    let path = folder.path("out/manifest-part-0002-of-0003.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn differing_or_damaged_parts_are_named() {
    const FILE: &str = "out/day=2026-11-29/part-0002-of-0003.ndjson";
    type Change = fn(&Folder);
    let cases: [(Change, &str); 11] = [
        (
            |folder| edit(folder, "2026-12-02T00", "2026-12-03T00"),
            "manifest-part-0002-of-0003.json: `until` is `2026-12-03T00:00:00.000Z` instead of \
             `2026-12-02T00:00:00.000Z`, which the first part has: write this part again with the options of the \
             others",
        ),
        (
            |folder| edit(folder, "\"dataset\": \"decisions\"", "\"dataset\": \"actions\""),
            "manifest-part-0002-of-0003.json: `dataset` is `actions` instead of `decisions`, which the first part \
             has: write this part again with the options of the others",
        ),
        (
            |folder| edit(folder, "\"type\": \"boolean\"", "\"type\": \"text\""),
            "manifest-part-0002-of-0003.json: the types of its columns differ, which the first part has: write this \
             part again with the options of the others",
        ),
        (
            |folder| fs::remove_file(folder.path(FILE)).unwrap(),
            "day=2026-11-29/part-0002-of-0003.ndjson: the file is missing: write it again with --part 2/3",
        ),
        (
            |folder| {
                let text = fs::read_to_string(folder.path(FILE)).unwrap();
                fs::write(folder.path(FILE), text.replacen("post", "Post", 1)).unwrap();
            },
            "day=2026-11-29/part-0002-of-0003.ndjson: the SHA-256 of the file differs from the manifest: copy or \
             write the part again with --part 2/3",
        ),
        (
            |folder| fs::write(folder.path(FILE), "{}\n").unwrap(),
            "day=2026-11-29/part-0002-of-0003.ndjson: the file has 3 bytes instead of ",
        ),
        (
            |folder| drop(folder.write("out/day=2026-12-01/part-0001-of-0003.ndjson", "{}\n")),
            "day=2026-12-01/part-0001-of-0003.ndjson: no manifest of the 3 parts lists the file: delete it",
        ),
        (
            |folder| edit(folder, "day=2026-11-29/part-0002", "day=2026-11-29/part-0003"),
            "manifest-part-0002-of-0003.json: the manifest lists a file that does not belong to its part",
        ),
        (
            |folder| edit(folder, "\"part\": 2", "\"part\": 3"),
            "manifest-part-0002-of-0003.json: the manifest describes part 3 of 3, unlike its name",
        ),
        (
            |folder| edit(folder, "\"schemaVersion\": 1", "\"schemaVersion\": 2"),
            "manifest-part-0002-of-0003.json: the manifest has schemaVersion 2 instead of 1",
        ),
        (
            |folder| drop(folder.write("out/manifest-part-0002-of-0003.json", "{")),
            "manifest-part-0002-of-0003.json: the manifest is not JSON: ",
        ),
    ];
    for (change, message) in cases {
        let error = join_error(change);
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn folder_without_parts_or_of_two_exports_is_refused() {
    let error = join_error(|folder| {
        fs::remove_dir_all(folder.path("out")).unwrap();
        fs::create_dir(folder.path("out")).unwrap();
    });
    assert_eq!(error, "out: the folder has no manifest of a part, such as manifest-part-0001-of-0004.json");
    let error = join_error(|folder| {
        let path = |name: &str| folder.path(&format!("out/{name}"));
        let text = fs::read_to_string(path("manifest-part-0003-of-0003.json")).unwrap();
        fs::write(path("manifest-part-0003-of-0004.json"), text.replace("\"parts\": 3", "\"parts\": 4"))
            .unwrap();
    });
    assert_eq!(
        error,
        "manifest-part-0003-of-0004.json: the export has 4 parts, but manifest-part-0001-of-0003.json belongs to one \
         of 3: delete one of the exports"
    );
    let missing = join_parts(&Folder::new().path("none"), &Meter::default()).unwrap_err();
    assert!(missing.to_string().starts_with("reading the folder none: "), "{missing}");
}
