//! Banks of a running process: files of entries, what is refused of them, and rules that have new entries at once.

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

/// Whether the rule matches an item with the text.
async fn matches(demo: &Demo, id: &str, text: &str) -> bool {
    demo.submit(&post(id, "mallory", text)).await;
    let rules = demo.evaluated("post", id).await["matchedRules"].clone();
    rules.as_array().unwrap().iter().any(|rule| rule["id"] == "listed")
}

/// Items are sent until one is seen with the entry, or without it: no restart, and no new configuration.
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
async fn a_file_is_taken_but_for_its_bad_lines_and_the_counts_add_up() {
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
    let (said, faults) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("6 entries: 2 added, 1 changed, 1 there already, 2 refused"), "{said}");
    // What the service says of the third, before what the command says of the seventh.
    let places = ["line 3: it is blank", "line 7: it has 3 columns"].map(|told| faults.find(told).unwrap());
    assert!(places.is_sorted(), "{faults}");

    let sites = place.folder.path().join("sites.txt");
    fs::write(&sites, "Bad.example\n\nhttp://worse.example/a\nbad.example.\n").unwrap();
    let output = place.run(&["banks", "import", "sites", sites.to_str().unwrap(), "--data", data]).await;
    let (said, faults) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("3 entries: 1 added, 0 changed, 1 there already, 1 refused"), "{said}");
    assert!(faults.contains("line 3: expected a domain, not a URL"), "{faults}");

    let shown = place.tell(&["banks", "show", "words"]).await;
    let entries: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&entries[0]["value"], &entries[0]["inDocument"]), (&json!("pumpcoin"), &json!(true)));
    let moonbag = entries.iter().find(|entry| entry["value"] == "moonbag").unwrap();
    assert_eq!((entries.len(), &moonbag["labels"]), (3, &json!(["crypto", "new"])));
    let one = place.tell(&["banks", "show", "words", "--limit", "1"]).await;
    assert!(one.lines().count() == 1 && one.contains("pumpcoin"), "{one}");
    let export = ["banks", "export", "words", "--format", "lines", "--data", data];
    let output = place.run(&export).await;
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(told.contains("1 entries of the bank's document are left out"), "{told}");
    let output = place.run(&[&export[..], &["--document"]].concat()).await;
    let (all, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((all, told.as_str()), (format!("pumpcoin\n{said}"), ""));
    let listed = place.tell(&["banks", "list"]).await;
    assert!(listed.contains("words  text  on  revision 1"), "{listed}");
    drop(demo);
}

#[tokio::test]
async fn a_new_entry_is_in_the_rules_soon_and_without_a_restart() {
    let place = Place::new();
    let demo = with_banks(&place).await;
    assert!(!matches(&demo, "before", "a moonbag here").await);
    assert!(place.tell(&["banks", "add", "words", "moonbag", "rugpull"]).await.contains("2 added"));
    until_it_matches(&demo, "moonbag", true).await;
    assert!(place.tell(&["banks", "disable", "words", "moonbag"]).await.contains("1 disabled"));
    until_it_matches(&demo, "moonbag", false).await;
    until_it_matches(&demo, "rugpull", true).await;
    assert!(place.tell(&["banks", "remove", "words", "rugpull"]).await.contains("1 removed"));
    until_it_matches(&demo, "rugpull", false).await;
    assert!(place.tell(&["banks", "enable", "words", "moonbag"]).await.contains("1 enabled"));
    until_it_matches(&demo, "moonbag", true).await;
    assert!(place.tell(&["banks", "disable", "words"]).await.contains("words: disabled"));
    until_it_matches(&demo, "moonbag", false).await;
    until_it_matches(&demo, "pumpcoin", false).await;
    assert!(place.tell(&["banks", "enable", "words"]).await.contains("words: enabled"));
    until_it_matches(&demo, "pumpcoin", true).await;
}

