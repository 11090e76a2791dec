//! Output and exit codes of `tidegate bundle ...`.

use std::{
    fs,
    io::Write as _,
    process::{Command, Output, Stdio},
};

use crate::support::{BINARY, Place, text};
use serde_json::{Value, json};

fn bundle() -> Value {
    let item = |id: &str| {
        json!({ "id": id, "phaseId": "p", "type": "statement", "text": "Secret trees.", "status": "approved",
            "origin": "participant", "createdAt": null })
    };
    json!({
        "schema": "https://tidegate.example/schemas/data-bundle/v1.json",
        "kind": "service-data-bundle",
        "bundleId": "polis:1",
        "exportedAt": "2024-05-06T07:08:09Z",
        "source": { "tool": "Polis", "sourceSchema": "https://example.org/s", "sourceId": "1", "title": "Trees",
            "description": "", "url": "https://example.org/1" },
        "phases": [{ "id": "p", "type": "opinion", "title": "Trees", "status": "completed" }],
        "items": [item("statement:1"), item("statement:2")],
        "responses": [{ "id": "vote:1", "phaseId": "p", "subjectRef": "statement:1", "participantRef": "participant:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
            "response": "agree", "count": 1, "occurredAt": null }],
        "outcomes": [],
        "summary": { "participants": 1, "items": 2, "responses": 1, "coverage": 0.5 },
        "provenance": { "adapter": "tests/v1", "transformedAt": "2024-05-06T07:08:09Z", "sourceArtifacts": [], "notes": [] },
        "dataCard": { "containsParticipantData": true, "containsDirectIdentifiers": false,
            "containsParticipantFreeText": true, "containsPseudonymousLinkage": true, "aggregation": "x",
            "publicationStatus": "local-private-export", "storedByService": false,
            "suitableForPublicSharing": false, "limitations": [] },
    })
}

/// Creates a folder with a valid bundle, a bundle with a dangling reference, and a truncated bundle.
fn files() -> Place {
    let place = Place::new();
    let valid_bundle = bundle();
    let mut bad = bundle();
    bad["responses"][0]["subjectRef"] = json!("secret");
    let write = |name: &str, text: &str| fs::write(place.folder.path().join(name), text).unwrap();
    write("good.json", &valid_bundle.to_string());
    write("pretty.json", &serde_json::to_string_pretty(&valid_bundle).unwrap());
    write("bad.json", &bad.to_string());
    write("half.json", &valid_bundle.to_string()[..900]);
    place
}

async fn run(place: &Place, args: &[&str]) -> (i32, String, String) {
    let args: Vec<_> = ["bundle"].into_iter().chain(args.iter().copied()).collect();
    let output = place.run(&args).await;
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn piped(args: &[&str], input: &[u8]) -> Output {
    piped_in(&Place::new(), args, input)
}

fn piped_in(place: &Place, args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(BINARY)
        .args(args)
        .current_dir(place.folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[tokio::test]
async fn validate_prints_places_and_sets_its_exit_code() {
    let place = files();
    let (code, out, _) = run(&place, &["validate", "good.json"]).await;
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("good.json: valid (level privacy)"), "{out}");
    let (code, out, _) = run(&place, &["validate", "bad.json"]).await;
    assert_eq!(code, 1);
    assert!(out.contains("/responses/0/subjectRef  BND-REF-03 error  line 1, byte "), "{out}");
    assert!(!out.contains("ecret"), "{out}");
    let (code, out, _) = run(&place, &["validate", "bad.json", "--level", "schema"]).await;
    assert_eq!(code, 0, "{out}");
    let (_, out, _) = run(&place, &["validate", "bad.json", "--show-values"]).await;
    assert!(out.contains("\"secret\""), "{out}");
    let (code, out, _) = run(&place, &["validate", "half.json", "--format", "json"]).await;
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["complete"], &report["totals"]["BND-LEX-02"]), (1, &json!(false), &json!(1)));
    let (_, out, _) = run(&place, &["validate", "bad.json", "--format", "sarif", "--max-errors", "1"]).await;
    let log: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(log["version"], "2.1.0");
    assert_eq!(log["runs"][0]["results"].as_array().unwrap().len(), 1);
    let (code, _, stderr) = run(&place, &["validate", "nowhere.json"]).await;
    assert_eq!(code, 2);
    assert!(stderr.contains("nowhere.json"), "{stderr}");
    for wrong in [
        &["validate"][..],
        &["validate", "good.json", "--k", "2"],
        &["validate", "good.json", "--level", "x"],
    ] {
        assert_eq!(run(&place, wrong).await.0, 2, "{wrong:?}");
    }
}

