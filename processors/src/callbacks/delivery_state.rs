//! State machine of a delivery: applies attempts and commands, and computes the time of the next attempt.
//!
//! Pure: the time and random numbers are passed in.

use std::{borrow::Cow, time::Duration};

use tidegate_egress::outcome::{Outcome, RetryClass};
use tidegate_schemas::ids::Millis;
use tidegate_store::tables::callbacks::deliveries::DeliveryState;

/// Reason of a delivery without further attempts, as stored in its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldReason {
    ByCommand,
    /// The endpoint answered with status 410 (Gone).
    EndpointGone,
    BodyTooLarge,
    /// Tag of the error: endpoint, secret or header variable is missing or unusable in this process.
    Missing(Cow<'static, str>),
}

impl HoldReason {
    const BY_COMMAND: &str = "by_command";
    const ENDPOINT_GONE: &str = "endpoint_gone";
    const BODY_TOO_LARGE: &str = "body_too_large";

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::ByCommand => Self::BY_COMMAND,
            Self::EndpointGone => Self::ENDPOINT_GONE,
            Self::BodyTooLarge => Self::BODY_TOO_LARGE,
            Self::Missing(tag) => tag,
        }
    }

    pub(crate) fn from_stored(text: &str) -> Self {
        match text {
            Self::BY_COMMAND => Self::ByCommand,
            Self::ENDPOINT_GONE => Self::EndpointGone,
            Self::BODY_TOO_LARGE => Self::BodyTooLarge,
            tag => Self::Missing(Cow::Owned(tag.to_owned())),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) state: DeliveryState,
    /// Number of attempts in all rounds; also the number of the last attempt.
    pub(crate) attempts: i64,
    /// Number of resends. Each begins a round with a schedule of its own.
    pub(crate) round: i64,
    /// Number of attempts in this round.
    pub(crate) tries: i64,
    /// Number of attempts in this round that resolved to a blocked address.
    pub(crate) blocked_attempts: i64,
    /// Number of consecutive answers with status 410.
    pub(crate) gone_answers: i64,
    /// Time of the next attempt. A held delivery with a time is checked again at that time; a held delivery without one
    /// waits for a resend.
    pub(crate) next_at: Option<Millis>,
    /// Time of the first success. Kept when a later resend fails, because the endpoint has the event.
    pub(crate) delivered_at: Option<Millis>,
    pub(crate) held_reason: Option<HoldReason>,
}

/// Pauses between attempts, and the limits that end a round.
#[derive(Clone, Debug)]
pub(crate) struct RetrySchedule {
    /// Pause before each attempt. There are as many attempts as pauses.
    pub(crate) pauses: Vec<Duration>,
    /// Fraction by which a pause may be shorter or longer.
    pub(crate) jitter: f64,
    /// Number of attempts at blocked addresses that exhausts the delivery.
    pub(crate) max_blocked_attempts: i64,
    /// Number of consecutive answers with status 410 that holds the delivery.
    pub(crate) max_gone_answers: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinishedAttempt {
    pub(crate) number: i64,
    pub(crate) round: i64,
    pub(crate) ended_at: Millis,
    pub(crate) outcome: Outcome,
    /// `Retry-After` of the endpoint's answer.
    pub(crate) retry_after: Option<Duration>,
}

impl Progress {
    pub(crate) const fn new(now: Millis) -> Self {
        Self {
            state: DeliveryState::Pending,
            attempts: 0,
            round: 0,
            tries: 0,
            blocked_attempts: 0,
            gone_answers: 0,
            next_at: Some(now),
            delivered_at: None,
            held_reason: None,
        }
    }

    /// True if an attempt is to be made, now or later.
    pub(crate) const fn needs_attempt(&self) -> bool {
        match self.state {
            DeliveryState::Pending | DeliveryState::RetryWait => true,
            DeliveryState::Held => self.next_at.is_some(),
            DeliveryState::Delivered
            | DeliveryState::TooLarge
            | DeliveryState::Exhausted
            | DeliveryState::Canceled => false,
        }
    }

