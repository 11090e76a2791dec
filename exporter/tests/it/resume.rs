//! A conversion that is killed or told to stop goes on where it was, to the same bytes.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::support::{Conversation, Folder};
use tidegate_exporter::{
    convert::{Job, Sidecar, Target, convert},
    error::Fault,
    meter::Meter,
    privacy::{Key, Participants},
    tables::Shape,
    timestamp::Moment,
};

const CHILD: &str = "CONVERT_FROM_AND_TO";

fn job(input: PathBuf, out: PathBuf) -> Job {
    let mut job = Job::new(vec![input], Target::File(out));
    job.exported = Moment::from_seconds(1_767_323_045);
    job.segment = 10_000;
    job.sidecars = Some(Vec::new());
    job.threads = 2;
    job
}

/// The process that is killed: this test in a process of its own.
#[test]
fn a_conversion_for_the_test_below() {
    let Ok(paths) = env::var(CHILD) else { return };
    let paths: Vec<_> = paths.lines().collect();
    let mut job = job(paths[0].into(), paths[1].into());
    job.resume = true;
    if paths.get(2) == Some(&BESIDE) {
        with_all_beside(&mut job);
    }
    convert(&job, &Arc::new(Meter::default())).unwrap();
}

/// What the process writes beside the bundle.
const BESIDE: &str = "all";

/// Sidecars and a package; rows that have to be sorted go to disk.
fn with_all_beside(job: &mut Job) {
    (job.sidecars, job.package) = (Some(vec![Sidecar::Ndjson]), true);
    (job.key, job.segment, job.limits.memory) = (Key::kept(vec![5; 32]), 1_000, 100_000);
}

