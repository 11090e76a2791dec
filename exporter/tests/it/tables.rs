//! Tests of tables made from bundles of other writers.

use std::{collections::BTreeSet, fs, path::Path};

use crate::support::{Conversation, Folder, bundle, run};
use serde_json::{Value, json};
use tidegate_exporter::{
    convert::{Job, Target},
    form::SCHEMA_URL,
    privacy::ParticipantNaming,
    tables::{Cells, TableFormat, VoterIds},
};

/// Converts a bundle of another writer to tables.
fn tables(
    folder: &Folder,
    shape: TableFormat,
    bundle: &Value,
    change: impl FnOnce(&mut Job),
) -> Result<Vec<String>, String> {
    let mut job = folder.job(&folder.write("theirs.json", bundle.to_string()));
    (job.key, job.table_format, job.target) = (None, Some(shape), Target::File(folder.path("tables")));
    change(&mut job);
    let preview = run(&Job { dry_run: true, ..job.clone() }).map(|report| report.notes);
    let notes = run(&job).map(|report| report.notes);
    assert_eq!(format!("{preview:?}"), format!("{notes:?}"));
    notes.map_err(|error| error.to_string())
}

fn records(folder: &Folder, name: &str) -> Vec<Vec<String>> {
    let reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_path(folder.path("tables").join(name));
    let records =
        reader.unwrap().into_records().map(|record| record.unwrap().iter().map(str::to_owned).collect());
    records.collect()
}

/// Bundle of one phase with the given statements, and a row per answer: participant, statement, answer.
fn theirs(items: &[&str], responses: &[(Option<&str>, &str, &str)]) -> Value {
    let item = |id: &&str| {
        json!({ "id": id, "phaseId": "one", "type": "statement", "text": "=1+1", "status": "approved",
            "origin": "participant", "createdAt": null })
    };
    let response = |(at, (who, about, answer)): (usize, &(Option<&str>, &str, &str))| {
        json!({ "id": format!("r{at}"), "phaseId": "one", "subjectRef": about, "participantRef": who,
            "response": answer, "count": 1, "occurredAt": null })
    };
    json!({
        "schema": SCHEMA_URL, "kind": "service-data-bundle", "bundleId": "theirs", "exportedAt": "2026-01-02T03:04:05Z",
        "source": { "tool": "polis", "sourceSchema": "https://example.org/s", "sourceId": "1", "title": "@title",
            "description": "+1", "url": "https://example.org/1" },
        "phases": [{ "id": "one", "type": "opinion", "title": "One", "status": "done" }],
        "items": items.iter().map(item).collect::<Vec<_>>(),
        "responses": responses.iter().enumerate().map(response).collect::<Vec<_>>(),
        "outcomes": [],
        "summary": { "participants": 1, "items": 1, "responses": 1, "coverage": 1 },
        "provenance": { "adapter": "a", "transformedAt": "2026-01-02T03:04:05Z", "sourceArtifacts": [], "notes": [] },
        "dataCard": {},
    })
}

