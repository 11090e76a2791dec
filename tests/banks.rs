//! Banks of a running process: files of entries, what is refused of them, and rules that have new entries at once.

#![allow(clippy::unwrap_used)]

mod running;

use std::fs;

use reqwest::Method;
use running::{Demo, Place, post, text};
use serde_json::{Value, json};

const DOCUMENTS: &str = "\
bank: words
kind: text
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
    tidegate_test_support::eventually("the entry's effect", tidegate_test_support::PATIENCE, async || {
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
    fs::write(&file, "value,labels\nmoonbag,crypto|new\n,none\nrugpull,\nmoonbag,crypto|new\nx,y,z\n")
        .unwrap();
    let output = place.run(&["banks", "import", "words", file.to_str().unwrap(), "--data", data]).await;
    assert_eq!(output.status.code(), Some(1), "some lines are refused");
    let (said, faults) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("5 entries: 2 added, 0 changed, 1 there already, 2 refused"), "{said}");
    assert!(
        faults.contains("line 3: it is blank") && faults.contains("line 6: it has 3 columns"),
        "{faults}"
    );

    let sites = place.folder.path().join("sites.txt");
    fs::write(&sites, "Bad.example\n\nhttp://worse.example/a\nbad.example.\n").unwrap();
    let output = place.run(&["banks", "import", "sites", sites.to_str().unwrap(), "--data", data]).await;
    let (said, faults) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("3 entries: 1 added, 0 changed, 1 there already, 1 refused"), "{said}");
    assert!(faults.contains("line 3: it is a URL"), "{faults}");

    let shown = place.tell(&["banks", "show", "words"]).await;
    let entries: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let moonbag = entries.iter().find(|entry| entry["value"] == "moonbag").unwrap();
    assert_eq!((entries.len(), &moonbag["labels"]), (2, &json!(["crypto", "new"])));
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
    tidegate_test_support::eventually("the entries", tidegate_test_support::PATIENCE, async || {
        let said = place.tell(&["banks", "match", &wanted, "--kind", "pdq", "--bank", "pictures"]).await;
        said.contains("7 bits  meme,7").then_some(())
    })
    .await
    .unwrap();
    let nowhere =
        place.run(&["banks", "match", &wanted, "--kind", "pdq", "--bank", "words", "--data", data]).await;
    assert!(text(&nowhere.stderr).contains("no bank of hashes"), "{}", text(&nowhere.stderr));
    // What an exchange takes back goes, by its name or by its value.
    let md5 = |nth: u32| format!("{nth:032x}");
    let xml = place.folder.path().join("files.xml");
    let image = |nth: u32| {
        format!(
            "<image><member id=\"1\"/><id>i{nth}</id><fingerprints><md5>{}</md5></fingerprints></image>",
            md5(nth)
        )
    };
    fs::write(&xml, format!("<q><images>{}{}</images></q>", image(1), image(2))).unwrap();
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
