//! Numbers in sentences.
//!
//! What is counted is the caller's.

/// `1 file`, `2 files`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// What has happened to so many.
pub fn were(number: u64) -> &'static str {
    if number == 1 { "was" } else { "were" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural_and_nothing_is() {
        let said = [0, 1, 2].map(|number| format!("{} {}", counted(number, "file"), were(number)));
        assert_eq!(said, ["0 files were", "1 file was", "2 files were"]);
    }
}
