//! Layout of the sources: one module style, one test binary per crate, and a consumer that knows no kind of record.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the Rust files with a folder of the same name beside them, sorted, by their path from `root`.
fn files_beside_their_folder(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                if name != "target" && !name.to_string_lossy().starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ending| ending == "rs")
                && path.with_extension("").is_dir()
            {
                files.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}

/// True if the manifest declares the test binary, with a comment inside the declaration.
fn gives_a_reason(manifest: &str, test: &str) -> bool {
    let name = format!("name = \"{test}\"");
    manifest.split("\n[").any(|table| {
        let mut lines = table.lines();
        lines.next() == Some("[test]]")
            && table.lines().any(|line| line == name)
            && table.lines().any(|line| line.starts_with("# "))
    })
}

#[test]
fn a_module_with_children_is_a_folder_with_mod_rs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let misplaced_files = files_beside_their_folder(root);
    assert!(misplaced_files.is_empty(), "move each to `mod.rs` of its folder: {misplaced_files:?}");
}

#[test]
fn a_file_beside_its_folder_is_found() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["src/a", "src/b", "target/c"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    for name in ["src/a.rs", "src/b/mod.rs", "src/d.rs", "target/c.rs"] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    assert_eq!(files_beside_their_folder(folder.path()), [Path::new("src/a.rs")]);
}

#[test]
fn a_second_test_binary_has_a_reason_in_its_manifest() {
    let mut count = 0;
    for package in crate::packages() {
        let manifest = fs::read_to_string(&package.manifest_path).unwrap();
        for target in package.targets.iter().filter(|target| target.is_test() && target.name != "it") {
            count += 1;
            assert!(
                gives_a_reason(&manifest, &target.name),
                "{} has the test binary {}: move it to tests/it, or declare it as [[test]] with the reason as a \
                 comment",
                package.name,
                target.name
            );
        }
    }
    assert!(count > 3, "{count} targets were read");
}

#[test]
fn reason_belongs_to_one_declaration() {
    let manifest = "[package]\nname = \"memory\"\n\n[[test]]\n# It counts.\nname = \"memory\"\n\n[[test]]\nname = \"b\"\n";
    assert!(gives_a_reason(manifest, "memory"));
    assert!(!gives_a_reason(manifest, "b") && !gives_a_reason(manifest, "c"));
}

/// True if a path in the code contains the module.
fn names_module(source: &str, module: &str) -> bool {
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    let code = source.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    code.flat_map(|line| {
        line.match_indices(module).map(move |(at, _)| (&line[..at], &line[at + module.len()..]))
    })
    .any(|(before, after)| {
        !before.ends_with(is_word)
            && !after.starts_with(is_word)
            && (before.ends_with("::") || after.starts_with("::"))
    })
}

#[test]
fn consumer_names_no_module_of_a_kind_of_record() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("processors/src/consumer");
    let mut file_count = 0;
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = if entry.path().is_dir() { entry.path().join("mod.rs") } else { entry.path() };
        let source = fs::read_to_string(&path).unwrap();
        file_count += 1;
        for module in ["items", "callbacks", "handlers"] {
            assert!(
                !names_module(&source, module),
                "{} names `{module}`: add an associated type or a method to the trait `Handler`",
                path.display()
            );
        }
    }
    assert!(file_count > 8, "{file_count} files were read");
}

#[test]
fn a_module_in_a_path_is_found() {
    for (source, is_named) in [
        ("use crate::items;", true),
        ("use crate::{items::pipeline::ItemPipeline, metrics};", true),
        ("    stored = tidegate_moderation::items::stored(items);", true),
        ("fn run(items: usize) {} // crate::items::pipeline", false),
        ("use crate::slow_items::queue;", false),
    ] {
        assert_eq!(names_module(source, "items"), is_named, "{source}");
    }
}
