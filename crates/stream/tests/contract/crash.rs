//! What a killed process leaves: every acknowledged record, and marks on what it may have worked on.
//!
//! The process is this test binary itself. SIGKILL spares the page cache; that the disk was asked before
//! an acknowledgement is shown by the trace of system calls.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tidegate_stream::{Budget, Log, Record};
use tidegate_test_support::{PATIENCE, Process, Program, eventually, servers};

use crate::{
    fixture::Fixture,
    hand::{append, consume, items, numbers, receive, stop},
};

const SCENARIO: &str = "TIDEGATE_STREAM_CHILD";
const DATA: &str = "TIDEGATE_STREAM_CHILD_DATA";
const NOTES: &str = "TIDEGATE_STREAM_CHILD_NOTES";
const FIRST: &str = "TIDEGATE_STREAM_CHILD_FIRST";
const WRITERS_NAME: &str = "TIDEGATE_STREAM_CHILD_WRITERS";
const WRITERS: u64 = 8;
const SMALL: Budget = Budget { records: 20, bytes: 1 << 20 };

/// Does nothing but in the child, where it works until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(scenario) = std::env::var(SCENARIO) else { return };
    let data = std::env::var(DATA).unwrap();
    let notes = OpenOptions::new().create(true).append(true).open(std::env::var(NOTES).unwrap()).unwrap();
    let settings = Fixture::embedded().settings();
    let log = Log::open_embedded(fjall::Database::builder(&data).open().unwrap(), &settings).unwrap();
    match scenario.as_str() {
        "append" => append_for_ever(log, notes).await,
        "consume" => consume_for_ever(log, notes).await,
        other => panic!("no scenario {other}"),
    }
}