    /// Applies an attempt. `random`, between 0 and 1, sets the jitter of the next pause.
    #[must_use]
    pub(crate) fn after_attempt(
        &self,
        attempt: &FinishedAttempt,
        schedule: &RetrySchedule,
        random: f64,
    ) -> Self {
        let mut progress = self.clone();
        // An attempt with a known number was counted by an earlier write, or by another owner of the shard.
        let is_new = attempt.number > self.attempts;
        if is_new {
            progress.attempts = attempt.number;
        }
        let is_current_round = attempt.round == self.round;
        if is_new && is_current_round {
            progress.tries += 1;
        }
        let Outcome::Retry { class } = attempt.outcome else {
            progress.delivered_at = self.delivered_at.or(Some(attempt.ended_at));
            // A resend during the attempt started a new round, and that round needs an attempt of its own.
            if is_current_round {
                progress.enter(DeliveryState::Delivered);
            }
            return progress;
        };
        // A command or another attempt has decided the next state; a late failure must not overwrite it.
        if !is_new || !is_current_round || !self.needs_attempt() {
            return progress;
        }
        // Any other answer ends the series.
        progress.gone_answers = if class == RetryClass::Gone { self.gone_answers + 1 } else { 0 };
        progress.blocked_attempts += i64::from(class == RetryClass::BlockedAddress);
        if progress.gone_answers >= schedule.max_gone_answers {
            progress.hold(HoldReason::EndpointGone, None);
        } else if progress.blocked_attempts >= schedule.max_blocked_attempts {
            progress.exhaust();
        } else if let Some(pause) = schedule.next_pause(progress.tries, attempt.retry_after, random) {
            progress.enter(DeliveryState::RetryWait);
            progress.next_at = Some(attempt.ended_at.plus(pause));
        } else {
            progress.exhaust();
        }
        progress
    }

    /// Holds the delivery because its endpoint, secret or header variable is missing. Counts no attempt.
    #[must_use]
    pub(crate) fn after_missing(&self, tag: &'static str, recheck_at: Millis) -> Self {
        let mut progress = self.clone();
        if self.needs_attempt() {
            progress.hold(HoldReason::Missing(Cow::Borrowed(tag)), Some(recheck_at));
        }
        progress
    }

    /// Ends the delivery because its body is above the limit. A resend ends in the same state.
    #[must_use]
    pub(crate) fn after_too_large(&self) -> Self {
        let mut progress = self.clone();
        progress.enter(DeliveryState::TooLarge);
        progress.held_reason = Some(HoldReason::BodyTooLarge);
        progress.restore_delivered();
        progress
    }

    /// Starts a new round at once, from any state.
    #[must_use]
    pub(crate) fn after_resend(&self, now: Millis) -> Self {
        Self {
            round: self.round + 1,
            attempts: self.attempts,
            delivered_at: self.delivered_at,
            ..Self::new(now)
        }
    }

    /// Cancels further attempts. A running attempt may still deliver the event.
    #[must_use]
    pub(crate) fn after_cancel(&self) -> Self {
        let mut progress = self.clone();
        if matches!(self.state, DeliveryState::Pending | DeliveryState::RetryWait | DeliveryState::Held) {
            progress.enter(DeliveryState::Canceled);
            progress.restore_delivered();
        }
        progress
    }

    /// Holds the delivery until a resend.
    #[must_use]
    pub(crate) fn after_hold(&self) -> Self {
        let mut progress = self.clone();
        if self.needs_attempt() {
            progress.hold(HoldReason::ByCommand, None);
        }
        progress
    }

    fn enter(&mut self, state: DeliveryState) {
        self.state = state;
        self.next_at = None;
        self.held_reason = None;
    }

    fn hold(&mut self, reason: HoldReason, recheck_at: Option<Millis>) {
        self.state = DeliveryState::Held;
        self.next_at = recheck_at;
        self.held_reason = Some(reason);
    }

    fn exhaust(&mut self) {
        self.enter(DeliveryState::Exhausted);
        self.restore_delivered();
    }

    /// Restores the state `Delivered` of a delivered event after a failed resend.
    fn restore_delivered(&mut self) {
        if self.delivered_at.is_some() {
            self.state = DeliveryState::Delivered;
            self.held_reason = None;
        }
    }
}

impl RetrySchedule {
    /// Returns the pause before the first attempt.
    pub(crate) fn first_pause(&self) -> Duration {
        self.pauses.first().copied().unwrap_or_default()
    }

    /// Returns the pause after `tries` attempts of a round, `None` after the last. `Retry-After` is clamped between the
    /// scheduled pause and twice that pause.
    fn next_pause(&self, tries: i64, retry_after: Option<Duration>, random: f64) -> Option<Duration> {
        let scheduled_pause = *self.pauses.get(usize::try_from(tries).ok()?)?;
        Some(match retry_after {
            // An overloaded endpoint sends the same `Retry-After` to many deliveries; jitter spreads their next attempts.
            Some(retry_after) => {
                let longest_pause = scheduled_pause.saturating_mul(2);
                retry_after
                    .min(longest_pause)
                    .mul_f64(1.0 + self.jitter * random)
                    .clamp(scheduled_pause, longest_pause)
            }
            None => scheduled_pause.mul_f64(1.0 - self.jitter + 2.0 * self.jitter * random),
        })
    }
}

#[cfg(test)]
#[path = "tests/delivery_state.rs"]
mod tests;
