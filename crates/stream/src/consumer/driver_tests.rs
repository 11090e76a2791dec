//! Rebalances, lost partitions and failing commits, which the embedded engine never has: a script of events stands in
//! for the group.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tidegate_schemas::ids::Millis;
use tidegate_test_support::{PATIENCE, eventually};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    budget::Amount,
    engine::{Engine, Event},
    inbox::{DrainResult, Inbox, ReceivedRecord},
    threads::{ConsumerStart, ConsumerThreads},
    ticket::DeadLetterSink,
};
use crate::{
    codec::Codec,
    error::{AppendError, ConsumeError},
    record::{FetchedRecord, Headers, Record},
    settings::{Budget, ConsumeSettings},
    topics::{Group, NextOffset, Offset, Partition, Position, Role, Topic},
    wakeup::Wakeup,
};

const ROLE: Role = Role("scripted");

fn assigned(index: u32) -> Event {
    Event::Assigned { partition: partition(index), next: NextOffset(0), end: NextOffset(0) }
}

#[derive(Default)]
struct EngineState {
    committed: Vec<(Partition, NextOffset)>,
    released: BTreeSet<Partition>,
    paused: BTreeSet<Partition>,
    polls: usize,
    /// True if the next commits fail.
    refuse_commits: bool,
    /// True if commits are never answered.
    mute_commits: bool,
    /// Current time, if it advances only by what the driver waits.
    now: Option<Instant>,
    released_at: Option<Instant>,
}

struct ScriptedEngine {
    script: mpsc::Receiver<Event>,
    seen: Arc<Mutex<EngineState>>,
    answers: Vec<Event>,
}

impl Engine for ScriptedEngine {
    const DEAF_FOR: Duration = Duration::from_millis(5);

    const APPEND_TIME_STEP: Duration = Duration::from_millis(10);

    fn poll(&mut self, wait: Duration, _available: Amount) -> Vec<Event> {
        let is_frozen = {
            let mut seen = self.seen.lock();
            seen.polls += 1;
            seen.now = seen.now.map(|now| now + wait.min(Self::DEAF_FOR));
            seen.now.is_some()
        };
        let mut events = std::mem::take(&mut self.answers);
        if events.is_empty() && !is_frozen {
            events.extend(self.script.recv_timeout(wait.min(Self::DEAF_FOR)));
        }
        events.extend(self.script.try_iter());
        events
    }

    fn pause(&mut self, partitions: &[Partition]) {
        self.seen.lock().paused.extend(partitions);
    }

    fn resume(&mut self, partitions: &[Partition]) {
        self.seen.lock().paused.retain(|own| !partitions.contains(own));
    }

    fn commit(&mut self, upto: &[(Partition, NextOffset)]) {
        let mut seen = self.seen.lock();
        if seen.refuse_commits {
            let partitions = upto.iter().map(|(own, _)| *own).collect();
            self.answers.push(Event::CommitFailed { partitions, tag: "refused", detail: String::new() });
            return;
        }
        seen.committed.extend(upto);
        if seen.mute_commits {
            return;
        }
        let answer = |(partition, next): &(Partition, NextOffset)| Event::Committed {
            partition: *partition,
            next: *next,
        };
        self.answers.extend(upto.iter().map(answer));
    }

    fn release(&mut self, partitions: &[Partition]) {
        let at = self.current_time();
        let mut seen = self.seen.lock();
        seen.released.extend(partitions);
        seen.released_at = Some(at);
    }

    fn current_time(&self) -> Instant {
        self.seen.lock().now.unwrap_or_else(Instant::now)
    }

    fn close(&mut self) {}
}

/// Sink for tests that write no dead letter.
#[derive(Debug)]
struct NoDeadLetters;

impl DeadLetterSink for NoDeadLetters {
    fn append<'a>(&'a self, _: Record<'a>) -> BoxFuture<'a, Result<(), AppendError>> {
        unreachable!("no test writes a dead letter")
    }
}

