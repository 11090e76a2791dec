//! Measures the conversion of a generated list of votes: rows a CPU-second and resident memory, beside two databases.
//!
//! `cargo bench -p tidegate-exporter --bench convert -- [million rows] [rounds] [1: not a tenth of the rows before]`;
//! `TIDEGATE_TEST_PARQUET` names a Python with duckdb and polars. Every side is a process of its own; their counts of answers
//! have to be equal before anything is printed. What a side has written is taken away once it is counted, so that there is
//! room for one bundle at a time beside the votes: about 30 GB for 100 million rows.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fmt, fs,
    io::{self, BufRead as _, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Instant,
};

use tidegate_exporter::{
    convert::{Job, Sidecar, Target, convert, lines},
    meter::Meter,
    privacy::Key,
    timestamp::Timestamp,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VOTERS: u64 = 384_000;
/// Votes of one comment.
const OF_COMMENT: u64 = 5_000;
const SIDE: &str = "TIDEGATE_BENCH_SIDE";
const OWN: [(&str, &str); 4] = [
    ("tidegate, bare", "bare"),
    ("tidegate, 1 thread", "1"),
    ("tidegate, 1 thread, with Parquet", "parquet"),
    ("tidegate, 2 threads", "2"),
];

/// Measurements that a side prints.
struct Measured {
    /// Seconds of CPU, and by the clock.
    cpu: f64,
    seconds: f64,
    /// Kilobytes at most.
    peak: u64,
    counts: String,
}

fn main() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("convert");
    match env::var(SIDE).as_deref() {
        Ok("bare") => return bare(&folder),
        Ok("parquet") => return whole(&folder, 1, vec![Sidecar::Parquet]),
        Ok(threads) => return whole(&folder, threads.parse().unwrap(), Vec::new()),
        Err(_) => {}
    }
    let arguments: Vec<u64> = env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let millions = arguments.first().copied().unwrap_or(10);
    let rounds = arguments.get(1).copied().unwrap_or(5).max(1);
    let tenth = if arguments.get(2).is_some() { None } else { Some(millions * 100_000) };
    let _cleared = Cleared(folder.clone());
    println!("| rows | side | rows per CPU-second | lowest to highest | seconds | peak MB |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for rows in tenth.into_iter().chain([millions * 1_000_000]) {
        fs::create_dir_all(&folder).unwrap();
        generate(&folder, rows);
        let mut sides: BTreeMap<&str, Vec<Measured>> = BTreeMap::new();
        // In turns, so that all have the same neighbours.
        for _ in 0..rounds {
            for (name, side) in OWN {
                sides.entry(name).or_default().push(own(&folder, side));
            }
            for (name, script) in
                [("DuckDB, latest votes, no digests", DUCKDB), ("Polars, latest votes, no digests", POLARS)]
            {
                if let Some(told) = python(&folder, script) {
                    sides.entry(name).or_default().push(told);
                }
            }
        }
        let counts: BTreeSet<_> = sides.values().flatten().map(|told| &told.counts).collect();
        assert_eq!(counts.len(), 1, "the sides disagree: {counts:?}");
        for (name, told) in &sides {
            let mut speeds: Vec<_> = told.iter().map(|told| rows as f64 / told.cpu / 1e6).collect();
            speeds.sort_by(f64::total_cmp);
            let mut seconds: Vec<_> = told.iter().map(|told| told.seconds).collect();
            seconds.sort_by(f64::total_cmp);
            let peak = told.iter().map(|told| told.peak).max().unwrap();
            println!(
                "| {rows} | {name} | {:.2} M | {:.2} M to {:.2} M | {:.1} | {:.0} |",
                middle(&speeds),
                speeds[0],
                speeds[speeds.len() - 1],
                middle(&seconds),
                peak as f64 / 1e3
            );
        }
    }
    if env::var("TIDEGATE_TEST_PARQUET").is_err() {
        println!("\nwithout DuckDB and Polars: TIDEGATE_TEST_PARQUET names no Python that has them");
    }
}

