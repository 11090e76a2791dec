//! Folders of documents, with the binary itself and without a server: canonical form, differences, and files of
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
async fn documents_are_written_in_canonical_form_once_and_comments_stay() {
    let place = Place::new();
    let loose = "rule: r\nstatus: live\nwhen: {text: {any_of: [scam], in: [text]}}\n";
    let commented = "# who added it and why\npolicy: scam\nname: Scams\n";
    let files = [("types.yaml", TYPE), ("rules/r.yaml", loose), ("policies.yaml", commented)];
    let folder = folder(&place, "documents", &files);
    let fmt = async |more: &[&str]| {
        place.run(&[&["rules", "fmt", "--config", "documents"][..], more].concat()).await
    };

    let checked = fmt(&["--check"]).await;
    assert_eq!(checked.status.code(), Some(2));
    assert_eq!(text(&checked.stdout), "rules/r.yaml\ntypes.yaml\n");
    assert!(text(&checked.stderr).contains("policies.yaml: has comments"), "{}", text(&checked.stderr));
    assert_eq!(fs::read_to_string(folder.join("rules/r.yaml")).unwrap(), loose, "a check writes nothing");

    assert_eq!(fmt(&[]).await.status.code(), Some(0));
    let written = fs::read_to_string(folder.join("rules/r.yaml")).unwrap();
    assert!(written.starts_with("rule: r\n") && written != loose, "{written}");
    assert_eq!(fs::read_to_string(folder.join("policies.yaml")).unwrap(), commented);
    let again = fmt(&["--check"]).await;
    assert_eq!((again.status.code(), text(&again.stdout)), (Some(0), String::new()));

    fs::write(folder.join("rules/bad.yaml"), "rule: x\nwhen: [\n").unwrap();
    fs::write(folder.join("rules/r.yaml"), loose).unwrap();
    assert_eq!(fmt(&[]).await.status.code(), Some(1));
    assert_eq!(fs::read_to_string(folder.join("rules/r.yaml")).unwrap(), loose, "all or nothing");
}

#[tokio::test]
async fn folders_are_compared_by_members_and_by_matches() {
    let place = Place::new();
    let rule =
        |words: &str| format!("rule: r\nstatus: live\nwhen: {{text: {{in: [text], words: [{words}]}}}}\n");
    folder(&place, "old", &[("types.yaml", TYPE), ("rules.yaml", &rule("scam"))]);
    // The same, written otherwise.
    let other = r#"{"rule": "r", "when": {"text": {"words": ["scam"], "in": ["text"]}}, "status": "live"}"#;
    folder(&place, "same", &[("types.yaml", TYPE), ("rules.json", other)]);
    let more = rule("scam, rug") + "---\nrule: second\nwhen: {text: {in: [text], words: [coin]}}\n";
    folder(&place, "new", &[("types.yaml", TYPE), ("rules.yaml", &more)]);
    let item = |id: &str, text: &str| json!({"id": id, "typeId": "post", "data": {"text": text}}).to_string();
    let items =
        [item("1", "a scam"), item("2", "a rug"), item("3", "a coin"), item("4", "nothing")].join("\n");
    fs::write(place.folder.path().join("items.ndjson"), items).unwrap();
    let diff = async |folder: &str, more: &[&str]| {
        place.run(&[&["rules", "diff", "--config", folder, "--against", "old"][..], more].concat()).await
    };

    let same = diff("same", &["--items", "items.ndjson"]).await;
    let compared = "4 items compared; 0 do not fit their type in both folders\n".to_owned();
    assert_eq!((same.status.code(), text(&same.stdout)), (Some(0), compared), "{}", text(&same.stderr));
    let different = diff("new", &[]).await;
    assert_eq!(different.status.code(), Some(2));
    let said = text(&different.stdout);
    assert!(
        said.contains(r#"~ rule r: when.text.words ["scam"] → ["scam","rug"]"#)
            && said.contains("+ rule second"),
        "{said}"
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
async fn a_file_of_entries_is_read_wherever_its_bank_is() {
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
    let ran = place.run(&["rules", "run", "--config", "documents", "--items", "items.ndjson"]).await;
    let line: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(line["matched"], json!(["listed"]));

    fs::write(folder.join("sub/sites.yaml"), "bank: sites\nkind: domain\nfile: lists/sites.txt\n").unwrap();
    fs::write(folder.join("sub/lists/sites.txt"), "ok.example\nhttp://no.example/a\n").unwrap();
    let faulty = place.run(&["lint", "documents"]).await;
    assert_eq!(faulty.status.code(), Some(1));
    assert!(text(&faulty.stderr).contains("sub/lists/sites.txt:2"), "{}", text(&faulty.stderr));
    fs::remove_file(folder.join("sub/sites.yaml")).unwrap();
    fs::remove_file(folder.join("sub/lists/words.txt")).unwrap();
    let missing = place.run(&["lint", "documents"]).await;
    assert!(
        text(&missing.stderr).contains("The file `lists/words.txt` does not exist"),
        "{}",
        text(&missing.stderr)
    );
}

#[tokio::test]
async fn a_bank_is_applied_with_the_entries_of_its_file() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let bank = "bank: words\nkind: text\nfile: lists/words.txt\n";
    folder(&place, "documents", &[("banks.yaml", bank), ("lists/words.txt", "moonbag\nrugpull\n")]);
    place.tell(&["apply", "documents"]).await;
    let pulled = demo.admin("/config").await["files"].to_string();
    assert!(pulled.contains("moonbag") && !pulled.contains("words.txt"), "{pulled}");
    let data = place.data();
    let same = place.run(&["diff", "documents", "--data", data.to_str().unwrap()]).await;
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stdout));
    fs::write(place.folder.path().join("documents/lists/words.txt"), "moonbag\n").unwrap();
    let other = place.run(&["diff", "documents", "--data", data.to_str().unwrap()]).await;
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stdout).contains("~ bank: words"), "{}", text(&other.stdout));
    drop(demo);
}

