//! Tests of the report page: figures computed by hand, escaping, and a page without requests.

use std::{env, fmt::Write as _, fs, process::Command};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tidegate_exporter::report_page::{Page, PageError, PageOptions, build_page};
use tidegate_test_support::servers;

use crate::support::{Conversation, Folder, bundle as convert_to_bundle, bundles};

/// Text that would run if it became markup, in a page, in an attribute or in a script.
const HOSTILE: &str =
    "</script></style><img src=x onerror=\"document.documentElement.dataset.hostile=1\">'\"<!--<script>";

fn page_with(bundle: &Value, options: &PageOptions) -> Page {
    build_page(&mut bundle.to_string().as_bytes(), options).unwrap()
}

fn page(bundle: &Value) -> String {
    page_with(bundle, &PageOptions::default()).html
}

/// Text of the page as a reader sees it, with a space for each tag. Scripts and styles are omitted.
fn visible_text(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        text.push(' ');
        let skipped_end = ["script", "style"].into_iter().find(|name| tag.starts_with(name));
        rest = match skipped_end {
            Some(name) => tag.split_once(&format!("</{name}>")).unwrap().1,
            None => tag.split_once('>').unwrap().1,
        };
    }
    text.push_str(rest);
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace(" ,", ",")
}

/// Part of the text from one heading to the next.
fn section<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let (_, after) = text.split_once(from).unwrap_or_else(|| panic!("{from} is not in {text}"));
    after.split_once(to).unwrap_or_else(|| panic!("{to} is not in {after}")).0
}

fn chart_data(html: &str) -> Value {
    let (_, after) = html.split_once("<script type=\"application/json\" id=\"report-data\">").unwrap();
    serde_json::from_str(after.split_once("</script>").unwrap().0).unwrap()
}

/// Bundle with the phases and items, and a response for each `(phase, item, participant, answer, time)`.
fn bundle_of(
    phases: &[(&str, &str)],
    items: Vec<Value>,
    responses: &[(&str, String, u32, &str, &str)],
) -> Value {
    let mut bundle = bundles::bundle();
    let phases =
        phases.iter().map(|(id, kind)| json!({ "id": id, "type": kind, "title": "", "status": "active" }));
    bundle["phases"] = phases.collect();
    bundle["items"] = items.into();
    let responses = responses.iter().enumerate().map(|(index, (phase, item, participant, answer, time))| {
        json!({ "id": format!("r:{index}"), "phaseId": phase, "subjectRef": item,
            "participantRef": format!("participant:{participant:032x}"), "response": answer, "count": 1,
            "occurredAt": time })
    });
    bundle["responses"] = responses.collect();
    bundle["outcomes"] = json!([]);
    bundle
}

fn item(id: &str, kind: &str, phase: &str, text: &str) -> Value {
    json!({ "id": id, "phaseId": phase, "type": kind, "text": text, "status": "approved",
        "origin": "participant", "createdAt": null })
}

/// Votes of 20 and of 10 participants. The two groups disagree on each of 10 statements.
fn two_camps() -> Value {
    let items = (0..10)
        .map(|number| item(&format!("statement:{number}"), "statement", "p", &format!("Text {number}")));
    let mut responses = Vec::new();
    for participant in 0..30 {
        for number in (0..10).filter(|number| *number != participant % 10) {
            let answer = if (participant < 20) == (number % 2 == 0) { "agree" } else { "disagree" };
            responses.push(("p", format!("statement:{number}"), participant, answer, "2024-05-06T07:08:09Z"));
        }
    }
    bundle_of(&[("p", "opinion")], items.collect(), &responses)
}

