//! Names of files and functions in `docs/architecture.md` and `docs/spec-coverage.md`.

use std::{collections::BTreeSet, fs, path::Path};

/// Returns each `file.rs:function` of a text.
fn steps(text: &str) -> BTreeSet<(String, String)> {
    text.split('`')
        .filter_map(|word| word.split_once(".rs:"))
        .map(|(file, function)| (format!("{file}.rs"), function.to_owned()))
        .collect()
}

/// Returns a message for each step without a file or function.
fn find_missing_steps(root: &Path, steps: &BTreeSet<(String, String)>) -> Vec<String> {
    let is_declared = |source: &str, function: &str| {
        [format!("fn {function}("), format!("fn {function}<")].iter().any(|start| source.contains(start))
    };
    steps
        .iter()
        .filter_map(|(file, function)| match fs::read_to_string(root.join(file)) {
            Err(_) => Some(format!("{file} does not exist")),
            Ok(source) if is_declared(&source, function) => None,
            Ok(_) => Some(format!("{file} has no function {function}")),
        })
        .collect()
}

#[test]
fn every_function_of_the_walk_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let steps = steps(&text);
    assert!(steps.len() > 30, "{} steps were read", steps.len());
    assert_eq!(find_missing_steps(root, &steps), Vec::<String>::new());
}

#[test]
fn every_test_that_shows_the_specification_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/spec-coverage.md")).unwrap();
    let steps = steps(&text);
    assert!(steps.len() > 30, "{} tests were read", steps.len());
    assert_eq!(find_missing_steps(root, &steps), Vec::<String>::new());
    for section in ["2.1", "2.9", "3", "4.1", "4.2", "4.3", "4.4", "4.5", "4.6", "5.1", "6", "7", "8", "9.1"]
    {
        assert!(
            text.contains(&format!("\n| {section} ")) || text.contains(&format!("\n| {section},")),
            "{section}"
        );
    }
}

#[test]
fn a_missing_file_and_a_missing_function_are_found() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.rs"), "pub(crate) async fn there<T>() {}\nfn also() {}").unwrap();
    let listed_steps = steps("`a.rs:there`, `a.rs:also`, `a.rs:gone` and `b.rs:there`");
    assert_eq!(
        find_missing_steps(folder.path(), &listed_steps),
        ["a.rs has no function gone", "b.rs does not exist"]
    );
}
