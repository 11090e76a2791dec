//! State machine of a delivery: what an attempt or a command makes of it, and when it is attempted next.
//!
//! Pure: the time and random numbers are passed in.

use std::{borrow::Cow, time::Duration};

use tidegate_egress::outcome::{Outcome, RetryClass};
use tidegate_schemas::ids::Millis;
use tidegate_store::tables::callbacks::deliveries::DeliveryState;

/// Reason why no attempt is made, as the delivery's row stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldReason {
    ByCommand,
    /// The endpoint answered that it is gone.
    EndpointGone,
    BodyTooLarge,
    /// Something that a call needs is missing or unusable here: the tag of the error.
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
    /// Number of attempts in all rounds. It numbers them.
    pub(crate) attempts: i64,
    /// Number of resends. Each begins a round with a schedule of its own.
    pub(crate) round: i64,
    /// Number of attempts in this round.
    pub(crate) tries: i64,
    /// Number of attempts in this round that met an address which may not be called.
    pub(crate) blocked: i64,
    /// Number of answers in a row that the endpoint is gone.
    pub(crate) gone: i64,
    /// Time of the next attempt. A held delivery with a time is checked again for what was missing; one without waits
    /// for a resend.
    pub(crate) next_at: Option<Millis>,
    /// Time of the first success. Never cleared: whatever fails later, the endpoint has the event.
    pub(crate) delivered_at: Option<Millis>,
    pub(crate) held_reason: Option<HoldReason>,
}

/// Pauses between attempts, and the ends of a round.
#[derive(Clone, Debug)]
pub(crate) struct RetrySchedule {
    /// Pause before each attempt. There are as many attempts as pauses.
    pub(crate) pauses: Vec<Duration>,
    /// Fraction by which a pause may be shorter or longer.
    pub(crate) jitter: f64,
    /// Number of attempts that may meet an address which may not be called before the round ends.
    pub(crate) blocked: i64,
    /// Number of answers in a row that the endpoint is gone before the delivery is held.
    pub(crate) gone: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinishedAttempt {
    pub(crate) number: i64,
    pub(crate) round: i64,
    pub(crate) ended_at: Millis,
    pub(crate) outcome: Outcome,
    /// Pause that the endpoint asked for.
    pub(crate) retry_after: Option<Duration>,
}

impl Progress {
    pub(crate) const fn new(now: Millis) -> Self {
        Self {
            state: DeliveryState::Pending,
            attempts: 0,
            round: 0,
            tries: 0,
            blocked: 0,
            gone: 0,
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

    /// Applies an attempt. `random` is between 0 and 1 and decides the jitter of the next pause.
    #[must_use]
    pub(crate) fn after_attempt(
        &self,
        attempt: &FinishedAttempt,
        schedule: &RetrySchedule,
        random: f64,
    ) -> Self {
        let mut next = self.clone();
        // An attempt that is not new was counted by an earlier try to write it down, or by another owner of the shard.
        let is_new = attempt.number > self.attempts;
        if is_new {
            next.attempts = attempt.number;
        }
        let is_of_round = attempt.round == self.round;
        if is_new && is_of_round {
            next.tries += 1;
        }
        let Outcome::Retry { class } = attempt.outcome else {
            next.delivered_at = self.delivered_at.or(Some(attempt.ended_at));
            // A resend that came during the attempt still needs an attempt of its own.
            if is_of_round {
                next.enter(DeliveryState::Delivered);
            }
            return next;
        };
        if !is_new || !is_of_round || !self.needs_attempt() {
            return next;
        }
        next.gone = if class == RetryClass::Gone { self.gone + 1 } else { 0 };
        next.blocked += i64::from(class == RetryClass::BlockedAddress);
        if next.gone >= schedule.gone {
            next.hold(HoldReason::EndpointGone, None);
        } else if next.blocked >= schedule.blocked {
            next.exhaust();
        } else if let Some(pause) = schedule.pause(next.tries, attempt.retry_after, random) {
            next.enter(DeliveryState::RetryWait);
            next.next_at = Some(attempt.ended_at.plus(pause));
        } else {
            next.exhaust();
        }
        next
    }

    /// Holds the delivery because something that the attempt needs is missing here. Counts no attempt.
    #[must_use]
    pub(crate) fn after_missing(&self, tag: &'static str, recheck_at: Millis) -> Self {
        let mut next = self.clone();
        if self.needs_attempt() {
            next.hold(HoldReason::Missing(Cow::Borrowed(tag)), Some(recheck_at));
        }
        next
    }

    /// Ends the delivery because its body is above the limit, however often it is resent.
    #[must_use]
    pub(crate) fn after_too_large(&self) -> Self {
        let mut next = self.clone();
        next.enter(DeliveryState::TooLarge);
        next.held_reason = Some(HoldReason::BodyTooLarge);
        next.restore_delivered();
        next
    }

    /// Begins a new round at once, whatever the state.
    #[must_use]
    pub(crate) fn after_resend(&self, now: Millis) -> Self {
        Self {
            round: self.round + 1,
            attempts: self.attempts,
            delivered_at: self.delivered_at,
            ..Self::new(now)
        }
    }

    /// Makes no further attempt. A running one may still deliver the event.
    #[must_use]
    pub(crate) fn after_cancel(&self) -> Self {
        let mut next = self.clone();
        if matches!(self.state, DeliveryState::Pending | DeliveryState::RetryWait | DeliveryState::Held) {
            next.enter(DeliveryState::Canceled);
            next.restore_delivered();
        }
        next
    }

    /// Makes no further attempt until a resend.
    #[must_use]
    pub(crate) fn after_hold(&self) -> Self {
        let mut next = self.clone();
        if self.needs_attempt() {
            next.hold(HoldReason::ByCommand, None);
        }
        next
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

    /// Keeps a delivered event delivered when a resend of it fails.
    fn restore_delivered(&mut self) {
        if self.delivered_at.is_some() {
            self.state = DeliveryState::Delivered;
            self.held_reason = None;
        }
    }
}

impl RetrySchedule {
    /// Returns the pause before the first attempt.
    pub(crate) fn first(&self) -> Duration {
        self.pauses.first().copied().unwrap_or_default()
    }

    /// Returns the pause after `tries` attempts of a round, `None` after the last. The pause that the endpoint asked for
    /// counts if it is between the scheduled one and twice as long.
    fn pause(&self, tries: i64, retry_after: Option<Duration>, random: f64) -> Option<Duration> {
        let scheduled = *self.pauses.get(usize::try_from(tries).ok()?)?;
        Some(match retry_after {
            // Jitter, so that deliveries which were told the same time are not all attempted at that time.
            Some(retry_after) => {
                let longest = scheduled.saturating_mul(2);
                retry_after.min(longest).mul_f64(1.0 + self.jitter * random).clamp(scheduled, longest)
            }
            None => scheduled.mul_f64(1.0 - self.jitter + 2.0 * self.jitter * random),
        })
    }
}

#[cfg(test)]
#[path = "tests/delivery_state.rs"]
mod tests;
