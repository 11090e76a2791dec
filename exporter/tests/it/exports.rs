//! Tests of sidecars and of tables instead of a bundle: their content equals that of the bundle.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::support::{Conversation, Folder, bundle, content, run};
use serde_json::{Value, json};
use tidegate_exporter::{
    bundle::{
        inspect::{ItemOptions, inspect},
        validate::Limits,
    },
    convert::{Job, Sidecar, Target},
    form::Naming,
    privacy::{ParticipantNaming, Profile, TextTreatment},
    storage::spill::SpillOptions,
    tables::{Cells, TableFormat, VoterIds},
    timestamp::Timestamp,
};
use tidegate_test_support::servers;

#[test]
fn polis_tables_convert_back_to_the_same_bundle() {
    let (folder, conversation) = (Folder::new(), Conversation::new(41, 10, 30));
    conversation.variant_a(&folder, "a");
    let first = bundle(&folder.job(&folder.path("a"))).1;
    let mut tables_job = folder.job(&folder.path("bundle.json"));
    tables_job.key = None;
    tables_job.target = Target::File(folder.path("tables"));
    tables_job.table_format = Some(TableFormat::PolisCsv);
    tables_job.voter_ids = VoterIds::References;
    tables_job.cells = Cells::Exact;
    let report = run(&tables_job).unwrap();
    assert_eq!(report.files, ["votes.csv", "comments.csv", "participant-votes.csv", "summary.csv"]);
    let mut bundle_job = folder.job(&folder.path("tables"));
    bundle_job.target = Target::File(folder.path("again.json"));
    bundle_job.participants = ParticipantNaming::KeepPseudonyms;
    let second = bundle(&bundle_job).1;
    let members = |bundle: &Value| {
        bundle["outcomes"].as_array().unwrap().iter().filter(|it| it["type"] == "group-members").count()
    };
    assert_eq!(members(&second), 2);
    assert_eq!(content(second), content(first.clone()));
    // The participant table alone has the same votes without times.
    fs::remove_file(folder.path("tables/votes.csv")).unwrap();
    let mut matrix_bundle = content(bundle(&bundle_job).1);
    let mut first = content(first);
    for response in first["responses"].as_array_mut().unwrap() {
        response["occurredAt"] = Value::Null;
    }
    assert_eq!(matrix_bundle["responses"].take(), first["responses"].take());
    assert_eq!(matrix_bundle["outcomes"], first["outcomes"]);
}

#[test]
fn numbered_participants_stay_in_their_groups() {
    let (folder, conversation) = (Folder::new(), Conversation::new(45, 12, 40));
    let first = bundle(&folder.job(&conversation.variant_a(&folder, "a"))).1;
    let mut tables_job = folder.job(&folder.path("bundle.json"));
    tables_job.key = None;
    tables_job.target = Target::File(folder.path("tables"));
    tables_job.table_format = Some(TableFormat::PolisCsv);
    tables_job.limits.sort_memory = 1;
    run(&tables_job).unwrap();
    let mut bundle_job = folder.job(&folder.path("tables"));
    bundle_job.target = Target::File(folder.path("again.json"));
    let second = bundle(&bundle_job).1;
    let counts = |bundle: &Value| -> Vec<Value> {
        let outcomes = bundle["outcomes"].as_array().unwrap().iter();
        outcomes.filter(|it| it["type"] == "group-response-counts").map(|it| it["groups"].clone()).collect()
    };
    assert_eq!(counts(&second).len(), 12);
    assert_eq!(counts(&second), counts(&first));
}

#[test]
fn counts_become_a_table_and_formulas_are_guarded() {
    let (folder, mut conversation) = (Folder::new(), Conversation::new(42, 3, 20));
    conversation.comments[1].3 = "=HYPERLINK(1)".to_owned();
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let counts = bundle(&job).1["outcomes"][0]["counts"].clone();
    job.table_format = Some(TableFormat::SensemakingCsv);
    job.target = Target::File(folder.path("table"));
    run(&job).unwrap();
    let table = fs::read_to_string(folder.path("table/comments.csv")).unwrap();
    assert!(table.starts_with("comment-id,comment_text,agrees,disagrees,passes,moderated\n"));
    assert!(table.contains(&format!(
        "0,Statement 0 plain,{},{},{},",
        counts["agree"], counts["disagree"], counts["pass"]
    )));
    assert!(table.contains("'=HYPERLINK"));
    assert_eq!(folder.names(), ["a", "bundle.json", "table"]);
}

