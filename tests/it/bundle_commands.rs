//! `tidegate bundle ...` as it is typed: what it prints, and what it exits with.

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

/// A folder with a good bundle, one with a dangling reference, and one that ends too early.
fn files() -> Place {
    let place = Place::new();
    let good = bundle();
    let mut bad = bundle();
    bad["responses"][0]["subjectRef"] = json!("secret");
    let write = |name: &str, text: &str| fs::write(place.folder.path().join(name), text).unwrap();
    write("good.json", &good.to_string());
    write("pretty.json", &serde_json::to_string_pretty(&good).unwrap());
    write("bad.json", &bad.to_string());
    write("half.json", &good.to_string()[..900]);
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
async fn validate_tells_places_and_exits_by_what_it_found() {
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
    let (code, _, said) = run(&place, &["validate", "nowhere.json"]).await;
    assert_eq!(code, 2);
    assert!(said.contains("nowhere.json"), "{said}");
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
    let mut other = bundle();
    other["schema"] = json!(url);
    fs::write(place.folder.path().join("other.json"), other.to_string()).unwrap();
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
fn standard_input_is_read_packed_or_not() {
    let good = bundle().to_string();
    let output = piped(&["bundle", "validate", "-"], good.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    // A gzip header and nothing behind it: there is no document.
    let output = piped(&["bundle", "validate", "-"], &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("BND-LEX-02"));
    // Nor is damaged data one.
    let output =
        piped(&["bundle", "validate", "-"], &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("BND-LEX-14"));
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_is_lost_is_told() {
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
async fn inspect_shows_what_there_is_and_no_texts_unless_asked() {
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
async fn inspect_shows_no_text_in_place_of_a_list_and_shortens_long_ones() {
    let place = files();
    let secret = "Secret ".repeat(100_000);
    let mut wrong = bundle();
    for member in ["items", "responses", "outcomes", "source", "dataCard", "summary"] {
        wrong[member] = json!(secret);
    }
    wrong["phases"][0]["title"] = json!("T".repeat(100_000));
    fs::write(place.folder.path().join("wrong.json"), wrong.to_string()).unwrap();
    let (_, out, said) = run(&place, &["inspect", "wrong.json"]).await;
    assert!(!out.contains("Secret") && !said.contains("Secret"), "{}", &out[..out.len().min(2_000)]);
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
    let wanted =
        "30 participants according to the summary, 2 items, 74 responses in 1 row, 74 of them without";
    assert!(out.contains(wanted) && out.contains("3 counts hidden"), "{out}");
    let (_, out, _) = run(&place, &["inspect", "counts.json", "--format", "json"]).await;
    let overview: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&overview["responses"], &overview["rows"]), (&json!(74), &json!(1)));
    assert_eq!((&overview["items"][0]["hidden"], &overview["items"][1]["hidden"]), (&Value::Null, &json!(3)));
}

#[tokio::test]
async fn diff_shortens_long_values_and_tells_them_whole_to_programs() {
    let place = files();
    let mut long = bundle();
    long["dataCard"]["limitations"] = json!(["x".repeat(200)]);
    fs::write(place.folder.path().join("long.json"), long.to_string()).unwrap();
    let (code, out, _) = run(&place, &["diff", "good.json", "long.json"]).await;
    assert_eq!(code, 1);
    let wanted = format!("~ /dataCard/limitations: [] → [\"{}… (204 bytes)\n", "x".repeat(78));
    assert_eq!(out, wanted);
    let (_, out, _) = run(&place, &["diff", "good.json", "long.json", "--json"]).await;
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["members"][0]["after"], long["dataCard"]["limitations"]);
}

#[tokio::test]
async fn diff_and_digest_look_at_what_is_said() {
    let place = files();
    assert_eq!(run(&place, &["diff", "good.json", "pretty.json"]).await, (0, String::new(), String::new()));
    let (code, out, _) = run(&place, &["diff", "good.json", "bad.json"]).await;
    assert_eq!(code, 1);
    let wanted = "responses: 0 added, 0 removed, 1 changed (subjectRef 1)\n  ~ vote:1: subjectRef\n";
    assert_eq!(out, wanted);
    let (code, out, _) = run(&place, &["diff", "good.json", "bad.json", "--json"]).await;
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &told["equal"], &told["members"]), (1, &json!(false), &json!([])));
    let changed = json!({ "id": "vote:1", "change": "changed", "fields": ["subjectRef"] });
    let responses = json!({ "added": 0, "removed": 0, "changed": 1, "fields": { "subjectRef": 1 }, "elements": [changed] });
    assert_eq!(told["lists"]["responses"], responses);
    let (code, out, _) = run(&place, &["diff", "good.json", "pretty.json", "--json"]).await;
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &told["equal"], &told["lists"]["items"]["added"]), (0, &json!(true), &json!(0)));
    assert_eq!(run(&place, &["diff", "good.json", "half.json"]).await.0, 2);
    assert_eq!(run(&place, &["diff", "-", "-"]).await.0, 2);
    let digest =
        async |args: &[&str]| run(&place, args).await.1.split_whitespace().next().unwrap().to_owned();
    let good = digest(&["digest", "good.json"]).await;
    assert!(good.starts_with("sha256:") && good.len() == 7 + 64, "{good}");
    assert_ne!(good, digest(&["digest", "pretty.json"]).await);
    let same = digest(&["digest", "good.json", "--jcs"]).await;
    assert_eq!(same, digest(&["digest", "pretty.json", "--jcs"]).await);
    assert_ne!(same, digest(&["digest", "bad.json", "--jcs"]).await);
    assert_eq!(run(&place, &["digest", "half.json", "--jcs"]).await.0, 1);
    let twice = bundle().to_string().replacen("\"outcomes\":[]", "\"outcomes\":[{\"a\":1,\"a\":1}]", 1);
    fs::write(place.folder.path().join("twice.json"), &twice).unwrap();
    let (code, _, said) = run(&place, &["digest", "twice.json", "--jcs"]).await;
    let byte = twice.find("\"a\":1}").unwrap();
    assert_eq!(code, 1);
    assert!(said.contains(&format!("line 1, byte {byte}: BND-LEX-09")) && said.contains("\"a\""), "{said}");
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
            let (code, out, said) = run(&place, &[command, &["--schema-url", url]].concat()).await;
            assert_eq!((code, out.as_str()), (2, ""), "{command:?} {url}");
            assert!(
                said.starts_with("error: --schema-url is not a URI") && !said.contains("secret"),
                "{said}"
            );
        }
    }
    let (code, out, _) = run(&place, &["schema", "--schema-url", "urn:example:1"]).await;
    let schema: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &schema["$id"]), (0, &json!("urn:example:1")));
}

