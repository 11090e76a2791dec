//! Counts with their nouns for messages, and hiding of small counts.

/// Formats a count with its noun: `1 file`, `2 files`.
pub fn format_count(number: u64, noun: &str) -> String {
    format_wide_count(number.into(), noun)
}

/// Formats a sum of any size; a saturated sum is shown as `at least`.
pub fn format_wide_count(number: u128, noun: &str) -> String {
    let qualifier = if number == u128::MAX { "at least " } else { "" };
    format!("{qualifier}{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns `was` for 1 and `were` otherwise.
pub fn was_or_were(number: u64) -> &'static str {
    if number == 1 { "was" } else { "were" }
}

/// Threshold of disclosure: counts of people from 1 to this value minus 1 are hidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HiddenBelow(pub(crate) u64);

impl HiddenBelow {
    /// True if the threshold hides any count.
    pub(crate) fn hides_any(self) -> bool {
        self.0 > 1
    }

    /// Start of a sentence about a hidden count; `None` if the count may be shown.
    pub(crate) fn hidden_phrase(self, number: u64) -> Option<String> {
        (1..self.0).contains(&number).then(|| format!("Fewer than {}", self.0))
    }

    /// Formats a count, such as `2 votes` or `Fewer than 5 votes`, with the matching `was` or `were`.
    pub(crate) fn format_count(self, number: u64, noun: &str) -> (String, &'static str) {
        match self.hidden_phrase(number) {
            Some(phrase) => (format!("{phrase} {noun}s"), "were"),
            None => (format_count(number, noun), was_or_were(number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let phrases =
            [0, 1, 2].map(|number| format!("{} {}", format_count(number, "file"), was_or_were(number)));
        assert_eq!(phrases, ["0 files were", "1 file was", "2 files were"]);
    }

    #[test]
    fn numbers_below_the_threshold_are_hidden() {
        let phrases = [0, 1, 4, 5].map(|number| HiddenBelow(5).format_count(number, "voter").0);
        assert_eq!(phrases, ["0 voters", "Fewer than 5 voters", "Fewer than 5 voters", "5 voters"]);
        assert_eq!(HiddenBelow::default().format_count(1, "voter"), ("1 voter".to_owned(), "was"));
    }
}