#[test]
fn figures_of_a_small_bundle_are_those_computed_by_hand() {
    let text = visible_text(&page(&bundles::bundle()));
    assert!(
        text.starts_with("Trees Report on a data bundle Trees From Polis, exported 2024-05-06T07:08:09.123Z"),
        "{text}"
    );
    let totals = section(&text, "Totals", "Data card");
    assert_eq!(
        totals.trim(),
        "Participants 2 Items 5 Answers 5 Coverage 60 % of the possible answers Phases 2"
    );
    let card = section(&text, "Data card", "Participation over time");
    assert!(card.contains("not suitable for public sharing"), "{card}");
    assert!(card.contains("Answers of one participant are linked by a pseudonym."), "{card}");
    // Three answers at 7 o'clock and two comparisons without a time.
    let participation = section(&text, "Participation over time", "Opinion map");
    assert!(participation.contains("2 answers without a time are not in the chart."), "{participation}");
    assert!(participation.ends_with("2024-05-06 07:00 3 2 "), "{participation}");
    let agreed = section(&text, "Most agreed items", "Agreement by phase and item");
    assert!(agreed.contains("More trees. Trees 1 agree (50 %), 0 disagree, 1 pass (50 %)"), "{agreed}");
    assert!(!text.contains("Most divisive items"), "no item has both answers: {text}");
    let phases = section(&text, "Agreement by phase and item", "Origin");
    let (opinion, comparison) = phases.split_once("Rank").unwrap();
    assert!(opinion.contains("Type opinion, status completed, 3 answers, 2 participants 1 agree (33 %), 1 disagree (33 %), 1 pass (33 %)"), "{opinion}");
    assert!(
        opinion.contains("More trees. pending, organizer, statement:2 0 agree, 1 disagree (100 %), 0 pass"),
        "{opinion}"
    );
    assert!(
        comparison.contains("option:1 1 preferred (50 %), 0 not preferred, 1 equal (50 %), 0 pass"),
        "{comparison}"
    );
    assert!(
        comparison.contains("option:2 0 preferred, 1 not preferred (50 %), 1 equal (50 %), 0 pass"),
        "{comparison}"
    );
    assert!(comparison.contains("1 item has no answers in this phase."), "{comparison}");
    let origin = section(&text, "Origin", "Notes of the conversion");
    assert!(origin.contains("votes.csv votes – –") && origin.contains("relative-ranking 1"), "{origin}");
}

#[test]
fn decisions_and_overturn_rates_are_counted_by_policy() {
    let claim = |number: u32, policy: &str| format!("claim:post:{number:032x}:{policy}");
    let spam: Vec<_> = (0..4).map(|number| claim(number, "spam")).collect();
    let hate = claim(9, "hate:severe");
    let mut items: Vec<_> =
        spam.iter().chain([&hate]).map(|id| item(id, "moderation-claim", "phase-report", "")).collect();
    items.push(item("policy:spam", "policy", "phase-policy", "Spam & scams"));
    let at = "2026-05-06T07:08:09Z";
    let mut responses = vec![
        ("phase-report", spam[0].clone(), 1, "agree", at),
        ("phase-report", spam[0].clone(), 2, "agree", at),
        ("phase-report", hate.clone(), 1, "agree", at),
        ("phase-review", spam[3].clone(), 50, "disagree", at),
        ("phase-review", hate.clone(), 50, "pass", at),
    ];
    for claim in &spam[..3] {
        responses.push(("phase-review", claim.clone(), 50, "agree", at));
        responses.push(("phase-appeal", claim.clone(), 70, "disagree", at));
    }
    responses.push(("phase-appeal-review", spam[0].clone(), 51, "disagree", at));
    responses.push(("phase-appeal-review", spam[1].clone(), 51, "agree", at));
    responses.push(("phase-appeal-review", spam[2].clone(), 51, "agree", at));
    let phases =
        ["report", "review", "appeal", "appeal-review", "policy"].map(|kind| (format!("phase-{kind}"), kind));
    let phases = phases.each_ref().map(|(id, kind)| (id.as_str(), *kind));
    let mut bundle = bundle_of(&phases, items, &responses);
    bundle["outcomes"] = json!([
        { "id": "d:1", "phaseId": "phase-review", "type": "moderation-decision", "itemRef": spam[0], "latencyMs": 5 },
        { "id": "d:2", "phaseId": "phase-appeal-review", "type": "moderation-decision", "itemRef": spam[0] },
        { "id": "d:3", "phaseId": "phase-review", "type": "moderation-decision", "itemRef": hate },
    ]);
    let text = visible_text(&page(&bundle));
    let policies = section(&text, "Decisions by policy", "Most agreed items");
    assert!(
        policies.contains(
            "3 decisions on claims are recorded. Of 3 answered appeals, 1 reversed the decision (33 %)."
        ),
        "{policies}"
    );
    // Overturn rate, claims, reports, violation, no violation, left open, appeals, upheld, overturned.
    assert!(
        policies.contains("Spam &amp; scams 33 % 4 2 3 1 0 3 2 1 hate:severe – 1 1 0 0 1 0 0 0"),
        "{policies}"
    );
    assert!(policies.contains("All policies 33 % 5 3 3 1 1 3 2 1"), "{policies}");
    assert!(!text.contains("Opinion map"), "{text}");
    // Without texts, items are shown by their ids.
    assert!(section(&text, "Most agreed items", "Agreement by phase").contains(&spam[0]), "{text}");
}

