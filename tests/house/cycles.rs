//! Import cycles between modules of one crate, read from the sources.
//!
//! A module is a file or folder directly under `src`, and inside a folder each of its direct children. An arrow goes from the
//! module that names another one (`crate::b::...`, `super::b::...`) to the named one. Parents and their children are not held
//! apart, and tests may name anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Path of a module from the crate's root: `["items", "pipeline"]`.
type ModulePath = Vec<String>;

/// Arrows between the children of one parent module.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Returns the cycles of the crate whose sources lie in `src`, each as `parent: a -> b -> a`, sorted.
pub(crate) fn cycles(src: &Path) -> Vec<String> {
    let mut files = Vec::new();
    collect(src, &mut Vec::new(), &mut files);
    let modules: BTreeSet<ModulePath> = files.iter().map(|(module, _)| module.clone()).collect();
    let root = files
        .iter()
        .find(|(module, _)| module.is_empty())
        .map(|(_, text)| re_exports(text))
        .unwrap_or_default();
    let mut levels: BTreeMap<ModulePath, Arrows> = BTreeMap::new();
    for (from, text) in &files {
        for to in references(from, text, &root) {
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) else { continue };
            // A name that is no module is a type or function of the parent.
            if modules.contains(&to[..=shared]) {
                let arrows = levels.entry(from[..shared].to_vec()).or_default();
                arrows.entry(a.clone()).or_default().insert(b.clone());
            }
        }
    }
    levels
        .iter()
        .flat_map(|(parent, arrows)| {
            let parent = if parent.is_empty() { "crate".to_owned() } else { parent.join("::") };
            components(arrows).into_iter().map(move |names| format!("{parent}: {}", names.join(" <-> ")))
        })
        .collect()
}

/// Sources of a crate with their module paths, without tests.
fn collect(folder: &Path, at: &mut ModulePath, files: &mut Vec<(ModulePath, String)>) {
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
            collect(&path, at, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push((at.clone(), code(&fs::read_to_string(&path).expect("a source file"))));
        }
        if !is_root {
            at.pop();
        }
    }
}

/// The code of a file: without comments and without what follows its unit tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    text.lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Names that `lib.rs` re-exports, with the modules that they come from.
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
    let mut found = BTreeSet::new();
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
            let whole: ModulePath = parent.iter().cloned().chain(path).collect();
            match whole.first().and_then(|name| root.get(name)) {
                Some(module) if parent.is_empty() => found.insert(module.clone()),
                _ => found.insert(whole),
            };
        }
    }
    found
}

/// Paths of a use tree: `a::{b, c::d}` gives `a::b` and `a::c::d`.
fn use_tree(text: &str) -> Vec<ModulePath> {
    fn tree(text: &str, mut at: usize, prefix: &ModulePath, paths: &mut Vec<ModulePath>) -> usize {
        let mut path = prefix.clone();
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
            at += length;
            match text[at..].strip_prefix("::") {
                Some(_) => at += 2,
                None => break,
            }
        }
        if path.len() > prefix.len() || !prefix.is_empty() {
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

/// Strongly connected components of more than one module, each sorted.
fn components(arrows: &Arrows) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for to in arrows.get(at).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    open.push(to);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> =
        arrows.keys().map(|from| (from, reached(from))).collect();
    let mut placed = BTreeSet::new();
    let mut found = Vec::new();
    for (name, own) in &reach {
        if placed.contains(*name) {
            continue;
        }
        let mates: Vec<String> = own
            .iter()
            .filter(|mate| reach.get(mate).is_some_and(|back| back.contains(*name)))
            .cloned()
            .collect();
        placed.extend(mates.iter().cloned());
        if mates.len() > 1 {
            found.push(mates);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{cycles, use_tree};

    fn crate_of(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn a_use_tree_is_read_to_its_leaves() {
        let read = |text| use_tree(text).iter().map(|path| path.join("::")).collect::<Vec<_>>();
        assert_eq!(read("a::{b, c::{d, self}, e as f};"), ["a::b", "a::c::d", "a::c", "a::e"]);
        assert_eq!(read("{\n    a::B,\n    c,\n};"), ["a::B", "c"]);
        assert_eq!(read("a::b(c)"), ["a::b"]);
    }

    #[test]
    fn cycles_are_found_between_files_folders_and_children() {
        let folder = crate_of(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;\npub use self::{b::{Thing, Other}};"),
            ("a.rs", "use crate::Thing;"),
            ("b.rs", "// use crate::c::X;\nfn f() { crate::c::g() }"),
            ("c.rs", "use std::fmt;\nuse crate::{\n    a::X,\n    d::e::Y,\n};"),
            ("d/mod.rs", "mod e; mod f;"),
            ("d/e.rs", "use super::f::X;\n#[cfg(test)]\nmod tests {\n    use crate::c::X;\n}"),
            ("d/f.rs", "use crate::d::e::Z;"),
        ]);
        assert_eq!(cycles(folder.path()), ["crate: a <-> b <-> c", "d: e <-> f"]);
    }

    #[test]
    fn one_way_arrows_and_parents_are_no_cycles() {
        let folder = crate_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::c::X;"),
            ("b/mod.rs", "mod c; pub use c::X;"),
            ("b/c.rs", "use super::Parent; use crate::b::Other;"),
        ]);
        assert_eq!(cycles(folder.path()), Vec::<String>::new());
    }
}
