//! Banks of a running process: imports of entry files, refused lines, and rules that use new entries without a restart.

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::support::{Demo, Place, post, text};
use reqwest::Method;
use serde_json::{Value, json};
use tidegate_test_support::{PATIENCE, eventually};

const DOCUMENTS: &str = "\
bank: words
kind: text
entries: [pumpcoin]
---
bank: sites
kind: domain
---
rule: listed
status: live
item_types: [post]
when: {text: {in: [text], bank: words}}
";

async fn with_banks(place: &Place) -> Demo {
    let demo = place.start().await.unwrap();
    let change = json!({"files": [{"name": "banks.yaml", "text": DOCUMENTS}]});
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 200, "{answer}");
    demo
}

/// Submits an item with the text and returns whether the rule matches it.
async fn matches(demo: &Demo, id: &str, text: &str) -> bool {
    demo.submit(&post(id, "mallory", text)).await;
    let rules = demo.evaluated("post", id).await["matchedRules"].clone();
    rules.as_array().unwrap().iter().any(|rule| rule["id"] == "listed")
}

/// Submits items until the rule uses the entry, or no longer uses it, without a restart or a new configuration.
async fn until_it_matches(demo: &Demo, word: &str, wanted: bool) {
    let mut nth = 0;
    eventually("the entry's effect", PATIENCE, async || {
        nth += 1;
        let id = format!("{word}-{wanted}-{nth}");
        (matches(demo, &id, &format!("a {word} here")).await == wanted).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn import_skips_invalid_lines_and_its_counts_add_up() {
    let place = Place::new();
    let demo = with_banks(&place).await;
    let data = place.data();
    let data = data.to_str().unwrap();
    let file = place.folder.path().join("words.csv");
    fs::write(
        &file,
        "value,labels\nmoonbag,crypto|new\n,none\nrugpull,\nmoonbag,crypto|new\nrugpull,late\nx,y,z\n",
    )
    .unwrap();
    let output = place.run(&["banks", "import", "words", file.to_str().unwrap(), "--data", data]).await;
    assert_eq!(output.status.code(), Some(1), "some lines are refused");
    let (stdout, faults) = (text(&output.stdout), text(&output.stderr));
    assert!(stdout.contains("6 entries: 2 added, 1 changed, 1 there already, 2 refused"), "{stdout}");
    // The service reports line 3, the command reports line 7; the output is sorted by line.
    let places = ["line 3: it is blank", "line 7: it has 3 columns"].map(|told| faults.find(told).unwrap());
    assert!(places.is_sorted(), "{faults}");

    let sites = place.folder.path().join("sites.txt");
    fs::write(&sites, "Bad.example\n\nhttp://worse.example/a\nbad.example.\n").unwrap();
    let output = place.run(&["banks", "import", "sites", sites.to_str().unwrap(), "--data", data]).await;
    let (stdout, faults) = (text(&output.stdout), text(&output.stderr));
    assert!(stdout.contains("3 entries: 1 added, 0 changed, 1 there already, 1 refused"), "{stdout}");
    assert!(faults.contains("line 3: expected a domain, not a URL"), "{faults}");

    let entry_lines = place.run_ok(&["banks", "show", "words"]).await;
    let entries: Vec<Value> = entry_lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&entries[0]["value"], &entries[0]["inDocument"]), (&json!("pumpcoin"), &json!(true)));
    let moonbag = entries.iter().find(|entry| entry["value"] == "moonbag").unwrap();
    assert_eq!((entries.len(), &moonbag["labels"]), (3, &json!(["crypto", "new"])));
    let one = place.run_ok(&["banks", "show", "words", "--limit", "1"]).await;
    assert!(one.lines().count() == 1 && one.contains("pumpcoin"), "{one}");
    let export = ["banks", "export", "words", "--format", "lines", "--data", data];
    let output = place.run(&export).await;
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(stderr.contains("1 entries of the bank's document are left out"), "{stderr}");
    let output = place.run(&[&export[..], &["--document"]].concat()).await;
    let (all, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((all, stderr.as_str()), (format!("pumpcoin\n{stdout}"), ""));
    let bank_list = place.run_ok(&["banks", "list"]).await;
    assert!(bank_list.contains("words  text  on  revision 1"), "{bank_list}");
    drop(demo);
}

#[tokio::test]
async fn new_entry_reaches_rules_without_a_restart() {
    let place = Place::new();
    let demo = with_banks(&place).await;
    assert!(!matches(&demo, "before", "a moonbag here").await);
    assert!(place.run_ok(&["banks", "add", "words", "moonbag", "rugpull"]).await.contains("2 added"));
    until_it_matches(&demo, "moonbag", true).await;
    assert!(place.run_ok(&["banks", "disable", "words", "moonbag"]).await.contains("1 disabled"));
    until_it_matches(&demo, "moonbag", false).await;
    until_it_matches(&demo, "rugpull", true).await;
    assert!(place.run_ok(&["banks", "remove", "words", "rugpull"]).await.contains("1 removed"));
    until_it_matches(&demo, "rugpull", false).await;
    assert!(place.run_ok(&["banks", "enable", "words", "moonbag"]).await.contains("1 enabled"));
    until_it_matches(&demo, "moonbag", true).await;
    assert!(place.run_ok(&["banks", "disable", "words"]).await.contains("words: disabled"));
    until_it_matches(&demo, "moonbag", false).await;
    until_it_matches(&demo, "pumpcoin", false).await;
    assert!(place.run_ok(&["banks", "enable", "words"]).await.contains("words: enabled"));
    until_it_matches(&demo, "pumpcoin", true).await;
}

#[tokio::test]
async fn disabling_a_document_entry_reports_that_it_stays_active() {
    let place = Place::new();
    let demo = with_banks(&place).await;
    let data = place.data();
    let run_banks = async |how: &str| {
        let run = ["banks", how, "words", "pumpcoin", "--data", data.to_str().unwrap()];
        let output = place.run(&run).await;
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };
    let stays = "1 of them count until the bank's document is changed";
    let (stdout, fault, code) = run_banks("disable").await;
    assert!(stdout.contains("0 disabled, 1 not there") && fault.contains(stays), "{stdout}{fault}");
    assert_eq!(code, Some(1));
    run_banks("add").await;
    for how in ["disable", "remove"] {
        let (stdout, fault, code) = run_banks(how).await;
        assert!(
            stdout.contains(&format!("1 {how}d, 0 not there")) && fault.contains(stays),
            "{stdout}{fault}"
        );
        assert_eq!(code, Some(1));
    }
    assert!(matches(&demo, "after", "a pumpcoin here").await);
    run_banks("add").await;
    let (stdout, fault, code) = run_banks("enable").await;
    assert!(stdout.contains("1 enabled, 0 not there") && fault.is_empty(), "{stdout}{fault}");
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn import_warns_about_patterns_too_costly_for_a_rule() {
    let place = Place::new();
    let demo = with_banks(&place).await;
    let documents = "bank: rx\nkind: regex\n---\nrule: blind\nstatus: live\nitem_types: [post]\n\
        when: {text: {in: [text], bank: rx}}\n";
    let change = json!({"files": [{"name": "banks.yaml", "text": documents}]});
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 200, "{answer}");
    let heavy: Vec<String> = (0..30).map(|nth| format!("[a-z ]{{{}}}K[0-9]{{500}}\n", 800 + nth)).collect();
    let file = place.folder.path().join("heavy.txt");
    fs::write(&file, heavy.concat()).unwrap();
    let data = place.data();
    let args = ["banks", "import", "rx", file.to_str().unwrap(), "--data", data.to_str().unwrap()];
    let output = place.run(&args).await;
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        stdout.contains("30 added") && stderr.contains("warning: rule blind: its 30 patterns"),
        "{stdout}{stderr}"
    );
    eventually("the count of rules that are too costly", PATIENCE, async || {
        let (_, metrics) = demo.operations("/metrics").await;
        metrics.contains("tidegate_rules_overloaded 1").then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn hashes_are_imported_matched_and_exported_unchanged() {
    let place = Place::new();
    let demo = with_banks(&place).await;
    let documents = "bank: pictures\nkind: pdq\n---\nbank: files\nkind: md5\n";
    let change = json!({"files": [{"name": "hashes.yaml", "text": documents}]});
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 200, "{answer}");
    let data = place.data();
    let data = data.to_str().unwrap();
    let hash = |nth: u32| format!("{nth:08x}{}", "5a".repeat(28));
    let file = place.folder.path().join("pictures.csv");
    let mut table = "signal_type,hash,content_id,labels,note,max_distance\n".to_owned();
    for nth in 0..25_u32 {
        table.push_str(&format!("pdq,{},c{nth},meme|{nth},seen,{}\n", hash(nth << 16), nth % 31));
    }
    table.push_str("pdq,12,,,,\nmd5,d41d8cd98f00b204e9800998ecf8427e,,,,\n");
    fs::write(&file, table).unwrap();
    let import = ["banks", "import", "pictures", file.to_str().unwrap(), "--resume", "--data", data];
    let output = place.run(&import).await;
    let (stdout, faults) = (text(&output.stdout), text(&output.stderr));
    let expected = "27 entries: 25 added, 0 changed, 0 there already, 1 refused, 1 of another kind";
    assert!(stdout.contains(expected), "{stdout}{faults}");
    assert!(faults.contains("line 27: a PDQ hash has 64 hexadecimal digits"), "{faults}");
    for format in ["ndjson", "csv"] {
        let first = place.run_ok(&["banks", "export", "pictures", "--format", format]).await;
        assert!(first.lines().count() >= 25, "{first}");
        let copy = place.folder.path().join(format!("copy.{format}"));
        fs::write(&copy, &first).unwrap();
        let values: Vec<String> = (0..25).map(|nth| hash(nth << 16)).collect();
        let mut remove = vec!["banks", "remove", "pictures"];
        remove.extend(values.iter().map(String::as_str));
        assert!(place.run_ok(&remove).await.contains("25 removed"));
        let summary = place.run_ok(&["banks", "import", "pictures", copy.to_str().unwrap()]).await;
        assert!(summary.contains("25 entries: 25 added"), "{summary}");
        assert_eq!(place.run_ok(&["banks", "export", "pictures", "--format", format]).await, first);
    }
    // The hash differs by seven bits from an entry that allows a distance of seven.
    let near_hash = hash((7 << 16) | 0x7f);
    eventually("the entries", PATIENCE, async || {
        let matches_text =
            place.run_ok(&["banks", "match", &near_hash, "--kind", "pdq", "--bank", "pictures"]).await;
        matches_text.contains("7 bits  meme,7").then_some(())
    })
    .await
    .unwrap();
    let nowhere =
        place.run(&["banks", "match", &near_hash, "--kind", "pdq", "--bank", "words", "--data", data]).await;
    assert!(text(&nowhere.stderr).contains("no bank of hashes"), "{}", text(&nowhere.stderr));
    // An exchange withdraws an entry by its id or by its value.
    let xml = place.folder.path().join("files.xml");
    fs::write(&xml, format!("<q><images>{}{}</images></q>", image("i1", 1), image("i2", 2))).unwrap();
    let summary = place.run_ok(&["banks", "import", "files", xml.to_str().unwrap()]).await;
    assert!(summary.contains("2 entries: 2 added"), "{summary}");
    fs::write(&xml, "<q><images><deletedImage><member id=\"1\"/><id>i1</id></deletedImage></images></q>")
        .unwrap();
    let summary = place.run_ok(&["banks", "import", "files", xml.to_str().unwrap()]).await;
    assert!(
        summary.contains("1 entries: 0 added, 0 changed, 0 there already, 0 refused, 1 removed"),
        "{summary}"
    );
    let left = place.run_ok(&["banks", "export", "files", "--format", "lines"]).await;
    assert_eq!(left.trim(), md5(2));
    drop(demo);
}

fn md5(nth: u32) -> String {
    format!("{nth:032x}")
}

/// Starts a demo with an MD5 bank named `files`.
async fn with_files(place: &Place) -> Demo {
    let demo = with_banks(place).await;
    let change = json!({"files": [{"name": "hashes.yaml", "text": "bank: files\nkind: md5\n"}]});
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 200, "{answer}");
    demo
}

async fn import(
    place: &Place,
    name: &str,
    text_of_file: &str,
    format: &str,
) -> (String, String, Option<i32>) {
    fs::write(place.folder.path().join(name), text_of_file).unwrap();
    let data = place.data();
    let import = ["banks", "import", "files", name, "--format", format, "--data", data.to_str().unwrap()];
    let output = place.run(&import).await;
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

async fn list_entries(place: &Place) -> Vec<Value> {
    let entry_lines = place.run_ok(&["banks", "show", "files"]).await;
    entry_lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn values(place: &Place) -> Vec<String> {
    let mut values: Vec<_> =
        list_entries(place).await.iter().map(|entry| entry["value"].as_str().unwrap().to_owned()).collect();
    values.sort_unstable();
    values
}

#[tokio::test]
async fn import_changes_only_the_entries_that_it_lists() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    let table = format!("hash,labels,note,expires_at\n{},a|b,why,2999-01-01T00:00:00Z\n", md5(1));
    let (stdout, ..) = import(&place, "files.csv", &table, "csv").await;
    assert!(stdout.contains("1 added"), "{stdout}");
    place.run_ok(&["banks", "disable", "files", &md5(1)]).await;
    let before = list_entries(&place).await;
    assert_eq!((&before[0]["enabled"], &before[0]["note"]), (&json!(false), &json!("why")));
    for (name, text, format) in [
        ("files.csv", table.clone(), "csv"),
        ("files.txt", md5(1), "lines"),
        ("files.ndjson", json!({"value": md5(1), "note": null}).to_string(), "ndjson"),
    ] {
        let (stdout, ..) = import(&place, name, &text, format).await;
        assert!(stdout.contains("1 entries: 0 added, 0 changed, 1 there already"), "{stdout}");
    }
    let summary = place.run_ok(&["banks", "add", "files", &md5(1)]).await;
    assert!(summary.contains("0 changed, 1 there already"), "{summary}");
    assert_eq!(list_entries(&place).await, before);
    let add_args =
        ["banks", "add", "files", &md5(2), "--distance", "0", "--note", "found twice", "--reference", "r7"];
    assert!(place.run_ok(&add_args).await.contains("1 added"));
    let added = list_entries(&place).await.into_iter().find(|entry| entry["value"] == md5(2)).unwrap();
    let entry_fields = (&added["distance"], &added["note"], &added["reference"]);
    assert_eq!(entry_fields, (&json!(0), &json!("found twice"), &json!("r7")));
    let refusal = place.run(&["banks", "add", "files", &md5(3), "--distance", "1"]).await;
    assert_eq!(refusal.status.code(), Some(1), "a bank of file hashes accepts no distance");
    assert!(place.run_ok(&["banks", "remove", "files", &md5(2)]).await.contains("1 removed"));
    let summary = place.run_ok(&["banks", "add", "files", &md5(1), "--labels", "c"]).await;
    assert!(summary.contains("1 changed"), "{summary}");
    let after = list_entries(&place).await;
    assert_eq!((&after[0]["labels"], &after[0]["enabled"]), (&json!(["c"]), &json!(false)));
    assert_eq!((&after[0]["note"], &after[0]["expiresAt"]), (&before[0]["note"], &before[0]["expiresAt"]));
    let on = json!({"value": md5(1), "disabled": false}).to_string();
    let (stdout, ..) = import(&place, "files.ndjson", &on, "ndjson").await;
    assert!(stdout.contains("1 changed") && list_entries(&place).await[0]["enabled"] == true, "{stdout}");
}

fn image(id: &str, nth: u32) -> String {
    let md5 = md5(nth);
    format!("<image><member id=\"1\"/><id>{id}</id><fingerprints><md5>{md5}</md5></fingerprints></image>\n")
}

#[tokio::test]
async fn withdrawals_and_additions_apply_in_file_order() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    let deleted_image = |id: &str| format!("<deletedImage><member id=\"1\"/><id>{id}</id></deletedImage>\n");
    let file = |records: &[String]| format!("<q>\n{}</q>\n", records.concat());
    let records = [image("i1", 1), image("i2", 2), image("i3", 3)];
    import(&place, "files.xml", &file(&records), "ncmec").await;
    assert_eq!(values(&place).await, [md5(1), md5(2), md5(3)]);
    // The file adds the first image again with a second hash, adds the second image again under another id, and
    // withdraws the third image at its end.
    let records = [
        deleted_image("i1"),
        deleted_image("i2"),
        deleted_image("i3"),
        image("i1", 4),
        image("i1", 1),
        image("i4", 2),
        image("i3", 3),
        deleted_image("i3"),
        deleted_image("i1"),
        image("i1", 4),
    ];
    let (stdout, faults, code) = import(&place, "files.xml", &file(&records), "ncmec").await;
    assert_eq!(values(&place).await, [md5(2), md5(4)], "{stdout}{faults}");
    let expected =
        "10 entries: 1 added, 2 changed, 3 there already, 0 refused, 2 removed, 2 not there to remove";
    assert!(stdout.contains(expected) && code == Some(0), "{stdout}{faults}");
}

#[tokio::test]
async fn alternating_withdrawals_are_sent_in_batches() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    let record = |nth: u32, is_gone: bool| {
        json!({"id": nth, "hash_digest": md5(nth), "algorithm": "MD5", "deleted": is_gone}).to_string()
    };
    let mut records: Vec<_> = (0..100).map(|nth| record(nth, nth % 2 == 1)).collect();
    // Records of the same hash apply in file order.
    records.extend([record(0, true), record(0, false), record(2, true), record(1, false)]);
    let (stdout, faults, code) = import(&place, "feed.json", &records.join("\n"), "tat").await;
    let expected = "104 entries: 52 added, 0 changed, 0 there already, 0 refused, 2 removed, 50 not there";
    assert!(stdout.contains(expected) && code == Some(0), "{stdout}{faults}");
    let mut left: Vec<_> = (4..100).step_by(2).map(md5).collect();
    left.extend([md5(0), md5(1)]);
    left.sort_unstable();
    assert_eq!(values(&place).await, left);
    let bank_list = place.run_ok(&["banks", "list"]).await;
    let revision = bank_list.lines().find(|line| line.starts_with("files ")).unwrap();
    let revision = revision.split_once("revision ").unwrap().1.split(' ').next().unwrap();
    assert!(revision.parse::<u32>().unwrap() <= 4, "{bank_list}");
}

#[tokio::test]
async fn records_before_a_file_fault_are_imported() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    let deleted_image = "<deletedImage><member id=\"1\"/><id>i1</id></deletedImage>\n";
    import(&place, "files.xml", &format!("<q>{}</q>", image("i1", 1)), "ncmec").await;
    let stop = |nth: u32, status: &str| {
        json!({"hashValue": md5(nth), "hashStatus": status, "signalType": "VideoMD5"}).to_string()
    };
    let exchange = |nth: u32, gone: bool| {
        json!({"indicator": md5(nth), "type": "HASH_MD5", "should_delete": gone}).to_string()
    };
    let tat = |nth: u32, gone: bool| {
        json!({"hash_digest": md5(nth), "algorithm": "MD5", "deleted": gone}).to_string()
    };
    for (format, text, fault, left) in [
        (
            "ncmec",
            format!("<q>\n{}{deleted_image}<odd/>{}<image><id>i", image("i2", 2), image("", 9)),
            "line 5",
            2,
        ),
        (
            "stopncii",
            format!("{{\"hashRecords\": [{},\n{},\n7,\n{{", stop(3, "Active"), stop(3, "Deleted")),
            "line 4",
            2,
        ),
        (
            "threatexchange",
            format!("{{\"data\": [{},\n{},\n7,\n}}", exchange(4, false), exchange(4, true)),
            "line 4",
            2,
        ),
        ("tat", format!("[{},\n{},\n7,\nodd", tat(5, false), tat(5, true)), "line 4", 2),
    ] {
        let (stdout, faults, code) = import(&place, "cut", &text, format).await;
        let expected = "3 entries: 1 added, 0 changed, 0 there already, 1 refused, 1 removed";
        assert!(stdout.contains(expected), "{format}: {stdout}{faults}");
        assert_eq!((values(&place).await, code), (vec![md5(left)], Some(1)), "{format}: {faults}");
        let last = faults.lines().last().unwrap();
        assert!(last.contains(fault) && last.ends_with("the rest was not read"), "{format}: {faults}");
        let refusal_text = if format == "ncmec" {
            "line 4, record 3: it has no `id`"
        } else {
            "line 3, record 3: it is no object"
        };
        assert!(faults.contains(refusal_text), "{format}: {faults}");
    }
}

