//! Imports between the modules of one crate, read from the sources: `use` trees and paths in the code that start with `crate` or
//! `super`. Unit tests may name any module, so their imports are left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Path of a module from the crate's root: `["items", "pipeline"]`.
pub(crate) type ModulePath = Vec<String>;

/// Modules of a crate with their imports.
pub(crate) struct Sources {
    pub(crate) modules: BTreeSet<ModulePath>,
    pub(crate) imports: Vec<Import>,
}

/// Path named by the code of a module.
pub(crate) struct Import {
    /// File from the crate's `src`.
    pub(crate) file: PathBuf,
    pub(crate) from: ModulePath,
    /// Path from the crate's root. Ends with the name of a module or of an item in one.
    pub(crate) to: ModulePath,
}

/// Reads the sources of a crate. A name that `lib.rs` re-exports stands for its module.
pub(crate) fn read_sources(src: &Path) -> Sources {
    let mut files = Vec::new();
    collect_files(src, src, &mut Vec::new(), &mut files);
    let root = files
        .iter()
        .find(|file| file.module.is_empty())
        .map(|file| re_exports(&file.code))
        .unwrap_or_default();
    let modules = files.iter().map(|file| file.module.clone()).collect();
    let imports = files.iter().flat_map(|file| {
        let paths = references(&file.module, &file.code, &root).into_iter();
        paths.map(|to| Import { file: file.path.clone(), from: file.module.clone(), to })
    });
    Sources { modules, imports: imports.collect() }
}

/// Source file without its tests.
struct SourceFile {
    /// Path from the crate's `src`.
    path: PathBuf,
    module: ModulePath,
    code: String,
}

/// Adds the source files below `folder`, except test modules.
fn collect_files(src: &Path, folder: &Path, at: &mut ModulePath, files: &mut Vec<SourceFile>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).expect("a source folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a UTF-8 name").to_owned();
        if name == "tests" || name == "main" || name == "bin" {
            continue;
        }
        let is_root = matches!(name.as_str(), "lib" | "mod");
        if !is_root {
            at.push(name);
        }
        if path.is_dir() {
            collect_files(src, &path, at, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(SourceFile {
                path: path.strip_prefix(src).expect("a path below the crate's sources").to_owned(),
                module: at.clone(),
                code: code(&fs::read_to_string(&path).expect("a source file")),
            });
        }
        if !is_root {
            at.pop();
        }
    }
}

/// The code of a file up to its unit tests, without comments.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    text.lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Names that `lib.rs` re-exports, with their modules.
fn re_exports(lib: &str) -> BTreeMap<String, ModulePath> {
    let mut names = BTreeMap::new();
    for (at, word) in lib.match_indices("self::") {
        if lib[..at].trim_end().ends_with("use") || lib[..at].trim_end().ends_with("use crate::") {
            for path in use_tree(&lib[at + word.len()..]) {
                if let Some((name, module)) = path.split_last() {
                    names.insert(name.clone(), module.to_vec());
                }
            }
        }
    }
    names
}

/// Paths from the crate's root that the code of module `from` names.
fn references(from: &ModulePath, text: &str, root: &BTreeMap<String, ModulePath>) -> BTreeSet<ModulePath> {
    let mut paths = BTreeSet::new();
    let starts = text.match_indices("crate::").map(|(at, word)| (at, at + word.len(), Vec::new()));
    let supers = text.match_indices("super::").filter_map(|(at, word)| {
        // `super::super::` is counted once, at its first word.
        if text[..at].ends_with("super::") {
            return None;
        }
        let mut end = at + word.len();
        let mut parent = from.clone();
        parent.pop();
        while text[end..].starts_with("super::") {
            end += word.len();
            parent.pop();
        }
        Some((at, end, parent))
    });
    for (at, end, parent) in starts.chain(supers) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|sign| sign.is_alphanumeric() || sign == '_' || sign == '$') {
            continue;
        }
        for path in use_tree(&text[end..]) {
            let full_path: ModulePath = parent.iter().cloned().chain(path).collect();
            match full_path.first().and_then(|name| root.get(name)) {
                Some(module) if parent.is_empty() => paths.insert(module.clone()),
                _ => paths.insert(full_path),
            };
        }
    }
    paths
}

