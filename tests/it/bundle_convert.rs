//! `tidegate bundle convert` as it is typed, alone and in the order of its guide: where output and progress go, and that an
//! interrupted conversion leaves nothing.

use std::{
    fmt::Write as _, fs, io::Write as _, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command,
};

use crate::support::{BINARY, Place, text};
use serde_json::{Value, json};
use tidegate_test_support::{PATIENCE, Program, eventually, servers};

const GUIDE: &str = include_str!("../../docs/guides/bundles.md");
const COMMENTS: u32 = 6;

/// The files of an invented export with so many voters, each of whom votes on everything.
fn export(voters: u32) -> [(&'static str, String); 3] {
    let mut votes = "timestamp,datetime,comment-id,voter-id,vote\n".to_owned();
    let mut comments =
        "timestamp,datetime,comment-id,author-id,agrees,disagrees,moderated,comment-body\n".to_owned();
    for comment in 0..COMMENTS {
        _ = writeln!(comments, "1600000000000,x,{comment},,0,0,1,Statement {comment}");
        for voter in 0..voters {
            let vote = [1, 1, -1, 0][((voter * 7 + comment * 3) % 11 % 4) as usize];
            _ = writeln!(votes, "{},x,{comment},{voter},{vote}", 1_600_000_000_000_u64 + u64::from(voter));
        }
    }
    let summary =
        "topic,Trees\nurl,https://pol.is/3trees\nvote-convention,agree=+1;disagree=-1;pass=0\n".to_owned();
    [("votes.csv", votes), ("comments.csv", comments), ("summary.csv", summary)]
}

fn write(place: &Place, voters: u32) {
    let folder = place.folder.path().join("export");
    fs::create_dir_all(&folder).unwrap();
    for (name, text) in export(voters) {
        fs::write(folder.join(name), text).unwrap();
    }
    fs::write(place.folder.path().join("key"), [7; 32]).unwrap();
    opened(place, 0o600);
}

fn opened(place: &Place, mode: u32) {
    fs::set_permissions(place.folder.path().join("key"), fs::Permissions::from_mode(mode)).unwrap();
}

/// With what makes equal bytes of equal input.
fn convert<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["bundle", "convert", "export", "-o", out, "--linkage-key-file", "key", "--as-of"];
    [&fixed[..], &["2026-01-02T03:04:05Z"], more].concat()
}

async fn run(place: &Place, args: &[&str]) -> (i32, Vec<u8>, String) {
    let output = place.run(args).await;
    (output.status.code().unwrap(), output.stdout, text(&output.stderr))
}

#[tokio::test]
async fn bundle_goes_to_stdout_and_messages_to_stderr() {
    let place = Place::new();
    write(&place, 40);
    let (code, bundle, said) = run(&place, &convert("-", &["--progress", "json"])).await;
    assert_eq!(code, 0, "{said}");
    let parsed: Value = serde_json::from_slice(&bundle).unwrap();
    assert_eq!(parsed["summary"]["responses"], json!(40 * COMMENTS));
    let told: Vec<Value> = said
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let last = told.last().unwrap();
    assert_eq!((&last["rows"], &last["secondsLeft"]), (&json!(40 * COMMENTS), &json!(0.0)));
    assert!(last["bytesRead"].as_u64() > Some(0) && last["bytesRead"] == last["bytesTotal"], "{last}");
    assert!(said.contains("read as polis, variant E\n"), "{said}");
    // Nobody watches: nothing is shown unless it is asked for.
    let (code, out, said) = run(&place, &convert("bundle.json", &["--json"])).await;
    assert_eq!((code, said.as_str()), (0, ""));
    let report: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(report["bytes"], json!(bundle.len()));
    assert!(fs::read(place.folder.path().join("bundle.json")).unwrap() == bundle);
    let (code, ..) = run(&place, &convert("bundle.json", &[])).await;
    assert_eq!(code, 2, "what is there is not replaced");
    opened(&place, 0o644);
    let (code, _, said) = run(&place, &convert("open.json", &[])).await;
    assert_eq!(code, 0);
    assert!(said.starts_with("warning: key has mode 0644, so other users can read the key"), "{said}");
    let votes = place.folder.path().join("export/votes.csv");
    fs::write(&votes, "timestamp,comment-id,voter-id,vote\n1,0,1,yes\n").unwrap();
    let (code, out, said) = run(&place, &convert("-", &[])).await;
    assert_eq!((code, out), (1, Vec::new()));
    assert!(said.contains("votes.csv, row 2"), "{said}");
}

