//! Tells a release build which commit it is of, where it is built in a clone and nobody has told it.
//!
//! Other builds stay without: they would be built again with every commit.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TIDEGATE_COMMIT");
    if env::var_os("TIDEGATE_COMMIT").is_some()
        || env::var("PROFILE").is_ok_and(|profile| profile != "release")
    {
        return;
    }
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    if let Some(commit) = folder(&here).and_then(|folder| commit(&folder)) {
        println!("cargo::rustc-env=TIDEGATE_COMMIT={commit}");
    }
}

/// Git's own folder. In a worktree `.git` is a file that names it.
fn folder(here: &Path) -> Option<PathBuf> {
    let git = here.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = fs::read_to_string(git).ok()?;
    Some(here.join(text.strip_prefix("gitdir:")?.trim()))
}

fn commit(folder: &Path) -> Option<String> {
    let head = watched(&folder.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref:").map(str::trim) else { return full(&head) };
    // Branches of a worktree lie in the clone's folder, each in a file of its own or all together in one.
    let common =
        watched(&folder.join("commondir")).map_or_else(|| folder.to_owned(), |text| folder.join(text.trim()));
    if let Some(commit) = watched(&common.join(name)) {
        return full(&commit);
    }
    let packed = watched(&common.join("packed-refs"))?;
    let line = packed.lines().find(|line| line.ends_with(name) && line.split(' ').nth(1) == Some(name))?;
    full(line.split(' ').next()?)
}

/// Its text; a build is repeated when it changes.
fn watched(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text)
}

fn full(text: &str) -> Option<String> {
    let text = text.trim();
    (text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| text.to_owned())
}