/// Paths of a use tree: `a::{b, c::d}` gives `a::b` and `a::c::d`.
fn use_tree(text: &str) -> Vec<ModulePath> {
    fn tree(text: &str, mut at: usize, prefix: &ModulePath, paths: &mut Vec<ModulePath>) -> usize {
        let mut path = prefix.clone();
        let mut is_named = false;
        loop {
            let rest = &text[at..];
            let blank = rest.len() - rest.trim_start().len();
            if path.len() == prefix.len() && blank > 0 {
                at += blank;
                continue;
            }
            if let Some(inner) = rest.strip_prefix('{') {
                let mut inside = text.len() - inner.len();
                loop {
                    inside = tree(text, inside, &path, paths);
                    inside += text[inside..].len() - text[inside..].trim_start().len();
                    match text[inside..].chars().next() {
                        Some(',') => inside += 1,
                        Some('}') => return inside + 1,
                        _ => return inside,
                    }
                }
            }
            let length = rest.find(|sign: char| !sign.is_alphanumeric() && sign != '_').unwrap_or(rest.len());
            if length == 0 {
                break;
            }
            if &rest[..length] != "self" {
                path.push(rest[..length].to_owned());
            }
            is_named = true;
            at += length;
            match text[at..].strip_prefix("::") {
                Some(_) => at += 2,
                None => break,
            }
        }
        // A comma before the closing brace is followed by no name.
        if is_named && !path.is_empty() {
            paths.push(path);
        }
        // ` as other`
        let rest = &text[at..];
        if let Some(renamed) = rest.strip_prefix(" as ") {
            let length =
                renamed.find(|sign: char| !sign.is_alphanumeric() && sign != '_').unwrap_or(renamed.len());
            at += " as ".len() + length;
        }
        at
    }
    let mut paths = Vec::new();
    tree(text, 0, &Vec::new(), &mut paths);
    paths
}

/// Writes a crate's sources into a temporary folder.
#[cfg(test)]
pub(crate) fn crate_of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{crate_of, read_sources, use_tree};

    #[test]
    fn a_use_tree_is_read_to_its_leaves() {
        let read = |text| use_tree(text).iter().map(|path| path.join("::")).collect::<Vec<_>>();
        assert_eq!(read("a::{b, c::{d, self}, e as f};"), ["a::b", "a::c::d", "a::c", "a::e"]);
        assert_eq!(read("{\n    a::B,\n    c,\n};"), ["a::B", "c"]);
        assert_eq!(read("{\n    a::{\n        B,\n        c,\n    },\n};"), ["a::B", "a::c"]);
        assert_eq!(read("a::b(c)"), ["a::b"]);
    }

    #[test]
    fn imports_are_read_from_use_trees_and_paths_in_code() {
        let folder = crate_of(&[
            ("lib.rs", "mod a; mod d;\npub use self::a::Thing;"),
            ("a.rs", "pub struct Thing;"),
            ("d/mod.rs", "mod e; mod f;"),
            ("d/e/mod.rs", "use super::super::a::X;\nuse crate::{Thing, d::{f::{Y, Z as W}, g}};"),
            (
                "d/f.rs",
                "// crate::a::W\nfn f() { crate::a::g::<super::e::T>() }\n#[cfg(test)]\nmod tests {\n    use crate::b::X;\n}",
            ),
        ]);
        let sources = read_sources(folder.path());
        let paths_of = |file: &str| {
            let imports = sources.imports.iter().filter(|import| import.file == Path::new(file));
            imports.map(|import| import.to.join("::")).collect::<Vec<_>>()
        };
        assert_eq!(paths_of("d/e/mod.rs"), ["a", "a::X", "d::f::Y", "d::f::Z", "d::g"]);
        assert_eq!(paths_of("d/f.rs"), ["a::g", "d::e::T"]);
        assert_eq!(sources.modules.len(), 5);
    }
}
