//! Tests of the adapters other than Polis.
//!
//! The data is made up; the headers are those of the tools.

use std::fs;

use crate::support::{Folder, bundle, content, run};
use serde_json::json;
use tidegate_exporter::{
    convert::{Format, Job, Sidecar, Target},
    form::Naming,
    privacy::Profile,
    tables::TableFormat,
};

/// The same survey in three generations of headers, with the name of the survey column and the quoting of texts.
fn survey(folder: &Folder, name: &str, called: &str, quoted: bool, newest: bool) {
    let quote = |text: &str| if quoted { format!("'{text}'") } else { text.to_owned() };
    let (session, valid) = if newest { (",Session Identifier,Valid", ",hash-of-s1,TRUE") } else { ("", "") };
    let session_column = if newest { "an id that is not used" } else { "hash-of-s1" };
    let mut votes = format!(
        "Vote ID,Session ID,{called} ID,Winner ID,Winner Text,Loser ID,Loser Text,Prompt ID,Left Choice ID,\
         Right Choice ID,Created at,Updated at,Response Time (s){session}\n"
    );
    for (id, (winner, loser, left, right, at)) in
        [(1, 2, 1, 2, 33), (3, 1, 1, 3, 35), (1, 2, 2, 1, 40), (2, 1, 1, 2, 50)].into_iter().enumerate()
    {
        votes += &format!(
            "{id},{session_column},77,{winner},{},{loser},{},9,{left},{right},2010-10-29 13:38:{at} UTC,NA,NA{valid}\n",
            quote("w"),
            quote("l")
        );
    }
    if newest {
        votes += "9,x,77,3,w,2,l,9,3,2,2010-10-29 13:39:00 UTC,NA,NA,hash-of-s2,FALSE\n";
    }
    let mut ideas = format!(
        "{called} ID,Idea ID,Idea Text,Wins,Losses,Times involved in Cant Decide,Score,User Submitted,Session ID,\
         Created at,Last Activity,Active,Appearances on Left,Appearances on Right\n"
    );
    for (id, wins, losses, score, user) in
        [(1, 14, 6, "68.1818", "FALSE"), (2, 1, 3, "33.3333", "TRUE"), (3, 1, 0, "66.6667", "TRUE")]
    {
        let text = quote(&format!("idea {id}"));
        ideas += &format!(
            "77,{id},{text},{wins},{losses},1,{score},{user},s,2010-10-01 10:00:00 UTC,NA,TRUE,1,1\n"
        );
    }
    // Reasons as on the page and as in exports.
    let both = match name {
        "old" => "I like both ideas",
        "middle" => "like both",
        _ => "The same",
    };
    let skips = format!(
        "Record Type,Record ID,Session ID,{called} ID,Left Choice ID,Left Choice Text,Right Choice ID,\
         Right Choice Text,Prompt ID,Reason,Created at{session}\n\
         Skip,1,{session_column},77,2,l,3,r,9,{both},2010-10-29 13:40:00 UTC{valid}\n\
         Skip,2,{session_column},77,3,l,2,r,9,I don't know enough,2010-10-29 13:41:00 UTC{valid}\n\
         Bounce,3,{session_column},77,3,l,2,r,9,NA,2010-10-29 13:42:00 UTC{valid}\n"
    );
    folder.write(&format!("{name}/votes.csv"), votes);
    folder.write(&format!("{name}/ideas.csv"), ideas);
    folder.write(&format!("{name}/non_votes.csv"), skips);
}