fn child(input: &std::path::Path, out: &std::path::Path, beside: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "resume::a_conversion_for_the_test_below"])
        .env(CHILD, format!("{}\n{}\n{beside}", input.display(), out.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn segments(out: &std::path::Path) -> usize {
    fs::read_to_string(format!("{}.parts/segments", out.display())).map_or(0, |text| text.lines().count())
}

#[test]
fn killed_and_resumed_gives_the_bytes_of_an_undisturbed_run() {
    for sorted in [true, false] {
        let (folder, mut conversation) = (Folder::new(), Conversation::new(31, 150, 1_000));
        if !sorted {
            conversation.votes.sort_by_key(|vote| (vote.1, vote.0, vote.2));
        }
        let input = conversation.variant_a(&folder, "a");
        let out = folder.path("out.json");
        let (mut kills, mut key) = (0, None);
        // Each round is let live until it has written a little more than the one before.
        for round in 1.. {
            let mut running = child(&input, &out, "");
            let end = Instant::now() + Duration::from_secs(120);
            let ended = loop {
                if let Some(status) = running.try_wait().unwrap() {
                    assert!(status.success());
                    break true;
                }
                assert!(Instant::now() < end);
                if segments(&out) > round * 2 {
                    running.kill().unwrap();
                    running.wait().unwrap();
                    break false;
                }
                #[expect(clippy::disallowed_methods, reason = "nothing else runs here while the child does")]
                thread::sleep(Duration::from_millis(1));
            };
            if ended {
                break;
            }
            kills += 1;
            assert!(!out.exists());
            key = Some(fs::read(folder.path("out.json.parts/key")).unwrap());
        }
        assert!(kills > 0);
        let mut undisturbed = job(input, folder.path("other.json"));
        undisturbed.key = Key::kept(key.unwrap());
        undisturbed.threads = 1;
        convert(&undisturbed, &Arc::new(Meter::default())).unwrap();
        assert!(fs::read(out).unwrap() == fs::read(folder.path("other.json")).unwrap());
        assert_eq!(folder.names(), ["a", "other.json", "out.json"]);
    }
}

/// When the process is killed, unless it has ended by then.
#[derive(Clone, Copy, Debug)]
enum Moments {
    /// At some moment of the time that an undisturbed run takes, as a seed has it.
    Seeded(u32),
    /// As soon as there is a file.
    When(&'static str),
}

#[test]
fn killed_in_the_spill_among_sidecars_and_names_it_goes_on_to_the_same_files() {
    let (folder, mut conversation) = (Folder::new(), Conversation::new(34, 60, 200));
    let mut kills = 0;
    for name in ["sorted", "unsorted"] {
        if name == "unsorted" {
            conversation.votes.sort_by_key(|vote| (vote.1, vote.0, vote.2));
        }
        let input = conversation.variant_a(&folder, name);
        let place = |of: &str| {
            let place = folder.path(&format!("{name}-{of}"));
            fs::create_dir(&place).unwrap();
            place
        };
        let whole = place("whole");
        let mut undisturbed = job(input.clone(), whole.join("out.json"));
        with_all_beside(&mut undisturbed);
        let began = Instant::now();
        convert(&undisturbed, &Arc::new(Meter::default())).unwrap();
        let takes = began.elapsed();
        let seeded = [7, 19, 31, 43].map(Moments::Seeded);
        let named =
            ["out.responses.ndjson.partial", "datapackage.json.partial", "out.items.ndjson", "out.json"];
        for (at, moment) in seeded.into_iter().chain(named.map(Moments::When)).enumerate() {
            let place = place(&at.to_string());
            let out = place.join("out.json");
            let mut running = child(&input, &out, BESIDE);
            let began = Instant::now();
            let killed = loop {
                if let Some(status) = running.try_wait().unwrap() {
                    assert!(status.success(), "{name} {moment:?}");
                    break false;
                }
                let is_due = match moment {
                    Moments::Seeded(seed) => began.elapsed() >= takes * (seed * 29 % 50 + 1) / 50,
                    Moments::When(file) => place.join(file).exists(),
                };
                if is_due {
                    running.kill().unwrap();
                    // It may have ended in between.
                    break !running.wait().unwrap().success();
                }
                thread::yield_now();
            };
            if killed {
                kills += 1;
                let again = child(&input, &out, BESIDE).wait().unwrap();
                assert!(again.success(), "{name} {moment:?}");
            }
            assert!(all_of(&place) == all_of(&whole), "{name} {moment:?}");
        }
    }
    assert!(kills > 4, "{kills}");
}

#[test]
fn what_an_end_that_was_cut_off_has_left_is_cleared_and_no_more_than_that() {
    let (folder, conversation) = (Folder::new(), Conversation::new(36, 6, 40));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    let meter = Arc::new(Meter::default());
    for resume in [false, true] {
        job.resume = resume;
        fs::create_dir(folder.path("out.json.parts.over")).unwrap();
        folder.write("out.json.parts.over/key", "");
        folder.write("out.json", "");
        let said = convert(&job, &meter).unwrap_err().to_string();
        assert!(said.starts_with("out.json is there already"), "{said}");
        assert_eq!(folder.names(), ["a", "out.json"]);
    }
    fs::remove_file(folder.path("out.json")).unwrap();
    std::os::unix::fs::symlink("a", folder.path("out.json.parts.over")).unwrap();
    convert(&job, &meter).unwrap();
    assert_eq!(folder.names(), ["a", "out.json"], "what a link leads to is nobody's leavings");
}

#[test]
fn told_to_stop_it_keeps_what_it_has_and_a_changed_input_is_noticed() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let input = conversation.variant_a(&folder, "a");
    let mut job = job(input, folder.path("out.json"));
    job.key = Key::kept(vec![5; 32]);
    let meter = Arc::new(Meter::default());
    meter.stop_after(1);
    let stopped = convert(&job, &meter).unwrap_err();
    assert!(matches!(stopped, Fault::Stopped { rows: 1.., resumable: true }), "{stopped:?}");
    assert_eq!(convert(&job, &Arc::new(Meter::default())).unwrap_err().tag(), "refused");
    job.resume = true;
    // A vote that has been written already is another one now.
    let votes = conversation.votes_csv(1000);
    let path = folder.path("a/votes.csv");
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    let as_before = || File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    folder.write("a/votes.csv", votes.replacen(",1\n", ",0\n", 1));
    let changed = convert(&job, &Arc::new(Meter::default())).unwrap_err();
    assert!(changed.to_string().contains("another input (votes.csv): "), "{changed}");
    as_before();
    let changed = convert(&job, &Arc::new(Meter::default())).unwrap_err();
    assert!(changed.to_string().contains("--force") && changed.tag() != "refused", "{changed}");
    folder.write("a/votes.csv", votes);
    as_before();
    let meter = Arc::new(Meter::default());
    let report = convert(&job, &meter).unwrap();
    assert!(report.resumed_rows > 0);
    assert_eq!(meter.rows.load(Ordering::Relaxed) as usize, conversation.votes.len());
}

#[test]
fn a_bundle_that_is_written_among_its_inputs_is_the_one_that_is_written_elsewhere() {
    let (folder, conversation) = (Folder::new(), Conversation::new(35, 100, 400));
    let input = conversation.variant_a(&folder, "a");
    let mut elsewhere = job(input.clone(), folder.path("out.json"));
    elsewhere.key = Key::kept(vec![5; 32]);
    convert(&elsewhere, &Arc::new(Meter::default())).unwrap();
    let whole = fs::read(folder.path("out.json")).unwrap();
    // The same folder by another name.
    std::os::unix::fs::symlink(&input, folder.path("b")).unwrap();
    for named in ["a", "b"] {
        let mut among = job(folder.path(named), input.join("out.json"));
        among.key = Key::kept(vec![5; 32]);
        interrupted(&mut among);
        assert!(input.join("out.json.partial").is_file() && input.join("out.json.parts").is_dir());
        among.dry_run = true;
        convert(&among, &Arc::new(Meter::default())).unwrap();
        among.dry_run = false;
        assert!(convert(&among, &Arc::new(Meter::default())).unwrap().resumed_rows > 0);
        assert!(fs::read(input.join("out.json")).unwrap() == whole, "{named}");
        fs::remove_file(input.join("out.json")).unwrap();
        among.resume = false;
        interrupted(&mut among);
        (among.resume, among.force) = (false, true);
        convert(&among, &Arc::new(Meter::default())).unwrap();
        assert!(fs::read(input.join("out.json")).unwrap() == whole, "{named}, anew");
        fs::remove_file(input.join("out.json")).unwrap();
    }
}

/// As it is after a kill in the middle.
fn interrupted(job: &mut Job) {
    let meter = Arc::new(Meter::default());
    meter.stop_after(1);
    assert!(matches!(convert(job, &meter).unwrap_err(), Fault::Stopped { rows: 1.., resumable: true }));
    job.resume = true;
}

/// Told to stop as soon as so many bytes are read.
fn stopped_beyond(bytes: u64, job: &Job) -> Fault {
    let meter = Arc::new(Meter::default());
    let fault = thread::scope(|scope| {
        let running = scope.spawn(|| convert(job, &meter));
        while meter.read.load(Ordering::Acquire) <= bytes && !running.is_finished() {
            thread::yield_now();
        }
        meter.stop();
        running.join().unwrap().unwrap_err()
    });
    // There was something left to do, and it was known.
    assert!(meter.total.load(Ordering::Acquire) > meter.read.load(Ordering::Acquire));
    fault
}

fn all_of(folder: &std::path::Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.map(|file| (file.file_name().unwrap().into(), fs::read(&file).unwrap())).collect()
}

/// What is written beside a bundle, or instead of it.
type Beside = fn(&mut Job);

#[test]
fn told_to_stop_while_other_forms_are_written_it_names_nothing_and_goes_on() {
    let ways: [(Beside, &str); 7] = [
        (|job| job.sidecars = Some(vec![Sidecar::Ndjson]), "out.json"),
        (|job| job.sidecars = Some(vec![Sidecar::Parquet]), "out.json"),
        (|job| job.package = true, "out.json"),
        (|job| job.to = Some(Shape::Ndjson), "out"),
        (|job| job.to = Some(Shape::Parquet), "out"),
        (|job| job.to = Some(Shape::PolisCsv), "out"),
        (|job| job.to = Some(Shape::SensemakingCsv), "out"),
    ];
    let (folder, conversation) = (Folder::new(), Conversation::new(33, 150, 400));
    let input = conversation.variant_a(&folder, "a");
    let read = fs::metadata(input.join("votes.csv")).unwrap().len();
    for (at, (way, out)) in ways.into_iter().enumerate() {
        let place = folder.path(&format!("to-{at}"));
        fs::create_dir(&place).unwrap();
        let mut job = job(input.clone(), place.join(out));
        (job.key, job.sidecars) = (Key::kept(vec![5; 32]), None);
        way(&mut job);
        let fault = stopped_beyond(read, &job);
        assert!(matches!(fault, Fault::Stopped { rows: 1.., resumable: true }), "{at}: {fault:?}");
        let left: Vec<_> = all_of_names(&place);
        assert_eq!(left, [format!("{out}.partial"), format!("{out}.parts")], "{at}");
        let refused = convert(&job, &Arc::new(Meter::default())).unwrap_err().to_string();
        assert!(refused.contains("--resume goes on"), "{at}: {refused}");
        job.resume = true;
        let meter = Arc::new(Meter::default());
        let report = convert(&job, &meter).unwrap();
        assert!(report.resumed_rows as usize == conversation.latest().len() || at > 2, "{at}: {report:?}");
        assert_eq!(meter.total.load(Ordering::Relaxed), meter.read.load(Ordering::Relaxed), "{at}");
        let mut whole = job.clone();
        whole.resume = false;
        let other = folder.path(&format!("whole-{at}"));
        fs::create_dir(&other).unwrap();
        whole.target = Target::File(other.join(out));
        convert(&whole, &Arc::new(Meter::default())).unwrap();
        let of = |place: &std::path::Path| {
            all_of(if job.to.is_some() { place.join(out) } else { place.to_owned() }.as_path())
        };
        assert!(of(&place) == of(&other), "{at}");
    }
}

fn all_of_names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn told_to_stop_while_a_bundle_is_turned_into_tables_it_leaves_nothing_and_begins_anew() {
    let (folder, conversation) = (Folder::new(), Conversation::new(33, 150, 400));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    convert(&job, &Arc::new(Meter::default())).unwrap();
    let packed = zstd::encode_all(&*fs::read(folder.path("out.json")).unwrap(), 1).unwrap();
    folder.write("out.json.zst", packed);
    for from in ["out.json", "out.json.zst"] {
        for shape in [Shape::Ndjson, Shape::Parquet, Shape::PolisCsv, Shape::SensemakingCsv] {
            let target = Target::File(folder.path("tables"));
            let mut turned = Job { to: Some(shape), ..Job::new(vec![folder.path(from)], target) };
            turned.segment = job.segment;
            let fault = stopped_beyond(0, &turned);
            assert!(matches!(fault, Fault::Stopped { resumable: false, .. }), "{shape:?}: {fault:?}");
            assert_eq!(folder.names(), ["a", "out.json", "out.json.zst"], "{shape:?}");
        }
    }
    // As a second signal may leave it.
    job = Job {
        to: Some(Shape::Ndjson),
        ..Job::new(vec![folder.path("out.json")], Target::File(folder.path("tables")))
    };
    folder.write("tables/items.ndjson.partial", "{");
    folder.write("tables.parts/lock", "");
    let refused = convert(&job, &Arc::new(Meter::default())).unwrap_err().to_string();
    assert!(refused.contains("--resume") && refused.contains("--force"), "{refused}");
    job.resume = true;
    convert(&job, &Arc::new(Meter::default())).unwrap();
    assert_eq!(all_of(&folder.path("tables")).len(), 4);
    assert_eq!(folder.names(), ["a", "out.json", "out.json.zst", "tables"]);
}

#[test]
fn what_was_to_replace_something_goes_on_too() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    folder.write("out.json", "older");
    job.force = true;
    interrupted(&mut job);
    assert_eq!(fs::read_to_string(folder.path("out.json")).unwrap(), "older");
    assert!(convert(&job, &Arc::new(Meter::default())).unwrap().resumed_rows > 0);
    assert!(fs::read_to_string(folder.path("out.json")).unwrap().starts_with("{\"schema\""));
}

#[test]
fn a_folder_of_tables_that_was_begun_goes_on() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out"));
    (job.to, job.sidecars, job.key) = (Some(Shape::Ndjson), None, Key::kept(vec![5; 32]));
    interrupted(&mut job);
    // A kill while the tables are written, and while they get their names.
    folder.write("out/responses.ndjson.partial", "{\"half");
    folder.write("out/items.ndjson", "{}\n");
    let mut without = job.clone();
    without.resume = false;
    assert_eq!(convert(&without, &Arc::new(Meter::default())).unwrap_err().tag(), "refused");
    convert(&job, &Arc::new(Meter::default())).unwrap();
    let mut whole = job.clone();
    (whole.target, whole.resume) = (Target::File(folder.path("whole")), false);
    convert(&whole, &Arc::new(Meter::default())).unwrap();
    let of = |name: &str| {
        let files = fs::read_dir(folder.path(name)).unwrap().map(|file| file.unwrap());
        files.map(|file| (file.file_name(), fs::read(file.path()).unwrap())).collect::<BTreeMap<_, _>>()
    };
    assert!(of("out").len() > 2 && of("out") == of("whole"));
    assert_eq!(folder.names(), ["a", "out", "whole"]);
}