#[tokio::test]
async fn everything_is_counted_and_all_of_it_can_be_listed() {
    let place = Place::new();
    let rules = |field: &str, word: &str| -> String {
        let rule = |nth| {
            format!("---\nrule: r{nth:03}\nwhen: {{text: {{in: [{field}], any_of: ['{word}', w{nth}]}}}}\n")
        };
        (0..250).map(rule).collect()
    };
    let folder = folder(&place, "documents", &[("types.yaml", TYPE), ("r.YAML", &rules("txet", "word"))]);
    let faulty = place.run(&["rules", "lint", "documents"]).await;
    let told = text(&faulty.stderr);
    assert_eq!((faulty.status.code(), told.lines().count()), (Some(1), 102));
    assert!(told.ends_with("and 150 more: `--all` lists them\n250 faults\n"), "{told}");
    let all = place.run(&["rules", "lint", "documents", "--all"]).await;
    assert_eq!(text(&all.stderr).lines().count(), 251);

    let never = "---\nrule: never\nitem_types: [post]\nwhen: {all: [{text: {in: [text], any_of: [word]}}, {not: {text: {in: [text], any_of: [word]}}}]}\n";
    fs::write(folder.join("r.YAML"), rules("text", "zq") + never).unwrap();
    let well = place.run(&["rules", "lint", "documents"]).await;
    let told = text(&well.stderr);
    assert!(well.status.success() && text(&well.stdout).starts_with("2 files are valid, with "), "{told}");
    assert!(
        told.contains("never hold") && told.contains("And 150 more warnings of the kind `short_word`"),
        "{told}"
    );
    let all = place.run(&["rules", "lint", "documents", "--all"]).await;
    assert!(text(&all.stderr).matches("is found inside of many words").count() == 250);

    let many: String = (0..20_001)
        .map(|nth| format!("---\nrule: r{nth}\nwhen: {{not: {{text: {{in: [text], any_of: [word]}}}}}}\n"))
        .collect();
    fs::write(folder.join("r.YAML"), many).unwrap();
    let refused = text(&place.run(&["rules", "lint", "documents"]).await.stderr);
    assert!(refused.starts_with("all documents: there are 20001 rules, the limit is 20000"), "{refused}");
}

#[tokio::test]
async fn a_pattern_in_a_bank_that_is_none_is_a_fault_at_its_entry() {
    let place = Place::new();
    let bank = "bank: bad\nkind: regex\nentries: ['good[0-9]', '(bad']\n";
    folder(&place, "documents", &[("types.yaml", TYPE), ("bank.yaml", bank)]);
    fs::write(place.folder.path().join("items.ndjson"), "").unwrap();
    for command in
        [&["lint", "documents"][..], &["rules", "run", "--config", "documents", "--items", "items.ndjson"]]
    {
        let refused = place.run(command).await;
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.contains("entries[1]: The pattern is not valid: unclosed group"), "{told}");
    }
}

#[tokio::test]
async fn a_line_that_is_no_item_names_itself_and_what_is_left_out_is_counted() {
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
    let ran = place.run(&["rules", "run", "--config", "documents", "--items", "items.ndjson"]).await;
    let lines: Vec<Value> =
        text(&ran.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["refused"].as_str().unwrap().contains("/text"), "{}", lines[0]);
    assert_eq!(lines[1]["line"], 2);
    assert!(lines[1]["refused"].as_str().unwrap().contains("UTF-8"), "{}", lines[1]);
    assert_eq!(lines[2]["matched"].as_array().unwrap().len(), 4_096);
    assert_eq!((lines[2]["matchedMore"].as_u64(), lines[2]["erroredMore"].as_u64()), (Some(4), None));
}