#[tokio::test]
async fn inspect_takes_a_bundle_with_another_address_for_what_it_is() {
    let place = files();
    let url = "https://example.org/v1.json";
    let mut other = bundle();
    other["schema"] = json!(url);
    fs::write(place.folder.path().join("other.json"), other.to_string()).unwrap();
    let faults = async |args: &[&str]| {
        let (code, out, _) =
            run(&place, &[&["inspect", "other.json", "--format", "json"], args].concat()).await;
        (code, serde_json::from_str::<Value>(&out).unwrap()["faults"].clone())
    };
    assert_eq!(faults(&[]).await, (0, json!(1)));
    assert_eq!(faults(&["--schema-url", url]).await, (0, json!(0)));
}

/// What is no JSON document, and where it ceases to be one.
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
async fn what_is_no_json_is_told_with_its_name_line_and_byte() {
    let place = files();
    for (name, bytes, told) in NO_JSON {
        fs::write(place.folder.path().join(name), bytes).unwrap();
        for (args, wanted) in [
            (&["inspect", name][..], 1),
            (&["inspect", name, "--format", "json"], 1),
            (&["digest", name, "--jcs"], 1),
            (&["diff", name, "good.json"], 2),
            (&["diff", "good.json", name], 2),
        ] {
            let (code, _, said) = run(&place, args).await;
            assert_eq!(code, wanted, "{args:?}: {said}");
            assert!(said.starts_with(&format!("error: {name}: {told}")), "{args:?}: {said}");
        }
    }
    for (args, wanted) in [
        (&["inspect", "-"][..], 1),
        (&["digest", "-", "--jcs"], 1),
        (&["diff", "-", "good.json"], 2),
        (&["diff", "good.json", "-"], 2),
    ] {
        let args: Vec<_> = ["bundle"].iter().chain(args).copied().collect();
        let output = piped_in(&place, &args, b"\n[nul]");
        assert_eq!(output.status.code(), Some(wanted), "{args:?}");
        let said = text(&output.stderr);
        assert!(said.starts_with("error: -: line 2, byte "), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn inspect_shows_nothing_of_what_is_no_bundle_at_all() {
    let place = files();
    fs::write(place.folder.path().join("list.json"), "\n [1, 2]").unwrap();
    fs::write(place.folder.path().join("votes.csv"), "voter-id,vote\n").unwrap();
    let (code, out, said) = run(&place, &["inspect", "list.json"]).await;
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(said, "error: list.json: line 2, byte 2: the document is not a JSON object\n");
    let (code, _, said) = run(&place, &["diff", "list.json", "good.json"]).await;
    assert_eq!(
        (code, said.as_str()),
        (2, "error: list.json: line 2, byte 2: the document is not a JSON object\n")
    );
    let (code, out, _) = run(&place, &["inspect", "votes.csv"]).await;
    assert_eq!((code, out.as_str()), (1, ""));
    let (_, out, _) = run(&place, &["inspect", "votes.csv", "--format", "json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["complete"], false);
}