#[tokio::test]
async fn constants_can_be_others() {
    let place = files();
    let url = "https://example.org/v1.json";
    let mut changed_bundle = bundle();
    changed_bundle["schema"] = json!(url);
    fs::write(place.folder.path().join("other.json"), changed_bundle.to_string()).unwrap();
    assert_eq!(run(&place, &["validate", "other.json"]).await.0, 1);
    assert_eq!(run(&place, &["validate", "other.json", "--schema-url", url]).await.0, 0);
    let (code, out, _) = run(&place, &["validate", "good.json", "--compat", "delib"]).await;
    assert_eq!(code, 1);
    assert!(out.contains("/kind  BND-SCH-04"), "{out}");
    let (code, out, _) = run(&place, &["schema", "--rename-constants", "delib"]).await;
    let schema: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &schema["properties"]["kind"]["const"]), (0, &json!("delib-data-bundle")));
    let (_, out, _) = run(&place, &["schema"]).await;
    assert_eq!(out, include_str!("../../schemas/data-bundle/v1.json"));
}

#[test]
fn standard_input_may_be_compressed() {
    let bundle_text = bundle().to_string();
    let output = piped(&["bundle", "validate", "-"], bundle_text.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    // The input is a gzip header without data, so it contains no document.
    let output = piped(&["bundle", "validate", "-"], &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("BND-LEX-02"));
    // Damaged gzip data contains no document either.
    let output =
        piped(&["bundle", "validate", "-"], &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("BND-LEX-14"));
}

#[cfg(target_os = "linux")]
#[test]
fn lost_output_is_reported() {
    let place = files();
    for args in [["validate", "good.json"], ["digest", "good.json"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(BINARY);
        let output = command.arg("bundle").args(args).current_dir(place.folder.path()).stdout(full).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains("standard output"), "{args:?}");
    }
}

#[tokio::test]
async fn inspect_shows_texts_only_on_request() {
    let place = files();
    let (code, out, _) = run(&place, &["inspect", "good.json"]).await;
    assert_eq!(code, 0);
    assert!(out.contains("1 participant, 2 items, 1 response"), "{out}");
    assert!(out.contains("statement:1  approved  participant  agree 1"), "{out}");
    assert!(out.contains("suitableForPublicSharing false"), "{out}");
    assert!(!out.contains("Secret"), "{out}");
    let (_, out, _) = run(&place, &["inspect", "good.json", "--texts", "--items", "1"]).await;
    assert!(out.matches("Secret").count() == 1 && out.contains("and 1 more item"), "{out}");
    let (_, out, _) = run(&place, &["inspect", "good.json", "--format", "json"]).await;
    let overview: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(overview["items"][0]["counts"], json!({ "agree": 1 }));
    assert_eq!(overview["head"]["summary"]["coverage"], json!(0.5));
    assert!(!out.contains("Secret"), "{out}");
    let (code, out, _) = run(&place, &["inspect", "half.json"]).await;
    assert_eq!(code, 1);
    assert!(out.contains("ends too early"), "{out}");
}

#[tokio::test]
async fn inspect_hides_texts_of_wrong_type_and_shortens_titles() {
    let place = files();
    let secret = "Secret ".repeat(100_000);
    let mut wrong = bundle();
    for member in ["items", "responses", "outcomes", "source", "dataCard", "summary"] {
        wrong[member] = json!(secret);
    }
    wrong["phases"][0]["title"] = json!("T".repeat(100_000));
    fs::write(place.folder.path().join("wrong.json"), wrong.to_string()).unwrap();
    let (_, out, stderr) = run(&place, &["inspect", "wrong.json"]).await;
    assert!(!out.contains("Secret") && !stderr.contains("Secret"), "{}", &out[..out.len().min(2_000)]);
    assert!(out.contains(&format!("{}… (100000 bytes)", "T".repeat(300))), "{out}");
    assert!(out.len() < 5_000, "{} bytes", out.len());
    let (_, out, _) = run(&place, &["inspect", "wrong.json", "--format", "json"]).await;
    assert!(!out.contains("Secret"), "{}", &out[..out.len().min(2_000)]);
}

#[tokio::test]
async fn inspect_shows_answers_and_hidden_counts() {
    let place = Place::new();
    let mut counts = bundle();
    counts["responses"][0]["participantRef"] = Value::Null;
    counts["responses"][0]["count"] = json!(74);
    counts["summary"]["participants"] = json!(30);
    let item = counts["items"][1]["id"].clone();
    counts["outcomes"] = json!([{ "id": "o", "phaseId": counts["phases"][0]["id"], "type": "response-counts",
        "itemRef": item, "counts": {}, "suppressed": ["agree", "disagree", "pass"] }]);
    fs::write(place.folder.path().join("counts.json"), counts.to_string()).unwrap();
    let (code, out, _) = run(&place, &["inspect", "counts.json"]).await;
    assert_eq!(code, 0);
    let expected_line =
        "30 participants according to the summary, 2 items, 74 responses in 1 row, 74 of them without";
    assert!(out.contains(expected_line) && out.contains("3 counts hidden"), "{out}");
    let (_, out, _) = run(&place, &["inspect", "counts.json", "--format", "json"]).await;
    let overview: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&overview["responses"], &overview["rows"]), (&json!(74), &json!(1)));
    assert_eq!((&overview["items"][0]["hidden"], &overview["items"][1]["hidden"]), (&Value::Null, &json!(3)));
}