#[test]
fn guarded_cells_are_no_formulas_and_still_match() {
    let folder = Folder::new();
    let ids =
        ["statement:=cmd|x!A1", "statement:'=cmd|x!A1", "@two", "statement:-1-1", "statement:\t3", "-1"];
    let voters = ["=1+1", "'=1+1", "+voter"];
    let mut bundle = theirs(&ids, &[]);
    let mut responses = Vec::new();
    for who in voters {
        responses.extend(ids.map(|id| {
            json!({ "id": format!("{who}{id}"), "phaseId": "one", "subjectRef": id, "participantRef": who,
                "response": "disagree", "count": 1, "occurredAt": "=NOW()" })
        }));
    }
    bundle["responses"] = responses.into();
    let groups = ["=HYPERLINK(1)", "'=HYPERLINK(1)", "-"];
    let group = |at: usize| {
        json!({ "id": format!("g{at}"), "phaseId": "one", "type": "group-members", "itemRef": null,
            "group": groups[at], "members": [voters[at]] })
    };
    bundle["outcomes"] = (0..3).map(group).collect();
    let formulas = |name: &str| {
        let cells = records(&folder, name).into_iter().flatten();
        cells.filter(|cell| cell != "-1" && cell.starts_with(['=', '+', '-', '@', '\t', '\r'])).count()
    };
    let files = ["votes.csv", "comments.csv", "participant-votes.csv", "summary.csv"];
    for (cells, live) in [(Cells::Guarded, false), (Cells::Exact, true)] {
        tables(&folder, TableFormat::PolisCsv, &bundle, |job| {
            (job.voter_ids, job.cells) = (VoterIds::References, cells);
        })
        .unwrap();
        for name in files {
            assert_eq!(formulas(name) > 0, live, "{name}");
        }
        let column = |name: &str, at: usize| {
            let rows = records(&folder, name).into_iter().skip(1);
            rows.map(|mut row| row.swap_remove(at)).collect::<BTreeSet<_>>()
        };
        let comments = column("comments.csv", 2);
        assert_eq!(comments.len(), ids.len());
        assert_eq!(column("votes.csv", 2), comments);
        assert_eq!(
            records(&folder, "participant-votes.csv")[0][8..].iter().cloned().collect::<BTreeSet<_>>(),
            comments
        );
        assert_eq!(column("votes.csv", 3), column("participant-votes.csv", 0));
        assert_eq!(column("votes.csv", 3).len(), voters.len());
        assert_eq!(column("participant-votes.csv", 2).len(), voters.len());
        fs::remove_dir_all(folder.path("tables")).unwrap();
        tables(&folder, TableFormat::SensemakingCsv, &bundle, |job| job.cells = cells).unwrap();
        assert_eq!(formulas("comments.csv") > 0, live);
        assert_eq!(column("comments.csv", 0), comments);
        fs::remove_dir_all(folder.path("tables")).unwrap();
    }
}

#[test]
fn number_of_guarded_cells_is_noted() {
    let folder = Folder::new();
    let guard_notes = |notes: &[String]| {
        notes.iter().filter(|note| note.contains("--exact-cells")).cloned().collect::<Vec<_>>()
    };
    let because = "with an added apostrophe, which keeps spreadsheets from executing the rest as a formula: \
                   --exact-cells omits it.";
    for shape in [TableFormat::PolisCsv, TableFormat::SensemakingCsv] {
        for (text, more) in [("plain", 0), ("=1+1", 1), ("'@home", 1)] {
            for ids in [&["one", "two"][..], &["-one", "two"]] {
                let mut bundle =
                    theirs(ids, &[(Some("ann"), ids[0], "agree"), (Some("bob"), ids[1], "pass")]);
                bundle["source"]["title"] = json!("plain");
                bundle["source"]["description"] = json!("");
                bundle["items"][0]["text"] = json!("plain");
                bundle["items"][1]["text"] = json!(text);
                let mut file_contents = Vec::new();
                for cells in [Cells::Guarded, Cells::Exact] {
                    let notes = tables(&folder, shape, &bundle, |job| job.cells = cells).unwrap();
                    let names = fs::read_dir(folder.path("tables")).unwrap();
                    let mut names: Vec<_> =
                        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
                    names.sort();
                    let cells = names.iter().flat_map(|name| records(&folder, name)).flatten();
                    file_contents.push((cells.collect::<Vec<_>>(), guard_notes(&notes)));
                    fs::remove_dir_all(folder.path("tables")).unwrap();
                }
                let (guarded, exact) = (&file_contents[0], &file_contents[1]);
                let differ =
                    guarded.0.iter().zip(&exact.0).filter(|(guarded, exact)| guarded != exact).count();
                assert_eq!(differ == more, ids[0] == "one", "{text} {ids:?}");
                assert!(exact.1.is_empty());
                let expected_notes = match differ {
                    0 => vec![],
                    1 => vec![format!("1 cell begins {because}")],
                    _ => vec![format!("{differ} cells begin {because}")],
                };
                assert_eq!(guarded.1, expected_notes, "{shape:?} {text} {ids:?}");
            }
        }
    }
}

