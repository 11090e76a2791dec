//! Measures the check of bundles: megabytes a CPU-second and resident memory, by size, order of ids, and level.
//!
//! `cargo bench -p tidegate-exporter --bench validate -- [megabytes] [rounds]`; it writes the bundles that it reads into
//! the target folder, prints a table, and takes them away again.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]

use std::{
    fs,
    io::{self, BufWriter, Read, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tidegate_exporter::{
    bundle::{
        digest,
        validate::{Level, Options, validate},
    },
    storage::spill::SpillOptions,
    unpack::{File, Source},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PARTICIPANTS: u64 = 20_000;
/// Bytes of a response, nearly.
const ROW: u64 = 252;

fn main() {
    let arguments: Vec<u64> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .map(|argument| argument.parse().unwrap())
        .collect();
    let megabytes = arguments.first().copied().unwrap_or(600);
    let rounds = arguments.get(1).copied().unwrap_or(5);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bundles");
    fs::create_dir_all(&folder).unwrap();
    println!(
        "{:<28}{:>10}{:>12}{:>12}{:>14}{:>12}{:>12}{:>11}",
        "bundle", "level", "MB", "responses", "MB/CPU-s", "lowest", "highest", "peak MiB"
    );
    for (name, size, order, once) in [
        ("in order, a tenth", megabytes / 10, Order::Ascending, false),
        ("in order", megabytes, Order::Ascending, false),
        ("ids in no order", megabytes, Order::Mixed, false),
        ("ids in no order, read once", megabytes, Order::Mixed, true),
    ] {
        let file = folder.join("bundle.json");
        let rows = write(&file, size * 1_000_000 / ROW, order);
        for level in [Level::Schema, Level::Refs, Level::Privacy] {
            let measured = measure(rounds, &file, || {
                let options = Options { level, ..Options::new(room(&folder)) };
                let report = validate(&mut Document { file: File::new(&file), once }, &options).unwrap();
                assert!(report.is_valid() && report.is_complete, "{:?}", report.findings);
                assert_eq!(report.counts.responses, rows);
            });
            print(name, level.as_str(), rows, &measured);
        }
        let measured = measure(rounds, &file, || {
            digest::of_bytes(&mut File::new(&file)).unwrap();
        });
        print(name, "digest", rows, &measured);
        fs::remove_file(&file).unwrap();
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// As `convert` writes: by item, then by participant.
    Ascending,
    /// Every id is new, and none follows from the one before.
    Mixed,
}

/// Writes a bundle with about so many responses; gives their number.
fn write(path: &Path, rows: u64, order: Order) -> u64 {
    let items = rows.div_ceil(PARTICIPANTS);
    let rows = items * PARTICIPANTS;
    let mut out = BufWriter::with_capacity(1 << 20, fs::File::create(path).unwrap());
    let head = r#"{"schema":"https://tidegate.example/schemas/data-bundle/v1.json","kind":"service-data-bundle","bundleId":"polis:bench","exportedAt":"2024-05-06T07:08:09Z",
"source":{"tool":"Polis","sourceSchema":"https://example.org/s","sourceId":"1","title":"Trees","description":"","url":"https://example.org/1"},
"phases":[{"id":"phase-opinion","type":"opinion","title":"Trees","status":"completed"}],
"items":["#;
    out.write_all(head.as_bytes()).unwrap();
    for item in 0..items {
        let comma = if item > 0 { ",\n" } else { "\n" };
        write!(out, r#"{comma}{{"id":"statement:{item}","phaseId":"phase-opinion","type":"statement","text":"We should plant more trees along street {item}.","status":"approved","origin":"participant","createdAt":"2024-05-06T07:08:09Z"}}"#).unwrap();
    }
    out.write_all(b"\n],\n\"responses\":[").unwrap();
    let mut comma = "\n";
    for item in 0..items {
        for at in 0..PARTICIPANTS {
            // Pseudonyms ascend, as they do where they are sorted.
            let who = u128::from(at) << 108
                | u128::from((at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 24
                | u128::from(at);
            let id = match order {
                Order::Ascending => format!("vote:{item}:{who:032x}"),
                Order::Mixed => {
                    format!(
                        "vote:{:016x}:{item}:{at}",
                        (item * PARTICIPANTS + at).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    )
                }
            };
            let answer =
                ["agree", "disagree", "pass"][usize::try_from((item * 7 + at * 13) % 5 % 3).unwrap()];
            let (minute, second) = (at / 60 % 60, at % 60);
            write!(
                out,
                r#"{comma}{{"id":"{id}","phaseId":"phase-opinion","subjectRef":"statement:{item}","participantRef":"participant:{who:032x}","response":"{answer}","count":1,"occurredAt":"2024-05-06T07:{minute:02}:{second:02}Z"}}"#
            )
            .unwrap();
            comma = ",\n";
        }
    }
    write!(
        out,
        "\n],\n\"outcomes\":[],\n\"summary\":{{\"participants\":{PARTICIPANTS},\"items\":{items},\"responses\":{rows},\"coverage\":1}},\n"
    )
    .unwrap();
    let tail = r#""provenance":{"adapter":"bench/v1","transformedAt":"2024-05-06T07:08:09Z","sourceArtifacts":[],"notes":[]},
"dataCard":{"containsParticipantData":true,"containsDirectIdentifiers":false,"containsParticipantFreeText":true,"containsPseudonymousLinkage":true,"aggregation":"individual-responses-plus-item-counts","publicationStatus":"local-private-export","storedByService":false,"suitableForPublicSharing":false,"limitations":[]}}
"#;
    out.write_all(tail.as_bytes()).unwrap();
    out.flush().unwrap();
    rows
}

struct Document {
    file: File,
    /// As from a pipe.
    once: bool,
}

impl Source for Document {
    fn open(&mut self) -> io::Result<Box<dyn Read + '_>> {
        self.file.open()
    }

    fn can_reopen(&self) -> bool {
        !self.once && self.file.can_reopen()
    }
}

fn room(folder: &Path) -> SpillOptions {
    SpillOptions { memory: 128 << 20, folder: folder.to_owned() }
}

struct Measured {
    bytes: u64,
    /// Of each round, in order.
    times: Vec<Duration>,
    peak: u64,
}

fn measure(rounds: u64, file: &Path, mut work: impl FnMut()) -> Measured {
    let bytes = fs::metadata(file).unwrap().len();
    // What was resident before counts no more.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let mut times: Vec<_> = (0..rounds.max(1))
        .map(|_| {
            let began = cpu();
            work();
            cpu() - began
        })
        .collect();
    times.sort();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak = peak.trim().trim_end_matches(" kB").parse().unwrap();
    Measured { bytes, times, peak }
}

fn cpu() -> Duration {
    let spent = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(spent.split(' ').next().unwrap().parse().unwrap())
}

fn print(name: &str, level: &str, rows: u64, measured: &Measured) {
    let speed = |time: Duration| measured.bytes as f64 / 1e6 / time.as_secs_f64();
    let times = &measured.times;
    println!(
        "{name:<28}{level:>10}{:>12.0}{rows:>12}{:>14.0}{:>12.0}{:>12.0}{:>11.1}",
        measured.bytes as f64 / 1e6,
        speed(times[times.len() / 2]),
        speed(times[times.len() - 1]),
        speed(times[0]),
        measured.peak as f64 / 1024.0,
    );
}
