//! Rooms of a crate and their floors.
//!
//! A room is a file or folder directly under `src`, or inside one of the folders that the crate's table splits. Rooms import rooms
//! of lower floors only, so that a reader can start at the lowest floor and never meets an unknown room.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::imports::{ModulePath, Sources, read_sources};

/// Order of the rooms of one crate.
struct CrateFloors<'a> {
    /// Folder of the sources from the workspace's root.
    src: &'a str,
    /// Folders of `src` with rooms of their own, such as `admin` with `admin/jobs`.
    split_folders: &'a [&'a str],
    /// Rooms of each floor, the lowest floor first. Rooms of one floor do not import each other.
    floors: &'a [&'a [&'a str]],
    /// Imports that may point up: importing room, imported room, and the reason.
    exceptions: &'a [(&'a str, &'a str, &'a str)],
    max_rooms: usize,
    max_floors: usize,
    /// Number of pairs of rooms with an import.
    max_arrows: usize,
}

const CRATES: &[CrateFloors] = &[
    CrateFloors {
        src: "crates/moderation/src",
        split_folders: &[],
        floors: &[
            &["error", "metrics", "deps", "outbound"],
            &["child_safety", "jobs", "media"],
            &["rules", "scores"],
            &["effects"],
            &["items"],
            &["history_backfill", "dead_letters", "partial_items", "reevaluation", "users"],
            &["review"],
        ],
        exceptions: &[],
        max_rooms: 17,
        max_floors: 7,
        max_arrows: 62,
    },
    CrateFloors {
        src: "console/src",
        split_folders: &["admin"],
        floors: &[
            &["api", "html"],
            &["admin/request"],
            &["admin/access"],
            &[
                "admin/banks",
                "admin/config",
                "admin/exports",
                "admin/items",
                "admin/jobs",
                "admin/operations",
                "signin",
            ],
            &["admin/rules", "pages"],
            &["admin"],
        ],
        exceptions: &[],
        max_rooms: 14,
        max_floors: 6,
        max_arrows: 37,
    },
];

/// Imports of one room by another, by file.
type RoomArrows = BTreeMap<(String, String), BTreeSet<String>>;

impl CrateFloors<'_> {
    /// Returns the room of a module. Parents of split folders are rooms too: `admin` is `admin/mod.rs`. `lib` is the crate's root.
    fn room_of(&self, path: &[String]) -> String {
        match path {
            [] => "lib".to_owned(),
            [folder, name, ..] if self.split_folders.contains(&folder.as_str()) => format!("{folder}/{name}"),
            [name, ..] => name.clone(),
        }
    }

    /// Returns the room of an imported path. An item of a parent belongs to the parent's room.
    fn imported_room(&self, modules: &BTreeSet<ModulePath>, to: &[String]) -> String {
        let mut module = to;
        while !module.is_empty() && !modules.contains(module) {
            module = &module[..module.len() - 1];
        }
        self.room_of(module)
    }

    fn collect_arrows(&self, sources: &Sources) -> RoomArrows {
        let mut arrows = RoomArrows::new();
        for import in &sources.imports {
            let from = self.room_of(&import.from);
            let to = self.imported_room(&sources.modules, &import.to);
            if from != to {
                let place = format!("{}: crate::{}", import.file.display(), import.to.join("::"));
                arrows.entry((from, to)).or_default().insert(place);
            }
        }
        arrows
    }

    fn floor_of(&self, room: &str) -> Option<usize> {
        self.floors.iter().position(|rooms| rooms.contains(&room))
    }

    /// Returns the violations of the order, sorted by room.
    fn find_violations(&self, sources: &Sources) -> Vec<String> {
        let arrows = self.collect_arrows(sources);
        // The root only declares modules, so it needs no floor unless it is imported.
        let rooms: BTreeSet<String> = sources
            .modules
            .iter()
            .filter(|module| !module.is_empty())
            .map(|module| self.room_of(module))
            .collect();
        let mut violations = Vec::new();
        let unlisted = rooms.iter().filter(|room| self.floor_of(room).is_none());
        violations.extend(unlisted.map(|room| format!("the room {room} has no floor in the table")));
        let table_rooms = self.floors.iter().flat_map(|rooms| *rooms);
        let absent_rooms = table_rooms.filter(|room| !rooms.contains(**room) && **room != "lib");
        violations.extend(absent_rooms.map(|room| format!("the room {room} of the table does not exist")));
        let mut needed_exceptions = BTreeSet::new();
        for ((from, to), places) in &arrows {
            let (Some(importing_floor), Some(imported_floor)) = (self.floor_of(from), self.floor_of(to))
            else {
                // The importing room is reported above. Only the root is not.
                if to == "lib" {
                    violations
                        .extend(places.iter().map(|place| format!("{place} is defined in the crate's root")));
                }
                continue;
            };
            if imported_floor < importing_floor {
                continue;
            }
            if self.exceptions.iter().any(|(a, b, _)| (a, b) == (&from.as_str(), &to.as_str())) {
                needed_exceptions.insert((from.as_str(), to.as_str()));
                continue;
            }
            let direction = if imported_floor == importing_floor { "to its own floor" } else { "up" };
            violations.extend(
                places.iter().map(|place| format!("{place} points {direction}, from {from} to {to}")),
            );
        }
        let unneeded =
            self.exceptions.iter().filter(|(from, to, _)| !needed_exceptions.contains(&(*from, *to)));
        violations
            .extend(unneeded.map(|(from, to, _)| format!("the exception from {from} to {to} is not needed")));
        for (measured, bound, unit) in [
            (rooms.len(), self.max_rooms, "rooms"),
            (self.floors.len(), self.max_floors, "floors"),
            (arrows.len(), self.max_arrows, "arrows"),
        ] {
            if measured > bound {
                violations.push(format!("{measured} {unit} are more than {bound}"));
            }
        }
        violations
    }
}