#[tokio::test]
async fn diff_shortens_long_values_except_in_json() {
    let place = files();
    let mut long = bundle();
    long["dataCard"]["limitations"] = json!(["x".repeat(200)]);
    fs::write(place.folder.path().join("long.json"), long.to_string()).unwrap();
    let (code, out, _) = run(&place, &["diff", "good.json", "long.json"]).await;
    assert_eq!(code, 1);
    let expected_line = format!("~ /dataCard/limitations: [] → [\"{}… (204 bytes)\n", "x".repeat(78));
    assert_eq!(out, expected_line);
    let (_, out, _) = run(&place, &["diff", "good.json", "long.json", "--json"]).await;
    let json_diff: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json_diff["members"][0]["after"], long["dataCard"]["limitations"]);
}

#[tokio::test]
async fn diff_and_jcs_digest_ignore_layout() {
    let place = files();
    assert_eq!(run(&place, &["diff", "good.json", "pretty.json"]).await, (0, String::new(), String::new()));
    let (code, out, _) = run(&place, &["diff", "good.json", "bad.json"]).await;
    assert_eq!(code, 1);
    let expected_text = "responses: 0 added, 0 removed, 1 changed (subjectRef 1)\n  ~ vote:1: subjectRef\n";
    assert_eq!(out, expected_text);
    let (code, out, _) = run(&place, &["diff", "good.json", "bad.json", "--json"]).await;
    let json_diff: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json_diff["equal"], &json_diff["members"]), (1, &json!(false), &json!([])));
    let changed_response = json!({ "id": "vote:1", "change": "changed", "fields": ["subjectRef"] });
    let responses = json!({ "added": 0, "removed": 0, "changed": 1, "fields": { "subjectRef": 1 }, "elements": [changed_response] });
    assert_eq!(json_diff["lists"]["responses"], responses);
    let (code, out, _) = run(&place, &["diff", "good.json", "pretty.json", "--json"]).await;
    let json_diff: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &json_diff["equal"], &json_diff["lists"]["items"]["added"]),
        (0, &json!(true), &json!(0))
    );
    assert_eq!(run(&place, &["diff", "good.json", "half.json"]).await.0, 2);
    assert_eq!(run(&place, &["diff", "-", "-"]).await.0, 2);
    let digest =
        async |args: &[&str]| run(&place, args).await.1.split_whitespace().next().unwrap().to_owned();
    let bundle_digest = digest(&["digest", "good.json"]).await;
    assert!(bundle_digest.starts_with("sha256:") && bundle_digest.len() == 7 + 64, "{bundle_digest}");
    assert_ne!(bundle_digest, digest(&["digest", "pretty.json"]).await);
    let jcs_digest = digest(&["digest", "good.json", "--jcs"]).await;
    assert_eq!(jcs_digest, digest(&["digest", "pretty.json", "--jcs"]).await);
    assert_ne!(jcs_digest, digest(&["digest", "bad.json", "--jcs"]).await);
    assert_eq!(run(&place, &["digest", "half.json", "--jcs"]).await.0, 1);
    let twice = bundle().to_string().replacen("\"outcomes\":[]", "\"outcomes\":[{\"a\":1,\"a\":1}]", 1);
    fs::write(place.folder.path().join("twice.json"), &twice).unwrap();
    let (code, _, stderr) = run(&place, &["digest", "twice.json", "--jcs"]).await;
    let byte = twice.find("\"a\":1}").unwrap();
    assert_eq!(code, 1);
    assert!(
        stderr.contains(&format!("line 1, byte {byte}: BND-LEX-09")) && stderr.contains("\"a\""),
        "{stderr}"
    );
    assert_eq!(run(&place, &["digest", "nowhere.json"]).await.0, 2);
}

