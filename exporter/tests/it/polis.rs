//! Tests of the Polis adapter: totals, variants, signs and order.
//!
//! Real data sets are expected beside the checkout; tests without them report that they were skipped.

use std::{fs, path::Path};

use crate::support::{Conversation, Folder, bundle, content, run};
use serde_json::Value;
use tidegate_exporter::{
    convert::{Job, Report},
    error::ConvertError,
    privacy::Profile,
    sources::polis::{Variant, VoteSign},
};
use tidegate_test_support::servers;

const REAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/polis");

fn tag(result: Result<impl Sized, ConvertError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(error) => error.tag(),
    }
}

#[test]
fn real_exports_have_the_totals_that_were_counted_independently() {
    let Ok(expected_totals) = fs::read(Path::new(REAL).join("EXPECTED.json")) else {
        servers::skipped("totals of real exports", "../shared/data/polis is not beside the checkout");
        return;
    };
    let expected_totals: Value = serde_json::from_slice(&expected_totals).unwrap();
    for name in ["london.youth.policing", "15-per-hour-seattle"] {
        let expected_totals = &expected_totals[name];
        let folder = Folder::new();
        let (report, bundle) = bundle(&folder.job(&Path::new(REAL).join(name)));
        let summary = &bundle["summary"];
        assert_eq!(summary["items"], expected_totals["items"]);
        assert_eq!(summary["participants"], expected_totals["participants"]);
        assert_eq!(summary["responses"], expected_totals["responses_latest"]);
        let coverage =
            summary["coverage"].as_f64().unwrap() - expected_totals["coverage_approved"].as_f64().unwrap();
        assert!(coverage.abs() < 1e-9);
        assert_eq!(report.superseded, expected_totals["superseded"].as_u64());
        let count = |word: &str| {
            let responses = bundle["responses"].as_array().unwrap();
            responses.iter().filter(|response| response["response"] == word).count() as u64
        };
        for word in ["agree", "disagree", "pass"] {
            assert_eq!(count(word), expected_totals[word].as_u64().unwrap(), "{name} {word}");
        }
        let statuses = |word: &str| {
            bundle["items"].as_array().unwrap().iter().filter(|item| item["status"] == word).count() as u64
        };
        for word in ["approved", "pending", "rejected"] {
            assert_eq!(statuses(word), expected_totals[word].as_u64().unwrap(), "{name} {word}");
        }
        let multiline = bundle["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|item| item["text"].as_str().unwrap().contains('\n'));
        assert_eq!(multiline.count() as u64, expected_totals["multiline_bodies"].as_u64().unwrap());
        let published: u64 = bundle["outcomes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|outcome| outcome["type"] == "source-response-counts")
            .map(|outcome| outcome["counts"]["agree"].as_u64().unwrap())
            .sum();
        assert_eq!(published, expected_totals["comments_csv_event_counts"]["agrees"].as_u64().unwrap());
        assert_eq!(report.variant, Some("A"));
        let is_told = |note: &&String| note.contains("without an answer") || note.contains("cut off");
        assert_eq!(report.notes.iter().find(is_told), None);
    }
}

#[test]
fn bundle_has_the_content_of_the_conversation() {
    let (folder, conversation) = (Folder::new(), Conversation::new(1, 12, 40));
    let (report, bundle) = bundle(&folder.job(&conversation.variant_a(&folder, "a")));
    let latest = conversation.latest();
    assert_eq!(bundle["summary"]["responses"], latest.len());
    assert_eq!(report.superseded, Some((conversation.votes.len() - latest.len()) as u64));
    assert_eq!(bundle["summary"]["participants"], 40);
    assert_eq!(bundle["source"]["sourceId"], "3invented");
    assert_eq!(bundle["source"]["title"], "What shall we do?");
    for (id, _, _, text) in &conversation.comments {
        assert_eq!(bundle["items"][*id as usize]["text"], *text);
    }
    for kind in ["response-counts", "source-response-counts", "group-response-counts"] {
        let outcomes = bundle["outcomes"].as_array().unwrap();
        assert_eq!(outcomes.iter().filter(|outcome| outcome["type"] == kind).count(), 12, "{kind}");
    }
    let id = bundle["bundleId"].as_str().unwrap();
    assert!(id.starts_with("polis:3invented:") && !id.ends_with(&"0".repeat(32)), "{id}");
    let artifacts = bundle["provenance"]["sourceArtifacts"].as_array().unwrap();
    let votes = artifacts.iter().find(|artifact| artifact["role"] == "votes").unwrap();
    assert_eq!(votes["rows"], conversation.votes.len());
    let text = fs::read_to_string(folder.path("bundle.json")).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("{\"id\":\"vote:")).count(), latest.len());
    assert!(!text.contains("xid-of-"));
    assert_eq!(folder.names(), ["a", "bundle.json"]);
}

