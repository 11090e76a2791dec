//! State after a kill: every acknowledged record is stored, and possibly processed records are marked as replays.
//!
//! The process is this test binary itself. SIGKILL spares the page cache, so a trace of system calls shows the
//! disk sync before an acknowledgement.

use std::{
    collections::{BTreeSet, VecDeque},
    fs::{File, OpenOptions},
    io::Write,
    mem::ManuallyDrop,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tidegate_stream::{Log, Record, consumer::inbox::DrainResult, settings::Budget};
use tidegate_test_support::{PATIENCE, Process, Program, eventually, servers};

use crate::{
    contract::fixture::{Fixture, forget_soon, mark},
    support::{BUDGET, append, complete, consume, items, numbers, receive, stop, value},
};

const SCENARIO: &str = "TIDEGATE_STREAM_CHILD";
const DATA: &str = "TIDEGATE_STREAM_CHILD_DATA";
const BROKERS: &str = "TIDEGATE_STREAM_CHILD_BROKERS";
const PREFIX: &str = "TIDEGATE_STREAM_CHILD_PREFIX";
const NOTES: &str = "TIDEGATE_STREAM_CHILD_NOTES";
const FIRST: &str = "TIDEGATE_STREAM_CHILD_FIRST";
const WRITERS: u64 = 8;
const TRACED: usize = 100;
const SMALL: Budget = Budget { records: 20, bytes: 1 << 20 };

/// Runs only in the child process, where it works until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(scenario) = std::env::var(SCENARIO) else { return };
    let notes = OpenOptions::new().create(true).append(true).open(std::env::var(NOTES).unwrap()).unwrap();
    let log = match std::env::var(BROKERS) {
        Ok(brokers) => {
            let fixture = Fixture::Kafka { brokers, prefix: std::env::var(PREFIX).unwrap() };
            // The parent owns the topics.
            open(&ManuallyDrop::new(fixture)).await
        }
        Err(_) => {
            let data = std::env::var(DATA).unwrap();
            let db = fjall::Database::builder(&data).open().unwrap();
            let mark = mark(Path::new(&data));
            let disk = Arc::new(tidegate_embedded_data::DiskSpace::of(Path::new(&data)));
            Log::open_embedded_marked(db, &Fixture::embedded().settings(), mark, disk).unwrap()
        }
    };
    match scenario.as_str() {
        "append" => append_for_ever(log, notes).await,
        "trace" => append_traced(log, notes).await,
        "consume" => consume_for_ever(log, notes).await,
        "promise" => note_completed_times(log, notes).await,
        other => panic!("unknown scenario {other}"),
    }
}

/// Every writer records a number after the acknowledgement of its append.
async fn append_for_ever(log: Log, notes: File) {
    let next = AtomicU64::new(std::env::var(FIRST).unwrap().parse().unwrap());
    let shared = Arc::new((log, Mutex::new(notes), next));
    let writers = (0..WRITERS).map(|_| {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let (log, notes, next) = &*shared;
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let to = items(u32::try_from(n % 4).unwrap());
                let value = n.to_string();
                log.append(&[(to, Record::new(b"key", value.as_bytes()))]).await.unwrap();
                // One call, so that a kill cuts no line in two and a trace shows one write.
                notes.lock().unwrap().write_all(format!("{n}\n").as_bytes()).unwrap();
            }
        })
    });
    futures::future::join_all(writers).await;
}

/// Appends one record after the other and then ends: a killed tracer would leave the traced process running.
async fn append_traced(log: Log, mut notes: File) {
    for n in 0..TRACED {
        log.append(&[(items(0), Record::new(b"key", n.to_string().as_bytes()))]).await.unwrap();
        notes.write_all(format!("{n}\n").as_bytes()).unwrap();
    }
}

/// Records the start of each record's effects and completes it some records later, so that a kill finds records in between.
async fn consume_for_ever(log: Log, mut notes: File) {
    const BETWEEN: usize = 3;
    // On a busy machine the kill may be late, and no life may use up the records of later lives.
    const MOST: usize = 1_000;
    let mut open_tickets = VecDeque::new();
    let mut count = 0;
    let mut inbox = consume(&log, SMALL);
    while let Some(batch) = inbox.next().await.unwrap() {
        for record in batch {
            if count == MOST {
                std::future::pending::<()>().await;
            }
            count += 1;
            notes.write_all(format!("{}\n", record.at.offset.0).as_bytes()).unwrap();
            open_tickets.push_back(record.ticket);
            if open_tickets.len() > BETWEEN {
                open_tickets.pop_front().unwrap().complete();
            }
        }
    }
}