#[test]
fn hidden_counts_are_blank_in_tables() {
    let (folder, conversation) = (Folder::new(), Conversation::new(11, 20, 60));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    job.profile = Profile::Public;
    job.k = 12;
    job.texts = Some(TextTreatment::Omit);
    let shared = bundle(&job).1;
    let mut table = folder.job(&folder.path("bundle.json"));
    table.key = None;
    table.table_format = Some(TableFormat::SensemakingCsv);
    table.target = Target::File(folder.path("table"));
    run(&table).unwrap();
    let table = fs::read_to_string(folder.path("table/comments.csv")).unwrap();
    let mut hidden_cells = 0;
    for outcome in shared["outcomes"].as_array().unwrap() {
        let key = outcome["itemRef"].as_str().unwrap().strip_prefix("statement:").unwrap();
        let line = table.lines().find(|line| line.split(',').next() == Some(key)).unwrap();
        let cells: Vec<_> = line.rsplitn(5, ',').skip(1).take(3).collect();
        for (answer, cell) in ["pass", "disagree", "agree"].into_iter().zip(cells) {
            let count = &outcome["counts"][answer];
            assert_eq!(cell, if count.is_null() { String::new() } else { count.to_string() }, "{line}");
            hidden_cells += u32::from(count.is_null());
        }
    }
    assert!(hidden_cells > 0);
}

#[test]
fn options_for_exports_are_refused_for_bundles() {
    let (folder, conversation) = (Folder::new(), Conversation::new(43, 6, 30));
    bundle(&folder.job(&conversation.variant_a(&folder, "a")));
    let mut plain = folder.job(&folder.path("bundle.json"));
    (plain.table_format, plain.target, plain.key) =
        (Some(TableFormat::Ndjson), Target::File(folder.path("out")), None);
    let mut public = plain.clone();
    (public.profile, public.k, public.texts) = (Profile::Public, 7, Some(TextTreatment::Omit));
    let mut private_job = plain.clone();
    (private_job.not_for_sharing, private_job.overrides.title) = (true, Some("Ours".to_owned()));
    for (job, says) in
        [(public, "--profile, --k, --text cannot"), (private_job, "--not-for-sharing, --title cannot")]
    {
        let error = run(&job).unwrap_err();
        assert!(error.tag() == "refused" && error.to_string().starts_with(says), "{error}");
        assert!(!folder.path("out").exists());
    }
    assert_eq!(run(&plain).unwrap().files.len(), 4);
}

#[test]
fn package_has_the_given_license_only() {
    let (folder, conversation) = (Folder::new(), Conversation::new(46, 3, 30));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let mut licenses = |license: Option<&str>, package: bool| {
        (job.license, job.package) = (license.map(str::to_owned), package);
        let report = run(&job).map_err(|error| error.to_string())?;
        assert_eq!(report.files.is_empty(), !package);
        let package = fs::read(folder.path("datapackage.json")).unwrap();
        Ok(serde_json::from_slice::<Value>(&package).unwrap()["licenses"].clone())
    };
    let url = "https://license.example/by?v=4";
    assert_eq!(licenses(Some(url), true), Ok(json!([{ "path": url }])));
    assert_eq!(licenses(Some("GPL-3.0+"), true), Ok(json!([{ "name": "GPL-3.0+" }])));
    for known in ["MIT", "ODbL-1.0", "LicenseRef-Ours"] {
        assert_eq!(licenses(Some(known), true), Ok(json!([{ "name": known }])));
    }
    assert_eq!(licenses(None, true), Ok(Value::Null));
    for (wrong, said) in [
        ("foo-1", "--license foo-1 is neither an SPDX id (such as CC-BY-4.0)"),
        ("cc-by-4.0", "--license cc-by-4.0 is neither an SPDX id (CC-BY-4.0 is)"),
        ("CC-BY-4.O", "--license CC-BY-4.O is neither an SPDX id (CC-BY-4.0 is)"),
        ("Apache2.0", "--license Apache2.0 is neither an SPDX id (Apache-2.0 is)"),
        ("GPL-9.0-only", "--license GPL-9.0-only is neither an SPDX id (GPL-1.0-only is)"),
        ("LicenseRef-a/b", "--license LicenseRef-a/b is neither an SPDX id"),
        ("ht tp://x", "--license ht tp://x is not a URI"),
    ] {
        let outcome: Result<Value, String> = licenses(Some(wrong), true);
        assert!(outcome.as_ref().is_err_and(|error| error.starts_with(said)), "{wrong}: {outcome:?}");
    }
    for (wrong, package) in [
        ("CC BY 4.0", true),
        ("", true),
        ("foo", true),
        ("LicenseRef-", true),
        ("a:b c", true),
        ("CC-BY-4.0", false),
    ] {
        let outcome: Result<Value, String> = licenses(Some(wrong), package);
        assert!(outcome.is_err_and(|said| said.starts_with("--license")), "{wrong}");
    }
}