#[test]
fn every_variant_of_the_same_data_gives_the_same_bundle() {
    let (folder, conversation) = (Folder::new(), Conversation::new(2, 15, 30));
    let first = content(bundle(&folder.job(&conversation.variant_a(&folder, "a"))).1);
    // Times in whole seconds.
    let mut first: Value = serde_json::from_str(&first.to_string().replace(".000Z", "Z")).unwrap();
    let comments = conversation.comments_csv(1);

    // Second server: times in seconds, another file name, no views.
    let summary = Conversation::SUMMARY.replace("views,9\n", "");
    folder.write("d/votes.csv", conversation.votes_csv(1));
    folder.write("d/comments.csv", &comments);
    folder.write("d/participant-votes.csv", conversation.matrix_csv());
    folder.write("d/summary.csv", summary.trim_end());
    let (report, second) = bundle(&folder.job(&folder.path("d")));
    assert_eq!(report.variant, Some("D"));
    assert_eq!(content(second), first);

    // With a declared convention.
    folder.write("e/votes.csv", conversation.votes_csv(1));
    folder.write("e/comments.csv", &comments);
    folder.write("e/participant-votes.csv", conversation.matrix_csv());
    let declared = format!("{summary}vote-convention,agree=+1;disagree=-1;pass=0;format=polis-export/1\n");
    folder.write("e/summary.csv", declared);
    let (report, third) = bundle(&folder.job(&folder.path("e")));
    assert_eq!(report.variant, Some("E"));
    assert_eq!(content(third), first);

    // Other tools: Windows line ends, texts in three quotes, line ends in texts as a backslash and an `n`.
    let mut lines =
        csv::ReaderBuilder::new().has_headers(false).from_reader(comments.as_bytes()).into_records();
    let mut wrapped = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    wrapped.write_record(&lines.next().unwrap().unwrap()).unwrap();
    for line in lines {
        let line = line.unwrap();
        let last = line.len() - 1;
        let fields = line
            .iter()
            .enumerate()
            .map(|(at, field)| if at == last { format!("\"{field}\"") } else { field.to_owned() });
        wrapped.write_record(fields).unwrap();
    }
    folder.write("f/votes.csv", conversation.votes_csv(1).replace('\n', "\r\n"));
    folder.write("f/comments.csv", wrapped.into_inner().unwrap());
    folder.write("f/participant-votes.csv", conversation.matrix_csv().replace('\n', "\r\n"));
    folder.write("f/summary.csv", summary.replace("Say it", "Say\\nit").replace('\n', "\r\n"));
    let (report, fourth) = bundle(&folder.job(&folder.path("f")));
    assert_eq!(report.variant, Some("F"));
    first["source"]["description"] = "Say\nit".into();
    assert_eq!(content(fourth), first);
}

#[test]
fn texts_without_quotes_are_joined_and_need_a_sign() {
    let (folder, conversation) = (Folder::new(), Conversation::new(3, 15, 30));
    let first = content(bundle(&folder.job(&conversation.variant_a(&folder, "a"))).1);
    let mut raw = conversation.clone();
    raw.votes.iter_mut().for_each(|vote| vote.3 = -vote.3);
    let mut comments =
        "timestamp,datetime,comment-id,author-id,agrees,disagrees,moderated,comment-body\n".to_owned();
    let quoted = raw.comments_csv(1);
    let records = csv::Reader::from_reader(quoted.as_bytes()).into_records();
    records.for_each(|record| {
        comments += &format!("{}\n", record.unwrap().iter().collect::<Vec<_>>().join(","));
    });
    folder.write("c/votes.csv", raw.votes_csv(1));
    folder.write("c/comments.csv", comments);
    folder.write("c/summary.csv", Conversation::SUMMARY);
    let mut job = folder.job(&folder.path("c"));
    let error = run(&job).unwrap_err();
    assert_eq!(error.tag(), "sign");
    assert!(error.to_string().contains("--vote-sign"), "{error}");
    job.polis.vote_sign = Some(VoteSign::AgreeIsMinus);
    let (report, turned) = bundle(&job);
    assert_eq!(report.variant, Some("C"));
    let inverted = content(turned);
    for list in ["items", "responses"] {
        let plain = first[list].to_string().replace(".000Z", "Z");
        assert_eq!(inverted[list].to_string(), plain, "{list}");
    }
}

