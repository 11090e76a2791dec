//! `tidegate bundle convert`, alone and in the order of its guide: destinations of output and progress, and the cleanup
//! after an interrupted conversion.

use std::{
    fmt::Write as _, fs, io::Write as _, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command,
};

use crate::support::{BINARY, Place, text};
use serde_json::{Value, json};
use tidegate_test_support::{PATIENCE, Program, eventually, servers};

const GUIDE: &str = include_str!("../../docs/guides/bundles.md");
const COMMENTS: u32 = 6;

/// Files of an invented export with `voters` voters, each with a vote on every comment.
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

/// Arguments of a conversion with a fixed key and time, so equal input gives equal bytes.
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
    let (code, bundle, stderr) = run(&place, &convert("-", &["--progress", "json"])).await;
    assert_eq!(code, 0, "{stderr}");
    let parsed: Value = serde_json::from_slice(&bundle).unwrap();
    assert_eq!(parsed["summary"]["responses"], json!(40 * COMMENTS));
    let progress_lines: Vec<Value> = stderr
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let last = progress_lines.last().unwrap();
    assert_eq!((&last["rows"], &last["secondsLeft"]), (&json!(40 * COMMENTS), &json!(0.0)));
    assert!(last["bytesRead"].as_u64() > Some(0) && last["bytesRead"] == last["bytesTotal"], "{last}");
    assert!(stderr.contains("read as polis, variant E\n"), "{stderr}");
    // Standard error is no terminal, so the command prints progress only on request.
    let (code, out, stderr) = run(&place, &convert("bundle.json", &["--json"])).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(report["bytes"], json!(bundle.len()));
    assert!(fs::read(place.folder.path().join("bundle.json")).unwrap() == bundle);
    let (code, ..) = run(&place, &convert("bundle.json", &[])).await;
    assert_eq!(code, 2, "an existing file is not replaced");
    opened(&place, 0o644);
    let (code, _, stderr) = run(&place, &convert("open.json", &[])).await;
    assert_eq!(code, 0);
    assert!(stderr.starts_with("warning: key has mode 0644, so other users can read the key"), "{stderr}");
    let votes = place.folder.path().join("export/votes.csv");
    fs::write(&votes, "timestamp,comment-id,voter-id,vote\n1,0,1,yes\n").unwrap();
    let (code, out, stderr) = run(&place, &convert("-", &[])).await;
    assert_eq!((code, out), (1, Vec::new()));
    assert!(stderr.contains("votes.csv, row 2"), "{stderr}");
}

#[tokio::test]
async fn closed_or_full_stdout_is_reported() {
    let place = Place::new();
    write(&place, 40);
    for more in [&[][..], &["--bundle-id", "trees"]] {
        let (code, bundle, stderr) = run(&place, &convert("-", more)).await;
        assert_eq!(code, 0, "{stderr}");
        assert_eq!(run(&place, &convert("bundle.json", &[more, &["--force"]].concat())).await.0, 0);
        assert!(fs::read(place.folder.path().join("bundle.json")).unwrap() == bundle);
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let (reader, gone) = std::io::pipe().unwrap();
        drop(reader);
        for out in [std::process::Stdio::from(full), gone.into()] {
            let mut command = Command::new(BINARY);
            command.args(convert("-", more)).current_dir(place.folder.path()).stdout(out);
            let output = command.output().unwrap();
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{stderr}");
            assert!(stderr.starts_with("error: writing to standard output: "), "{stderr}");
        }
    }
}

#[tokio::test]
async fn file_size_limit_is_reported_and_keeps_the_old_file() {
    let place = Place::new();
    write(&place, 2_000);
    let out = place.folder.path().join("bundle.json");
    fs::write(&out, "before").unwrap();
    // The shell counts in blocks of 512 or 1,024 bytes.
    let command =
        format!("ulimit -S -f 64; exec {BINARY} {}", convert("bundle.json", &["--force"]).join(" "));
    let output = Command::new("sh").args(["-c", &command]).current_dir(place.folder.path()).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("error: writing bundle.json.partial: File too large"), "{stderr}");
    assert_eq!(fs::read(&out).unwrap(), b"before");
    let (code, _, stderr) = run(&place, &convert("bundle.json", &["--force"])).await;
    assert_eq!(code, 0, "{stderr}");
    let bundle: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    assert_eq!(bundle["summary"]["responses"], json!(2_000 * COMMENTS));
}

#[tokio::test]
async fn contradictory_sidecar_options_are_refused_in_a_dry_run() {
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
            let (code, _, stderr) = run(&place, &convert("bundle.json", &[sidecars, more].concat())).await;
            assert!(code == 2 && stderr.contains("--sidecar"), "{sidecars:?}: {code} {stderr}");
        }
    }
    let mut left: Vec<_> =
        fs::read_dir(place.folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["export", "key"]);
}