#[test]
fn guarded_tables_are_read_as_one_conversation() {
    let (folder, mut conversation) = (Folder::new(), Conversation::new(48, 3, 20));
    conversation.comments[1].3 = "=1+1".to_owned();
    let input = conversation.variant_a(&folder, "a");
    for name in ["comments.csv", "votes.csv"] {
        let text = fs::read_to_string(input.join(name)).unwrap();
        // The second comment gets another id.
        let text = text.replace(",1,77", ",=1+1,77");
        fs::write(input.join(name), text).unwrap();
    }
    fs::remove_file(input.join("participants-votes.csv")).unwrap();
    let mut first = bundle(&folder.fresh(&input)).1;
    tables(&folder, TableFormat::PolisCsv, &first, |_| {}).unwrap();
    let mut bundle_job = folder.fresh(&folder.path("tables"));
    bundle_job.target = Target::File(folder.path("again.json"));
    let mut second = bundle(&bundle_job).1;
    assert_eq!(second["summary"], first["summary"]);
    let counts = |bundle: &mut Value| {
        let outcomes = bundle["outcomes"].as_array_mut().unwrap();
        outcomes.retain(|it| it["type"] == "response-counts");
        outcomes.iter().map(|it| it["counts"].to_string()).collect::<BTreeSet<_>>()
    };
    assert_eq!(counts(&mut second), counts(&mut first));
}

#[test]
fn groups_without_a_common_column_are_omitted() {
    let folder = Folder::new();
    let voters = ["participant:a", "participant:b"];
    let mut bundle = theirs(&["statement:1"], &voters.map(|who| (Some(who), "statement:1", "agree")));
    let after = json!({ "id": "two", "type": "opinion", "title": "Two", "status": "done" });
    bundle["phases"].as_array_mut().unwrap().push(after);
    let group = |phase: &str, group: &str, members: &[&str]| {
        json!({ "id": format!("{phase}{group}"), "phaseId": phase, "type": "group-members", "itemRef": null,
            "group": group, "members": members })
    };
    let [a, b] = voters;
    for (groups, fit) in [
        ([group("one", "0", &[a]), group("one", "1", &[b])], true),
        ([group("one", "0", &[a]), group("two", "1", &[b])], true),
        ([group("one", "0", &[a, b]), group("two", "1", &[b])], false),
        ([group("one", "0", &[a, b]), group("one", "1", &[b])], false),
        ([group("one", "0", &[a]), group("two", "0", &[b])], false),
        ([group("one", "0", &[a]), group("one", "0 ", &[b])], false),
    ] {
        bundle["outcomes"] = json!(groups);
        let notes = tables(&folder, TableFormat::PolisCsv, &bundle, |_| {}).unwrap();
        let noted = notes.iter().any(|note| note.starts_with("Group members were left out"));
        assert_eq!(noted, !fit, "{groups:?}: {notes:?}");
        let column: Vec<_> =
            records(&folder, "participant-votes.csv")[1..].iter().map(|row| row[2].clone()).collect();
        assert_eq!(column, if fit { ["0", "1"] } else { ["", ""] }, "{groups:?}");
        fs::remove_dir_all(folder.path("tables")).unwrap();
    }
}

#[test]
fn cells_with_semicolons_and_tabs_are_quoted() {
    let folder = Folder::new();
    let mut bundle = theirs(&["statement:2;=1+1"], &[(Some("participant:a"), "statement:2;=1+1", "agree")]);
    bundle["items"][0]["text"] = json!("ok\t=1+1");
    bundle["source"]["description"] = json!("\n=1+1");
    tables(&folder, TableFormat::PolisCsv, &bundle, |_| {}).unwrap();
    let text = |name: &str| fs::read_to_string(folder.path("tables").join(name)).unwrap();
    assert!(text("comments.csv").contains("\"ok\t=1+1\""), "{}", text("comments.csv"));
    assert!(text("votes.csv").contains("\"2;=1+1\""), "{}", text("votes.csv"));
    assert!(text("summary.csv").contains("\"'\n=1+1\""), "{}", text("summary.csv"));
}

const BOTH: [TableFormat; 2] = [TableFormat::PolisCsv, TableFormat::SensemakingCsv];
const SEVERAL: &str = "its item has answers in another phase, too, and a table would count them as one: --to ndjson and \
    parquet keep phases apart";

