//! Import cycles between modules of one crate, read from the sources.
//!
//! A module is a file or folder directly under `src`, and inside a folder each of its direct children. An arrow points from the
//! module that names another one (`crate::b::...`, `super::b::...`) to the named one. Parents and their children are not held
//! apart, and tests may name anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::imports::{ModulePath, read_sources};

/// Arrows between the children of one parent module.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Returns the cycles of the crate with its sources in `src`, each as `parent: a -> b -> a`, sorted.
pub(crate) fn cycles(src: &Path) -> Vec<String> {
    let sources = read_sources(src);
    let mut levels: BTreeMap<ModulePath, Arrows> = BTreeMap::new();
    for import in &sources.imports {
        let (from, to) = (&import.from, &import.to);
        let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) else { continue };
        // A name that is no module is a type or function of the parent.
        if sources.modules.contains(&to[..=shared]) {
            let arrows = levels.entry(from[..shared].to_vec()).or_default();
            arrows.entry(a.clone()).or_default().insert(b.clone());
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

/// Strongly connected components of more than one module, each sorted.
fn components(arrows: &Arrows) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let mut visited = BTreeSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for to in arrows.get(at).into_iter().flatten() {
                if visited.insert(to.clone()) {
                    open.push(to);
                }
            }
        }
        visited
    };
    let reach: BTreeMap<&String, BTreeSet<String>> =
        arrows.keys().map(|from| (from, reached(from))).collect();
    let mut assigned = BTreeSet::new();
    let mut groups = Vec::new();
    for (name, reachable) in &reach {
        if assigned.contains(*name) {
            continue;
        }
        let mates: Vec<String> = reachable
            .iter()
            .filter(|mate| reach.get(mate).is_some_and(|back| back.contains(*name)))
            .cloned()
            .collect();
        assigned.extend(mates.iter().cloned());
        if mates.len() > 1 {
            groups.push(mates);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::cycles;
    use crate::imports::crate_of;

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
