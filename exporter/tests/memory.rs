//! Tests that memory does not grow with the input. Each job runs in a separate process, which reports the peak of
//! allocated bytes: resident memory would include code pages and depend on the machine.
//!
//! A separate binary, because it replaces the global allocator.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, clippy::unwrap_used, clippy::cast_possible_truncation)]

#[path = "it/flat/rows.rs"]
mod rows;
#[path = "it/support/mod.rs"]
mod support;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    env,
    fmt::Write as _,
    fs::{self, File},
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use support::{Folder, run};
use tidegate_exporter::{
    bundle::{
        inspect::{ItemOptions, inspect},
        validate::{self, Limits, Options, validate},
    },
    convert::{Job, Target},
    flat::{Export, ExportOptions, ExportTarget, FlatFormat, Partition},
    form::Naming,
    storage::spill::SpillOptions,
    unpack,
};
use tidegate_history::{Dataset, Value};
use tidegate_schemas::ids::Millis;

const CHILD: &str = "JOB_TO_MEASURE";
const MIB: u64 = 1 << 20;

/// Counts the allocated bytes and their peak.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn count_allocated(bytes: usize) {
    let allocated = ALLOCATED.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(allocated, Relaxed);
}

// SAFETY: every call goes to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_allocated(size);
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Measured process: runs one job of the tests below.
#[test]
fn a_job_for_the_tests_below() {
    let Ok(arguments) = env::var(CHILD) else { return };
    let [kind, input] = arguments.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let (folder, input) = (Folder::new(), PathBuf::from(input));
    let outcome = match kind {
        "convert" => {
            let mut job = streaming(&folder, &input);
            // The generated input compresses better than the limit allows.
            job.limits.max_expansion = 1 << 20;
            run(&job)
                .map_or_else(|error| error.to_string(), |report| format!("{} responses", report.responses))
        }
        "validate" => {
            let room = SpillOptions { memory: 4 << 20, folder: folder.path("") };
            let report = validate(&mut unpack::File::new(&input), &Options::new(room)).unwrap();
            let rules: Vec<_> = report.findings.iter().map(|finding| finding.rule.id()).collect();
            format!("{} responses {}", report.counts.responses, rules.join(" "))
        }
        "sarif" => {
            let room = SpillOptions { memory: 4 << 20, folder: folder.path("") };
            let options = Options { max_findings: usize::MAX, ..Options::new(room) };
            let report = validate(&mut unpack::File::new(&input), &options).unwrap();
            write!(
                File::options().write(true).open("/dev/null").unwrap(),
                "{}",
                validate::sarif(&report, "a")
            )
            .unwrap();
            assert!(report.findings.len() > 1_000, "{} findings are listed", report.findings.len());
            format!("{} findings", report.findings.len() as u64 + report.count_unlisted())
        }
        "inspect" => {
            let room = SpillOptions { memory: 4 << 20, folder: folder.path("") };
            let options = ItemOptions { max_items: usize::MAX, with_texts: true };
            let mut source = unpack::File::new(&input);
            let inspection =
                inspect(&mut source, Naming::Service, None, options, Limits::default(), &room).unwrap();
            write!(File::options().write(true).open("/dev/null").unwrap(), "{}", inspection.to_json("a"))
                .unwrap();
            assert!(inspection.items.len() > 1_000, "{} items are listed", inspection.items.len());
            format!("{} items", inspection.item_count())
        }
        format => {
            export_decisions(&folder, format.parse().unwrap(), input.to_str().unwrap().parse().unwrap())
        }
    };
    writeln!(io::stdout(), "\nPEAK {} {outcome}", PEAK.load(Relaxed)).unwrap();
}

/// Exports this many decisions, a million a day.
fn export_decisions(folder: &Folder, format: FlatFormat, rows: u64) -> String {
    let target = ExportTarget::Folder { path: folder.path("out"), partition: Partition::Day };
    let mut export = Export::open(ExportOptions::new(Dataset::Decisions, target, format)).unwrap();
    let mut samples: Vec<_> = (0..1_000).map(|number| rows::decision(number, rows::DAY)).collect();
    for number in 0..rows {
        let row = &mut samples[(number % 1_000) as usize];
        row[0] = Value::text(format!("018f{number:08x}-7000-8000-{number:012x}"));
        row[1] = Value::Time(Millis(rows::DAY + number as i64 * rows::DAY_MILLIS / 1_000_000));
        export.write_row(row).unwrap();
    }
    let manifest = export.finish().unwrap().manifest;
    format!("{} rows in {} files", manifest.rows, manifest.files.len())
}

fn streaming(folder: &Folder, input: &Path) -> Job {
    let mut job = folder.fresh(input);
    job.target = Target::Stream(Arc::new(File::options().write(true).open("/dev/null").unwrap()));
    (job.bundle_id, job.limits.sort_memory) = (Some("flat".to_owned()), 4 << 20);
    job
}

