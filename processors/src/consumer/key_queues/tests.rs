#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use tidegate_schemas::ids::{ItemKey, OrgId};

use super::{Ended, Key, Lanes, Room, Work};

const WIDE: Room = Room { works: 1_000_000, bytes: usize::MAX };

fn key(org: u8, item: u8) -> Key {
    Key { org: OrgId::new(format!("org-{org}")), item: ItemKey::new("post", format!("{item}")) }
}

/// A record of the test: its number in the log, and the epoch of its assignment.
type Record = (usize, u8);

#[derive(Clone, Debug)]
enum Step {
    Admit(Vec<(u8, u8)>),
    Start,
    /// Ends one of the works under way.
    End(prop::sample::Index),
    /// Everything admitted so far belongs to an assignment that is gone.
    Lose,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::collection::vec((0..3_u8, 0..3_u8), 0..5).prop_map(Step::Admit),
        4 => Just(Step::Start),
        4 => any::<prop::sample::Index>().prop_map(Step::End),
        1 => Just(Step::Lose),
    ]
}

/// Walks the lanes and checks at each step what must always hold.
#[derive(Default)]
struct Walk {
    epoch: u8,
    admitted: usize,
    /// The parts of each record that neither ended nor were dropped.
    owed: HashMap<usize, usize>,
    under_way: Vec<Work<Record>>,
    /// The last (record, part) that started of each key.
    last: HashMap<Key, (usize, usize)>,
    given_back: HashSet<usize>,
}

impl Walk {
    fn start(&mut self, work: Work<Record>) -> Result<(), TestCaseError> {
        prop_assert!(
            self.under_way.iter().all(|other| other.key != work.key),
            "two works of one key at once"
        );
        prop_assert_eq!(work.record.1, self.epoch, "work of a lost assignment started");
        let place = (work.record.0, work.part);
        if let Some(before) = self.last.insert(work.key.clone(), place) {
            prop_assert!(before < place, "{before:?} started before {place:?}");
        }
        self.under_way.push(work);
        Ok(())
    }

    fn end(&mut self, lanes: &mut Lanes<Record>, at: usize) -> Result<(), TestCaseError> {
        let work = self.under_way.remove(at);
        let record = work.record;
        let owed = self.owed.get_mut(&record.0).unwrap();
        *owed -= 1;
        let last = *owed == 0;
        let back = lanes.finish(work, true);
        if record.1 == self.epoch {
            prop_assert_eq!(back.is_some(), last, "a record comes back with its last part");
        }
        self.give_back(back)
    }

    fn give_back(&mut self, back: impl IntoIterator<Item = Ended<Record>>) -> Result<(), TestCaseError> {
        for Ended { record, is_whole } in back {
            prop_assert!(self.given_back.insert(record.0), "given back twice");
            let all_done = self.owed[&record.0] == 0;
            prop_assert_eq!(is_whole, all_done, "whole means that every part was done");
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn keys_are_never_shared_order_is_kept_and_everything_comes_out(steps in prop::collection::vec(step(), 0..80)) {
        let mut lanes = Lanes::new(WIDE);
        let mut walk = Walk::default();
        for step in steps {
            match step {
                Step::Admit(parts) => {
                    let record = (walk.admitted, walk.epoch);
                    walk.admitted += 1;
                    walk.owed.insert(record.0, parts.len());
                    let back = lanes.admit(record, parts.iter().map(|(org, item)| (key(*org, *item), 1)));
                    prop_assert_eq!(back.is_some(), parts.is_empty());
                    walk.give_back(back)?;
                }
                Step::Start => {
                    if let Some(work) = lanes.start() {
                        walk.start(work)?;
                    }
                }
                Step::End(index) => {
                    if !walk.under_way.is_empty() {
                        let at = index.index(walk.under_way.len());
                        walk.end(&mut lanes, at)?;
                    }
                }
                Step::Lose => {
                    walk.epoch += 1;
                    let epoch = walk.epoch;
                    let back = lanes.drop_lost(|record| record.1 != epoch);
                    walk.give_back(back)?;
                }
            }
        }
        loop {
            while let Some(work) = lanes.start() {
                walk.start(work)?;
            }
            if walk.under_way.is_empty() {
                break;
            }
            walk.end(&mut lanes, 0)?;
        }
        prop_assert_eq!(walk.given_back.len(), walk.admitted, "every record comes out once");
        prop_assert!(lanes.is_empty());
        prop_assert_eq!(lanes.held(), Room { works: 0, bytes: 0 });
        prop_assert!(lanes.lanes.is_empty() && lanes.left.is_empty(), "nothing stays behind");
    }

    #[test]
    fn an_org_waits_for_one_work_of_each_other_org_at_most(
        burst in 1..50_usize,
        orgs in 1..5_u8,
    ) {
        let mut lanes = Lanes::new(WIDE);
        for at in 0..burst {
            for org in 1..=orgs {
                lanes.admit((at, 0), [(key(org, u8::try_from(at).unwrap()), 1)]);
            }
        }
        lanes.admit((burst, 0), [(key(0, 0), 1)]);
        let before = std::iter::from_fn(|| lanes.start()).take_while(|work| work.key != key(0, 0)).count();
        prop_assert!(before <= usize::from(orgs), "{before} works came first");
    }
}

#[test]
fn the_room_closes_at_either_bound_and_opens_again() {
    let mut lanes = Lanes::new(Room { works: 2, bytes: 100 });
    lanes.admit(1, [(key(0, 0), 100)]);
    assert!(!lanes.has_room(), "no bytes are left");
    let work = lanes.start().unwrap();
    assert_eq!(lanes.finish(work, true), Some(Ended { record: 1, is_whole: true }));
    assert!(lanes.has_room());
    lanes.admit(2, [(key(0, 0), 1), (key(0, 1), 1)]);
    assert!(!lanes.has_room(), "no works are left");
}

#[test]
fn work_under_way_of_a_lost_assignment_still_holds_its_key() {
    let mut lanes = Lanes::new(WIDE);
    lanes.admit((1, 0), [(key(0, 0), 1)]);
    let old = lanes.start().unwrap();
    assert!(lanes.drop_lost(|record| record.1 == 0).is_empty(), "it comes back when it ends");
    lanes.admit((1, 1), [(key(0, 0), 1)]);
    assert!(lanes.start().is_none(), "the same record, delivered again, waits");
    assert_eq!(lanes.finish(old, true), Some(Ended { record: (1, 0), is_whole: true }));
    assert!(lanes.start().is_some());
}

#[test]
fn a_record_with_a_part_given_up_is_not_whole() {
    let mut lanes = Lanes::new(WIDE);
    lanes.admit(1, [(key(0, 0), 1), (key(0, 1), 1)]);
    let (first, second) = (lanes.start().unwrap(), lanes.start().unwrap());
    assert_eq!(lanes.finish(first, false), None);
    assert_eq!(lanes.finish(second, true), Some(Ended { record: 1, is_whole: false }));
}
