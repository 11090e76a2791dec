#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::topics::Topic;

const BUDGET: Budget = Budget { records: 8, bytes: 800 };

fn partition(index: u32) -> Partition {
    Partition::new(Topic::Items, index)
}

fn settled(index: u32, epoch: u64, offset: i64, outcome: Outcome) -> Settlement {
    Settlement { partition: partition(index), epoch: Epoch(epoch), offset: Offset(offset), outcome }
}

#[test]
fn settlement_of_a_lost_assignment_is_ignored() {
    let mut assignments = Assignments::new(BUDGET);
    assignments.assign(partition(0), Epoch(1), NextOffset(0), NextOffset(0));
    assignments.deliver(partition(0), Offset(0), 1, Millis(0)).unwrap();
    assignments.release(partition(0));
    assignments.assign(partition(0), Epoch(2), NextOffset(0), NextOffset(0));
    assignments.deliver(partition(0), Offset(0), 1, Millis(0)).unwrap();
    assert_eq!(assignments.settle(settled(0, 1, 0, Outcome::Complete)), Ok(SettleResult::Stale));
    assert_eq!(assignments.begin_commit(), []);
    assert_eq!(assignments.settle(settled(0, 2, 0, Outcome::Complete)), Ok(SettleResult::Counted));
    assert_eq!(assignments.begin_commit(), [(partition(0), NextOffset(1))]);
}

/// Whatever budget an earlier owner had, it was handed nothing that the log did not hold yet.
#[test]
fn records_before_the_assignment_may_be_replays() {
    let mut assignments = Assignments::new(Budget { records: 1, bytes: 100 });
    assignments.assign(partition(0), Epoch(1), NextOffset(5), NextOffset(13));
    for offset in 5..13 {
        assert_eq!(assignments.deliver(partition(0), Offset(offset), 1, Millis(0)), Ok(true));
    }
    assert_eq!(assignments.deliver(partition(0), Offset(13), 1, Millis(0)), Ok(false));
}

#[test]
fn a_failed_commit_is_begun_again() {
    let mut assignments = Assignments::new(BUDGET);
    assignments.assign(partition(0), Epoch(1), NextOffset(0), NextOffset(0));
    assignments.deliver(partition(0), Offset(0), 1, Millis(0)).unwrap();
    assignments.settle(settled(0, 1, 0, Outcome::Complete)).unwrap();
    assert_eq!(assignments.begin_commit().len(), 1);
    assert_eq!(assignments.begin_commit(), [], "begun once while the answer is open");
    assert!(assignments.has_commit_in_flight());
    assignments.fail_commit(partition(0));
    assert!(!assignments.has_commit_in_flight());
    assert_eq!(assignments.uncommitted(&[partition(0)]), 1);
    assert_eq!(assignments.begin_commit(), [(partition(0), NextOffset(1))]);
    assignments.acknowledge(partition(0), NextOffset(1)).unwrap();
    assert_eq!(assignments.uncommitted(&[partition(0)]), 0);
}

fn completed_until(assignments: &Assignments) -> Option<Millis> {
    assignments.completed_times().find(|(own, _)| *own == partition(0)).map(|(_, until)| until)
}

fn complete_and_commit(assignments: &mut Assignments, offset: i64) {
    assignments.settle(settled(0, 1, offset, Outcome::Complete)).unwrap();
    for (own, next) in assignments.begin_commit() {
        assignments.acknowledge(own, next).unwrap();
    }
}

#[test]
fn observed_end_counts_once_the_commit_reaches_it() {
    let mut assignments = Assignments::new(BUDGET);
    assignments.assign(partition(0), Epoch(1), NextOffset(0), NextOffset(0));
    assert_eq!(completed_until(&assignments), None);
    assignments.observe_end(partition(0), NextOffset(0), Millis(50));
    assert_eq!(completed_until(&assignments), Some(Millis(50)), "an empty partition is complete");

    assignments.deliver(partition(0), Offset(0), 1, Millis(60)).unwrap();
    assignments.deliver(partition(0), Offset(1), 1, Millis(70)).unwrap();
    assignments.observe_end(partition(0), NextOffset(2), Millis(100));
    assert_eq!(completed_until(&assignments), Some(Millis(50)), "two records are open");
    complete_and_commit(&mut assignments, 0);
    assert_eq!(completed_until(&assignments), Some(Millis(60)), "one record is open");
    // Three more records were appended, but the earlier end is kept.
    assignments.observe_end(partition(0), NextOffset(5), Millis(200));
    complete_and_commit(&mut assignments, 1);
    assert_eq!(completed_until(&assignments), Some(Millis(100)));
}