#[test]
fn a_bundle_with_its_name_and_without_its_package_goes_on() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    job.package = true;
    interrupted(&mut job);
    let kept = fs::read(folder.path("out.json.parts/key")).unwrap();
    // A kill between the two.
    folder.write("out.json.parts/named", "");
    fs::remove_file(folder.path("out.json.partial")).unwrap();
    let mut undisturbed = job.clone();
    (undisturbed.target, undisturbed.key) = (Target::File(folder.path("other.json")), Key::kept(kept));
    (undisturbed.resume, undisturbed.package) = (false, false);
    convert(&undisturbed, &Arc::new(Meter::default())).unwrap();
    folder.write("out.json", "somebody else's");
    let said = convert(&job, &Arc::new(Meter::default())).unwrap_err().to_string();
    assert!(said.starts_with("out.json is there already, and is not what the interrupted"), "{said}");
    assert_eq!(fs::read_to_string(folder.path("out.json")).unwrap(), "somebody else's");
    fs::copy(folder.path("other.json"), folder.path("out.json")).unwrap();
    assert!(convert(&job, &Arc::new(Meter::default())).unwrap().finished);
    let listed = fs::read_to_string(folder.path("manifest-sha256.txt")).unwrap();
    assert!(listed.contains("out.json") && folder.path("datapackage.json").exists());
    assert!(fs::read(folder.path("out.json")).unwrap() == fs::read(folder.path("other.json")).unwrap());
}

