//! Rebalances, lost partitions and failing commits, which the embedded engine never has: a script of
//! events stands in for the group.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, sync::mpsc};

use parking_lot::Mutex;
use tidegate_schemas::ids::Millis;
use tidegate_test_support::{PATIENCE, eventually};
use tokio::time::timeout;

use super::*;
use crate::{
    budget::{Budget, Charge},
    consumers::{Consumers, Start},
    inbox::Inbox,
    log::Log,
    record::Headers,
    signal::Signal,
    topics::{Offset, Position, Topic},
};

const ROLE: Role = Role("scripted");

fn assigned(index: u32) -> Event {
    Event::Assigned { partition: partition(index), next: NextOffset(0), end: NextOffset(0) }
}

#[derive(Default)]
struct Seen {
    committed: Vec<(Partition, NextOffset)>,
    released: BTreeSet<Partition>,
    paused: BTreeSet<Partition>,
    polls: usize,
    /// What the next commits answer.
    refuse_commits: bool,
    /// Commits are asked for in vain.
    mute_commits: bool,
    /// The time, which from here on passes by what the driver waits.
    now: Option<Instant>,
    released_at: Option<Instant>,
}

struct Scripted {
    script: mpsc::Receiver<Event>,
    seen: Arc<Mutex<Seen>>,
    answers: Vec<Event>,
}

impl Engine for Scripted {
    const DEAF_FOR: Duration = Duration::from_millis(5);

    fn poll(&mut self, wait: Duration, _room: Charge) -> Vec<Event> {
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
        let at = self.now();
        let mut seen = self.seen.lock();
        seen.released.extend(partitions);
        seen.released_at = Some(at);
    }

    fn now(&self) -> Instant {
        self.seen.lock().now.unwrap_or_else(Instant::now)
    }

    fn close(&mut self) {}
}

struct Stage {
    script: mpsc::Sender<Event>,
    seen: Arc<Mutex<Seen>>,
    inbox: Inbox,
    _data: tempfile::TempDir,
}

fn partition(index: u32) -> Partition {
    Partition::new(Topic::Items, index)
}

fn fetched(index: u32, offsets: std::ops::Range<i64>) -> Event {
    let one = |offset| Fetched {
        at: Position { partition: partition(index), offset: Offset(offset) },
        key: bytes::Bytes::new(),
        framed: {
            let mut framed = Vec::new();
            Codec::checked_in().frame(Topic::Items, b"datum", &mut framed);
            framed.into()
        },
        headers: Headers::default(),
        written_at: Millis(0),
    };
    Event::Fetched(offsets.map(one).collect())
}

fn stage(drain_timeout_ms: u64) -> Stage {
    let data = tempfile::tempdir().unwrap();
    let db = fjall::Database::builder(data.path()).open().unwrap();
    let log = Log::open_embedded(db, &crate::settings::Settings::default()).unwrap();
    let (script, events) = mpsc::channel();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let engine = Scripted { script: events, seen: Arc::clone(&seen), answers: Vec::new() };
    let settings =
        Consume { commit_interval_ms: 10, drain_timeout_ms, commit_timeout_ms: 200, ..Consume::default() };
    let start = Start {
        group: Group("scripted"),
        role: ROLE,
        budget: Budget { records: 10, bytes: 1 << 20 },
        stop: CancellationToken::new(),
        settings,
        outlet: Outlet { log, codec: Arc::new(Codec::checked_in()) },
        health: Arc::default(),
    };
    let inbox = Consumers::default().start(start, move |_signal: Arc<Signal>| Ok(engine));
    for index in [0, 1] {
        script.send(assigned(index)).unwrap();
    }
    Stage { script, seen, inbox, _data: data }
}

impl Stage {
    async fn receive(&mut self, count: usize) -> Vec<Received> {
        let mut received = Vec::new();
        while received.len() < count {
            received.extend(timeout(PATIENCE, self.inbox.next()).await.unwrap().unwrap().unwrap());
        }
        received
    }