#[test]
fn three_generations_of_surveys_give_the_same_bundle() {
    let folder = Folder::new();
    survey(&folder, "old", "Ideamarketplace", true, false);
    survey(&folder, "middle", "Question", false, false);
    survey(&folder, "new", "Wikisurvey", false, true);
    let (report, old) = bundle(&folder.job(&folder.path("old")));
    assert_eq!(report.format, "aoi");
    assert_eq!(report.superseded, Some(1));
    let old = content(old);
    assert_eq!(content(bundle(&folder.job(&folder.path("middle"))).1), old);
    let (report, new) = bundle(&folder.job(&folder.path("new")));
    assert_eq!(content(new), old);
    assert!(report.notes.iter().any(|note| note.starts_with("1 vote that the source marks as not valid")));
    let words: Vec<_> =
        old["responses"].as_array().unwrap().iter().map(|response| &response["response"]).collect();
    assert_eq!(words, ["prefer-object", "prefer-object", "prefer-object", "equal", "pass"]);
    assert_eq!(old["responses"][0]["subjectRef"], "option:1");
    assert_eq!(old["responses"][0]["objectRef"], "option:2");
    assert_eq!(old["responses"][0]["occurredAt"], "2010-10-29T13:38:50Z");
    let first = &old["outcomes"][0];
    assert_eq!(
        (&first["rank"], &first["score"], &first["observations"]),
        (&json!(1), &json!(68.1818), &json!(20))
    );
    assert_eq!(old["outcomes"][1]["rank"], 3);
    assert!((old["summary"]["coverage"].as_f64().unwrap() - 1.0).abs() < 1e-12);
    assert_eq!(old["source"]["sourceId"], "77");
    assert_eq!(old["items"][0]["text"], "idea 1");
}

#[test]
fn session_column_common_to_all_files_identifies_people() {
    let folder = Folder::new();
    let votes = "Vote ID,Session ID,Session Identifier,Winner ID,Loser ID,Left Choice ID,Right Choice ID\n\
                 1,9,long-9,1,2,1,2\n2,8,long-8,1,2,1,2\n";
    folder.write(
        "a/ideas.csv",
        "Wikisurvey ID,Idea ID,Idea Text,Wins,Losses,Score\n7,1,one,1,0,60\n7,2,two,0,1,40\n",
    );
    let skips = |session: &str, whose: [&str; 2]| {
        let [nine, eight] = whose;
        let text = format!(
            "Record Type,{session},Left Choice ID,Right Choice ID,Reason\nSkip,{nine},2,1,NA\nSkip,{eight},2,1,NA\n"
        );
        folder.write("a/non_votes.csv", text);
    };
    folder.write("a/votes.csv", votes);
    let note = "Participants are identified by Session ID, which all files have: not all have Session \
        Identifier, which persists across sessions.";
    for (session, whose, noted) in
        [("Session ID", ["9", "8"], true), ("Session Identifier", ["long-9", "long-8"], false)]
    {
        skips(session, whose);
        let report = bundle(&folder.job(&folder.path("a"))).0;
        assert_eq!(report.participants, 2, "{session}");
        assert_eq!(report.notes.iter().any(|said| said == note), noted, "{:?}", report.notes);
    }
    folder.write("a/votes.csv", votes.replace("Session ID,", "Other,"));
    skips("Session ID", ["9", "8"]);
    let error = run(&folder.job(&folder.path("a"))).unwrap_err();
    let message = "non_votes.csv, row 1: it lacks the column Session Identifier, and another file lacks \
        Session ID: participants cannot be matched between them";
    assert_eq!((error.tag(), error.to_string().as_str()), ("missing_column", message));
}

#[test]
fn answers_without_a_session_are_omitted_and_counted() {
    let folder = Folder::new();
    survey(&folder, "middle", "Question", false, false);
    let before = bundle(&folder.job(&folder.path("middle"))).0;
    for file in ["votes.csv", "non_votes.csv"] {
        let mut text = fs::read_to_string(folder.path("middle").join(file)).unwrap();
        let whose = text.lines().nth(1).unwrap().replace("hash-of-s1", "NA") + "\n";
        text += &(whose.clone() + &whose);
        folder.write(&format!("middle/{file}"), text);
    }
    let (report, _) = bundle(&folder.job(&folder.path("middle")));
    assert_eq!((report.participants, report.responses), (before.participants, before.responses));
    for note in ["2 votes without a session were left out.", "2 skips without a session were"] {
        assert!(report.notes.iter().any(|told| told.starts_with(note)), "{note}: {:?}", report.notes);
    }
}