/// Runs a job in a child process. Returns its peak in bytes and its result.
fn measure_job(kind: &str, input: &Path) -> (u64, String) {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_job_for_the_tests_below", "--nocapture"])
        .env(CHILD, format!("{kind}\n{}", input.display()))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let out = String::from_utf8(child.stdout).unwrap();
    assert!(child.status.success(), "{out}");
    let result_line = out.lines().find_map(|line| line.strip_prefix("PEAK ")).unwrap();
    let (peak, outcome) = result_line.split_once(' ').unwrap();
    (peak.parse().unwrap(), outcome.to_owned())
}

/// Votes on the given number of comments, each by the same people.
fn votes(into: &Path, comments: u32, in_order: bool) -> u64 {
    const PEOPLE: u32 = 4_000;
    let mut file = BufWriter::new(File::create(into).unwrap());
    writeln!(file, "timestamp,comment-id,voter-id,vote").unwrap();
    let [outer, inner] = if in_order { [comments, PEOPLE] } else { [PEOPLE, comments] };
    for first in 0..outer {
        for second in 0..inner {
            let [comment, voter] = if in_order { [first, second] } else { [second, first] };
            writeln!(file, "{},{comment},{},1", 1_600_000_000_000_u64 + u64::from(second), 7_700_000 + voter)
                .unwrap();
        }
    }
    file.into_inner().unwrap().metadata().unwrap().len()
}

fn comments(count: u32) -> String {
    let mut text = "comment-id,comment-body\n".to_owned();
    (0..count).for_each(|id| writeln!(text, "{id},\"{id}\"").unwrap());
    text
}

#[test]
fn peak_memory_is_independent_of_the_number_of_votes() {
    let folder = Folder::new();
    for in_order in [true, false] {
        let peaks = [80, 800].map(|count| {
            let name = format!("{in_order}-{count}");
            folder.write(&format!("{name}/comments.csv"), comments(count));
            let path = folder.path(&name);
            let bytes = votes(&path.join("votes.csv"), count, in_order);
            let (peak, said) = measure_job("convert", &path);
            assert_eq!(said, format!("{} responses", count * 4_000));
            fs::remove_dir_all(path).unwrap();
            (bytes, peak)
        });
        let [(few, small), (many, large)] = peaks;
        assert!(few > 8 * MIB && many > 80 * MIB, "{few} {many}");
        assert!(large < small + 10 * MIB, "{in_order}: {} and {} MiB", small / MIB, large / MIB);
    }
}

#[test]
fn peak_memory_of_a_check_is_independent_of_responses() {
    let folder = Folder::new();
    let [(few, small), (many, large)] = [10, 100].map(|count| {
        let path = folder.path("in");
        folder.write("in/comments.csv", comments(count));
        votes(&path.join("votes.csv"), count, true);
        let mut job = folder.fresh(&path);
        job.sidecars = Some(Vec::new());
        run(&job).unwrap();
        let bundle = folder.path("bundle.json");
        let (peak, said) = measure_job("validate", &bundle);
        assert_eq!(said, format!("{} responses ", count * 4_000));
        (fs::metadata(bundle).unwrap().len(), peak)
    });
    assert!(few > 8 * MIB && many > 80 * MIB, "{few} {many}");
    assert!(large < small + 10 * MIB, "{} and {} MiB", small / MIB, large / MIB);
}

#[test]
fn peak_memory_is_independent_of_findings_and_items() {
    let folder = Folder::new();
    for (kind, list, what) in [("sarif", "responses", "findings"), ("inspect", "items", "items")] {
        let [small, large] = [100_000, 1_000_000].map(|count| {
            let path = folder.path("bundle.json");
            let mut file = BufWriter::new(File::create(&path).unwrap());
            write!(file, "{{\"{list}\":[").unwrap();
            for id in 0..count {
                let comma = if id > 0 { "," } else { "" };
                write!(file, "{comma}{{\"id\":\"{id}\",\"phaseId\":\"phase\",\"text\":\"text {id}\"}}")
                    .unwrap();
            }
            write!(file, "]}}").unwrap();
            drop(file.into_inner().unwrap());
            let (peak, said) = measure_job(kind, &path);
            let (number, unit) = said.split_once(' ').unwrap();
            assert!(number.parse::<u64>().unwrap() >= count && unit == what, "{said}");
            peak
        });
        assert!(large < small + 10 * MIB, "{kind}: {} and {} MiB", small / MIB, large / MIB);
    }
}

#[test]
fn peak_memory_of_flat_exports_is_independent_of_rows() {
    for format in FlatFormat::ALL {
        let [small, medium, large] = [100_000, 400_000, 2_000_000].map(|rows: u64| {
            let (peak, said) = measure_job(format.as_str(), Path::new(&rows.to_string()));
            assert_eq!(said, format!("{rows} rows in {} files", rows.div_ceil(1_000_000)));
            peak
        });
        let peaks = [small / MIB, medium / MIB, large / MIB];
        assert!(large < medium + 10 * MIB && large < 180 * MIB, "{format}: {peaks:?} MiB");
        // A row group of Parquet is held in memory.
        assert!(*format == FlatFormat::Parquet || large < 8 * MIB, "{format}: {peaks:?} MiB");
    }
}