#[tokio::test]
async fn impossible_schema_url_is_refused_and_not_repeated() {
    let place = files();
    for url in ["", "nope", "v1.json?key=secret", "https://a b/", "//example.org"] {
        for command in [
            &["schema"][..],
            &["validate", "good.json"],
            &["inspect", "good.json"],
            &["convert", "good.json", "-o", "out.json"],
        ] {
            let (code, out, stderr) = run(&place, &[command, &["--schema-url", url]].concat()).await;
            assert_eq!((code, out.as_str()), (2, ""), "{command:?} {url}");
            assert!(
                stderr.starts_with("error: --schema-url is not a URI") && !stderr.contains("secret"),
                "{stderr}"
            );
        }
    }
    let (code, out, _) = run(&place, &["schema", "--schema-url", "urn:example:1"]).await;
    let schema: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &schema["$id"]), (0, &json!("urn:example:1")));
}

#[tokio::test]
async fn inspect_accepts_a_bundle_with_another_schema_url() {
    let place = files();
    let url = "https://example.org/v1.json";
    let mut foreign_bundle = bundle();
    foreign_bundle["schema"] = json!(url);
    fs::write(place.folder.path().join("other.json"), foreign_bundle.to_string()).unwrap();
    let faults = async |args: &[&str]| {
        let (code, out, _) =
            run(&place, &[&["inspect", "other.json", "--format", "json"], args].concat()).await;
        (code, serde_json::from_str::<Value>(&out).unwrap()["faults"].clone())
    };
    assert_eq!(faults(&[]).await, (0, json!(1)));
    assert_eq!(faults(&["--schema-url", url]).await, (0, json!(0)));
}

/// Name, bytes and expected message of inputs that are no JSON documents.
const NO_JSON: [(&str, &[u8], &str); 5] = [
    ("words.txt", b"\n  hello", "line 2, byte 3: BND-LEX-01 invalid JSON"),
    ("empty.json", b"", "line 1, byte 0: BND-LEX-02 the text ends too early"),
    ("half.json", b"{\n\"items\": [", "line 2, byte 12: BND-LEX-02 the text ends too early"),
    ("wide.json", b"{\0\"\0", "line 1, byte 0: BND-LEX-05 not UTF-8"),
    (
        "cut.json.gz",
        &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3],
        "line 1, byte 0: BND-LEX-02 the text ends too early",
    ),
];