/// Appends records, completes each some records later, and notes the completed times of their partition.
async fn note_completed_times(log: Log, mut notes: File) {
    const OPEN: usize = 3;
    let mut inbox = consume(&log, BUDGET);
    let completed_times = inbox.completed_times();
    let mut open_tickets = VecDeque::new();
    for n in 0.. {
        append(&log, items(0), b"key", [n.to_string()]).await;
        let records = receive(&mut inbox, 1).await;
        open_tickets.extend(records.into_iter().map(|record| record.ticket));
        if open_tickets.len() > OPEN {
            open_tickets.pop_front().unwrap().complete();
        }
        for (partition, until) in completed_times.read() {
            if partition == items(0) {
                notes.write_all(format!("{}\n", until.0).as_bytes()).unwrap();
            }
        }
    }
}

fn start(scenario: &str, fixture: &Fixture, notes: &Path, first: u64) -> Process {
    let program = Program::new(std::env::current_exe().unwrap(), notes.with_extension("out"))
        .args(["--exact", "contract::crash::child", "--nocapture"])
        .env(SCENARIO, scenario)
        .env(NOTES, notes)
        .env(FIRST, first.to_string());
    let program = match fixture {
        Fixture::Embedded { data } => program.env(DATA, data.path()),
        Fixture::Kafka { brokers, prefix } => program.env(BROKERS, brokers).env(PREFIX, prefix),
        Fixture::Mock { .. } => unreachable!("the mock cluster is inside this process"),
    };
    program.start().unwrap()
}

/// Reads complete lines only, because the kill may have cut the last one.
fn read_notes(notes: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(notes).unwrap_or_default();
    let complete_lines = text.rfind('\n').map_or("", |end| &text[..end]);
    complete_lines.lines().map(|line| line.parse().unwrap()).collect()
}