#[test]
fn what_could_not_be_written_beside_a_bundle_leaves_it_without_a_name_and_is_gone_on_with() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    (job.package, job.force) = (true, true);
    // Nothing can be written there.
    fs::create_dir_all(folder.path("datapackage.json.partial")).unwrap();
    assert_eq!(convert(&job, &Arc::new(Meter::default())).unwrap_err().tag(), "io");
    assert!(!folder.path("out.json").exists());
    let kept = Key::kept(fs::read(folder.path("out.json.parts/key")).unwrap());
    fs::remove_dir_all(folder.path("datapackage.json.partial")).unwrap();
    (job.force, job.resume) = (false, true);
    assert!(convert(&job, &Arc::new(Meter::default())).unwrap().resumed_rows > 0);
    assert_eq!(folder.names(), ["a", "datapackage.json", "manifest-sha256.txt", "out.json"]);
    let mut undisturbed = job.clone();
    (undisturbed.target, undisturbed.key) = (Target::File(folder.path("other.json")), kept);
    (undisturbed.resume, undisturbed.package) = (false, false);
    convert(&undisturbed, &Arc::new(Meter::default())).unwrap();
    assert!(fs::read(folder.path("out.json")).unwrap() == fs::read(folder.path("other.json")).unwrap());
}

#[test]
fn another_moment_than_the_one_it_began_with_is_refused() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    job.force = true;
    let (told, other) = (job.exported, Moment::from_seconds(1_767_323_046));
    for (again, goes_on) in [(told, true), (None, true), (other, false)] {
        (job.exported, job.resume) = (told, false);
        interrupted(&mut job);
        job.exported = again;
        match convert(&job, &Arc::new(Meter::default())) {
            Ok(report) => assert!(goes_on && report.resumed_rows > 0),
            Err(fault) => {
                assert_eq!((fault.tag(), goes_on), ("refused", false));
                assert!(fault.to_string().contains("--as-of 2026-01-02T03:04:05Z goes on"), "{fault}");
            }
        }
    }
}