#[tokio::test]
async fn unusual_entry_texts_are_exported_unchanged() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    let odd = [" a|b ", "\\", "c\\|d", "\t e", "f\u{a0}"];
    let entry = |nth: u32, text: &str| {
        json!({"value": md5(nth), "labels": odd, "source": text, "note": text, "content_id": text})
            .to_string()
    };
    let rows = [
        entry(1, "  between  "),
        entry(2, "\"a\",\r\n b\n"),
        entry(3, ""),
        json!({"value": md5(4), "labels": [""]}).to_string(),
    ];
    let (stdout, faults, _) = import(&place, "odd.ndjson", &rows.join("\n"), "ndjson").await;
    assert!(stdout.contains("4 entries: 3 added, 0 changed, 0 there already, 1 refused"), "{stdout}{faults}");
    assert!(faults.contains("line 4: one of its labels is blank"), "{faults}");
    let exported = place.run_ok(&["banks", "export", "files", "--format", "ndjson"]).await;
    for format in ["csv", "ndjson"] {
        let copy = place.run_ok(&["banks", "export", "files", "--format", format]).await;
        let (stdout, faults, _) = import(&place, "copy", &copy, format).await;
        assert!(
            stdout.contains("3 entries: 0 added, 0 changed, 3 there already, 0 refused"),
            "{stdout}{faults}"
        );
        place.run_ok(&["banks", "remove", "files", &md5(1), &md5(2), &md5(3)]).await;
        let (stdout, faults, _) = import(&place, "copy", &copy, format).await;
        assert!(stdout.contains("3 entries: 3 added"), "{stdout}{faults}");
        assert_eq!(place.run_ok(&["banks", "export", "files", "--format", "ndjson"]).await, exported);
    }
}