    async fn until(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        eventually(what, PATIENCE, async || holds(&self.seen.lock()).then_some(())).await.unwrap();
    }

    /// Stops the consumer; how it ended, and after what time of its own.
    async fn stopped(self) -> (Drained, Duration, Arc<Mutex<Seen>>) {
        let began = Instant::now();
        {
            // The driver's next poll waits for this.
            let mut seen = self.seen.lock();
            seen.now = Some(began);
            self.inbox.stop();
        }
        let drained = timeout(PATIENCE, self.inbox.drained()).await.unwrap();
        let took = self.seen.lock().released_at.unwrap() - began;
        (drained, took, self.seen)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_partition_is_kept_until_its_work_is_complete_and_committed() {
    let mut stage = stage(60_000);
    stage.script.send(fetched(0, 0..3)).unwrap();
    stage.script.send(fetched(1, 0..1)).unwrap();
    let received = stage.receive(4).await;
    let mut ownership = stage.inbox.ownership();
    stage.script.send(Event::Revoking(vec![partition(0)])).unwrap();
    timeout(PATIENCE, received[0].ticket.lost()).await.expect("waiting work is told");
    timeout(PATIENCE, ownership.wait_for(|owned| owned.partitions.len() == 1)).await.unwrap().unwrap();

    let polls = stage.seen.lock().polls;
    stage.until("polling to go on meanwhile", |seen| seen.polls > polls + 3).await;
    assert!(stage.seen.lock().released.is_empty(), "work is in flight");
    let (revoked, kept): (Vec<_>, Vec<_>) =
        received.into_iter().partition(|one| one.at.partition == partition(0));
    assert!(!kept[0].ticket.is_lost());
    revoked.into_iter().for_each(|one| one.ticket.complete());
    stage.until("the partition to be let go", |seen| seen.released.contains(&partition(0))).await;
    assert_eq!(stage.seen.lock().committed, [(partition(0), NextOffset(3))]);
    kept.into_iter().for_each(|one| one.ticket.complete());
    stage.until("the other to go on", |seen| seen.committed.contains(&(partition(1), NextOffset(1)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_has_picked_up_is_not_waited_for() {
    let stage = stage(60_000);
    stage.script.send(fetched(0, 0..5)).unwrap();
    stage.script.send(Event::Revoking(vec![partition(0)])).unwrap();
    stage.until("the partition to be let go", |seen| seen.released.contains(&partition(0))).await;
    assert!(stage.seen.lock().committed.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_after_the_drains_deadline_does_not_count_for_the_next_assignment() {
    let mut stage = stage(0);
    stage.script.send(fetched(0, 0..1)).unwrap();
    let late = stage.receive(1).await;
    stage.script.send(Event::Revoking(vec![partition(0)])).unwrap();
    stage.until("the partition to be let go", |seen| seen.released.contains(&partition(0))).await;
    stage.script.send(assigned(0)).unwrap();
    stage.script.send(fetched(0, 0..1)).unwrap();
    let again = stage.receive(1).await;
    late.into_iter().for_each(|one| one.ticket.complete());
    stage.script.send(fetched(1, 0..1)).unwrap();
    stage.receive(1).await.into_iter().for_each(|one| one.ticket.complete());
    stage.until("a later commit", |seen| seen.committed.contains(&(partition(1), NextOffset(1)))).await;
    assert!(!stage.seen.lock().committed.iter().any(|(own, _)| *own == partition(0)));
    again.into_iter().for_each(|one| one.ticket.complete());
    stage.until("its own commit", |seen| seen.committed.contains(&(partition(0), NextOffset(1)))).await;
}

/// One poll before the driver hears of the stop, and one in which the deadline passes.
const TWO_POLLS: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_work_that_never_ends_until_its_deadline_and_no_longer() {
    let mut stage = stage(20_000);
    stage.script.send(fetched(0, 0..3)).unwrap();
    let mut received = stage.receive(3).await;
    let never = received.split_off(1);
    received.into_iter().for_each(|one| one.ticket.complete());
    let (drained, took, seen) = stage.stopped().await;
    assert_eq!(drained, Drained::Forced);
    let deadline = Duration::from_secs(20);
    assert!(took >= deadline && took <= deadline + TWO_POLLS, "{took:?}");
    assert_eq!(seen.lock().committed, [(partition(0), NextOffset(1))], "what was complete");
    drop(never);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_a_commit_that_nobody_answers_until_the_commits_deadline_and_no_longer() {
    let mut stage = stage(20_000);
    stage.script.send(fetched(0, 0..3)).unwrap();
    let received = stage.receive(3).await;
    stage.seen.lock().mute_commits = true;
    received.into_iter().for_each(|one| one.ticket.complete());
    let (drained, took, _) = stage.stopped().await;
    assert_eq!(drained, Drained::Forced);
    let deadline = Duration::from_millis(200);
    assert!(took >= deadline && took <= deadline + TWO_POLLS, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_half_of_the_budget_it_stays_shut_whatever_is_committed() {
    let mut stage = stage(60_000);
    stage.script.send(fetched(0, 0..10)).unwrap();
    let mut held = stage.receive(10).await;
    stage.until("the pause at the budget", |seen| seen.paused.len() == 2).await;
    let six = held.split_off(4);
    held.into_iter().for_each(|one| one.ticket.complete());
    stage.until("their commit", |seen| seen.committed.contains(&(partition(0), NextOffset(4)))).await;
    let polls = stage.seen.lock().polls;
    stage.until("polling to go on", |seen| seen.polls > polls + 3).await;
    assert_eq!(stage.seen.lock().paused.len(), 2, "six of ten are held");
    let mut six = six.into_iter();
    six.next().unwrap().ticket.complete();
    stage.until("the resumption", |seen| seen.paused.is_empty()).await;
    six.for_each(|one| one.ticket.complete());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_partition_is_neither_committed_nor_released() {
    let mut stage = stage(60_000);
    stage.script.send(fetched(0, 0..2)).unwrap();
    let received = stage.receive(2).await;
    stage.seen.lock().refuse_commits = true;
    stage.script.send(Event::Lost(vec![partition(0)])).unwrap();
    timeout(PATIENCE, received[0].ticket.lost()).await.unwrap();
    stage.seen.lock().refuse_commits = false;
    received.into_iter().for_each(|one| one.ticket.complete());
    stage.script.send(fetched(1, 0..1)).unwrap();
    stage.receive(1).await.into_iter().for_each(|one| one.ticket.complete());
    stage.until("a later commit", |seen| seen.committed.contains(&(partition(1), NextOffset(1)))).await;
    let seen = stage.seen.lock();
    assert!(seen.released.is_empty() && seen.committed.len() == 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_commit_is_asked_for_again_and_still_holds_the_budget() {
    let mut stage = stage(60_000);
    stage.seen.lock().refuse_commits = true;
    stage.script.send(fetched(0, 0..10)).unwrap();
    let received = stage.receive(10).await;
    received.into_iter().for_each(|one| one.ticket.complete());
    stage.until("the pause at the budget", |seen| seen.paused.contains(&partition(0))).await;
    let polls = stage.seen.lock().polls;
    stage.until("polling to go on while paused", |seen| seen.polls > polls + 3).await;
    assert!(stage.seen.lock().paused.contains(&partition(0)), "no commit has passed them");
    stage.seen.lock().refuse_commits = false;
    stage.until("the commit", |seen| seen.committed.contains(&(partition(0), NextOffset(10)))).await;
    stage.until("the resumption", |seen| seen.paused.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_cannot_go_on_fails_the_role() {
    let mut stage = stage(60_000);
    stage.script.send(Event::Failed { detail: "fenced".to_owned() }).unwrap();
    let error = timeout(PATIENCE, stage.inbox.next()).await.unwrap().unwrap_err();
    assert_eq!(error, ConsumeError::Broken { role: ROLE, detail: "fenced".to_owned() });
}