#[tokio::test]
async fn closed_or_full_stdout_is_reported() {
    let place = Place::new();
    write(&place, 40);
    for more in [&[][..], &["--bundle-id", "trees"]] {
        let (code, bundle, said) = run(&place, &convert("-", more)).await;
        assert_eq!(code, 0, "{said}");
        assert_eq!(run(&place, &convert("bundle.json", &[more, &["--force"]].concat())).await.0, 0);
        assert!(fs::read(place.folder.path().join("bundle.json")).unwrap() == bundle);
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let (reader, gone) = std::io::pipe().unwrap();
        drop(reader);
        for out in [std::process::Stdio::from(full), gone.into()] {
            let mut command = Command::new(BINARY);
            command.args(convert("-", more)).current_dir(place.folder.path()).stdout(out);
            let output = command.output().unwrap();
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.starts_with("error: writing to standard output: "), "{said}");
        }
    }
}

#[tokio::test]
async fn file_size_limit_is_reported_and_keeps_the_old_file() {
    let place = Place::new();
    write(&place, 2_000);
    let out = place.folder.path().join("bundle.json");
    fs::write(&out, "before").unwrap();
    // In blocks of 512 or 1,024 bytes, as the shell likes.
    let command =
        format!("ulimit -S -f 64; exec {BINARY} {}", convert("bundle.json", &["--force"]).join(" "));
    let output = Command::new("sh").args(["-c", &command]).current_dir(place.folder.path()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: writing bundle.json.partial: File too large"), "{said}");
    assert_eq!(fs::read(&out).unwrap(), b"before");
    let (code, _, said) = run(&place, &convert("bundle.json", &["--force"])).await;
    assert_eq!(code, 0, "{said}");
    let whole: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    assert_eq!(whole["summary"]["responses"], json!(2_000 * COMMENTS));
}

#[tokio::test]
async fn contradicting_sidecars_are_refused_also_by_dry_run() {
    let place = Place::new();
    write(&place, 4);
    for sidecars in [
        &["--sidecar", "parquet,parquet"][..],
        &["--sidecar", "ndjson", "--sidecar", "ndjson"],
        &["--sidecar", "none,parquet"],
        &["--sidecar", "none", "--sidecar", "none"],
        &["--sidecar", "ndjson", "--sidecar", "none"],
    ] {
        for more in [&["--dry-run"][..], &[]] {
            let (code, _, said) = run(&place, &convert("bundle.json", &[sidecars, more].concat())).await;
            assert!(code == 2 && said.contains("--sidecar"), "{sidecars:?}: {code} {said}");
        }
    }
    let mut left: Vec<_> =
        fs::read_dir(place.folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["export", "key"]);
}

#[tokio::test]
async fn an_input_is_not_written_over_and_both_names_are_told() {
    let place = Place::new();
    write(&place, 4);
    let votes = place.folder.path().join("export/votes.csv");
    std::os::unix::fs::symlink(&votes, place.folder.path().join("link.json")).unwrap();
    let before = fs::read(&votes).unwrap();
    let (code, _, said) = run(&place, &convert("link.json", &["--force"])).await;
    assert_eq!(code, 2);
    assert!(said.contains("link.json") && said.contains("votes.csv"), "{said}");
    assert!(fs::read(&votes).unwrap() == before);
}

/// What a conversion says that is told to end once it has begun; `None` if it was done before.
async fn told_to_end(place: &Place, args: &[&str], has_begun: impl Fn() -> bool) -> Option<String> {
    let mut process = Program::new(BINARY, place.folder.path().join("output"))
        .args(["bundle", "convert"])
        .args(args)
        .start()
        .unwrap();
    eventually("a beginning", PATIENCE, async || (has_begun() || !process.runs()).then_some(()))
        .await
        .unwrap();
    if process.runs() {
        process.terminate().await.unwrap();
    }
    let status = process.exit(PATIENCE).await.unwrap();
    let said = process.output().unwrap();
    assert!(status.success() || status.code() == Some(2), "{said}");
    (!status.success()).then_some(said)
}

#[tokio::test]
async fn sigterm_leaves_nothing_and_the_command_runs_again() {
    let place = Place::new();
    let absolute = |name: &str| place.folder.path().join(name).display().to_string();
    let mut interrupted = None;
    // A machine may be done before it is told; then there is more for it to do.
    for voters in [50_000, 200_000, 800_000] {
        write(&place, voters);
        let (export, out, key) = (absolute("export"), absolute("bundle.json"), absolute("key"));
        let args = [&export, "-o", &out, "--linkage-key-file", &key, "--as-of", "2026-01-02T03:04:05Z"];
        let more = ["--threads", "1", "--sidecar", "none", "--force"];
        let partial = PathBuf::from(absolute("bundle.json.partial"));
        let has_begun = || fs::metadata(&partial).is_ok_and(|found| found.len() > 1 << 20);
        interrupted = told_to_end(&place, &[&args[..], &more].concat(), has_begun).await;
        if interrupted.is_some() {
            break;
        }
    }
    let said = interrupted.unwrap();
    assert!(said.contains("no output was kept: run the same command again"), "{said}");
    let mut left: Vec<_> =
        fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    left.retain(|name| !name.to_string_lossy().starts_with("output"));
    assert_eq!(left, ["export", "key"]);
    assert_eq!(run(&place, &convert("bundle.json", &["--sidecar", "none"])).await.0, 0);
}

#[tokio::test]
async fn sigterm_while_writing_tables_leaves_nothing() {
    let place = Place::new();
    let absolute = |name: &str| place.folder.path().join(name).display().to_string();
    let mut said = None;
    // A machine may be done before it is told; then there is more for it to do.
    for voters in [50_000, 200_000, 800_000] {
        write(&place, voters);
        assert_eq!(run(&place, &convert("bundle.json", &["--force", "--sidecar", "none"])).await.0, 0);
        let (bundle, tables) = (absolute("bundle.json"), absolute("tables"));
        let begun = PathBuf::from(absolute("tables/responses.ndjson.partial"));
        said = told_to_end(&place, &[&bundle, "-o", &tables, "--to", "ndjson"], || begun.exists()).await;
        if said.is_some() {
            break;
        }
        fs::remove_dir_all(absolute("tables")).unwrap();
    }
    let said = said.unwrap();
    assert!(said.contains("no output was kept: run the same command again"), "{said}");
    let left = fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with("tables")));
}