#[test]
fn same_end_at_a_later_time_replaces_the_observation() {
    let mut assignments = Assignments::new(BUDGET);
    assignments.assign(partition(0), Epoch(1), NextOffset(0), NextOffset(0));
    assignments.deliver(partition(0), Offset(0), 1, Millis(10)).unwrap();
    assignments.observe_end(partition(0), NextOffset(1), Millis(100));
    assignments.observe_end(partition(0), NextOffset(1), Millis(300));
    complete_and_commit(&mut assignments, 0);
    assert_eq!(completed_until(&assignments), Some(Millis(300)));
    // An observation that arrives late lowers no time.
    assignments.observe_end(partition(0), NextOffset(1), Millis(200));
    assert_eq!(completed_until(&assignments), Some(Millis(300)));
}

#[derive(Clone, Debug)]
enum Act {
    Assign(u32),
    /// Fetches as much as is available; the numbers are gaps and sizes.
    Deliver(u32, Vec<(i64, usize)>),
    /// Settles the n-th ticket that is out.
    Settle(usize, Outcome),
    Commit,
    /// The answers to a commit: acknowledged, or failed.
    Answer(bool),
    Release(u32),
    /// The process dies and starts anew with what is committed.
    Kill,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0..3_u32).prop_map(Act::Assign),
        4 => ((0..3_u32), prop::collection::vec((0..3_i64, 1..200_usize), 1..5))
            .prop_map(|(index, records)| Act::Deliver(index, records)),
        9 => (any::<usize>(), prop_oneof![9 => Just(Outcome::Complete), 1 => Just(Outcome::Dropped)])
            .prop_map(|(nth, outcome)| Act::Settle(nth, outcome)),
        2 => Just(Act::Commit),
        3 => prop::bool::weighted(0.8).prop_map(Act::Answer),
        1 => (0..3_u32).prop_map(Act::Release),
        1 => Just(Act::Kill),
    ]
}

/// Model of what really happened.
#[derive(Default)]
struct World {
    /// Durable: survives kills.
    committed: BTreeMap<Partition, NextOffset>,
    /// Every offset that exists in the log, and whether some owner completed it.
    exists: BTreeMap<Partition, BTreeSet<i64>>,
    completed: BTreeMap<Partition, BTreeSet<i64>>,
    assigned: BTreeMap<Partition, Epoch>,
    /// Every offset that was handed to somebody.
    handed_out: BTreeMap<Partition, BTreeSet<i64>>,
    tickets: Vec<(Partition, Epoch, Offset)>,
    requested: Vec<(Partition, Epoch, NextOffset)>,
    delivered_to: BTreeMap<Partition, i64>,
    epoch: u64,
}

impl World {
    fn next(&self, partition: Partition) -> NextOffset {
        self.committed.get(&partition).copied().unwrap_or_default()
    }

    fn assign(&mut self, assignments: &mut Assignments, partition: Partition) {
        self.epoch += 1;
        let epoch = Epoch(self.epoch);
        let next = self.next(partition);
        let end = NextOffset(self.exists.get(&partition).and_then(BTreeSet::last).map_or(0, |last| last + 1));
        assignments.assign(partition, epoch, next, end);
        self.assigned.insert(partition, epoch);
        self.delivered_to.insert(partition, next.0);
        // An answer that is still on its way belongs to the assignment that began it.
        self.requested.retain(|(own, _, _)| *own != partition);
    }

    fn release(&mut self, assignments: &mut Assignments, partition: Partition) {
        assignments.release(partition);
        self.assigned.remove(&partition);
        self.requested.retain(|(own, _, _)| *own != partition);
    }

