//! Stores the commit of the clone in a release build, unless `TIDEGATE_COMMIT` is set.
//!
//! Other profiles have no commit: they would be rebuilt after every commit.

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
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    if let Some(commit) = git_folder(&root).and_then(|folder| read_commit(&folder)) {
        println!("cargo::rustc-env=TIDEGATE_COMMIT={commit}");
    }
}

/// Returns Git's folder. In a worktree, `.git` is a file that names it.
fn git_folder(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = fs::read_to_string(git).ok()?;
    Some(root.join(text.strip_prefix("gitdir:")?.trim()))
}

fn read_commit(folder: &Path) -> Option<String> {
    let head = read_watched(&folder.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref:").map(str::trim) else { return parse_commit(&head) };
    // Branches of a worktree are in the clone's folder: either one file per branch, or all in `packed-refs`.
    let common = read_watched(&folder.join("commondir"))
        .map_or_else(|| folder.to_owned(), |text| folder.join(text.trim()));
    if let Some(commit) = read_watched(&common.join(name)) {
        return parse_commit(&commit);
    }
    let packed = read_watched(&common.join("packed-refs"))?;
    let line = packed.lines().find(|line| line.ends_with(name) && line.split(' ').nth(1) == Some(name))?;
    parse_commit(line.split(' ').next()?)
}

/// Reads a file, and rebuilds when it changes.
fn read_watched(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text)
}

fn parse_commit(text: &str) -> Option<String> {
    let text = text.trim();
    (text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| text.to_owned())
}