#[test]
fn ndjson_lines_are_the_elements_of_the_lists() {
    let (folder, conversation) = (Folder::new(), Conversation::new(43, 6, 30));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    job.sidecars = Some(vec![Sidecar::Ndjson, Sidecar::Parquet]);
    job.package = true;
    job.license = Some("CC-BY-4.0".to_owned());
    let (report, bundle) = bundle(&job);
    for list in ["items", "responses", "outcomes"] {
        let text = fs::read_to_string(folder.path(&format!("bundle.{list}.ndjson"))).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(bundle[list], Value::from(lines), "{list}");
    }
    assert_eq!(report.files.len(), 7);
    let package: Value = serde_json::from_slice(&fs::read(folder.path("datapackage.json")).unwrap()).unwrap();
    assert_eq!(package["licenses"], json!([{ "name": "CC-BY-4.0" }]));
    let resources = package["resources"].as_array().unwrap();
    assert_eq!(resources.len(), 6);
    let mut described = 0;
    for resource in resources {
        let name = resource["path"].as_str().unwrap();
        let Some(fields) = resource["schema"]["fields"].as_array() else { continue };
        described += 1;
        let is = |field: &Value, name: &str| field["name"].as_str() == Some(name);
        let Ok(lines) = fs::read_to_string(folder.path(name)) else { continue };
        for line in lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let line = line.as_object().unwrap();
            assert!(line.keys().all(|key| fields.iter().any(|field| is(field, key))), "{name}");
            for field in fields {
                let value = line.get(field["name"].as_str().unwrap()).filter(|value| !value.is_null());
                assert!(value.is_some() || field.get("constraints").is_none(), "{name}: {field}");
                let is_number = value.is_some_and(Value::is_u64);
                assert_eq!(is_number, field["type"] == "integer", "{name}: {field}");
            }
        }
    }
    assert_eq!(described, 4);
    let check = Command::new("sha256sum")
        .args(["--check", "--strict", "--status", "manifest-sha256.txt"])
        .current_dir(folder.path(""))
        .status();
    match check {
        Ok(status) => assert!(status.success()),
        Err(_) => servers::skipped("the manifest of a package", "there is no sha256sum to check it with"),
    }
}

const READ_BACK: &str = r#"
import duckdb, polars, sys
path = sys.argv[1]
duck = duckdb.sql(f"""select response, sum(count)::bigint, count(distinct participantRef), min(epoch_ms(occurredAt))
    from '{path}' group by response order by response""").fetchall()
frame = polars.read_parquet(path)
bears = sorted((r[0], r[1], r[2], int(r[3].timestamp() * 1000)) for r in frame.group_by('response').agg(
    polars.col('count').sum(), polars.col('participantRef').n_unique(), polars.col('occurredAt').min()).rows())
assert [tuple(r) for r in duck] == bears, (duck, bears)
print(';'.join(f'{r[0]},{r[1]},{r[2]}' for r in bears))
"#;

