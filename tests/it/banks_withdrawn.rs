//! Entries that exchanges withdraw from the banks of a running process, and interrupted imports that resume elsewhere.

use std::fs;

use crate::support::{Demo, Place, text};
use serde_json::{Value, json};
use tidegate_test_support::{PATIENCE, eventually};

fn md5(nth: u32) -> String {
    format!("{nth:032x}")
}

async fn with_files(place: &Place) -> Demo {
    let demo = place.start().await.unwrap();
    let change = json!({"files": [{"name": "hashes.yaml", "text": "bank: files\nkind: md5\n"}]});
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 200, "{answer}");
    demo
}

/// Imports a text and returns standard output, standard error and the exit code.
async fn import(place: &Place, text_of_file: &str, format: &str) -> (String, String, Option<i32>) {
    fs::write(place.folder.path().join("file"), text_of_file).unwrap();
    let data = place.data();
    let import = ["banks", "import", "files", "file", "--format", format, "--data", data.to_str().unwrap()];
    let output = place.run(&import).await;
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

async fn list_entries(place: &Place) -> Vec<Value> {
    let entry_lines = place.run_ok(&["banks", "show", "files"]).await;
    entry_lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn record(tag: &str, member: u32, id: &str, nth: u32) -> String {
    let prints = format!("<fingerprints><md5>{}</md5></fingerprints>", md5(nth));
    let prints = if tag == "image" { prints } else { String::new() };
    format!("<q><{tag}><member id=\"{member}\"/><id>{id}</id>{prints}</{tag}></q>")
}

fn stop(nth: u32, status: &str) -> String {
    json!({"hashValue": md5(nth), "hashStatus": status, "signalType": "VideoMD5"}).to_string()
}

async fn expect(place: &Place, file: &str, format: &str, sum: &str) {
    let (stdout, faults, code) = import(place, file, format).await;
    assert!(stdout.trim_end() == format!("1 entries: {sum}") && code == Some(0), "{file}: {stdout}{faults}");
}

const ADDED: &str = "1 added, 0 changed, 0 there already, 0 refused";
const CHANGED: &str = "0 added, 1 changed, 0 there already, 0 refused";
const THERE: &str = "0 added, 0 changed, 1 there already, 0 refused";
const REMOVED: &str = "0 added, 0 changed, 0 there already, 0 refused, 1 removed";
const MISSING: &str = "0 added, 0 changed, 0 there already, 0 refused, 1 not there to remove";

#[tokio::test]
async fn hash_stays_while_any_source_lists_it() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    // Two members list the hash, one of them under two ids.
    for (member, id, sum) in [(42, "i1", ADDED), (43, "i2", CHANGED), (43, "i3", CHANGED), (42, "i1", THERE)]
    {
        expect(&place, &record("image", member, id, 1), "ncmec", sum).await;
    }
    for (member, id, sum) in
        [(42, "i2", MISSING), (43, "i2", CHANGED), (43, "i2", MISSING), (42, "i1", CHANGED)]
    {
        expect(&place, &record("deletedImage", member, id, 0), "ncmec", sum).await;
    }
    let left = list_entries(&place).await;
    assert_eq!(
        (&left[0]["source"], &left[0]["reference"], left[0].get("also")),
        (&json!("ncmec:43"), &json!("i3"), None)
    );
    expect(&place, &stop(1, "Deleted"), "stopncii", MISSING).await;
    expect(&place, &record("deletedImage", 43, "i3", 0), "ncmec", REMOVED).await;
    assert!(list_entries(&place).await.is_empty());
}

#[tokio::test]
async fn exchanges_do_not_withdraw_local_entries() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    place.run_ok(&["banks", "add", "files", &md5(1), "--source", "own", "--note", "ours"]).await;
    place.run_ok(&["banks", "add", "files", &md5(2)]).await;
    expect(&place, &stop(3, "Active"), "stopncii", ADDED).await;
    for nth in [1, 2] {
        expect(&place, &stop(nth, "Deleted"), "stopncii", MISSING).await;
        expect(&place, &stop(nth, "Active"), "stopncii", CHANGED).await;
    }
    // An import without a source makes the entry a local one.
    expect(&place, &md5(3), "lines", CHANGED).await;
    expect(&place, &md5(3), "lines", THERE).await;
    for nth in [1, 2, 3] {
        expect(&place, &stop(nth, "Withdrawn"), "stopncii", CHANGED).await;
        expect(&place, &stop(nth, "Withdrawn"), "stopncii", MISSING).await;
    }
    let left = list_entries(&place).await;
    assert_eq!(left.len(), 3, "{left:?}");
    let ours = left.iter().find(|entry| entry["value"] == md5(1)).unwrap();
    assert_eq!((&ours["source"], &ours["note"]), (&json!("own"), &json!("ours")));
}

#[tokio::test]
async fn exported_copy_keeps_all_sources_of_an_entry() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    expect(&place, &md5(1), "lines", ADDED).await;
    for (member, id) in [(43, "i2"), (42, "i1")] {
        expect(&place, &record("image", member, id, 1), "ncmec", CHANGED).await;
    }
    let before = list_entries(&place).await;
    assert_eq!(before[0]["also"].as_array().unwrap().len(), 2, "{before:?}");
    for format in ["csv", "ndjson"] {
        let copy = place.run_ok(&["banks", "export", "files", "--format", format]).await;
        let (stdout, ..) = import(&place, &copy, format).await;
        assert!(stdout.contains("3 entries: 0 added, 0 changed, 3 there already"), "{stdout}");
        place.run_ok(&["banks", "remove", "files", &md5(1)]).await;
        let (stdout, ..) = import(&place, &copy, format).await;
        assert!(stdout.contains("3 entries: 1 added, 2 changed"), "{stdout}");
        assert_eq!(place.run_ok(&["banks", "export", "files", "--format", format]).await, copy);
    }
}