/// File of hundreds of megabytes without a line end, compressed to a few kilobytes.
fn endless(path: &Path, start: &str, fill: u8, end: &str) {
    let mut packed = zstd::Encoder::new(File::create(path).unwrap(), 1).unwrap();
    packed.write_all(start.as_bytes()).unwrap();
    let block = vec![fill; 1 << 20];
    (0..400).for_each(|_| packed.write_all(&block).unwrap());
    packed.write_all(end.as_bytes()).unwrap();
    packed.finish().unwrap();
}

#[test]
fn headers_and_summaries_are_read_in_bounded_memory() {
    let folder = Folder::new();
    folder.write("in/comments.csv", "comment-id,comment-body\n1,\"one\"\n");
    let votes = "timestamp,comment-id,voter-id,vote\n1600000000000,1,7,1\n";
    let columns = votes.replacen("vote\n", &format!("vote{}\n", ",".repeat(15_000_000)), 1);
    for (votes, row, says) in [
        (votes, "topic,x\n", "1 responses"),
        (votes, "x,x\n", "1 responses"),
        (&columns, "topic,x\n", "votes.csv, row 1: the row has more than 1048576 cells"),
    ] {
        folder.write("in/votes.csv", votes);
        folder.write(
            "in/summary.csv",
            "topic,Trees\nurl,https://pol.is/3trees\n".to_owned() + &row.repeat(2_000_000),
        );
        let (peak, said) = measure_job("convert", &folder.path("in"));
        assert!(said == says && peak < 128 * MIB, "{row} {said}: {} MiB", peak / MIB);
    }
}

#[test]
fn huge_line_is_refused_before_it_fills_memory() {
    let folder = Folder::new();
    let valid_files = [
        ("comments.csv", "comment-id,comment-body\n1,\"one\"\n"),
        ("votes.csv", "timestamp,comment-id,voter-id,vote\n1600000000000,1,7,1\n"),
        ("participants-votes.csv", "participant,group-id,n-votes,1\n7,0,1,1\n"),
        ("summary.csv", "topic,Trees\nurl,https://pol.is/3trees\n"),
    ];
    // A text with a comma shows that texts are unquoted.
    let unquoted =
        "timestamp,comment-id,comment-body\n1600000000,1,one, and\n1600000000,2,two\n1600000000,3,";
    for (name, start, fill, says) in [
        ("votes.csv", valid_files[1].1, b'1', "row 3: a line is too long"),
        ("votes.csv", "timestamp,comment-id,voter-id,vote\n1,1,7,\"", b'1', "row 2: a line is too long"),
        ("votes.csv", "", b'1', ""),
        ("comments.csv", "comment-id,comment-body\n1,\"", b'x', "row 2: the row is too long"),
        ("comments.csv", "comment-id,comment-body\n1,", b',', "row 2: the row has more than 1048576 cells"),
        ("comments.csv", unquoted, b'x', "row 4: a line is too long"),
        ("participants-votes.csv", valid_files[2].1, b'1', "row 3: the row is too long"),
        ("summary.csv", valid_files[3].1, b'x', "row 3: the row is too long"),
        ("votes.csv", "timestamp,comment-id,voter-id,vote", b',', "row 1: a line is too long"),
        ("format.json", "", b'[', "a declaration of the format may have 1 MiB at most"),
    ] {
        let path = folder.path("in");
        drop(fs::remove_dir_all(&path));
        valid_files.iter().for_each(|(name, text)| drop(folder.write(&format!("in/{name}"), text)));
        endless(&path.join(name), start, fill, "");
        let (peak, said) = measure_job("convert", &path);
        assert!(
            said.starts_with(name) && said.contains(says) && !says.is_empty()
                || says.is_empty() && !said.ends_with("responses"),
            "{said}"
        );
        assert!(peak < 128 * MIB, "{name} {says}: {} MiB", peak / MIB);
    }
    let (bundle, mut found) = (folder.path("bundle.json"), Vec::new());
    for (start, fill, end, rule) in [
        ("{\"schema\":\"", b'x', "\"}", "BND-LEX-11"),
        ("{\"schema\":\"", b'x', "", "BND-LEX-02"),
        ("{\"", b'x', "\":1}", "BND-LEX-11"),
        ("{\"schema\":1", b'1', "}", "BND-LEX-11"),
        ("{\"schema\":", b'[', "", "BND-LEX-02"),
        ("{\"schema\":", b' ', "", "BND-LEX-02"),
    ] {
        endless(&bundle, start, fill, end);
        let (peak, said) = measure_job("validate", &bundle);
        found.push((
            start,
            end,
            said.split(' ').any(|word| word == rule) && peak < 128 * MIB,
            said,
            peak / MIB,
        ));
    }
    assert!(found.iter().all(|found| found.2), "{found:?}");
}