struct Fixture {
    script: mpsc::Sender<Event>,
    seen: Arc<Mutex<EngineState>>,
    inbox: Inbox,
}

fn partition(index: u32) -> Partition {
    Partition::new(Topic::Items, index)
}

fn fetched(index: u32, offsets: std::ops::Range<i64>) -> Event {
    let one = |offset| FetchedRecord {
        at: Position { partition: partition(index), offset: Offset(offset) },
        key: bytes::Bytes::new(),
        framed: {
            let mut framed = Vec::new();
            Codec::checked_in().frame(Topic::Items, b"datum", &mut framed);
            framed.into()
        },
        headers: Headers::default(),
        written_at: Millis(1_000 + offset),
    };
    Event::Fetched(offsets.map(one).collect())
}

fn fixture(drain_timeout_ms: u64) -> Fixture {
    let (script, events) = mpsc::channel();
    let seen = Arc::new(Mutex::new(EngineState::default()));
    let engine = ScriptedEngine { script: events, seen: Arc::clone(&seen), answers: Vec::new() };
    let settings = ConsumeSettings {
        commit_interval_ms: 10,
        drain_timeout_ms,
        commit_timeout_ms: 200,
        ..ConsumeSettings::default()
    };
    let start = ConsumerStart {
        group: Group("scripted"),
        role: ROLE,
        budget: Budget { records: 10, bytes: 1 << 20 },
        stop: CancellationToken::new(),
        settings,
        codec: Arc::new(Codec::checked_in()),
        dead_letters: Arc::new(NoDeadLetters),
        health: Arc::default(),
    };
    let inbox = ConsumerThreads::default().start(start, move |_: Arc<Wakeup>| Ok(engine));
    for index in [0, 1] {
        script.send(assigned(index)).unwrap();
    }
    Fixture { script, seen, inbox }
}

impl Fixture {
    async fn receive(&mut self, count: usize) -> Vec<ReceivedRecord> {
        let mut received = Vec::new();
        while received.len() < count {
            received.extend(timeout(PATIENCE, self.inbox.next()).await.unwrap().unwrap().unwrap());
        }
        received
    }

    async fn until(&self, what: &str, holds: impl Fn(&EngineState) -> bool) {
        eventually(what, PATIENCE, async || holds(&self.seen.lock()).then_some(())).await.unwrap();
    }

