#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use tidegate_schemas::ids::{ItemKey, OrgId};

use super::{Capacity, FinishedRecord, Key, KeyQueues, NewPart, QueuedPart, ReadyWork};

const UNBOUNDED: Capacity = Capacity { parts: 1_000_000, bytes: usize::MAX };
const BATCH: Capacity = Capacity { parts: 3, bytes: 6 };

fn key(org: u8, item: u8) -> Key {
    Key { org: OrgId::new(format!("org-{org}")), item: ItemKey::new("post", format!("{item}")) }
}

fn single(org: u8, item: u8) -> NewPart {
    NewPart::single(key(org, item), 1)
}

fn batchable(org: u8, item: u8, bytes: usize) -> NewPart {
    NewPart { key: key(org, item), bytes, is_batchable: true }
}

/// Takes the next work; every org gets a slot.
fn next_work<R: Clone>(queues: &mut KeyQueues<R>) -> Option<ReadyWork<R>> {
    queues.next_ready(|_| Some(())).map(|(work, ())| work)
}

fn next_single<R: Clone>(queues: &mut KeyQueues<R>) -> Option<QueuedPart<R>> {
    next_work(queues).map(|work| match work {
        ReadyWork::Single(part) => part,
        ReadyWork::Batch(_) => panic!("none of these parts is batchable"),
    })
}

/// Takes the next parts. Returns their items and whether they are a batch.
fn next_items<R: Clone>(queues: &mut KeyQueues<R>) -> (Vec<String>, bool, Vec<QueuedPart<R>>) {
    let (parts, is_batch) = match next_work(queues).unwrap() {
        ReadyWork::Single(part) => (vec![part], false),
        ReadyWork::Batch(parts) => (parts, true),
    };
    (parts.iter().map(|part| part.key.item.id.to_string()).collect(), is_batch, parts)
}

/// Record of the test: number in the log and epoch of its assignment.
type Record = (usize, u8);

#[derive(Clone, Debug)]
enum Step {
    /// Org, item, size and batchability of each part.
    Admit(Vec<(u8, u8, usize, bool)>),
    Start,
    /// Ends one of the running parts.
    Finish(prop::sample::Index),
    /// Makes one of the running parts ready again.
    Separate(prop::sample::Index),
    /// Revokes the assignment of all admitted records.
    Revoke,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::collection::vec((0..3_u8, 0..6_u8, 1..9_usize, any::<bool>()), 0..8).prop_map(Step::Admit),
        4 => Just(Step::Start),
        4 => any::<prop::sample::Index>().prop_map(Step::Finish),
        2 => any::<prop::sample::Index>().prop_map(Step::Separate),
        1 => Just(Step::Revoke),
    ]
}

/// Runs steps and checks the invariants after each.
#[derive(Default)]
struct Model {
    epoch: u8,
    admitted: usize,
    /// Parts of each record that neither finished nor were dropped.
    unfinished: HashMap<usize, usize>,
    running: Vec<QueuedPart<Record>>,
    /// Last (record, part) of each key that started.
    last_started: HashMap<Key, (usize, usize)>,
    /// Parts that were admitted as batchable and not separated.
    batchable: HashSet<(usize, usize)>,
    /// Parts that were separated and have not started again.
    separated: HashSet<(usize, usize)>,
    returned: HashSet<usize>,
}

impl Model {
    fn start(&mut self, work: ReadyWork<Record>) -> Result<(), TestCaseError> {
        let parts = match work {
            ReadyWork::Single(part) => vec![part],
            ReadyWork::Batch(parts) => {
                prop_assert!(!parts.is_empty() && parts.len() <= BATCH.parts, "{} parts", parts.len());
                let bytes: usize = parts.iter().map(|part| part.bytes).sum();
                prop_assert!(bytes <= BATCH.bytes || parts.len() == 1, "{bytes} bytes");
                prop_assert!(parts.iter().all(|part| part.key.org == parts[0].key.org), "two orgs");
                let positions: Vec<_> = parts.iter().map(|part| (part.record.0, part.index)).collect();
                prop_assert!(positions.is_sorted(), "{positions:?}");
                prop_assert!(
                    positions.iter().all(|at| self.batchable.contains(at)),
                    "a part that must start alone"
                );
                parts
            }
        };
        parts.into_iter().try_for_each(|part| self.start_part(part))
    }

    fn start_part(&mut self, part: QueuedPart<Record>) -> Result<(), TestCaseError> {
        prop_assert!(
            self.running.iter().all(|other| other.key != part.key),
            "two parts of one key run at once"
        );
        prop_assert_eq!(part.record.1, self.epoch, "a part of a revoked assignment started");
        let position = (part.record.0, part.index);
        let was_separated = self.separated.remove(&position);
        prop_assert_eq!(part.is_retry, was_separated);
        if let Some(before) = self.last_started.insert(part.key.clone(), position) {
            prop_assert!(
                before < position || was_separated && before == position,
                "{before:?} started before {position:?}"
            );
        }
        self.running.push(part);
        Ok(())
    }