#[test]
fn identifiers_of_omitted_rows_are_in_no_output() {
    let folder = Folder::new();
    let ideas = "Wikisurvey ID,Idea ID,Idea Text,User Submitted,Session ID,Session Identifier\n\
                 7,1,one,TRUE,secret-idea,secret-idea\n7,2,two,FALSE,NA,NA\n";
    folder.write("a/ideas.csv", ideas);
    let header = "Session ID,Session Identifier,Left Choice ID,Right Choice ID,Valid";
    let row = |id: &str, identifier: &str, valid: &str| format!("secret-{id},{identifier},1,2,{valid}");
    // Rows that are not valid, rows without a session, and rows of people.
    let mut rows = vec![row("a", "secret-b", "FALSE"), row("c", "NA", "TRUE"), row("d", "", "TRUE")];
    rows.extend((0..9).map(|at| row("e", &format!("secret-of-{at}"), "TRUE")));
    let table = |first: &str, each: &dyn Fn(&String) -> String| {
        format!("{first},{header}\n{}\n", rows.iter().map(each).collect::<Vec<_>>().join("\n"))
    };
    folder.write("a/votes.csv", table("Vote ID,Winner ID,Loser ID", &|row| format!("1,1,2,{row}")));
    folder.write("a/non_votes.csv", table("Record Type", &|row| format!("Bounce,{row}")));
    for profile in [Profile::Private, Profile::Public] {
        let mut job = folder.fresh(&folder.path("a"));
        (job.profile, job.sidecars, job.package) =
            (profile, Some(vec![Sidecar::Ndjson, Sidecar::Parquet]), true);
        let (report, made) = bundle(&job);
        assert_eq!(report.participants, 9, "{profile:?}");
        assert_eq!(made["dataCard"]["containsDirectIdentifiers"], false);
        let report_json = serde_json::to_vec(&report).unwrap();
        let files = fs::read_dir(folder.path("")).unwrap().map(|file| file.unwrap().path());
        let files = files.filter(|path| path.is_file()).map(|path| fs::read(path).unwrap());
        for bytes in files.chain([report_json]) {
            assert_eq!(memchr::memmem::find(&bytes, b"secret-"), None, "{profile:?}");
        }
    }
}

#[test]
fn empty_identifier_column_is_not_used() {
    let folder = Folder::new();
    folder.write("a/ideas.csv", "Wikisurvey ID,Idea ID,Idea Text\n7,1,one\n7,2,two\n");
    let votes = |first: &str, second: &str| {
        let header =
            "Vote ID,Session ID,Session Identifier,Winner ID,Loser ID,Left Choice ID,Right Choice ID\n";
        folder.write("a/votes.csv", format!("{header}1,9,{first},1,2,1,2\n2,8,{second},1,2,1,2\n"));
        bundle(&folder.job(&folder.path("a"))).0
    };
    for empty in ["", "NA", " "] {
        let report = votes(empty, empty);
        assert_eq!((report.participants, report.responses), (2, 2));
        let note = "Participants are identified by Session ID, which all files have: Session Identifier, \
            which persists across sessions, has no values in votes.csv.";
        assert!(report.notes.iter().any(|said| said == note), "{:?}", report.notes);
        let report = votes(empty, "long-8");
        assert_eq!((report.participants, report.responses), (1, 1));
        let note = "1 vote without a session was left out, 1 of them with a Session ID: the others are \
            identified by Session Identifier.";
        assert!(report.notes.iter().any(|said| said == note), "{:?}", report.notes);
    }
    let skips = "Record Type,Session ID,Session Identifier,Left Choice ID,Right Choice ID\nSkip,9,NA,1,2\n";
    folder.write("a/non_votes.csv", skips);
    let report = votes("long-9", "long-8");
    assert_eq!(
        (report.participants, report.responses),
        (2, 2),
        "the skip is the latest answer of one of them"
    );
    assert!(report.notes.iter().any(|said| said.ends_with("has no values in non_votes.csv.")));
}