#[tokio::test]
async fn an_unknown_rule_is_refused_and_the_name_of_an_example_is_told() {
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
async fn what_failed_beyond_the_bound_and_what_was_not_counted_is_said() {
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
    let ran = place.run(&args).await;
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let lines: Vec<Value> =
        text(&ran.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
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
async fn what_a_rule_looks_up_is_explained_as_it_is_run_and_whom_it_does_not_concern_is_told() {
    let place = Place::new();
    let types = "item_type: post\nname: Post\nkind: CONTENT\nfields:\n  - {name: text, type: STRING}\n  - {name: picture, type: IMAGE}\n  - {name: author, type: RELATED_ITEM, role: creator}\n";
    let other = "item_type: note\nname: Note\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n";
    let user = "item_type: member\nname: Member\nkind: USER\nfields: [{name: text, type: STRING}]\n";
    let old =
        "rule: over\nexpires_at: 2020-01-01T00:00:00.000Z\nwhen: {text: {in: [text], words: [offer]}}\n";
    let rules = [ASKING, old, types, other, user].join("---\n");
    folder(&place, "documents", &[("all.yaml", &rules)]);
    let data = json!({"text": "an offer", "picture": "https://a.example/1", "author": {"typeId": "member", "id": "m"}});
    let lines = [
        json!({"id": "1", "typeId": "post", "data": data}),
        json!({"id": "2", "typeId": "post", "data": data, "on": "report"}),
        json!({"id": "3", "typeId": "note", "data": {"text": "an offer"}}),
    ];
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs::write(place.folder.path().join("items.ndjson"), lines.join("\n")).unwrap();
    let told = async |args: &[&str]| -> Vec<Value> {
        let files = ["--config", "documents", "--items", "items.ndjson"];
        let ran = place.run(&[&["rules"], args, &files].concat()).await;
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        text(&ran.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let ran = told(&["run", "--explain"]).await;
    let explained = told(&["explain", "--rule", "asking"]).await;
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
    assert_eq!(ran[0]["trees"]["asking"]["all"]["of"][0], parts[0], "{}", ran[0]);
    let concern = |explained: &[Value]| {
        explained.iter().map(|line| line["isNoConcern"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(concern(&explained), [false, false, true]);
    assert_eq!(ran[2]["matched"], json!([]));
    assert_eq!(concern(&told(&["explain", "--rule", "over"]).await), [true, true, true]);
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
    let ran = place.run(&[&["rules", "run", "--explain"][..], &files].concat()).await;
    let [explained, ran] = [explained, ran].map(|run| serde_json::from_slice::<Value>(&run.stdout).unwrap());
    let not = &explained["tree"]["all"]["of"][0]["not"];
    assert_eq!(not["outcome"], "passed", "{explained}");
    let used = &not["of"]["rule"];
    assert_eq!((&used["key"], &used["outcome"]), (&json!("base"), &json!("failed")), "{explained}");
    assert_eq!(used["of"]["text"]["in"], json!(["text"]), "{explained}");
    assert_eq!(ran["trees"]["user"], explained["tree"], "{ran}");

    let window = "window: w\nover: 1h\nwhere: {rule: base}\n";
    folder(&place, "documents", &[("window.yaml", window)]);
    let refused = place.run(&["lint", "documents"]).await;
    assert!(text(&refused.stderr).contains("a window cannot use rules"), "{}", text(&refused.stderr));
    assert_eq!(refused.status.code(), Some(1));
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
async fn fixtures_say_what_is_known_beside_the_item_as_examples_do() {
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
    for (beside, told) in [
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
        let (code, said) = tested(&beside).await;
        let whole = format!("items.ndjson, line 1, post 1: {told}");
        assert!(code == Some(1) && said.starts_with(&whole), "{beside}: {said}");
    }
}

#[tokio::test]
async fn what_a_line_is_for_is_told_where_it_fails_and_in_the_report() {
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
    let said = text(&place.run(&args).await.stderr);
    assert_eq!(said.trim_end(), "items.ndjson, line 1, post 1, nearly <2>: not matched: struck");
    let report = fs::read_to_string(place.folder.path().join("report.xml")).unwrap();
    for name in ["line 1, post 1, nearly &lt;2&gt;", "line 2, post 22, just"] {
        assert!(report.contains(&format!("name=\"{name}\"")), "{report}");
    }
}