#[test]
fn what_never_began_leaves_nothing_in_the_way() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let mut mistyped = job(folder.path("nowhere"), folder.path("out.json"));
    assert!(convert(&mistyped, &Arc::new(Meter::default())).is_err());
    assert_eq!(folder.names(), [""; 0]);
    mistyped.inputs = vec![conversation.variant_a(&folder, "a")];
    convert(&mistyped, &Arc::new(Meter::default())).unwrap();
}

#[test]
fn what_was_gone_on_with_behind_the_naming_and_cut_off_again_is_gone_on_with() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    job.key = Key::kept(vec![5; 32]);
    convert(&job, &Arc::new(Meter::default())).unwrap();
    fs::rename(folder.path("out.json"), folder.path("whole.json")).unwrap();
    interrupted(&mut job);
    folder.write("out.json.parts/named", "");
    fs::rename(folder.path("whole.json"), folder.path("out.json")).unwrap();
    interrupted(&mut job);
    assert!(folder.path("out.json.partial").exists());
    convert(&job, &Arc::new(Meter::default())).unwrap();
    assert_eq!(folder.names(), ["a", "out.json"]);
}

#[test]
fn a_partial_file_of_somebody_else_stays_as_it_is() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 10, 40));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    folder.write("precious", "mine");
    std::os::unix::fs::symlink(folder.path("precious"), folder.path("out.json.partial")).unwrap();
    let refused = convert(&job, &Arc::new(Meter::default())).unwrap_err();
    assert!(refused.to_string().starts_with("out.json.partial is there"), "{refused}");
    job.force = true;
    convert(&job, &Arc::new(Meter::default())).unwrap();
    assert_eq!(fs::read_to_string(folder.path("precious")).unwrap(), "mine");
    assert!(!folder.path("out.json").is_symlink());
    assert_eq!(folder.names(), ["a", "out.json", "precious"]);
}

