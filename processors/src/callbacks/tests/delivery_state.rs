#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const NOW: Millis = Millis(1_795_255_200_000);

fn schedule() -> RetrySchedule {
    crate::callbacks::Settings::default().retry_schedule()
}

fn retry(class: RetryClass) -> Outcome {
    Outcome::Retry { class }
}

fn finish_attempt(progress: &Progress, outcome: Outcome) -> FinishedAttempt {
    let (number, round) = (progress.attempts + 1, progress.round);
    FinishedAttempt { number, round, ended_at: progress.next_at.unwrap_or(NOW), outcome, retry_after: None }
}

fn attempt(progress: &Progress, outcome: Outcome) -> Progress {
    progress.after_attempt(&finish_attempt(progress, outcome), &schedule(), 0.5)
}

#[derive(Clone, Debug)]
enum Step {
    Attempt(Outcome, Option<u64>, f64),
    /// Attempt of a former owner of the shard, or an attempt that is stored twice.
    Late(Outcome, i64),
    Missing,
    TooLarge,
    Resend,
    Cancel,
    Hold,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![1 => Just(Outcome::Delivered), 9 => prop::sample::select(RetryClass::ALL).prop_map(retry)]
}

fn step() -> impl Strategy<Value = Step> {
    let attempt = (outcome(), prop::option::of(any::<u64>()), 0.0..=1.0_f64);
    prop_oneof![
        20 => attempt.prop_map(|(outcome, wish, draw)| Step::Attempt(outcome, wish, draw)),
        3 => (outcome(), 0..4_i64).prop_map(|(outcome, behind)| Step::Late(outcome, behind)),
        2 => Just(Step::Missing),
        1 => Just(Step::TooLarge),
        1 => Just(Step::Resend),
        1 => Just(Step::Cancel),
        1 => Just(Step::Hold),
    ]
}

fn take(progress: &Progress, step: &Step) -> Progress {
    match step {
        Step::Attempt(outcome, wish, draw) if progress.needs_attempt() => {
            let finished_attempt = FinishedAttempt {
                retry_after: wish.map(Duration::from_secs),
                ..finish_attempt(progress, *outcome)
            };
            progress.after_attempt(&finished_attempt, &schedule(), *draw)
        }
        Step::Attempt(..) => progress.clone(),
        Step::Late(outcome, behind) => {
            let number = (progress.attempts - behind).max(1);
            progress.after_attempt(
                &FinishedAttempt { number, ..finish_attempt(progress, *outcome) },
                &schedule(),
                0.5,
            )
        }
        Step::Missing => progress.after_missing("endpoint_missing", NOW),
        Step::TooLarge => progress.after_too_large(),
        Step::Resend => progress.after_resend(NOW),
        Step::Cancel => progress.after_cancel(),
        Step::Hold => progress.after_hold(),
    }
}

proptest! {
    #[test]
    fn transitions_are_bounded_and_keep_a_delivery(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let schedule = schedule();
        let mut progress = Progress::new(NOW);
        for step in steps {
            let next = take(&progress, &step);
            prop_assert!(next.tries <= 12, "more than twelve attempts in a round");
            prop_assert!(next.attempts >= progress.attempts && next.round >= progress.round);
            match next.state {
                DeliveryState::Pending | DeliveryState::RetryWait => prop_assert!(next.next_at.is_some(), "owed without a time"),
                DeliveryState::Held => prop_assert!(next.held_reason.is_some(), "held without a reason"),
                DeliveryState::Delivered => prop_assert!(next.delivered_at.is_some() && next.next_at.is_none()),
                DeliveryState::TooLarge => {
                    prop_assert!(next.held_reason.is_some(), "too large without a reason");
                    prop_assert!(next.next_at.is_none() && next.delivered_at.is_none());
                }
                DeliveryState::Exhausted | DeliveryState::Canceled => {
                    prop_assert!(next.next_at.is_none() && next.delivered_at.is_none());
                }
            }
            if progress.delivered_at.is_some() {
                prop_assert_eq!(next.delivered_at, progress.delivered_at);
            }
            if progress.state == DeliveryState::Delivered && next.state != DeliveryState::Delivered {
                prop_assert!(matches!(step, Step::Resend), "{:?} took a delivery back", step);
            }
            if let (Step::Attempt(outcome, ..), true) = (&step, progress.needs_attempt()) {
                prop_assert_eq!(next.attempts, progress.attempts + 1);
                if *outcome == Outcome::Delivered {
                    prop_assert_eq!(next.state, DeliveryState::Delivered);
                }
                if let (DeliveryState::RetryWait, Some(at)) = (next.state, next.next_at) {
                    let base = schedule.pauses[usize::try_from(next.tries).unwrap()].as_secs_f64();
                    let was = finish_attempt(&progress, *outcome).ended_at;
                    let pause = Duration::from_millis((at.0 - was.0).unsigned_abs()).as_secs_f64();
                    prop_assert!(pause >= base * 0.799 && pause <= base * 2.001, "{} after {}", pause, base);
                }
            }
            progress = next;
        }
        // From any state, failing attempts end the round.
        for _ in 0..12 {
            if progress.needs_attempt() {
                progress = attempt(&progress, retry(RetryClass::ServerError));
            }
        }
        prop_assert!(!progress.needs_attempt());
    }
}

