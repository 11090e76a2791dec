#![allow(clippy::unwrap_used)]

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use ::metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit, with_local_recorder,
};
use futures::{FutureExt as _, future::BoxFuture, poll};

use super::*;

fn limits(items: usize, per_host: usize) -> Limits {
    Limits {
        running_per_org: items,
        running_per_org_and_key: per_host,
        weight_per_org: 100,
        waiting_per_org: 4,
        waiting_weight_per_org: 50,
        ..Limits::UNLIMITED
    }
}

/// Creates a queue that knows the hosts with this prefix.
fn queue_that_knows(limits: Limits, name: &'static str) -> SlowQueue {
    SlowQueue::new(limits, move |_, host| host.starts_with(name))
}

/// Creates a queue that knows all hosts.
fn queue(items: usize, per_host: usize) -> SlowQueue {
    queue_that_knows(limits(items, per_host), "")
}

type PendingPermit<'a> = BoxFuture<'a, Result<RunPermit, QueueFull>>;

fn acquire<'a>(queue: &'a SlowQueue, org: &'a OrgId, hosts: &[&str], bytes: usize) -> PendingPermit<'a> {
    let hosts: Vec<_> = hosts.iter().map(|host| Arc::from(*host)).collect();
    async move { queue.acquire(org, &hosts, bytes).await }.boxed()
}

fn acquire_now(queue: &SlowQueue, org: &OrgId, hosts: &[&str], bytes: usize) -> Result<RunPermit, QueueFull> {
    acquire(queue, org, hosts, bytes).now_or_never().unwrap()
}

/// Recorder with one gauge for each name.
#[derive(Default)]
struct Gauges(Mutex<HashMap<String, Arc<AtomicU64>>>);

impl Gauges {
    fn gauge(&self, name: &str) -> Arc<AtomicU64> {
        Arc::clone(self.0.lock().entry(name.to_owned()).or_default())
    }

    fn read(&self) -> [f64; 3] {
        ["seated", "line", "bytes"].map(|last| {
            f64::from_bits(self.gauge(&format!("tidegate_media_slow_{last}")).load(Ordering::SeqCst))
        })
    }
}