#[test]
fn databases_read_the_parquet_file() {
    let Some(python) = servers::python("TIDEGATE_TEST_PARQUET", "Parquet in DuckDB and Polars") else {
        return;
    };
    let (folder, conversation) = (Folder::new(), Conversation::new(44, 30, 60));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    job.sidecars = Some(vec![Sidecar::Parquet]);
    let (_, bundle) = bundle(&job);
    let path = folder.path("bundle.responses.parquet");
    let output = Command::new(&python).arg("-c").arg(READ_BACK).arg(Path::new(&path)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let responses = bundle["responses"].as_array().unwrap();
    let expected_counts: Vec<_> = ["agree", "disagree", "pass"]
        .iter()
        .map(|word| {
            let matching = || responses.iter().filter(|response| response["response"] == *word);
            let participants: BTreeSet<_> =
                matching().map(|response| response["participantRef"].as_str()).collect();
            format!("{word},{},{}", matching().count(), participants.len())
        })
        .collect();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), expected_counts.join(";"));
}

#[test]
fn package_schema_keeps_empty_texts() {
    let (folder, conversation) = (Folder::new(), Conversation::new(46, 3, 30));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    (job.profile, job.texts, job.package) = (Profile::Public, Some(TextTreatment::Omit), true);
    job.sidecars = Some(vec![Sidecar::Ndjson, Sidecar::Parquet]);
    bundle(&job);
    let package: Value = serde_json::from_slice(&fs::read(folder.path("datapackage.json")).unwrap()).unwrap();
    let mut empty = 0;
    for resource in package["resources"].as_array().unwrap() {
        let is_parquet = resource["format"] == "parquet";
        // The Frictionless validator rejects any length of a Parquet file.
        assert_eq!(resource.get("bytes").is_none(), is_parquet, "{resource}");
        let Some(fields) = resource["schema"]["fields"].as_array().filter(|_| !is_parquet) else { continue };
        // According to Table Schema, only values listed by the schema are missing.
        let missing_values = resource["schema"]["missingValues"].as_array().cloned();
        let missing_values = missing_values.unwrap_or_else(|| vec![json!("")]);
        let text = fs::read_to_string(folder.path(resource["path"].as_str().unwrap())).unwrap();
        for line in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            // The validator takes the members of the first line as the header.
            let names: BTreeSet<_> = fields.iter().filter_map(|field| field["name"].as_str()).collect();
            assert!(names.into_iter().eq(line.as_object().unwrap().keys()));
            for field in fields.iter().filter(|field| field["constraints"]["required"] == true) {
                let value = &line[field["name"].as_str().unwrap()];
                empty += u32::from(value == "");
                assert!(!value.is_null() && !missing_values.contains(value), "{field}: {value}");
            }
        }
    }
    assert!(empty > 0);
}

#[test]
fn table_of_counts_keeps_decisions_and_notes_the_rest() {
    let folder = Folder::new();
    let path = folder.write(
        "t.csv",
        "comment-id,comment_text,a-agree-count,b-agree-count,topics,moderated\n\
         1,one,1,2,A:B,1\n2,two,3,4,,-1\n3,three,5,6,C,0\n",
    );
    let mut job = folder.job(&path);
    (job.table_format, job.target) = (Some(TableFormat::SensemakingCsv), Target::File(folder.path("table")));
    let direct = run(&job).unwrap();
    let table = fs::read_to_string(folder.path("table/comments.csv")).unwrap();
    assert!(table.starts_with("comment-id,comment_text,agrees,disagrees,passes,moderated\n"), "{table}");
    let moderated: Vec<_> = table.lines().skip(1).filter_map(|line| line.rsplit(',').next()).collect();
    assert_eq!(moderated, ["1", "-1", "0"]);
    let mut job = folder.job(&path);
    bundle(&job);
    job.key = None;
    job.inputs = vec![folder.path("bundle.json")];
    (job.table_format, job.target) = (Some(TableFormat::SensemakingCsv), Target::File(folder.path("other")));
    for report in [direct, run(&job).unwrap()] {
        let note = "The table has no column for 5 outcomes, which were left out: 3 of \
            group-response-counts, 2 of topics.";
        assert!(report.notes.iter().any(|said| said == note), "{:?}", report.notes);
    }
}