#[test]
fn tallies_become_counts_without_participants() {
    let folder = Folder::new();
    let path = folder.write(
        "t.csv",
        "comment-id,comment_text,red-agree-count,red-disagree-count,blue-agree-count,blue-disagree-count,blue-pass-count,topics\n\
         2,\"two, with comma\",3,0,4,1,2,A:B\n10,ten,0,0,0,0,,\n",
    );
    let (report, bundle) = bundle(&folder.job(&path));
    assert_eq!((report.format, report.participants, report.responses), ("sensemaking", 0, 10));
    let responses = bundle["responses"].as_array().unwrap();
    let counts: Vec<_> =
        responses.iter().map(|response| (&response["response"], &response["count"])).collect();
    assert_eq!(
        counts,
        [(&json!("agree"), &json!(7)), (&json!("disagree"), &json!(1)), (&json!("pass"), &json!(2))]
    );
    assert!(responses.iter().all(|response| response["participantRef"].is_null()));
    let groups =
        bundle["outcomes"].as_array().unwrap().iter().find(|found| found["type"] == "group-response-counts");
    assert_eq!(groups.unwrap()["groups"]["blue"]["pass"], 2);
    assert_eq!(bundle["dataCard"]["suitableForPublicSharing"], false);
    assert_eq!(bundle["dataCard"]["containsPseudonymousLinkage"], false);
}

#[test]
fn pocket_polis_keeps_its_own_tallies_beside_the_recount() {
    let folder = Folder::new();
    folder.write(
        "p/statements.csv",
        "statement_id,text,status,is_seed,agrees,disagrees,passes,created_at\n\
         1,seed,approved,1,1,1,0,2026-01-01T00:00:00.000Z\n2,own,pending,0,0,0,1,2026-01-01T00:00:01.000Z\n",
    );
    folder.write(
        "p/votes.csv",
        "participant,statement_id,vote,updated_at\np1,1,1,2026-01-02T00:00:00.123Z\np2,1,-1,2026-01-02T00:00:00.123Z\n\
         p1,2,0,2026-01-02T00:00:00.123Z\n",
    );
    let (report, bundle) = bundle(&folder.fresh(&folder.path("p")));
    assert_eq!((report.format, report.responses, report.participants), ("pocket-polis", 3, 2));
    assert!((report.coverage - 1.0).abs() < 1e-12);
    assert_eq!(bundle["items"][0]["origin"], "organizer");
    assert_eq!(bundle["responses"][0]["occurredAt"], "2026-01-02T00:00:00.123Z");
}

#[test]
fn repeated_answer_in_pocket_polis_is_refused() {
    let folder = Folder::new();
    folder.write("p/statements.csv", "statement_id,text\n1,one\n2,two\n");
    let head = "participant,statement_id,vote,updated_at\n";
    let rows = "p1,1,1,\np2,1,0,\np1,2,1,\np2,2,1,\n";
    let mut job = folder.fresh(&folder.path("p"));
    folder.write("p/votes.csv", format!("{head}{rows}"));
    bundle(&job);
    folder.write("p/votes.csv", format!("{head}{rows}p2,2,-1,\np1,1,1,\n"));
    for events in [false, true] {
        job.events = events;
        let message = run(&job).unwrap_err().to_string();
        let expected_message =
            "votes.csv, row 6: the participant has already answered the statement in row 5";
        assert_eq!(message, expected_message);
    }
}

#[test]
fn source_values_beyond_the_schema_limits_are_refused() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "comment-id,comment_text,agrees,disagrees\n1,one,1,2\n");
    type Change = fn(&mut Job);
    let changes: [(Change, &str); 11] = [
        (|job| job.overrides.id = Some(String::new()), "--source-id "),
        (|job| job.overrides.id = Some(" ".to_owned()), "--source-id "),
        (|job| job.overrides.id = Some("x".repeat(241)), "--source-id "),
        (|job| job.overrides.title = Some(String::new()), "--title "),
        (|job| job.overrides.title = Some("x".repeat(121)), "--title "),
        (|job| job.overrides.description = Some("x".repeat(2_001)), "--description "),
        (|job| job.overrides.url = Some(String::new()), "--source-url "),
        (|job| job.overrides.url = Some("no url".to_owned()), "--source-url "),
        (|job| job.overrides.url = Some(format!("https://a.example/{}", "x".repeat(2_000))), "--source-url "),
        (|job| job.bundle_id = Some(String::new()), "--bundle-id "),
        (|job| job.text_reviewed_by = Some(String::new()), "--text-reviewed-by "),
    ];
    for (change, option) in changes {
        let mut job = folder.job(&path);
        change(&mut job);
        let error = run(&job).unwrap_err();
        assert!(error.tag() == "refused" && error.to_string().starts_with(option), "{option}: {error}");
    }
    let mut job = folder.job(&path);
    (job.overrides.id, job.overrides.description) = (Some("x".repeat(240)), Some(String::new()));
    job.overrides.title = Some("x".repeat(120));
    bundle(&job);
}

