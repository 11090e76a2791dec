#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const NOW: Millis = Millis(1_795_255_200_000);

fn bounds() -> Bounds {
    Bounds {
        calls_per_queue: 2,
        calls: 5,
        backlog_per_queue: 3,
        total_backlog: 1_000,
        longest_deferral: Duration::from_secs(60),
    }
}

fn work(endpoint: usize, event: u128) -> DueAttempt {
    DueAttempt {
        queue: EndpointKey { org: OrgId::new("o"), endpoint: EndpointId::new(endpoint.to_string()) },
        event_id: EventId(Uuid::from_u128(event)),
        shard: u32::try_from(event % 3).unwrap(),
        due_at: NOW,
        is_fresh: false,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Offer {
        endpoint: usize,
        event: u128,
    },
    Start,
    Finish {
        nth: usize,
    },
    LoseShard(u32),
    /// The number of processes changed, so the endpoint's bound is divided differently.
    Bound(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_usize, 0..60_u128).prop_map(|(endpoint, event)| Step::Offer { endpoint, event: event * 4 + endpoint as u128 }),
        3 => Just(Step::Start),
        2 => (0..8_usize).prop_map(|nth| Step::Finish { nth }),
        1 => (0..3_u32).prop_map(Step::LoseShard),
        1 => (1..4_usize).prop_map(Step::Bound),
    ]
}

proptest! {
    #[test]
    fn queued_attempts_run_once_within_the_bounds(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut bounds = bounds();
        let mut queues = EndpointQueues::new(bounds);
        let mut queued: BTreeMap<EventId, DueAttempt> = BTreeMap::new();
        let mut under_way: Vec<DueAttempt> = Vec::new();
        for step in steps {
            match step {
                Step::Offer { endpoint, event } => {
                    let work = work(endpoint, event);
                    let is_under_way = under_way.contains(&work);
                    match queues.offer(work.clone(), NOW) {
                        OfferResult::Queued => {
                            prop_assert!(!is_under_way);
                            prop_assert!(queued.insert(work.event_id, work).is_none());
                        }
                        OfferResult::AlreadyQueued => prop_assert!(queued.contains_key(&work.event_id)),
                        OfferResult::AlreadyUnderWay => prop_assert!(is_under_way),
                        OfferResult::Full(at) => {
                            let queued_count = queued.values().filter(|other| other.queue == work.queue).count();
                            prop_assert_eq!(queued_count, bounds.backlog_per_queue);
                            prop_assert!(at > NOW && at <= NOW.plus(bounds.longest_deferral));
                        }
                        OfferResult::Closed => prop_assert!(false, "the queues were not closed"),
                    }
                }
                Step::Start => {
                    let busy = |queue: &EndpointKey| under_way.iter().filter(|work| work.queue == *queue).count();
                    let may = under_way.len() < bounds.calls
                        && queued.values().any(|work| busy(&work.queue) < bounds.calls_per_queue);
                    let started = queues.start_next();
                    prop_assert_eq!(started.is_some(), may, "a free queue with work starts, whatever the others do");
                    if let Some(work) = started {
                        prop_assert!(busy(&work.queue) < bounds.calls_per_queue);
                        prop_assert_eq!(queued.remove(&work.event_id), Some(work.clone()));
                        under_way.push(work);
                    }
                }
                Step::Finish { nth } => {
                    if nth < under_way.len() {
                        let work = under_way.remove(nth);
                        queues.finish(&work.queue, work.event_id, Duration::from_millis(20));
                    }
                }
                Step::LoseShard(shard) => {
                    let removed = queues.retain(|work| work.shard != shard);
                    for work in removed {
                        prop_assert_eq!(work.shard, shard);
                        prop_assert_eq!(queued.remove(&work.event_id), Some(work));
                    }
                    prop_assert!(queued.values().all(|work| work.shard != shard), "all of them are given out");
                }
                Step::Bound(attempts) => {
                    bounds.calls_per_queue = attempts;
                    queues.limit_queues(attempts);
                }
            }
            prop_assert_eq!(queues.count_under_way(), under_way.len());
            prop_assert_eq!(queues.count_queued(), queued.len());
        }
        for work in under_way {
            queues.finish(&work.queue, work.event_id, Duration::ZERO);
        }
        let mut remaining_ids = BTreeSet::new();
        while let Some(work) = queues.start_next() {
            queues.finish(&work.queue, work.event_id, Duration::ZERO);
            remaining_ids.insert(work.event_id);
        }
        prop_assert_eq!(remaining_ids, queued.into_keys().collect::<BTreeSet<_>>());
        prop_assert!(queues.queues.is_empty() && queues.attempt_states.is_empty() && queues.ready_queues.is_empty(), "idle queues are forgotten");
    }
}