#[tokio::test]
async fn disabled_entry_stays_disabled_when_listed_again() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    expect(&place, &stop(1, "Active"), "stopncii", ADDED).await;
    place.run_ok(&["banks", "disable", "files", &md5(1)]).await;
    let both = format!("{}\n{}", stop(1, "Withdrawn"), stop(1, "Active"));
    let (stdout, ..) = import(&place, &both, "stopncii").await;
    assert!(stdout.contains("2 entries: 0 added, 2 changed"), "{stdout}");
    expect(&place, &stop(1, "Deleted"), "stopncii", CHANGED).await;
    expect(&place, &stop(1, "Active"), "stopncii", CHANGED).await;
    let left = list_entries(&place).await;
    assert_eq!((left.len(), &left[0]["enabled"]), (1, &json!(false)));
}

#[tokio::test]
async fn malformed_withdrawn_hash_is_refused_with_its_line() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    let odd = stop(1, "Deleted").replace(&md5(1), "abc");
    let (stdout, faults, code) = import(&place, &format!("{}\n{odd}", stop(1, "Deleted")), "stopncii").await;
    assert!(stdout.contains("0 there already, 1 refused, 1 not there to remove"), "{stdout}");
    assert!(faults.contains("line 2, record 2: an MD5 hash has 32"), "{faults}");
    assert_eq!(code, Some(1));
}

#[tokio::test]
async fn import_resumes_only_at_its_original_target() {
    let place = Place::new();
    let demo = with_files(&place).await;
    place.run_ok(&["org", "create", "two"]).await;
    let folder = place.folder.path().join("documents");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("hashes.yaml"), "bank: files\nkind: md5\n").unwrap();
    place.run_ok(&["apply", folder.to_str().unwrap(), "--org", "two"]).await;
    let (path, resume_state) = interrupt_import(&place).await;
    let data = place.data();
    let import = ["banks", "import", "files", &path, "--resume", "--data", data.to_str().unwrap()];
    let resume = format!("{path}.resume");
    let expect_refusal = async |more: &[&str], of: &str| {
        fs::write(&resume, &resume_state).unwrap();
        let args: Vec<_> = import.iter().chain(more).copied().collect();
        let output = place.run(&args).await;
        let faults = text(&output.stderr);
        assert!(faults.contains(of) && faults.contains("to start over"), "{faults}");
        assert!(output.stdout.is_empty() && !output.status.success());
        assert_eq!(fs::read(&resume).unwrap(), resume_state, "the import can still be resumed");
    };
    expect_refusal(&["--org", "two"], "is of another organisation").await;
    let server_file: Value = serde_json::from_slice(&fs::read(data.join("server.json")).unwrap()).unwrap();
    let (url, key) = (server_file["adminUrl"].as_str().unwrap(), demo.var("TIDEGATE_ADMIN_KEY"));
    expect_refusal(&["--server", url, "--token", key], "is of another server").await;
    let mut anew: Value = serde_json::from_slice(&resume_state).unwrap();
    anew["revision"] = json!(1_000_000);
    fs::write(&resume, anew.to_string()).unwrap();
    let faults = text(&place.run(&import).await.stderr);
    assert!(faults.contains("recreated or restored"), "{faults}");
    // An organisation of the same name in another store is refused, whichever revision its bank has.
    let mut elsewhere: Value = serde_json::from_slice(&resume_state).unwrap();
    let store_start = elsewhere["subject"]["org"].as_str().unwrap().split_once(" since 2").unwrap();
    elsewhere["subject"]["org"] = json!(format!("{} since 1{}", store_start.0, store_start.1));
    fs::write(&resume, elsewhere.to_string()).unwrap();
    let faults = text(&place.run(&import).await.stderr);
    assert!(faults.contains("is of another organisation"), "{faults}");
    fs::write(&resume, &resume_state).unwrap();
    // Naming the default organisation explicitly is the same as naming none.
    let org = listed_org(&demo).await;
    let args: Vec<_> = import.iter().copied().chain(["--org", org.as_str()]).collect();
    let output = place.run(&args).await;
    assert!(text(&output.stderr).contains("continuing after"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}

async fn listed_org(demo: &Demo) -> String {
    let admin = demo.var("TIDEGATE_ADMIN_KEY");
    let (_, banks) = demo.admin_as(admin, reqwest::Method::GET, "/banks", None).await;
    banks["items"][0]["org"].as_str().unwrap().to_owned()
}

/// Kills an import after its first part. Returns the path of its file and the content of its resume file.
async fn interrupt_import(place: &Place) -> (String, Vec<u8>) {
    let data = place.data();
    for attempt in 0..5 {
        let path = place.folder.path().join(format!("hashes-{attempt}.txt"));
        fs::write(&path, (0..40_000).map(|nth| format!("{attempt:08x}{nth:024x}\n")).collect::<String>())
            .unwrap();
        let path = path.to_str().unwrap().to_owned();
        let import = ["banks", "import", "files", &path, "--resume", "--data", data.to_str().unwrap()];
        let mut process = tokio::process::Command::new(crate::support::BINARY);
        let mut process = process.args(import).kill_on_drop(true).spawn().unwrap();
        let resume = format!("{path}.resume");
        eventually("a first part to be sent", PATIENCE, async || {
            (fs::exists(&resume).unwrap() || process.try_wait().unwrap().is_some()).then_some(())
        })
        .await
        .unwrap();
        process.kill().await.unwrap();
        if let Ok(kept) = fs::read(&resume) {
            return (path, kept);
        }
    }
    panic!("every import finished before the kill");
}
