//! JSON list of bounded length and size, for the row that every item stores.

use tidegate_rules::Limits;

/// Entries sorted by position, independent of the order of `add` calls.
pub(super) struct BoundedList {
    entries: Vec<(usize, String)>,
    max_entries: usize,
    remaining_bytes: usize,
}

impl BoundedList {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { entries: Vec::new(), max_entries: limits.stored_matches, remaining_bytes: limits.stored_bytes }
    }

    /// True if no further entry fits, however short.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.max_entries || self.remaining_bytes == 0
    }

    /// Adds the entry, or its short form if the full one does not fit. The first entry is always added.
    pub(super) fn add(&mut self, position: usize, full: String, short: impl FnOnce() -> String) {
        let entry = if full.len() < self.remaining_bytes { full } else { short() };
        // The comma or bracket after an entry counts too, hence the extra byte.
        if entry.len() < self.remaining_bytes || self.entries.is_empty() {
            self.remaining_bytes = self.remaining_bytes.saturating_sub(entry.len() + 1);
            self.entries.push((position, entry));
        } else {
            // Marks the list as full: a later, shorter entry must not jump ahead of the one left out.
            self.remaining_bytes = 0;
        }
    }

    /// Returns the JSON list and the number of omitted entries. `total` is the number of all entries.
    pub(super) fn finish(mut self, total: usize) -> (String, usize) {
        self.entries.sort_unstable_by_key(|(place, _)| *place);
        let omitted = total - self.entries.len();
        let entries: Vec<_> = self.entries.into_iter().map(|(_, entry)| entry).collect();
        (format!("[{}]", entries.join(",")), omitted)
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
    fn list_keeps_order_and_counts_omitted_entries() {
        assert_eq!(list(9, 100, &[(2, 3, 1), (0, 2, 1)]), ("[11,111]".to_owned(), 0));
        assert_eq!(list(1, 100, &[(0, 3, 1), (1, 3, 1)]), ("[111]".to_owned(), 1));
        assert_eq!(list(9, 8, &[(0, 5, 1), (1, 5, 1), (2, 5, 1)]), ("[11111,2]".to_owned(), 1));
        assert_eq!(list(9, 4, &[(0, 50, 9), (1, 1, 1)]), ("[222222222]".to_owned(), 1));
        assert_eq!(list(9, 4, &[]), ("[]".to_owned(), 0));
    }
}
