//! Segments of a partition, some megabytes each, and the limit up to which retention may remove them.
//!
//! Pure: the caller passes the time, and the writer removes the records.

use std::collections::VecDeque;

/// Consecutive records that are removed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) end: i64,
    pub(super) bytes: u64,
    pub(super) last_ms: i64,
}

/// Limits of retention.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetentionRule {
    /// Append time before which records are too old.
    pub(super) oldest_ms: i64,
    /// Largest number of bytes to keep.
    pub(super) max_bytes: u64,
    /// Lowest offset that some group still needs.
    pub(super) barrier: i64,
}

/// Segments of one partition. The last one is open and grows.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    closed: VecDeque<Segment>,
    open: Segment,
    /// Size at which a segment closes, in bytes.
    close_at: u64,
}

impl Segments {
    pub(super) fn new(closed: VecDeque<Segment>, open: Segment, close_at: u64) -> Self {
        Self { closed, open, close_at }
    }

    /// Adds appended records. Returns the segment if it is closed now, so that the caller stores it.
    pub(super) fn append(&mut self, end: i64, bytes: u64, last_ms: i64) -> Option<Segment> {
        self.open = Segment { end, bytes: self.open.bytes + bytes, last_ms };
        if self.open.bytes < self.close_at {
            return None;
        }
        let closed = self.open;
        self.closed.push_back(closed);
        self.open.bytes = 0;
        Some(closed)
    }

    pub(super) const fn open_segment(&self) -> Segment {
        self.open
    }

    /// Returns the bytes of the segments that hold records at or above an offset.
    pub(super) fn bytes_from(&self, offset: i64) -> u64 {
        let closed = self.closed.iter().rev().take_while(|segment| segment.end > offset);
        let open = if self.open.end > offset { self.open.bytes } else { 0 };
        open + closed.map(|segment| segment.bytes).sum::<u64>()
    }

    /// Returns the append time of the last record, the lower bound for the next one.
    pub(super) const fn last_ms(&self) -> i64 {
        self.open.last_ms
    }

    /// Returns the offset up to which records may be removed, if any.
    pub(super) fn trim_point(&self, rule: RetentionRule) -> Option<i64> {
        let mut kept_bytes = self.open.bytes + self.closed.iter().map(|segment| segment.bytes).sum::<u64>();
        let mut point = None;
        for segment in &self.closed {
            let is_old = segment.last_ms < rule.oldest_ms;
            let is_over_size = kept_bytes > rule.max_bytes;
            if segment.end > rule.barrier || !(is_old || is_over_size) {
                // Segments are ordered by age, so no later one can be removed either.
                return point;
            }
            kept_bytes -= segment.bytes;
            point = Some(segment.end);
        }
        // The open segment is removed only if even its newest record is too old.
        if self.open.bytes > 0 && self.open.last_ms < rule.oldest_ms && self.open.end <= rule.barrier {
            return Some(self.open.end);
        }
        point
    }

    /// Removes the segments that end at or before an offset, and returns the closed ones.
    pub(super) fn trim(&mut self, before: i64) -> Vec<Segment> {
        let removed_count = self.closed.partition_point(|segment| segment.end <= before);
        let removed_segments = self.closed.drain(..removed_count).collect();
        if self.open.end <= before {
            self.open.bytes = 0;
        }
        removed_segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP_ALL: RetentionRule = RetentionRule { oldest_ms: 0, max_bytes: u64::MAX, barrier: i64::MAX };

    /// Three closed segments of 100 bytes, ending at 10, 20, 30 and at 1,000, 2,000, 3,000 ms; and an
    /// open one of 50 bytes.
    fn segments() -> Segments {
        let mut segments = Segments::new(VecDeque::new(), Segment { end: 0, bytes: 0, last_ms: 0 }, 100);
        for n in 1..=3 {
            assert!(segments.append(n * 10, 100, n * 1_000).is_some());
        }
        assert_eq!(segments.append(35, 50, 3_500), None);
        segments
    }

    #[test]
    fn records_within_limits_are_kept() {
        assert_eq!(segments().trim_point(KEEP_ALL), None);
    }

    #[test]
    fn old_records_are_removed_by_whole_segments() {
        assert_eq!(segments().trim_point(RetentionRule { oldest_ms: 2_001, ..KEEP_ALL }), Some(20));
        assert_eq!(segments().trim_point(RetentionRule { oldest_ms: 3_500, ..KEEP_ALL }), Some(30));
        assert_eq!(segments().trim_point(RetentionRule { oldest_ms: 3_501, ..KEEP_ALL }), Some(35));
    }

    #[test]
    fn size_limit_removes_oldest_segments_first() {
        assert_eq!(segments().trim_point(RetentionRule { max_bytes: 250, ..KEEP_ALL }), Some(10));
        assert_eq!(segments().trim_point(RetentionRule { max_bytes: 0, ..KEEP_ALL }), Some(30));
    }

    #[test]
    fn records_needed_by_a_group_are_kept() {
        let greedy = RetentionRule { oldest_ms: i64::MAX, max_bytes: 0, barrier: 25 };
        assert_eq!(segments().trim_point(greedy), Some(20));
        assert_eq!(segments().trim_point(RetentionRule { barrier: 34, ..greedy }), Some(30));
        assert_eq!(segments().trim_point(RetentionRule { barrier: 9, ..greedy }), None);
        assert_eq!(segments().trim_point(RetentionRule { barrier: 35, ..greedy }), Some(35));
    }

    #[test]
    fn bytes_count_by_segments_that_reach_past_an_offset() {
        for (offset, bytes) in [(0, 350), (9, 350), (10, 250), (29, 150), (30, 50), (35, 0)] {
            assert_eq!(segments().bytes_from(offset), bytes, "{offset}");
        }
    }

    #[test]
    fn trim_keeps_partial_segments_and_last_append_time() {
        let mut segments = segments();
        assert_eq!(segments.trim(25).iter().map(|segment| segment.end).collect::<Vec<_>>(), [10, 20]);
        assert_eq!(segments.trim_point(RetentionRule { max_bytes: 0, ..KEEP_ALL }), Some(30));
        assert_eq!(segments.trim(35).len(), 1);
        assert_eq!(
            segments.trim_point(RetentionRule { oldest_ms: i64::MAX, ..KEEP_ALL }),
            None,
            "nothing is left"
        );
        assert_eq!(segments.last_ms(), 3_500);
    }
}
