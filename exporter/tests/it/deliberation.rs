//! Tests of bundles of the service's own moderation.

#![allow(clippy::needless_pass_by_value, reason = "columns of rows are written as literals")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
};

use serde_json::{Value, json};
use tidegate_exporter::{
    convert::{Job, Report, Sidecar, Target},
    deliberation::{HistoryFolder, Line, LineSource, Policy, Snapshot, export_bundle},
    error::ConvertError,
    form::{Naming, schema},
    meter::Meter,
    privacy::{Key, Profile},
    timestamp::Timestamp,
};
use tidegate_history::{ColumnType, Dataset};

use crate::support::{Folder, assert_valid};

const ORG: &str = "acme";

/// Rows in memory.
#[derive(Clone, Default)]
struct History(Vec<(Dataset, String)>);

impl LineSource for History {
    fn read_lines(
        &mut self,
        dataset: Dataset,
        on_line: &mut dyn FnMut(Line<'_>) -> Result<(), ConvertError>,
    ) -> Result<(), ConvertError> {
        let lines = self.0.iter().filter(|(line_dataset, _)| *line_dataset == dataset);
        for (at, (_, text)) in lines.enumerate() {
            on_line(Line { text: text.as_bytes(), source: dataset.as_str(), number: at as u64 + 1 })?;
        }
        Ok(())
    }
}

/// Time of a minute in the period.
fn minute(at: i64) -> String {
    Timestamp { millis: 1_793_491_200_000 + at * 60_000, has_millis: true }.to_string()
}

fn november() -> Snapshot {
    let parse = |text| Timestamp::parse(text).unwrap();
    Snapshot { since: parse("2026-11-01T00:00:00Z"), until: parse("2026-12-01T00:00:00Z") }
}

impl History {
    /// Adds a row with the given columns; the others are null, empty or false.
    fn add(&mut self, dataset: Dataset, columns: Value) {
        let mut members = Vec::new();
        for column in dataset.columns() {
            let value = columns.get(column.name).cloned().unwrap_or_else(|| match column.column_type {
                _ if column.is_nullable => Value::Null,
                ColumnType::Texts | ColumnType::Structs(_) => json!([]),
                ColumnType::Boolean => json!(false),
                ColumnType::Integer => json!(0),
                ColumnType::Text | ColumnType::Time => json!(""),
            });
            members.push(format!("{}:{value}", json!(column.name)));
        }
        for name in columns.as_object().unwrap().keys() {
            assert!(dataset.columns().iter().any(|column| column.name == name), "{name}");
        }
        self.0.push((dataset, format!("{{{}}}", members.join(","))));
    }

    fn report(
        &mut self,
        id: &str,
        item: &str,
        user: &str,
        policy: Option<&str>,
        at: i64,
        child_safety: bool,
    ) {
        self.add(
            Dataset::Reports,
            json!({ "reportId": id, "recordedAt": minute(at), "reportedAt": minute(at), "receivedAt": minute(at),
                "itemTypeId": "post", "itemId": item, "reporterTypeId": "user", "reporterId": user,
                "policyId": policy, "reason": "a-free-text-reason", "jobId": format!("job-{item}"),
                "childSafety": child_safety }),
        );
    }

    fn decision(&mut self, id: &str, class: Option<&str>, item: &str, by: &str, at: i64, others: Value) {
        let mut columns = json!({ "decisionId": id, "recordedAt": minute(at + 1), "decidedAt": minute(at),
            "source": if class.is_some() { "moderator" } else { "platform" }, "decidedBy": by, "class": class,
            "itemTypeId": "post", "itemId": item, "reason": "a-free-text-reason" });
        columns.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
        self.add(Dataset::Decisions, columns);
    }

    fn appeal(&mut self, id: &str, item: &str, user: &str, policies: &[&str], at: i64, child_safety: bool) {
        self.add(
            Dataset::Appeals,
            json!({ "appealId": id, "recordedAt": minute(at), "appealedAt": minute(at), "receivedAt": minute(at),
                "itemTypeId": "post", "itemId": item, "appealedByTypeId": "user", "appealedById": user,
                "policies": policies, "reason": "a-free-text-reason", "childSafety": child_safety }),
        );
    }