#[tokio::test]
async fn new_hash_matches_without_a_restart() {
    let place = Place::new();
    let demo = with_banks(&place).await;
    let documents = "bank: pictures\nkind: pdq\n";
    let change = json!({"files": [{"name": "hashes.yaml", "text": documents}]});
    assert_eq!(demo.command("/config", &change).await.0, 200);
    let mut slowest = Duration::ZERO;
    for nth in [0x00ff_ff00_u32, 0xffff_0000, 0x0f0f_0f0f] {
        let hash = format!("{nth:08x}{}", "5a".repeat(28));
        let (status, answer) = demo.command("/banks/pictures/entries", &json!({"entries": [&hash]})).await;
        assert_eq!((status.as_u16(), &answer["added"]), (200, &json!(1)), "{answer}");
        let began = Instant::now();
        let wish = json!({"hashes": {"pdq": &hash}, "banks": ["pictures"]});
        eventually("the entry", PATIENCE, async || {
            let (_, answer) = demo.command("/banks/match", &wish).await;
            (answer["matches"][0]["distance"] == 0).then_some(())
        })
        .await
        .unwrap();
        slowest = slowest.max(began.elapsed());
    }
    eprintln!("a new hash was seen after at most {slowest:?}");
}

#[tokio::test]
async fn interrupted_import_resumes_without_duplicates() {
    const COUNT: usize = 40_000;
    let place = Place::new();
    let demo = with_banks(&place).await;
    let change = json!({"files": [{"name": "hashes.yaml", "text": "bank: files\nkind: md5\n"}]});
    assert_eq!(demo.command("/config", &change).await.0, 200);
    let data = place.data();
    // The import may finish before the kill; the loop then tries another file.
    for attempt in 0..5 {
        let file = place.folder.path().join(format!("hashes-{attempt}.txt"));
        let resume = place.folder.path().join(format!("hashes-{attempt}.txt.resume"));
        let prefix = format!("{attempt:08x}");
        let mut lines = String::from("odd\n");
        (0..COUNT).for_each(|nth| lines.push_str(&format!("{prefix}{nth:024x}\n")));
        fs::write(&file, lines + "odd\n").unwrap();
        let import = [
            "banks",
            "import",
            "files",
            file.to_str().unwrap(),
            "--resume",
            "--data",
            data.to_str().unwrap(),
        ];
        let mut process = tokio::process::Command::new(crate::support::BINARY);
        let mut process = process.args(import).kill_on_drop(true).spawn().unwrap();
        eventually("a first part to be sent", PATIENCE, async || {
            (resume.exists() || process.try_wait().unwrap().is_some()).then_some(())
        })
        .await
        .unwrap();
        process.kill().await.unwrap();
        if !resume.exists() {
            continue;
        }
        let output = place.run(&import).await;
        let (stdout, faults) = (text(&output.stdout), text(&output.stderr));
        assert!(faults.contains("continuing after"), "{faults}");
        let numbers: Vec<usize> =
            stdout.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
        let [all, added, changed, there, refused] = numbers[..] else { panic!("{stdout}") };
        assert_eq!((all, added + there, changed, refused), (COUNT + 2, COUNT, 0, 2), "{stdout}");
        assert!(there <= 10_000, "only requests in progress are sent twice: {stdout}");
        assert!(!resume.exists());
        let exported = place.run_ok(&["banks", "export", "files", "--format", "lines"]).await;
        assert_eq!(exported.lines().filter(|line| line.starts_with(&prefix)).count(), COUNT);
        return;
    }
    panic!("every import finished before the kill");
}

