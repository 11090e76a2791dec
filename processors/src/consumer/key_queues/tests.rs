#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use tidegate_schemas::ids::{ItemKey, OrgId};

use super::{Capacity, FinishedRecord, Key, KeyQueues, QueuedPart};

const UNBOUNDED: Capacity = Capacity { parts: 1_000_000, bytes: usize::MAX };

fn key(org: u8, item: u8) -> Key {
    Key { org: OrgId::new(format!("org-{org}")), item: ItemKey::new("post", format!("{item}")) }
}

/// A record of the test: its number in the log and the epoch of its assignment.
type Record = (usize, u8);

#[derive(Clone, Debug)]
enum Step {
    Admit(Vec<(u8, u8)>),
    Start,
    /// Ends one of the running parts.
    Finish(prop::sample::Index),
    /// Revokes the assignment of everything admitted so far.
    Revoke,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::collection::vec((0..3_u8, 0..3_u8), 0..5).prop_map(Step::Admit),
        4 => Just(Step::Start),
        4 => any::<prop::sample::Index>().prop_map(Step::Finish),
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
    returned: HashSet<usize>,
}

impl Model {
    fn start(&mut self, part: QueuedPart<Record>) -> Result<(), TestCaseError> {
        prop_assert!(
            self.running.iter().all(|other| other.key != part.key),
            "two parts of one key run at once"
        );
        prop_assert_eq!(part.record.1, self.epoch, "a part of a revoked assignment started");
        let position = (part.record.0, part.index);
        if let Some(before) = self.last_started.insert(part.key.clone(), position) {
            prop_assert!(before < position, "{before:?} started before {position:?}");
        }
        self.running.push(part);
        Ok(())
    }

    fn finish(&mut self, queues: &mut KeyQueues<Record>, at: usize) -> Result<(), TestCaseError> {
        let part = self.running.remove(at);
        let record = part.record;
        let unfinished = self.unfinished.get_mut(&record.0).unwrap();
        *unfinished -= 1;
        let is_last = *unfinished == 0;
        let finished = queues.finish(part, true);
        if record.1 == self.epoch {
            prop_assert_eq!(finished.is_some(), is_last, "a record comes back with its last part");
        }
        self.check_returned(finished)
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
        let mut queues = KeyQueues::new(UNBOUNDED);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Admit(parts) => {
                    let record = (model.admitted, model.epoch);
                    model.admitted += 1;
                    model.unfinished.insert(record.0, parts.len());
                    let finished = queues.admit(record, parts.iter().map(|(org, item)| (key(*org, *item), 1)));
                    prop_assert_eq!(finished.is_some(), parts.is_empty());
                    model.check_returned(finished)?;
                }
                Step::Start => {
                    if let Some(part) = queues.next_ready() {
                        model.start(part)?;
                    }
                }
                Step::Finish(index) => {
                    if !model.running.is_empty() {
                        let at = index.index(model.running.len());
                        model.finish(&mut queues, at)?;
                    }
                }
                Step::Revoke => {
                    model.epoch += 1;
                    let epoch = model.epoch;
                    let finished = queues.drop_lost(|record| record.1 != epoch);
                    model.check_returned(finished)?;
                }
            }
        }
        loop {
            while let Some(part) = queues.next_ready() {
                model.start(part)?;
            }
            if model.running.is_empty() {
                break;
            }
            model.finish(&mut queues, 0)?;
        }
        prop_assert_eq!(model.returned.len(), model.admitted, "every record comes back once");
        prop_assert!(queues.is_empty());
        prop_assert_eq!(queues.in_use, Capacity { parts: 0, bytes: 0 });
        prop_assert!(queues.queues.is_empty() && queues.unfinished.is_empty(), "nothing stays behind");
    }

    #[test]
    fn org_waits_for_at_most_one_part_of_each_other_org(
        burst in 1..50_usize,
        orgs in 1..5_u8,
    ) {
        let mut queues = KeyQueues::new(UNBOUNDED);
        for at in 0..burst {
            for org in 1..=orgs {
                queues.admit((at, 0), [(key(org, u8::try_from(at).unwrap()), 1)]);
            }
        }
        queues.admit((burst, 0), [(key(0, 0), 1)]);
        let before = std::iter::from_fn(|| queues.next_ready()).take_while(|part| part.key != key(0, 0)).count();
        prop_assert!(before <= usize::from(orgs), "{before} parts came first");
    }
}

#[test]
fn capacity_closes_at_either_bound_and_opens_again() {
    let mut queues = KeyQueues::new(Capacity { parts: 2, bytes: 100 });
    queues.admit(1, [(key(0, 0), 100)]);
    assert!(!queues.has_capacity(), "no bytes are left");
    let part = queues.next_ready().unwrap();
    assert_eq!(queues.finish(part, true), Some(FinishedRecord { record: 1, is_complete: true }));
    assert!(queues.has_capacity());
    queues.admit(2, [(key(0, 0), 1), (key(0, 1), 1)]);
    assert!(!queues.has_capacity(), "no parts are left");
}

#[test]
fn running_part_of_a_revoked_assignment_still_blocks_its_key() {
    let mut queues = KeyQueues::new(UNBOUNDED);
    queues.admit((1, 0), [(key(0, 0), 1)]);
    let old = queues.next_ready().unwrap();
    assert!(queues.drop_lost(|record| record.1 == 0).is_empty(), "it comes back when it ends");
    queues.admit((1, 1), [(key(0, 0), 1)]);
    assert!(queues.next_ready().is_none(), "the same record, delivered again, waits");
    assert_eq!(queues.finish(old, true), Some(FinishedRecord { record: (1, 0), is_complete: true }));
    assert!(queues.next_ready().is_some());
}

#[test]
fn record_with_an_abandoned_part_is_not_complete() {
    let mut queues = KeyQueues::new(UNBOUNDED);
    queues.admit(1, [(key(0, 0), 1), (key(0, 1), 1)]);
    let (first, second) = (queues.next_ready().unwrap(), queues.next_ready().unwrap());
    assert_eq!(queues.finish(first, false), None);
    assert_eq!(queues.finish(second, true), Some(FinishedRecord { record: 1, is_complete: false }));
}
