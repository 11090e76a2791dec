//! Memory budget shared by all decoders: grants reservations in order of request; dropping a reservation returns its bytes.

use parking_lot::{Condvar, Mutex};

use super::DecodeError;

pub struct MemoryBudget {
    bytes: u64,
    queue: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    free_bytes: u64,
    /// Tickets of the next caller and of the caller being served. Without tickets, a steady flow of small pictures would
    /// starve a large one.
    next_ticket: u64,
    served_ticket: u64,
}

/// Memory granted to its holder.
#[must_use]
pub(crate) struct Reservation<'a> {
    budget: &'a MemoryBudget,
    bytes: u64,
}

impl MemoryBudget {
    pub fn new(bytes: u64) -> Self {
        let queue = Queue { free_bytes: bytes, next_ticket: 0, served_ticket: 0 };
        Self { bytes, queue: Mutex::new(queue), changed: Condvar::new() }
    }

    /// Waits until `bytes` are free. The holder of a reservation must not request another one, because two such holders
    /// could wait for each other (deadlock).
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Reservation<'_>, DecodeError> {
        if bytes > self.bytes {
            return Err(DecodeError::OUT_OF_MEMORY);
        }
        let mut queue = self.queue.lock();
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        self.changed
            // Only the holder of the served ticket takes memory, even if a later request would fit.
            .wait_while(&mut queue, |queue| queue.served_ticket != ticket || queue.free_bytes < bytes);
        queue.served_ticket += 1;
        queue.free_bytes -= bytes;
        // The next ticket may fit into the remaining memory.
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
        self.budget.queue.lock().free_bytes += self.bytes;
        self.budget.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn reservations_never_exceed_the_budget() {
        let budget = MemoryBudget::new(100);
        let (held, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (budget, held, peak) = (&budget, &held, &peak);
                scope.spawn(move || {
                    for round in 0..500 {
                        let bytes = 1 + (thread * 37 + round * 13) % 100;
                        let reservation = budget.reserve(bytes).unwrap();
                        let held_bytes = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        peak.fetch_max(held_bytes, Ordering::SeqCst);
                        std::thread::yield_now();
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        drop(reservation);
                    }
                });
            }
        });
        assert!(peak.into_inner() <= 100);
        assert_eq!(budget.queue.lock().free_bytes, 100);
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