#[test]
fn what_differs_from_what_it_was_begun_with_is_told_by_name() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let mut begun = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    begun.key = Key::kept(vec![5; 32]);
    interrupted(&mut begun);
    type Change = fn(&mut Job);
    let changes: [(Change, &str); 8] = [
        (|job| job.limitations.push("None".to_owned()), "other options (--limitation)"),
        (|job| job.text_reviewed_by = Some("Ada".to_owned()), "other options (--text-reviewed-by)"),
        (|job| job.withheld = true, "other options (--not-for-sharing)"),
        (|job| job.key = Key::kept(vec![6; 32]), "another key (--linkage-key-file)"),
        (|job| job.package = true, "other options (--package)"),
        (|job| job.overrides.title = Some("T".to_owned()), "other options (--title)"),
        (
            |job| (job.truncate_metadata, job.events) = (true, true),
            "other options (--events, --truncate-metadata)",
        ),
        (
            |job| job.inputs[0] = job.inputs[0].join("votes.csv"),
            "another input (comments.csv, participants-votes.csv, summary.csv)",
        ),
    ];
    for (change, says) in changes {
        let mut other = begun.clone();
        change(&mut other);
        let refused = convert(&other, &Arc::new(Meter::default())).unwrap_err();
        assert!(refused.tag() == "refused" && refused.to_string().contains(says), "{says}: {refused}");
        assert!(!refused.to_string().contains("Ada"));
    }
    // A vote at the end, that has not been written yet.
    let votes = conversation.votes_csv(1000);
    let path = folder.path("a/votes.csv");
    folder.write("a/votes.csv", format!("{votes}1600000000000,x,1,7700000,1\n"));
    let refused = convert(&begun, &Arc::new(Meter::default())).unwrap_err();
    assert!(refused.to_string().contains("another input (votes.csv)"), "{refused}");
    assert!(path.exists());
    // How it runs is no part of it.
    (begun.threads, begun.segment, begun.force) = (1, 500, true);
    let mut again = begun.clone();
    again.resume = false;
    interrupted(&mut again);
    (again.threads, again.limits.record) = (2, 1 << 20);
    assert!(convert(&again, &Arc::new(Meter::default())).unwrap().resumed_rows > 0);
}