#[test]
fn other_constants_are_written_on_request() {
    let folder = Folder::new();
    let path = folder.write("t.csv", "comment-id,comment_text,agrees,disagrees\n1,one,1,2\n");
    let mut job = folder.job(&path);
    job.naming = Naming::Delib;
    job.overrides.url = Some("https://a.example/".to_owned());
    let (_, delib) = bundle(&job);
    assert_eq!(
        (&delib["schema"], &delib["kind"]),
        (&json!(Naming::Delib.schema()), &json!(Naming::Delib.kind()))
    );
    assert_eq!(delib["dataCard"]["storedByDelib"], false);
    job.naming = Naming::Service;
    job.schema_url = Some("https://b.example/s.json".to_owned());
    job.bundle_id = Some("mine".to_owned());
    let (_, own) = bundle(&job);
    assert_eq!((&own["schema"], &own["bundleId"]), (&json!("https://b.example/s.json"), &json!("mine")));
    assert_eq!(own["exportedAt"], "2026-01-02T03:04:05Z");
    job.input_format = Some(Format::Polis);
    assert_eq!(run(&job).unwrap_err().tag(), "missing_file");
}

#[test]
fn archives_and_packed_files_are_read_like_folders() {
    let folder = Folder::new();
    let text = "comment-id,comment_text,agrees,disagrees\n1,one,1,2\n";
    let plain = content(bundle(&folder.job(&folder.write("t.csv", text))).1);
    let mut zipped = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zipped.start_file("in/t.csv", zip::write::SimpleFileOptions::default()).unwrap();
    std::io::Write::write_all(&mut zipped, text.as_bytes()).unwrap();
    folder.write("t.zip", zipped.finish().unwrap().into_inner());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
    // The name has no known extension.
    folder.write("t.data", gzip.finish().unwrap());
    folder.write("t.zst", zstd::encode_all(text.as_bytes(), 1).unwrap());
    for name in ["t.zip", "t.data", "t.zst"] {
        let (_, read) = bundle(&folder.job(&folder.path(name)));
        let artifacts = read["provenance"]["sourceArtifacts"].as_array().unwrap().clone();
        assert_eq!(content(read), plain, "{name}");
        let digest: String = <sha2::Sha256 as sha2::Digest>::digest(fs::read(folder.path(name)).unwrap())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert!(artifacts.iter().any(|artifact| artifact["sha256"] == digest.as_str()), "{name}");
    }
}

#[test]
fn missing_count_is_unknown_not_zero() {
    let folder = Folder::new();
    let text = "comment-id,comment_text,agrees,disagrees,passes,moderated\n\
                1,one,12,,3,1\n2,two,,,,-1\n3,three,0,9,0,0\n";
    let path = folder.write("t.csv", text);
    let (report, read) = bundle(&folder.job(&path));
    let outcomes = &read["outcomes"];
    assert_eq!(outcomes[0]["counts"], json!({ "agree": 12, "pass": 3 }));
    assert_eq!(outcomes[0]["suppressed"], json!(["disagree"]));
    assert_eq!(outcomes[1]["counts"], json!({}));
    assert_eq!(outcomes[1]["suppressed"], json!(["agree", "disagree", "pass"]));
    assert_eq!(outcomes[2]["counts"], json!({ "agree": 0, "disagree": 9, "pass": 0 }));
    assert_eq!((&outcomes[2]["suppressed"], report.responses), (&json!(null), 24));
    assert!(report.notes.iter().any(|note| note.starts_with("4 empty cells")), "{:?}", report.notes);
    assert_eq!(convert_and_back(&folder, &path), text);
    let public = |text: &str| {
        let mut job = folder.job(&folder.write("p.csv", text));
        job.profile = Profile::Public;
        bundle(&job).1
    };
    // With the total known, a single hidden count could be computed, so the others hide it.
    let read =
        public("comment-id,comment_text,agrees,disagrees,passes\n1,one,12,,30\n2,two,,0,0\n3,x,9,7,0\n");
    assert_eq!(read["items"].as_array().unwrap().len(), 2);
    assert_eq!(read["outcomes"][0]["counts"], json!({}));
    assert_eq!(read["outcomes"][0]["suppressed"], json!(["agree", "disagree", "pass"]));
    assert_eq!(read["outcomes"][1]["counts"], json!({ "agree": 9, "disagree": 7, "pass": 0 }));
}