    fn separate(&mut self, queues: &mut KeyQueues<Record>, at: usize) {
        let part = self.running.remove(at);
        let position = (part.record.0, part.index);
        self.batchable.remove(&position);
        self.separated.insert(position);
        queues.separate([part], true);
    }

    fn finish(&mut self, queues: &mut KeyQueues<Record>, at: usize) -> Result<(), TestCaseError> {
        let part = self.running.remove(at);
        let record = part.record;
        let unfinished = self.unfinished.get_mut(&record.0).unwrap();
        *unfinished -= 1;
        let is_last = *unfinished == 0;
        let finished_record = queues.finish(part, true);
        if record.1 == self.epoch {
            prop_assert_eq!(finished_record.is_some(), is_last, "a record is returned with its last part");
        }
        self.check_returned(finished_record)
    }

    fn check_returned(
        &mut self,
        finished: impl IntoIterator<Item = FinishedRecord<Record>>,
    ) -> Result<(), TestCaseError> {
        for FinishedRecord { record, is_complete } in finished {
            prop_assert!(self.returned.insert(record.0), "returned twice");
            let all_done = self.unfinished[&record.0] == 0;
            prop_assert_eq!(is_complete, all_done, "complete means that every part was done");
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn parts_of_a_key_run_one_by_one_in_order_and_all_end(steps in prop::collection::vec(step(), 0..80)) {
        let mut queues = KeyQueues::new(UNBOUNDED, BATCH);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Admit(parts) => {
                    let record = (model.admitted, model.epoch);
                    model.admitted += 1;
                    model.unfinished.insert(record.0, parts.len());
                    let new = parts.iter().enumerate().map(|(index, (org, item, bytes, is_batchable))| {
                        if *is_batchable {
                            model.batchable.insert((record.0, index));
                        }
                        NewPart { key: key(*org, *item), bytes: *bytes, is_batchable: *is_batchable }
                    });
                    let finished_record = queues.admit(record, new.collect::<Vec<_>>());
                    prop_assert_eq!(finished_record.is_some(), parts.is_empty());
                    model.check_returned(finished_record)?;
                }
                Step::Start => {
                    if let Some(work) = next_work(&mut queues) {
                        model.start(work)?;
                    }
                }
                Step::Finish(index) => {
                    if !model.running.is_empty() {
                        let at = index.index(model.running.len());
                        model.finish(&mut queues, at)?;
                    }
                }
                Step::Separate(index) => {
                    // Running parts of a revoked assignment are finished in any case.
                    let current: Vec<_> = (0..model.running.len())
                        .filter(|at| model.running[*at].record.1 == model.epoch)
                        .collect();
                    if !current.is_empty() {
                        model.separate(&mut queues, current[index.index(current.len())]);
                    }
                }
                Step::Revoke => {
                    model.epoch += 1;
                    let epoch = model.epoch;
                    let finished_records = queues.drop_revoked(|record| record.1 != epoch);
                    model.check_returned(finished_records)?;
                }
            }
        }
        loop {
            while let Some(work) = next_work(&mut queues) {
                model.start(work)?;
            }
            if model.running.is_empty() {
                break;
            }
            model.finish(&mut queues, 0)?;
        }
        prop_assert_eq!(model.returned.len(), model.admitted, "every record is returned once");
        prop_assert!(queues.is_empty());
        prop_assert_eq!(queues.usage, Capacity { parts: 0, bytes: 0 });
        prop_assert!(queues.later_parts.is_empty() && queues.unfinished.is_empty(), "no part or record remains");
    }

    #[test]
    fn org_waits_for_at_most_one_batch_of_each_other_org(
        burst in 1..50_usize,
        orgs in 1..5_u8,
    ) {
        let mut queues = KeyQueues::new(UNBOUNDED, BATCH);
        for at in 0..burst {
            for org in 1..=orgs {
                queues.admit((at, 0), [batchable(org, u8::try_from(at).unwrap(), 1)]);
            }
        }
        queues.admit((burst, 0), [single(0, 0)]);
        let works = std::iter::from_fn(|| next_work(&mut queues));
        let before = works.take_while(|work| matches!(work, ReadyWork::Batch(_))).count();
        prop_assert!(before <= usize::from(orgs), "{before} batches came first");
    }
}

#[test]
fn org_without_a_slot_keeps_its_turn() {
    let mut queues = KeyQueues::new(UNBOUNDED, BATCH);
    for org in 0..3 {
        queues.admit((0, org), [single(org, 0), single(org, 1)]);
    }
    let mut start = |blocked: u8| {
        let blocked = key(blocked, 0).org;
        let next = queues.next_ready(|org| (*org != blocked).then(|| org.clone()));
        next.map(|(_, org)| org.to_string())
    };
    assert_eq!(start(0).as_deref(), Some("org-1"));
    assert_eq!(start(9).as_deref(), Some("org-0"), "it was the first in turn");
    assert_eq!(start(2).as_deref(), Some("org-1"));
    assert_eq!(start(2).as_deref(), Some("org-0"));
    assert_eq!(start(2), None);
    assert_eq!(start(9).as_deref(), Some("org-2"));
}

