//! Memory that all decoding shares: a share is waited for in the order of asking, and given back when it is dropped.
//!
//! How much a picture needs is estimated where it is decoded.

use parking_lot::{Condvar, Mutex};

use super::Refusal;
use crate::fingerprint::reason;

pub(crate) struct Budget {
    bytes: u64,
    turns: Mutex<Turns>,
    changed: Condvar,
}

struct Turns {
    free: u64,
    /// The number that the next one to ask gets, and the one whose turn it is. Without turns, a large picture would wait
    /// for as long as small ones arrive.
    next: u64,
    current: u64,
}

/// Memory that its holder may use.
#[must_use]
pub(crate) struct Share<'a> {
    of: &'a Budget,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        let turns = Turns { free: bytes, next: 0, current: 0 };
        Self { bytes, turns: Mutex::new(turns), changed: Condvar::new() }
    }

    /// Waits for so much memory. Whoever holds a share must not ask for another one: two could wait for each other.
    pub(crate) fn share(&self, bytes: u64) -> Result<Share<'_>, Refusal> {
        if bytes > self.bytes {
            return Err(Refusal::TooLarge(reason::MEMORY));
        }
        let mut turns = self.turns.lock();
        let mine = turns.next;
        turns.next += 1;
        self.changed.wait_while(&mut turns, |turns| turns.current != mine || turns.free < bytes);
        turns.current += 1;
        turns.free -= bytes;
        self.changed.notify_all();
        Ok(Share { of: self, bytes })
    }
}

impl Share<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.of.turns.lock().free += self.bytes;
        self.of.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn shares_never_exceed_the_budget_and_everybody_gets_one() {
        let budget = Budget::new(100);
        let (held, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (budget, held, peak) = (&budget, &held, &peak);
                scope.spawn(move || {
                    for round in 0..500 {
                        let bytes = 1 + (thread * 37 + round * 13) % 100;
                        let share = budget.share(bytes).unwrap();
                        let now = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        peak.fetch_max(now, Ordering::SeqCst);
                        std::thread::yield_now();
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        drop(share);
                    }
                });
            }
        });
        assert!(peak.into_inner() <= 100);
        assert_eq!(budget.turns.lock().free, 100);
    }

    #[test]
    fn what_never_fits_is_refused_at_once() {
        let budget = Budget::new(100);
        let share = budget.share(100).unwrap();
        assert!(matches!(budget.share(101), Err(Refusal::TooLarge(reason::MEMORY))));
        drop(share);
        drop(budget.share(100).unwrap());
    }
}