#[test]
fn two_clear_clusters_are_two_groups_on_the_map() {
    let html = page(&two_camps());
    let text = visible_text(&html);
    assert!(
        text.contains("The map shows 30 participants and their votes on 10 statements, in 2 groups."),
        "{text}"
    );
    let group_a = section(&text, "Group A 20 participants, 67 %", "Group B 10 participants, 33 %");
    assert!(
        group_a.contains(
            "Text 0 The group agrees 18 agree (100 %), 0 disagree, 0 pass 0 agree, 9 disagree (100 %), 0 pass"
        ),
        "{group_a}"
    );
    let data = chart_data(&html);
    let sizes: Vec<_> = data["map"]["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["points"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [20, 10]);
    let sides = |group: usize| {
        let points = data["map"]["groups"][group]["points"].as_array().unwrap().iter();
        points.map(|point| point[0].as_f64().unwrap() > 0.0).collect::<Vec<_>>()
    };
    assert!(
        sides(0).iter().all(|side| *side == sides(0)[0]) && sides(1).iter().all(|side| *side != sides(0)[0])
    );
    // The last of several answers counts, and rejected statements do not.
    let mut changed = two_camps();
    let mut repeated = changed["responses"].as_array().unwrap().clone();
    for response in &mut repeated {
        response["response"] = json!("pass");
    }
    repeated.extend(changed["responses"].as_array().unwrap().clone());
    changed["responses"] = repeated.into();
    assert_eq!(chart_data(&page(&changed))["map"], data["map"]);
    changed["items"][9]["status"] = json!("rejected");
    assert!(visible_text(&page(&changed)).contains("their votes on 9 statements"));
}

#[test]
fn too_many_votes_leave_the_map_out() {
    let bundle = two_camps();
    let limit = |max_map_votes: usize| PageOptions { max_map_votes, ..PageOptions::default() };
    assert!(page_with(&bundle, &limit(270)).html.contains("id=\"map-chart\""));
    let text = page_with(&bundle, &limit(269)).html;
    assert!(
        !text.contains("id=\"map-chart\"") && text.contains("more votes than an opinion map keeps in memory")
    );
}

#[test]
fn counts_of_a_public_bundle_need_no_participants() {
    let mut bundle = bundles::shared();
    bundle["outcomes"][0]["suppressed"] = json!(["pass"]);
    let text = visible_text(&page(&bundle));
    assert!(text.contains("Participants 14 according to the summary"), "{text}");
    assert!(text.contains("Answers 14 in 3 rows") && text.contains("suitable for public sharing."), "{text}");
    assert!(text.contains("statement:1 approved, participant, 1 count hidden"), "{text}");
    assert!(text.contains("4 agree (57 %), 3 disagree (43 %), 0 pass"), "{text}");
    assert!(text.contains("Answers per day") && !text.contains("Opinion map"), "{text}");
    bundle["summary"]["participants"] = json!(0);
    bundle["summary"]["coverage"] = json!(0);
    assert!(visible_text(&page(&bundle)).contains("Participants – not stated Items 5"));
}

/// Replaces each string, except those that select how it is read.
fn with_hostile_texts(value: &mut Value, name: &str) {
    let is_kept =
        ["response", "schema", "kind", "occurredAt", "participantRef", "phaseId", "subjectRef", "objectRef"]
            .contains(&name);
    match value {
        Value::String(text) if !is_kept => {
            // Ids and types keep their meaning before the hostile part.
            let start = if ["id", "itemRef", "type"].contains(&name) { text.as_str() } else { "" };
            *text = format!("{start}{HOSTILE}");
        }
        Value::Array(values) => values.iter_mut().for_each(|value| with_hostile_texts(value, name)),
        Value::Object(members) => {
            members.iter_mut().for_each(|(name, value)| with_hostile_texts(value, name));
        }
        _ => {}
    }
}

/// Bundle with a map, claims, comparisons and hostile texts in all fields.
fn hostile_bundle() -> Value {
    let mut bundle = two_camps();
    bundle["provenance"]["notes"] = json!(["", ""]);
    bundle["dataCard"]["limitations"] = json!([""]);
    bundle["outcomes"] = json!([{ "id": "o", "phaseId": "p", "type": "counts", "itemRef": "statement:1" }]);
    bundle["items"].as_array_mut().unwrap().push(item("claim:a:b:c", "moderation-claim", "p", ""));
    let phase_type = bundle["phases"][0]["type"].clone();
    with_hostile_texts(&mut bundle, "");
    bundle["phases"][0]["type"] = phase_type;
    bundle["phases"][0]["id"] = json!("p");
    for (number, item) in bundle["items"].as_array_mut().unwrap().iter_mut().enumerate().take(10) {
        item["id"] = json!(format!("statement:{number}"));
    }
    bundle["items"][10]["type"] = json!("moderation-claim");
    bundle
}

#[test]
fn hostile_texts_are_shown_and_never_become_markup() {
    let html = page(&hostile_bundle());
    for markup in ["<img", "onerror=\"", "<!--", "</script></style>"] {
        assert!(!html.contains(markup), "{markup} is in the page");
    }
    assert_eq!(html.matches("<script").count(), 2);
    assert_eq!(html.matches("</script").count(), 2);
    assert_eq!(html.matches("<style").count(), 1);
    // Title, description, tool, data card, limitation, notes, file, group statements, items, policy.
    let escaped_count = html.matches("&lt;img src=x onerror=&quot;").count();
    assert!(escaped_count > 30, "{escaped_count}");
    assert!(chart_data(&html)["map"]["groups"].is_array());
}

#[test]
fn page_requests_nothing() {
    let html = page(&two_camps());
    for markup in [" src=", " href=", "url(", "@import", "<link", "<iframe", "<base", "<form", " style="] {
        assert!(!html.contains(markup), "{markup} is in the page");
    }
    for request in ["fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon", "EventSource", "import("] {
        assert!(!html.contains(request), "{request} is in the page");
    }
    // The remaining addresses are the name of the library's licence comment, and texts of the bundle.
    let addresses: Vec<_> = html
        .match_indices("http")
        .map(|(at, _)| html[at..].split(['<', ' ', '"', '\n']).next().unwrap())
        .filter(|address| address.contains("://"))
        .collect();
    assert_eq!(
        addresses,
        [
            "https://example.org/1",
            "https://tidegate.example/schemas/data-bundle/v1.json",
            "https://github.com/leeoniya/uPlot"
        ]
    );
    let policy = section(&html, "http-equiv=\"Content-Security-Policy\" content=\"", "\">");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'sha256-") && !policy.contains("unsafe"),
        "{policy}"
    );
    for (start, end) in [("<script>", "</script>"), ("<style>", "</style>")] {
        let digest = STANDARD.encode(Sha256::digest(section(&html, start, end)));
        assert!(policy.contains(&format!("'sha256-{digest}'")), "{start}: {policy}");
    }
    assert!(html.contains("Copyright (c) 2022 Leon Sorokin"), "the licence of the library is missing");
}

