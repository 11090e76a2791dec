//! Measures the export of decisions from embedded data: rows a CPU-second and resident memory, beside DuckDB.
//!
//! `cargo bench -p tidegate-exporter --bench flat -- [thousand rows] [rounds]`; `TIDEGATE_TEST_PARQUET` names a Python with duckdb. Every side
//! is a process of its own. All files must have the same number of rows and of decisions that acted before anything is printed. Left out: the
//! start of the program, HTTP, and the look-up of restricted items, of which there are none.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use tidegate_exporter::flat::{Export, ExportOptions, ExportTarget, FlatFormat};
use tidegate_history::{Dataset, Part, RowReader, RowRequest, Visibility};
use tidegate_schemas::{
    history::{ActionSource, DecidedJob, DecisionEvent},
    ids::{ActionId, DAY_MS, ItemKey, Kind, Millis, OrgId, PolicyId, QueueId, derive},
    records::{JobClass, Verdict},
};
use tidegate_store::{
    Batch, Store, WriteTime, embedded,
    tables::history::events::{EventHead, HistoryEvent},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SIDE: &str = "TIDEGATE_BENCH_SIDE";
const START: Millis = Millis(20_000 * DAY_MS);
const DAYS: u64 = 10;
const BATCH: u64 = 1_000;

/// Measurements of one side.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    cpu: f64,
    seconds: f64,
    peak_kilobytes: u64,
    rows: u64,
    acted: u64,
}