    fn action(&mut self, id: &str, source: &str, item: &str, policies: &[&str], at: i64, child_safety: bool) {
        self.add(
            Dataset::Actions,
            json!({ "eventId": id, "recordedAt": minute(at), "actedAt": minute(at), "source": source,
                "action": "hide", "itemTypeId": "post", "itemId": item, "policies": policies,
                "rules": [{ "rule": "rule-1", "version": "v1" }], "childSafety": child_safety }),
        );
    }
}

fn policies() -> Vec<Policy> {
    let policy = |id: &str, name: &str, parent: Option<&str>| Policy {
        id: id.to_owned(),
        name: name.to_owned(),
        parent_id: parent.map(str::to_owned),
    };
    vec![
        policy("spam", "Spam", None),
        policy("insult", "Insults", Some("abuse")),
        policy("abuse", "Abuse", None),
    ]
}

fn try_export(job: &Job, snapshot: Snapshot, history: &History) -> Result<Report, ConvertError> {
    let meter = Arc::new(Meter::default());
    export_bundle(job, ORG, snapshot, &policies(), &mut history.clone(), &meter)
}

/// Exports, validates at the highest level and against the published schema, and parses the bundle.
fn export_period(job: &Job, snapshot: Snapshot, history: &History) -> (Report, Value, Vec<u8>) {
    let report = try_export(job, snapshot, history).unwrap_or_else(|error| panic!("{error}"));
    let Target::File(path) = &job.target else { panic!("no file") };
    read_valid_bundle(path, job, report)
}

fn read_valid_bundle(path: &Path, job: &Job, report: Report) -> (Report, Value, Vec<u8>) {
    assert_valid(path, job);
    let bytes = fs::read(path).unwrap();
    let bundle: Value = serde_json::from_slice(&bytes).unwrap();
    let schema: Value = serde_json::from_str(&schema::text(Naming::Service, None)).unwrap();
    let oracle = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    let violations: Vec<_> = oracle.iter_errors(&bundle).map(|error| error.to_string()).collect();
    assert!(violations.is_empty(), "{violations:?}");
    (report, bundle, bytes)
}

fn export(job: &Job, history: &History) -> (Report, Value, Vec<u8>) {
    export_period(job, november(), history)
}

fn new_job(folder: &Folder) -> Job {
    Job { inputs: Vec::new(), ..folder.job(Path::new("unused")) }
}

fn public_job(folder: &Folder, k: u64) -> Job {
    Job { profile: Profile::Public, k, ..new_job(folder) }
}

/// History with every kind of row. The counts of its bundle are in `small_history_gives_counts_by_hand`.
fn small_history() -> History {
    let mut history = History::default();
    history.report("r1", "p1", "u1", Some("spam"), 600, false);
    history.report("r2", "p1", "u2", Some("spam"), 601, false);
    // Replaces the first report.
    history.report("r3", "p1", "u1", Some("spam"), 605, false);
    history.report("r4", "p2", "u1", None, 606, false);
    history.report("r5", "p3", "u9", Some("abuse"), 607, true);
    // Recorded at the end of the period.
    history.report("r6", "p2", "u7", Some("spam"), 30 * 24 * 60, false);
    history.action("a1", "rule", "p4", &["abuse"], 540, false);
    history.action("a2", "moderator", "p1", &["spam"], 661, false);
    history.action("a3", "threshold", "u2", &[], 661, false);
    let review = Some("review");
    let created_at = minute(600);
    history.decision(
        "d1",
        review,
        "p1",
        "m1",
        660,
        json!({ "verdict": "act", "jobCreatedAt": created_at, "actions": ["hide", "warn"], "policies": ["spam"],
            "reviewedPolicies": ["spam", "abuse"] }),
    );
    history.decision("d2", review, "p2", "m2", 670, json!({ "verdict": "ignore" }));
    history.decision("d3", None, "p5", "bot", 680, json!({ "verdict": "act", "policies": ["insult"] }));
    history.appeal("ap1", "p1", "u3", &["spam"], 720, false);
    history.decision(
        "d4",
        Some("appeal"),
        "p1",
        "m2",
        780,
        json!({ "verdict": "accept", "appealId": "ap1", "reviewedPolicies": ["spam"] }),
    );
    history.decision(
        "d5",
        Some("child_safety"),
        "p3",
        "m3",
        790,
        json!({ "verdict": "act", "policies": ["abuse"], "childSafety": true }),
    );
    history.decision(
        "d6",
        review,
        "p4",
        "m1",
        800,
        json!({ "verdict": "act", "reviewedPolicies": ["abuse"], "actions": ["review-again"] }),
    );
    history
}

/// Lists entries with the same shape, with pseudonyms left out, so that they can be compared with a model.
fn summaries(bundle: &Value, list: &str, shape: impl Fn(&Value) -> String) -> Vec<String> {
    let mut entries: Vec<_> = bundle[list].as_array().unwrap().iter().map(shape).collect();
    entries.sort();
    entries
}

fn policy_of_claim(id: &Value) -> &str {
    id.as_str().unwrap().rsplit(':').next().unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn small_history_gives_counts_by_hand() {
    let folder = Folder::new();
    let (report, bundle, _) = export(&new_job(&folder), &small_history());
    assert_eq!((report.items, report.responses, report.participants), (8, 9, 5));
    assert_eq!((report.superseded, report.format), (Some(1), "moderation"));
    assert_eq!(bundle["summary"], json!({ "participants": 5, "items": 8, "responses": 9, "coverage": 0.0 }));
    let items = summaries(&bundle, "items", |item| {
        format!(
            "{} {} {} {} {}",
            text(&item["type"]),
            policy_of_claim(&item["id"]),
            text(&item["origin"]),
            text(&item["status"]),
            text(&item["phaseId"])
        )
    });
    assert_eq!(
        items,
        [
            "moderation-claim abuse model actioned phase-review",
            "moderation-claim abuse organizer open phase-review",
            "moderation-claim insult organizer actioned phase-review",
            "moderation-claim spam participant overturned phase-report",
            "moderation-claim unspecified participant dismissed phase-report",
            "policy abuse organizer active phase-policy",
            "policy insult organizer active phase-policy",
            "policy spam organizer active phase-policy",
        ]
    );
    let responses = summaries(&bundle, "responses", |response| {
        format!(
            "{} {} {} {}",
            text(&response["phaseId"]),
            policy_of_claim(&response["subjectRef"]),
            text(&response["response"]),
            text(&response["occurredAt"])
        )
    });
    assert_eq!(
        responses,
        [
            "phase-appeal spam disagree 2026-11-01T12:00:00.000Z",
            "phase-appeal-review spam disagree 2026-11-01T13:00:00.000Z",
            "phase-report spam agree 2026-11-01T10:01:00.000Z",
            "phase-report spam agree 2026-11-01T10:05:00.000Z",
            "phase-report unspecified agree 2026-11-01T10:06:00.000Z",
            "phase-review abuse agree 2026-11-01T13:20:00.000Z",
            "phase-review abuse pass 2026-11-01T11:00:00.000Z",
            "phase-review spam agree 2026-11-01T11:00:00.000Z",
            "phase-review unspecified disagree 2026-11-01T11:10:00.000Z",
        ]
    );
    let decisions = summaries(&bundle, "outcomes", |outcome| {
        let policy = policy_of_claim(&outcome["itemRef"]);
        match text(&outcome["type"]) {
            "policy-parent" => format!("parent {policy} {}", text(&outcome["parentId"])),
            "response-counts" => {
                format!("counts {policy} {} {}", text(&outcome["phaseId"]), outcome["counts"])
            }
            _ => format!(
                "decision {policy} {} {} {} {} {} {} {}",
                text(&outcome["phaseId"]),
                text(&outcome["verdict"]),
                text(&outcome["response"]),
                outcome["actionIds"],
                outcome["policyIds"],
                text(&outcome["decidedAt"]),
                outcome["latencyMs"]
            ),
        }
    });
    let counts = |agree: u64, disagree: u64, pass: u64| {
        json!({ "agree": agree, "disagree": disagree, "pass": pass }).to_string()
    };
    let mut expected = vec![
        "parent insult abuse".to_owned(),
        format!("counts spam phase-report {}", counts(2, 0, 0)),
        format!("counts unspecified phase-report {}", counts(1, 0, 0)),
        format!("counts spam phase-review {}", counts(1, 0, 0)),
        format!("counts abuse phase-review {}", counts(0, 0, 1)),
        format!("counts abuse phase-review {}", counts(1, 0, 0)),
        format!("counts unspecified phase-review {}", counts(0, 1, 0)),
        format!("counts spam phase-appeal {}", counts(0, 1, 0)),
        format!("counts spam phase-appeal-review {}", counts(0, 1, 0)),
    ];
    expected.extend(
        [
            r#"spam phase-review act agree ["hide","warn"] ["spam"] 2026-11-01T11:00:00.000Z 3600000"#,
            r#"abuse phase-review act pass ["hide","warn"] ["spam"] 2026-11-01T11:00:00.000Z 3600000"#,
            r"unspecified phase-review ignore disagree [] [] 2026-11-01T11:10:00.000Z null",
            r#"insult phase-review act agree [] ["insult"] 2026-11-01T11:20:00.000Z null"#,
            r"spam phase-appeal-review accept disagree [] [] 2026-11-01T13:00:00.000Z null",
            r#"abuse phase-review act agree ["review-again"] [] 2026-11-01T13:20:00.000Z null"#,
        ]
        .map(|decision| format!("decision {decision}")),
    );
    expected.sort();
    assert_eq!(decisions, expected);
    let phases = bundle["phases"].as_array().unwrap().iter().map(|phase| text(&phase["type"]));
    assert_eq!(phases.collect::<Vec<_>>(), ["report", "review", "appeal", "appeal-review", "policy"]);
    let rows = bundle["provenance"]["sourceArtifacts"].as_array().unwrap().iter();
    let rows: Vec<_> =
        rows.map(|artifact| (text(&artifact["name"]), artifact["rows"].as_u64().unwrap())).collect();
    assert_eq!(rows, [("reports", 4), ("decisions", 5), ("appeals", 1), ("actions", 1)]);
    let card = &bundle["dataCard"];
    assert_eq!(
        (&card["containsPseudonymousLinkage"], &card["containsParticipantFreeText"]),
        (&true.into(), &false.into())
    );
    assert!(text(&card["limitations"][1]).contains("child safety"), "{card}");
    assert!(
        text(&bundle["bundleId"]).starts_with("tidegate:acme:2026-11-01T00:00:00Z..2026-12-01T00:00:00Z:")
    );
}

#[test]
fn bundle_contains_no_raw_ids_and_no_reasons() {
    let mut history = History::default();
    history.report("report-7001", "item-7002", "user-7003", Some("spam"), 10, false);
    let columns = json!({ "verdict": "act", "policies": ["spam"], "reviewedPolicies": ["spam"], "jobId": "job-7004",
        "related": [{ "itemTypeId": "post", "itemId": "item-7005", "action": "hide" }] });
    history.decision("decision-7006", Some("review"), "item-7002", "moderator-7007", 20, columns);
    history.appeal("appeal-7008", "item-7002", "user-7009", &["spam"], 30, false);
    history.action("event-7010", "rule", "item-7011", &["abuse"], 40, false);
    // Columns that a later version may add are not read.
    for (_, line) in &mut history.0 {
        line.truncate(line.len() - 1);
        line.push_str(r#","media":"https://media.example/7012","data":"payload-7013"}"#);
    }
    let folder = Folder::new();
    for job in [new_job(&folder), public_job(&folder, 3)] {
        let job = Job { sidecars: Some(vec![Sidecar::Ndjson]), ..job };
        export(&job, &history);
        for name in folder.names() {
            let text = fs::read_to_string(folder.path(&name)).unwrap();
            for number in 7001..=7013 {
                assert!(!text.contains(&number.to_string()), "{name}: {number}");
            }
            assert!(!text.contains("a-free-text-reason") && !text.contains("media.example"), "{name}");
        }
    }
}

#[test]
fn child_safety_rows_leave_no_trace() {
    let folder = Folder::new();
    let mut history = small_history();
    history.0.retain(|(_, line)| !line.contains(r#""childSafety":true"#));
    let job = new_job(&folder);
    let (_, _, without_rows) = export(&job, &history);
    history.report("c1", "p1", "u8", Some("spam"), 601, true);
    history.appeal("c2", "p1", "u8", &["spam"], 602, true);
    history.action("c3", "rule", "p1", &["spam"], 603, true);
    let decision = json!({ "verdict": "act", "policies": ["spam"], "childSafety": true });
    history.decision("c4", Some("review"), "p1", "m9", 604, decision);
    let unmarked_decision = json!({ "verdict": "act", "policies": ["spam"] });
    history.decision("c5", Some("child_safety"), "p1", "m9", 605, unmarked_decision);
    let (_, _, with_rows) = export(&job, &history);
    assert!(without_rows == with_rows, "no byte depends on rows about child safety");
}

#[test]
fn users_and_moderators_have_separate_pseudonyms() {
    let folder = Folder::new();
    let mut history = History::default();
    history.report("r1", "p1", "same", Some("spam"), 10, false);
    history.appeal("ap1", "p1", "same", &["spam"], 20, false);
    let decision = json!({ "verdict": "act", "policies": ["spam"], "reviewedPolicies": ["spam"] });
    history.decision("d1", Some("review"), "p1", "same", 30, decision.clone());
    history.decision("d2", Some("review"), "p2", "user\0same", 30, decision);
    let (report, bundle, _) = export(&new_job(&folder), &history);
    assert_eq!(report.participants, 3);
    let refs_of = |phase: &str| -> BTreeSet<_> {
        let responses = bundle["responses"].as_array().unwrap().iter();
        responses
            .filter(|response| response["phaseId"] == phase)
            .map(|response| text(&response["participantRef"]).to_owned())
            .collect()
    };
    assert_eq!(refs_of("phase-report"), refs_of("phase-appeal"));
    assert!(refs_of("phase-report").is_disjoint(&refs_of("phase-review")));
}

#[test]
fn linkage_key_links_months_of_one_org_only() {
    let folder = Folder::new();
    let mut history = History::default();
    history.report("r1", "p1", "u1", Some("spam"), 10, false);
    history.report("r2", "p1", "u1", Some("spam"), 31 * 24 * 60, false);
    let december =
        Snapshot { since: november().until, until: Timestamp::parse("2027-01-01T00:00:00Z").unwrap() };
    let job = new_job(&folder);
    let refs = |job: &Job, org: &str, snapshot| {
        export_bundle(job, org, snapshot, &[], &mut history.clone(), &Arc::new(Meter::default())).unwrap();
        let bundle: Value = serde_json::from_slice(&fs::read(folder.path("bundle.json")).unwrap()).unwrap();
        let response = &bundle["responses"][0];
        [text(&response["participantRef"]).to_owned(), text(&response["subjectRef"]).to_owned()]
    };
    let first = refs(&job, ORG, november());
    assert_eq!(first, refs(&job, ORG, december));
    let other_refs = [
        refs(&job, "other", november()),
        refs(&Job { key: None, ..job.clone() }, ORG, november()),
        refs(&Job { key: Key::from_bytes(vec![9; 32]), ..job }, ORG, november()),
    ];
    for other in other_refs {
        assert!(first[0] != other[0] && first[1] != other[1]);
    }
}

#[test]
fn history_without_rows_gives_a_valid_bundle() {
    let folder = Folder::new();
    for job in [new_job(&folder), public_job(&folder, 5)] {
        let (report, bundle, _) = export(&job, &History::default());
        assert_eq!((report.items, report.responses, report.participants), (3, 0, 0));
        assert_eq!(bundle["outcomes"].as_array().unwrap().len(), 1);
        assert_eq!(bundle["dataCard"]["containsParticipantData"], false);
        let meter = Arc::new(Meter::default());
        let report = export_bundle(&job, ORG, november(), &[], &mut History::default(), &meter).unwrap();
        assert_eq!(read_valid_bundle(&folder.path("bundle.json"), &job, report).0.items, 0);
    }
}

#[test]
fn decisions_of_the_platform_alone_are_valid() {
    let (folder, mut history) = (Folder::new(), History::default());
    history.decision("d1", None, "p1", "bot", 10, json!({ "verdict": "act" }));
    history.action("a1", "rule", "p2", &["spam"], 10, false);
    for job in [new_job(&folder), public_job(&folder, 5)] {
        let (report, bundle, _) = export(&job, &history);
        assert_eq!((report.responses, bundle["dataCard"]["containsPseudonymousLinkage"] == false), (0, true));
    }
}

#[test]
fn separators_in_ids_keep_claims_apart() {
    let (folder, mut history) = (Folder::new(), History::default());
    history.report("r1", "p1", "u1", Some("a:b"), 10, false);
    history.report("r2", "p1", "u1", Some("a%3Ab"), 10, false);
    history.report("r3", "p1", "u1", Some("mail jo@town.example \"x\""), 10, false);
    let (_, bundle, _) = export(&new_job(&folder), &history);
    let policies = summaries(&bundle, "items", |item| policy_of_claim(&item["id"]).to_owned());
    assert_eq!(policies[..4], ["a%253Ab", "a%3Ab", "abuse", "insult"]);
    assert_eq!(bundle["dataCard"]["containsDirectIdentifiers"], true);
    export(&public_job(&folder, 3), &history);
}

/// xorshift64*: gives the same sequence for the same seed on every machine.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap() % below
    }

    fn shuffle<T>(&mut self, entries: &mut [T]) {
        for at in (1..entries.len()).rev() {
            entries.swap(at, self.next(at + 1));
        }
    }
}

/// Phase, item, policy and person of an answer, with its time, a tie breaker and its text.
type Answers = BTreeMap<(&'static str, String, String, String), (i64, &'static str)>;

/// Claims and answers, computed without the exporter.
#[derive(Default)]
struct Model {
    answers: Answers,
    claims: BTreeSet<(String, String)>,
    statuses: BTreeMap<(String, String), (i64, &'static str)>,
    decisions: usize,
}

impl Model {
    fn answer(
        &mut self,
        phase: &'static str,
        item: &str,
        policy: &str,
        who: &str,
        at: i64,
        answer: &'static str,
    ) {
        self.claims.insert((item.to_owned(), policy.to_owned()));
        let key = (phase, item.to_owned(), policy.to_owned(), who.to_owned());
        let latest = self.answers.entry(key).or_insert((at, answer));
        if latest.0 <= at {
            *latest = (at, answer);
        }
    }

    fn decide(&mut self, item: &str, policy: &str, at: i64, status: Option<&'static str>) {
        self.decisions += 1;
        self.claims.insert((item.to_owned(), policy.to_owned()));
        let Some(status) = status else { return };
        let latest = self.statuses.entry((item.to_owned(), policy.to_owned())).or_insert((at, status));
        if latest.0 <= at {
            *latest = (at, status);
        }
    }
}

const POLICIES: [&str; 4] = ["abuse", "insult", "spam", "unspecified"];

/// Random history with its model. Times differ, so that the latest answer is unambiguous.
fn random_history(seed: u64, rows: usize) -> (History, Model) {
    let (mut draw, mut history, mut model) = (Draw(seed * 2 + 1), History::default(), Model::default());
    for row in 0..rows {
        let at = row as i64;
        let item = format!("p{}", draw.next(8));
        let user = format!("u{}", draw.next(12));
        let moderator = format!("m{}", draw.next(3));
        let policy = POLICIES[draw.next(4)];
        let named = (policy != "unspecified").then_some(policy);
        let others: BTreeSet<_> = (0..draw.next(3)).map(|_| POLICIES[draw.next(3)]).collect();
        let is_hidden = draw.next(9) == 0;
        let id = format!("row{row}");
        match draw.next(7) {
            0..=2 => {
                history.report(&id, &item, &user, named, at, is_hidden);
                if !is_hidden {
                    model.answer("phase-report", &item, policy, &user, at, "agree");
                }
            }
            3 => {
                history.appeal(&id, &item, &user, named.as_slice(), at, is_hidden);
                if !is_hidden {
                    model.answer("phase-appeal", &item, policy, &user, at, "disagree");
                }
            }
            4 => {
                history.action(
                    &id,
                    ["rule", "moderator"][draw.next(2)],
                    &item,
                    named.as_slice(),
                    at,
                    is_hidden,
                );
                if !is_hidden && history.0.last().unwrap().1.contains(r#""source":"rule""#) {
                    model.claims.insert((item, policy.to_owned()));
                }
            }
            5 => {
                let verdict = ["act", "ignore"][draw.next(2)];
                let violated: Vec<_> = named.filter(|_| verdict == "act").into_iter().collect();
                history.decision(
                    &id,
                    Some("review"),
                    &item,
                    &moderator,
                    at,
                    json!({ "verdict": verdict, "policies": violated, "reviewedPolicies": others,
                        "childSafety": is_hidden }),
                );
                if is_hidden {
                    continue;
                }
                let reviewed: Vec<_> =
                    if others.is_empty() { vec!["unspecified"] } else { others.iter().copied().collect() };
                let answers: Vec<_> = match (verdict, violated.first()) {
                    ("ignore", _) => reviewed.iter().map(|policy| (*policy, "disagree")).collect(),
                    (_, None) => reviewed.iter().map(|policy| (*policy, "agree")).collect(),
                    (_, Some(violated)) => {
                        let passed = others.iter().filter(|policy| *policy != violated);
                        passed.map(|policy| (*policy, "pass")).chain([(*violated, "agree")]).collect()
                    }
                };
                for (policy, answer) in answers {
                    model.answer("phase-review", &item, policy, &moderator, at, answer);
                    let status = match answer {
                        "agree" => Some("actioned"),
                        "disagree" => Some("dismissed"),
                        _ => None,
                    };
                    model.decide(&item, policy, at, status);
                }
            }
            _ => {
                let verdict = ["accept", "reject"][draw.next(2)];
                history.decision(
                    &id,
                    Some("appeal"),
                    &item,
                    &moderator,
                    at,
                    json!({ "verdict": verdict, "reviewedPolicies": named.as_slice(), "childSafety": is_hidden }),
                );
                if !is_hidden {
                    let (answer, status) =
                        if verdict == "accept" { ("disagree", "overturned") } else { ("agree", "actioned") };
                    model.answer("phase-appeal-review", &item, policy, &moderator, at, answer);
                    model.decide(&item, policy, at, Some(status));
                }
            }
        }
    }
    (history, model)
}

#[test]
fn random_histories_agree_with_a_naive_model() {
    let folder = Folder::new();
    for seed in 1..=25 {
        let (history, model) = random_history(seed, 20 + seed as usize * 12);
        let (report, bundle, _) = export(&new_job(&folder), &history);
        let responses = summaries(&bundle, "responses", |response| {
            format!(
                "{} {} {} {}",
                text(&response["phaseId"]),
                policy_of_claim(&response["subjectRef"]),
                text(&response["response"]),
                text(&response["occurredAt"])
            )
        });
        let mut expected: Vec<_> = model
            .answers
            .iter()
            .map(|((phase, _, policy, _), (at, answer))| format!("{phase} {policy} {answer} {}", minute(*at)))
            .collect();
        expected.sort();
        assert_eq!(responses, expected, "seed {seed}");
        let people: BTreeSet<_> = model.answers.keys().map(|(_, _, _, who)| who).collect();
        assert_eq!(report.participants, people.len() as u64);
        let claims = summaries(&bundle, "items", |item| {
            format!("{} {}", policy_of_claim(&item["id"]), text(&item["status"]))
        });
        let status_of = |claim| model.statuses.get(claim).map_or("open", |(_, status)| status);
        let mut expected: Vec<_> =
            model.claims.iter().map(|claim| format!("{} {}", claim.1, status_of(claim))).collect();
        expected.extend(["abuse active", "insult active", "spam active"].map(str::to_owned));
        expected.sort();
        assert_eq!(claims, expected, "seed {seed}");
        let decisions = bundle["outcomes"].as_array().unwrap().iter();
        let decisions = decisions.filter(|outcome| outcome["type"] == "moderation-decision").count();
        assert_eq!(decisions, model.decisions, "seed {seed}");
    }
}

/// Writes the lines into several files and folders of days, with some lines in two files.
fn write_folder(folder: &Folder, name: &str, history: &History, draw: &mut Draw) {
    let endings = ["reports", "decisions", "appeals", "actions"].map(|dataset| {
        let part = |number: usize| match number {
            0 => format!("{name}/{dataset}.ndjson"),
            1 => format!("{name}/{dataset}-part-0002-of-0003.ndjson"),
            _ => format!("{name}/{dataset}/day=2026-11-{number:02}/part-0001-of-0001.ndjson"),
        };
        (dataset, [0, 1, 2, 3].map(part))
    });
    for (dataset, parts) in endings {
        let mut texts = [const { String::new() }; 4];
        for (_, line) in history.0.iter().filter(|(line_dataset, _)| line_dataset.as_str() == dataset) {
            for _ in 0..=usize::from(draw.next(5) == 0) {
                let text = &mut texts[draw.next(4)];
                text.push_str(line);
                text.push('\n');
            }
        }
        for (part, text) in parts.iter().zip(texts) {
            folder.write(part, text);
        }
        folder.write(&format!("{name}/{dataset}/manifest.json"), "{}");
    }
    let policies: Vec<_> = policies()
        .into_iter()
        .map(|policy| json!({ "id": policy.id, "name": policy.name, "parentId": policy.parent_id }))
        .collect();
    folder.write(&format!("{name}/policies.json"), json!(policies).to_string());
}

#[test]
fn order_and_files_of_rows_do_not_change_the_bytes() {
    let folder = Folder::new();
    for seed in 1..=6 {
        let (mut history, _) = random_history(seed, 250);
        // Simultaneous rows, whose order decides between two answers.
        for (at, verdict) in ["act", "ignore", "act"].into_iter().enumerate() {
            let columns = json!({ "verdict": verdict, "reviewedPolicies": ["spam"] });
            history.decision(&format!("tie{at}"), Some("review"), "p1", "m1", 300, columns);
        }
        let (mut draw, job) = (Draw(seed), new_job(&folder));
        let (_, _, expected) = export(&job, &history);
        let public = public_job(&folder, 3);
        let (_, _, expected_public) = export(&public, &history);
        for (threads, memory) in [(1, 0), (2, 1 << 20), (8, 0)] {
            draw.shuffle(&mut history.0);
            let with_options = |job: &Job| {
                let mut job = Job { threads, ..job.clone() };
                job.limits.sort_memory = memory;
                job
            };
            assert!(export(&with_options(&job), &history).2 == expected, "seed {seed}");
            assert!(export(&with_options(&public), &history).2 == expected_public, "seed {seed}");
            let name = format!("events-{seed}-{threads}");
            write_folder(&folder, &name, &history, &mut draw);
            let meter = Arc::new(Meter::default());
            let mut files = HistoryFolder::open(&folder.path(&name), &job.limits, &meter).unwrap();
            let policies = files.policies().unwrap();
            let job = with_options(&job);
            export_bundle(&job, ORG, november(), &policies, &mut files, &meter).unwrap();
            assert!(fs::read(folder.path("bundle.json")).unwrap() == expected, "seed {seed}");
        }
    }
}

#[test]
fn public_counts_of_two_periods_differ_by_multiples_of_k() {
    let folder = Folder::new();
    for (seed, k) in (1..=12).zip([3, 4, 5].into_iter().cycle()) {
        let mut draw = Draw(seed);
        let mut history = History::default();
        for row in 0..400 {
            let (item, user) = (format!("p{}", draw.next(4)), format!("u{}", draw.next(60)));
            history.report(&format!("r{row}"), &item, &user, Some("spam"), row, false);
        }
        let job = public_job(&folder, k);
        let export_until = |minutes: i64| {
            let until = Timestamp::parse(&minute(minutes)).unwrap();
            let (report, bundle, _) = export_period(&job, Snapshot { until, ..november() }, &history);
            let responses = bundle["responses"].as_array().unwrap().iter();
            let counts: BTreeMap<_, _> = responses
                .map(|response| {
                    (text(&response["subjectRef"]).to_owned(), response["count"].as_u64().unwrap())
                })
                .collect();
            assert!(counts.values().all(|count| *count >= k && count % k == 0), "{counts:?}");
            for outcome in bundle["outcomes"].as_array().unwrap() {
                assert_ne!(outcome["type"], "moderation-decision");
            }
            assert!(report.participants.is_multiple_of(k), "{}", report.participants);
            assert_eq!(bundle["dataCard"]["suitableForPublicSharing"], true);
            // Policies without counts stay.
            let policies = bundle["items"].as_array().unwrap().iter();
            assert_eq!(policies.filter(|item| item["type"] == "policy").count(), 3);
            let notes = bundle["provenance"]["notes"].to_string();
            assert!(!notes.contains("were replaced") && !notes.contains("1 item"), "{notes}");
            (counts, report.participants)
        };
        let (mut earlier, mut differences) = (export_until(40), 0);
        for minutes in (41..60).chain([200, 399]) {
            let later = export_until(minutes);
            for (claim, count) in &later.0 {
                let before = earlier.0.get(claim).copied().unwrap_or_default();
                assert!((count - before).is_multiple_of(k), "{claim}: {before} and {count}");
                differences += count - before;
            }
            assert!((later.1 - earlier.1).is_multiple_of(k));
            earlier = later;
        }
        assert!(differences > 0 && earlier.1 > 0);
    }
}

#[test]
fn invalid_rows_are_named_without_their_values() {
    let folder = Folder::new();
    let mut history = small_history();
    let valid_line = history.0[0].1.clone();
    for (line, message) in [
        (
            valid_line.replace(r#""reporterId":"u1","#, ""),
            "reports, row 2: the column reporterId is missing: a line holds a row of `tidegate export reports --format ndjson`",
        ),
        (
            valid_line.replace(r#""childSafety":false"#, r#""childSafety":"secret""#),
            "reports, row 2: a column has an unexpected type",
        ),
        (
            valid_line.replace("2026-11-01T10:00:00.000Z", "secret"),
            "reports, row 2: recordedAt is not a time",
        ),
        ("{\"secret".to_owned(), "reports, row 2: it is not valid JSON"),
    ] {
        history.0[1].1 = line;
        let error = try_export(&new_job(&folder), november(), &history).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
        assert!(error.tag() == "value" && !error.to_string().contains("secret"), "{error}");
    }
    let mut history = History::default();
    history.decision("d1", Some("review"), "p1", "m1", 10, json!({ "verdict": "accept" }));
    let error = try_export(&new_job(&folder), november(), &history).unwrap_err();
    assert_eq!(error.to_string(), "decisions, row 1: verdict does not fit the class of the job");
    assert!(folder.names().is_empty(), "no file is left");
}

#[test]
fn contradictory_options_are_refused() {
    let folder = Folder::new();
    let reversed = Snapshot { since: november().until, until: november().since };
    let error = try_export(&new_job(&folder), reversed, &History::default()).unwrap_err();
    assert!(error.to_string().starts_with("--since 2026-12-01T00:00:00Z is not before --until"), "{error}");
    let error = try_export(&public_job(&folder, 2), november(), &History::default()).unwrap_err();
    assert_eq!(error.to_string(), "--k 2: the minimum is 3");
    let duplicate = [policies(), policies()].concat();
    let meter = Arc::new(Meter::default());
    let error =
        export_bundle(&new_job(&folder), ORG, november(), &duplicate, &mut History::default(), &meter)
            .unwrap_err();
    assert_eq!(
        error.to_string(),
        "policies, row 4: the id of this policy occurs twice: remove one of the two"
    );
    assert!(folder.names().is_empty());
}

#[test]
fn folder_without_a_dataset_is_refused() {
    let folder = Folder::new();
    write_folder(&folder, "events", &small_history(), &mut Draw(1));
    let open =
        || HistoryFolder::open(&folder.path("events"), &new_job(&folder).limits, &Arc::new(Meter::default()));
    let files = open().unwrap();
    assert_eq!(files.files().len(), 4 * 4 + 1);
    // The bundle must not replace a file that it is made of.
    let mut job = new_job(&folder);
    (job.target, job.inputs) = (Target::File(folder.path("events/reports.ndjson")), files.files());
    let error = try_export(&job, november(), &small_history()).unwrap_err();
    assert!(error.to_string().contains("is the same file as the input"), "{error}");
    for name in ["appeals.ndjson", "appeals-part-0002-of-0003.ndjson"] {
        fs::remove_file(folder.path(&format!("events/{name}"))).unwrap();
    }
    fs::remove_dir_all(folder.path("events/appeals")).unwrap();
    let error = open().unwrap_err();
    assert_eq!(
        error.to_string(),
        "events: it has no rows of the dataset appeals: write them with `tidegate export appeals --format ndjson`"
    );
}

#[test]
fn preview_and_stopped_export_leave_no_files() {
    let folder = Folder::new();
    let job = Job { dry_run: true, ..new_job(&folder) };
    let report = try_export(&job, november(), &small_history()).unwrap();
    assert_eq!((report.items, report.responses, report.dry_run), (8, 9, true));
    assert!(folder.names().is_empty());
    let meter = Arc::new(Meter::default());
    meter.stop_after(5);
    let error = export_bundle(&new_job(&folder), ORG, november(), &policies(), &mut small_history(), &meter)
        .unwrap_err();
    assert_eq!((error.tag(), folder.names().len()), ("stopped", 0));
}
