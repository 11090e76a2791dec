//! Tests of validation: one case per rule, in any order of members, without false findings.

use std::collections::BTreeSet;

use crate::support::bundles::{Drips, bundle, check, check_with, finding_places, options, shared, shuffled};
use serde_json::{Value, json};
use tidegate_exporter::{
    bundle::{
        diff::diff,
        validate::{self, Level, Limits, Options, Report, Rule, Severity, validate},
    },
    form::Naming,
};

/// Change to a bundle, with the expected findings.
type Case = (&'static str, Value, &'static [&'static str]);

fn change(base: &Value, pointer: &str, value: &Value) -> Value {
    let mut changed_bundle = base.clone();
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    let parent = changed_bundle.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(entries) if last == "-" => entries.push(value.clone()),
        Value::Array(entries) => entries[last.parse::<usize>().unwrap()] = value.clone(),
        Value::Object(members) if value == "(gone)" => {
            members.remove(last).unwrap();
        }
        parent => parent[last] = value.clone(),
    }
    changed_bundle
}

fn private_cases() -> Vec<Case> {
    vec![
        ("/items/0/text", json!(7), &["BND-SCH-01 /items/0/text"]),
        (
            "/items/1",
            json!([]),
            &["BND-SCH-01 /items/1", "BND-REF-03 /responses/2/subjectRef", "BND-SUM-02 /summary/items"],
        ),
        (
            "/responses/0/count",
            json!(1.5),
            &[
                "BND-SCH-01 /responses/0/count",
                "BND-SUM-03 /summary/responses",
                "BND-SUM-05 /outcomes/0/counts/agree",
            ],
        ),
        ("/responses/1/occurredAt", json!("(gone)"), &["BND-SCH-02 /responses/1/occurredAt"]),
        ("/source/extra", json!(1), &["BND-SCH-03 /source"]),
        ("/kind", json!("delib-data-bundle"), &["BND-SCH-04 /kind"]),
        ("/schema", json!(null), &["BND-SCH-04 /schema"]),
        ("/responses/2/response", json!("maybe"), &["BND-SCH-05 /responses/2/response"]),
        ("/bundleId", json!(""), &["BND-SCH-06 /bundleId"]),
        ("/source/title", json!("ü".repeat(121)), &["BND-SCH-07 /source/title"]),
        ("/exportedAt", json!("yesterday"), &["BND-SCH-08 /exportedAt"]),
        ("/items/2/createdAt", json!("2024-02-30T00:00:00Z"), &["BND-SCH-08 /items/2/createdAt"]),
        ("/source/url", json!("example.org"), &["BND-SCH-09 /source/url"]),
        ("/outcomes/1/rank", json!(0), &["BND-SCH-10 /outcomes/1/rank"]),
        ("/summary/coverage", json!(1.5), &["BND-SCH-11 /summary/coverage", "BND-SUM-04 /summary/coverage"]),
        ("/items/1/phaseId", json!("phase-x"), &["BND-REF-01 /items/1/phaseId"]),
        ("/responses/4/objectRef", json!("option:9"), &["BND-REF-02 /responses/4/objectRef"]),
        ("/responses/2/subjectRef", json!("statement:9"), &["BND-REF-03 /responses/2/subjectRef"]),
        ("/outcomes/1/itemRef", json!("option:9"), &["BND-REF-04 /outcomes/1/itemRef"]),
        (
            "/phases/-",
            json!({ "id": "phase-rank", "type": "t", "title": "", "status": "" }),
            &["BND-REF-05 /phases/2/id"],
        ),
        ("/items/4/id", json!("option:2"), &["BND-REF-06 /items/4/id"]),
        ("/responses/1/id", json!("vote:1:a"), &["BND-REF-07 /responses/1/id"]),
        ("/responses/4/id", json!("vote:1:a"), &["BND-REF-07 /responses/4/id"]),
        ("/outcomes/1/id", json!("counts:1"), &["BND-REF-08 /outcomes/1/id"]),
        ("/responses/3/objectRef", json!("(gone)"), &["BND-REF-09 /responses/3/objectRef"]),
        (
            "/responses/2/objectRef",
            json!("option:3"),
            &["BND-REF-10 /responses/2/objectRef", "BND-SUM-04 /summary/coverage"],
        ),
        ("/responses/3/objectRef", json!("option:1"), &["BND-REF-11 /responses/3/objectRef"]),
        ("/responses/2/count", json!(2), &["BND-REF-12 /responses/2/count", "BND-SUM-03 /summary/responses"]),
        (
            "/responses/1/participantRef",
            json!("participant:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"),
            &["BND-REF-13 /responses/1", "BND-SUM-04 /summary/coverage"],
        ),
        ("/summary/participants", json!(3), &["BND-SUM-01 /summary/participants"]),
        ("/summary/items", json!(4), &["BND-SUM-02 /summary/items"]),
        ("/summary/responses", json!(6), &["BND-SUM-03 /summary/responses"]),
        ("/summary/coverage", json!(0.600_000_01), &["BND-SUM-04 /summary/coverage"]),
        ("/outcomes/0/counts/pass", json!(2), &["BND-SUM-05 /outcomes/0/counts/pass"]),
        (
            "/outcomes/-",
            json!({ "id": "g", "members": ["participant:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a", "nobody", 7],
                "phaseId": "phase-opinion", "type": "group-members", "itemRef": "statement:1" }),
            &["BND-SUM-06 /outcomes/2/members/1"],
        ),
        ("/outcomes/0/counts", json!({}), &["BND-SUM-05 /outcomes/0/counts"]),
        ("/outcomes/0/counts", json!({ "agree": 1, "disagree": 0 }), &["BND-SUM-05 /outcomes/0/counts"]),
        ("/outcomes/0/counts", json!({ "agree": 1, "pass": 1 }), &[]),
        ("/outcomes/0/suppressed", json!(["pass"]), &["BND-SUM-07 /outcomes/0/counts/pass"]),
        ("/outcomes/0/suppressed", json!(["equal"]), &[]),
        ("/outcomes/0/suppressed", json!("pass"), &[]),
        ("/dataCard/publicationStatus", json!("public"), &["BND-PRV-17 /dataCard/publicationStatus"]),
        (
            "/dataCard/aggregation",
            json!("item-counts-without-participant-links"),
            &["BND-PRV-18 /dataCard/aggregation"],
        ),
        (
            "/dataCard/aggregation",
            json!("pair-counts-without-session-links"),
            &["BND-PRV-18 /dataCard/aggregation"],
        ),
        ("/dataCard/aggregation", json!("something-else"), &[]),
        (
            "/dataCard/containsParticipantData",
            json!(false),
            &["BND-PRV-01 /dataCard/containsParticipantData"],
        ),
        (
            "/dataCard/containsPseudonymousLinkage",
            json!(false),
            &["BND-PRV-02 /dataCard/containsPseudonymousLinkage"],
        ),
        (
            "/dataCard/containsParticipantFreeText",
            json!(false),
            &["BND-PRV-03 /dataCard/containsParticipantFreeText"],
        ),
        ("/items/0/text", json!("write to ada@city.example"), &["BND-PRV-04 /items/0/text"]),
        ("/source/title", json!("call +44 20 7946 0958"), &["BND-PRV-04 /source/title"]),
        ("/source/description", json!("write to ada@city.example"), &["BND-PRV-04 /source/description"]),
        ("/items/1/text", json!("write to ada@city.example"), &["BND-PRV-04 /items/1/text"]),
        ("/phases/0/title", json!("call 030 1234 5678"), &["BND-PRV-04 /phases/0/title"]),
        ("/source/tool", json!("ada@city.example"), &["BND-PRV-04 /source/tool"]),
        ("/source/sourceId", json!("ada@city.example"), &["BND-PRV-04 /source/sourceId"]),
        ("/source/url", json!("https://a.example/?m=ada@city.example"), &["BND-PRV-04 /source/url"]),
        ("/provenance/adapter", json!("by @ada_l"), &["BND-PRV-04 /provenance/adapter"]),
        ("/provenance/notes/0", json!("ask ada@city.example"), &["BND-PRV-04 /provenance/notes/0"]),
        ("/provenance/notes/0", json!("12000000 of 2024-05-06 are 3.5 %"), &[]),
        (
            "/provenance/sourceArtifacts/0/name",
            json!("ada@city.example.csv"),
            &["BND-PRV-04 /provenance/sourceArtifacts/0/name"],
        ),
        (
            "/provenance/sourceArtifacts/0/within",
            json!({ "ada@city.example": 1 }),
            &["BND-PRV-04 /provenance/sourceArtifacts/0"],
        ),
        (
            "/provenance/sourceArtifacts/0/sha256",
            json!("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            &[],
        ),
        ("/dataCard/limitations/-", json!("or +49 30 12345678"), &["BND-PRV-04 /dataCard/limitations/0"]),
        ("/outcomes/1/theirs", json!(["a", "ada@city.example"]), &["BND-PRV-04 /outcomes/1"]),
        ("/outcomes/0/counts/ada@city.example", json!(9), &["BND-PRV-04 /outcomes/0/counts"]),
        ("/outcomes/1/theirs", json!({ "voters": 1, "counts": { "a": 2 } }), &[]),
        ("/outcomes/1/theirs", json!({ "at": "2024-05-06T07:08:09Z" }), &[]),
        ("/items/4/id", json!("option:ada@city.example"), &["BND-PRV-04 /items/4/id"]),
        ("/items/4/id", json!("option:ada%40city.example"), &["BND-PRV-04 /items/4/id"]),
        ("/items/4/id", json!("option:bob\u{ff20}city"), &["BND-PRV-04 /items/4/id"]),
        ("/items/4/id", json!("option:+49 30 12345678"), &["BND-PRV-04 /items/4/id"]),
        ("/items/4/id", json!("option:+4930 and 030123456789:2001:2:3:4:1.2.3.4"), &[]),
        ("/responses/4/id", json!("vote:ada@city.example"), &["BND-PRV-04 /responses/4/id"]),
        ("/outcomes/1/id", json!("rank:ada@city.example"), &["BND-PRV-04 /outcomes/1/id"]),
        (
            "/phases/-",
            json!({ "id": "by-ada@city.example", "type": "t", "title": "", "status": "" }),
            &["BND-PRV-04 /phases/2/id"],
        ),
        (
            "/outcomes/-",
            json!({ "id": "g", "members": ["ada@city.example"], "phaseId": "phase-opinion", "type": "theirs",
                "itemRef": "statement:1" }),
            &["BND-PRV-04 /outcomes/2/members/0"],
        ),
        (
            "/responses/2/participantRef",
            json!("ada@city.example"),
            &[
                "BND-PRV-04 /responses/2/participantRef",
                "BND-SUM-01 /summary/participants",
                "BND-SUM-04 /summary/coverage",
            ],
        ),
        (
            "/responses/2/participantRef",
            json!("participant:p12"),
            &[
                "BND-PRV-11 /responses/2/participantRef",
                "BND-SUM-01 /summary/participants",
                "BND-SUM-04 /summary/coverage",
            ],
        ),
    ]
}

const LINKED: &[&str] =
    &["BND-PRV-02 /dataCard/containsPseudonymousLinkage", "BND-PRV-05 /dataCard/suitableForPublicSharing"];

fn shared_cases() -> Vec<Case> {
    vec![
        (
            "/dataCard/containsPseudonymousLinkage",
            json!(true),
            &["BND-PRV-05 /dataCard/suitableForPublicSharing"],
        ),
        (
            "/dataCard/containsDirectIdentifiers",
            json!(true),
            &["BND-PRV-06 /dataCard/suitableForPublicSharing"],
        ),
        (
            "/dataCard/containsParticipantFreeText",
            json!(true),
            &["BND-PRV-07 /dataCard/suitableForPublicSharing"],
        ),
        ("/responses/0/subjectRef", json!("statement:2"), &["BND-SUM-05 /outcomes/0/counts/agree"]),
        (
            "/responses/1/count",
            json!(2),
            &[
                "BND-PRV-09 /items/0",
                "BND-PRV-09 /responses/1/count",
                "BND-PRV-21 /summary/participants",
                "BND-SUM-03 /summary/responses",
                "BND-SUM-05 /outcomes/0/counts/disagree",
            ],
        ),
        (
            "/responses/2/count",
            json!(1),
            &["BND-PRV-09 /items/2", "BND-PRV-09 /responses/2/count", "BND-SUM-03 /summary/responses"],
        ),
        ("/responses/0/occurredAt", json!("2024-05-06T07:00:00Z"), &["BND-PRV-10 /responses/0/occurredAt"]),
        ("/outcomes/1/observations", json!(2), &["BND-PRV-12 /outcomes/1/observations"]),
        (
            "/outcomes/1/counts",
            json!({ "agree": 1, "equal": 0, "pass": 2, "wins": 1, "theirs": 2, "more": 3 }),
            &[
                "BND-PRV-12 /outcomes/1/counts",
                "BND-PRV-12 /outcomes/1/counts/agree",
                "BND-PRV-12 /outcomes/1/counts/pass",
                "BND-PRV-12 /outcomes/1/counts/wins",
            ],
        ),
        (
            "/outcomes/1/groups",
            json!([{ "id": 1, "agree": 2, "size": 1 }, { "id": 2, "agree": 9, "disagree": 0, "rank": 1 }]),
            &["BND-PRV-12 /outcomes/1/groups/0/agree", "BND-PRV-12 /outcomes/1/groups/0/size"],
        ),
        ("/outcomes/1/votes", json!({ "no": 2, "yes": 3 }), &["BND-PRV-12 /outcomes/1/votes"]),
        ("/outcomes/1/tally", json!({ "agree": 2 }), &["BND-PRV-12 /outcomes/1/tally/agree"]),
        // An unknown member name may identify a person: the location ends before it.
        ("/outcomes/1/theirs", json!({ "agree": 2 }), &["BND-PRV-12 /outcomes/1"]),
        (
            "/outcomes/1/groups",
            json!([{ "ids": [1, 2], "clusters": 2, "wins": [7, 2], "losses": [{ "id": 1, "n": 2 }] }]),
            &["BND-PRV-12 /outcomes/1/groups/0/wins/1", "BND-PRV-12 /outcomes/1/groups/0/losses/0/n"],
        ),
        (
            "/outcomes/1/groups",
            json!({ "n-votes": 2, "n_agree": 2, "group-a-agree-count": 2, "participantCount": 2, "totalVotes": 2,
                "TOTALVOTES": 1, "nvotes": 2, "Respondents": 2, "Cant Decide": 2 }),
            &[
                "BND-PRV-12 /outcomes/1/groups/n-votes",
                "BND-PRV-12 /outcomes/1/groups/n_agree",
                "BND-PRV-12 /outcomes/1/groups/group-a-agree-count",
                "BND-PRV-12 /outcomes/1/groups/participantCount",
                "BND-PRV-12 /outcomes/1/groups/totalVotes",
                "BND-PRV-12 /outcomes/1/groups/TOTALVOTES",
                "BND-PRV-12 /outcomes/1/groups/nvotes",
                "BND-PRV-12 /outcomes/1/groups/Respondents",
                "BND-PRV-12 /outcomes/1/groups/Cant Decide",
            ],
        ),
        ("/outcomes/1/ada-votes", json!(2), &["BND-PRV-12 /outcomes/1"]),
        (
            "/outcomes/1/groups",
            json!({ "agree-rank": 1, "voterId": 2, "vote_score": 1, "size": 0.5, "agree": 0, "passion": 1, "x": 1 }),
            &[],
        ),
        (
            "/outcomes/1/counts",
            json!({ "agree": "2", "disagree": " 1.0 ", "pass": "7", "equal": "two", "theirs": "2" }),
            &[
                "BND-PRV-12 /outcomes/1/counts",
                "BND-PRV-12 /outcomes/1/counts/agree",
                "BND-PRV-12 /outcomes/1/counts/disagree",
            ],
        ),
        ("/outcomes/1/suppressed", json!(["agree", "agree"]), &["BND-PRV-14 /outcomes/1/suppressed"]),
        ("/outcomes/1/suppressed", json!("agree"), &["BND-PRV-16 /outcomes/1/suppressed"]),
        ("/outcomes/1/total", json!(8), &[]),
        ("/items/1/createdAt", json!("2024-05-06T07:00:00Z"), &["BND-PRV-10 /items/1/createdAt"]),
        ("/outcomes/1/theirs", json!([{ "by": "participant:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a" }]), LINKED),
        ("/outcomes/1/theirs", json!({ "participant:ada": 0.5 }), LINKED),
        ("/outcomes/1/members", json!(["participant:7"]), LINKED),
        ("/outcomes/1/id", json!("rank:participant:7"), LINKED),
        ("/provenance/sourceArtifacts/0/by", json!("see participant:7"), LINKED),
        ("/provenance/sourceArtifacts/0/by", json!("participant: nobody"), &[]),
        ("/summary/participants", json!(2), &["BND-PRV-13 /summary/participants"]),
        ("/summary/participants", json!(8), &["BND-PRV-19 /items/0"]),
        ("/summary/participants", json!(15), &["BND-PRV-21 /summary/participants"]),
        (
            "/outcomes/1/counts",
            json!({ "agree": 4, "disagree": 3 }),
            &["BND-PRV-15 /outcomes/1/observations"],
        ),
        ("/outcomes/1/suppressed", json!(["agree"]), &["BND-PRV-14 /outcomes/1/suppressed"]),
        ("/outcomes/1/suppressed", json!(["agree", "pass"]), &[]),
        (
            "/outcomes/-",
            json!({ "id": "g", "members": ["participant:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"],
                "phaseId": "phase-opinion", "type": "group-members", "itemRef": "statement:1" }),
            &[
                "BND-PRV-02 /dataCard/containsPseudonymousLinkage",
                "BND-PRV-05 /dataCard/suitableForPublicSharing",
                "BND-SUM-06 /outcomes/2/members/0",
            ],
        ),
    ]
}

fn sorted(all: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let mut all: Vec<String> = all.into_iter().map(Into::into).collect();
    all.sort();
    all
}

/// Checks the findings of each case, and adds their rules to the covered ones.
fn check_cases(base: &Value, cases: &[Case], covered_rules: &mut BTreeSet<&'static str>) {
    for (pointer, value, listed_findings) in cases {
        let changed_bundle = change(base, pointer, value);
        let expected_findings = sorted(listed_findings.iter().copied());
        let report = check(changed_bundle.to_string().as_bytes());
        assert_eq!(sorted(finding_places(&report)), expected_findings, "{pointer} = {value}");
        assert_eq!(
            report.is_valid(),
            report.totals.iter().all(|(rule, _)| rule.severity() == Severity::Warning)
        );
        covered_rules.extend(report.totals.iter().map(|(rule, _)| rule.id()));
        // The result is independent of the order of members, of rereading, and of the size of reads.
        for seed in 1..4 {
            let text = shuffled(&changed_bundle, seed);
            for once in [false, true] {
                let mut drips = Drips { text: text.as_bytes(), drip: 11, once };
                let report = validate(&mut drips, &options()).unwrap();
                assert_eq!(sorted(finding_places(&report)), expected_findings, "{pointer} = {value}: {text}");
            }
        }
    }
}

#[test]
fn every_rule_is_found_where_it_is_broken_and_nothing_else_is() {
    let mut covered = BTreeSet::new();
    for good in [bundle(), shared()] {
        let report = check(good.to_string().as_bytes());
        assert_eq!(finding_places(&report), [""; 0]);
        assert!(report.is_valid() && report.is_complete);
        check_cases(&good, &[("/bundleId", json!("other"), &[])], &mut covered);
    }
    check_cases(&bundle(), &private_cases(), &mut covered);
    check_cases(&shared(), &shared_cases(), &mut covered);
    covered.extend(lexical().iter().map(|(_, rule, _)| *rule));
    // Separate tests cover these rules.
    covered.extend([
        "BND-LEX-14",
        "BND-SCH-12",
        "BND-PRV-08",
        "BND-PRV-20",
        "BND-DLB-01",
        "BND-DLB-02",
        "BND-DLB-03",
    ]);
    let uncovered: Vec<_> =
        Rule::ALL.iter().map(|rule| rule.id()).filter(|id| !covered.contains(id)).collect();
    assert_eq!(uncovered, [""; 0], "each rule has a case");
}

/// Text, the rule that it breaks, and whether reading continues.
fn lexical() -> Vec<(Vec<u8>, &'static str, bool)> {
    let valid = bundle().to_string();
    let with_text = |text: &[u8]| {
        let (before, after) = valid.split_once("\"description\":\"\"").unwrap();
        [before.as_bytes(), b"\"description\":\"", text, b"\"", after.as_bytes()].concat()
    };
    let replaced = |from: &str, to: &str| {
        assert!(valid.contains(from), "{from}");
        valid.replacen(from, to, 1).into_bytes()
    };
    // A bracket in a string does not count.
    let deep = format!("\"theirs\":{}{{\"]\":\"]\\\"]\"}}{}", "[".repeat(100), "]".repeat(100));
    let members: Vec<String> = (0..=100_000).map(|at| format!("\"m{at}\":0")).collect();
    vec![
        (replaced("\"items\":", "\"items\";"), "BND-LEX-01", false),
        (replaced("\"count\":1,", "\"count\":01,"), "BND-LEX-01", false),
        (replaced("\"count\":1,", "\"count\":NaN,"), "BND-LEX-01", false),
        (replaced("false,", "False,"), "BND-LEX-01", false),
        (replaced("\"notes\":[\"none\"]", "\"notes\":[\"none\",]"), "BND-LEX-01", false),
        (replaced("\"notes\":[\"none\"]", "\"notes\":[\"none\"\0]"), "BND-LEX-01", false),
        (valid.as_bytes()[..valid.len() - 1].to_vec(), "BND-LEX-02", false),
        (valid.as_bytes()[..valid.len() / 2].to_vec(), "BND-LEX-02", false),
        (Vec::new(), "BND-LEX-02", false),
        (b" \n\t".to_vec(), "BND-LEX-02", false),
        (format!("{valid}\n{{}}").into_bytes(), "BND-LEX-03", true),
        (format!("{valid}\0").into_bytes(), "BND-LEX-03", true),
        (format!("\u{feff}{valid}").into_bytes(), "BND-LEX-04", true),
        (with_text(b"caf\xe9"), "BND-LEX-05", true),
        (with_text(b"\xed\xa0\x80"), "BND-LEX-05", true),
        (valid.encode_utf16().flat_map(u16::to_le_bytes).collect(), "BND-LEX-05", false),
        (with_text(b"a\nb"), "BND-LEX-06", true),
        (with_text(b"a\0b"), "BND-LEX-06", true),
        (with_text(br"\x41"), "BND-LEX-07", true),
        (with_text(br"\u12"), "BND-LEX-07", true),
        (with_text(br"\ud800"), "BND-LEX-08", true),
        (with_text(br"\udc00\ud800"), "BND-LEX-08", true),
        (replaced("\"kind\":", "\"kind\":\"service-data-bundle\",\"kind\":"), "BND-LEX-09", true),
        (replaced("\"theirs\":{", "\"theirs\":{\"b\":1,\"\\u0062\":2,"), "BND-LEX-09", true),
        (replaced("\"theirs\":", &format!("{deep},\"ours\":")), "BND-LEX-10", true),
        (with_text("x".repeat((16 << 20) + 1).as_bytes()), "BND-LEX-11", true),
        (replaced("0.5", &format!("0.{}", "5".repeat(2000))), "BND-LEX-11", true),
        (replaced("0.5", "1e400"), "BND-LEX-12", true),
        (replaced("0.5", "-1e400"), "BND-LEX-12", true),
        (replaced("\"theirs\":{", &format!("\"theirs\":{{{},", members.join(","))), "BND-LEX-13", true),
    ]
}

#[test]
fn lexical_errors_are_reported_and_reading_continues() {
    for (text, rule, complete) in lexical() {
        let start = String::from_utf8_lossy(&text[..text.len().min(2000)]).into_owned();
        let report = check(&text);
        let rules: Vec<_> = report.totals.iter().map(|(rule, total)| (rule.id(), *total)).collect();
        assert_eq!((rules, report.is_complete), (vec![(rule, 1)], complete), "{start}");
        // For any position of the reader's window.
        if text.len() < 100_000 {
            let mut drips = Drips { text: &text, drip: 3, once: true };
            assert_eq!(
                finding_places(&validate(&mut drips, &options()).unwrap()),
                finding_places(&report),
                "{start}"
            );
        }
    }
}

#[test]
fn locations_give_line_and_byte_without_the_value() {
    let text =
        serde_json::to_string_pretty(&change(&bundle(), "/items/2/phaseId", &json!("seecret"))).unwrap();
    let report = check(text.as_bytes());
    let offset = text.find("\"seecret\"").unwrap();
    assert_eq!(report.findings[0].offset, offset as u64);
    assert_eq!(report.findings[0].line, 1 + text[..offset].matches('\n').count() as u64);
    let output_of = |report: &Report| {
        let sarif = validate::sarif(report, "a b.json").to_string();
        validate::text(report, "x").to_string() + &validate::json(report, "x").to_string() + &sarif
    };
    assert!(!output_of(&report).contains("seecret"));
    let report = check_with(text.as_bytes(), &Options { with_values: true, ..options() });
    assert_eq!(output_of(&report).matches("seecret").count(), 3);
    let sarif = serde_json::to_value(&validate::sarif(&report, "a b.json").0).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "BND-REF-01");
    assert_eq!(result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"], "/items/2/phaseId");
    assert_eq!(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "a%20b.json");
    let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
    let rule = &sarif["runs"][0]["tool"]["driver"]["rules"][index];
    assert_eq!(rule["id"], "BND-REF-01");
}

#[test]
fn names_of_unknown_members_are_not_shown() {
    let wrong = change(&bundle(), "/items/1/ada@city", &json!({ "bob@city": [1e3] }));
    let report = check(wrong.to_string().as_bytes());
    assert_eq!(finding_places(&report), ["BND-SCH-03 /items/1"]);
    let text = validate::text(&report, "x").to_string();
    assert!(!text.contains("city") && text.contains(": 1 error, 0 warnings; 2 phases, "), "{text}");
}

#[test]
fn levels_include_lower_levels_only() {
    let mut wrong = bundle();
    wrong["bundleId"] = json!("");
    wrong["items"][1]["phaseId"] = json!("phase-x");
    wrong["summary"]["items"] = json!(9);
    wrong["dataCard"]["containsParticipantData"] = json!(false);
    let all = ["BND-SCH-06", "BND-REF-01", "BND-SUM-02", "BND-PRV-01"];
    for (at, level) in [Level::Schema, Level::Refs, Level::Summary, Level::Privacy].into_iter().enumerate() {
        let report = check_with(wrong.to_string().as_bytes(), &Options { level, ..options() });
        let rules: Vec<_> = report.totals.iter().map(|(rule, _)| rule.id()).collect();
        assert_eq!(rules, all[..=at], "{level:?}");
    }
}

#[test]
fn bundle_without_phases_is_invalid() {
    let without_phases = change(&bundle(), "/phases", &json!([]));
    let schema = Options { level: Level::Schema, ..options() };
    assert_eq!(
        finding_places(&check_with(without_phases.to_string().as_bytes(), &schema)),
        ["BND-SCH-12 /phases"]
    );
    // Every reference to a phase is invalid then.
    assert_eq!(check(without_phases.to_string().as_bytes()).totals[1], (Rule::PhaseRef, 12));
}

#[test]
fn whole_numbers_are_counts_in_any_notation() {
    let text = bundle().to_string();
    for one in ["1.0", "1e0", "10E-1", "1000000000000000000000000e-24"] {
        let text = text.replace("\"count\":1,", &format!("\"count\":{one},"));
        assert_eq!(finding_places(&check(text.as_bytes())), [""; 0], "{one}");
    }
}

#[test]
fn counts_of_responses_are_numbers_of_responses() {
    let findings_of_counts = |counts: Value, first: bool| {
        let mut bundle = bundle();
        bundle["outcomes"][0]["counts"] = json!({ "agree": 1, "pass": 1 });
        for (answer, count) in counts.as_object().unwrap() {
            bundle["outcomes"][0]["counts"][answer] = count.clone();
        }
        // Outcomes before the items that they refer to are set aside.
        let text = if first { shuffled(&bundle, 2) } else { bundle.to_string() };
        finding_places(&check(text.as_bytes()))
    };
    let no_counts = [
        json!("999"),
        json!(null),
        json!([1]),
        json!({}),
        json!(-7),
        json!(true),
        json!("-3"),
        json!(0.5),
        json!("1"),
    ];
    for wrong in no_counts {
        for answer in ["agree", "equal"] {
            let expected_findings = [format!("BND-SUM-05 /outcomes/0/counts/{answer}")];
            for first in [false, true] {
                assert_eq!(findings_of_counts(json!({ answer: wrong }), first), expected_findings, "{wrong}");
            }
        }
    }
    for right in [json!(1), json!(1.0)] {
        assert!(findings_of_counts(json!({ "agree": right, "equal": 0 }), true).is_empty());
    }
}

#[test]
fn event_bundles_may_repeat_answers() {
    let repeated = change(&bundle(), "/responses/2/subjectRef", &json!("statement:1"));
    let repeated = change(&repeated, "/outcomes/0/counts/disagree", &json!(1));
    assert_eq!(finding_places(&check(repeated.to_string().as_bytes())), ["BND-REF-13 /responses/2"]);
    let events = change(&repeated, "/dataCard/aggregation", &json!("individual-response-events"));
    assert_eq!(finding_places(&check(events.to_string().as_bytes())), [""; 0]);
}

#[test]
fn public_free_text_needs_a_reviewer() {
    let mut shared = shared();
    shared["items"][0]["text"] = json!("More trees.");
    shared["dataCard"]["containsParticipantFreeText"] = json!(true);
    assert_eq!(
        finding_places(&check(shared.to_string().as_bytes())),
        ["BND-PRV-07 /dataCard/suitableForPublicSharing"]
    );
    shared["provenance"]["notes"][0] = json!("text reviewed by the clerk");
    assert_eq!(finding_places(&check(shared.to_string().as_bytes())), [""; 0]);
}

#[test]
fn suppressed_answers_need_no_count() {
    let mut bundle_with_hidden = bundle();
    bundle_with_hidden["outcomes"][0]["counts"] = json!({ "agree": 1 });
    bundle_with_hidden["outcomes"][0]["suppressed"] = json!(["pass", "disagree"]);
    assert_eq!(finding_places(&check(bundle_with_hidden.to_string().as_bytes())), [""; 0]);
    bundle_with_hidden["outcomes"][0]["suppressed"] = json!(["disagree"]);
    assert_eq!(
        finding_places(&check(bundle_with_hidden.to_string().as_bytes())),
        ["BND-SUM-05 /outcomes/0/counts"]
    );
    // Hidden answers in an unknown notation may be any.
    bundle_with_hidden["outcomes"][0]["suppressed"] = json!({ "pass": true });
    assert_eq!(finding_places(&check(bundle_with_hidden.to_string().as_bytes())), [""; 0]);
}

#[test]
fn too_long_number_is_not_reported_as_missing() {
    let long = format!("\"count\":1.{},", "0".repeat(2_000));
    let text = bundle().to_string().replacen("\"count\":1,", &long, 1);
    let findings = finding_places(&check(text.as_bytes()));
    assert!(findings.contains(&"BND-LEX-11 /responses/0/count".to_owned()), "{findings:?}");
    assert!(!findings.iter().any(|finding| finding.starts_with("BND-SCH")), "{findings:?}");
}

#[test]
fn k_of_shared_bundles_can_be_raised() {
    let text = shared().to_string();
    let at = |k: u64| finding_places(&check_with(text.as_bytes(), &Options { k, ..options() }));
    assert_eq!(at(3), [""; 0]);
    let cells = ["BND-PRV-09 /items/0", "BND-PRV-09 /items/0"].map(str::to_owned);
    let rows = [0, 1, 2].map(|at| format!("BND-PRV-09 /responses/{at}/count"));
    let outcomes = ["agree", "disagree"].map(|answer| format!("BND-PRV-12 /outcomes/0/counts/{answer}"));
    assert_eq!(at(5), [&cells[..], &outcomes, &rows[..2]].concat());
    let items = [("08", 0), ("09", 0), ("09", 0), ("19", 0), ("09", 2)];
    let eight = items.map(|(rule, item)| format!("BND-PRV-{rule} /items/{item}"));
    assert_eq!(at(8), [&eight[..], &outcomes, &rows].concat());
}

#[test]
fn group_members_must_have_answered_in_its_phase() {
    let mut large = bundle();
    let participant_ref =
        |at: u32| if at.is_multiple_of(2) { format!("p-{at}") } else { format!("participant:{at:032x}") };
    let responses: Vec<Value> = (1..4_000)
        .map(|at: u32| {
            let (phase, item) = if at.is_multiple_of(5) { ("phase-rank", "option:1") } else { ("phase-opinion", "statement:1") };
            json!({ "id": format!("r:{at:05}"), "phaseId": phase, "subjectRef": item, "participantRef": participant_ref(at),
                "response": "agree", "count": 1, "occurredAt": null })
        })
        .collect();
    large["responses"] = json!(responses);
    // The last four: another phase, no phase, another list, and values that are not names.
    let mut members: Vec<_> =
        (1..4_000).filter(|at: &u32| !at.is_multiple_of(5)).map(|at| json!(participant_ref(at))).collect();
    members.extend([
        json!(participant_ref(5)),
        json!(participant_ref(4_000)),
        json!("7"),
        json!(7),
        json!(["7"]),
    ]);
    let group = |id: &str, kind: &str| json!({ "id": id, "phaseId": "phase-opinion", "type": kind, "itemRef": "statement:1", "members": members });
    large["outcomes"] = json!([group("a", "theirs"), group("b", "group-members")]);
    let first = members.len() - 5;
    let expected_findings: Vec<_> =
        (first..first + 3).map(|at| format!("BND-SUM-06 /outcomes/1/members/{at}")).collect();
    for (text, memory) in [(large.to_string(), 64 << 20), (large.to_string(), 0), (shuffled(&large, 3), 0)] {
        let mut options = options();
        options.spill_options.memory = memory;
        let findings = finding_places(&check_with(text.as_bytes(), &options));
        let findings: Vec<_> =
            findings.into_iter().filter(|finding| finding.starts_with("BND-SUM-06")).collect();
        assert_eq!(findings, expected_findings, "{memory}");
        let refs = check_with(text.as_bytes(), &Options { level: Level::Refs, ..options });
        assert!(refs.totals.is_empty(), "{:?}", refs.totals);
    }
}

#[test]
fn delib_bundles_are_checked_with_delib_rules() {
    let mut theirs = bundle();
    theirs["schema"] = json!(Naming::Delib.schema());
    theirs["kind"] = json!(Naming::Delib.kind());
    let card = theirs["dataCard"].as_object_mut().unwrap();
    let stored = card.remove("storedByService").unwrap();
    card.insert("storedByDelib".to_owned(), stored);
    let delib = Options { naming: Naming::Delib, delib: true, ..options() };
    assert_eq!(finding_places(&check_with(theirs.to_string().as_bytes(), &delib)), [""; 0]);
    assert_eq!(finding_places(&check(theirs.to_string().as_bytes())).len(), 4);
    let origin = change(&theirs, "/items/4/origin", &json!("robot"));
    assert_eq!(
        finding_places(&check_with(origin.to_string().as_bytes(), &delib)),
        ["BND-DLB-01 /items/4/origin"]
    );
    let empty = change(&theirs, "/outcomes/1/id", &json!(""));
    assert_eq!(
        finding_places(&check_with(empty.to_string().as_bytes(), &delib)),
        ["BND-DLB-03 /outcomes/1/id"]
    );
    let large = change(&theirs, "/items/1/text", &json!("x".repeat(3 << 20)));
    assert_eq!(finding_places(&check_with(large.to_string().as_bytes(), &delib)), ["BND-DLB-02 "]);
    assert_eq!(
        finding_places(&check_with(origin.to_string().as_bytes(), &Options { delib: false, ..delib })),
        [""; 0]
    );
}

#[test]
fn totals_are_complete_with_limited_locations() {
    let mut wrong = bundle();
    for response in wrong["responses"].as_array_mut().unwrap() {
        response["phaseId"] = json!("phase-x");
    }
    let report = check_with(wrong.to_string().as_bytes(), &Options { max_findings: 2, ..options() });
    assert_eq!(report.findings.len(), 2);
    assert!(report.totals.contains(&(Rule::PhaseRef, 5)));
    assert!(validate::text(&report, "x").to_string().contains("and "));
}

/// Ten thousand responses in random order, three of them repeated, with very little memory.
#[test]
fn repeated_ids_are_found_exactly_with_little_memory() {
    let mut large = bundle();
    let mut place = 1_u64;
    let mut ids = Vec::new();
    let responses: Vec<Value> = (0..10_000)
        .map(|at| {
            place = place * 48_271 % 2_147_483_647;
            // Sorted at first, so that the beginning must be read again.
            let id = if at < 4_000 { format!("a:{at:05}") } else { format!("b:{place}") };
            ids.push(id.clone());
            let id = match at {
                5_000 => ids[100].clone(),
                6_000 => ids[4_500].clone(),
                9_999 => ids[7_000].clone(),
                _ => id,
            };
            json!({ "id": id, "phaseId": "phase-opinion", "subjectRef": "statement:1",
                "participantRef": format!("participant:{:032x}", u128::from(place) << 64 | at),
                "response": "agree", "count": 1, "occurredAt": null })
        })
        .collect();
    large["responses"] = json!(responses);
    large["outcomes"] = json!([]);
    large["summary"] = json!({ "participants": 10_000, "items": 5, "responses": 10_000, "coverage": 1 });
    let expected_findings =
        ["BND-REF-07 /responses/5000/id", "BND-REF-07 /responses/6000/id", "BND-REF-07 /responses/9999/id"];
    for text in [large.to_string(), shuffled(&large, 5)] {
        for (once, memory) in [(false, 0), (true, 0), (false, 64 << 20), (true, 64 << 20)] {
            let mut source = Drips { text: text.as_bytes(), drip: usize::MAX, once };
            let mut options = options();
            options.spill_options.memory = memory;
            let report = validate(&mut source, &options).unwrap();
            assert_eq!(finding_places(&report), expected_findings, "once {once}, memory {memory}");
            assert_eq!(report.counts.participants, 10_000);
        }
    }
}

#[test]
fn limits_are_configurable() {
    let text = bundle().to_string();
    let with =
        |limits: Limits| finding_places(&check_with(text.as_bytes(), &Options { limits, ..options() }));
    assert_eq!(with(Limits { depth: 5, ..Limits::default() }), [""; 0]);
    assert_eq!(with(Limits { depth: 4, ..Limits::default() }), ["BND-LEX-10 /outcomes/1"]);
    assert_eq!(with(Limits { string: 60, ..Limits::default() }), [""; 0]);
    assert_eq!(with(Limits { members: 0, ..Limits::default() }).len(), 2);
    let long = change(&bundle(), "/items/1/text", &json!("x".repeat(61)));
    let report = check_with(
        long.to_string().as_bytes(),
        &Options { limits: Limits { string: 60, ..Limits::default() }, ..options() },
    );
    assert_eq!(finding_places(&report), ["BND-LEX-11 /items/1/text"]);
}

#[test]
fn long_value_is_not_missing_and_trailing_text_is_reported() {
    let (first, mut second) = (bundle(), bundle());
    let long = "x".repeat(200);
    second["dataCard"]["limitations"] = json!([long]);
    let texts = [first.to_string(), second.to_string()];
    let room = options().spill_options;
    let differ = |first: &str, second: &str| {
        diff(&mut first.as_bytes(), &mut second.as_bytes(), Limits::default(), &room, 10)
    };
    let difference = differ(&texts[0], &texts[1]).unwrap();
    assert_eq!(difference.members[0].before.as_deref(), Some("[]"));
    assert_eq!(difference.members[0].after, Some(format!("[\"{long}\"]")));
    let failed = differ(&texts[0], &format!("{} {{}}", texts[1])).unwrap_err().to_string();
    assert!(failed.contains("BND-LEX-03"), "{failed}");
}

#[test]
fn the_guide_lists_all_rules_and_no_others() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides/bundles.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let rows: Vec<_> = guide.lines().filter(|line| line.starts_with("| `BND-")).collect();
    let row =
        |rule: &Rule| format!("| `{}` | {} | {} |", rule.id(), rule.severity().as_str(), rule.message());
    assert_eq!(rows, Rule::ALL.iter().map(row).collect::<Vec<_>>());
    let ids = guide.match_indices("BND-").filter_map(|(at, _)| guide.get(at..at + 10));
    let unknown: Vec<_> = ids.filter(|id| Rule::ALL.iter().all(|rule| rule.id() != *id)).collect();
    assert_eq!(unknown, [""; 0]);
}
