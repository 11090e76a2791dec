//! Words for numbers in sentences, and hiding of small numbers.

/// `1 file`, `2 files`.
pub fn counted(number: u64, what: &str) -> String {
    counted_wide(number.into(), what)
}

/// Like [`counted`], for sums of any size; a saturated sum is shown as `at least`.
pub fn counted_wide(number: u128, what: &str) -> String {
    let least = if number == u128::MAX { "at least " } else { "" };
    format!("{least}{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns `was` for 1 and `were` otherwise.
pub fn were(number: u64) -> &'static str {
    if number == 1 { "was" } else { "were" }
}

/// Numbers of people from 1 to below this one are hidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HiddenBelow(pub(crate) u64);

impl HiddenBelow {
    /// True if some numbers are hidden.
    pub(crate) fn hides_any(self) -> bool {
        self.0 > 1
    }

    /// Beginning of a sentence about a hidden number.
    pub(crate) fn hidden_phrase(self, number: u64) -> Option<String> {
        (1..self.0).contains(&number).then(|| format!("Fewer than {}", self.0))
    }

    /// `2 votes` and `were`, or how many they are fewer than.
    pub(crate) fn counted(self, number: u64, what: &str) -> (String, &'static str) {
        match self.hidden_phrase(number) {
            Some(told) => (format!("{told} {what}s"), "were"),
            None => (counted(number, what), were(number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural_and_nothing_is() {
        let said = [0, 1, 2].map(|number| format!("{} {}", counted(number, "file"), were(number)));
        assert_eq!(said, ["0 files were", "1 file was", "2 files were"]);
    }

    #[test]
    fn few_are_not_told_and_nobody_is() {
        let said = [0, 1, 4, 5].map(|number| HiddenBelow(5).counted(number, "voter").0);
        assert_eq!(said, ["0 voters", "Fewer than 5 voters", "Fewer than 5 voters", "5 voters"]);
        assert_eq!(HiddenBelow::default().counted(1, "voter"), ("1 voter".to_owned(), "was"));
    }
}