#[tokio::test]
async fn invalid_json_is_reported_with_name_line_and_byte() {
    let place = files();
    for (name, bytes, expected_fault) in NO_JSON {
        fs::write(place.folder.path().join(name), bytes).unwrap();
        for (args, expected_code) in [
            (&["inspect", name][..], 1),
            (&["inspect", name, "--format", "json"], 1),
            (&["digest", name, "--jcs"], 1),
            (&["diff", name, "good.json"], 2),
            (&["diff", "good.json", name], 2),
        ] {
            let (code, _, stderr) = run(&place, args).await;
            assert_eq!(code, expected_code, "{args:?}: {stderr}");
            assert!(stderr.starts_with(&format!("error: {name}: {expected_fault}")), "{args:?}: {stderr}");
        }
    }
    for (args, expected_code) in [
        (&["inspect", "-"][..], 1),
        (&["digest", "-", "--jcs"], 1),
        (&["diff", "-", "good.json"], 2),
        (&["diff", "good.json", "-"], 2),
    ] {
        let args: Vec<_> = ["bundle"].iter().chain(args).copied().collect();
        let output = piped_in(&place, &args, b"\n[nul]");
        assert_eq!(output.status.code(), Some(expected_code), "{args:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.starts_with("error: -: line 2, byte "), "{args:?}: {stderr}");
    }
}

#[tokio::test]
async fn inspect_refuses_a_document_that_is_no_bundle() {
    let place = files();
    fs::write(place.folder.path().join("list.json"), "\n [1, 2]").unwrap();
    fs::write(place.folder.path().join("votes.csv"), "voter-id,vote\n").unwrap();
    let (code, out, stderr) = run(&place, &["inspect", "list.json"]).await;
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(stderr, "error: list.json: line 2, byte 2: the document is not a JSON object\n");
    let (code, _, stderr) = run(&place, &["diff", "list.json", "good.json"]).await;
    assert_eq!(
        (code, stderr.as_str()),
        (2, "error: list.json: line 2, byte 2: the document is not a JSON object\n")
    );
    let (code, out, _) = run(&place, &["inspect", "votes.csv"]).await;
    assert_eq!((code, out.as_str()), (1, ""));
    let (_, out, _) = run(&place, &["inspect", "votes.csv", "--format", "json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["complete"], false);
}

#[tokio::test]
async fn report_writes_one_page_and_sets_its_exit_code() {
    let place = files();
    let path = |name: &str| place.folder.path().join(name);
    let (code, out, err) = run(&place, &["report", "good.json", "-o", "page.html"]).await;
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let page = fs::read_to_string(path("page.html")).unwrap();
    assert!(out.contains(&format!("page.html: {} bytes", page.len())), "{out}");
    assert!(
        page.starts_with("<!doctype html>") && page.contains("Secret trees.") && page.ends_with("</html>\n")
    );
    let (code, out, _) = run(&place, &["report", "good.json", "-o", "-"]).await;
    assert!(code == 0 && out == page, "{code}");
    let (code, _, err) = run(&place, &["report", "good.json", "-o", "page.html"]).await;
    assert!(code == 2 && err.contains("page.html exists already: replace it with --force"), "{code} {err}");
    assert_eq!(run(&place, &["report", "good.json", "-o", "page.html", "--force"]).await.0, 0);
    let (code, _, err) = run(&place, &["report", "good.json", "-o", "good.json", "--force"]).await;
    assert!(code == 2 && err.contains("is the bundle itself"), "{code} {err}");
    for (file, expected_code, message) in [
        ("half.json", 1, "BND-LEX-02"),
        ("absent.json", 2, "absent.json cannot be read"),
        ("empty.json", 1, "the document is not a bundle"),
    ] {
        fs::write(path("empty.json"), "{}").unwrap();
        let (code, out, err) = run(&place, &["report", file, "-o", "other.html"]).await;
        assert!(code == expected_code && err.contains(message) && out.is_empty(), "{file}: {code} {err}");
        assert!(!path("other.html").exists() && !path("other.html.partial").exists(), "{file}");
    }
    let (code, _, err) = run(&place, &["report", "good.json", "-o", "absent/page.html"]).await;
    assert!(code == 2 && err.contains("page.html"), "{code} {err}");
}