impl Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.gauge(key.name()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn gauges_show_the_items_of_all_queues() {
    let gauges = Gauges::default();
    with_local_recorder(&gauges, || {
        let (media, models, org) = (queue(5, 1), queue(5, 1), OrgId::new("o"));
        let first = acquire_now(&media, &org, &["a"], 3).unwrap();
        let mut pending = acquire(&media, &org, &["a"], 4);
        assert!((&mut pending).now_or_never().is_none());
        let second = acquire_now(&models, &org, &["m"], 5).unwrap();
        assert_eq!(gauges.read(), [2.0, 1.0, 12.0]);
        drop((pending, second));
        assert_eq!(gauges.read(), [1.0, 0.0, 3.0]);
        drop(first);
        assert_eq!(gauges.read(), [0.0; 3]);
    });
}

#[tokio::test]
async fn hanging_host_leaves_permits_to_other_hosts_of_its_org() {
    let (queue, org) = (queue(5, 2), OrgId::new("o"));
    let hanging: Vec<_> = (0..2).map(|_| acquire_now(&queue, &org, &["hangs"], 1).unwrap()).collect();
    let (mut third, mut both) =
        (acquire(&queue, &org, &["hangs"], 1), acquire(&queue, &org, &["good", "hangs"], 1));
    assert!(poll!(&mut third).is_pending() && poll!(&mut both).is_pending());
    for _ in 0..5 {
        drop(acquire_now(&queue, &org, &["good"], 1).unwrap());
    }
    drop(hanging);
    let third = third.now_or_never().unwrap().unwrap();
    let both = both.now_or_never().unwrap().unwrap();
    assert_eq!(queue.0.totals(), Totals { running: 2, waiting: 0, weight: 2 });
    drop((third, both));
    assert_eq!(queue.0.totals(), Totals::default());
}

/// Without a runtime, because a runtime makes a task yield after a number of polls.
#[test]
fn many_hanging_hosts_leave_a_permit_to_the_next_one() {
    let (queue, org) = (queue(64, 16), OrgId::new("o"));
    let mut stuck = Vec::new();
    for nth in 0..12 * 16 {
        stuck.extend(acquire(&queue, &org, &[&(nth % 12).to_string()], 0).now_or_never());
    }
    assert!(stuck.len() >= 4 * 12, "{}", stuck.len());
    for _ in 0..100 {
        drop(acquire_now(&queue, &org, &["good"], 0).unwrap());
    }
}

/// Creates a queue that knows the host `known` and learns the host `good`.
fn queue_that_learns(limits: Limits, is_good_known: &Arc<AtomicBool>) -> SlowQueue {
    let is_good_known = Arc::clone(is_good_known);
    SlowQueue::new(limits, move |_, host| {
        &**host == "known" || (&**host == "good" && is_good_known.load(Ordering::SeqCst))
    })
}

#[tokio::test]
async fn unknown_hosts_leave_half_of_the_permits_to_known_hosts() {
    let (is_known, org) = (Arc::new(AtomicBool::new(false)), OrgId::new("o"));
    let queue = queue_that_learns(limits(6, 2), &is_known);
    let _hanging = ["a", "b", "c"].map(|host| acquire_now(&queue, &org, &[host], 1).unwrap());
    let known_permit = acquire_now(&queue, &org, &["known"], 1).unwrap();
    let (mut first, mut second, mut both) = (
        acquire(&queue, &org, &["good"], 1),
        acquire(&queue, &org, &["good"], 1),
        acquire(&queue, &org, &["d", "good"], 1),
    );
    assert!(poll!(&mut first).is_pending() && poll!(&mut both).is_pending());
    is_known.store(true, Ordering::SeqCst);
    // No item has ended meanwhile. The next item of the host starts the first one, which is next in turn.
    assert!(poll!(&mut second).is_pending());
    let first = first.now_or_never().unwrap().unwrap();
    // Neither item needs this host, but the end of its item starts the second one.
    drop(known_permit);
    let _second = second.now_or_never().unwrap().unwrap();
    drop(first);
    assert!(poll!(&mut both).is_pending(), "one of its hosts is not known");
}

#[tokio::test]
async fn end_of_an_item_starts_items_of_newly_known_hosts() {
    let (is_known, org) = (Arc::new(AtomicBool::new(false)), OrgId::new("o"));
    let queue = queue_that_learns(limits(4, 2), &is_known);
    let _hanging = ["a", "b"].map(|host| acquire_now(&queue, &org, &[host], 1).unwrap());
    let known_permit = acquire_now(&queue, &org, &["known"], 1).unwrap();
    let mut pending = acquire(&queue, &org, &["good"], 1);
    assert!(poll!(&mut pending).is_pending());
    is_known.store(true, Ordering::SeqCst);
    drop(known_permit);
    assert!(poll!(&mut pending).is_ready());
}

#[tokio::test]
async fn full_queue_refuses_items_of_its_own_org_only() {
    let (queue, org) = (queue(5, 2), OrgId::new("o"));
    let _running: Vec<_> =
        ["a", "b", "c", "d", "e"].map(|host| acquire_now(&queue, &org, &[host], 1).unwrap()).into();
    let mut pending = Vec::new();
    for _ in 0..4 {
        let mut one = acquire(&queue, &org, &["a"], 1);
        assert!(poll!(&mut one).is_pending());
        pending.push(one);
    }
    assert_eq!(acquire_now(&queue, &org, &["a"], 1).err(), Some(QueueFull::Entries));
    acquire_now(&queue, &OrgId::new("other"), &["a"], 1).unwrap();
    pending.pop();
    assert!(poll!(&mut acquire(&queue, &org, &["a"], 1)).is_pending(), "one left the queue");
}

#[tokio::test]
async fn item_without_free_bytes_waits_for_them() {
    let (queue, org) = (queue(9, 9), OrgId::new("o"));
    let first = acquire_now(&queue, &org, &["a"], 50).unwrap();
    let mut second = acquire(&queue, &org, &["a"], 10);
    assert!(poll!(&mut second).is_pending(), "it has half of them");
    let mut large = acquire(&queue, &org, &["b"], 60);
    assert_eq!(acquire_now(&queue, &org, &["a"], 50).err(), Some(QueueFull::Weight));
    assert_eq!(acquire_now(&queue, &org, &["b"], 60).err(), Some(QueueFull::Weight));
    let small = acquire_now(&queue, &org, &["b"], 20).unwrap();
    drop(second);
    assert!(poll!(&mut large).is_pending(), "the queue is empty");
    assert_eq!(acquire_now(&queue, &org, &["a"], 30).err(), Some(QueueFull::Weight));
    assert_eq!(queue.0.totals(), Totals { running: 2, waiting: 1, weight: 130 });
    drop(first);
    drop(large.now_or_never().unwrap().unwrap());
    drop(small);
    assert_eq!(queue.0.totals(), Totals::default());
}

#[tokio::test]
async fn unknown_hosts_leave_half_of_the_bytes_to_known_ones() {
    let (queue, org) = (queue_that_knows(limits(64, 16), "good"), OrgId::new("o"));
    let mut stuck: Vec<_> = ["a", "b"].map(|host| acquire_now(&queue, &org, &[host], 25).unwrap()).into();
    let mut pending = Vec::new();
    for nth in 0..4 {
        pending.push(acquire(&queue, &org, &[&nth.to_string()], 25));
        let _pending = poll!(pending.last_mut().unwrap());
    }
    assert_eq!(
        acquire_now(&queue, &org, &["c"], 25).err(),
        Some(QueueFull::Weight),
        "neither to run nor to wait"
    );
    let known_permit = acquire_now(&queue, &org, &["good.1"], 25).unwrap();
    acquire_now(&queue, &org, &["good.2"], 25).unwrap();
    drop(known_permit);
    assert!(poll!(&mut pending[0]).is_pending());
    stuck.pop();
    assert!(poll!(&mut pending[0]).is_ready());
}

#[tokio::test]
async fn item_above_all_bytes_runs_and_harms_no_known_host() {
    let (queue, org) = (queue_that_knows(limits(64, 16), "good"), OrgId::new("o"));
    let monster = acquire_now(&queue, &org, &["a"], 5_000).unwrap();
    let mut other_pending = acquire(&queue, &org, &["b"], 5_000);
    assert!(poll!(&mut other_pending).is_pending());
    assert_eq!(acquire_now(&queue, &org, &["c"], 1).err(), Some(QueueFull::Weight));
    drop(acquire_now(&queue, &org, &["good"], 70).unwrap());
    drop(monster);
    assert!(poll!(&mut other_pending).is_ready());
}

#[test]
fn heavy_items_of_a_hanging_host_leave_bytes_to_the_next() {
    let (queue, org) = (queue(64, 16), OrgId::new("o"));
    let mut stuck = Vec::new();
    for nth in 0..12 {
        stuck.extend(acquire(&queue, &org, &[&(nth % 3).to_string()], 10).now_or_never());
    }
    assert!(stuck.iter().all(Result::is_ok) && stuck.len() >= 6, "{}", stuck.len());
    for _ in 0..100 {
        drop(acquire_now(&queue, &org, &["good"], 10).unwrap());
    }
}
