//! What a delivery waits for, what an attempt or a command makes of it, and when it is looked at next.
//!
//! It is pure: it sends nothing, reads no clock and draws nothing by itself.
//!
//! Attempts under way are not a state. Whatever is owed has a due row at or after `next_at`, so a crash during an
//! attempt leaves a delivery that comes due again.

use std::time::Duration;

use tidegate_egress::outcome::{Outcome, RetryClass};
use tidegate_schemas::ids::Millis;

/// The text in the delivery's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The next attempt is the first of its round.
    Pending,
    RetryWait,
    Delivered,
    /// No attempt is made: something is missing, the receiver wants no more, or an operator said so.
    Held,
    /// Its body is larger than one may be: no attempt is made until a resend under a higher limit.
    TooLarge,
    /// Every attempt of the round failed.
    Exhausted,
    Canceled,
}

impl State {
    const ALL: [Self; 7] = [
        Self::Pending,
        Self::RetryWait,
        Self::Delivered,
        Self::Held,
        Self::TooLarge,
        Self::Exhausted,
        Self::Canceled,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::RetryWait => "retry_wait",
            Self::Delivered => "delivered",
            Self::Held => "held",
            Self::TooLarge => "too_large",
            Self::Exhausted => "exhausted",
            Self::Canceled => "canceled",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// Held by an operator's command.
pub(crate) const BY_COMMAND: &str = "by_command";
/// Held because the receiver said that it is gone.
pub(crate) const GONE: &str = "endpoint_gone";

/// Why a body that is too large is not sent.
pub(crate) const BODY_TOO_LARGE: &str = "body_too_large";

/// How far a delivery is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) state: State,
    /// All attempts, over all rounds; it numbers them.
    pub(crate) attempts: i64,
    /// A resend begins a new round with a schedule of its own.
    pub(crate) round: i64,
    /// Attempts of this round.
    pub(crate) tries: i64,
    pub(crate) blocked: i64,
    pub(crate) gone: i64,
    /// When it is looked at next. Held with it: what is missing is looked for again; without: until a resend.
    pub(crate) next_at: Option<Millis>,
    /// Only ever set. Whatever fails later, the receiver has the event.
    pub(crate) delivered_at: Option<Millis>,
    pub(crate) held_reason: Option<String>,
}

/// When a round ends.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// The pause before each attempt; as many attempts as pauses.
    pub(crate) pauses: Vec<Duration>,
    /// How far a pause may be off, as a fraction of it.
    pub(crate) jitter: f64,
    /// So many attempts of a round may meet an address that may not be called.
    pub(crate) blocked: i64,
    /// So many answers in a row that the receiver is gone hold the delivery.
    pub(crate) gone: i64,
}

/// An attempt that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) number: i64,
    pub(crate) round: i64,
    /// When it ended.
    pub(crate) at: Millis,
    pub(crate) outcome: Outcome,
    /// The receiver's wish.
    pub(crate) retry_after: Option<Duration>,
}

