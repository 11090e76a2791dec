//! Segments of a partition, some megabytes each, and up to where retention may remove them.
//!
//! It is pure: the writer removes, and the caller passes the time.

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
    pub(super) most_bytes: u64,
    /// Offset from which on some group still needs the records.
    pub(super) barrier: i64,
}

/// The segments of one partition. The last one is open and grows.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    closed: VecDeque<Segment>,
    open: Segment,
    /// Bytes at which a segment closes.
    close_at: u64,
}

impl Segments {
    pub(super) fn new(closed: VecDeque<Segment>, open: Segment, close_at: u64) -> Self {
        Self { closed, open, close_at }
    }

    /// Adds appended records. Returns the segment if this closed it, to be stored.
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

    /// Bytes of the segments that hold records from an offset on.
    pub(super) fn bytes_from(&self, offset: i64) -> u64 {
        let closed = self.closed.iter().rev().take_while(|segment| segment.end > offset);
        let open = if self.open.end > offset { self.open.bytes } else { 0 };
        open + closed.map(|segment| segment.bytes).sum::<u64>()
    }

    /// Append time of the last record, below which the next one must not fall.
    pub(super) const fn last_ms(&self) -> i64 {
        self.open.last_ms
    }

    /// Offset before which everything may be removed, if anything may.
    pub(super) fn trim_point(&self, rule: RetentionRule) -> Option<i64> {
        let mut kept = self.open.bytes + self.closed.iter().map(|segment| segment.bytes).sum::<u64>();
        let mut point = None;
        for segment in &self.closed {
            let old = segment.last_ms < rule.oldest_ms;
            let too_many = kept > rule.most_bytes;
            if segment.end > rule.barrier || !(old || too_many) {
                return point;
            }
            kept -= segment.bytes;
            point = Some(segment.end);
        }
        // The open segment goes only when even its youngest record is too old.
        if self.open.bytes > 0 && self.open.last_ms < rule.oldest_ms && self.open.end <= rule.barrier {
            return Some(self.open.end);
        }
        point
    }

    /// Removes everything before the offset, and returns the segments that are wholly removed.
    pub(super) fn trim(&mut self, before: i64) -> Vec<Segment> {
        let whole = self.closed.partition_point(|segment| segment.end <= before);
        let gone = self.closed.drain(..whole).collect();
        if self.open.end <= before {
            self.open.bytes = 0;
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP_ALL: RetentionRule = RetentionRule { oldest_ms: 0, most_bytes: u64::MAX, barrier: i64::MAX };

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
    fn nothing_goes_without_a_reason() {
        assert_eq!(segments().trim_point(KEEP_ALL), None);
    }

    #[test]
    fn what_is_too_old_goes_by_whole_segments() {
        assert_eq!(segments().trim_point(RetentionRule { oldest_ms: 2_001, ..KEEP_ALL }), Some(20));
        assert_eq!(segments().trim_point(RetentionRule { oldest_ms: 3_500, ..KEEP_ALL }), Some(30));
        assert_eq!(segments().trim_point(RetentionRule { oldest_ms: 3_501, ..KEEP_ALL }), Some(35));
    }

    #[test]
    fn what_is_too_much_goes_from_the_oldest() {
        assert_eq!(segments().trim_point(RetentionRule { most_bytes: 250, ..KEEP_ALL }), Some(10));
        assert_eq!(segments().trim_point(RetentionRule { most_bytes: 0, ..KEEP_ALL }), Some(30));
    }

    #[test]
    fn nothing_goes_that_a_group_has_not_passed() {
        let greedy = RetentionRule { oldest_ms: i64::MAX, most_bytes: 0, barrier: 25 };
        assert_eq!(segments().trim_point(greedy), Some(20));
        assert_eq!(segments().trim_point(RetentionRule { barrier: 34, ..greedy }), Some(30));
        assert_eq!(segments().trim_point(RetentionRule { barrier: 9, ..greedy }), None);
        assert_eq!(segments().trim_point(RetentionRule { barrier: 35, ..greedy }), Some(35));
    }

    #[test]
    fn bytes_count_by_segments_that_reach_behind_an_offset() {
        for (offset, bytes) in [(0, 350), (9, 350), (10, 250), (29, 150), (30, 50), (35, 0)] {
            assert_eq!(segments().bytes_from(offset), bytes, "{offset}");
        }
    }

    #[test]
    fn trimming_keeps_what_is_not_wholly_gone_and_the_clock() {
        let mut segments = segments();
        assert_eq!(segments.trim(25).iter().map(|gone| gone.end).collect::<Vec<_>>(), [10, 20]);
        assert_eq!(segments.trim_point(RetentionRule { most_bytes: 0, ..KEEP_ALL }), Some(30));
        assert_eq!(segments.trim(35).len(), 1);
        assert_eq!(
            segments.trim_point(RetentionRule { oldest_ms: i64::MAX, ..KEEP_ALL }),
            None,
            "nothing is left"
        );
        assert_eq!(segments.last_ms(), 3_500);
    }
}
