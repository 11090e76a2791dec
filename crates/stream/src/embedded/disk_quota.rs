//! Bytes that may still be appended before the disk, or its configured share, is full.
//!
//! The disk watch measures, and the writer counts down between two measurements.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Largest append of one request, in bytes.
const LARGEST_APPEND: i64 = 10 << 20;

/// Class of an append, which decides how much of the quota it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppendClass {
    /// New work of a request.
    Request,
    /// Effects of accepted work.
    Reserved,
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiskUsage {
    pub(super) used: u64,
    pub(super) free: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) max_bytes: u64,
    /// Bytes of the disk that requests must leave free.
    pub(super) keep_from_requests: u64,
    /// Bytes of the disk that every append must leave free.
    pub(super) keep_from_all: u64,
}

/// Bytes that each class may still append. Negative: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headroom {
    pub(super) request: i64,
    pub(super) reserved: i64,
}

pub(super) fn headroom(limits: Limits, measured: DiskUsage) -> Headroom {
    let remaining = |limit: u64, min_free: u64| {
        let of_share = if limits.max_bytes == 0 { i64::MAX } else { difference(limit, measured.used) };
        of_share.min(difference(measured.free, min_free))
    };
    Headroom {
        // The last tenth is reserved for effects of accepted requests.
        request: remaining(limits.max_bytes / 10 * 9, limits.keep_from_requests),
        reserved: remaining(limits.max_bytes, limits.keep_from_all),
    }
}

fn difference(a: u64, b: u64) -> i64 {
    // The difference of two u64 values can exceed an i64.
    i64::try_from(i128::from(a) - i128::from(b)).unwrap_or(if a > b { i64::MAX } else { i64::MIN })
}

/// Bytes that remain, counted down between two measurements.
#[derive(Debug)]
pub(super) struct DiskQuota {
    request: AtomicI64,
    reserved: AtomicI64,
    /// Bytes of the disk that requests must leave free, for messages.
    kept_bytes: AtomicU64,
}

impl Default for DiskQuota {
    fn default() -> Self {
        Self {
            request: AtomicI64::new(i64::MAX),
            reserved: AtomicI64::new(i64::MAX),
            kept_bytes: AtomicU64::new(0),
        }
    }
}

impl DiskQuota {
    pub(super) fn set(&self, headroom: Headroom, kept_bytes: u64) {
        self.kept_bytes.store(kept_bytes, Ordering::Release);
        self.request.store(headroom.request, Ordering::Release);
        self.reserved.store(headroom.reserved, Ordering::Release);
    }

    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Ordering::Acquire)
    }

    pub(super) fn admits(&self, class: AppendClass, bytes: usize) -> bool {
        let remaining = match class {
            AppendClass::Request => &self.request,
            AppendClass::Reserved => &self.reserved,
        };
        remaining.load(Ordering::Acquire) >= i64::try_from(bytes).unwrap_or(i64::MAX)
    }

    /// True if the headroom of requests is smaller than their largest append.
    pub(super) fn is_full(&self) -> bool {
        self.request.load(Ordering::Acquire) < LARGEST_APPEND
    }

    /// Counts written bytes. Returns true if no headroom for requests remains, so that the caller requests a measurement.
    pub(super) fn spend(&self, bytes: usize) -> bool {
        // Bytes exist twice, in the journal and in a table, until the journal is dropped.
        let twice = i64::try_from(bytes).unwrap_or(i64::MAX).saturating_mul(2);
        let spend = |remaining: &AtomicI64| {
            // `i64::MAX` means no limit, which is not counted down.
            let before = remaining.load(Ordering::Acquire);
            if before == i64::MAX { before } else { remaining.fetch_sub(twice, Ordering::AcqRel) - twice }
        };
        let _reserved = spend(&self.reserved);
        spend(&self.request) <= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_stop_at_nine_tenths_of_the_size_limit() {
        let limits = Limits { max_bytes: 1_000, keep_from_requests: 0, keep_from_all: 0 };
        assert_eq!(
            headroom(limits, DiskUsage { used: 900, free: u64::MAX }),
            Headroom { request: 0, reserved: 100 }
        );
    }

    #[test]
    fn free_bytes_of_the_disk_are_kept_without_a_size_limit() {
        let limits = Limits { max_bytes: 0, keep_from_requests: 400, keep_from_all: 100 };
        assert_eq!(
            headroom(limits, DiskUsage { used: 1 << 40, free: 300 }),
            Headroom { request: -100, reserved: 200 }
        );
    }

    #[test]
    fn written_bytes_count_before_they_are_measured() {
        let quota = DiskQuota::default();
        quota.set(Headroom { request: 100, reserved: 200 }, 0);
        assert!(quota.admits(AppendClass::Request, 100));
        assert!(quota.spend(50));
        assert!(!quota.admits(AppendClass::Request, 1));
        assert!(quota.admits(AppendClass::Reserved, 100));
    }

    #[test]
    fn quota_is_full_until_any_append_fits() {
        let quota = DiskQuota::default();
        assert!(!quota.is_full(), "nothing limits it");
        let remaining = |request| Headroom { request, reserved: 1 << 40 };
        for (request, is_full) in [(0, true), (LARGEST_APPEND - 1, true), (LARGEST_APPEND, false)] {
            quota.set(remaining(request), 0);
            assert_eq!(quota.is_full(), is_full, "{request}");
        }
        quota.spend(1);
        assert!(quota.is_full());
    }
}