#[test]
fn phases_that_a_table_would_merge_are_refused() {
    let (a, b) = (Some("participant:a"), Some("participant:b"));
    let folder = Folder::new();
    let mut bundle = theirs(
        &["statement:1", "statement:2"],
        &[(a, "statement:1", "agree"), (b, "statement:1", "agree"), (a, "statement:2", "disagree")],
    );
    let after = json!({ "id": "two", "type": "opinion", "title": "Two", "status": "done" });
    bundle["phases"].as_array_mut().unwrap().push(after);
    bundle["responses"][2]["phaseId"] = json!("two");
    let counts = |phase: &str, agree: u64| {
        json!({ "id": phase, "phaseId": phase, "type": "response-counts", "itemRef": "statement:1",
            "counts": { "agree": agree, "disagree": 0, "pass": 0 } })
    };
    bundle["outcomes"] = json!([counts("two", 0), counts("one", 2)]);
    for shape in BOTH {
        let notes = tables(&folder, shape, &bundle, |job| job.cells = Cells::Exact).unwrap();
        assert_eq!(notes, ["Tables have no column for phases: 2 phases were merged."]);
        let at = if shape == TableFormat::PolisCsv { 4 } else { 2 };
        assert_eq!(records(&folder, "comments.csv")[1][at], "2");
        fs::remove_dir_all(folder.path("tables")).unwrap();
    }
    let mut answered = bundle.clone();
    answered["responses"][1]["phaseId"] = json!("two");
    let mut with_counts = bundle.clone();
    with_counts["outcomes"][0]["counts"]["pass"] = json!(1);
    for shape in BOTH {
        for (bundle, at) in [(&answered, "responses/1"), (&with_counts, "outcomes/1")] {
            let error = tables(&folder, shape, bundle, |_| {}).unwrap_err();
            // The outcomes may precede or follow the responses.
            let at = if error.contains("/outcomes/0") { "outcomes/0" } else { at };
            assert_eq!(error, format!("theirs.json: /{at}: {SEVERAL}"), "{shape:?}");
        }
    }
    assert!(!folder.path("tables").exists());
}

#[test]
fn content_other_than_opinions_is_refused() {
    let a = Some("participant:a");
    let folder = Folder::new();
    let original =
        theirs(&["statement:1", "statement:2"], &[(a, "statement:1", "agree"), (a, "statement:2", "pass")]);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed_bundle = original.clone();
        change(&mut changed_bundle);
        changed_bundle
    };
    let cases = [
        (
            with(&|it| it["responses"][1]["objectRef"] = json!("statement:1")),
            "/responses/1: it is a comparison, not a vote on a statement: --to ndjson and parquet keep it",
        ),
        (
            with(&|it| it["responses"][1]["response"] = json!("equal")),
            "/responses/1: it is a comparison, not a vote on a statement: --to ndjson and parquet keep it",
        ),
        (
            with(&|it| it["responses"][1]["subjectRef"] = json!("statement:3")),
            "/responses/1: its item does not exist",
        ),
        (
            with(&|it| it["responses"][0]["count"] = json!(3)),
            "/responses/0: it names a participant, and its count is not 1",
        ),
        (
            with(&|it| it["items"][1]["id"] = json!("1")),
            "/items/1: it would be merged with /items/0: their ids differ at most by `statement:` or \
                spaces, which tables omit",
        ),
        (
            with(&|it| it["items"][1]["id"] = json!("statement:1")),
            "/items/1: it would be merged with /items/0: their ids differ at most by `statement:` or \
                spaces, which tables omit",
        ),
    ];
    for (bundle, says) in cases {
        for shape in BOTH {
            let error = tables(&folder, shape, &bundle, |_| {}).unwrap_err();
            assert_eq!(error, format!("theirs.json: {says}"), "{shape:?}");
        }
    }
}