#[test]
fn rooms_import_lower_floors_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for table in CRATES {
        let sources = read_sources(&root.join(table.src));
        assert!(sources.imports.len() > 100, "{} imports in {}", sources.imports.len(), table.src);
        assert_eq!(table.find_violations(&sources), Vec::<String>::new(), "in {}", table.src);
    }
}

#[cfg(test)]
mod tests {
    use super::CrateFloors;
    use crate::imports::{crate_of, read_sources};

    const FILES: &[(&str, &str)] = &[
        ("lib.rs", "pub mod low; mod side; mod top;\npub use self::low::Low;\npub struct State;"),
        ("low.rs", "pub struct Low;"),
        ("side.rs", "use crate::Low;"),
        ("top/mod.rs", "mod a; mod b;\nuse crate::{Low, side::{x, y}};\npub struct Top;"),
        ("top/a.rs", "fn f() { super::super::low::g() }"),
        ("top/b.rs", "use super::a::X;\n#[cfg(test)]\nmod tests {\n    use crate::nowhere::X;\n}"),
    ];

    const FLOORS: CrateFloors = CrateFloors {
        src: "",
        split_folders: &["top"],
        floors: &[&["low"], &["side", "top/a"], &["top/b"], &["top"]],
        exceptions: &[],
        max_rooms: 5,
        max_floors: 4,
        max_arrows: 5,
    };

    fn find_violations(table: &CrateFloors, changed_files: &[(&str, &str)]) -> Vec<String> {
        let folder = crate_of(&[FILES, changed_files].concat());
        table.find_violations(&read_sources(folder.path()))
    }

    #[test]
    fn downward_imports_are_accepted() {
        assert_eq!(find_violations(&FLOORS, &[]), Vec::<String>::new());
    }

    #[test]
    fn upward_and_sideways_imports_are_found_with_their_files() {
        let changed =
            [("low.rs", "use crate::top::{b::X, Top};"), ("side.rs", "fn f() -> crate::top::a::T {}")];
        assert_eq!(
            find_violations(&CrateFloors { max_arrows: 9, ..FLOORS }, &changed),
            [
                "low.rs: crate::top::Top points up, from low to top",
                "low.rs: crate::top::b::X points up, from low to top/b",
                "side.rs: crate::top::a::T points to its own floor, from side to top/a",
            ]
        );
    }

    #[test]
    fn unlisted_missing_and_root_rooms_are_found() {
        let table = CrateFloors { floors: &[&["low"], &["side", "attic"], &["top/b"], &["top"]], ..FLOORS };
        let changed = [("side.rs", "use crate::State;")];
        assert_eq!(
            find_violations(&table, &changed),
            [
                "the room top/a has no floor in the table",
                "the room attic of the table does not exist",
                "side.rs: crate::State is defined in the crate's root",
            ]
        );
    }

    #[test]
    fn exception_permits_one_arrow_and_must_be_needed() {
        let changed = [("side.rs", "use crate::top::a::T;")];
        let exceptions = &[("side", "top/a", "reason"), ("low", "side", "reason")];
        let table = CrateFloors { exceptions, ..FLOORS };
        assert_eq!(find_violations(&table, &changed), ["the exception from low to side is not needed"]);
    }

    #[test]
    fn rooms_floors_and_arrows_are_bounded() {
        let table = CrateFloors { max_rooms: 4, max_floors: 3, max_arrows: 4, ..FLOORS };
        assert_eq!(
            find_violations(&table, &[]),
            ["5 rooms are more than 4", "4 floors are more than 3", "5 arrows are more than 4"]
        );
    }
}
