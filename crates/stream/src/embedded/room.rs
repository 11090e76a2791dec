//! How many bytes may still be appended before the disk, or the share of it that was granted, is used up.
//!
//! It measures nothing: the keeper tells it, and the writer counts down between two measurements.

use std::sync::atomic::{AtomicI64, Ordering};

/// What one request appends at most: its body is bounded, and so is a record.
const LARGEST_APPEND: i64 = 10 << 20;

/// Who wants to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// A request: new work.
    Request,
    /// What accepted work leads to.
    Reserved,
}

/// What a measurement found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) used: u64,
    pub(super) free: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) max_bytes: u64,
    pub(super) min_free_bytes: u64,
}

/// What is left for each claim; below zero none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headroom {
    pub(super) request: i64,
    pub(super) reserved: i64,
}

pub(super) fn headroom(limits: Limits, measured: Measured) -> Headroom {
    let left = |limit: u64, min_free: u64| {
        let of_share = if limits.max_bytes == 0 { i64::MAX } else { difference(limit, measured.used) };
        of_share.min(difference(measured.free, min_free))
    };
    Headroom {
        request: left(limits.max_bytes / 10 * 9, limits.min_free_bytes),
        reserved: left(limits.max_bytes, limits.min_free_bytes / 4),
    }
}

fn difference(a: u64, b: u64) -> i64 {
    i64::try_from(i128::from(a) - i128::from(b)).unwrap_or(if a > b { i64::MAX } else { i64::MIN })
}

/// The counters between two measurements.
#[derive(Debug)]
pub(super) struct Room {
    request: AtomicI64,
    reserved: AtomicI64,
}

impl Default for Room {
    fn default() -> Self {
        Self { request: AtomicI64::new(i64::MAX), reserved: AtomicI64::new(i64::MAX) }
    }
}

impl Room {
    pub(super) fn set(&self, headroom: Headroom) {
        self.request.store(headroom.request, Ordering::Release);
        self.reserved.store(headroom.reserved, Ordering::Release);
    }

    pub(super) fn admits(&self, claim: Claim, bytes: usize) -> bool {
        let left = match claim {
            Claim::Request => &self.request,
            Claim::Reserved => &self.reserved,
        };
        left.load(Ordering::Acquire) >= i64::try_from(bytes).unwrap_or(i64::MAX)
    }

    /// Requests have less left than one append of theirs may take.
    pub(super) fn is_full(&self) -> bool {
        self.request.load(Ordering::Acquire) < LARGEST_APPEND
    }

    /// Bytes were written. True: requests have nothing left, so measure again.
    pub(super) fn spend(&self, bytes: usize) -> bool {
        // Once in the journal and once in a table, until the journal is dropped.
        let twice = i64::try_from(bytes).unwrap_or(i64::MAX).saturating_mul(2);
        let spend = |left: &AtomicI64| {
            // Without a limit there is nothing to count down.
            let before = left.load(Ordering::Acquire);
            if before == i64::MAX { before } else { left.fetch_sub(twice, Ordering::AcqRel) - twice }
        };
        let _reserved = spend(&self.reserved);
        spend(&self.request) <= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_end_at_nine_tenths_and_the_rest_is_reserved() {
        let limits = Limits { max_bytes: 1_000, min_free_bytes: 0 };
        assert_eq!(
            headroom(limits, Measured { used: 900, free: u64::MAX }),
            Headroom { request: 0, reserved: 100 }
        );
    }

    #[test]
    fn the_disk_keeps_its_free_bytes_whatever_the_share_is() {
        let limits = Limits { max_bytes: 0, min_free_bytes: 400 };
        assert_eq!(
            headroom(limits, Measured { used: 1 << 40, free: 300 }),
            Headroom { request: -100, reserved: 200 }
        );
    }

    #[test]
    fn what_is_written_counts_before_it_is_measured() {
        let room = Room::default();
        room.set(Headroom { request: 100, reserved: 200 });
        assert!(room.admits(Claim::Request, 100));
        assert!(room.spend(50));
        assert!(!room.admits(Claim::Request, 1));
        assert!(room.admits(Claim::Reserved, 100));
    }

    #[test]
    fn it_is_full_until_a_measurement_finds_room_for_any_append() {
        let room = Room::default();
        assert!(!room.is_full(), "nothing limits it");
        let left = |request| Headroom { request, reserved: 1 << 40 };
        for (request, is_full) in [(0, true), (LARGEST_APPEND - 1, true), (LARGEST_APPEND, false)] {
            room.set(left(request));
            assert_eq!(room.is_full(), is_full, "{request}");
        }
        room.spend(1);
        assert!(room.is_full());
    }
}