async fn kill_after(mut child: Process, notes: &Path, count: usize) {
    eventually("the child's notes", PATIENCE, async || (read_notes(notes).len() >= count).then_some(()))
        .await
        .unwrap();
    child.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_append_is_lost_when_the_process_is_killed() {
    let fixture = Fixture::embedded();
    let notes_in = tempfile::tempdir().unwrap();
    let notes = notes_in.path().join("acknowledged");
    let mut first = 0;
    // The number of acknowledgements before the kill differs between lives.
    for (life, count) in [17, 250, 901, 40, 333].into_iter().enumerate() {
        let before = read_notes(&notes).len();
        let child = start("append", &fixture, &notes, first);
        kill_after(child, &notes, before + count).await;
        let acknowledged: BTreeSet<u64> = read_notes(&notes).into_iter().collect();

        let log = fixture.open().await;
        // Unacknowledged records may be stored too, so a final record in each partition marks the end.
        let end = format!("end of life {life}");
        for index in 0..4 {
            append(&log, items(index), b"key", [end.clone()]).await;
        }
        let mut inbox = consume(&log, Budget { records: 1_000_000, bytes: 1 << 30 });
        let (mut records, mut read_numbers, mut ends) = (Vec::new(), Vec::<u64>::new(), 0);
        while ends < 4 {
            for record in receive(&mut inbox, 1).await {
                match value(&record).parse() {
                    Ok(n) => read_numbers.push(n),
                    Err(_) => ends += usize::from(value(&record) == end),
                }
                records.push(record);
            }
        }
        let all: BTreeSet<u64> = read_numbers.iter().copied().collect();
        let lost: Vec<_> = acknowledged.difference(&all).collect();
        assert!(lost.is_empty(), "life {life} lost {lost:?}");
        assert_eq!(all.len(), read_numbers.len(), "life {life} stored a record twice");
        // The records stay uncommitted, so that the next life is also read from the beginning.
        inbox.stop();
        drop(records);
        stop(inbox).await;
        fixture.close(log).await;
        first = all.last().map_or(0, |last| last + 1) + WRITERS;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn started_records_are_marked_as_replays_after_a_kill() {
    kill_consumers(&Fixture::embedded(), &[30, 7, 120, 64]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn started_kafka_records_are_marked_as_replays_after_a_kill() {
    // The group waits for each killed consumer until its session ends.
    let Some(fixture) = Fixture::kafka("a killed consumer").await else { return };
    kill_consumers(&fixture, &[30, 64]).await;
}

async fn open(fixture: &Fixture) -> Log {
    let mut settings = fixture.settings();
    forget_soon(&mut settings);
    settings.kafka.max_replication_delay_ms = 1_000;
    fixture.open_with(&settings).await.unwrap()
}

/// Kills each life after it has started the given number of records.
async fn kill_consumers(fixture: &Fixture, lives: &[usize]) {
    const ALL: usize = 5_000;
    let notes_in = tempfile::tempdir().unwrap();
    let notes = notes_in.path().join("begun");
    let log = open(fixture).await;
    append(&log, items(0), b"key", numbers(0..ALL)).await;
    fixture.close(log).await;

    let (mut replays, mut committed) = (0, 0);
    for count in lives {
        let before = read_notes(&notes).len();
        let child = start("consume", fixture, &notes, 0);
        kill_after(child, &notes, before + count).await;
        let started: BTreeSet<u64> = read_notes(&notes).into_iter().collect();
        let contiguous = (0..).take_while(|n| started.contains(n)).count();
        assert_eq!(contiguous, started.len(), "no record was skipped");

        let log = open(fixture).await;
        let mut inbox = consume(&log, SMALL);
        let records = receive(&mut inbox, 20).await;
        let from = records[0].at.offset.0.unsigned_abs();
        assert!(
            from <= contiguous as u64,
            "record {contiguous} was never started, but {from} is delivered first"
        );
        assert!(from >= committed, "{from} is delivered again, but {committed} was committed");
        committed = from;
        for record in &records {
            let offset = record.at.offset.0.unsigned_abs();
            assert!(
                record.maybe_replayed || !started.contains(&offset),
                "{offset} was started, but is not marked"
            );
            replays += usize::from(started.contains(&offset));
        }
        assert!(!started.contains(&(from + 20)), "more records than one budget were started");
        inbox.stop();
        drop(records);
        stop(inbox).await;
        fixture.close(log).await;
    }
    assert!(replays > 0, "no kill fell between the start of a record and its commit");
    assert!(committed > 0, "no life committed a record");

    // Every uncommitted record is delivered once.
    let log = open(fixture).await;
    let mut inbox = consume(&log, BUDGET);
    let mut next = committed;
    while next < ALL as u64 {
        for record in receive(&mut inbox, 1).await {
            assert_eq!(record.at.offset.0.unsigned_abs(), next);
            next += 1;
            record.ticket.complete();
        }
    }
    assert_eq!(stop(inbox).await, DrainResult::Clean);
    fixture.close(log).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_record_below_a_completed_time_returns_after_a_kill() {
    check_completed_times(&Fixture::embedded()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_kafka_record_below_a_completed_time_returns_after_a_kill() {
    let Some(fixture) = Fixture::kafka("completed times before a kill").await else { return };
    check_completed_times(&fixture).await;
}

async fn check_completed_times(fixture: &Fixture) {
    let notes_in = tempfile::tempdir().unwrap();
    let notes = notes_in.path().join("times");
    for count in [60, 300, 40] {
        let before = read_notes(&notes).len();
        let child = start("promise", fixture, &notes, 0);
        kill_after(child, &notes, before + count).await;
        let promised_time = read_notes(&notes).last().copied().unwrap();

        let log = open(fixture).await;
        let mut inbox = consume(&log, BUDGET);
        let records = receive(&mut inbox, 1).await;
        let returned_time = records[0].written_at.0.unsigned_abs();
        assert!(returned_time >= promised_time, "{returned_time} returns, but {promised_time} was promised");
        complete(records);
        stop(inbox).await;
        fixture.close(log).await;
    }
}

/// The CI machines have `strace`. Without it the test is reported as skipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_is_synced_between_a_write_and_its_acknowledgement() {
    let trace_in = tempfile::tempdir().unwrap();
    let (data, notes) = (trace_in.path().join("data"), trace_in.path().join("notes"));
    let trace = trace_in.path().join("trace");
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        servers::skipped("the sync before an acknowledgement", "strace is not installed");
        return;
    }
    let mut child = Program::new("strace", trace_in.path().join("out"))
        .args(["-f", "-y", "-e", "trace=write,writev,pwrite64,fdatasync,fsync", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "contract::crash::child", "--nocapture"])
        .env(SCENARIO, "trace")
        .env(DATA, &data)
        .env(NOTES, &notes)
        .start()
        .unwrap();
    assert!(child.exit(PATIENCE).await.unwrap().success(), "{}", child.output().unwrap());

    // Each acknowledgement follows its own journal write and a sync after that.
    let (mut written, mut synced, mut acknowledged) = (false, false, 0);
    for line in std::fs::read_to_string(&trace).unwrap().lines() {
        let of_journal = line.contains(".jnl>");
        if of_journal && line.contains("write") {
            (written, synced) = (true, false);
        } else if of_journal && line.contains("sync") {
            synced = written;
        } else if line.contains("/notes>") && line.contains("write(") {
            acknowledged += 1;
            assert!(written && synced, "acknowledgement {acknowledged} without a write and a sync: {line}");
            (written, synced) = (false, false);
        }
    }
    assert_eq!(acknowledged, TRACED);
}