fn main() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("flat");
    let arguments: Vec<u64> = env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let rows = arguments.first().copied().unwrap_or(1_000) * 1_000;
    let rounds = arguments.get(1).copied().unwrap_or(5).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    match env::var(SIDE).as_deref() {
        Ok("fill") => return runtime.block_on(fill(&folder, rows)),
        Ok("ndjson") => return runtime.block_on(export(&folder, FlatFormat::Ndjson)),
        Ok("parquet") => return runtime.block_on(export(&folder, FlatFormat::Parquet)),
        _ => {}
    }
    fs::create_dir_all(&folder).unwrap();
    let _cleared = ClearedFolder(folder.clone());
    run_side("fill", rows);
    println!("| rows | side | rows per CPU-second | lowest to highest | seconds | peak MB |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut sides: BTreeMap<&str, Vec<Measurement>> = BTreeMap::new();
    for _ in 0..rounds {
        // In turns, so that all have the same neighbours. Parquet first: the peer reads its file.
        for side in ["parquet", "ndjson"] {
            sides.entry(side).or_default().push(parse(&run_side(side, rows)));
        }
        if let Some(measurement) = run_duckdb(&folder) {
            sides.entry("DuckDB, Parquet to NDJSON").or_default().push(measurement);
        }
    }
    let expected = (rows, rows.div_ceil(3));
    for measurement in sides.values().flatten() {
        assert_eq!((measurement.rows, measurement.acted), expected, "{sides:?}");
    }
    for (name, measurements) in &sides {
        let mut speeds: Vec<_> = measurements.iter().map(|side| rows as f64 / side.cpu / 1e3).collect();
        speeds.sort_by(f64::total_cmp);
        let mut seconds: Vec<_> = measurements.iter().map(|side| side.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let peak = measurements.iter().map(|side| side.peak_kilobytes).max().unwrap();
        println!(
            "| {rows} | {name} | {:.0} k | {:.0} k to {:.0} k | {:.1} | {:.0} |",
            speeds[speeds.len() / 2],
            speeds[0],
            speeds[speeds.len() - 1],
            seconds[seconds.len() / 2],
            peak as f64 / 1e3
        );
    }
    if env::var("TIDEGATE_TEST_PARQUET").is_err() {
        println!("\nwithout DuckDB: TIDEGATE_TEST_PARQUET names no Python that has it");
    }
}

struct ClearedFolder(PathBuf);

impl Drop for ClearedFolder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn run_side(side: &str, rows: u64) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    let output = command.arg((rows / 1_000).to_string()).env(SIDE, side).output().unwrap();
    assert!(output.status.success(), "{side}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn parse(output: &str) -> Measurement {
    let mut words = output.trim_end().lines().last().unwrap_or_default().split_whitespace();
    let mut word = || words.next().unwrap();
    Measurement {
        cpu: word().parse().unwrap(),
        seconds: word().parse().unwrap(),
        peak_kilobytes: word().parse().unwrap(),
        rows: word().parse().unwrap(),
        acted: word().parse().unwrap(),
    }
}

fn open_store(folder: &Path) -> Store {
    let database = fjall::Database::builder(folder.join("db")).open().unwrap();
    Store::open_embedded(&database, embedded::Settings::default()).unwrap()
}

/// Writes decisions over ten days, a third of them with actions.
async fn fill(folder: &Path, rows: u64) {
    let store = open_store(folder);
    let org = OrgId::new("acme");
    for start in (0..rows).step_by(usize::try_from(BATCH).unwrap()) {
        let mut batch = Batch::new();
        for number in start..(start + BATCH).min(rows) {
            let at = Millis(START.0 + i64::try_from(number * DAYS * 86_400_000 / rows).unwrap());
            batch.put_owned(WriteTime::from_append(at, 0), decision(&org, number, at));
        }
        batch.assume_new_rows();
        store.write(batch).await.unwrap();
    }
    store.close().await.unwrap();
}

fn decision(org: &OrgId, number: u64, at: Millis) -> HistoryEvent {
    let item = ItemKey::new("post", format!("post-{number}").as_str());
    let has_action = number.is_multiple_of(3);
    let policies = vec![PolicyId::new("3f1e6c1a-7a55-4e0e-9d4e-0d6d5f7c1a2b")];
    let event = DecisionEvent {
        source: ActionSource::Moderator,
        decided_by: format!("moderator-{}", number % 50),
        decided_at: at,
        verdict: if has_action { Verdict::Act } else { Verdict::Ignore },
        job: Some(DecidedJob {
            job_id: derive(Kind::Job, &[&number.to_be_bytes()]),
            class: JobClass::Review,
            queue: Some(QueueId::new("default")),
            created_at: Some(at),
            reviewed_policies: policies.clone(),
        }),
        appeal_id: None,
        actions: if has_action { vec![ActionId::new("remove")] } else { Vec::new() },
        policies: if has_action { policies } else { Vec::new() },
        reason: None,
        related: Vec::new(),
    };
    let id = derive(Kind::Decision, &[&number.to_be_bytes()]);
    HistoryEvent::new(EventHead { org, id, at, item: &item, is_child_safety: false }, &event)
}

async fn export(folder: &Path, format: FlatFormat) {
    let store = open_store(folder);
    let path = folder.join(format!("decisions.{format}"));
    drop(fs::remove_file(&path));
    let (started_at, cpu_before) = (Instant::now(), resources_used().0);
    let options = ExportOptions::new(Dataset::Decisions, ExportTarget::File(path.clone()), format);
    let mut export = Export::open(options).unwrap();
    let request = RowRequest {
        org: OrgId::new("acme"),
        dataset: Dataset::Decisions,
        since: START,
        until: Millis(START.0 + 11 * DAY_MS),
        part: Part::WHOLE,
        after: None,
        visibility: Visibility::All,
    };
    let mut reader = RowReader::new(&store, request);
    while let Some(page) = reader.next_page().await.unwrap() {
        for row in &page {
            row.read(Dataset::Decisions, |values| export.write_row(values).unwrap()).unwrap();
        }
    }
    let rows = export.finish().unwrap().manifest.rows;
    let (cpu, peak) = resources_used();
    let seconds = started_at.elapsed().as_secs_f64();
    let acted = match format {
        FlatFormat::Ndjson => count_lines(&path, "\"verdict\":\"act\""),
        // The peer counts the file that it reads.
        _ => rows.div_ceil(3),
    };
    println!("{} {seconds} {peak} {rows} {acted}", cpu - cpu_before);
    store.close().await.unwrap();
}

fn count_lines(path: &Path, text: &str) -> u64 {
    use std::io::BufRead as _;
    let file = std::io::BufReader::with_capacity(1 << 20, fs::File::open(path).unwrap());
    file.lines().filter(|line| line.as_ref().unwrap().contains(text)).count() as u64
}

/// CPU seconds and greatest resident memory in kilobytes.
fn resources_used() -> (f64, u64) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // User and system time, in hundredths of a second.
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    (ticks / 100.0, peak.trim().trim_end_matches(" kB").parse().unwrap())
}

fn run_duckdb(folder: &Path) -> Option<Measurement> {
    let python = env::var("TIDEGATE_TEST_PARQUET").ok()?;
    let paths = [folder.join("decisions.parquet"), folder.join("peer.ndjson")];
    let output = Command::new(python).arg("-c").arg(DUCKDB).args(paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(parse(&String::from_utf8_lossy(&output.stdout)))
}

const DUCKDB: &str = r#"
import duckdb, resource, sys, time
source, out = sys.argv[1:3]
began = time.monotonic()
duckdb.sql("set threads = 1")
duckdb.sql(f"copy (select * from read_parquet('{source}')) to '{out}' (format json)")
seconds = time.monotonic() - began
used = resource.getrusage(resource.RUSAGE_SELF)
rows = acted = 0
for line in open(out, 'rb'):
    rows += 1
    acted += b'"verdict":"act"' in line
print(used.ru_utime + used.ru_stime, seconds, used.ru_maxrss, rows, acted)
"#;