#[test]
fn parquet_notes_the_number_of_missing_outcomes() {
    let (folder, conversation) = (Folder::new(), Conversation::new(44, 4, 30));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    job.sidecars = Some(vec![Sidecar::Parquet]);
    let (beside, whole) = bundle(&job);
    let outcomes = whole["outcomes"].as_array().unwrap().len();
    let mut instead = folder.job(&folder.path("bundle.json"));
    (instead.key, instead.table_format) = (None, Some(TableFormat::Parquet));
    instead.target = Target::File(folder.path("out"));
    let note = format!("Parquet files hold items and responses: {outcomes} outcomes are not in them.");
    for report in [beside, run(&instead).unwrap()] {
        assert!(report.notes.contains(&note), "{:?}", report.notes);
    }
}

/// Notes of converting the changed bundle to tables.
fn noted(folder: &Folder, shape: TableFormat, change: impl FnOnce(&mut Value)) -> Vec<String> {
    let conversation = Conversation::new(41, 3, 30);
    let mut bundle = bundle(&folder.job(&conversation.variant_a(folder, "a"))).1;
    change(&mut bundle);
    let mut job = folder.job(&folder.write("changed.json", bundle.to_string()));
    (job.key, job.table_format) = (None, Some(shape));
    job.target = Target::File(folder.path("tables"));
    run(&job).unwrap().notes
}

#[test]
fn content_omitted_from_tables_is_noted() {
    let folder = Folder::new();
    let mut agreed = 0;
    let notes = noted(&folder, TableFormat::SensemakingCsv, |bundle| {
        let counts = &mut bundle["outcomes"][0];
        agreed = counts["counts"].as_object_mut().unwrap().remove("agree").unwrap().as_u64().unwrap();
        counts["suppressed"] = json!(["agree"]);
    });
    let note = format!(
        "{agreed} responses were left out: their counts are known only in part, so the cells are empty."
    );
    assert!(agreed > 1 && notes.contains(&note), "{notes:?}");
    let notes = noted(&folder, TableFormat::PolisCsv, |bundle| {
        let outcomes = bundle["outcomes"].as_array_mut().unwrap();
        let mut empty = outcomes.iter().find(|it| it["type"] == "group-members").unwrap().clone();
        (empty["id"], empty["group"], empty["members"]) = (json!("group-members:9"), json!("9"), json!([]));
        outcomes.push(empty);
    });
    let note = "1 group without answering members was left out: tables list only participants with answers.";
    assert!(notes.iter().any(|said| said == note), "{notes:?}");
    assert!(noted(&folder, TableFormat::PolisCsv, |_| {}).is_empty());
}

#[test]
fn generated_source_id_survives_the_round_trip() {
    let (folder, conversation) = (Folder::new(), Conversation::new(41, 10, 30));
    let input = conversation.variant_a(&folder, "a");
    for name in ["votes.csv", "summary.csv"] {
        fs::remove_file(input.join(name)).unwrap();
    }
    fs::rename(input.join("participants-votes.csv"), input.join("two words & more.csv")).unwrap();
    let first = bundle(&folder.fresh(&input)).1;
    assert_eq!(first["source"]["sourceId"], "two words & more");
    let mut tables_job = folder.job(&folder.path("bundle.json"));
    (tables_job.key, tables_job.table_format) = (None, Some(TableFormat::PolisCsv));
    (tables_job.target, tables_job.voter_ids, tables_job.cells) =
        (Target::File(folder.path("tables")), VoterIds::References, Cells::Exact);
    run(&tables_job).unwrap();
    // The generated name contains only the file name.
    let error = run(&folder.job(&folder.path("tables"))).unwrap_err();
    assert!(error.to_string().contains("--source-id"), "{error}");
    let mut bundle_job = folder.fresh(&folder.path("tables"));
    bundle_job.participants = ParticipantNaming::KeepPseudonyms;
    assert_eq!(bundle(&bundle_job).1["source"], first["source"]);
}