#[test]
fn capacity_closes_at_either_bound_and_opens_again() {
    let mut queues = KeyQueues::new(Capacity { parts: 2, bytes: 100 }, BATCH);
    queues.admit(1, [NewPart::single(key(0, 0), 100)]);
    assert!(!queues.has_capacity(), "no bytes are left");
    let part = next_single(&mut queues).unwrap();
    assert_eq!(queues.finish(part, true), Some(FinishedRecord { record: 1, is_complete: true }));
    assert!(queues.has_capacity());
    queues.admit(2, [single(0, 0), single(0, 1)]);
    assert!(!queues.has_capacity(), "no parts are left");
}

#[test]
fn running_part_of_a_revoked_assignment_still_blocks_its_key() {
    let mut queues = KeyQueues::new(UNBOUNDED, BATCH);
    queues.admit((1, 0), [single(0, 0)]);
    let old = next_single(&mut queues).unwrap();
    assert!(queues.drop_revoked(|record| record.1 == 0).is_empty(), "it is returned when it ends");
    queues.admit((1, 1), [single(0, 0)]);
    assert!(next_work(&mut queues).is_none(), "the same record, delivered again, waits");
    assert_eq!(queues.finish(old, true), Some(FinishedRecord { record: (1, 0), is_complete: true }));
    assert!(next_work(&mut queues).is_some());
}

#[test]
fn record_with_an_abandoned_part_is_not_complete() {
    let mut queues = KeyQueues::new(UNBOUNDED, BATCH);
    queues.admit(1, [single(0, 0), single(0, 1)]);
    let (first, second) = (next_single(&mut queues).unwrap(), next_single(&mut queues).unwrap());
    assert_eq!(queues.finish(first, false), None);
    assert_eq!(queues.finish(second, true), Some(FinishedRecord { record: 1, is_complete: false }));
}

#[test]
fn batch_ends_at_its_limits_and_before_a_single_part() {
    let mut queues = KeyQueues::new(UNBOUNDED, BATCH);
    let small = (0..4).map(|item| batchable(0, item, 1));
    let other_parts =
        [single(0, 4), batchable(0, 5, 4), batchable(0, 6, 3), batchable(0, 7, 9), batchable(0, 8, 1)];
    queues.admit(1, small.chain(other_parts));
    let expected = [
        (vec!["0", "1", "2"], true),
        (vec!["3"], true),
        (vec!["4"], false),
        (vec!["5"], true),
        (vec!["6"], true),
    ];
    for expected in expected.into_iter().chain([(vec!["7"], true), (vec!["8"], true)]) {
        let (items, is_batch, _) = next_items(&mut queues);
        assert_eq!((items.iter().map(String::as_str).collect(), is_batch), expected);
    }
    assert!(next_work(&mut queues).is_none());
}

#[test]
fn waiting_records_of_an_org_share_a_batch() {
    let mut queues = KeyQueues::new(UNBOUNDED, BATCH);
    queues.admit(1, [batchable(0, 0, 1), batchable(0, 1, 1)]);
    queues.admit(2, [batchable(0, 2, 1)]);
    assert_eq!(next_items(&mut queues).0, ["0", "1", "2"]);
}

#[test]
fn second_version_in_a_record_starts_alone_after_the_first() {
    let mut queues = KeyQueues::new(UNBOUNDED, BATCH);
    queues.admit(1, [batchable(0, 0, 1), batchable(0, 0, 1), batchable(0, 1, 1)]);
    let (items, _, batch) = next_items(&mut queues);
    assert_eq!(items, ["0", "1"]);
    assert!(next_work(&mut queues).is_none());
    for part in batch {
        assert_eq!(queues.finish(part, true), None);
    }
    let second = next_single(&mut queues).unwrap();
    assert_eq!(second.index, 1);
    assert!(queues.finish(second, true).is_some_and(|finished| finished.is_complete));
}

#[test]
fn separated_parts_start_alone_in_order_and_first() {
    let mut queues = KeyQueues::new(UNBOUNDED, BATCH);
    queues.admit(1, [batchable(0, 0, 1), batchable(0, 1, 1), batchable(0, 2, 1)]);
    queues.admit(2, [batchable(0, 3, 1), batchable(0, 0, 1)]);
    let (_, _, batch) = next_items(&mut queues);
    queues.separate(batch, false);
    for item in ["0", "1", "2"] {
        let part = next_single(&mut queues).unwrap();
        assert_eq!((part.key.item.id.as_str(), part.is_retry), (item, false));
        queues.finish(part, true);
    }
    assert_eq!(next_items(&mut queues).0, ["3"], "the later version of 0 starts alone");
}
