//! A conversion that is told to stop before its votes, that has lost its key, or that had ended already.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use crate::support::{Conversation, Folder, run};
use tidegate_exporter::{
    convert::{Job, Sidecar, Target, convert},
    error::Fault,
    meter::Meter,
    privacy::{Key, Profile, Texts},
    tables::Shape,
    timestamp::Moment,
};

/// Told to stop once it has read so many rows.
fn stopped(job: &Job, rows: u64) -> Fault {
    let meter = Arc::new(Meter::default());
    meter.stop_after(rows);
    convert(job, &meter).unwrap_err()
}

fn all_of(folder: &Folder) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(folder.path("")).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn told_to_stop_before_the_votes_it_says_so_at_once_and_how_it_goes_on() {
    let (folder, conversation) = (Folder::new(), Conversation::new(71, 10, 60));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    job.force = false;
    run(&job).unwrap();
    let whole = fs::read(folder.path("bundle.json")).unwrap();
    fs::remove_file(folder.path("bundle.json")).unwrap();
    let fault = stopped(&job, 0);
    assert!(matches!(fault, Fault::Stopped { rows: 0, resumable: true }), "{fault:?}");
    assert_eq!(folder.names(), ["a", "bundle.json.parts"]);
    job.resume = true;
    run(&job).unwrap();
    assert!(fs::read(folder.path("bundle.json")).unwrap() == whole);
    fs::remove_file(folder.path("bundle.json")).unwrap();
    (job.resume, job.profile) = (false, Profile::Public);
    let fault = stopped(&job, 0);
    assert!(matches!(fault, Fault::Stopped { rows: 0, resumable: false }), "{fault:?}");
    assert_eq!(folder.names(), ["a"]);
}

#[test]
fn a_key_that_is_lost_is_told_by_its_name() {
    let (folder, conversation) = (Folder::new(), Conversation::new(72, 100, 400));
    let mut job = folder.fresh(&conversation.variant_a(&folder, "a"));
    job.force = false;
    let fault = stopped(&job, 1);
    assert!(matches!(fault, Fault::Stopped { rows: 1.., resumable: true }), "{fault:?}");
    job.resume = true;
    let path = folder.path("bundle.json.parts/key");
    let key = fs::read(&path).unwrap();
    for (left, is) in [(None, "missing"), (Some(&key[..7]), "damaged")] {
        fs::remove_file(&path).unwrap();
        if let Some(left) = left {
            fs::write(&path, left).unwrap();
        }
        let fault = run(&job).unwrap_err();
        let said = format!(
            "bundle.json.parts/key is {is}: it is the key that the pseudonyms so far were made with, and without it the same \
             bytes cannot be made again. Put it back for --resume to go on; --force without --resume begins anew with another"
        );
        assert_eq!((fault.tag(), fault.to_string()), ("refused", said));
        fs::write(&path, &key).unwrap();
    }
    // Of the right length, too.
    fs::write(&path, [7; 32]).unwrap();
    let said = "bundle.json.parts/key is another key than the one that the pseudonyms so far were made with. With that one \
                --resume goes on; --force without --resume begins anew";
    let fault = run(&job).unwrap_err();
    assert_eq!((fault.tag(), fault.to_string().as_str()), ("refused", said));
    fs::write(&path, &key).unwrap();
    assert!(run(&job).unwrap().resumed_rows > 0);
    // Nothing was written with this one.
    let mut job = Job { force: true, resume: false, ..job };
    stopped(&job, 0);
    fs::write(&path, "half").unwrap();
    (job.force, job.resume) = (true, true);
    run(&job).unwrap();
    assert_eq!(folder.names(), ["a", "bundle.json"]);
}

#[test]
fn another_id_is_not_its_own_and_a_named_one_says_nothing_of_pseudonyms() {
    let (folder, conversation) = (Folder::new(), Conversation::new(73, 12, 60));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let id = ended(&folder, &mut job).unwrap();
    let (path, other) = (folder.path("bundle.json"), format!("{}0000", &id[..id.len() - 4]));
    fs::write(&path, fs::read_to_string(&path).unwrap().replace(&id, &other)).unwrap();
    let refused = |job: &Job| {
        let fault = run(job).unwrap_err();
        assert!(fault.to_string().starts_with("bundle.json is there already"), "{fault}");
    };
    refused(&job);
    job.bundle_id = Some("mine".to_owned());
    ended(&folder, &mut job);
    assert!(run(&job).unwrap().finished);
    refused(&Job { bundle_id: Some("hers".to_owned()), ..job.clone() });
    job.key = None;
    ended(&folder, &mut job);
    refused(&job);
}

