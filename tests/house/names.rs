//! Names of types and functions. A bare participle or filler such as `Wanted` or `known` does not name a thing or an action.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

const VAGUE_WORDS: &str = include_str!("vague_words.txt");

/// Function names of the standard library's traits, and verbs that are complete without an object.
const ALLOWED_FUNCTIONS: &[&str] = &["new", "now", "wait"];

/// Folders with sources. Tests and benches are not held to the list.
const SOURCE_FOLDERS: &[&str] = &["src", "console", "crates", "exporter", "ingest", "processors", "schemas"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NameKind {
    Type,
    Function,
}

/// Returns the name that a line defines.
fn defined_name(line: &str) -> Option<(NameKind, &str)> {
    let mut words = line.split_whitespace();
    loop {
        let word = words.next()?;
        let kind = match word {
            "pub" | "const" | "async" | "unsafe" => continue,
            _ if word.starts_with("pub(") => {
                // `pub(in crate::module)` is two words.
                if !word.ends_with(')') {
                    words.next()?;
                }
                continue;
            }
            "struct" | "enum" | "trait" | "type" => NameKind::Type,
            "fn" => NameKind::Function,
            _ => return None,
        };
        let name = words.next()?;
        let end = name.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(name.len());
        return Some((kind, &name[..end]));
    }
}

fn is_vague(words: &BTreeSet<&str>, kind: NameKind, name: &str) -> bool {
    match kind {
        // A type of one word is its lower-case form. Names of several words contain a further capital letter.
        NameKind::Type => {
            !name.chars().skip(1).any(char::is_uppercase) && words.contains(name.to_lowercase().as_str())
        }
        NameKind::Function => words.contains(name) && !ALLOWED_FUNCTIONS.contains(&name),
    }
}

/// Adds the vague names of a file with their line numbers. Unit tests at the end of the file are left out.
fn collect_vague_names(words: &BTreeSet<&str>, path: &Path, vague_names: &mut BTreeMap<String, String>) {
    let text = fs::read_to_string(path).unwrap();
    let path = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap();
    let source = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    for (index, line) in source.lines().enumerate() {
        if let Some((kind, name)) = defined_name(line)
            && is_vague(words, kind, name)
        {
            vague_names.insert(format!("{}:{}", path.display(), index + 1), name.to_owned());
        }
    }
}

fn visit_sources(folder: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            if !["tests", "benches", "examples", "target"].contains(&name.as_str()) {
                visit_sources(&path, visit);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" && !name.ends_with("_tests.rs") {
            visit(&path);
        }
    }
}

#[test]
fn types_and_functions_have_no_vague_names() {
    let words: BTreeSet<&str> = VAGUE_WORDS.split_whitespace().collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut vague_names, mut file_count) = (BTreeMap::new(), 0);
    for folder in SOURCE_FOLDERS {
        visit_sources(&root.join(folder), &mut |path| {
            file_count += 1;
            collect_vague_names(&words, path, &mut vague_names);
        });
    }
    assert!(file_count > 500, "only {file_count} files were read");
    assert!(
        vague_names.is_empty(),
        "name the thing or the action, as CONTRIBUTING.md says: {vague_names:#?}"
    );
}

#[test]
fn vague_names_are_detected() {
    let words: BTreeSet<&str> = VAGUE_WORDS.split_whitespace().collect();
    for (line, is_bad) in [
        ("pub(crate) struct Wanted<'a> {", true),
        ("    pub(in crate::items) async fn known(&self) -> bool {", true),
        ("enum Given {", true),
        ("const fn whole() {}", true),
        ("struct WantedMedia(u8);", false),
        ("fn known_rules() {}", false),
        ("    pub fn new() -> Self {", false),
        ("const WANTED: u8 = 1;", false),
        ("let known = 1;", false),
    ] {
        let vague = defined_name(line).is_some_and(|(kind, name)| is_vague(&words, kind, name));
        assert_eq!(vague, is_bad, "{line}");
    }
}