impl Progress {
    pub(crate) const fn new(now: Millis) -> Self {
        Self {
            state: State::Pending,
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

    /// Whether an attempt is to be made, now or later.
    pub(crate) const fn is_owed(&self) -> bool {
        match self.state {
            State::Pending | State::RetryWait => true,
            State::Held => self.next_at.is_some(),
            State::Delivered | State::TooLarge | State::Exhausted | State::Canceled => false,
        }
    }

    /// What an attempt makes of it. `draw` is between 0 and 1 and decides the jitter of the next pause.
    #[must_use]
    pub(crate) fn after_attempt(&self, made: &Made, schedule: &Schedule, draw: f64) -> Self {
        let mut next = self.clone();
        // Counted before, by an earlier try to write it down or by another owner of the shard.
        let is_new = made.number > self.attempts;
        if is_new {
            next.attempts = made.number;
        }
        let is_of_round = made.round == self.round;
        if is_new && is_of_round {
            next.tries += 1;
        }
        let Outcome::Retry { class } = made.outcome else {
            next.delivered_at = self.delivered_at.or(Some(made.at));
            // What a later resend asks for is still owed.
            if is_of_round {
                next.settle(State::Delivered);
            }
            return next;
        };
        if !is_new || !is_of_round || !self.is_owed() {
            return next;
        }
        next.gone = if class == RetryClass::Gone { self.gone + 1 } else { 0 };
        next.blocked += i64::from(class == RetryClass::BlockedAddress);
        if next.gone >= schedule.gone {
            next.hold(GONE, None);
        } else if next.blocked >= schedule.blocked {
            next.end();
        } else if let Some(pause) = schedule.pause(next.tries, made.retry_after, draw) {
            next.settle(State::RetryWait);
            next.next_at = Some(made.at.plus(pause));
        } else {
            next.end();
        }
        next
    }

    /// Something that the attempt needs is missing here: no attempt is made, and none is counted.
    #[must_use]
    pub(crate) fn after_missing(&self, reason: &str, look_again: Millis) -> Self {
        let mut next = self.clone();
        if self.is_owed() {
            next.hold(reason, Some(look_again));
        }
        next
    }

    /// It is not sent as it is, however often it is asked for.
    #[must_use]
    pub(crate) fn after_too_large(&self) -> Self {
        let mut next = self.clone();
        next.settle(State::TooLarge);
        next.held_reason = Some(BODY_TOO_LARGE.to_owned());
        next.keep_delivered();
        next
    }

    /// Owed again at once, whatever its state, with a round of its own.
    #[must_use]
    pub(crate) fn after_resend(&self, now: Millis) -> Self {
        Self {
            round: self.round + 1,
            attempts: self.attempts,
            delivered_at: self.delivered_at,
            ..Self::new(now)
        }
    }

    /// No further attempt. One under way may still deliver it.
    #[must_use]
    pub(crate) fn after_cancel(&self) -> Self {
        let mut next = self.clone();
        if matches!(self.state, State::Pending | State::RetryWait | State::Held) {
            next.settle(State::Canceled);
            next.keep_delivered();
        }
        next
    }

    /// No further attempt until a resend.
    #[must_use]
    pub(crate) fn after_hold(&self) -> Self {
        let mut next = self.clone();
        if self.is_owed() {
            next.hold(BY_COMMAND, None);
        }
        next
    }

    fn settle(&mut self, state: State) {
        self.state = state;
        self.next_at = None;
        self.held_reason = None;
    }

    fn hold(&mut self, reason: &str, look_again: Option<Millis>) {
        self.state = State::Held;
        self.next_at = look_again;
        self.held_reason = Some(reason.to_owned());
    }

    fn end(&mut self) {
        self.settle(State::Exhausted);
        self.keep_delivered();
    }

    /// A resend that came to nothing takes nothing back.
    fn keep_delivered(&mut self) {
        if self.delivered_at.is_some() {
            self.state = State::Delivered;
            self.held_reason = None;
        }
    }
}

impl Schedule {
    /// The pause before the first attempt.
    pub(crate) fn first(&self) -> Duration {
        self.pauses.first().copied().unwrap_or_default()
    }

    /// The pause after so many attempts of a round; none after the last. The receiver's wish counts between the
    /// scheduled pause and twice of it.
    fn pause(&self, tries: i64, wish: Option<Duration>, draw: f64) -> Option<Duration> {
        let base = *self.pauses.get(usize::try_from(tries).ok()?)?;
        Some(match wish {
            // Those who were told the same time do not all come at it.
            Some(wish) => {
                let longest = base.saturating_mul(2);
                wish.min(longest).mul_f64(1.0 + self.jitter * draw).clamp(base, longest)
            }
            None => base.mul_f64(1.0 - self.jitter + 2.0 * self.jitter * draw),
        })
    }
}

#[cfg(test)]
#[path = "tests/delivery_state.rs"]
mod tests;