#[tokio::test]
async fn foreign_hashes_are_stored_and_matched_by_text() {
    let place = Place::new();
    let demo = with_banks(&place).await;
    let documents = "bank: photos\nkind: photodna\n---\nbank: films\nkind: netclean\n";
    let change = json!({"files": [{"name": "hashes.yaml", "text": documents}]});
    assert_eq!(demo.command("/config", &change).await.0, 200);
    let digits: String = (0..144).map(|byte: u8| format!("{byte:02x}")).collect();
    let numbers = (0..144).map(|byte: u8| byte.to_string()).collect::<Vec<_>>().join(",");
    let xml = place.folder.path().join("shared.xml");
    let fingerprints =
        format!("<md5>{}</md5><pdna>{numbers}</pdna><netclean>Ab+/c=</netclean>", "0".repeat(32));
    let entry =
        format!("<image><member id=\"1\"/><id>i1</id><fingerprints>{fingerprints}</fingerprints></image>");
    fs::write(&xml, format!("<q><images>{entry}</images></q>")).unwrap();
    for bank in ["photos", "films"] {
        let summary = place.run_ok(&["banks", "import", bank, xml.to_str().unwrap()]).await;
        assert!(summary.contains("3 entries: 1 added") && summary.contains("2 of another kind"), "{summary}");
    }
    assert_eq!(place.run_ok(&["banks", "export", "photos", "--format", "lines"]).await.trim(), digits);
    let (status, answer) = demo.command("/banks/films/entries", &json!({"entries": ["two words"]})).await;
    assert_eq!((status.as_u16(), &answer["added"]), (200, &json!(0)), "{answer}");
    for (kind, bank, value) in
        [("photodna", "photos", &*digits), ("photodna", "photos", &*numbers), ("netclean", "films", "Ab+/c=")]
    {
        let match_args = ["banks", "match", value, "--kind", kind, "--bank", bank];
        eventually("the entry", PATIENCE, async || {
            place.run_ok(&match_args).await.contains("1 matches").then_some(())
        })
        .await
        .unwrap();
        let wish = json!({"hashes": {kind: value}});
        let (_, answer) = demo.command("/banks/match", &wish).await;
        let entry_line = place.run_ok(&["banks", "show", bank]).await;
        let entry: Value = serde_json::from_str(entry_line.trim()).unwrap();
        assert_eq!(answer["matches"][0]["entry"], entry["id"], "a match has the entry id of the list");
    }
    // The service computes no hashes of this kind, so a rule that names the bank would never match.
    let rule =
        "rule: never\nstatus: draft\nitem_types: [post]\nwhen: {media: {in: [images], bank: photos}}\n";
    let change = json!({"files": [{"name": "rule.yaml", "text": rule}]});
    let (status, answer) = demo.command("/config", &change).await;
    assert!(status.is_client_error(), "{status}: {answer}");
}