#[tokio::test]
async fn input_file_is_not_overwritten_and_both_names_are_printed() {
    let place = Place::new();
    write(&place, 4);
    let votes = place.folder.path().join("export/votes.csv");
    std::os::unix::fs::symlink(&votes, place.folder.path().join("link.json")).unwrap();
    let before = fs::read(&votes).unwrap();
    let (code, _, stderr) = run(&place, &convert("link.json", &["--force"])).await;
    assert_eq!(code, 2);
    assert!(stderr.contains("link.json") && stderr.contains("votes.csv"), "{stderr}");
    assert!(fs::read(&votes).unwrap() == before);
}

/// Terminates a conversion once it has started and returns its output; `None` if it finished before the signal.
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
    let process_output = process.output().unwrap();
    assert!(status.success() || status.code() == Some(2), "{process_output}");
    (!status.success()).then_some(process_output)
}

#[tokio::test]
async fn sigterm_leaves_no_output_and_a_second_run_succeeds() {
    let place = Place::new();
    let absolute = |name: &str| place.folder.path().join(name).display().to_string();
    let mut interrupted = None;
    // A fast machine may finish before the signal; the loop then tries a larger export.
    for voters in [50_000, 200_000, 800_000] {
        write(&place, voters);
        let (export, out, key) = (absolute("export"), absolute("bundle.json"), absolute("key"));
        let args = [&export, "-o", &out, "--linkage-key-file", &key, "--as-of", "2026-01-02T03:04:05Z"];
        let extra_args = ["--threads", "1", "--sidecar", "none", "--force"];
        let partial = PathBuf::from(absolute("bundle.json.partial"));
        let has_begun = || fs::metadata(&partial).is_ok_and(|found| found.len() > 1 << 20);
        interrupted = told_to_end(&place, &[&args[..], &extra_args].concat(), has_begun).await;
        if interrupted.is_some() {
            break;
        }
    }
    let output_text = interrupted.unwrap();
    assert!(output_text.contains("no output was kept: run the same command again"), "{output_text}");
    let mut left: Vec<_> =
        fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    left.retain(|name| !name.to_string_lossy().starts_with("output"));
    assert_eq!(left, ["export", "key"]);
    assert_eq!(run(&place, &convert("bundle.json", &["--sidecar", "none"])).await.0, 0);
}

#[tokio::test]
async fn sigterm_while_writing_tables_leaves_no_output() {
    let place = Place::new();
    let absolute = |name: &str| place.folder.path().join(name).display().to_string();
    let mut interrupted_output = None;
    // A fast machine may finish before the signal; the loop then tries a larger export.
    for voters in [50_000, 200_000, 800_000] {
        write(&place, voters);
        assert_eq!(run(&place, &convert("bundle.json", &["--force", "--sidecar", "none"])).await.0, 0);
        let (bundle, tables) = (absolute("bundle.json"), absolute("tables"));
        let partial_file = PathBuf::from(absolute("tables/responses.ndjson.partial"));
        interrupted_output =
            told_to_end(&place, &[&bundle, "-o", &tables, "--to", "ndjson"], || partial_file.exists()).await;
        if interrupted_output.is_some() {
            break;
        }
        fs::remove_dir_all(absolute("tables")).unwrap();
    }
    let output_text = interrupted_output.unwrap();
    assert!(output_text.contains("no output was kept: run the same command again"), "{output_text}");
    let left = fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with("tables")));
}

#[tokio::test]
async fn guide_conversion_needs_only_the_export() {
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
        let (status, stderr) = if let Some(args) = command.strip_prefix("tidegate ") {
            let (code, _, stderr) = run(&place, &args.split_whitespace().collect::<Vec<_>>()).await;
            (code, stderr)
        } else {
            // The widest mask, because the command of the guide sets its own.
            let line = format!("umask 000; {command}");
            let output =
                Command::new("sh").args(["-c", &line]).current_dir(place.folder.path()).output().unwrap();
            (output.status.code().unwrap(), text(&output.stderr))
        };
        assert_eq!(status, 0, "{command}: {stderr}");
        assert!(!stderr.contains("warning"), "{command}: {stderr}");
    }
}

#[tokio::test]
async fn guide_commands_exit_as_documented() {
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
        let (code, out, stderr) = run(&place, &args).await;
        let expected_code = i32::from(args[1] == "diff");
        assert_eq!(code, expected_code, "{command}: {} {stderr}", text(&out));
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