#[test]
fn contradicting_sign_needs_the_option() {
    let (folder, conversation) = (Folder::new(), Conversation::new(4, 4, 10));
    conversation.variant_a(&folder, "a");
    let contradicting = format!("{}vote-convention,agree=-1;disagree=+1;pass=0\n", Conversation::SUMMARY);
    folder.write("a/summary.csv", contradicting);
    let mut job = folder.job(&folder.path("a"));
    assert_eq!(tag(run(&job)), "sign");
    job.polis.vote_sign = Some(VoteSign::AgreeIsPlus);
    let (report, plain) = bundle(&job);
    let note = "The export declares agree=-1; --vote-sign agree=+1 overrides it.";
    assert!(report.notes.iter().any(|said| said == note), "{:?}", report.notes);
    let count = |bundle: &Value, word: &str| {
        bundle["responses"].as_array().unwrap().iter().filter(|it| it["response"] == word).count()
    };
    job.polis.vote_sign = Some(VoteSign::AgreeIsMinus);
    let (report, turned) = bundle(&job);
    assert!(!report.notes.iter().any(|said| said.contains("overrides it")), "{:?}", report.notes);
    assert!(count(&plain, "agree") > count(&plain, "disagree"));
    assert_eq!(count(&plain, "agree"), count(&turned, "disagree"));
    let format = r#"{"format":"polis-export/1","votes":{"agree":1,"disagree":-1}}"#;
    folder.write("a/format.json", format);
    let note = "The export declares both agree=+1 and agree=-1; --vote-sign agree=-1 overrides it.";
    let report = run(&job).unwrap();
    assert!(report.notes.iter().any(|said| said == note), "{:?}", report.notes);
    job.polis.vote_sign = None;
    assert_eq!(tag(run(&job)), "sign");
    folder.write("a/summary.csv", Conversation::SUMMARY);
    folder.write("a/format.json", r#"{"format":"polis-export/1","votes":{"agree":-1,"disagree":1}}"#);
    assert_eq!(tag(run(&job)), "sign");
}

#[test]
fn vote_sign_option_overrules_any_declaration() {
    let (folder, conversation) = (Folder::new(), Conversation::new(4, 4, 10));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let plus = "agree=+1;disagree=-1";
    for (conventions, declares) in [
        (&[plus, "agree=-1;disagree=+1"][..], "both agree=+1 and agree=-1"),
        (&["agree=+1;disagree=+1"], "an unknown vote convention"),
        (&["agree=-1"], "an unknown vote convention"),
        (&["agree=+1;agree=-1;disagree=-1"], "an unknown vote convention"),
        (&["agree=+1;disagree=-1;pass=2"], "an unknown vote convention"),
        (&["agree=+1;disagree=-1;pass=x"], "an unknown vote convention"),
        (&[plus, "agree"], "an unknown vote convention"),
    ] {
        let rows: String = conventions.iter().map(|said| format!("vote-convention,{said}\n")).collect();
        let object = |said: &&str| format!(r#"{{"vote-convention":"{said}"}}"#);
        let objects = conventions.iter().map(object).collect::<Vec<_>>().join(",");
        for (summary, format) in [(&*rows, "{\"agree\":1}".to_owned()), ("", format!("[{objects}]"))] {
            folder.write("a/summary.csv", format!("{}{summary}", Conversation::SUMMARY));
            folder.write("a/format.json", format);
            job.polis.vote_sign = None;
            let error = run(&job).unwrap_err();
            assert!(error.tag() == "sign" && error.to_string().contains("--vote-sign"), "{error}");
            job.polis.vote_sign = Some(VoteSign::AgreeIsPlus);
            let note = format!("The export declares {declares}; --vote-sign agree=+1 overrides it.");
            let notes = bundle(&job).0.notes;
            assert!(notes.contains(&note), "{conventions:?} {notes:?}");
        }
    }
}

#[test]
fn sign_declaration_is_found_anywhere_in_a_summary() {
    let (folder, conversation) = (Folder::new(), Conversation::new(4, 4, 10));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    fs::remove_file(folder.path("a/summary.csv")).unwrap();
    job.overrides.id = Some("trees".to_owned());
    let declared = "vote-convention,agree=-1;disagree=+1;pass=0;format=polis-export/1";
    let summary = Conversation::SUMMARY;
    let commas = format!("{summary}{declared}\n").replace('\n', ",\n");
    for text in [
        format!("{declared}\n{summary}"),
        format!("\n{summary}{declared}\n"),
        format!("  \n\n{summary}{declared}"),
        commas.clone(),
        commas.replace('\n', ",\r\n"),
        format!("views,9\nvoters,10\n{declared}\n"),
        format!("voters,1\n{}", commas.replace("topic", "Topic")),
        format!("key,value\n{summary}{}", declared.replace('-', "_").replace("=_", "=-")),
        format!("{declared}\n"),
    ] {
        for name in ["a/summary.csv", "a/Trees-Summary.CSV", "a/facts.csv"] {
            let path = folder.write(name, &text);
            job.polis.vote_sign = None;
            assert_eq!(tag(run(&job)), "sign", "{name} {text:?}");
            job.polis.vote_sign = Some(VoteSign::AgreeIsPlus);
            let (report, bundle) = bundle(&job);
            let of_it = |note: &&String| note.contains("no summary") || note.contains("not used");
            assert_eq!(report.notes.iter().find(of_it), None, "{name} {text:?}");
            let title = if text.contains("opic,") { "What shall we do?" } else { "trees" };
            assert_eq!(bundle["source"]["title"], title, "{name} {text:?}");
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn invalid_summary_is_refused_by_name() {
    let (folder, conversation) = (Folder::new(), Conversation::new(4, 4, 10));
    let job = folder.job(&conversation.variant_a(&folder, "a"));
    let wide: Vec<_> = "\u{feff}topic;Trees\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (text, said) in [
        (&b""[..], "row 1: the file is empty"),
        (b"topic;Trees\nvote-convention;agree=-1\n", "row 1: its columns are not separated by commas"),
        (b"votes\n12\n", "row 1: it has no summary row"),
        (&wide, "row 1: it is UTF-16"),
        (b"topic,What, where?\n", "row 1: a summary row has a name and a value"),
        (b"topic,Trees\nvote-convention,agree=-1,disagree=+1\n", "row 2: a summary row has a name"),
    ] {
        folder.write("a/summary.csv", text);
        let error = run(&job).unwrap_err().to_string();
        assert!(error.starts_with(&format!("summary.csv, {said}")), "{error}");
    }
    let convention =
        |plus| format!("vote-convention,agree={plus}1;disagree={}1\n", if plus == "+" { "-" } else { "+" });
    folder.write("a/summary.csv", convention("+") + &convention("-"));
    assert_eq!(tag(run(&job)), "sign");
    // Another kind of table is not mistaken for a summary.
    folder.write("a/summary.csv", Conversation::SUMMARY);
    folder.write("a/links.csv", "comments,url,n\n1,a,2\n");
    let report = run(&job).unwrap();
    assert!(report.notes.iter().any(|note| note == "1 file was not used: links.csv."), "{:?}", report.notes);
}

#[test]
fn sign_against_the_authors_votes_is_refused_unless_given() {
    let (folder, mut conversation) = (Folder::new(), Conversation::new(3, 15, 30));
    conversation.votes.iter_mut().for_each(|vote| vote.3 = -vote.3);
    conversation.variant_a(&folder, "a");
    let declared = format!("{}vote-convention,agree=+1;disagree=-1;pass=0\n", Conversation::SUMMARY);
    folder.write("a/summary.csv", declared);
    let mut job = folder.job(&folder.path("a"));
    let error = run(&job).unwrap_err();
    assert!(error.tag() == "sign" && error.to_string().contains("confirm with agree=+1"), "{error}");
    job.polis.vote_sign = Some(VoteSign::AgreeIsPlus);
    let report = run(&job).unwrap();
    let note = report.notes.iter().find(|note| note.contains("although"));
    assert!(
        note.is_some_and(|note| note.starts_with("The sign is set by --vote-sign")),
        "{:?}",
        report.notes
    );
}

#[test]
fn given_variant_differing_from_the_files_is_noted() {
    let (folder, conversation) = (Folder::new(), Conversation::new(3, 15, 30));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let note = "--variant is D; the detected variant is A.";
    for (variant, told) in [(None, false), (Some(Variant::A), false), (Some(Variant::D), true)] {
        job.polis.variant = variant;
        assert_eq!(run(&job).unwrap().notes.iter().any(|found| found == note), told, "{variant:?}");
    }
}

#[test]
fn sign_declarations_are_read_in_any_spelling() {
    let (folder, conversation) = (Folder::new(), Conversation::new(4, 4, 10));
    let job = folder.job(&conversation.variant_a(&folder, "a"));
    for refused in [
        "\u{feff}{\"votes\":{\"agree\":-1}}",
        r#"{"Votes":{"AGREE":" -1 "}}"#,
        r#"{"votes":[{"agree":-1.0}]}"#,
        "{\"agree\":\"\u{2212}1\"}",
        r#"{"FORMAT":"POLIS-EXPORT/1","Vote-Convention":"Agree=-1;Disagree=+1;Pass=0"}"#,
        r#"{"vote_convention":"agree=2"}"#,
        r#"{"a":{"agree":1},"b":{"agree":-1}}"#,
    ] {
        folder.write("a/format.json", refused);
        assert_eq!(tag(run(&job)), "sign", "{refused}");
    }
    for good in ["\u{feff}{\"agree\":1}", r#"{"votes":{"Agree":"+1"}}"#, r#"{"agree":1e0}"#] {
        folder.write("a/format.json", good);
        let (report, _) = bundle(&job);
        assert_eq!(report.variant, Some("E"), "{good}");
        assert!(!report.notes.iter().any(|note| note.contains("format.json")), "{:?}", report.notes);
    }
    for none in [r#"{"format":"polis-export/1"}"#, r#"{"agree":"yes"}"#, "[]", "7"] {
        folder.write("a/format.json", none);
        let (report, _) = bundle(&job);
        let note = "format.json declares no known sign of votes.";
        assert_eq!((report.variant, report.notes.contains(&note.to_owned())), (Some("A"), true), "{none}");
    }
    folder.write("a/format.json", "{\n\"agree\": +1}");
    let error = run(&job).unwrap_err().to_string();
    assert_eq!(error, "format.json: line 2, column 10: it is not JSON");
}

#[test]
fn variant_is_detected_when_files_are_missing() {
    let (folder, conversation) = (Folder::new(), Conversation::new(8, 5, 20));
    folder.write("a/votes.csv", conversation.votes_csv(1000));
    folder.write("a/comments.csv", conversation.comments_csv(1000));
    let (report, _) = bundle(&folder.fresh(&folder.path("a")));
    assert_eq!(report.variant, Some("A"));
    let lacks = |report: &Report| -> Vec<String> {
        report.notes.iter().filter(|note| note.contains("There was no")).cloned().collect()
    };
    let expected_notes = [
        "There was no table of participants (participants-votes.csv): groups are unknown.",
        "There was no summary (summary.csv): title, description and address are unknown.",
    ];
    assert_eq!(lacks(&report), expected_notes);
    let (report, _) = bundle(&folder.job(&conversation.variant_a(&folder, "b")));
    assert_eq!(lacks(&report), [""; 0]);
    // Time zone names of the second server with milliseconds of the first.
    let comments = conversation.comments_csv(1000);
    let zoned = comments.replace("Jul 27 WIB", "Jul 27 2026 12:00:00 GMT+0000 (Coordinated Universal Time)");
    folder.write("a/comments.csv", zoned);
    assert_eq!(bundle(&folder.fresh(&folder.path("a"))).0.variant, Some("D"));
}

#[test]
fn dropped_authors_are_noted() {
    let (folder, conversation) = (Folder::new(), Conversation::new(9, 6, 20));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let comments = conversation.comments_csv(1000);
    let note =
        "Authors of statements (author-id of comments.csv) were left out: a bundle has no field for them.";
    let count_notes = |job: &Job| bundle(job).0.notes.iter().filter(|told| *told == note).count();
    for profile in [Profile::Private, Profile::Public] {
        job.profile = profile;
        folder.write("a/comments.csv", &comments);
        assert_eq!(count_notes(&job), 1, "{profile:?}");
        let mut nobody = comments.clone();
        for voter in &conversation.voters {
            nobody = nobody.replace(&format!(",{voter},"), ",,");
        }
        assert_ne!(nobody, comments);
        folder.write("a/comments.csv", nobody);
        assert_eq!(count_notes(&job), 0, "{profile:?}");
    }
}

#[test]
fn organizer_without_statements_is_noted_without_the_id() {
    let (folder, conversation) = (Folder::new(), Conversation::new(9, 6, 20));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let author = conversation.comments[0].1.to_string();
    let written_count =
        conversation.comments.iter().filter(|comment| comment.1 == conversation.comments[0].1).count();
    for (organizers, expected_note) in [
        (&["999"][..], Some("--organizer: no statement is by 1 of 1 id.")),
        (&["999", &author, ""], Some("--organizer: no statement is by 2 of 3 ids.")),
        (&[&author], None),
        (&[], None),
    ] {
        job.polis.organizers = organizers.iter().map(|id| (*id).to_owned()).collect();
        let (report, converted_bundle) = bundle(&job);
        let note = report.notes.iter().find(|note| note.contains("--organizer"));
        assert_eq!(note.map(String::as_str), expected_note);
        assert!(!converted_bundle["provenance"].to_string().contains("999"));
        let items = converted_bundle["items"].as_array().unwrap();
        let organizer_items = items.iter().filter(|item| item["origin"] == "organizer").count();
        assert_eq!(organizer_items, if organizers.contains(&&*author) { written_count } else { 0 });
    }
}

#[test]
fn missing_columns_and_omitted_rows_are_noted() {
    let (folder, conversation) = (Folder::new(), Conversation::new(9, 6, 20));
    let job = folder.job(&conversation.variant_a(&folder, "a"));
    // Without the columns timestamp and moderated, and with an empty row.
    let quoted = conversation.comments_csv(1000);
    let mut fewer = csv::Writer::from_writer(Vec::new());
    for record in csv::ReaderBuilder::new().has_headers(false).from_reader(quoted.as_bytes()).records() {
        let record = record.unwrap();
        let kept_fields =
            record.iter().enumerate().filter(|(at, _)| ![0, 6].contains(at)).map(|(_, field)| field);
        fewer.write_record(kept_fields).unwrap();
    }
    let fewer = String::from_utf8(fewer.into_inner().unwrap()).unwrap();
    folder.write("a/comments.csv", format!("{fewer}\"\"\n"));
    // Participants without answers, one in a group and one in none.
    let matrix = conversation.matrix_csv();
    folder.write("a/participants-votes.csv", format!("{matrix}1,,0,1,0,0,0\n2,,,1,0,0,0\n"));
    folder.write("a/stats-history.csv", "n-votes,n-comments,n-visitors\n1,1,1\n");
    folder.write("a/notes.txt", "mine");
    let (report, made) = bundle(&job);
    for note in [
        "comments.csv has no column timestamp: the times of statements are unknown.",
        "comments.csv has no column moderated: all statements count as approved.",
        "1 empty row of comments.csv was left out.",
        "2 participants without an answer were left out.",
        "2 files were not used: notes.txt, stats-history.csv.",
    ] {
        assert!(report.notes.iter().any(|told| told == note), "{note} {:?}", report.notes);
    }
    assert!(!report.notes.iter().any(|note| note.starts_with("Statuses")));
    let items = made["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["status"] == "approved" && item["createdAt"].is_null()));
    let rows = |name: &str| {
        let artifacts = made["provenance"]["sourceArtifacts"].as_array().unwrap();
        artifacts.iter().find(|artifact| artifact["name"] == name).unwrap()["rows"].clone()
    };
    assert_eq!([rows("comments.csv"), rows("participants-votes.csv")], [7, 22]);
    assert_eq!(rows("votes.csv"), conversation.votes.len());
    // For the participant table the number of rows is reported, not that of votes.
    fs::remove_file(folder.path("a/votes.csv")).unwrap();
    let bundle = bundle(&job).1;
    let artifacts = bundle["provenance"]["sourceArtifacts"].as_array().unwrap();
    assert!(
        artifacts
            .iter()
            .any(|artifact| artifact["name"] == "participants-votes.csv" && artifact["rows"] == 22)
    );
}

#[test]
fn matrix_without_votes_gives_answers_without_times() {
    let (folder, conversation) = (Folder::new(), Conversation::new(5, 9, 25));
    let full_bundle = bundle(&folder.job(&conversation.variant_a(&folder, "a"))).1;
    fs::remove_file(folder.path("a/votes.csv")).unwrap();
    let matrix_bundle = bundle(&folder.job(&folder.path("a"))).1;
    let strip = |bundle: &Value| {
        let mut responses = bundle["responses"].clone();
        for response in responses.as_array_mut().unwrap() {
            response["occurredAt"] = Value::Null;
        }
        responses
    };
    assert_eq!(strip(&full_bundle), matrix_bundle["responses"]);
    assert_eq!(full_bundle["summary"], matrix_bundle["summary"]);
}

#[test]
fn ids_and_urls_beyond_the_limits_are_refused() {
    let (folder, conversation) = (Folder::new(), Conversation::new(5, 9, 25));
    let job = folder.job(&conversation.variant_a(&folder, "a"));
    for (id, expected) in [("", "refused"), (&*"i".repeat(241), "refused"), (&*"ü".repeat(240), "ok")] {
        assert_eq!(tag(run(&Job { bundle_id: Some(id.to_owned()), ..job.clone() })), expected, "{id}");
    }
    for (url, expected) in [("no uri", "refused"), ("v1.json", "refused"), ("urn:a:b", "ok")] {
        assert_eq!(tag(run(&Job { schema_url: Some(url.to_owned()), ..job.clone() })), expected, "{url}");
    }
    let mut job = job;
    job.overrides.url = Some("https://a.example/a b".to_owned());
    assert_eq!(tag(run(&job)), "refused");
    job.overrides.url = None;
    folder.write("a/summary.csv", format!("{}url,https://a.example/ü x\n", Conversation::SUMMARY));
    let bundle = bundle(&job).1;
    assert!(bundle["source"]["url"].as_str().unwrap().starts_with("urn:tidegate:source:"), "{bundle}");
}

#[test]
fn matrix_with_inverted_votes_is_refused() {
    let (folder, conversation) = (Folder::new(), Conversation::new(5, 9, 25));
    conversation.variant_a(&folder, "a");
    fs::remove_file(folder.path("a/votes.csv")).unwrap();
    let invert = |cell: &str| match cell {
        "1" => "-1".to_owned(),
        "-1" => "1".to_owned(),
        other => other.to_owned(),
    };
    let matrix = fs::read_to_string(folder.path("a/participants-votes.csv")).unwrap();
    let (header, rows) = matrix.split_once('\n').unwrap();
    let first = header.split(',').position(|name| name.parse::<u64>().is_ok()).unwrap();
    let inverted_rows = rows.lines().map(|row| {
        let cells = row.split(',').enumerate();
        let cells: Vec<_> =
            cells.map(|(at, cell)| if at < first { cell.to_owned() } else { invert(cell) }).collect();
        cells.join(",") + "\n"
    });
    folder.write("a/participants-votes.csv", format!("{header}\n{}", inverted_rows.collect::<String>()));
    let mut job = folder.job(&folder.path("a"));
    assert_eq!(tag(run(&job)), "sign");
    job.polis.vote_sign = Some(VoteSign::AgreeIsPlus);
    assert_eq!(tag(run(&job)), "ok");
}

#[test]
fn input_order_memory_and_threads_do_not_change_bytes() {
    let (folder, conversation) = (Folder::new(), Conversation::new(6, 60, 90));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    run(&job).unwrap();
    let first = fs::read(folder.path("bundle.json")).unwrap();
    for threads in [2, 8] {
        job.threads = threads;
        run(&job).unwrap();
        assert!(fs::read(folder.path("bundle.json")).unwrap() == first, "{threads} threads");
    }
    let first_rest = strip_digests(&first);
    for (seed, threads, memory) in [(1, 1, 1 << 20), (2, 2, 1), (3, 8, 40_000)] {
        let mut shuffled = conversation.clone();
        shuffle(&mut shuffled.votes, seed);
        shuffle(&mut shuffled.comments, seed);
        shuffle(&mut shuffled.voters, seed);
        assert!(shuffled.votes != conversation.votes && shuffled.votes.len() == conversation.votes.len());
        shuffled.variant_a(&folder, "a");
        job.threads = threads;
        job.limits.sort_memory = memory;
        bundle(&job);
        let other_bytes = fs::read(folder.path("bundle.json")).unwrap();
        assert!(strip_digests(&other_bytes) == first_rest, "seed {seed}");
        assert!(other_bytes != first, "the digests of the files differ");
    }
    conversation.variant_a(&folder, "a");
    // Too little memory even for the rows of one comment.
    job.limits.sort_memory = 1;
    bundle(&job);
    assert!(fs::read(folder.path("bundle.json")).unwrap() == first);
}

/// Bundle without its id and the list of input files, which depend on the digests of the files.
fn strip_digests(bundle: &[u8]) -> String {
    let text = std::str::from_utf8(bundle).unwrap();
    let (before, behind) = text.split_once("\"bundleId\":\"").unwrap();
    let (_, behind) = behind.split_once('"').unwrap();
    let (middle, behind) = behind.split_once("\"sourceArtifacts\":[").unwrap();
    let (_, behind) = behind.split_once("],\"notes\":").unwrap();
    [before, middle, behind].join("\n")
}

fn shuffle<T>(of: &mut [T], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for at in (1..of.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        of.swap(at, (state >> 20) as usize % (at + 1));
    }
}

#[test]
fn last_line_without_line_end_is_read() {
    let folder = Folder::new();
    let mut conversation = Conversation::new(7, 1, 3);
    // The last but one row ends its block and is not read by the fast path either.
    conversation.votes = vec![(0, 2, 9, 1), (0, 1, 9, -1), (0, 3, 9, 1), (0, 1, 9, 1)];
    let input = conversation.variant_a(&folder, "a");
    let votes = fs::read_to_string(input.join("votes.csv")).unwrap();
    fs::write(input.join("votes.csv"), votes.trim_end()).unwrap();
    let (report, latest) = bundle(&folder.job(&input));
    assert_eq!(report.superseded, Some(1));
    assert_eq!(latest["outcomes"][0]["counts"], serde_json::json!({ "agree": 3, "disagree": 0, "pass": 0 }));
}

#[test]
fn later_row_wins_at_equal_times_and_events_keep_all() {
    let folder = Folder::new();
    let mut conversation = Conversation::new(7, 1, 3);
    conversation.votes =
        vec![(0, 1, 9, -1), (0, 1, 9, 0), (0, 1, 9, 1), (0, 2, 9, 1), (0, 2, 4, -1), (0, 3, 1, 1)];
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let (report, latest) = bundle(&job);
    assert_eq!(report.superseded, Some(3));
    assert_eq!(latest["outcomes"][0]["counts"], serde_json::json!({ "agree": 3, "disagree": 0, "pass": 0 }));
    job.events = true;
    let (report, all) = bundle(&job);
    assert_eq!((report.superseded, &all["summary"]["responses"]), (Some(0), &6.into()));
    assert_eq!(all["dataCard"]["aggregation"], "individual-response-events");
    let mut ids: Vec<_> =
        all["responses"].as_array().unwrap().iter().map(|response| &response["id"]).collect();
    ids.dedup();
    assert_eq!(ids.len(), 6);
    assert!(
        (all["summary"]["coverage"].as_f64().unwrap() - 1.0).abs() < 1e-9
            || all["items"][0]["status"] != "approved"
    );
}

#[test]
fn unclosed_quote_among_votes_is_refused() {
    let (folder, conversation) = (Folder::new(), Conversation::new(4, 4, 10));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let votes = |rows: &str| {
        let text = format!("timestamp,comment-id,voter-id,vote,why\n1600000000000,0,7700001,1,\n{rows}");
        folder.write("a/votes.csv", text);
    };
    let open = "votes.csv, row 3: a quote is not closed on its line";
    let early = "votes.csv, row 3: a quote closes before the end of its cell";
    for (rows, says) in [
        ("1600000000000,1,7700002,1,\"so\n", open),
        ("1600000000000,1,7700002,\"1\n1600000000000,2,7700002,1,\n", open),
        ("1600000000000,1,7700002,1,\"", open),
        (
            "1600000000000,1,7700002,1,\"so\n1600000000000,2,7700002,-1,x\"\n1600000000000,3,7700002,1,\n",
            open,
        ),
        ("1600000000000,1,7700002,1,\"so\r\n1600000000000,2,7700002,-1,\"\"\"\r\n", open),
        ("1600000000000,1,7700002,1,\"so\" and so\n", early),
    ] {
        votes(rows);
        for sorted in [false, true] {
            job.limits.sort_memory = if sorted { 1 } else { 1 << 20 };
            let error = run(&job).unwrap_err();
            assert_eq!(error.tag(), "quote", "{error}");
            assert!(error.to_string().starts_with(says), "{rows:?}: {error}");
        }
    }
    folder.write("a/votes.csv", "timestamp,comment-id,voter-id,vote,\"why\n1600000000000,0,7700001,1,\n");
    let error = run(&job).unwrap_err().to_string();
    assert!(error.starts_with("votes.csv, row 1: a quote is not closed"), "{error}");
    votes("1600000000000,1,7700002,1,\"so, \"\"so\"\"\"\n1600000000000,2,\"7700002\",\"-1\",6\" of rain\n");
    let (_, bundle) = bundle(&job);
    let words: Vec<_> = bundle["responses"].as_array().unwrap().iter().map(|it| &it["response"]).collect();
    assert_eq!(words, ["agree", "agree", "disagree"]);
}

#[test]
fn times_are_kept_up_to_the_year_9999() {
    let (folder, conversation) = (Folder::new(), Conversation::new(5, 4, 10));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let times = [
        (140_737_488_355_327_u64, "6429-10-17T02:45:55.327Z"),
        (140_737_488_355_328, "6429-10-17T02:45:55.328Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ];
    let mut votes = "timestamp,comment-id,voter-id,vote\n".to_owned();
    for (comment, (at, _)) in times.iter().enumerate() {
        votes += &format!("{at},{comment},7700001,1\n");
    }
    folder.write("a/votes.csv", &votes);
    for memory in [1, 1 << 20] {
        job.limits.sort_memory = memory;
        let (_, bundle) = bundle(&job);
        let answer_times: Vec<_> = bundle["responses"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["occurredAt"].as_str().unwrap())
            .collect();
        assert_eq!(answer_times, times.map(|(_, text)| text));
        for late in ["253402300800000", "140737488355328000"] {
            folder.write("a/votes.csv", format!("{votes}{late},3,7700001,1\n"));
            let error = run(&job).unwrap_err().to_string();
            assert_eq!(error, "votes.csv, row 5: timestamp is not a time from 1970 to 9999");
        }
        folder.write("a/votes.csv", &votes);
    }
}