#[tokio::test]
async fn guide_conversion_runs_with_nothing_but_the_export() {
    let place = Place::new();
    let mut zipped = zip::ZipWriter::new(fs::File::create(place.folder.path().join("export.zip")).unwrap());
    for (name, text) in export(40) {
        zipped.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zipped.write_all(text.as_bytes()).unwrap();
    }
    zipped.finish().unwrap();
    let section = GUIDE.split("## From a Polis export").nth(1).unwrap();
    let commands: Vec<_> = section.split("```\n").nth(1).unwrap().lines().collect();
    assert!(commands.len() >= 5);
    for command in commands {
        let (status, said) = if let Some(args) = command.strip_prefix("tidegate ") {
            let (code, _, said) = run(&place, &args.split_whitespace().collect::<Vec<_>>()).await;
            (code, said)
        } else {
            // As wide as a mask may be: the command has its own.
            let line = format!("umask 000; {command}");
            let output =
                Command::new("sh").args(["-c", &line]).current_dir(place.folder.path()).output().unwrap();
            (output.status.code().unwrap(), text(&output.stderr))
        };
        assert_eq!(status, 0, "{command}: {said}");
        assert!(!said.contains("warning"), "{command}: {said}");
    }
}

#[tokio::test]
async fn the_commands_of_the_guide_do_what_it_says() {
    let place = Place::new();
    write(&place, 40);
    let at = |name: &str| place.folder.path().join(name);
    let mut zipped = zip::ZipWriter::new(fs::File::create(at("export.zip")).unwrap());
    for (name, text) in export(40) {
        zipped.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zipped.write_all(text.as_bytes()).unwrap();
    }
    zipped.finish().unwrap();
    assert_eq!(run(&place, &convert("survey.json", &[])).await.0, 0);
    fs::copy(at("survey.json"), at("monday.json")).unwrap();
    fs::copy(at("survey.json"), at("survey.json.zst")).unwrap();
    assert_eq!(run(&place, &convert("tuesday.json", &["--title", "More trees"])).await.0, 0);
    let blocks = GUIDE.split("```\n").skip(1).step_by(2);
    let commands: Vec<&str> = blocks.flat_map(str::lines).collect();
    let (ours, others): (Vec<&str>, Vec<&str>) = commands
        .into_iter()
        .filter(|line| line.starts_with("tidegate ") || line.starts_with("duckdb "))
        .partition(|line| line.starts_with("tidegate "));
    assert!(ours.len() >= 8 && others.len() == 1, "{ours:?} {others:?}");
    for command in ours {
        let args: Vec<_> = command.split_whitespace().skip(1).collect();
        let (code, out, said) = run(&place, &args).await;
        let wanted = i32::from(args[1] == "diff");
        assert_eq!(code, wanted, "{command}: {} {said}", text(&out));
    }
    let shared: Value = serde_json::from_slice(&fs::read(at("shared/bundle.json")).unwrap()).unwrap();
    assert_eq!(shared["dataCard"]["suitableForPublicSharing"], json!(true));
    for name in ["bundle.responses.parquet", "datapackage.json", "manifest-sha256.txt"] {
        assert!(at("shared").join(name).exists(), "{name}");
    }
    let Some(python) = servers::python("TIDEGATE_TEST_PARQUET", "the guide's line for DuckDB") else {
        return;
    };
    let query = others[0].split('"').nth(1).unwrap();
    let output = Command::new(python)
        .args(["-c", "import duckdb, sys; print(len(duckdb.sql(sys.argv[1]).fetchall()))", query])
        .current_dir(place.folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).trim(), shared["responses"].as_array().unwrap().len().to_string());
}