/// As a kill among its last steps leaves it: everything has its name.
fn ended(folder: &Folder, job: &mut Job) -> Option<String> {
    (job.force, job.resume) = (true, false);
    let id = run(job).unwrap().bundle_id;
    folder.write("bundle.json.parts.over/key", "");
    (job.force, job.resume) = (false, true);
    id
}

#[test]
fn a_conversion_that_had_ended_is_told_to_be_finished_and_nothing_else_is_taken_for_it() {
    let (folder, conversation) = (Folder::new(), Conversation::new(73, 12, 60));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    (job.sidecars, job.package) = (Some(vec![Sidecar::Ndjson]), true);
    for (key, profile) in
        [(job.key.clone(), Profile::Private), (None, Profile::Private), (None, Profile::Public)]
    {
        (job.key, job.profile) = (key, profile);
        let id = ended(&folder, &mut job);
        let before = all_of(&folder);
        // The moment is that of the run before, unless another one is told.
        let report = run(&Job { exported: None, ..job.clone() }).unwrap();
        assert!(report.finished && report.files.is_empty(), "{report:?}");
        assert_eq!((report.bundle_id, report.bytes), (id, before[&folder.path("bundle.json")].len() as u64));
        assert!(all_of(&folder) == before && !folder.path("bundle.json.parts.over").exists());
        let refused = |job: &Job| {
            let fault = run(job).unwrap_err();
            assert!(fault.to_string().starts_with("bundle.json is there already"), "{fault}");
            assert!(fs::read(folder.path("bundle.json")).unwrap() == before[&folder.path("bundle.json")]);
        };
        refused(&Job { resume: false, ..job.clone() });
        refused(&Job { limitations: vec!["none".to_owned()], ..job.clone() });
        refused(&Job { texts: Some(Texts::Omit), ..job.clone() });
        refused(&Job { exported: Moment::parse("2026-01-02T03:04:06Z"), ..job.clone() });
        if profile == Profile::Private {
            refused(&Job { events: true, ..job.clone() });
            let other = Job { key: Key::kept(vec![8; 32]), ..job.clone() };
            refused(&other);
            let said = run(&other).unwrap_err().to_string();
            assert!(said.contains("its pseudonyms were made with another key: "), "{said}");
        }
    }
}

#[test]
fn an_output_that_is_not_whole_or_lacks_what_stands_beside_it_is_not_finished() {
    let (folder, conversation) = (Folder::new(), Conversation::new(74, 12, 60));
    let mut job = folder.fresh(&conversation.variant_a(&folder, "a"));
    job.sidecars = Some(vec![Sidecar::Ndjson]);
    ended(&folder, &mut job);
    let whole = fs::read_to_string(folder.path("bundle.json")).unwrap();
    let reordered = {
        let mut lines: Vec<_> = whole.split('\n').collect();
        let vote = lines.iter().position(|line| line.starts_with("{\"id\":\"vote:")).unwrap();
        lines.swap(vote, vote + 1);
        lines.join("\n")
    };
    for other in [
        whole.replacen("\"agree\",\"count\"", "\"pass\",\"count\"", 1),
        whole[..whole.len() - 100].to_owned(),
        reordered,
        whole.replacen("Statement 3", "Statement 4", 1),
    ] {
        assert_ne!(other, whole);
        folder.write("bundle.json", &other);
        let fault = run(&job).unwrap_err();
        assert_eq!(fault.to_string(), "bundle.json is there already: --force replaces it");
        assert_eq!(fs::read_to_string(folder.path("bundle.json")).unwrap(), other);
    }
    folder.write("bundle.json", whole);
    assert!(run(&job).unwrap().finished);
    fs::remove_file(folder.path("bundle.outcomes.ndjson")).unwrap();
    let said =
        "bundle.json is there already, and bundle.outcomes.ndjson beside it is not: --force makes both anew";
    assert_eq!(run(&job).unwrap_err().to_string(), said);
}