#[test]
fn dry_run_notes_what_other_formats_leave_out() {
    let (folder, conversation) = (Folder::new(), Conversation::new(47, 8, 40));
    let input = conversation.variant_a(&folder, "a");
    let counts = "comment-id,comment_text,a-agree-count,a-disagree-count\n1,one,9,\n2,two,5,6\n";
    let counts = folder.write("t.csv", counts);
    let before = folder.names();
    let mut notes = BTreeSet::new();
    let mut compare = |job: &Job, what: &str| {
        let preview = run(&Job { dry_run: true, ..job.clone() }).unwrap();
        assert_eq!(folder.names(), before, "{what}");
        assert_eq!((preview.dry_run, &preview.bundle_id, preview.bytes), (true, &None, 0));
        let report = run(job).unwrap();
        assert_eq!((&preview.notes, &preview.files), (&report.notes, &report.files), "{what}");
        assert_eq!((preview.participants, preview.responses), (report.participants, report.responses));
        notes.extend(report.notes);
        for name in folder.names().iter().filter(|name| !before.contains(name)) {
            let path = folder.path(name);
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
    };
    for (input, profile) in
        [(&input, Profile::Private), (&input, Profile::Public), (&counts, Profile::Private)]
    {
        let mut job = folder.fresh(input);
        (job.profile, job.texts) = (profile, Some(TextTreatment::Omit));
        for sidecars in [None, Some(vec![Sidecar::Parquet]), Some(vec![Sidecar::Ndjson])] {
            let options = format!("{profile:?} {sidecars:?}");
            compare(&Job { sidecars, ..job.clone() }, &options);
        }
        job.target = Target::File(folder.path("tables"));
        let votes = (profile == Profile::Private && *input != counts).then_some(TableFormat::PolisCsv);
        for shape in
            [TableFormat::SensemakingCsv, TableFormat::Ndjson, TableFormat::Parquet].into_iter().chain(votes)
        {
            compare(&Job { table_format: Some(shape), ..job.clone() }, &format!("{profile:?} {shape:?}"));
        }
    }
    // A bundle of this size has Parquet sidecars by default.
    let large = Conversation::new(48, 60, 2_200).variant_a(&folder, "a");
    compare(&folder.fresh(&large), "large");
    for note in ["Parquet files hold items and responses: 182 outcomes are", "The table has no column for"] {
        assert!(notes.iter().any(|told| told.starts_with(note)), "{note}: {notes:?}");
    }
}

#[test]
fn counts_are_exact_or_refused_in_every_format() {
    let (folder, conversation) = (Folder::new(), Conversation::new(41, 3, 30));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    (job.profile, job.k, job.texts) = (Profile::Public, 3, Some(TextTreatment::Omit));
    let original = bundle(&job).1;
    let with = |counts: [&str; 2]| {
        let mut changed_bundle = original.clone();
        let row = |id: &str, count: &str| {
            let mut row = original["responses"][0].clone();
            (row["id"], row["count"]) = (json!(id), serde_json::from_str(count).unwrap());
            row
        };
        changed_bundle["responses"] = json!([row("a", counts[0]), row("b", counts[1])]);
        changed_bundle
    };
    let outcome = |shape, bundle: &Value| {
        let mut job = folder.job(&folder.write("changed.json", bundle.to_string()));
        (job.key, job.table_format) = (None, Some(shape));
        job.target = Target::File(folder.path("tables"));
        run(&job).map_err(|error| error.to_string())
    };
    let read = |name: &str| fs::read_to_string(folder.path("tables").join(name)).unwrap();
    let answer = original["responses"][0]["response"].as_str().unwrap();
    let wide = with(["18446744073709551615", "1.0"]);
    outcome(TableFormat::SensemakingCsv, &wide).unwrap();
    assert!(read("comments.csv").contains(",18446744073709551616,"), "{}", read("comments.csv"));
    outcome(TableFormat::Ndjson, &with(["18446744073709551617", "1e0"])).unwrap();
    assert!(read("responses.ndjson").contains("\"count\":18446744073709551617,"));
    assert!(read("responses.ndjson").contains("\"count\":1,"));
    let nines = "9".repeat(38);
    let results = [
        (
            TableFormat::SensemakingCsv,
            [nines.as_str(), "1"],
            format!("/responses/1: with it the count of {answer} has more than 38 digits"),
        ),
        (
            TableFormat::SensemakingCsv,
            ["1", "1e38"],
            "/responses/1: its count has more than 38 digits".to_owned(),
        ),
        (TableFormat::Ndjson, ["1e400", "1"], "/responses/0: its count has more than 38 digits".to_owned()),
        (
            TableFormat::Parquet,
            ["1", "9223372036854775808"],
            "/responses/1: its count is more than 9223372036854775807, the most that Parquet holds"
                .to_owned(),
        ),
    ];
    for (shape, counts, says) in results {
        assert_eq!(outcome(shape, &with(counts)).unwrap_err(), format!("changed.json: {says}"));
    }
    outcome(TableFormat::Parquet, &with(["9223372036854775807", "1"])).unwrap();
    let no_count = outcome(TableFormat::Ndjson, &with(["1.5", "1"])).unwrap_err();
    assert!(
        no_count.ends_with("not a valid bundle: run `tidegate bundle validate` for details"),
        "{no_count}"
    );
    let text = with(["1e30", "2"]).to_string();
    let room = SpillOptions { memory: 1 << 20, folder: folder.path("") };
    let items = ItemOptions { max_items: 10, with_texts: false };
    let overview =
        inspect(&mut text.as_bytes(), Naming::Service, None, items, Limits::default(), &room).unwrap();
    let max = 10_u128.pow(30);
    assert_eq!((overview.responses, overview.unlinked), (max + 2, max + 2));
    assert!(overview.to_json("a").to_string().contains(&format!("\"responses\":{},", max + 2)));
}

#[test]
fn times_without_exact_number_are_written_as_text_only() {
    let (folder, conversation) = (Folder::new(), Conversation::new(41, 3, 30));
    let mut changed_bundle = bundle(&folder.job(&conversation.variant_a(&folder, "a"))).1;
    let times = [
        ("1970-01-01T00:00:00Z", true),
        ("1969-12-31T23:59:59Z", false),
        ("1972-12-31T00:00:00.500Z", false),
        ("1972-12-31T00:00:00Z", true),
        ("5138-11-16T09:46:39Z", true),
        ("5138-11-16T09:46:40Z", false),
        ("5138-11-16T09:46:40.000Z", true),
        ("9999-12-31T00:30:00.000+01:00", true),
    ];
    for (at, (time, _)) in times.iter().enumerate() {
        changed_bundle["responses"][at]["occurredAt"] = json!(time);
    }
    changed_bundle["items"][0]["createdAt"] = json!("1969-12-31T23:59:59Z");
    let file = folder.write("changed.json", changed_bundle.to_string());
    let mut tables_job = folder.job(&file);
    (tables_job.key, tables_job.table_format, tables_job.voter_ids) =
        (None, Some(TableFormat::PolisCsv), VoterIds::References);
    tables_job.target = Target::File(folder.path("tables"));
    let without_number = times.iter().filter(|(_, told)| !told).count() + 1;
    let report = run(&tables_job).unwrap();
    let note = format!("{without_number} times were written as text only (datetime): ");
    assert!(report.notes.iter().any(|said| said.starts_with(&note)), "{:?}", report.notes);
    let mut bundle_job = folder.job(&folder.path("tables"));
    bundle_job.target = Target::File(folder.path("again.json"));
    bundle_job.participants = ParticipantNaming::KeepPseudonyms;
    let reconverted = bundle(&bundle_job).1;
    assert_eq!(reconverted["items"][0]["createdAt"], Value::Null);
    for (at, (time, told)) in times.iter().enumerate() {
        let read = reconverted["responses"][at]["occurredAt"].as_str().and_then(Timestamp::parse);
        assert_eq!(read, Timestamp::parse(time).filter(|_| *told), "{time}");
    }
    tables_job.table_format = Some(TableFormat::Parquet);
    run(&tables_job).unwrap();
    changed_bundle["responses"][1]["occurredAt"] = json!("0000-01-01T00:00:00+00:01");
    fs::write(&file, changed_bundle.to_string()).unwrap();
    let message = run(&tables_job).unwrap_err().to_string();
    assert_eq!(message, "changed.json: /responses/1: occurredAt is not a time of the years 0000 to 9999");
}