#[test]
fn equal_bundles_give_equal_pages_in_any_order_of_members() {
    let bundle = two_camps();
    let first = page(&bundle);
    assert!(first == page(&bundle));
    for seed in 0..6 {
        let shuffled = bundles::shuffled(&bundle, seed);
        let other = build_page(&mut shuffled.as_bytes(), &PageOptions::default()).unwrap().html;
        assert_eq!(visible_text(&other), visible_text(&first), "{shuffled}");
    }
    let folder = Folder::new();
    let conversation = Conversation::new(41, 10, 30);
    let converted = convert_to_bundle(&folder.job(&conversation.variant_a(&folder, "a"))).1;
    assert!(page(&converted) == page(&converted));
}

#[test]
fn items_above_the_limit_are_counted() {
    let options = PageOptions { max_items: 3, ..PageOptions::default() };
    let text = visible_text(&page_with(&two_camps(), &options).html);
    assert!(text.contains("7 more items with fewer answers: --items lists more."), "{text}");
}

#[test]
fn documents_without_a_bundle_have_no_page() {
    let build = |text: &str| build_page(&mut text.as_bytes(), &PageOptions::default());
    let complete = two_camps().to_string();
    let error = build(&complete[..complete.len() / 2]).unwrap_err();
    assert!(error.to_string().contains("BND-LEX-02"), "{error}");
    assert!(matches!(build("{}"), Err(PageError::NotABundle)));
    assert!(build("[]").unwrap_err().to_string().contains("not a JSON object"));
    assert!(build("").is_err() && build("nonsense").is_err());
    // A document that violates the schema has a page with a warning.
    let page = build("{\"kind\": 1, \"responses\": [{}, 3], \"items\": [{\"id\": \"a\"}]}").unwrap();
    assert!(page.findings > 0 && page.html.contains("The bundle is not valid"));
}