    /// Stops the consumer. Returns how it ended, and after what time of its own.
    async fn stopped(self) -> (DrainResult, Duration, Arc<Mutex<EngineState>>) {
        let began = Instant::now();
        {
            // The driver's next poll waits for this lock.
            let mut seen = self.seen.lock();
            seen.now = Some(began);
            self.inbox.stop();
        }
        let drained = timeout(PATIENCE, self.inbox.wait_until_drained()).await.unwrap();
        let took = self.seen.lock().released_at.unwrap() - began;
        (drained, took, self.seen)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_partition_is_kept_until_its_work_is_committed() {
    let mut fixture = fixture(60_000);
    fixture.script.send(fetched(0, 0..3)).unwrap();
    fixture.script.send(fetched(1, 0..1)).unwrap();
    let received = fixture.receive(4).await;
    let mut ownership = fixture.inbox.ownership();
    fixture.script.send(Event::Revoking(vec![partition(0)])).unwrap();
    timeout(PATIENCE, received[0].ticket.cancelled()).await.expect("waiting work is cancelled");
    timeout(PATIENCE, ownership.wait_for(|owned| owned.partitions.len() == 1)).await.unwrap().unwrap();

    let polls = fixture.seen.lock().polls;
    fixture.until("polling to go on meanwhile", |seen| seen.polls > polls + 3).await;
    assert!(fixture.seen.lock().released.is_empty(), "work is in flight");
    let (revoked, kept): (Vec<_>, Vec<_>) =
        received.into_iter().partition(|one| one.at.partition == partition(0));
    assert!(!kept[0].ticket.is_cancelled());
    revoked.into_iter().for_each(|one| one.ticket.complete());
    fixture.until("the partition to be let go", |seen| seen.released.contains(&partition(0))).await;
    assert_eq!(fixture.seen.lock().committed, [(partition(0), NextOffset(3))]);
    kept.into_iter().for_each(|one| one.ticket.complete());
    fixture.until("the other to go on", |seen| seen.committed.contains(&(partition(1), NextOffset(1)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_does_not_wait_for_queued_records() {
    let fixture = fixture(60_000);
    fixture.script.send(fetched(0, 0..5)).unwrap();
    fixture.script.send(Event::Revoking(vec![partition(0)])).unwrap();
    fixture.until("the partition to be let go", |seen| seen.released.contains(&partition(0))).await;
    assert!(fixture.seen.lock().committed.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completion_after_the_drain_is_ignored() {
    let mut fixture = fixture(0);
    fixture.script.send(fetched(0, 0..1)).unwrap();
    let late = fixture.receive(1).await;
    fixture.script.send(Event::Revoking(vec![partition(0)])).unwrap();
    fixture.until("the partition to be let go", |seen| seen.released.contains(&partition(0))).await;
    fixture.script.send(assigned(0)).unwrap();
    fixture.script.send(fetched(0, 0..1)).unwrap();
    let again = fixture.receive(1).await;
    late.into_iter().for_each(|one| one.ticket.complete());
    fixture.script.send(fetched(1, 0..1)).unwrap();
    fixture.receive(1).await.into_iter().for_each(|one| one.ticket.complete());
    fixture.until("a later commit", |seen| seen.committed.contains(&(partition(1), NextOffset(1)))).await;
    assert!(!fixture.seen.lock().committed.iter().any(|(own, _)| *own == partition(0)));
    again.into_iter().for_each(|one| one.ticket.complete());
    fixture.until("its own commit", |seen| seen.committed.contains(&(partition(0), NextOffset(1)))).await;
}

/// One poll before the driver hears of the stop, and one in which the deadline passes.
const TWO_POLLS: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_endless_work_until_its_deadline() {
    let mut fixture = fixture(20_000);
    fixture.script.send(fetched(0, 0..3)).unwrap();
    let mut received = fixture.receive(3).await;
    let never = received.split_off(1);
    received.into_iter().for_each(|one| one.ticket.complete());
    let (drained, took, seen) = fixture.stopped().await;
    assert_eq!(drained, DrainResult::Forced);
    let deadline = Duration::from_secs(20);
    assert!(took >= deadline && took <= deadline + TWO_POLLS, "{took:?}");
    assert_eq!(seen.lock().committed, [(partition(0), NextOffset(1))], "what was complete");
    drop(never);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_an_unanswered_commit_until_its_deadline() {
    let mut fixture = fixture(20_000);
    fixture.script.send(fetched(0, 0..3)).unwrap();
    let received = fixture.receive(3).await;
    fixture.seen.lock().mute_commits = true;
    received.into_iter().for_each(|one| one.ticket.complete());
    let (drained, took, _) = fixture.stopped().await;
    assert_eq!(drained, DrainResult::Forced);
    let deadline = Duration::from_millis(200);
    assert!(took >= deadline && took <= deadline + TWO_POLLS, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_lasts_until_half_of_the_budget_is_free() {
    let mut fixture = fixture(60_000);
    fixture.script.send(fetched(0, 0..10)).unwrap();
    let mut held = fixture.receive(10).await;
    fixture.until("the pause at the budget", |seen| seen.paused.len() == 2).await;
    let six = held.split_off(4);
    held.into_iter().for_each(|one| one.ticket.complete());
    fixture.until("their commit", |seen| seen.committed.contains(&(partition(0), NextOffset(4)))).await;
    let polls = fixture.seen.lock().polls;
    fixture.until("polling to go on", |seen| seen.polls > polls + 3).await;
    assert_eq!(fixture.seen.lock().paused.len(), 2, "six of ten are held");
    let mut six = six.into_iter();
    six.next().unwrap().ticket.complete();
    fixture.until("the resumption", |seen| seen.paused.is_empty()).await;
    six.for_each(|one| one.ticket.complete());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_partition_is_neither_committed_nor_released() {
    let mut fixture = fixture(60_000);
    fixture.script.send(fetched(0, 0..2)).unwrap();
    let received = fixture.receive(2).await;
    fixture.seen.lock().refuse_commits = true;
    fixture.script.send(Event::Lost(vec![partition(0)])).unwrap();
    timeout(PATIENCE, received[0].ticket.cancelled()).await.unwrap();
    fixture.seen.lock().refuse_commits = false;
    received.into_iter().for_each(|one| one.ticket.complete());
    fixture.script.send(fetched(1, 0..1)).unwrap();
    fixture.receive(1).await.into_iter().for_each(|one| one.ticket.complete());
    fixture.until("a later commit", |seen| seen.committed.contains(&(partition(1), NextOffset(1)))).await;
    let seen = fixture.seen.lock();
    assert!(seen.released.is_empty() && seen.committed.len() == 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_commit_is_repeated_and_still_holds_the_budget() {
    let mut fixture = fixture(60_000);
    fixture.seen.lock().refuse_commits = true;
    fixture.script.send(fetched(0, 0..10)).unwrap();
    let received = fixture.receive(10).await;
    received.into_iter().for_each(|one| one.ticket.complete());
    fixture.until("the pause at the budget", |seen| seen.paused.contains(&partition(0))).await;
    let polls = fixture.seen.lock().polls;
    fixture.until("polling to go on while paused", |seen| seen.polls > polls + 3).await;
    assert!(fixture.seen.lock().paused.contains(&partition(0)), "no commit has passed them");
    fixture.seen.lock().refuse_commits = false;
    fixture.until("the commit", |seen| seen.committed.contains(&(partition(0), NextOffset(10)))).await;
    fixture.until("the resumption", |seen| seen.paused.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completed_times_follow_acknowledged_commits_and_observed_ends() {
    let mut fixture = fixture(60_000);
    let times = fixture.inbox.completed_times();
    let until = async |expected: &[(Partition, Millis)]| {
        eventually("the completed times", PATIENCE, async || (times.read() == expected).then_some(()))
            .await
            .unwrap();
    };
    let end_snapshot = |complete_until, ends: &[(u32, i64)]| Event::EndSnapshot {
        complete_until: Millis(complete_until),
        ends: ends.iter().map(|(index, end)| (partition(*index), NextOffset(*end))).collect(),
    };
    fixture.script.send(fetched(0, 0..2)).unwrap();
    let received = fixture.receive(2).await;
    fixture.script.send(end_snapshot(5_000, &[(0, 2), (1, 0)])).unwrap();
    until(&[(partition(1), Millis(5_000))]).await;
    fixture.seen.lock().refuse_commits = true;
    let mut received = received.into_iter();
    received.next().unwrap().ticket.complete();
    let polls = fixture.seen.lock().polls;
    fixture.until("polling to go on", |seen| seen.polls > polls + 10).await;
    assert_eq!(times.read(), [(partition(1), Millis(5_000))], "no commit has passed the record");
    fixture.seen.lock().refuse_commits = false;
    // The engine's tolerance before the append time of the committed record.
    until(&[(partition(0), Millis(990)), (partition(1), Millis(5_000))]).await;
    received.next().unwrap().ticket.complete();
    until(&[(partition(0), Millis(5_000)), (partition(1), Millis(5_000))]).await;
    fixture.script.send(Event::Lost(vec![partition(0)])).unwrap();
    until(&[(partition(1), Millis(5_000))]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_engine_fails_the_role() {
    let mut fixture = fixture(60_000);
    fixture.script.send(Event::Failed { detail: "fenced".to_owned() }).unwrap();
    let error = timeout(PATIENCE, fixture.inbox.next()).await.unwrap().unwrap_err();
    assert_eq!(error, ConsumeError::Broken { role: ROLE, detail: "fenced".to_owned() });
}