#[test]
fn values_without_a_table_code_are_counted() {
    let folder = Folder::new();
    let mut bundle = theirs(
        &["statement:1", "statement:2", "statement:3"],
        &[(Some("participant:a"), "statement:1", "agree")],
    );
    bundle["items"][0]["status"] = json!("flagged");
    bundle["items"][0]["origin"] = json!("model");
    bundle["items"][1]["status"] = json!("active");
    bundle["items"][1]["origin"] = json!("organizer");
    bundle["items"][2]["type"] = json!("claim");
    bundle["outcomes"] = json!([{ "id": "t", "phaseId": "one", "type": "topics", "itemRef": "statement:1" }]);
    let both = [
        "Tables have no column for types: 1 item of another type appears as a statement.",
        "Of 1 item `moderated` is 1, as if it were approved: the status is active.",
        "The table has no column for 1 outcome, which was left out: 1 of topics.",
    ];
    let notes = tables(&folder, TableFormat::PolisCsv, &bundle, |job| job.cells = Cells::Exact).unwrap();
    let polis_notes = [
        "Of 1 item `moderated` is 0, as if it were pending: the status is none of approved, pending and rejected.",
        "Of 1 item `is-seed` is true, as if an organizer had written it: the origin is another one.",
    ];
    assert_eq!(notes, [&polis_notes[..], &both].concat());
    fs::remove_dir_all(folder.path("tables")).unwrap();
    let notes =
        tables(&folder, TableFormat::SensemakingCsv, &bundle, |job| job.cells = Cells::Exact).unwrap();
    let sensemaking_notes = [
        "Of 1 item `moderated` is empty: the status is none of approved, pending and rejected.",
        "The table has no column for origins: 2 items were not written by participants.",
    ];
    assert_eq!(notes, [&sensemaking_notes[..], &both].concat());
}

#[test]
fn repeated_list_is_refused_in_every_format() {
    let folder = Folder::new();
    let original = theirs(&["statement:1"], &[(Some("participant:a"), "statement:1", "agree")]).to_string();
    for name in ["responses", "kind"] {
        let twice = original.replacen(&format!("\"{name}\":"), &format!("\"{name}\":[],\n\"{name}\":"), 1);
        let path = folder.write("twice.json", twice);
        for shape in
            [TableFormat::PolisCsv, TableFormat::SensemakingCsv, TableFormat::Ndjson, TableFormat::Parquet]
        {
            let mut job = folder.job(&path);
            (job.key, job.table_format, job.target) =
                (None, Some(shape), Target::File(folder.path("tables")));
            let message = run(&job).unwrap_err().to_string();
            assert_eq!(
                message, "twice.json, row 2: not a valid bundle: run `tidegate bundle validate` for details",
                "{shape:?}"
            );
        }
    }
}

const NO_PLACE: &str = "The table has no column for";

#[test]
fn group_counts_differing_from_votes_are_noted() {
    let folder = Folder::new();
    let mut bundle = theirs(
        &["statement:1", "statement:2"],
        &[
            (Some("participant:a"), "statement:1", "agree"),
            (Some("participant:b"), "statement:1", "pass"),
            (Some("participant:b"), "statement:2", "agree"),
        ],
    );
    let members = |group: &str, who: &str| {
        json!({ "id": format!("m{group}"), "phaseId": "one", "type": "group-members", "itemRef": "statement:1",
            "group": group, "members": [format!("participant:{who}")] })
    };
    let counts = |item: &str, phase: &str, groups: Value| {
        json!({ "id": format!("g{item}"), "phaseId": phase, "type": "group-response-counts",
            "itemRef": format!("statement:{item}"), "groups": groups })
    };
    let follows = counts("1", "one", json!({ "x": { "agree": 1, "disagree": 0 }, "y": { "pass": 1 } }));
    let mut noted = |second: Value| {
        bundle["outcomes"] = json!([members("x", "a"), members("y", "b"), follows, second]);
        let notes = tables(&folder, TableFormat::PolisCsv, &bundle, |_| {}).unwrap();
        notes.into_iter().find(|note| note.starts_with(NO_PLACE))
    };
    for nothing_else in [
        json!({ "y": { "agree": 1 }, "x": { "agree": 0 } }),
        json!({ "y": { "agree": 1, "unsure": 0, "suppressed": [] }, "x": null }),
    ] {
        assert_eq!(noted(counts("2", "one", nothing_else)), None);
    }
    let mut hiding = counts("2", "one", json!({ "y": { "agree": 1 } }));
    hiding["suppressed"] = json!(["pass"]);
    let one = format!("{NO_PLACE} 1 outcome, which was left out: 1 of group-response-counts.");
    for other in [
        counts("2", "one", json!({ "y": { "agree": 2 } })),
        counts("2", "one", json!({ "y": { "agree": 1 }, "elsewhere": { "agree": 3 } })),
        counts("2", "one", json!({ "y": { "agree": "many" } })),
        counts("2", "two", json!({ "y": { "agree": 1 } })),
        counts("2", "one", Value::Null),
        counts("2", "one", json!({ "y": { "agree": 1, "equal": 2 } })),
        counts("2", "one", json!({ "y": { "agree": 1, "unsure": 1 } })),
        counts("2", "one", json!({ "y": { "agree": 1, "suppressed": ["pass"] } })),
        counts("2", "one", json!({ "y": 1 })),
        hiding,
    ] {
        assert_eq!(noted(other.clone()).as_ref(), Some(&one), "{other}");
    }
}

