//! Tests of identifying content in bundles declared as suitable for sharing: each kind is found alone.

use crate::support::bundles::{check, check_with, finding_places, options, shared, shuffled};
use serde_json::{Value, json};
use tidegate_exporter::bundle::validate::Options;

/// Location, inserted value, and expected findings.
type Insertion = (String, Value, Vec<String>);

fn new_insertion(place: &str, value: Value, expected_finding: &str) -> Insertion {
    let findings = if expected_finding.is_empty() { Vec::new() } else { vec![expected_finding.to_owned()] };
    (place.to_owned(), value, findings)
}

fn insert_value(place: &str, value: &Value) -> Value {
    let mut bundle = shared();
    let (parent, last) = place.rsplit_once('/').unwrap();
    match bundle.pointer_mut(parent).unwrap() {
        Value::Array(entries) if last == "-" => entries.push(value.clone()),
        Value::Array(entries) => entries[last.parse::<usize>().unwrap()] = value.clone(),
        parent => parent[last] = value.clone(),
    }
    bundle
}

/// Asserts the findings of each insertion.
fn assert_findings(insertions: Vec<Insertion>) {
    let (mut wrong, mut to_find) = (Vec::new(), 0);
    for (place, value, mut expected_findings) in insertions {
        let mut findings = finding_places(&check(insert_value(&place, &value).to_string().as_bytes()));
        findings.sort();
        expected_findings.sort();
        to_find += usize::from(!expected_findings.is_empty());
        if findings != expected_findings {
            wrong.push(format!("{place} = {value}: {findings:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong, {to_find} are to be found: {wrong:#?}", wrong.len());
}

#[test]
fn exact_times_are_found_alone() {
    let mut insertions = Vec::new();
    for time in [
        "2024-05-06T07:00:00Z",
        "2024-05-06t00:00:01z",
        "2024-05-06T00:00:00.001Z",
        "2024-05-06T00:00:00+01:00",
        "2024-05-06T23:59:59-00:00",
    ] {
        for place in ["/responses/0/occurredAt", "/items/1/createdAt"] {
            insertions.push(new_insertion(place, json!(time), &format!("BND-PRV-10 {place}")));
        }
        insertions.push(new_insertion("/outcomes/1/n", json!(time), "BND-PRV-10 /outcomes/1/n"));
        let list_value = json!([{ "by": [time] }]);
        insertions.push(new_insertion(
            "/outcomes/1/groups",
            list_value,
            "BND-PRV-10 /outcomes/1/groups/0/by/0",
        ));
        insertions.push(new_insertion(
            "/outcomes/0/counts/of",
            json!(time),
            "BND-PRV-10 /outcomes/0/counts/of",
        ));
        insertions.push(new_insertion(
            "/provenance/sourceArtifacts/0/by",
            json!(time),
            "BND-PRV-10 /provenance/sourceArtifacts/0/by",
        ));
    }
    for (time, wanted) in [
        (json!("2024-05-06 07:08"), "BND-PRV-10 /outcomes/1/groups"),
        (json!("2024-05-06 07:08:09 UTC"), "BND-PRV-10 /outcomes/1/groups"),
        (json!(1_714_979_289), "BND-PRV-10 /outcomes/1/groups"),
        (json!(1_714_979_289_123_u64), "BND-PRV-10 /outcomes/1/groups"),
        (json!("1714979289"), "BND-PRV-10 /outcomes/1/groups"),
        (json!("20240506T070809Z"), "BND-PRV-10 /outcomes/1/groups"),
        (json!("20240506T0708+02"), "BND-PRV-10 /outcomes/1/groups"),
        (json!("Mon, 06 May 2024 07:08:09 +0000"), "BND-PRV-10 /outcomes/1/groups"),
        (json!("6 May 2024 07:08 GMT"), "BND-PRV-10 /outcomes/1/groups"),
        (json!("Mon May  6 07:08:09 UTC 2024"), "BND-PRV-10 /outcomes/1/groups"),
        (json!("2024-W19-1T07:08"), "BND-PRV-10 /outcomes/1/groups"),
        (json!("07:08"), "BND-PRV-10 /outcomes/1/groups"),
        (json!("00:00"), ""),
        (json!("20240506T000000Z"), ""),
        (json!("20240506"), ""),
        (json!("Mon, 06 May 2024 00:00:00 +0000"), ""),
        (json!("6 May 2024"), ""),
        (json!("bus 07:08 in 2024"), ""),
        (json!("2024-05-06"), ""),
        (json!("2024-05-06T00:00:00Z"), ""),
        (json!("2024-05-06 00:00"), ""),
        (json!("2024-05-06 and 07:08"), ""),
        (json!(1_714_953_600), ""),
        (json!(1_714_953_600_000_u64), ""),
        (json!(17), ""),
    ] {
        for name in ["lastVoteAt", "modified", "timestamp"] {
            insertions.push(new_insertion("/outcomes/1/groups", json!({ name: time }), wanted));
        }
    }
    insertions.push(new_insertion("/outcomes/1/groups", json!({ "id": 1_714_979_289 }), ""));
    let pointer = "/provenance/sourceArtifacts/0";
    for time in [json!(1_658_934_633_363_u64), json!("1658934633363"), json!(1_658_934_633)] {
        let expected_finding = format!("BND-PRV-10 {pointer}");
        insertions.push(new_insertion(&format!("{pointer}/lastVoteAt"), time.clone(), &expected_finding));
        insertions.push(new_insertion(&format!("{pointer}/timestamp"), time.clone(), &expected_finding));
        insertions.push(new_insertion(
            &format!("{pointer}/x"),
            json!({ "created": time }),
            &format!("{expected_finding}/x"),
        ));
        insertions.push(new_insertion(&format!("{pointer}/size"), time.clone(), ""));
        insertions.push(new_insertion(&format!("{pointer}/id"), time, ""));
    }
    insertions.push(new_insertion(
        &format!("{pointer}/n"),
        json!("20240506T070809Z"),
        &format!("BND-PRV-10 {pointer}/n"),
    ));
    insertions.push(new_insertion(&format!("{pointer}/votes"), json!(1), ""));
    // The export time is not that of a participant.
    insertions.push(new_insertion("/exportedAt", json!("2024-05-06T07:08:09.123Z"), ""));
    insertions.push(new_insertion("/provenance/transformedAt", json!("2024-05-06T07:08:09.123Z"), ""));
    assert_findings(insertions);
}

#[test]
fn groups_omitting_few_people_are_found_in_any_order() {
    let mut bundle = shared();
    let mut of_groups = bundle["outcomes"][0].clone();
    let members = of_groups.as_object_mut().unwrap();
    members.remove("counts");
    members.insert("id".to_owned(), json!("by-group:1"));
    members.insert("type".to_owned(), json!("group-response-counts"));
    members.insert("groups".to_owned(), json!({ "a": { "agree": 5 }, "b": { "agree": 5 } }));
    bundle["outcomes"].as_array_mut().unwrap().insert(0, of_groups);
    for (agree, wanted) in [(10, 0), (11, 1), (14, 1), (15, 0)] {
        bundle["responses"][0]["count"] = json!(agree);
        bundle["outcomes"][1]["counts"] = json!({ "agree": agree, "disagree": 0, "pass": 0 });
        bundle["responses"].as_array_mut().unwrap().retain(|response| response["response"] != "disagree");
        bundle["summary"]["responses"] = json!(agree + 7);
        bundle["summary"]["participants"] = json!(agree + 7);
        let options = Options { k: 5, ..options() };
        for seed in 0..20 {
            let findings = finding_places(&check_with(shuffled(&bundle, seed).as_bytes(), &options));
            assert_eq!(findings, vec!["BND-PRV-20 /outcomes/0/groups"; wanted], "{agree}");
        }
    }
}

#[test]
fn participant_references_are_found_alone() {
    let linked = |place: &str, value: Value| {
        let rules = [
            "BND-PRV-02 /dataCard/containsPseudonymousLinkage",
            "BND-PRV-05 /dataCard/suitableForPublicSharing",
        ];
        (place.to_owned(), value, rules.map(str::to_owned).to_vec())
    };
    let mut insertions = Vec::new();
    for reference in [
        "participant:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
        "participant:7",
        "participant:ada",
        "see participant:7.",
    ] {
        insertions.push(linked("/bundleId", json!(reference)));
        insertions.push(linked("/source/sourceId", json!(reference)));
        insertions.push(linked("/source/title", json!(reference)));
        insertions.push(linked("/phases/0/title", json!(reference)));
        let mut phase = shared()["phases"][0].clone();
        phase["id"] = json!(format!("phase:{reference}"));
        insertions.push(linked("/phases/-", phase));
        insertions.push(linked("/items/1/id", json!(format!("statement:{reference}"))));
        insertions.push(linked("/items/1/type", json!(reference)));
        insertions.push(linked("/responses/0/id", json!(reference)));
        insertions.push(linked("/responses/2/id", json!(format!("vote:1:{reference}"))));
        insertions.push(linked("/outcomes/1/id", json!(reference)));
        insertions.push(linked("/outcomes/1/type", json!(reference)));
        insertions.push(linked("/outcomes/1/members", json!([reference])));
        insertions.push(linked("/outcomes/1/suppressed", json!(["agree", reference])));
        insertions.push(linked("/outcomes/1/theirs", json!(reference)));
        insertions.push(linked("/outcomes/1/theirs", json!([{ "by": reference }])));
        insertions.push(linked("/outcomes/1/theirs", json!({ reference: 0.5 })));
        insertions.push(linked("/outcomes/0/counts/of", json!(reference)));
        insertions.push(linked(&format!("/outcomes/1/{reference}"), json!(0.5)));
        insertions.push(linked("/provenance/sourceArtifacts/0/name", json!(reference)));
        insertions.push(linked("/provenance/sourceArtifacts/0/by", json!([reference])));
        insertions.push(linked(&format!("/provenance/sourceArtifacts/0/{reference}"), json!(true)));
        insertions.push(linked("/provenance/notes/0", json!(reference)));
        insertions.push(linked("/dataCard/limitations/-", json!(reference)));
    }
    for digits in ["0a0b0c0d0a0b0c0d0a0b0c0d0a0b0c0d", "F00D1234F00D1234F00D1234F00D1234"] {
        for id in [format!("vote:1:{digits}"), digits.to_owned(), format!("{digits}-1")] {
            insertions.push(linked("/responses/0/id", json!(id)));
            insertions.push(linked("/responses/2/id", json!(id)));
            insertions.push(linked("/outcomes/1/id", json!(id)));
        }
        // Item ids may be digits, and ids about an item may contain its id.
        insertions.push(new_insertion("/items/1/id", json!(format!("statement:{digits}")), ""));
        insertions.push(new_insertion("/source/sourceId", json!(digits), ""));
        let mut response = shared()["responses"][0].clone();
        response["id"] = json!(format!("tally:{digits}:agree"));
        response["subjectRef"] = json!(digits);
        let expected_findings = ["BND-REF-03 /responses/0/subjectRef", "BND-SUM-05 /outcomes/0/counts/agree"];
        insertions.push(("/responses/0".to_owned(), response, expected_findings.map(str::to_owned).to_vec()));
    }
    for harmless_text in ["participant: nobody", "participant:", "a participant", "of each participant"] {
        insertions.push(new_insertion("/outcomes/1/theirs", json!({ harmless_text: [harmless_text] }), ""));
        insertions.push(new_insertion("/responses/0/id", json!(harmless_text), ""));
        insertions.push(new_insertion("/items/1/id", json!(harmless_text), ""));
        insertions.push(new_insertion("/provenance/notes/0", json!(harmless_text), ""));
    }
    assert_findings(insertions);
}

#[test]
fn rows_of_few_people_are_found_among_many() {
    let mut rows = Vec::new();
    for (answer, count) in [("agree", 4), ("disagree", 3)] {
        for day in 1..=count {
            let mut row = shared()["responses"][0].clone();
            row["id"] = json!(format!("{answer}:{day}"));
            row["response"] = json!(answer);
            row["count"] = json!(1);
            row["occurredAt"] = json!(format!("2024-05-0{day}T00:00:00Z"));
            rows.push(row);
        }
    }
    rows.push(shared()["responses"][2].clone());
    let expected_findings: Vec<_> = (0..7).map(|at| format!("BND-PRV-09 /responses/{at}/count")).collect();
    assert_findings(vec![("/responses".to_owned(), json!(rows), expected_findings)]);
}

#[test]
fn small_counts_are_found_under_any_name_and_as_text() {
    let mut insertions = Vec::new();
    for few in [json!(2), json!(1), json!("2"), json!(" 1.0 ")] {
        for name in [
            "n",
            "n-votes",
            "n_agree",
            "group-a-agree-count",
            "participantCount",
            "totalVotes",
            "TOTALVOTES",
            "nvotes",
            "Respondents",
            "Cant Decide",
            "size",
            "wins",
            "losses",
            "voters",
            "people",
            "numberOfAnswers",
            "passes",
            "skipped",
        ] {
            let place = format!("BND-PRV-12 /outcomes/1/groups/{name}");
            insertions.push(new_insertion("/outcomes/1/groups", json!({ name: few }), &place));
            let place = format!("BND-PRV-12 /outcomes/1/groups/0/{name}");
            insertions.push(new_insertion("/outcomes/1/groups", json!([{ "id": 7, name: few }]), &place));
            let place = format!("BND-PRV-12 /outcomes/1/groups/{name}/1");
            insertions.push(new_insertion("/outcomes/1/groups", json!({ name: [7, few] }), &place));
            let place = format!("BND-PRV-12 /outcomes/1/{name}");
            insertions.push(new_insertion(&format!("/outcomes/1/{name}"), few.clone(), &place));
            insertions.push(new_insertion(&format!("/outcomes/1/{name}"), json!({ "yes": few }), &place));
        }
        insertions.push(new_insertion("/outcomes/1/ada-votes", few.clone(), "BND-PRV-12 /outcomes/1"));
        insertions.push(new_insertion(
            "/outcomes/1/theirs",
            json!({ "agree": few }),
            "BND-PRV-12 /outcomes/1",
        ));
        insertions.push(new_insertion(
            "/outcomes/1/counts",
            json!({ "theirs": few }),
            "BND-PRV-12 /outcomes/1/counts",
        ));
        for answer in ["agree", "equal", "prefer-subject"] {
            let place = format!("BND-PRV-12 /outcomes/1/counts/{answer}");
            insertions.push(new_insertion("/outcomes/1/counts", json!({ answer: few }), &place));
        }
        for name in ["agree-rank", "voterId", "vote_score", "passion", "x", "win rate"] {
            insertions.push(new_insertion("/outcomes/1/groups", json!({ name: few }), ""));
        }
    }
    insertions.push(new_insertion(
        "/outcomes/1/observations",
        json!(2),
        "BND-PRV-12 /outcomes/1/observations",
    ));
    insertions.push(new_insertion("/summary/participants", json!(2), "BND-PRV-13 /summary/participants"));
    // Statement 1 has seven answers, all of them counted.
    for few in [8, 9] {
        insertions.push(new_insertion("/summary/participants", json!(few), "BND-PRV-19 /items/0"));
    }
    // The total is fourteen.
    for few in [15, 16] {
        insertions.push(new_insertion(
            "/summary/participants",
            json!(few),
            "BND-PRV-21 /summary/participants",
        ));
    }
    for enough in [7, 10, 14, 17] {
        insertions.push(new_insertion("/summary/participants", json!(enough), ""));
    }
    let mut of_groups = shared()["outcomes"][0].clone();
    let members = of_groups.as_object_mut().unwrap();
    members.remove("counts");
    members.insert("id".to_owned(), json!("by-group:1"));
    members.insert("type".to_owned(), json!("group-response-counts"));
    // Four agree, and three disagree.
    for (groups, wanted) in [
        (json!({ "a": { "agree": 3 } }), "BND-PRV-20 /outcomes/2/groups"),
        (
            json!([{ "id": "a", "agree": 0 }, { "id": "b", "agree": 3, "pass": 0 }]),
            "BND-PRV-20 /outcomes/2/groups",
        ),
        (json!({ "agree": { "agree": 3 }, "b": { "disagree": 3 } }), ""),
        (json!({ "a": { "agree": 4 }, "b": { "disagree": 3 } }), ""),
        (json!({ "a": { "agree": 0 }, "b": { "disagree": 3 } }), ""),
        (json!({ "a": { "agree": 9, "disagree": "3" } }), ""),
        (json!({ "a": { "agree": { "agree": 3 } } }), ""),
        (json!({ "a": { "agree": [3] } }), ""),
        (json!(3), ""),
    ] {
        members.insert("groups".to_owned(), groups);
        insertions.push(new_insertion("/outcomes/-", json!(members), wanted));
    }
    insertions.push(new_insertion(
        "/outcomes/1/suppressed",
        json!(["agree"]),
        "BND-PRV-14 /outcomes/1/suppressed",
    ));
    insertions.push(new_insertion(
        "/outcomes/1/suppressed",
        json!(["agree", "agree"]),
        "BND-PRV-14 /outcomes/1/suppressed",
    ));
    let shown_counts = json!({ "agree": 4, "disagree": 3 });
    insertions.push(new_insertion("/outcomes/1/counts", shown_counts, "BND-PRV-15 /outcomes/1/observations"));
    let counts = |total: &str, number: Value, hidden: Value| {
        let mut outcome = shared()["outcomes"][0].clone();
        outcome["type"] = json!("tool-counts");
        outcome["counts"] = json!({ "disagree": 13 });
        outcome["suppressed"] = hidden;
        outcome[total] = number;
        outcome
    };
    let hidden_answers = json!(["agree", "pass"]);
    for total in ["total", "votes", "n", "participants", "answers", "totalVotes", "number-of-voters"] {
        for number in [json!(14), json!("14"), json!(15)] {
            let outcome = counts(total, number, hidden_answers.clone());
            insertions.push(new_insertion("/outcomes/0", outcome, "BND-PRV-15 /outcomes/0"));
        }
        for number in [json!(13), json!(16), json!(7), json!("many")] {
            insertions.push(new_insertion("/outcomes/0", counts(total, number, hidden_answers.clone()), ""));
        }
    }
    insertions.push(new_insertion("/outcomes/0", counts("clusters", json!(14), hidden_answers.clone()), ""));
    let mut two = counts("n", json!(7), hidden_answers);
    two["total"] = json!(14);
    insertions.push(new_insertion("/outcomes/0", two, "BND-PRV-15 /outcomes/0"));
    for no_list in [
        json!("agree"),
        json!({ "agree": true }),
        json!(["agree", 1]),
        json!([["agree", "pass"]]),
        json!(2),
        json!(true),
        json!(null),
    ] {
        insertions.push(new_insertion(
            "/outcomes/1/suppressed",
            no_list,
            "BND-PRV-16 /outcomes/1/suppressed",
        ));
    }
    insertions.push(new_insertion("/outcomes/1/suppressed", json!([]), ""));
    for plenty in [json!(3), json!(0), json!("7"), json!("two"), json!(0.5), json!(null), json!("")] {
        insertions.push(new_insertion("/outcomes/1/groups", json!({ "n-votes": plenty }), ""));
    }
    assert_findings(insertions);
}