/// Of an even number, the mean of the middle two: the better of them would flatter.
fn middle(sorted: &[f64]) -> f64 {
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

/// A folder that is taken away with all that is in it, also when a side has failed.
struct Cleared(PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A folder for what one side writes.
fn room(folder: &Path) -> Cleared {
    let out = folder.join("out");
    fs::create_dir_all(&out).unwrap();
    Cleared(out)
}

/// Comment by comment and voter by voter, as Polis writes; one vote of fifty is a second one.
fn generate(folder: &Path, rows: u64) {
    let votes = fs::File::create(folder.join("votes.csv")).unwrap();
    let mut votes = BufWriter::with_capacity(1 << 20, votes);
    writeln!(votes, "timestamp,datetime,comment-id,voter-id,vote").unwrap();
    let mut comments =
        "timestamp,datetime,comment-id,author-id,agrees,disagrees,moderated,comment-body\n".to_owned();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for comment in 0..rows / OF_COMMENT {
        comments += &format!("1600000000000,x,{comment},,0,0,1,Statement {comment}\n");
        let (step, mut voter) = (VOTERS / OF_COMMENT, 0);
        for at in 0..OF_COMMENT {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if at % 50 != 1 {
                voter = at * step + state % step;
            }
            let time = 1_600_000_000_000 + comment * 1_000_000 + at * 60;
            let vote = [1, 1, -1, 0][(state >> 40) as usize % 4];
            writeln!(votes, "{time},Wed Jul 27 21:56:00 WIB 2022,{comment},{voter},{vote}").unwrap();
        }
    }
    votes.flush().unwrap();
    fs::write(folder.join("comments.csv"), comments).unwrap();
    fs::write(folder.join("summary.csv"), "topic,Bench\nvote-convention,agree=+1;disagree=-1;pass=0\n")
        .unwrap();
}

fn own(folder: &Path, side: &str) -> Measured {
    let _cleared = room(folder);
    let output = Command::new(env::current_exe().unwrap()).env(SIDE, side).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    measured(&output.stdout)
}

fn job(folder: &Path) -> Job {
    let out = Target::File(folder.join("out/bundle.json"));
    let inputs = ["votes.csv", "comments.csv", "summary.csv"].map(|name| folder.join(name));
    let mut job = Job::new(inputs.to_vec(), out);
    job.exported_at = Timestamp::from_seconds(0);
    job.key = Key::from_bytes(vec![7; 32]);
    job.overrides.id = Some("bench".to_owned());
    job.sidecars = Some(Vec::new());
    job
}

/// The full job: latest votes, keyed pseudonyms, references, tallies, digests of input and output, synced.
fn whole(folder: &Path, threads: usize, sidecars: Vec<Sidecar>) {
    let job = Job { threads, sidecars: Some(sidecars), ..job(folder) };
    let began = Instant::now();
    convert(&job, &Arc::new(Meter::default())).unwrap();
    print_measured(began, &folder.join("out/bundle.json"));
}

/// Reading and formatting alone: every vote a line, as the votes come, to nowhere. They are counted another time.
fn bare(folder: &Path) {
    let job = job(folder);
    let began = Instant::now();
    lines(&job, &mut fs::OpenOptions::new().write(true).open("/dev/null").unwrap()).unwrap();
    let (seconds, (cpu, peak)) = (began.elapsed().as_secs_f64(), spent());
    let mut counted = Counted::default();
    lines(&job, &mut counted).unwrap();
    println!("{cpu} {seconds} {peak} {counted}");
}

/// Counting is not part of the work.
fn print_measured(began: Instant, written: &Path) {
    let (seconds, (cpu, peak)) = (began.elapsed().as_secs_f64(), spent());
    let mut counted = Counted::default();
    let text = fs::File::open(written).unwrap();
    for line in BufReader::with_capacity(1 << 20, text).split(b'\n') {
        counted.see(&line.unwrap());
    }
    println!("{cpu} {seconds} {peak} {counted}");
}

/// Latest answers: a second vote stands right behind the first, and both have one id.
#[derive(Default)]
struct Counted {
    counts: [u64; 3],
    last: Vec<u8>,
    answer: usize,
}

impl Counted {
    fn see(&mut self, line: &[u8]) {
        if !line.starts_with(b"{\"id\":\"vote:") {
            return;
        }
        let id = line.split(|byte| *byte == b',').next().unwrap();
        if id == self.last {
            self.counts[self.answer] -= 1;
        }
        id.clone_into(&mut self.last);
        let answer = memmem(line, b"\"response\":").unwrap();
        let answers = [&b"\"agree\""[..], b"\"disagree\"", b"\"pass\""];
        self.answer = answers.iter().position(|wanted| answer.starts_with(wanted)).unwrap();
        self.counts[self.answer] += 1;
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.counts[0], self.counts[1], self.counts[2])
    }
}

/// Whole lines are written at once.
impl Write for Counted {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        lines.split(|byte| *byte == b'\n').for_each(|line| self.see(line));
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What stands behind `wanted`, which stands near the end.
fn memmem<'l>(line: &'l [u8], wanted: &[u8]) -> Option<&'l [u8]> {
    let at = line.windows(wanted.len()).rposition(|part| part == wanted)?;
    Some(&line[at + wanted.len()..])
}