/// Every writer notes a number once its append was acknowledged.
async fn append_for_ever(log: Log, notes: File) {
    let next = AtomicU64::new(std::env::var(FIRST).unwrap().parse().unwrap());
    let shared = Arc::new((log, Mutex::new(notes), next));
    let writers: u64 = std::env::var(WRITERS_NAME).unwrap().parse().unwrap();
    let writers = (0..writers).map(|_| {
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

/// Notes each record when its effects begin, and completes it once that of a few more have, so that a kill finds some
/// between the two.
async fn consume_for_ever(log: Log, mut notes: File) {
    const BETWEEN: usize = 3;
    let mut begun = VecDeque::new();
    let mut inbox = consume(&log, SMALL);
    while let Some(batch) = inbox.next().await.unwrap() {
        for received in batch {
            notes.write_all(format!("{}\n", received.at.offset.0).as_bytes()).unwrap();
            begun.push_back(received.ticket);
            if begun.len() > BETWEEN {
                begun.pop_front().unwrap().complete();
            }
        }
    }
}

fn start(scenario: &str, data: &Path, notes: &Path, first: u64) -> Process {
    Program::new(std::env::current_exe().unwrap(), notes.with_extension("out"))
        .args(["--exact", "crash::child", "--nocapture"])
        .env(SCENARIO, scenario)
        .env(DATA, data)
        .env(NOTES, notes)
        .env(FIRST, first.to_string())
        .env(WRITERS_NAME, WRITERS.to_string())
        .start()
        .unwrap()
}

/// Whole lines only: the last one may be cut by the kill.
fn noted(notes: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(notes).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| line.parse().unwrap()).collect()
}

async fn kill_after(mut child: Process, notes: &Path, count: usize) {
    eventually("the child's notes", PATIENCE, async || (noted(notes).len() >= count).then_some(()))
        .await
        .unwrap();
    child.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_append_is_lost_when_the_process_is_killed() {
    let fixture = Fixture::embedded();
    let Fixture::Embedded { data } = &fixture else { unreachable!("it is the embedded one") };
    let notes_in = tempfile::tempdir().unwrap();
    let notes = notes_in.path().join("acknowledged");
    let mut first = 0;
    // Each life is killed after another number of acknowledgements.
    for (life, count) in [17, 250, 901, 40, 333].into_iter().enumerate() {
        let before = noted(&notes).len();
        let child = start("append", data.path(), &notes, first);
        kill_after(child, &notes, before + count).await;
        let acknowledged: BTreeSet<u64> = noted(&notes).into_iter().collect();

        let log = fixture.open().await;
        let mut inbox = consume(&log, Budget { records: 1_000_000, bytes: 1 << 30 });
        let mut found: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let received = receive(&mut inbox, acknowledged.len()).await;
        for one in &received {
            let n = String::from_utf8(one.value.to_vec()).unwrap().parse().unwrap();
            found.entry(one.at.partition.index).or_default().push(n);
        }
        let all: BTreeSet<u64> = found.values().flatten().copied().collect();
        let lost: Vec<_> = acknowledged.difference(&all).collect();
        assert!(lost.is_empty(), "life {life} lost {lost:?}");
        assert_eq!(all.len(), received.len(), "life {life} doubled a record");
        // Left uncommitted, so that the next life is read from the beginning too.
        inbox.stop();
        drop(received);
        stop(inbox).await;
        fixture.close(log).await;
        first = all.last().map_or(0, |last| last + 1) + WRITERS;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_whatever_may_have_begun_is_marked_and_nothing_is_skipped() {
    let fixture = Fixture::embedded();
    let Fixture::Embedded { data } = &fixture else { unreachable!("it is the embedded one") };
    let notes_in = tempfile::tempdir().unwrap();
    let notes = notes_in.path().join("begun");
    let log = fixture.open().await;
    append(&log, items(0), b"key", numbers(0..5_000)).await;
    fixture.close(log).await;

    let mut replays = 0;
    for count in [30, 7, 120, 64] {
        let before = noted(&notes).len();
        let child = start("consume", data.path(), &notes, 0);
        kill_after(child, &notes, before + count).await;
        let begun: BTreeSet<u64> = noted(&notes).into_iter().collect();
        let contiguous = (0..).take_while(|n| begun.contains(n)).count();
        assert_eq!(contiguous, begun.len(), "nothing was skipped");

        let log = fixture.open().await;
        let mut inbox = consume(&log, SMALL);
        let received = receive(&mut inbox, 20).await;
        let from = received[0].at.offset.0.unsigned_abs();
        assert!(from <= contiguous as u64, "record {contiguous} was never begun, but {from} comes first");
        for one in &received {
            let offset = one.at.offset.0.unsigned_abs();
            assert!(one.maybe_replayed || !begun.contains(&offset), "{offset} was begun, but is not marked");
            replays += usize::from(begun.contains(&offset));
        }
        assert!(!begun.contains(&(from + 20)), "more was begun than one budget");
        inbox.stop();
        drop(received);
        stop(inbox).await;
        fixture.close(log).await;
    }
    assert!(replays > 0, "no kill fell between the begin of a record and its commit");
}

/// `strace` is on the machines of the CI; without it the trace cannot be read, and the test says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_is_synced_between_a_write_and_its_acknowledgement() {
    let trace_in = tempfile::tempdir().unwrap();
    let (data, notes) = (trace_in.path().join("data"), trace_in.path().join("notes"));
    let trace = trace_in.path().join("trace");
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        servers::skipped("the sync before an acknowledgement", "strace is not installed");
        return;
    }
    let child = Program::new("strace", trace_in.path().join("out"))
        .args(["-f", "-y", "-e", "trace=write,writev,pwrite64,fdatasync,fsync", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture"])
        .env(SCENARIO, "append")
        .env(DATA, &data)
        .env(NOTES, &notes)
        .env(FIRST, "0")
        .env(WRITERS_NAME, "1")
        .start()
        .unwrap();
    kill_after(child, &notes, 100).await;

    // With one writer, each acknowledgement follows its own journal write and a sync after that.
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
    assert!(acknowledged >= 100, "{acknowledged}");
}
