//! Messages of the rule commands about invalid files, and their output for valid ones, with the real binary and
//! without a server.

use std::{fs, path::PathBuf};

use crate::support::{Place, text};
use serde_json::{Value, json};

const DOCUMENTS: &str = "item_type: post\nname: Post\nkind: CONTENT\nfields:\n  - {name: text, type: STRING}\n  \
    - {name: size, type: NUMBER}\n---\nrule: scam\nitem_types: [post]\n\
    when: {text: {in: [text], words: [scam]}}\n";

fn write(place: &Place, file: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = place.folder.path().join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

fn item(id: &str, data: &Value) -> String {
    json!({"id": id, "typeId": "post", "data": data, "expect": ["scam"]}).to_string()
}

/// Runs a command line. Returns its exit code, standard output and standard error.
async fn run_line(place: &Place, line: &str) -> (Option<i32>, String, String) {
    let output = place.run(&line.split(' ').collect::<Vec<_>>()).await;
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

const WITH_ITEMS: [&str; 5] = [
    "rules run --config documents --items FILE",
    "rules bench --config documents --seconds 1 --items FILE",
    "rules explain --config documents --rule scam --items FILE",
    "rules diff --config documents --against documents --items FILE",
    "rules test --config documents --fixtures FILE",
];

#[tokio::test]
async fn each_command_reports_invalid_utf_8_with_line_and_column() {
    let place = Place::new();
    write(&place, "documents/all.yaml", DOCUMENTS);
    write(&place, "bad/all.yaml", DOCUMENTS);
    write(&place, "bad/sub/policies.yaml", b"policy: a\nname: A\n---\npolicy: b\nname: caf\xe9 \xe9\n");
    write(&place, "bad/bank.json", br#"{"bank": "words", "kind": "text", "file": "words.txt"}"#);
    write(&place, "bad/words.txt", b"caf\xc3\xa9\nfianc\xe9e\n");
    write(&place, "items.ndjson", item("1", &json!({"text": "a scam"})));
    for line in [
        "lint bad",
        "rules lint bad",
        "apply bad",
        "diff bad",
        "rules backtest bad",
        "rules fmt --config bad",
        "rules run --config bad --items items.ndjson",
        "rules bench --config bad --items items.ndjson",
        "rules explain --config bad --rule scam --items items.ndjson",
        "rules diff --config bad --against documents",
        "rules diff --config documents --against bad",
        "rules test --config bad",
    ] {
        let (code, _, stderr) = run_line(&place, line).await;
        assert_eq!(code, Some(1), "{line}: {stderr}");
        assert!(stderr.contains("sub/policies.yaml:5: column 10: invalid UTF-8"), "{line}: {stderr}");
        assert!(!stderr.contains("Its path is relative to the document"), "{line}: {stderr}");
        // This command reads no entry files.
        let names_entries = stderr.contains("words.txt:2: column 6: invalid UTF-8");
        assert_eq!(names_entries, !line.contains("fmt"), "{line}: {stderr}");
    }
    write(&place, "report.xml", "of an earlier run");
    assert_eq!(run_line(&place, "rules test --config bad --junit report.xml").await.0, Some(1));
    let report = fs::read_to_string(place.folder.path().join("report.xml")).unwrap();
    assert!(report.contains("errors=\"1\"") && report.contains("sub/policies.yaml:5"), "{report}");
    write(&place, "bad/sub/policies.yaml", b"\xff\xfep\0o\0l\0");
    let (_, _, stderr) = run_line(&place, "rules fmt --config bad").await;
    assert!(stderr.contains("sub/policies.yaml:1: the text is UTF-16"), "{stderr}");
}

#[tokio::test]
async fn folder_or_empty_file_instead_of_items_is_reported() {
    let place = Place::new();
    write(&place, "documents/all.yaml", DOCUMENTS);
    write(&place, "empty.ndjson", "\n \n");
    for line in WITH_ITEMS {
        let (code, stdout, stderr) = run_line(&place, &line.replace("FILE", "documents")).await;
        let folder = "error: documents is a folder; a file with one item a line is needed\n";
        assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(1), "", folder), "{line}");
        let (code, _, stderr) = run_line(&place, &line.replace("FILE", "none.ndjson")).await;
        assert!(
            code == Some(1) && stderr.starts_with("error: none.ndjson cannot be opened: "),
            "{line}: {stderr}"
        );
    }
    for line in [WITH_ITEMS[1], WITH_ITEMS[3]] {
        let (code, _, stderr) = run_line(&place, &line.replace("FILE", "empty.ndjson")).await;
        assert_eq!(
            (code, stderr.as_str()),
            (Some(1), "error: there are no items in empty.ndjson\n"),
            "{line}"
        );
    }
}

#[tokio::test]
async fn each_command_reports_invalid_item_lines() {
    let place = Place::new();
    write(&place, "documents/all.yaml", DOCUMENTS);
    let long = "x".repeat((16 << 20) + 1);
    let lines = [
        b"5".as_slice(),
        b"[]",
        br#"{"id": "1", "typeId": "post", "data": {"text": 5}}"#,
        b"{\"id\": \"1\", \"typ\xff",
        br#"{"id": "1", "typeId": "post""#,
        long.as_bytes(),
    ];
    let faults = [
        "An item must be an object, not a number.",
        "An item must be an object, not an array.",
        "/data/text: This must be a string, not a number.",
        "column 17: invalid UTF-8: save the text as UTF-8",
        "no JSON: EOF while parsing an object at column 28",
        "it is longer than 16 MiB",
    ];
    let last = item("7", &json!({"text": "a scam"}));
    write(&place, "items.ndjson", [&lines.join(&b'\n'), b"\n".as_slice(), last.as_bytes()].concat());

    let (code, stdout, _) = run_line(&place, &WITH_ITEMS[0].replace("FILE", "items.ndjson")).await;
    let lines: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refusals: Vec<_> = lines.iter().filter_map(|line| line["refused"].as_str()).collect();
    assert_eq!((code, refusals), (Some(1), faults.to_vec()));
    assert_eq!(lines[6], json!({"id": "7", "typeId": "post", "matched": ["scam"], "errored": []}));

    for (line, most) in WITH_ITEMS[1..].iter().zip([5, 6, 5, 6]) {
        let (_, _, stderr) = run_line(&place, &line.replace("FILE", "items.ndjson")).await;
        for (nth, fault) in faults.iter().enumerate() {
            let is_told = stderr
                .lines()
                .any(|it| it.contains(&format!("line {}", nth + 1)) && it.ends_with(&format!(": {fault}")));
            assert_eq!(is_told, nth < most, "{line}: {fault}: {stderr}");
        }
        assert!(!stderr.contains(": : "), "{line}: {stderr}");
    }
}

#[tokio::test]
async fn byte_order_mark_is_skipped_in_all_input_files() {
    let place = Place::new();
    let large = "18446744073709551617";
    let yaml = format!("\u{feff}{DOCUMENTS}---\nrule: large\nwhen: {{field: {{path: size, eq: {large}}}}}\n");
    write(&place, "documents/all.yaml", yaml);
    let json = "\u{feff}{\"rule\": \"listed\", \"item_types\": [\"post\"],\n \"when\": {\"text\": \
        {\"in\": [\"text\"], \"bank\": \"words\"}}}";
    write(&place, "documents/listed.json", json);
    write(
        &place,
        "documents/bank.JSON",
        "\u{feff}{\"bank\": \"words\", \"kind\": \"text\", \"file\": \"words.txt\"}",
    );
    write(&place, "documents/words.txt", "\u{feff}moonbag\n");
    let data = format!(r#"{{"text": "a moonbag scam", "size": {large}}}"#);
    let line =
        format!(r#"{{"id": "1", "typeId": "post", "data": {data}, "expect": ["scam", "large", "listed"]}}"#);
    write(&place, "items.ndjson", format!("\u{feff}{line}\n"));

    let (code, stdout, stderr) = run_line(&place, "lint documents").await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    for line in WITH_ITEMS {
        let (code, _, stderr) = run_line(&place, &line.replace("FILE", "items.ndjson")).await;
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{line}");
    }

    write(&place, "documents/listed.json", json.replace("\"when\"", "\"wehn\""));
    let (_, _, stderr) = run_line(&place, "lint documents").await;
    assert!(stderr.contains("listed.json:2: document 1: wehn: unknown field"), "{stderr}");
    write(&place, "documents/listed.json", json.replace("\"rule\":", "\"rule\";"));
    let (_, _, stderr) = run_line(&place, "rules fmt --config documents").await;
    assert!(stderr.starts_with("listed.json: ") && stderr.contains("Line 1, column 8: "), "{stderr}");
    write(&place, "documents/listed.json", json);
    let (code, stdout, stderr) = run_line(&place, "rules fmt --config documents").await;
    assert_eq!((code, stdout.as_str()), (Some(0), "all.yaml\nbank.JSON\nlisted.json\n"), "{stderr}");
    let stored_text = fs::read_to_string(place.folder.path().join("documents/all.yaml")).unwrap();
    assert!(stored_text.starts_with("item_type: post") && stored_text.contains(large), "{stored_text}");
    let (code, _, _) = run_line(&place, "rules fmt --config documents --check").await;
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn bench_reports_the_memory_of_the_process() {
    let place = Place::new();
    write(&place, "documents/all.yaml", DOCUMENTS);
    // Each item holds its own copy of the text, which sets a lower bound for the memory.
    let items = (0..64).map(|nth| item(&nth.to_string(), &json!({"text": "a scam ".repeat(20_000)})));
    write(&place, "items.ndjson", items.collect::<Vec<_>>().join("\n"));
    let (code, stdout, stderr) = run_line(&place, &WITH_ITEMS[1].replace("FILE", "items.ndjson")).await;
    assert_eq!(code, Some(0), "{stderr}");
    let memory = stdout.lines().last().unwrap();
    let figures: Vec<f64> = memory
        .split_once(": ")
        .unwrap()
        .1
        .split([',', ';'])
        .filter_map(|part| part.trim().split_once(" MB ")?.0.parse().ok())
        .collect();
    let [before, rules, items, after, most] = figures[..] else { panic!("{memory}") };
    assert!(before > 1.0 && rules >= before, "{memory}");
    assert!(items > rules + 64.0 * 0.14 && after > rules, "{memory}");
    assert!([before, rules, items, after].into_iter().all(|it| it <= most), "{memory}");
    for expected_part in [
        "64 items of 64 match a rule; 0 do not fit",
        "items a second of CPU",
        "99 in 100 within",
        "read and compiled in",
    ] {
        assert!(stdout.contains(expected_part), "{stdout}");
    }
}

#[tokio::test]
async fn single_element_list_equals_its_value_and_keeps_its_form() {
    let place = Place::new();
    let rule = |status: &str, types: &str, operands: [&str; 3]| {
        let [word, part, not] = operands;
        format!(
            "{TYPES}---\nrule: r\nstatus: {status}\nitem_types: {types}\nwhen:\n  all:\n    \
             - field: {{path: text, {word}, {part}}}\n    - field: {{path: text, {not}}}\n    \
             - text: {{in: [text], any_of: [b]}}\n"
        )
    };
    const TYPES: &str = "item_type: post\nname: P\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n---\n\
        item_type: note\nname: N\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n";
    let lists = rule("draft", "[post]", ["in: [a b]", "starts_with: [a]", "not_in: [x]"]);
    let values = rule("live", "[note, post]", ["eq: a b", "starts_with: a", "ne: x"]);
    write(&place, "lists/all.yaml", &lists);
    write(&place, "values/all.yaml", &values);
    write(&place, "items.ndjson", item("1", &json!({"text": "a b"})));
    let explained = async |folder: &str| {
        run_line(&place, &format!("rules explain --config {folder} --rule r --items items.ndjson")).await.1
    };
    assert_eq!(explained("lists").await, explained("values").await);
    assert!(explained("lists").await.contains(r#""compared":{"eq":"a b","starts_with":"a"}"#));

    let (code, stdout, _) = run_line(&place, "rules diff --config values --against lists").await;
    assert_eq!(
        (code, stdout.as_str()),
        (
            Some(2),
            "~ rule r: item_types [\"post\"] → [\"note\",\"post\"], status draft → live, \
             when.all[0].field.eq nothing → a b, when.all[0].field.in [\"a b\"] → nothing, \
             when.all[0].field.starts_with [\"a\"] → a, when.all[1].field.ne nothing → x, \
             when.all[1].field.not_in [\"x\"] → nothing\n"
        )
    );

    assert_eq!(run_line(&place, "rules fmt --config lists").await.1, "all.yaml\n");
    let stored_text = fs::read_to_string(place.folder.path().join("lists/all.yaml")).unwrap();
    let words = stored_text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("in: - a b") && words.contains("starts_with: - a"), "{stored_text}");
    assert_eq!(run_line(&place, "rules fmt --config lists --check").await.0, Some(0));
    write(&place, "before/all.yaml", &lists);
    assert_eq!(
        run_line(&place, "rules diff --config lists --against before").await,
        (Some(0), String::new(), String::new())
    );
}

#[tokio::test]
async fn blank_key_is_reported_at_its_place_without_follow_up_faults() {
    let place = Place::new();
    let banks = "bank: words\nkind: text\nfile: words.txt\n---\nrule: \"\"\nwhen: {text: {in: [text], any_of: [a b]}}\n\
        ---\nrule: r\nwhen: 5\n";
    write(&place, "documents/all.yaml", DOCUMENTS);
    write(&place, "documents/banks.yaml", banks);
    write(&place, "documents/words.txt", "moonbag\n");
    let (code, _, stderr) = run_line(&place, "lint documents").await;
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!((code, lines.len()), (Some(1), 3), "{stderr}");
    assert!(lines[0].starts_with("banks.yaml:5: document 2: rule: A key begins with"), "{stderr}");
    assert!(lines[1].starts_with("banks.yaml:8: document 3: when: "), "{stderr}");
}