fn spent() -> (f64, u64) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // User and system time, in hundredths of a second.
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    (ticks / 100.0, peak.trim().trim_end_matches(" kB").parse().unwrap())
}

fn python(folder: &Path, script: &str) -> Option<Measured> {
    let python = env::var("TIDEGATE_TEST_PARQUET").ok()?;
    let script = format!(
        "import resource, sys, time\nbegan = time.monotonic()\nvotes, out = sys.argv[1:3]\n{script}\n{PRINT}"
    );
    let out = room(folder);
    let paths = [folder.join("votes.csv"), out.0.join("peer.ndjson")];
    let output = Command::new(python).arg("-c").arg(script).args(paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(measured(&output.stdout))
}

fn measured(output: &[u8]) -> Measured {
    let text = String::from_utf8_lossy(output);
    // A database may have shown its progress before.
    let mut words = text.trim_end().rsplit(['\n', '\r']).next().unwrap_or_default().split_whitespace();
    let mut word = || words.next().unwrap();
    Measured {
        cpu: word().parse().unwrap(),
        seconds: word().parse().unwrap(),
        peak: word().parse().unwrap(),
        counts: word().to_owned(),
    }
}

const DUCKDB: &str = r#"
import duckdb
duckdb.sql("set threads = 2")
duckdb.sql(f"""copy (select 'vote:' || "comment-id" || ':' || md5("voter-id"::varchar) as id, 'phase-opinion' as phaseId,
    'statement:' || "comment-id" as subjectRef, 'participant:' || md5("voter-id"::varchar) as participantRef,
    case vote when 1 then 'agree' when -1 then 'disagree' else 'pass' end as response, 1 as count,
    strftime(make_timestamp(timestamp * 1000), '%Y-%m-%dT%H:%M:%S.%gZ') as occurredAt
    from (select "comment-id", "voter-id", arg_max(vote, timestamp) as vote, max(timestamp) as timestamp
        from read_csv('{votes}') group by 1, 2)) to '{out}' (format json)""")
"#;

const POLARS: &str = r#"
import polars as pl
latest = pl.scan_csv(votes).group_by('comment-id', 'voter-id').agg(
    pl.col('vote', 'timestamp').sort_by('timestamp').last())
who = pl.col('voter-id').hash(7).cast(pl.String)
latest.select(
    pl.concat_str(pl.lit('vote:'), 'comment-id', pl.lit(':'), who).alias('id'), pl.lit('phase-opinion').alias('phaseId'),
    pl.concat_str(pl.lit('statement:'), 'comment-id').alias('subjectRef'),
    pl.concat_str(pl.lit('participant:'), who).alias('participantRef'),
    pl.col('vote').replace_strict({1: 'agree', -1: 'disagree', 0: 'pass'}, return_dtype=pl.String).alias('response'),
    pl.lit(1).alias('count'),
    pl.from_epoch('timestamp', time_unit='ms').dt.strftime('%Y-%m-%dT%H:%M:%S%.3fZ').alias('occurredAt'),
).sink_ndjson(out)
"#;

const PRINT: &str = r#"
seconds = time.monotonic() - began
used = resource.getrusage(resource.RUSAGE_SELF)
counts = {b'"agree"': 0, b'"disagree"': 0, b'"pass"': 0}
for line in open(out, 'rb'):
    for word in counts:
        if word in line:
            counts[word] += 1
            break
print(used.ru_utime + used.ru_stime, seconds, used.ru_maxrss, ','.join(map(str, counts.values())))
"#;
