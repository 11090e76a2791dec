//! A JSON list of bounded length, for what is stored with every item.

use tidegate_rules::Limits;

/// Entries in the order of their places, whatever the order in which they are added.
pub(super) struct BoundedList {
    entries: Vec<(usize, String)>,
    most: usize,
    bytes: usize,
}

impl BoundedList {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { entries: Vec::new(), most: limits.stored_matches, bytes: limits.stored_bytes }
    }

    /// True if no further entry fits, however short.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.most || self.bytes == 0
    }

    /// Adds the entry, or its short form where the whole one does not fit. The first entry is always there.
    pub(super) fn add(&mut self, place: usize, whole: String, short: impl FnOnce() -> String) {
        let entry = if whole.len() < self.bytes { whole } else { short() };
        if entry.len() < self.bytes || self.entries.is_empty() {
            self.bytes = self.bytes.saturating_sub(entry.len() + 1);
            self.entries.push((place, entry));
        } else {
            self.bytes = 0;
        }
    }

    /// Returns the list, and how many of so many entries are not in it.
    pub(super) fn finish(mut self, of: usize) -> (String, usize) {
        self.entries.sort_unstable_by_key(|(place, _)| *place);
        let more = of - self.entries.len();
        let entries: Vec<_> = self.entries.into_iter().map(|(_, entry)| entry).collect();
        (format!("[{}]", entries.join(",")), more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(most: usize, bytes: usize, entries: &[(usize, usize, usize)]) -> (String, usize) {
        let limits = Limits { stored_matches: most, stored_bytes: bytes, ..Limits::default() };
        let mut list = BoundedList::new(&limits);
        for (place, whole, short) in entries {
            if !list.is_full() {
                list.add(*place, "1".repeat(*whole), || "2".repeat(*short));
            }
        }
        list.finish(entries.len())
    }

    #[test]
    fn list_keeps_order_and_counts_what_does_not_fit() {
        assert_eq!(list(9, 100, &[(2, 3, 1), (0, 2, 1)]), ("[11,111]".to_owned(), 0));
        assert_eq!(list(1, 100, &[(0, 3, 1), (1, 3, 1)]), ("[111]".to_owned(), 1));
        assert_eq!(list(9, 8, &[(0, 5, 1), (1, 5, 1), (2, 5, 1)]), ("[11111,2]".to_owned(), 1));
        assert_eq!(list(9, 4, &[(0, 50, 9), (1, 1, 1)]), ("[222222222]".to_owned(), 1));
        assert_eq!(list(9, 4, &[]), ("[]".to_owned(), 0));
    }
}