/// One bit of a file is another one, or it ends early.
fn damaged(path: &Path, cut: bool) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    if cut {
        bytes.truncate(middle);
    } else {
        bytes[middle] ^= 1;
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_stands_beside_a_finished_bundle_is_held_against_it() {
    let (folder, conversation) = (Folder::new(), Conversation::new(75, 12, 60));
    let input = conversation.variant_a(&folder, "a");
    for mut job in [folder.job(&input), folder.fresh(&input)] {
        (job.sidecars, job.package) = (Some(vec![Sidecar::Ndjson, Sidecar::Parquet]), true);
        ended(&folder, &mut job);
        let before = all_of(&folder);
        assert!(before.len() == 8, "{before:?}");
        let meter = Arc::new(Meter::default());
        assert!(convert(&job, &meter).unwrap().finished);
        assert_eq!(meter.total.load(Ordering::Relaxed), meter.read.load(Ordering::Relaxed));
        for (path, bytes) in &before {
            let name = path.file_name().unwrap().to_str().unwrap();
            for cut in [false, true].into_iter().filter(|_| name != "bundle.json") {
                damaged(path, cut);
                let said = format!(
                    "bundle.json is there already, and {name} beside it is not what belongs to it: --force makes both anew"
                );
                let fault = run(&job).unwrap_err();
                assert_eq!((fault.tag(), fault.to_string()), ("refused", said));
                fs::write(path, bytes).unwrap();
            }
        }
        job.license = Some("CC0-1.0".to_owned());
        let said = run(&job).unwrap_err().to_string();
        assert!(said.contains("and datapackage.json beside it is not what belongs to it"), "{said}");
        job.license = None;
        assert!(run(&job).unwrap().finished);
        assert!(all_of(&folder) == before);
    }
}

#[test]
fn tables_that_are_all_there_are_told_to_be_finished_and_others_are_told_by_name() {
    let (folder, conversation) = (Folder::new(), Conversation::new(76, 12, 60));
    let export = conversation.variant_a(&folder, "a");
    run(&folder.job(&export)).unwrap();
    for shape in [Shape::PolisCsv, Shape::SensemakingCsv, Shape::Ndjson, Shape::Parquet] {
        for input in [&export, &folder.path("bundle.json")] {
            let mut job = folder.job(input);
            (job.to, job.target) = (Some(shape), Target::File(folder.path("tables")));
            job.key = job.key.filter(|_| *input == export);
            job.force = true;
            let names = run(&job).unwrap().files;
            (job.force, job.resume, job.exported) = (false, true, None);
            let report = run(&job).unwrap();
            assert!(report.finished && report.files.is_empty(), "{shape:?}: {report:?}");
            assert!(folder.names().iter().all(|name| !name.contains(".parts")), "{:?}", folder.names());
            for name in names {
                let path = folder.path("tables").join(&name);
                let whole = fs::read(&path).unwrap();
                damaged(&path, true);
                let said = |is: &str| {
                    format!("tables is there already, and {name} in it {is}: --force makes all of it anew")
                };
                assert_eq!(run(&job).unwrap_err().to_string(), said("is not what is made of the input"));
                // With its only table nothing is there.
                if shape != Shape::SensemakingCsv {
                    fs::remove_file(&path).unwrap();
                    assert_eq!(run(&job).unwrap_err().to_string(), said("is missing"));
                }
                fs::write(&path, whole).unwrap();
            }
            let said = run(&Job { resume: false, ..job }).unwrap_err().to_string();
            assert_eq!(said, "tables is there already: --force replaces it");
            fs::remove_dir_all(folder.path("tables")).unwrap();
        }
    }
}

#[test]
fn of_tables_under_a_fresh_key_it_is_told_that_nothing_tells_whether_they_are_whole() {
    let (folder, conversation) = (Folder::new(), Conversation::new(77, 12, 60));
    let mut job = folder.fresh(&conversation.variant_a(&folder, "a"));
    job.target = Target::File(folder.path("tables"));
    for (shape, finished) in [(Shape::PolisCsv, false), (Shape::SensemakingCsv, true)] {
        (job.to, job.force, job.resume) = (Some(shape), true, false);
        run(&job).unwrap();
        (job.force, job.resume) = (false, true);
        match run(&job) {
            Ok(report) => assert!(report.finished && finished),
            Err(fault) => {
                let said = "tables is there already, and votes.csv in it was made with a fresh key, which is gone, so that \
                            nothing tells whether it is whole: --force makes all of it anew";
                assert_eq!((fault.to_string().as_str(), finished), (said, false));
            }
        }
        fs::remove_dir_all(folder.path("tables")).unwrap();
    }
}
