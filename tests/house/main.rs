//! Dependencies between the packages of the workspace, read from `cargo metadata`, and between the modules of each.

#![allow(clippy::unwrap_used)]

mod architecture;
mod bodies;
mod cycles;
mod imports;
mod layout;
mod names;
mod rooms;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use cargo_metadata::{DependencyKind, MetadataCommand};

const PREFIX: &str = "tidegate-";
const SUPPORT: &str = "test-support";

/// Every package, without its prefix, and what it may use. A floor uses those below it; siblings never each other.
const MAY_USE: &[(&str, &[&str])] = &[
    ("schemas", &[]),
    ("rules", &["schemas"]),
    ("image-decode", &["schemas"]),
    ("media", &["schemas", "image-decode"]),
    ("bank-exchange", &["schemas", "media"]),
    ("embedded-data", &["schemas"]),
    ("stream", &["schemas", "embedded-data"]),
    ("scheduler", &["schemas"]),
    ("store", &["schemas", "scheduler", "embedded-data"]),
    ("egress", &["schemas"]),
    ("history", &["schemas", "store"]),
    ("exporter", &["schemas", "store", "history"]),
    ("catalog", &["schemas", "scheduler", "rules", "media", "stream", "store", "egress"]),
    (
        "moderation",
        &["schemas", "rules", "image-decode", "media", "stream", "store", "egress", "scheduler", "catalog"],
    ),
    ("web", &["schemas", "scheduler", "rules", "media", "stream", "store", "egress", "catalog"]),
    ("ingest", &["schemas", "rules", "media", "stream", "store", "egress", "catalog", "moderation", "web"]),
    (
        "console",
        &[
            "schemas",
            "scheduler",
            "rules",
            "media",
            "stream",
            "store",
            "egress",
            "history",
            "catalog",
            "moderation",
            "web",
        ],
    ),
    (
        "processors",
        &["schemas", "rules", "media", "stream", "store", "egress", "scheduler", "catalog", "moderation"],
    ),
    (
        "tidegate",
        &[
            "schemas",
            "bank-exchange",
            "rules",
            "image-decode",
            "media",
            "embedded-data",
            "stream",
            "store",
            "egress",
            "history",
            "exporter",
            "catalog",
            "moderation",
            "web",
            "ingest",
            "console",
            "processors",
        ],
    ),
    (SUPPORT, &[]),
];

/// A package of the workspace and the packages of the workspace that it uses outside its own tests.
type Uses = BTreeMap<String, BTreeSet<String>>;

fn faults(house: &Uses) -> Vec<String> {
    let allowed: BTreeMap<_, BTreeSet<_>> =
        MAY_USE.iter().map(|(name, uses)| (*name, uses.iter().copied().collect())).collect();
    let mut faults = Vec::new();
    for (name, uses) in house {
        match allowed.get(name.as_str()) {
            None => faults.push(format!("{name} has no place in the table of arrows")),
            Some(allowed) => faults.extend(
                uses.iter()
                    .filter(|used| !allowed.contains(used.as_str()))
                    .map(|used| format!("{name} must not use {used}")),
            ),
        }
    }
    faults.extend(
        allowed
            .keys()
            .filter(|name| !house.contains_key(**name))
            .map(|name| format!("{name} is not in the workspace")),
    );
    faults
}

fn packages() -> Vec<cargo_metadata::Package> {
    MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo describes its own workspace")
        .packages
}

fn the_house() -> Uses {
    let short = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    packages()
        .iter()
        .map(|package| {
            let uses = package
                .dependencies
                .iter()
                .filter(|used| used.path.is_some() && used.kind != DependencyKind::Development)
                .map(|used| short(&used.name));
            (short(package.name.as_str()), uses.collect())
        })
        .collect()
}

#[test]
fn every_arrow_of_the_workspace_is_in_the_table() {
    assert_eq!(faults(&the_house()), Vec::<String>::new());
}

#[test]
fn siblings_upward_arrows_strangers_and_test_support_are_found() {
    let mut house = the_house();
    for (from, to) in [
        ("store", "stream"),
        ("schemas", "catalog"),
        ("rules", "store"),
        ("exporter", "stream"),
        ("processors", "web"),
        ("ingest", "console"),
        ("egress", SUPPORT),
    ] {
        house.get_mut(from).expect("a package of the house").insert(to.to_owned());
    }
    house.insert("shed".to_owned(), BTreeSet::new());
    house.remove("media");
    assert_eq!(
        faults(&house),
        [
            "egress must not use test-support",
            "exporter must not use stream",
            "ingest must not use console",
            "processors must not use web",
            "rules must not use store",
            "schemas must not use catalog",
            "shed has no place in the table of arrows",
            "store must not use stream",
            "media is not in the workspace",
        ]
    );
}

/// Only a feature adds OpenSSL, for machines with the tools that its build needs.
#[test]
fn the_default_build_needs_rust_c_and_cpp_compilers_and_make() {
    let resolved = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .other_options(vec!["--locked".to_owned()])
        .exec()
        .expect("cargo describes its own workspace")
        .resolve
        .expect("the resolved packages");
    assert!(resolved.nodes.len() > 200, "the graph has all packages");
    let is_package = |node: &cargo_metadata::Node, name: &str| node.id.repr.contains(&format!("#{name}@"));
    for foreign in ["openssl-sys", "openssl-src", "cmake", "aws-lc-sys"] {
        assert!(!resolved.nodes.iter().any(|node| is_package(node, foreign)), "{foreign}");
    }
    assert!(resolved.nodes.iter().any(|node| is_package(node, "rdkafka-sys")), "names are found");
}

#[test]
fn the_table_itself_has_no_cycle() {
    let mut lower_packages = BTreeSet::new();
    for (name, uses) in MAY_USE {
        assert!(uses.iter().all(|used| lower_packages.contains(used)), "{name} uses a package above it");
        lower_packages.insert(name);
    }
}

/// The harness hides captured output, and `.ci/run` reads skips from a list.
#[test]
#[allow(clippy::unwrap_used)]
fn skipped_test_is_reported_outside_captured_output() {
    const CAPTURED: &str = concat!("println!(\"", "skipped");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut file_count = 0;
    let mut captured_files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                if name != "target" && !name.to_string_lossy().starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                file_count += 1;
                if std::fs::read_to_string(&path).unwrap().contains(CAPTURED) {
                    captured_files.push(path.strip_prefix(root).unwrap().to_owned());
                }
            }
        }
    }
    assert!(file_count > 100, "{file_count} files in {root:?}");
    assert!(captured_files.is_empty(), "call tidegate_test_support::servers::skipped: {captured_files:?}");
}

/// Import cycles that stay, each with its reason.
const ALLOWED_CYCLES: &[(&str, &str)] = &[(
    "catalog, crate: banks <-> compile",
    "a plan holds the entries of list banks, and an import is refused if the plan would no longer compile with it",
)];

#[test]
fn modules_of_one_crate_have_no_import_cycle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut import_cycles = BTreeSet::new();
    for package in packages() {
        let manifest = package.manifest_path.as_std_path();
        let src = manifest.parent().unwrap_or(root).join("src");
        let short = package.name.as_str().trim_start_matches(PREFIX).to_owned();
        import_cycles.extend(cycles::cycles(&src).into_iter().map(|cycle| format!("{short}, {cycle}")));
    }
    let allowed: BTreeSet<String> = ALLOWED_CYCLES.iter().map(|(cycle, _)| (*cycle).to_owned()).collect();
    assert_eq!(
        import_cycles, allowed,
        "move the shared code to the lower module, or allow the cycle with a reason"
    );
}