#[test]
fn counts_of_answers_that_have_no_column_are_noted() {
    let folder = Folder::new();
    let mut bundle = theirs(&["statement:1"], &[(Some("participant:a"), "statement:1", "agree")]);
    let mut noted = |kind: &str, counts: Value, suppressed: Value| {
        bundle["outcomes"] = json!([{ "id": "o", "phaseId": "one", "type": kind, "itemRef": "statement:1",
            "counts": counts, "suppressed": suppressed }]);
        BOTH.map(|shape| {
            let notes = tables(&folder, shape, &bundle, |_| {}).unwrap();
            notes.iter().any(|note| {
                note == "Of 1 outcome counts of other answers than agree, disagree and pass were left out: they have no column."
            })
        })
    };
    let (counted, published) = ("response-counts", "source-response-counts");
    assert_eq!(noted(counted, json!({ "agree": 1, "unsure": 0 }), json!(["pass"])), [false; 2]);
    assert_eq!(noted(counted, json!({ "agree": 1, "unsure": 2 }), Value::Null), [true; 2]);
    assert_eq!(noted(counted, json!({ "agree": 1 }), json!(["equal"])), [true; 2]);
    let with_column = BOTH.map(|shape| shape == TableFormat::PolisCsv);
    assert_eq!(noted(published, json!({ "equal": 3 }), Value::Null), with_column);
}

#[test]
fn statement_named_like_a_column_is_refused() {
    let folder = Folder::new();
    let with = |id: &str| {
        theirs(
            &["statement:1", id],
            &[(Some("participant:a"), "statement:1", "agree"), (Some("participant:a"), id, "pass")],
        )
    };
    for (id, name) in [
        ("statement:participant", "participant"),
        ("statement:XID", "xid"),
        ("n-votes", "n-votes"),
        ("statement: group-id ", "group-id"),
        ("statement:comment-id", "comment-id"),
    ] {
        let description = if name == "comment-id" {
            "a column called comment-id, for which participant-votes.csv could be taken for a table of comments or votes"
                .to_owned()
        } else {
            format!("a second column called {name}, which could not be read back")
        };
        let message = format!(
            "theirs.json: /items/1: its id makes it {description}: --to ndjson, parquet and sensemaking-csv keep it"
        );
        assert_eq!(tables(&folder, TableFormat::PolisCsv, &with(id), |_| {}), Err(message));
        tables(&folder, TableFormat::SensemakingCsv, &with(id), |_| {}).unwrap();
    }
    for shape in BOTH {
        let message = "theirs.json: /items/1: its id is empty, and tables identify statements by it";
        assert_eq!(tables(&folder, shape, &with("statement:"), |_| {}), Err(message.to_owned()));
    }
    // Columns of the other tables are allowed.
    tables(&folder, TableFormat::PolisCsv, &with("statement:voter-id"), |job| {
        (job.voter_ids, job.cells) = (VoterIds::References, Cells::Exact);
    })
    .unwrap();
    let mut tables_job = folder.job(&folder.path("tables"));
    tables_job.participants = ParticipantNaming::KeepPseudonyms;
    let read_back = || {
        let report = run(&tables_job).unwrap();
        assert_eq!((report.items, report.responses), (2, 2));
    };
    read_back();
    // The participant table alone.
    fs::remove_file(folder.path("tables/votes.csv")).unwrap();
    read_back();
}

