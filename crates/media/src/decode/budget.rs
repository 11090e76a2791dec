//! Memory budget that all decoders share: reservations are granted in the order of asking, and returned when dropped.

use parking_lot::{Condvar, Mutex};

use super::DecodeError;

pub(crate) struct MemoryBudget {
    bytes: u64,
    queue: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    free: u64,
    /// Ticket that the next caller gets, and the one that is served. Without tickets, a large picture would wait for as
    /// long as small ones arrive.
    next: u64,
    current: u64,
}

/// Memory that its holder may use.
#[must_use]
pub(crate) struct Reservation<'a> {
    budget: &'a MemoryBudget,
    bytes: u64,
}

impl MemoryBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        let queue = Queue { free: bytes, next: 0, current: 0 };
        Self { bytes, queue: Mutex::new(queue), changed: Condvar::new() }
    }

    /// Waits until so much memory is free. A holder of a reservation must not ask for another one: two could wait for
    /// each other.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Reservation<'_>, DecodeError> {
        if bytes > self.bytes {
            return Err(DecodeError::OUT_OF_MEMORY);
        }
        let mut queue = self.queue.lock();
        let ticket = queue.next;
        queue.next += 1;
        self.changed.wait_while(&mut queue, |queue| queue.current != ticket || queue.free < bytes);
        queue.current += 1;
        queue.free -= bytes;
        self.changed.notify_all();
        Ok(Reservation { budget: self, bytes })
    }
}

impl Reservation<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.budget.queue.lock().free += self.bytes;
        self.budget.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn reservations_never_exceed_the_budget_and_everybody_gets_one() {
        let budget = MemoryBudget::new(100);
        let (held, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (budget, held, peak) = (&budget, &held, &peak);
                scope.spawn(move || {
                    for round in 0..500 {
                        let bytes = 1 + (thread * 37 + round * 13) % 100;
                        let reservation = budget.reserve(bytes).unwrap();
                        let now = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        peak.fetch_max(now, Ordering::SeqCst);
                        std::thread::yield_now();
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        drop(reservation);
                    }
                });
            }
        });
        assert!(peak.into_inner() <= 100);
        assert_eq!(budget.queue.lock().free, 100);
    }

    #[test]
    fn request_above_the_budget_fails_at_once() {
        let budget = MemoryBudget::new(100);
        let reservation = budget.reserve(100).unwrap();
        assert!(matches!(budget.reserve(101), Err(DecodeError::OUT_OF_MEMORY)));
        drop(reservation);
        drop(budget.reserve(100).unwrap());
    }
}