#[test]
fn missing_count_column_adds_no_counts() {
    let folder = Folder::new();
    for (text, counts) in [
        ("comment-id,comment_text,agrees,disagrees\n1,one,1,2\n", json!({ "agree": 1, "disagree": 2 })),
        ("comment-id,comment_text\n1,one\n", json!({})),
    ] {
        let path = folder.write("t.csv", text);
        let (report, read) = bundle(&folder.job(&path));
        assert_eq!(read["outcomes"][0]["counts"], counts);
        assert_eq!(read["outcomes"][0].get("suppressed"), None);
        assert!(report.notes.iter().any(|note| note.contains("passes")), "{:?}", report.notes);
        let cells = if counts == json!({}) { "1,one,,,,1\n" } else { "1,one,1,2,,1\n" };
        assert!(convert_and_back(&folder, &path).ends_with(cells), "{}", convert_and_back(&folder, &path));
    }
    // Only one group has a column of passes.
    let path = folder.write(
        "g.csv",
        "comment-id,comment_text,a-agree-count,a-pass-count,b-agree-count\n1,one,3,4,5\n2,two,3,,5\n",
    );
    let (_, read) = bundle(&folder.job(&path));
    let of = |kind: &str, at: usize| {
        let outcomes = read["outcomes"].as_array().unwrap().iter().filter(|it| it["type"] == kind);
        outcomes.clone().nth(at).unwrap().clone()
    };
    for at in [0, 1] {
        let response_counts = of("response-counts", at);
        assert_eq!(
            (&response_counts["counts"], &response_counts["suppressed"]),
            (&json!({ "agree": 8 }), &json!(["pass"]))
        );
    }
    assert_eq!(of("group-response-counts", 0)["groups"]["a"], json!({ "agree": 3, "pass": 4 }));
    assert_eq!(of("group-response-counts", 1)["groups"]["a"], json!({ "agree": 3 }));
    assert!(
        convert_and_back(&folder, &path).contains("1,one,8,,,1\n"),
        "{}",
        convert_and_back(&folder, &path)
    );
}

/// Converts a table to a bundle and back.
fn convert_and_back(folder: &Folder, path: &std::path::Path) -> String {
    let mut job = folder.job(path);
    (job.table_format, job.target) = (Some(TableFormat::SensemakingCsv), Target::File(folder.path("again")));
    run(&job).unwrap();
    fs::read_to_string(folder.path("again/comments.csv")).unwrap()
}