#[test]
fn page_appears_under_its_name_only_when_complete() {
    let folder = Folder::new();
    let page = page_with(&two_camps(), &PageOptions::default());
    page.save(&folder.path("report.html")).unwrap();
    assert_eq!(folder.names(), ["report.html"]);
    assert!(fs::read_to_string(folder.path("report.html")).unwrap() == page.html);
    assert!(page.save(&folder.path("absent/report.html")).unwrap_err().to_string().contains("report.html"));
    // A folder cannot be replaced by a file; the temporary file is removed.
    fs::create_dir_all(folder.path("taken/inside")).unwrap();
    assert!(page.save(&folder.path("taken")).is_err());
    assert_eq!(folder.names(), ["report.html", "taken"]);
}

/// Runs the page in a browser and returns its document, with messages of the console.
fn open_in_browser(browser: &str, folder: &Folder, bundle: &Value) -> (String, String) {
    let path = folder.write("report.html", page(bundle));
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"])
        .args(["--enable-logging=stderr", "--window-size=390,844"])
        .arg(format!("--user-data-dir={}", folder.path("profile").display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{messages}");
    let mut console = String::new();
    for line in messages.lines().filter(|line| line.contains("CONSOLE")) {
        writeln!(console, "{line}").unwrap();
    }
    (String::from_utf8_lossy(&output.stdout).into_owned(), console)
}

#[test]
fn browser_draws_the_charts_and_runs_no_hostile_text() {
    let browser = env::var("TIDEGATE_TEST_CHROMIUM").unwrap_or_default();
    if browser.is_empty() {
        servers::skipped("the report page in a browser", "TIDEGATE_TEST_CHROMIUM is not set");
        return;
    }
    let (dom, console) = open_in_browser(&browser, &Folder::new(), &hostile_bundle());
    assert_eq!(console, "");
    let root = dom.split_once("<head>").unwrap().0;
    assert!(root.contains("data-charts=\"3\"") && !root.contains("data-hostile"), "{root}");
    assert_eq!(dom.matches("<canvas").count(), 3);
}