#[tokio::test]
async fn invalid_bank_requests_are_refused_with_a_reason() {
    let place = Place::new();
    let demo = with_banks(&place).await;
    let admin = demo.var("TIDEGATE_ADMIN_KEY");
    for (method, path, body, expected) in [
        (Method::GET, "/banks?odd=1", None, 400),
        (Method::GET, "/banks/nowhere/entries", None, 404),
        (Method::GET, "/banks/words/entries?limit=0", None, 400),
        (Method::GET, "/banks/words/entries?cursor=odd", None, 400),
        (Method::POST, "/banks/nowhere/entries", Some(json!({"entries": ["x"]})), 404),
        (Method::POST, "/banks/words/entries", Some(json!({"entries": [{"valeu": "x"}]})), 400),
        (
            Method::POST,
            "/banks/words/entries",
            Some(json!({"entries": [{"value": "x", "expiresAt": "soon"}]})),
            400,
        ),
        (Method::POST, "/banks/words/entries/remove", Some(json!({"ids": ["odd"]})), 404),
        (Method::POST, "/banks/nowhere/disable", None, 404),
        (Method::POST, "/banks/match", Some(json!({"hashes": {"md5": "12"}})), 400),
        (Method::POST, "/banks/match", Some(json!({"hashes": {"photo": "12"}})), 400),
    ] {
        let (status, answer) = demo.admin_as(admin, method, path, body.as_ref()).await;
        assert_eq!(status.as_u16(), expected, "{path}: {answer}");
    }
}