#[test]
fn links_where_it_keeps_its_parts_are_not_followed() {
    use std::os::unix::fs::symlink;
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    let precious = folder.write("precious", "mine");
    let parts = folder.path("out.json.parts");
    let refused = |job: &Job| {
        let fault = convert(job, &Arc::new(Meter::default())).unwrap_err();
        assert!(fault.to_string().contains("out.json.parts"), "{fault}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    };
    for name in ["lock", "segments", "began", "named", "key", "else"] {
        for (resume, force) in [(false, false), (true, false), (false, true)] {
            drop(fs::remove_dir_all(&parts));
            fs::create_dir(&parts).unwrap();
            symlink(&precious, parts.join(name)).unwrap();
            (job.resume, job.force) = (resume, force);
            refused(&job);
        }
    }
    fs::remove_dir_all(&parts).unwrap();
    fs::create_dir(folder.path("elsewhere")).unwrap();
    symlink(folder.path("elsewhere"), &parts).unwrap();
    refused(&job);
    assert_eq!(fs::read_dir(folder.path("elsewhere")).unwrap().count(), 0);
    fs::remove_file(&parts).unwrap();
    // Another name of a file is no link that could be seen: it is not written to all the same.
    (job.resume, job.force) = (false, true);
    interrupted(&mut job);
    for name in ["lock", "segments", "began", "named"] {
        drop(fs::remove_file(parts.join(name)));
        fs::hard_link(&precious, parts.join(name)).unwrap();
    }
    convert(&job, &Arc::new(Meter::default())).unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    // And what is gone on with is no link either.
    drop(fs::remove_file(folder.path("out.json")));
    (job.resume, job.force) = (false, true);
    interrupted(&mut job);
    fs::rename(folder.path("out.json.partial"), folder.path("moved")).unwrap();
    symlink(folder.path("moved"), folder.path("out.json.partial")).unwrap();
    let before = fs::read(folder.path("moved")).unwrap();
    assert_eq!(convert(&job, &Arc::new(Meter::default())).unwrap_err().tag(), "io");
    assert!(fs::read(folder.path("moved")).unwrap() == before);
}

#[test]
fn rows_that_name_participants_otherwise_are_not_gone_on_with() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    job.participants = Participants::SourceIds;
    interrupted(&mut job);
    job.participants = Participants::Pseudonyms;
    let refused = convert(&job, &Arc::new(Meter::default())).unwrap_err();
    assert!(refused.tag() == "refused" && refused.to_string().contains("other options"), "{refused}");
    (job.resume, job.force) = (false, true);
    assert_eq!(convert(&job, &Arc::new(Meter::default())).unwrap().resumed_rows, 0);
    let text = fs::read_to_string(folder.path("out.json")).unwrap();
    let named = text.lines().filter(|line| line.starts_with("{\"id\":\"vote:"));
    assert!(
        named.clone().count() > 1_000
            && named.clone().all(|line| {
                let reference = line.split("\"participant:").nth(1).unwrap();
                reference.find('"') == Some(32)
            })
    );
}

/// With the size and time of before, as an editor or a copy of a table can leave it.
fn changed_unseen(path: &std::path::Path, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let written = fs::metadata(path).unwrap().modified().unwrap();
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from));
    fs::write(path, text.replace(from, to)).unwrap();
    File::options().write(true).open(path).unwrap().set_modified(written).unwrap();
}

#[test]
fn what_was_read_before_the_rows_and_has_changed_unseen_is_noticed() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    job.participants = Participants::ExternalIds;
    interrupted(&mut job);
    for (name, from, to) in
        [("participants-votes.csv", "xid-of-7", "xid-by-7"), ("summary.csv", "views,9", "views,8")]
    {
        changed_unseen(&folder.path(&format!("a/{name}")), from, to);
        let refused = convert(&job, &Arc::new(Meter::default())).unwrap_err();
        let said = refused.to_string();
        assert!(refused.tag() == "refused" && said.contains("another input"), "{name}: {said}");
        changed_unseen(&folder.path(&format!("a/{name}")), to, from);
    }
    assert!(convert(&job, &Arc::new(Meter::default())).unwrap().resumed_rows > 0);
}

#[test]
fn votes_that_were_not_written_yet_may_change_unseen_and_are_taken_as_they_are() {
    let (folder, conversation) = (Folder::new(), Conversation::new(32, 100, 400));
    let mut job = job(conversation.variant_a(&folder, "a"), folder.path("out.json"));
    job.key = Key::kept(vec![5; 32]);
    interrupted(&mut job);
    let votes = conversation.votes_csv(1000);
    let last = votes.trim_end().rsplit('\n').next().unwrap();
    let (start, value) = last.rsplit_once(',').unwrap();
    let other = if value == "-1" {
        "+1"
    } else if value == "1" {
        "0"
    } else {
        "1"
    };
    changed_unseen(&folder.path("a/votes.csv"), last, &format!("{start},{other}"));
    assert!(convert(&job, &Arc::new(Meter::default())).unwrap().resumed_rows > 0);
    let mut whole = job.clone();
    (whole.target, whole.resume) = (Target::File(folder.path("whole.json")), false);
    convert(&whole, &Arc::new(Meter::default())).unwrap();
    assert!(fs::read(folder.path("out.json")).unwrap() == fs::read(folder.path("whole.json")).unwrap());
}