    fn check(&self, assignments: &Assignments) {
        for (partition, next) in &self.committed {
            let done = self.completed.get(partition);
            for offset in self.exists.get(partition).into_iter().flatten().take_while(|at| **at < next.0) {
                assert!(
                    done.is_some_and(|done| done.contains(offset)),
                    "{partition}: the commit {next} passed {offset}, which nobody completed"
                );
            }
        }
        let used = assignments.held_amount();
        assert!(used.records <= BUDGET.records, "{used:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn commits_stop_at_incomplete_records_and_budget_is_kept(acts in prop::collection::vec(act(), 1..120)) {
        let mut assignments = Assignments::new(BUDGET);
        let mut world = World::default();
        for act in acts {
            match act {
                Act::Assign(index) => {
                    if !world.assigned.contains_key(&partition(index)) {
                        world.assign(&mut assignments, partition(index));
                    }
                }
                Act::Deliver(index, records) => {
                    let own = partition(index);
                    for (gap, bytes) in records {
                        let Some(epoch) = world.assigned.get(&own).copied() else { break };
                        let _change = assignments.update_gate();
                        if assignments.available().records == 0 {
                            break;
                        }
                        // What was read once is read again; only new records invent a gap.
                        let from = world.delivered_to[&own];
                        let known = world.exists.entry(own).or_default();
                        let offset = known.range(from..).next().copied().unwrap_or(from + gap);
                        known.insert(offset);
                        let maybe_replayed = assignments.deliver(own, Offset(offset), bytes, Millis(offset)).unwrap();
                        let is_new = world.handed_out.entry(own).or_default().insert(offset);
                        prop_assert!(is_new || maybe_replayed, "{} at {} is a replay without a mark", own, offset);
                        world.delivered_to.insert(own, offset + 1);
                        world.tickets.push((own, epoch, Offset(offset)));
                    }
                }
                Act::Settle(nth, outcome) => {
                    if !world.tickets.is_empty() {
                        let (own, epoch, offset) = world.tickets.swap_remove(nth % world.tickets.len());
                        let result = assignments.settle(Settlement { partition: own, epoch, offset, outcome }).unwrap();
                        let current = world.assigned.get(&own) == Some(&epoch);
                        prop_assert_eq!(result == SettleResult::Counted, current);
                        if current && outcome == Outcome::Complete {
                            world.completed.entry(own).or_default().insert(offset.0);
                        }
                    }
                }
                Act::Commit => {
                    for (own, next) in assignments.begin_commit() {
                        world.requested.push((own, world.assigned[&own], next));
                    }
                    // Never behind the completed prefix once the tick ran.
                    for (own, frontier) in assignments.frontiers() {
                        let requested = world.requested.iter().filter(|(p, _, _)| *p == own).map(|(_, _, next)| *next);
                        let reached = requested.max().unwrap_or_default().max(world.next(own));
                        prop_assert!(reached >= frontier, "{} is at {} but {} is complete", own, reached, frontier);
                        let from = world.next(own).0;
                        let done = world.completed.get(&own);
                        let delivered = world.delivered_to[&own];
                        let open = world.exists.get(&own).and_then(|all| {
                            all.range(from..delivered).find(|at| !done.is_some_and(|done| done.contains(at)))
                        });
                        // A completion that an earlier owner made does not count for this one, so the
                        // frontier may lag behind the world's view, never lead it.
                        prop_assert!(open.is_none_or(|open| frontier.0 <= *open));
                    }
                }
                Act::Answer(good) => {
                    for (own, _, next) in std::mem::take(&mut world.requested) {
                        if good {
                            assignments.acknowledge(own, next).unwrap();
                            let committed = world.committed.entry(own).or_default();
                            *committed = (*committed).max(next);
                        } else {
                            assignments.fail_commit(own);
                        }
                    }
                }
                Act::Release(index) => world.release(&mut assignments, partition(index)),
                Act::Kill => {
                    assignments = Assignments::new(BUDGET);
                    world.assigned.clear();
                    world.requested.clear();
                    // Tickets of a dead process never report.
                    world.tickets.clear();
                }
            }
            world.check(&assignments);
        }

        // Whatever happened: completing and committing the rest, or letting go, gives everything back.
        for (own, epoch, offset) in std::mem::take(&mut world.tickets) {
            assignments.settle(Settlement { partition: own, epoch, offset, outcome: Outcome::Complete }).unwrap();
        }
        for (own, _, _) in std::mem::take(&mut world.requested) {
            assignments.fail_commit(own);
        }
        for (own, next) in assignments.begin_commit() {
            assignments.acknowledge(own, next).unwrap();
        }
        let held: usize = assignments.partitions().iter().map(|partition| assignments.assignments_of(&[*partition]).map(|a| a.ledger.held_amount().records).sum::<usize>()).sum();
        prop_assert_eq!(assignments.held_amount().records, held, "only records behind an abandoned one are still held");
        for own in assignments.partitions() {
            assignments.release(own);
        }
        prop_assert!(assignments.held_amount().is_zero());
    }
}