#[test]
fn comment_named_like_a_matrix_column_is_refused() {
    let folder = Folder::new();
    folder.write("m/comments.csv", "comment-id,comment-body\n1,one\nn-pass,two\n");
    folder.write("m/participant-votes.csv", "participant,group-id,n-votes,1,n-pass\n0,,2,1,-1\n");
    let message = run(&folder.fresh(&folder.path("m"))).unwrap_err().to_string();
    assert_eq!(message, "participant-votes.csv, row 1: column 5 has the name of a comment as well: n-pass");
}

#[test]
fn published_counts_of_another_phase_are_left_out() {
    let folder = Folder::new();
    let mut bundle = theirs(&["statement:1"], &[(Some("participant:a"), "statement:1", "agree")]);
    bundle["outcomes"] = json!([{ "id": "s", "phaseId": "two", "type": "source-response-counts",
        "itemRef": "statement:1", "counts": { "agree": 9 } }]);
    let notes = tables(&folder, TableFormat::SensemakingCsv, &bundle, |_| {}).unwrap();
    let note = format!("{NO_PLACE} 1 outcome, which was left out: 1 of source-response-counts.");
    assert!(notes.contains(&note), "{notes:?}");
    let error = tables(&folder, TableFormat::PolisCsv, &bundle, |_| {}).unwrap_err();
    assert!(error.contains(": its item has answers in another phase, too"), "{error}");
    // Outcomes before the answers.
    let outcomes = bundle["outcomes"].take();
    let text = bundle.to_string().replacen("\"outcomes\":null,", "", 1);
    let text = text.replacen('{', &format!("{{\"outcomes\":{outcomes},"), 1);
    let mut job = folder.job(&folder.write("first.json", text));
    (job.key, job.table_format) = (None, Some(TableFormat::SensemakingCsv));
    job.target = Target::File(folder.path("first"));
    run(&job).unwrap();
}

#[test]
fn comparisons_and_counts_are_refused_with_their_place() {
    let folder = Folder::new();
    let mut bundle = theirs(
        &["statement:1", "statement:2"],
        &[
            (Some("participant:a"), "statement:1", "agree"),
            (Some("participant:a"), "statement:2", "agree"),
            (Some("participant:b"), "statement:2", "maybe"),
        ],
    );
    for shape in BOTH {
        let message = "theirs.json: /responses/2: its answer is none of agree, disagree and pass";
        assert_eq!(tables(&folder, shape, &bundle, |_| {}), Err(message.to_owned()));
    }
    bundle["responses"][1]["objectRef"] = json!("statement:1");
    for shape in BOTH {
        let message = "theirs.json: /responses/1: it is a comparison, not a vote on a statement: --to ndjson \
            and parquet keep it";
        assert_eq!(tables(&folder, shape, &bundle, |_| {}), Err(message.to_owned()));
    }
    let mut bundle = theirs(&["statement:1"], &[(Some("participant:a"), "statement:1", "agree")]);
    bundle["responses"][0]["participantRef"] = Value::Null;
    let message = "theirs.json: /responses/0: it holds counts, not votes: --to sensemaking-csv fits";
    assert_eq!(tables(&folder, TableFormat::PolisCsv, &bundle, |_| {}), Err(message.to_owned()));
    // For exports the error refers to the header row.
    folder.write("pairs/ideas.csv", "Wikisurvey ID,Idea ID,Idea Text\n7,1,one\n7,2,two\n");
    let header = "Vote ID,Session ID,Winner ID,Loser ID,Left Choice ID,Right Choice ID\n";
    folder.write("pairs/ours-votes.csv", format!("{header}1,s,1,2,1,2\n"));
    let counts = folder.write("t.csv", "comment-id,comment_text,agrees\n1,one,1\n");
    let message_of = |input: &Path, shape| {
        let mut job = folder.job(input);
        (job.table_format, job.target) = (Some(shape), Target::File(folder.path("other")));
        run(&job).unwrap_err().to_string()
    };
    for shape in BOTH {
        let message = "ours-votes.csv, row 1: it holds comparisons, not votes on statements: --to ndjson and \
            parquet keep them";
        assert_eq!(message_of(&folder.path("pairs"), shape), message);
    }
    let message = "t.csv, row 1: it holds counts, not votes: --to sensemaking-csv fits";
    assert_eq!(message_of(&counts, TableFormat::PolisCsv), message);
}