#[test]
fn hanging_endpoint_does_not_block_other_queues() {
    let mut queues = EndpointQueues::new(bounds());
    for event in 0..3 {
        assert_eq!(queues.offer(work(0, event), NOW), OfferResult::Queued);
    }
    assert!(queues.start_next().is_some() && queues.start_next().is_some());
    assert!(queues.start_next().is_none(), "its two attempts never end");
    for event in 10..1_000 {
        assert_eq!(queues.offer(work(1, event), NOW), OfferResult::Queued);
        let other_attempt = queues.start_next().unwrap();
        assert_eq!(other_attempt.event_id, work(1, event).event_id);
        queues.finish(&other_attempt.queue, other_attempt.event_id, Duration::from_millis(1));
    }
}

#[test]
fn stuck_queues_leave_room_in_memory_for_the_others() {
    let bounds = Bounds { backlog_per_queue: 1_000, total_backlog: 1_000, ..bounds() };
    let mut queues = EndpointQueues::new(bounds);
    for event in 0..1_000 {
        assert_eq!(queues.offer(work(0, event), NOW), OfferResult::Queued);
    }
    assert!(matches!(queues.offer(work(0, 1_000), NOW), OfferResult::Full(_)));
    for event in 2_000..2_064 {
        assert_eq!(queues.offer(work(1, event), NOW), OfferResult::Queued);
    }
    assert!(matches!(queues.offer(work(1, 3_000), NOW), OfferResult::Full(_)));
}

#[test]
fn closed_queues_return_queued_attempts_and_start_none() {
    let mut queues = EndpointQueues::new(bounds());
    for event in 0..3 {
        queues.offer(work(0, event), NOW);
        queues.offer(work(1, 10 + event), NOW);
    }
    let started = queues.start_next().unwrap();
    let returned_ids: BTreeSet<_> = queues.close().into_iter().map(|work| work.event_id).collect();
    assert_eq!(returned_ids.len(), 5);
    assert!(!returned_ids.contains(&started.event_id));
    assert_eq!(queues.offer(work(2, 20), NOW), OfferResult::Closed);
    assert_eq!(queues.offer(started.clone(), NOW), OfferResult::AlreadyUnderWay);
    assert!(queues.start_next().is_none());
    queues.finish(&started.queue, started.event_id, Duration::ZERO);
    assert!(queues.queues.is_empty() && queues.attempt_states.is_empty() && queues.ready_queues.is_empty());
}

#[test]
fn long_backlog_is_deferred_at_the_speed_of_its_queue() {
    let mut queues = EndpointQueues::new(bounds());
    for event in 0..3 {
        queues.offer(work(0, event), NOW);
    }
    for _ in 0..60 {
        let started = queues.start_next().unwrap();
        queues.finish(&started.queue, started.event_id, Duration::from_secs(4));
        queues.offer(started, NOW);
    }
    let places: Vec<_> = (100..110)
        .map(|event| match queues.offer(work(0, event), NOW) {
            OfferResult::Full(at) => at.0 - NOW.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(places[0], 1_000);
    for two in places.windows(2) {
        // Two concurrent attempts of four seconds each.
        assert!((1_900..=2_000).contains(&(two[1] - two[0])), "{places:?}");
    }
    let last_result = (200..400).map(|event| queues.offer(work(0, event), NOW)).last();
    assert_eq!(
        last_result,
        Some(OfferResult::Full(NOW.plus(Duration::from_secs(60)))),
        "but not later than the longest deferral"
    );
    assert_eq!(queues.oldest_due_at(), Some(NOW));
}