#[test]
fn unconverted_columns_are_noted_by_name() {
    let exports = [
        [
            ("comments.csv", "comment-id,datetime,agrees,moderated,comment-body", "1,x,1,1,\"one\""),
            ("votes.csv", "timestamp,datetime,comment-id,voter-id,vote", "1600000000000,x,1,7,1"),
        ],
        [
            ("statements.csv", "statement_id,text,status,is_seed,created_at,agrees", "1,one,approved,0,,1"),
            ("votes.csv", "participant,statement_id,vote,updated_at", "7,1,1,"),
        ],
        [
            (
                "ideas.csv",
                "Wikisurvey ID,Idea ID,Idea Text,Wins,Losses,Score,Active",
                "7,1,one,1,1,50,TRUE\n7,2,two,1,1,50,TRUE",
            ),
            (
                "votes.csv",
                "Vote ID,Session ID,Winner ID,Loser ID,Left Choice ID,Right Choice ID",
                "1,a,1,2,1,2",
            ),
        ],
        [
            (
                "a.csv",
                "comment-id,comment_text,topics,moderated,g-agree-count,g-pass-count",
                "1,one,all,1,9,9",
            ),
            ("readme.txt", "nothing", "here"),
        ],
    ];
    let folder = Folder::new();
    let notes_of_columns = |extra_columns: [(&str, &str); 2], export: &[(&str, &str, &str); 2], profile| {
        drop(fs::remove_dir_all(folder.path("in")));
        for ((name, header, rows), (column, cell)) in export.iter().zip(extra_columns) {
            let rows = rows
                .lines()
                .map(|row| if column.is_empty() { format!("{row}\n") } else { format!("{cell}{row}\n") });
            folder.write(&format!("in/{name}"), format!("{column}{header}\n{}", rows.collect::<String>()));
        }
        let mut job = folder.fresh(&folder.path("in"));
        job.profile = profile;
        let notes = run(&job).unwrap_or_else(|error| panic!("{error}")).notes;
        notes.into_iter().filter(|note| note.starts_with("Columns")).collect::<Vec<_>>()
    };
    let start = |file: &str, what: &str| {
        format!("Columns of {file} without a counterpart in a bundle were left out: {what}.")
    };
    for export in &exports {
        let [(first, ..), (second, ..)] = export;
        let tables = if *second == "readme.txt" { 1 } else { 2 };
        assert_eq!(notes_of_columns([("", ""), ("", "")], export, Profile::Private), [""; 0]);
        let extra_columns = [("is-meta,", "0,"), ("importance,jo@home.example,", "0,0,")];
        let private = [start(first, "is-meta"), start(second, "importance, jo@home.example")];
        assert_eq!(notes_of_columns(extra_columns, export, Profile::Private), private[..tables]);
        // An unknown file name is replaced by its role.
        let shared = if *first == "a.csv" { "tallies" } else { first };
        let public = [start(shared, "is-meta"), start(second, "importance, 1 more")];
        assert_eq!(notes_of_columns(extra_columns, export, Profile::Public), public[..tables]);
        let named_columns = [("Ada,Jo,", "0,0,"), ("Jo,", "0,")];
        let public = [start(shared, "2 columns"), start(second, "1 column")];
        assert_eq!(notes_of_columns(named_columns, export, Profile::Public), public[..tables]);
    }
    let names: Vec<_> = (0..25).map(|at| format!("more-{at}")).collect();
    let (columns, cells) = (names.join(",") + ",", ",".repeat(25));
    let private = start("comments.csv", &format!("{}, 5 more", names[..20].join(", ")));
    assert_eq!(notes_of_columns([(&columns, &cells), ("", "")], &exports[0], Profile::Private), [private]);
}

#[test]
fn an_item_without_an_id_is_refused_with_its_row() {
    let folder = Folder::new();
    let votes = "participant,statement_id,vote\np1,1,1\n";
    let ideas = "Vote ID,Session ID,Winner ID,Loser ID,Left Choice ID,Right Choice ID\n1,a,1,2,1,2\n";
    for empty in ["", " "] {
        for (name, table, header, row, votes, says) in [
            ("p", "statements.csv", "statement_id,text", "text", votes, "statement_id is empty"),
            ("s", "comments.csv", "comment-id,comment_text,agrees", "text,9", "", "comment-id is empty"),
            (
                "c",
                "comments.csv",
                "comment-id,comment-body",
                "\"text\"",
                "comment-id,voter-id,vote\n",
                "comment-id is empty",
            ),
            ("i", "ideas.csv", "Idea ID,Idea Text", "text", ideas, "Idea ID is empty"),
        ] {
            folder.write(&format!("{name}/{table}"), format!("{header}\n1,{row}\n{empty},{row}\n"));
            if !votes.is_empty() {
                folder.write(&format!("{name}/votes.csv"), votes);
            }
            let error = run(&folder.fresh(&folder.path(name))).unwrap_err();
            assert_eq!((error.tag(), error.to_string()), ("value", format!("{table}, row 3: {says}")));
        }
    }
}
