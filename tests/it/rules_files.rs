//! Folders of documents, with the real binary and without a server: canonical form, differences, and files of
//! entries that banks name.

use std::{fs, path::PathBuf};

use crate::support::{Place, text};
use serde_json::{Value, json};

const TYPE: &str = "item_type: post\nname: Post\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n";

fn folder(place: &Place, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = place.folder.path().join(name);
    for (file, text) in files {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

#[tokio::test]
async fn fmt_writes_canonical_form_and_keeps_commented_files() {
    let place = Place::new();
    let loose = "rule: r\nstatus: live\nwhen: {text: {any_of: [scam], in: [text]}}\n";
    let commented = "# who added it and why\npolicy: scam\nname: Scams\n";
    let files = [("types.yaml", TYPE), ("rules/r.yaml", loose), ("policies.yaml", commented)];
    let folder = folder(&place, "documents", &files);
    let fmt = async |more: &[&str]| {
        place.run(&[&["rules", "fmt", "--config", "documents"][..], more].concat()).await
    };

    let first_check = fmt(&["--check"]).await;
    assert_eq!(first_check.status.code(), Some(2));
    assert_eq!(text(&first_check.stdout), "rules/r.yaml\ntypes.yaml\n");
    assert!(
        text(&first_check.stderr).contains("policies.yaml: has comments"),
        "{}",
        text(&first_check.stderr)
    );
    assert_eq!(fs::read_to_string(folder.join("rules/r.yaml")).unwrap(), loose, "a check writes no file");

    assert_eq!(fmt(&[]).await.status.code(), Some(0));
    let formatted_text = fs::read_to_string(folder.join("rules/r.yaml")).unwrap();
    assert!(formatted_text.starts_with("rule: r\n") && formatted_text != loose, "{formatted_text}");
    assert_eq!(fs::read_to_string(folder.join("policies.yaml")).unwrap(), commented);
    let second_check = fmt(&["--check"]).await;
    assert_eq!((second_check.status.code(), text(&second_check.stdout)), (Some(0), String::new()));

    fs::write(folder.join("rules/bad.yaml"), "rule: x\nwhen: [\n").unwrap();
    fs::write(folder.join("rules/r.yaml"), loose).unwrap();
    assert_eq!(fmt(&[]).await.status.code(), Some(1));
    assert_eq!(
        fs::read_to_string(folder.join("rules/r.yaml")).unwrap(),
        loose,
        "one invalid file prevents all writes"
    );
}

#[tokio::test]
async fn folders_are_compared_by_fields_and_by_matches() {
    let place = Place::new();
    let rule =
        |words: &str| format!("rule: r\nstatus: live\nwhen: {{text: {{in: [text], words: [{words}]}}}}\n");
    folder(&place, "old", &[("types.yaml", TYPE), ("rules.yaml", &rule("scam"))]);
    // The same rule as JSON.
    let json_rule =
        r#"{"rule": "r", "when": {"text": {"words": ["scam"], "in": ["text"]}}, "status": "live"}"#;
    folder(&place, "same", &[("types.yaml", TYPE), ("rules.json", json_rule)]);
    let two_rules = rule("scam, rug") + "---\nrule: second\nwhen: {text: {in: [text], words: [coin]}}\n";
    folder(&place, "new", &[("types.yaml", TYPE), ("rules.yaml", &two_rules)]);
    let item = |id: &str, text: &str| json!({"id": id, "typeId": "post", "data": {"text": text}}).to_string();
    let items =
        [item("1", "a scam"), item("2", "a rug"), item("3", "a coin"), item("4", "nothing")].join("\n");
    fs::write(place.folder.path().join("items.ndjson"), items).unwrap();
    let diff = async |folder: &str, more: &[&str]| {
        place.run(&[&["rules", "diff", "--config", folder, "--against", "old"][..], more].concat()).await
    };

    let equal_folders = diff("same", &["--items", "items.ndjson"]).await;
    let compared = "4 items compared; 0 do not fit their type in both folders\n".to_owned();
    assert_eq!(
        (equal_folders.status.code(), text(&equal_folders.stdout)),
        (Some(0), compared),
        "{}",
        text(&equal_folders.stderr)
    );
    let different = diff("new", &[]).await;
    assert_eq!(different.status.code(), Some(2));
    let stdout = text(&different.stdout);
    assert!(
        stdout.contains(r#"~ rule r: when.text.words ["scam"] → ["scam","rug"]"#)
            && stdout.contains("+ rule second"),
        "{stdout}"
    );
    let on_items = text(&diff("new", &["--items", "items.ndjson"]).await.stdout);
    assert!(on_items.contains('2') && on_items.contains('3'), "{on_items}");
    assert_eq!(diff("nowhere", &[]).await.status.code(), Some(1));
}

const BANK: &str = "\
bank: words
kind: text
file: lists/words.txt
---
rule: listed
status: live
item_types: [post]
when: {text: {in: [text], bank: words}}
tests:
  - {item: {text: a moonbag here}, expect: match}
  - {item: {text: nothing here}, expect: no_match}
";

#[tokio::test]
async fn entry_file_of_a_bank_is_read_relative_to_its_folder() {
    let place = Place::new();
    let files =
        [("types.yaml", TYPE), ("sub/banks.yaml", BANK), ("sub/lists/words.txt", "moonbag\n\nrugpull\n")];
    let folder = folder(&place, "documents", &files);
    let linted = place.run(&["lint", "documents"]).await;
    assert!(linted.status.success(), "{}", text(&linted.stderr));
    let tested = place.run(&["rules", "test", "--config", "documents"]).await;
    assert_eq!((tested.status.code(), text(&tested.stdout)), (Some(0), "2 tests, 0 failed\n".to_owned()));
    let item = json!({"id": "1", "typeId": "post", "data": {"text": "a rugpull"}}).to_string();
    fs::write(place.folder.path().join("items.ndjson"), item).unwrap();
    let rule_run = place.run(&["rules", "run", "--config", "documents", "--items", "items.ndjson"]).await;
    let line: Value = serde_json::from_slice(&rule_run.stdout).unwrap();
    assert_eq!(line["matched"], json!(["listed"]));

    fs::write(folder.join("sub/sites.yaml"), "bank: sites\nkind: domain\nfile: lists/sites.txt\n").unwrap();
    fs::write(folder.join("sub/lists/sites.txt"), "ok.example\nhttp://no.example/a\n").unwrap();
    let faulty = place.run(&["lint", "documents"]).await;
    assert_eq!(faulty.status.code(), Some(1));
    assert!(text(&faulty.stderr).contains("sub/lists/sites.txt:2"), "{}", text(&faulty.stderr));
    fs::remove_file(folder.join("sub/sites.yaml")).unwrap();
    fs::remove_file(folder.join("sub/lists/words.txt")).unwrap();
    let missing_file = place.run(&["lint", "documents"]).await;
    assert!(
        text(&missing_file.stderr).contains("The file `lists/words.txt` does not exist"),
        "{}",
        text(&missing_file.stderr)
    );
}

#[tokio::test]
async fn a_bank_is_applied_with_the_entries_of_its_file() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let bank = "bank: words\nkind: text\nfile: lists/words.txt\n";
    folder(&place, "documents", &[("banks.yaml", bank), ("lists/words.txt", "moonbag\nrugpull\n")]);
    place.run_ok(&["apply", "documents"]).await;
    let pulled = demo.admin("/config").await["files"].to_string();
    assert!(pulled.contains("moonbag") && !pulled.contains("words.txt"), "{pulled}");
    let data = place.data();
    let unchanged_diff = place.run(&["diff", "documents", "--data", data.to_str().unwrap()]).await;
    assert_eq!(unchanged_diff.status.code(), Some(0), "{}", text(&unchanged_diff.stdout));
    fs::write(place.folder.path().join("documents/lists/words.txt"), "moonbag\n").unwrap();
    let changed_diff = place.run(&["diff", "documents", "--data", data.to_str().unwrap()]).await;
    assert_eq!(changed_diff.status.code(), Some(2));
    assert!(text(&changed_diff.stdout).contains("~ bank: words"), "{}", text(&changed_diff.stdout));
    drop(demo);
}

#[tokio::test]
async fn lint_counts_all_faults_and_lists_them_on_request() {
    let place = Place::new();
    let rules = |field: &str, word: &str| -> String {
        let rule = |nth| {
            format!("---\nrule: r{nth:03}\nwhen: {{text: {{in: [{field}], any_of: ['{word}', w{nth}]}}}}\n")
        };
        (0..250).map(rule).collect()
    };
    let folder = folder(&place, "documents", &[("types.yaml", TYPE), ("r.YAML", &rules("txet", "word"))]);
    let faulty = place.run(&["rules", "lint", "documents"]).await;
    let stderr = text(&faulty.stderr);
    assert_eq!((faulty.status.code(), stderr.lines().count()), (Some(1), 102));
    assert!(stderr.ends_with("and 150 more: `--all` lists them\n250 faults\n"), "{stderr}");
    let all = place.run(&["rules", "lint", "documents", "--all"]).await;
    assert_eq!(text(&all.stderr).lines().count(), 251);

    let never_rule = "---\nrule: never\nitem_types: [post]\nwhen: {all: [{text: {in: [text], any_of: [word]}}, {not: {text: {in: [text], any_of: [word]}}}]}\n";
    fs::write(folder.join("r.YAML"), rules("text", "zq") + never_rule).unwrap();
    let clean_lint = place.run(&["rules", "lint", "documents"]).await;
    let stderr = text(&clean_lint.stderr);
    assert!(
        clean_lint.status.success() && text(&clean_lint.stdout).starts_with("2 files are valid, with "),
        "{stderr}"
    );
    assert!(
        stderr.contains("never hold") && stderr.contains("And 150 more warnings of the kind `short_word`"),
        "{stderr}"
    );
    let all = place.run(&["rules", "lint", "documents", "--all"]).await;
    assert!(text(&all.stderr).matches("is found inside of many words").count() == 250);

    let many_rules: String = (0..20_001)
        .map(|nth| format!("---\nrule: r{nth}\nwhen: {{not: {{text: {{in: [text], any_of: [word]}}}}}}\n"))
        .collect();
    fs::write(folder.join("r.YAML"), many_rules).unwrap();
    let refusal_text = text(&place.run(&["rules", "lint", "documents"]).await.stderr);
    assert!(
        refusal_text.starts_with("all documents: there are 20001 rules, the limit is 20000"),
        "{refusal_text}"
    );
}

#[tokio::test]
async fn invalid_bank_pattern_is_a_fault_at_its_entry() {
    let place = Place::new();
    let bank = "bank: bad\nkind: regex\nentries: ['good[0-9]', '(bad']\n";
    folder(&place, "documents", &[("types.yaml", TYPE), ("bank.yaml", bank)]);
    fs::write(place.folder.path().join("items.ndjson"), "").unwrap();
    for command in
        [&["lint", "documents"][..], &["rules", "run", "--config", "documents", "--items", "items.ndjson"]]
    {
        let refusal = place.run(command).await;
        let stderr = text(&refusal.stderr);
        assert_eq!(refusal.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("entries[1]: The pattern is not valid: unclosed group"), "{stderr}");
    }
}

#[tokio::test]
async fn invalid_item_lines_are_named_and_skipped_ones_counted() {
    let place = Place::new();
    let rule = |nth| {
        format!("---\nrule: r{nth}\nstatus: background\nwhen: {{text: {{in: [text], any_of: [moonbag]}}}}\n")
    };
    let rules: String = (0..4_100).map(rule).collect();
    folder(&place, "documents", &[("types.yaml", TYPE), ("rules.yaml", &rules)]);
    let mut items = "\u{feff}".to_owned().into_bytes();
    items.extend(json!({"id": "1", "typeId": "post", "data": {"text": 5}}).to_string().into_bytes());
    items.extend(b"\n{\"id\": \"\xff\"}\n");
    items
        .extend(json!({"id": "3", "typeId": "post", "data": {"text": "a moonbag"}}).to_string().into_bytes());
    fs::write(place.folder.path().join("items.ndjson"), items).unwrap();
    let rule_run = place.run(&["rules", "run", "--config", "documents", "--items", "items.ndjson"]).await;
    let lines: Vec<Value> =
        text(&rule_run.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["refused"].as_str().unwrap().contains("/text"), "{}", lines[0]);
    assert_eq!(lines[1]["line"], 2);
    assert!(lines[1]["refused"].as_str().unwrap().contains("UTF-8"), "{}", lines[1]);
    assert_eq!(lines[2]["matched"].as_array().unwrap().len(), 4_096);
    assert_eq!((lines[2]["matchedMore"].as_u64(), lines[2]["erroredMore"].as_u64()), (Some(4), None));
}

#[tokio::test]
async fn unknown_rule_is_refused_and_examples_are_named() {
    let place = Place::new();
    let rule = "rule: named\nitem_types: [post]\nwhen: {text: {in: [text], any_of: [scam]}}\ntests:\n  - {name: plain words, item: {text: all well}, expect: match}\n";
    folder(&place, "documents", &[("types.yaml", TYPE), ("rule.yaml", rule)]);
    let unknown = place.run(&["rules", "test", "--config", "documents", "--rule", "nemed"]).await;
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("no rule \"nemed\"")
            && text(&unknown.stderr).contains("mean \"named\"?")
    );
    let failed = place.run(&["rules", "test", "--config", "documents", "--junit", "report.xml"]).await;
    assert!(text(&failed.stderr).contains("example 1, plain words"), "{}", text(&failed.stderr));
    let report = fs::read_to_string(place.folder.path().join("report.xml")).unwrap();
    assert!(report.contains("name=\"example 1, plain words\""), "{report}");
    let wrong = rule.replace("in: [text]", "in: [txet]");
    folder(&place, "documents", &[("rule.yaml", &wrong)]);
    let failed = place.run(&["rules", "test", "--config", "documents", "--junit", "report.xml"]).await;
    let report = fs::read_to_string(place.folder.path().join("report.xml")).unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(
        report.contains("errors=\"1\"") && report.contains("<error message=") && report.contains("txet"),
        "{report}"
    );
}

#[tokio::test]
async fn output_reports_omitted_failures_and_uncounted_items() {
    let place = Place::new();
    let types = "item_type: post\nname: Post\nkind: CONTENT\nfields:\n  - {name: text, type: STRING}\n  - {name: tags, type: STRING, container: ARRAY}\n";
    let window = "window: by-tag\nitem_types: [post]\nby: tags\nover: 1h\n";
    let rules: String = (0..5)
        .map(|nth| {
            format!(
                "---\nrule: slow-{nth}\nwhen: {{text: {{in: [text], regex: '[a-w]x+[a-w]{{{}}}'}}}}\n",
                nth + 1
            )
        })
        .collect();
    folder(&place, "documents", &[("types.yaml", types), ("window.yaml", window), ("rules.yaml", &rules)]);
    let limits = "[catalog.rules]\nsteps_per_rule = 1000\nerrored = 2\nwindow_values = 3\n";
    fs::write(place.folder.path().join("limits.toml"), limits).unwrap();
    let item = |id: &str, text: &str, tags: usize| {
        let tags: Vec<_> = (0..tags).map(|nth| format!("t{nth}")).collect();
        json!({"id": id, "typeId": "post", "data": {"text": text, "tags": tags}}).to_string()
    };
    let items = [item("many", &"x".repeat(20_000), 4), item("few", "x", 3)].join("\n");
    fs::write(place.folder.path().join("items.ndjson"), items).unwrap();
    let args =
        ["rules", "run", "--config", "documents", "--items", "items.ndjson", "--settings", "limits.toml"];
    let rule_run = place.run(&args).await;
    assert!(rule_run.status.success(), "{}", text(&rule_run.stderr));
    let lines: Vec<Value> =
        text(&rule_run.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failed = json!([
        {"rule": "slow-0", "reason": "deadline"},
        {"rule": "slow-1", "reason": "deadline"},
    ]);
    assert_eq!((&lines[0]["errored"], &lines[0]["erroredMore"]), (&failed, &json!(3)), "{}", lines[0]);
    assert_eq!(lines[0]["uncounted"], json!(["by-tag"]), "{}", lines[0]);
    let few = lines[1].as_object().unwrap();
    assert!(
        few["errored"] == json!([]) && !few.contains_key("erroredMore") && !few.contains_key("uncounted")
    );
}

const ASKING: &str = "\
window: offers
item_types: [post]
over: 24h
---
bank: pictures
kind: pdq
---
rule: asking
status: live
item_types: [post]
on: [item, report]
when:
  all:
    - not: {strikes: {gte: 3}}
    - not: {count: {window: offers, gt: 5}}
    - any:
        - media: {in: [picture], bank: pictures}
        - score: {model: toxicity, gte: 0.9}
        - text: {in: [text], words: [offer]}
";

#[tokio::test]
async fn explain_agrees_with_run_on_rule_look_ups() {
    let place = Place::new();
    let types = "item_type: post\nname: Post\nkind: CONTENT\nfields:\n  - {name: text, type: STRING}\n  - {name: picture, type: IMAGE}\n  - {name: author, type: RELATED_ITEM, role: creator}\n";
    let note_type = "item_type: note\nname: Note\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n";
    let user = "item_type: member\nname: Member\nkind: USER\nfields: [{name: text, type: STRING}]\n";
    let old =
        "rule: over\nexpires_at: 2020-01-01T00:00:00.000Z\nwhen: {text: {in: [text], words: [offer]}}\n";
    let rules = [ASKING, old, types, note_type, user].join("---\n");
    folder(&place, "documents", &[("all.yaml", &rules)]);
    let data = json!({"text": "an offer", "picture": "https://a.example/1", "author": {"typeId": "member", "id": "m"}});
    let lines = [
        json!({"id": "1", "typeId": "post", "data": data}),
        json!({"id": "2", "typeId": "post", "data": data, "on": "report"}),
        json!({"id": "3", "typeId": "note", "data": {"text": "an offer"}}),
    ];
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs::write(place.folder.path().join("items.ndjson"), lines.join("\n")).unwrap();
    let run_rules = async |args: &[&str]| -> Vec<Value> {
        let files = ["--config", "documents", "--items", "items.ndjson"];
        let rule_run = place.run(&[&["rules"], args, &files].concat()).await;
        assert!(rule_run.status.success(), "{}", text(&rule_run.stderr));
        text(&rule_run.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let run_lines = run_rules(&["run", "--explain"]).await;
    let explained = run_rules(&["explain", "--rule", "asking"]).await;
    let parts = &explained[0]["tree"]["all"]["of"];
    assert_eq!(explained[0]["tree"]["all"]["outcome"], "passed", "{}", explained[0]);
    assert_eq!(
        (&parts[0]["not"]["of"]["strikes"]["points"], &parts[0]["not"]["outcome"]),
        (&json!(0), &json!("passed"))
    );
    assert_eq!(parts[1]["not"]["of"]["count"]["outcome"], "failed", "{parts}");
    let looked_up = &parts[2]["any"]["of"];
    assert_eq!(looked_up[0]["media"]["outcome"], "inapplicable", "{parts}");
    assert_eq!(looked_up[1]["score"]["outcome"], "inapplicable", "{parts}");
    assert_eq!(run_lines[0]["trees"]["asking"]["all"]["of"][0], parts[0], "{}", run_lines[0]);
    let concern = |explained: &[Value]| {
        explained.iter().map(|line| line["isNoConcern"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(concern(&explained), [false, false, true]);
    assert_eq!(run_lines[2]["matched"], json!([]));
    assert_eq!(concern(&run_rules(&["explain", "--rule", "over"]).await), [true, true, true]);
}

#[tokio::test]
async fn explanation_names_the_rule_whose_condition_is_used() {
    let place = Place::new();
    let rules = "rule: base\nwhen: {text: {in: [text], words: [scam]}}\n---\n\
                 rule: user\nwhen: {all: [{not: {rule: base}}, {text: {in: [text], words: [offer]}}]}\n";
    folder(&place, "documents", &[("types.yaml", TYPE), ("rules.yaml", rules)]);
    let item = json!({"id": "1", "typeId": "post", "data": {"text": "an offer"}});
    fs::write(place.folder.path().join("items.ndjson"), item.to_string()).unwrap();
    let files = ["--config", "documents", "--items", "items.ndjson"];
    let explained = place.run(&[&["rules", "explain", "--rule", "user"][..], &files].concat()).await;
    let rule_run = place.run(&[&["rules", "run", "--explain"][..], &files].concat()).await;
    let [explained, rule_run] =
        [explained, rule_run].map(|run| serde_json::from_slice::<Value>(&run.stdout).unwrap());
    let not = &explained["tree"]["all"]["of"][0]["not"];
    assert_eq!(not["outcome"], "passed", "{explained}");
    let used_rule = &not["of"]["rule"];
    assert_eq!((&used_rule["key"], &used_rule["outcome"]), (&json!("base"), &json!("failed")), "{explained}");
    assert_eq!(used_rule["of"]["text"]["in"], json!(["text"]), "{explained}");
    assert_eq!(rule_run["trees"]["user"], explained["tree"], "{rule_run}");

    let window = "window: w\nover: 1h\nwhere: {rule: base}\n";
    folder(&place, "documents", &[("window.yaml", window)]);
    let refusal = place.run(&["lint", "documents"]).await;
    assert!(text(&refusal.stderr).contains("a window cannot use rules"), "{}", text(&refusal.stderr));
    assert_eq!(refusal.status.code(), Some(1));
}

const SURROUNDED: &str = "item_type: post\nname: Post\nkind: CONTENT\nfields:\n  - {name: text, type: STRING}\n  \
    - {name: picture, type: IMAGE}\n  - {name: author, type: RELATED_ITEM, role: creator}\n---\n\
    item_type: member\nname: Member\nkind: USER\nfields: [{name: name, type: STRING}]\n---\n\
    window: often\nover: 1d\n---\nbank: pictures\nname: Pictures\nkind: pdq\n---\n\
    rule: counted\nwhen: {count: {window: often, gte: 3}}\n---\n\
    rule: struck\nwhen: {strikes: {gte: 2}}\n---\n\
    rule: scored\nitem_types: [post]\nwhen: {score: {model: toxicity, gte: 0.5}}\n---\n\
    rule: seen\nitem_types: [post]\nwhen: {media: {in: [picture], bank: pictures}}\n";

#[tokio::test]
async fn fixtures_and_examples_accept_the_same_context() {
    let place = Place::new();
    folder(&place, "documents", &[("documents.yaml", SURROUNDED)]);
    let tested = async |beside: &Value| {
        let data =
            json!({"text": "a", "picture": "https://a.example/1", "author": {"typeId": "member", "id": "m"}});
        let mut line = json!({"id": "1", "typeId": "post", "data": data});
        line.as_object_mut().unwrap().extend(beside.as_object().unwrap().clone());
        fs::write(place.folder.path().join("items.ndjson"), line.to_string()).unwrap();
        let args = ["rules", "test", "--config", "documents", "--fixtures", "items.ndjson"];
        let output = place.run(&args).await;
        (output.status.code(), text(&output.stderr))
    };
    let media = json!([{"bank": "pictures", "entry": "7"}]);
    for beside in [
        json!({"expect": []}),
        json!({"expect": ["counted"], "counts": {"often": 3}}),
        json!({"expect": [], "counts": {"often": 2}, "strikes": 1, "name": "nearly"}),
        json!({"expect": ["struck"], "strikes": 2}),
        json!({"expect": ["scored"], "scores": {"toxicity": 0.5}}),
        json!({"expect": ["seen"], "media": media}),
        json!({"expect": ["seen", "scored", "struck", "counted"], "media": media, "strikes": 9,
            "scores": {"toxicity": 1}, "counts": {"often": 9}}),
    ] {
        assert_eq!(tested(&beside).await, (Some(0), String::new()), "{beside}");
    }
    for (beside, expected_fault) in [
        (json!({"expect": [], "strikes": 2}), "matched: struck"),
        (json!({"expect": ["scored"]}), "not matched: scored"),
        (
            json!({"expect": [], "counts": {"oftn": 3}}),
            "/counts/oftn: unknown window \"oftn\" (did you mean \"often\"?)",
        ),
        (json!({"expect": [], "scores": {"x/y": 1}}), "/scores/x~1y: no rule uses the model \"x/y\""),
        (json!({"expect": [], "media": [{}, {"bank": "b"}]}), "/media/1/bank: unknown bank of hashes \"b\""),
        (json!({"expect": [], "strikes": "2"}), "/strikes: expected a whole number"),
        (
            json!({"expect": [], "count": {"often": 3}}),
            "/count: unknown key \"count\" (did you mean \"counts\"?)",
        ),
        (
            json!({"expect": ["counted", 5, null]}),
            "/expect/1: expected the key of a rule, not 5; /expect/2: expected the key of a rule, not null",
        ),
        (json!({"expect": "counted"}), "/expect: a list of the rules"),
        (json!({"expect": [], "name": 5}), "/name: expected a text"),
        (json!({}), "/expect: a list of the rules"),
    ] {
        let (code, stderr) = tested(&beside).await;
        let full_message = format!("items.ndjson, line 1, post 1: {expected_fault}");
        assert!(code == Some(1) && stderr.starts_with(&full_message), "{beside}: {stderr}");
    }
}

#[tokio::test]
async fn fixture_name_appears_in_failures_and_in_the_report() {
    let place = Place::new();
    folder(&place, "documents", &[("documents.yaml", SURROUNDED)]);
    let line = |id: &str, name: &str| {
        let data = json!({"text": "a", "author": {"typeId": "member", "id": "m"}});
        json!({"id": id, "typeId": "post", "data": data, "expect": ["struck"], "name": name, "strikes": id.len()})
    };
    let lines = format!("{}\n{}\n", line("1", "nearly <2>"), line("22", "just"));
    fs::write(place.folder.path().join("items.ndjson"), lines).unwrap();
    let args =
        ["rules", "test", "--config", "documents", "--fixtures", "items.ndjson", "--junit", "report.xml"];
    let stderr = text(&place.run(&args).await.stderr);
    assert_eq!(stderr.trim_end(), "items.ndjson, line 1, post 1, nearly <2>: not matched: struck");
    let report = fs::read_to_string(place.folder.path().join("report.xml")).unwrap();
    for name in ["line 1, post 1, nearly &lt;2&gt;", "line 2, post 22, just"] {
        assert!(report.contains(&format!("name=\"{name}\"")), "{report}");
    }
}
