//! `tidegate bundle export` from files: output, exit codes and messages.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::support::{Place, text};
use serde_json::{Value, json};

/// Writes a folder of events with reports of `users` users on one item.
fn write_events(place: &Place, users: u32) {
    let folder = place.folder.path().join("events");
    fs::create_dir_all(folder.join("reports/day=2026-11-02")).unwrap();
    let mut lines = String::new();
    for user in 0..users {
        let at = "2026-11-02T10:00:00.000Z";
        let row = json!({ "reportId": format!("r{user}"), "recordedAt": at, "reportedAt": at, "receivedAt": at,
            "itemTypeId": "post", "itemId": "p1", "reporterTypeId": "user", "reporterId": format!("u{user}"),
            "policyId": "spam", "reason": "free text", "jobId": "j1", "childSafety": false });
        lines += &format!("{row}\n");
    }
    fs::write(folder.join("reports/day=2026-11-02/part-0001-of-0001.ndjson"), lines).unwrap();
    for dataset in ["decisions", "appeals", "actions"] {
        fs::write(folder.join(dataset).with_extension("ndjson"), "").unwrap();
    }
    fs::write(folder.join("policies.json"), r#"[{"id":"spam","name":"Spam","parentId":null}]"#).unwrap();
    let key = place.folder.path().join("key");
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(key, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Runs an export with a fixed key and time, so equal rows give equal bytes.
async fn export(place: &Place, options: &[&str]) -> (i32, Vec<u8>, String) {
    let fixed =
        ["bundle", "export", "--events", "events", "--org", "acme", "--as-of", "2026-12-02T00:00:00Z"];
    let key = ["--linkage-key-file", "key"];
    let output = place.run(&[&fixed[..], &key, options].concat()).await;
    (output.status.code().unwrap(), output.stdout, text(&output.stderr))
}

const NOVEMBER: [&str; 4] = ["--since", "2026-11-01T00:00:00Z", "--until", "2026-12-01T00:00:00Z"];

#[tokio::test]
async fn exported_bundle_is_accepted_by_validate() {
    let place = Place::new();
    write_events(&place, 12);
    for (profile, responses) in [("private", 12), ("public", 10)] {
        let options = [&NOVEMBER[..], &["--profile", profile, "--sidecar", "parquet,ndjson", "-o"]].concat();
        let (code, out, stderr) = export(&place, &[&options[..], &["bundle.json", "--force"]].concat()).await;
        assert_eq!(code, 0, "{stderr}");
        assert!(text(&out).starts_with("read as moderation\n2 items, "), "{}", text(&out));
        let bundle = fs::read(place.folder.path().join("bundle.json")).unwrap();
        let parsed: Value = serde_json::from_slice(&bundle).unwrap();
        assert_eq!(parsed["summary"]["responses"], json!(responses));
        let checked = place.run(&["bundle", "validate", "--level", "privacy", "bundle.json"]).await;
        assert!(checked.status.success(), "{}", text(&checked.stdout));
        assert!(place.folder.path().join("bundle.responses.ndjson").exists());
        let (code, streamed, _) =
            export(&place, &[&NOVEMBER[..], &["--profile", profile, "-o", "-"]].concat()).await;
        assert!(code == 0 && streamed == bundle);
    }
}

#[tokio::test]
async fn invalid_rows_and_invalid_options_have_different_exit_codes() {
    let place = Place::new();
    write_events(&place, 1);
    let reversed =
        ["--since", "2026-12-01T00:00:00Z", "--until", "2026-11-01T00:00:00Z", "-o", "bundle.json"];
    let (code, _, stderr) = export(&place, &reversed).await;
    assert!(
        code == 2 && stderr.starts_with("error: --since 2026-12-01T00:00:00.000Z is not before"),
        "{stderr}"
    );
    let to_file = [&NOVEMBER[..], &["-o", "bundle.json"]].concat();
    fs::write(place.folder.path().join("events/appeals.ndjson"), "\n{\"appealId\":\"a1\"}\n").unwrap();
    let (code, _, stderr) = export(&place, &to_file).await;
    assert!(
        code == 1 && stderr.starts_with("error: appeals.ndjson, row 2: the column recordedAt is missing"),
        "{stderr}"
    );
    fs::remove_file(place.folder.path().join("events/appeals.ndjson")).unwrap();
    let (code, _, stderr) = export(&place, &to_file).await;
    assert!(
        code == 1 && stderr.starts_with("error: events: it has no rows of the dataset appeals"),
        "{stderr}"
    );
    assert!(!place.folder.path().join("bundle.json").exists());
}