#[tokio::test]
async fn whoever_switches_off_what_the_document_holds_is_told_that_it_stays() {
    let place = Place::new();
    let demo = with_banks(&place).await;
    let data = place.data();
    let asked = async |how: &str| {
        let run = ["banks", how, "words", "pumpcoin", "--data", data.to_str().unwrap()];
        let output = place.run(&run).await;
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };
    let stays = "1 of them count until the bank's document is changed";
    let (said, fault, code) = asked("disable").await;
    assert!(said.contains("0 disabled, 1 not there") && fault.contains(stays), "{said}{fault}");
    assert_eq!(code, Some(1));
    asked("add").await;
    for how in ["disable", "remove"] {
        let (said, fault, code) = asked(how).await;
        assert!(said.contains(&format!("1 {how}d, 0 not there")) && fault.contains(stays), "{said}{fault}");
        assert_eq!(code, Some(1));
    }
    assert!(matches(&demo, "after", "a pumpcoin here").await);
    asked("add").await;
    let (said, fault, code) = asked("enable").await;
    assert!(said.contains("1 enabled, 0 not there") && fault.is_empty(), "{said}{fault}");
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn an_import_of_patterns_that_blinds_a_rule_says_so_and_so_does_the_process() {
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
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(
        said.contains("30 added") && told.contains("warning: rule blind: its 30 patterns"),
        "{said}{told}"
    );
    eventually("the count of rules that are too costly", PATIENCE, async || {
        let (_, metrics) = demo.operations("/metrics").await;
        metrics.contains("tidegate_rules_overloaded 1").then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn hashes_are_imported_looked_up_and_exported_as_they_were() {
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
    let (said, faults) = (text(&output.stdout), text(&output.stderr));
    let expected = "27 entries: 25 added, 0 changed, 0 there already, 1 refused, 1 of another kind";
    assert!(said.contains(expected), "{said}{faults}");
    assert!(faults.contains("line 27: a PDQ hash has 64 hexadecimal digits"), "{faults}");
    for format in ["ndjson", "csv"] {
        let first = place.tell(&["banks", "export", "pictures", "--format", format]).await;
        assert!(first.lines().count() >= 25, "{first}");
        let copy = place.folder.path().join(format!("copy.{format}"));
        fs::write(&copy, &first).unwrap();
        let values: Vec<String> = (0..25).map(|nth| hash(nth << 16)).collect();
        let mut remove = vec!["banks", "remove", "pictures"];
        remove.extend(values.iter().map(String::as_str));
        assert!(place.tell(&remove).await.contains("25 removed"));
        let told = place.tell(&["banks", "import", "pictures", copy.to_str().unwrap()]).await;
        assert!(told.contains("25 entries: 25 added"), "{told}");
        assert_eq!(place.tell(&["banks", "export", "pictures", "--format", format]).await, first);
    }
    // Seven bits off an entry that allows seven.
    let wanted = hash((7 << 16) | 0x7f);
    eventually("the entries", PATIENCE, async || {
        let said = place.tell(&["banks", "match", &wanted, "--kind", "pdq", "--bank", "pictures"]).await;
        said.contains("7 bits  meme,7").then_some(())
    })
    .await
    .unwrap();
    let nowhere =
        place.run(&["banks", "match", &wanted, "--kind", "pdq", "--bank", "words", "--data", data]).await;
    assert!(text(&nowhere.stderr).contains("no bank of hashes"), "{}", text(&nowhere.stderr));
    // What an exchange takes back goes, by its name or by its value.
    let xml = place.folder.path().join("files.xml");
    fs::write(&xml, format!("<q><images>{}{}</images></q>", image("i1", 1), image("i2", 2))).unwrap();
    let told = place.tell(&["banks", "import", "files", xml.to_str().unwrap()]).await;
    assert!(told.contains("2 entries: 2 added"), "{told}");
    fs::write(&xml, "<q><images><deletedImage><member id=\"1\"/><id>i1</id></deletedImage></images></q>")
        .unwrap();
    let told = place.tell(&["banks", "import", "files", xml.to_str().unwrap()]).await;
    assert!(told.contains("1 entries: 0 added, 0 changed, 0 there already, 0 refused, 1 removed"), "{told}");
    let left = place.tell(&["banks", "export", "files", "--format", "lines"]).await;
    assert_eq!(left.trim(), md5(2));
    drop(demo);
}

fn md5(nth: u32) -> String {
    format!("{nth:032x}")
}

/// A running house with a bank of files, and what an import of a text says: standard output and error, and its code.
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

async fn listed(place: &Place) -> Vec<Value> {
    let shown = place.tell(&["banks", "show", "files"]).await;
    shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn values(place: &Place) -> Vec<String> {
    let mut values: Vec<_> =
        listed(place).await.iter().map(|entry| entry["value"].as_str().unwrap().to_owned()).collect();
    values.sort_unstable();
    values
}

#[tokio::test]
async fn an_import_switches_nothing_on_and_takes_nothing_out_that_it_does_not_name() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    let table = format!("hash,labels,note,expires_at\n{},a|b,why,2999-01-01T00:00:00Z\n", md5(1));
    let (said, ..) = import(&place, "files.csv", &table, "csv").await;
    assert!(said.contains("1 added"), "{said}");
    place.tell(&["banks", "disable", "files", &md5(1)]).await;
    let before = listed(&place).await;
    assert_eq!((&before[0]["enabled"], &before[0]["note"]), (&json!(false), &json!("why")));
    for (name, text, format) in [
        ("files.csv", table.clone(), "csv"),
        ("files.txt", md5(1), "lines"),
        ("files.ndjson", json!({"value": md5(1), "note": null}).to_string(), "ndjson"),
    ] {
        let (said, ..) = import(&place, name, &text, format).await;
        assert!(said.contains("1 entries: 0 added, 0 changed, 1 there already"), "{said}");
    }
    let told = place.tell(&["banks", "add", "files", &md5(1)]).await;
    assert!(told.contains("0 changed, 1 there already"), "{told}");
    assert_eq!(listed(&place).await, before);
    let more =
        ["banks", "add", "files", &md5(2), "--distance", "0", "--note", "found twice", "--reference", "r7"];
    assert!(place.tell(&more).await.contains("1 added"));
    let added = listed(&place).await.into_iter().find(|entry| entry["value"] == md5(2)).unwrap();
    let told = (&added["distance"], &added["note"], &added["reference"]);
    assert_eq!(told, (&json!(0), &json!("found twice"), &json!("r7")));
    let refused = place.run(&["banks", "add", "files", &md5(3), "--distance", "1"]).await;
    assert_eq!(refused.status.code(), Some(1), "files are equal or not");
    assert!(place.tell(&["banks", "remove", "files", &md5(2)]).await.contains("1 removed"));
    let told = place.tell(&["banks", "add", "files", &md5(1), "--labels", "c"]).await;
    assert!(told.contains("1 changed"), "{told}");
    let after = listed(&place).await;
    assert_eq!((&after[0]["labels"], &after[0]["enabled"]), (&json!(["c"]), &json!(false)));
    assert_eq!((&after[0]["note"], &after[0]["expiresAt"]), (&before[0]["note"], &before[0]["expiresAt"]));
    let on = json!({"value": md5(1), "disabled": false}).to_string();
    let (said, ..) = import(&place, "files.ndjson", &on, "ndjson").await;
    assert!(said.contains("1 changed") && listed(&place).await[0]["enabled"] == true, "{said}");
}

fn image(id: &str, nth: u32) -> String {
    let md5 = md5(nth);
    format!("<image><member id=\"1\"/><id>{id}</id><fingerprints><md5>{md5}</md5></fingerprints></image>\n")
}

#[tokio::test]
async fn what_is_taken_back_and_given_again_follows_the_order_of_the_file() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    let gone = |id: &str| format!("<deletedImage><member id=\"1\"/><id>{id}</id></deletedImage>\n");
    let file = |records: &[String]| format!("<q>\n{}</q>\n", records.concat());
    let records = [image("i1", 1), image("i2", 2), image("i3", 3)];
    import(&place, "files.xml", &file(&records), "ncmec").await;
    assert_eq!(values(&place).await, [md5(1), md5(2), md5(3)]);
    // The first is given again, with another hash besides; the second is given again under another name; the third goes
    // in the end.
    let records = [
        gone("i1"),
        gone("i2"),
        gone("i3"),
        image("i1", 4),
        image("i1", 1),
        image("i4", 2),
        image("i3", 3),
        gone("i3"),
        gone("i1"),
        image("i1", 4),
    ];
    let (said, faults, code) = import(&place, "files.xml", &file(&records), "ncmec").await;
    assert_eq!(values(&place).await, [md5(2), md5(4)], "{said}{faults}");
    let expected =
        "10 entries: 1 added, 2 changed, 3 there already, 0 refused, 2 removed, 2 not there to remove";
    assert!(said.contains(expected) && code == Some(0), "{said}{faults}");
}

#[tokio::test]
async fn a_feed_in_which_every_other_record_is_taken_back_is_no_request_a_record() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    let record = |nth: u32, is_gone: bool| {
        json!({"id": nth, "hash_digest": md5(nth), "algorithm": "MD5", "deleted": is_gone}).to_string()
    };
    let mut records: Vec<_> = (0..100).map(|nth| record(nth, nth % 2 == 1)).collect();
    // Of one hash the order counts.
    records.extend([record(0, true), record(0, false), record(2, true), record(1, false)]);
    let (said, faults, code) = import(&place, "feed.json", &records.join("\n"), "tat").await;
    let expected = "104 entries: 52 added, 0 changed, 0 there already, 0 refused, 2 removed, 50 not there";
    assert!(said.contains(expected) && code == Some(0), "{said}{faults}");
    let mut left: Vec<_> = (4..100).step_by(2).map(md5).collect();
    left.extend([md5(0), md5(1)]);
    left.sort_unstable();
    assert_eq!(values(&place).await, left);
    let listed = place.tell(&["banks", "list"]).await;
    let revision = listed.lines().find(|line| line.starts_with("files ")).unwrap();
    let revision = revision.split_once("revision ").unwrap().1.split(' ').next().unwrap();
    assert!(revision.parse::<u32>().unwrap() <= 4, "{listed}");
}

#[tokio::test]
async fn what_stands_before_a_fault_of_a_file_is_imported_and_the_rest_told_of() {
    let place = Place::new();
    let _demo = with_files(&place).await;
    let gone = "<deletedImage><member id=\"1\"/><id>i1</id></deletedImage>\n";
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
        ("ncmec", format!("<q>\n{}{gone}<odd/>{}<image><id>i", image("i2", 2), image("", 9)), "line 5", 2),
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
        let (said, faults, code) = import(&place, "cut", &text, format).await;
        let expected = "3 entries: 1 added, 0 changed, 0 there already, 1 refused, 1 removed";
        assert!(said.contains(expected), "{format}: {said}{faults}");
        assert_eq!((values(&place).await, code), (vec![md5(left)], Some(1)), "{format}: {faults}");
        let last = faults.lines().last().unwrap();
        assert!(last.contains(fault) && last.ends_with("the rest was not read"), "{format}: {faults}");
        let refused = if format == "ncmec" {
            "line 4, record 3: it has no `id`"
        } else {
            "line 3, record 3: it is no object"
        };
        assert!(faults.contains(refused), "{format}: {faults}");
    }
}

#[tokio::test]
async fn odd_texts_beside_an_entry_come_back_as_they_were() {
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
    let (said, faults, _) = import(&place, "odd.ndjson", &rows.join("\n"), "ndjson").await;
    assert!(said.contains("4 entries: 3 added, 0 changed, 0 there already, 1 refused"), "{said}{faults}");
    assert!(faults.contains("line 4: one of its labels is blank"), "{faults}");
    let whole = place.tell(&["banks", "export", "files", "--format", "ndjson"]).await;
    for format in ["csv", "ndjson"] {
        let copy = place.tell(&["banks", "export", "files", "--format", format]).await;
        let (said, faults, _) = import(&place, "copy", &copy, format).await;
        assert!(said.contains("3 entries: 0 added, 0 changed, 3 there already, 0 refused"), "{said}{faults}");
        place.tell(&["banks", "remove", "files", &md5(1), &md5(2), &md5(3)]).await;
        let (said, faults, _) = import(&place, "copy", &copy, format).await;
        assert!(said.contains("3 entries: 3 added"), "{said}{faults}");
        assert_eq!(place.tell(&["banks", "export", "files", "--format", "ndjson"]).await, whole);
    }
}

#[tokio::test]
async fn a_new_hash_is_found_soon_without_a_restart() {
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
async fn an_import_that_broke_off_goes_on_and_doubles_nothing() {
    const COUNT: usize = 40_000;
    let place = Place::new();
    let demo = with_banks(&place).await;
    let change = json!({"files": [{"name": "hashes.yaml", "text": "bank: files\nkind: md5\n"}]});
    assert_eq!(demo.command("/config", &change).await.0, 200);
    let data = place.data();
    // It may be through before it is killed: then another file is tried.
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
        let (said, faults) = (text(&output.stdout), text(&output.stderr));
        assert!(faults.contains("continuing after"), "{faults}");
        let numbers: Vec<usize> =
            said.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
        let [all, added, changed, there, refused] = numbers[..] else { panic!("{said}") };
        assert_eq!((all, added + there, changed, refused), (COUNT + 2, COUNT, 0, 2), "{said}");
        assert!(there <= 10_000, "no more than what was under way is sent twice: {said}");
        assert!(!resume.exists());
        let exported = place.tell(&["banks", "export", "files", "--format", "lines"]).await;
        assert_eq!(exported.lines().filter(|line| line.starts_with(&prefix)).count(), COUNT);
        return;
    }
    panic!("every import was through before it could be killed");
}

#[tokio::test]
async fn hashes_that_are_not_made_here_are_kept_and_found_by_their_text() {
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
        let told = place.tell(&["banks", "import", bank, xml.to_str().unwrap()]).await;
        assert!(told.contains("3 entries: 1 added") && told.contains("2 of another kind"), "{told}");
    }
    assert_eq!(place.tell(&["banks", "export", "photos", "--format", "lines"]).await.trim(), digits);
    let (status, answer) = demo.command("/banks/films/entries", &json!({"entries": ["two words"]})).await;
    assert_eq!((status.as_u16(), &answer["added"]), (200, &json!(0)), "{answer}");
    for (kind, bank, value) in
        [("photodna", "photos", &*digits), ("photodna", "photos", &*numbers), ("netclean", "films", "Ab+/c=")]
    {
        let asked = ["banks", "match", value, "--kind", kind, "--bank", bank];
        eventually("the entry", PATIENCE, async || {
            place.tell(&asked).await.contains("1 matches").then_some(())
        })
        .await
        .unwrap();
        let wish = json!({"hashes": {kind: value}});
        let (_, answer) = demo.command("/banks/match", &wish).await;
        let listed = place.tell(&["banks", "show", bank]).await;
        let entry: Value = serde_json::from_str(listed.trim()).unwrap();
        assert_eq!(answer["matches"][0]["entry"], entry["id"], "a match names the entry as lists do");
    }
    // No medium is ever like one, so a rule that names the bank would never match.
    let rule =
        "rule: never\nstatus: draft\nitem_types: [post]\nwhen: {media: {in: [images], bank: photos}}\n";
    let change = json!({"files": [{"name": "rule.yaml", "text": rule}]});
    let (status, answer) = demo.command("/config", &change).await;
    assert!(status.is_client_error(), "{status}: {answer}");
}

#[tokio::test]
async fn wrong_requests_about_banks_are_told() {
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