#[test]
fn twelve_attempts_take_about_76_hours() {
    let mut progress = Progress::new(NOW);
    let mut last = NOW;
    for number in 1..=12 {
        assert!(progress.needs_attempt(), "attempt {number}");
        last = progress.next_at.unwrap();
        progress = attempt(&progress, retry(RetryClass::Unreachable));
        assert_eq!(progress.attempts, number);
    }
    assert_eq!(progress.state, DeliveryState::Exhausted);
    let hours = (last.0 - NOW.0) / 3_600_000;
    assert!((75..=76).contains(&hours), "{hours}");
}

#[test]
fn blocked_address_is_tried_three_times() {
    let mut progress = Progress::new(NOW);
    for _ in 0..2 {
        progress = attempt(&progress, retry(RetryClass::BlockedAddress));
        assert_eq!(progress.state, DeliveryState::RetryWait);
    }
    assert_eq!(attempt(&progress, retry(RetryClass::BlockedAddress)).state, DeliveryState::Exhausted);
}

#[test]
fn two_gone_answers_in_a_row_hold_until_a_resend() {
    let after_one = attempt(&Progress::new(NOW), retry(RetryClass::Gone));
    let after_other = attempt(&after_one, retry(RetryClass::Busy));
    assert_eq!(
        attempt(&after_other, retry(RetryClass::Gone)).state,
        DeliveryState::RetryWait,
        "not in a row"
    );
    let twice = attempt(&after_one, retry(RetryClass::Gone));
    assert_eq!(
        (twice.state, twice.held_reason.clone()),
        (DeliveryState::Held, Some(HoldReason::EndpointGone))
    );
    assert!(!twice.needs_attempt(), "only a resend starts another attempt");
    let resent = twice.after_resend(NOW);
    assert!(resent.needs_attempt() && resent.tries == 0 && resent.gone_answers == 0);
    assert_eq!(resent.attempts, 2, "attempts keep their numbers");
}

#[test]
fn retry_after_is_clamped_to_twice_the_scheduled_pause() {
    let rules = schedule();
    let pause =
        |wish, draw| rules.next_pause(1, Some(Duration::from_secs(wish)), draw).unwrap().as_secs_f64();
    assert!((pause(0, 0.0) - 5.0).abs() < 1e-9);
    assert!((pause(7, 0.0) - 7.0).abs() < 1e-9);
    assert!(pause(7, 1.0) > 7.0, "those who were told the same time spread");
    assert!((pause(u64::MAX, 1.0) - 10.0).abs() < 1e-9);
}

#[test]
fn missing_secret_costs_no_attempt() {
    let later = Millis(NOW.0 + 1_000);
    let held_delivery =
        attempt(&Progress::new(NOW), retry(RetryClass::Busy)).after_missing("secret_missing", later);
    assert_eq!(
        (held_delivery.state, held_delivery.next_at, held_delivery.tries),
        (DeliveryState::Held, Some(later), 1)
    );
    assert_eq!(attempt(&held_delivery, Outcome::Delivered).state, DeliveryState::Delivered);
}

#[test]
fn late_failure_never_overwrites_a_delivery() {
    let mut late_failure = finish_attempt(&Progress::new(NOW), retry(RetryClass::ServerError));
    let delivered = attempt(&Progress::new(NOW), Outcome::Delivered);
    assert_eq!(delivered.after_attempt(&late_failure, &schedule(), 0.5), delivered);
    late_failure.number = 2;
    let after_late_failure = delivered.after_attempt(&late_failure, &schedule(), 0.5);
    assert_eq!((after_late_failure.state, after_late_failure.attempts), (DeliveryState::Delivered, 2));
}

#[test]
fn running_attempt_is_applied_after_a_command() {
    let progress = Progress::new(NOW);
    let success = finish_attempt(&progress, Outcome::Delivered);
    let canceled = progress.after_cancel();
    assert_eq!(canceled.after_attempt(&success, &schedule(), 0.5).state, DeliveryState::Delivered);
    let failure = FinishedAttempt { outcome: retry(RetryClass::Busy), ..success };
    assert_eq!(canceled.after_attempt(&failure, &schedule(), 0.5).state, DeliveryState::Canceled);
    let resent = progress.after_resend(NOW).after_attempt(&success, &schedule(), 0.5);
    assert_eq!(resent.state, DeliveryState::Pending, "the resend is still owed");
    assert!(resent.delivered_at.is_some());
}

#[test]
fn failed_resend_keeps_the_delivery() {
    let delivered = attempt(&Progress::new(NOW), Outcome::Delivered);
    let mut resent = delivered.after_resend(NOW);
    assert_eq!(resent.after_cancel().state, DeliveryState::Delivered);
    while resent.needs_attempt() {
        resent = attempt(&resent, retry(RetryClass::Unreachable));
    }
    assert_eq!(resent.state, DeliveryState::Delivered);
    assert_eq!(resent.delivered_at, delivered.delivered_at);
}

#[test]
fn hold_reasons_are_read_back_from_their_stored_text() {
    for text in ["by_command", "endpoint_gone", "body_too_large", "endpoint_missing"] {
        assert_eq!(HoldReason::from_stored(text).as_str(), text);
    }
    assert_eq!(HoldReason::from_stored("by_command"), HoldReason::ByCommand);
}
