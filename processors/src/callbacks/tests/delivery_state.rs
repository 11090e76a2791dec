#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const NOW: Millis = Millis(1_795_255_200_000);

#[test]
fn the_texts_of_states_are_those_that_readers_of_the_table_know() {
    let known = tidegate_store::tables::callbacks::deliveries::STATES;
    assert_eq!(State::ALL.map(State::name), known);
}

fn schedule() -> Schedule {
    crate::callbacks::Settings::default().rules()
}

fn retry(class: RetryClass) -> Outcome {
    Outcome::Retry { class }
}

fn made(progress: &Progress, outcome: Outcome) -> Made {
    let (number, round) = (progress.attempts + 1, progress.round);
    Made { number, round, at: progress.next_at.unwrap_or(NOW), outcome, retry_after: None }
}

fn attempt(progress: &Progress, outcome: Outcome) -> Progress {
    progress.after_attempt(&made(progress, outcome), &schedule(), 0.5)
}

#[derive(Clone, Debug)]
enum Step {
    Attempt(Outcome, Option<u64>, f64),
    /// Of an owner that has lost the shard, or written down twice.
    Late(Outcome, i64),
    Missing,
    TooLarge,
    Resend,
    Cancel,
    Hold,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    use RetryClass as C;
    const CLASSES: [C; 7] =
        [C::Unreachable, C::BlockedAddress, C::Redirect, C::Busy, C::Gone, C::ClientError, C::ServerError];
    prop_oneof![1 => Just(Outcome::Delivered), 9 => prop::sample::select(&CLASSES[..]).prop_map(retry)]
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
        Step::Attempt(outcome, wish, draw) if progress.is_owed() => {
            let made = Made { retry_after: wish.map(Duration::from_secs), ..made(progress, *outcome) };
            progress.after_attempt(&made, &schedule(), *draw)
        }
        Step::Attempt(..) => progress.clone(),
        Step::Late(outcome, behind) => {
            let number = (progress.attempts - behind).max(1);
            progress.after_attempt(&Made { number, ..made(progress, *outcome) }, &schedule(), 0.5)
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
    fn every_path_is_visible_and_bounded_and_a_delivery_is_never_taken_back(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let schedule = schedule();
        let mut progress = Progress::new(NOW);
        for step in steps {
            let next = take(&progress, &step);
            prop_assert!(next.tries <= 12, "more than twelve attempts in a round");
            prop_assert!(next.attempts >= progress.attempts && next.round >= progress.round);
            match next.state {
                State::Pending | State::RetryWait => prop_assert!(next.next_at.is_some(), "owed without a time"),
                State::Held => prop_assert!(next.held_reason.is_some(), "held without a reason"),
                State::Delivered => prop_assert!(next.delivered_at.is_some() && next.next_at.is_none()),
                State::TooLarge => {
                    prop_assert!(next.held_reason.is_some(), "too large without a reason");
                    prop_assert!(next.next_at.is_none() && next.delivered_at.is_none());
                }
                State::Exhausted | State::Canceled => {
                    prop_assert!(next.next_at.is_none() && next.delivered_at.is_none());
                }
            }
            if progress.delivered_at.is_some() {
                prop_assert_eq!(next.delivered_at, progress.delivered_at);
            }
            if progress.state == State::Delivered && next.state != State::Delivered {
                prop_assert!(matches!(step, Step::Resend), "{:?} took a delivery back", step);
            }
            if let (Step::Attempt(outcome, ..), true) = (&step, progress.is_owed()) {
                prop_assert_eq!(next.attempts, progress.attempts + 1);
                if *outcome == Outcome::Delivered {
                    prop_assert_eq!(next.state, State::Delivered);
                }
                if let (State::RetryWait, Some(at)) = (next.state, next.next_at) {
                    let base = schedule.pauses[usize::try_from(next.tries).unwrap()].as_secs_f64();
                    let was = made(&progress, *outcome).at;
                    let pause = Duration::from_millis((at.0 - was.0).unsigned_abs()).as_secs_f64();
                    prop_assert!(pause >= base * 0.799 && pause <= base * 2.001, "{} after {}", pause, base);
                }
            }
            progress = next;
        }
        // However it stands, attempts that fail end it.
        for _ in 0..12 {
            if progress.is_owed() {
                progress = attempt(&progress, retry(RetryClass::ServerError));
            }
        }
        prop_assert!(!progress.is_owed());
    }
}

#[test]
fn twelve_attempts_take_about_76_hours_and_then_it_is_exhausted() {
    let mut progress = Progress::new(NOW);
    let mut last = NOW;
    for number in 1..=12 {
        assert!(progress.is_owed(), "attempt {number}");
        last = progress.next_at.unwrap();
        progress = attempt(&progress, retry(RetryClass::Unreachable));
        assert_eq!(progress.attempts, number);
    }
    assert_eq!(progress.state, State::Exhausted);
    let hours = (last.0 - NOW.0) / 3_600_000;
    assert!((75..=76).contains(&hours), "{hours}");
}

#[test]
fn a_blocked_address_is_tried_three_times_and_no_more() {
    let mut progress = Progress::new(NOW);
    for _ in 0..2 {
        progress = attempt(&progress, retry(RetryClass::BlockedAddress));
        assert_eq!(progress.state, State::RetryWait);
    }
    assert_eq!(attempt(&progress, retry(RetryClass::BlockedAddress)).state, State::Exhausted);
}

#[test]
fn two_answers_in_a_row_that_it_is_gone_hold_it_until_a_resend() {
    let once = attempt(&Progress::new(NOW), retry(RetryClass::Gone));
    let other = attempt(&once, retry(RetryClass::Busy));
    assert_eq!(attempt(&other, retry(RetryClass::Gone)).state, State::RetryWait, "not in a row");
    let twice = attempt(&once, retry(RetryClass::Gone));
    assert_eq!((twice.state, twice.held_reason.as_deref()), (State::Held, Some(GONE)));
    assert!(!twice.is_owed(), "nothing but a resend helps");
    let again = twice.after_resend(NOW);
    assert!(again.is_owed() && again.tries == 0 && again.gone == 0);
    assert_eq!(again.attempts, 2, "attempts keep their numbers");
}

#[test]
fn a_wish_counts_between_the_pause_and_twice_of_it() {
    let rules = schedule();
    let pause = |wish, draw| rules.pause(1, Some(Duration::from_secs(wish)), draw).unwrap().as_secs_f64();
    assert!((pause(0, 0.0) - 5.0).abs() < 1e-9);
    assert!((pause(7, 0.0) - 7.0).abs() < 1e-9);
    assert!(pause(7, 1.0) > 7.0, "those who were told the same time spread");
    assert!((pause(u64::MAX, 1.0) - 10.0).abs() < 1e-9);
}

#[test]
fn what_is_missing_costs_no_attempt() {
    let later = Millis(NOW.0 + 1_000);
    let held = attempt(&Progress::new(NOW), retry(RetryClass::Busy)).after_missing("secret_missing", later);
    assert_eq!((held.state, held.next_at, held.tries), (State::Held, Some(later), 1));
    assert_eq!(attempt(&held, Outcome::Delivered).state, State::Delivered);
}

#[test]
fn a_late_failure_never_overwrites_a_delivery() {
    let mut late = made(&Progress::new(NOW), retry(RetryClass::ServerError));
    let delivered = attempt(&Progress::new(NOW), Outcome::Delivered);
    assert_eq!(delivered.after_attempt(&late, &schedule(), 0.5), delivered);
    late.number = 2;
    let counted = delivered.after_attempt(&late, &schedule(), 0.5);
    assert_eq!((counted.state, counted.attempts), (State::Delivered, 2));
}

#[test]
fn an_attempt_under_way_outlives_commands() {
    let progress = Progress::new(NOW);
    let success = made(&progress, Outcome::Delivered);
    let canceled = progress.after_cancel();
    assert_eq!(canceled.after_attempt(&success, &schedule(), 0.5).state, State::Delivered);
    let failure = Made { outcome: retry(RetryClass::Busy), ..success };
    assert_eq!(canceled.after_attempt(&failure, &schedule(), 0.5).state, State::Canceled);
    let resent = progress.after_resend(NOW).after_attempt(&success, &schedule(), 0.5);
    assert_eq!(resent.state, State::Pending, "the resend is still owed");
    assert!(resent.delivered_at.is_some());
}

#[test]
fn a_resend_that_comes_to_nothing_takes_nothing_back() {
    let delivered = attempt(&Progress::new(NOW), Outcome::Delivered);
    let mut again = delivered.after_resend(NOW);
    assert_eq!(again.after_cancel().state, State::Delivered);
    while again.is_owed() {
        again = attempt(&again, retry(RetryClass::Unreachable));
    }
    assert_eq!(again.state, State::Delivered);
    assert_eq!(again.delivered_at, delivered.delivered_at);
}

#[test]
fn states_are_read_back_by_their_names() {
    for state in State::ALL {
        assert_eq!(State::parse(state.name()), Some(state));
    }
    assert_eq!(State::parse("inflight"), None);
}
