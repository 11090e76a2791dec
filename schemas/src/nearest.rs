//! Suggests the most similar known name for an unknown one.

use strsim::osa_distance;

/// Maximum length of a compared word, in characters. Longer words are no typing errors of a known name, and the cost of
/// the distance grows with the square of the length.
const MAX_LETTERS: usize = 64;

/// Returns the name of `known` that is closest to `word`, if the difference is small enough for a typing error.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word_letters = normalize(word)?;
    // One error, and a further one per four letters: short names would otherwise match any word.
    let max_steps = 1 + word_letters.chars().count() / 4;
    known
        .into_iter()
        .filter_map(|name| Some((osa_distance(&word_letters, &normalize(name)?), name)))
        .filter(|&(steps, _)| steps <= max_steps)
        // Of equally similar names, the first in alphabetical order is suggested.
        .min()
        .map(|(_, name)| name)
}

/// Returns ` Did you mean ...?`, or an empty string if no name is similar. Callers append it to a sentence.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|name| format!(" Did you mean `{name}`?")).unwrap_or_default()
}

/// Shortens a name for a message: a client can send a name of a megabyte.
pub fn truncate_name(name: &str) -> std::borrow::Cow<'_, str> {
    match name.char_indices().nth(MAX_LETTERS) {
        None => name.into(),
        Some((end, _)) => format!("{}…", &name[..end]).into(),
    }
}

/// Removes case and separators, so that `createdat` and `created_at` equal `createdAt`. `None` for an empty or too long
/// word.
fn normalize(word: &str) -> Option<String> {
    // The check of the byte length avoids a walk over a name of a megabyte.
    if word.is_empty() || word.len() > MAX_LETTERS * 4 {
        return None;
    }
    let letters: String =
        word.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect();
    (letters.chars().count() <= MAX_LETTERS).then_some(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_error_gets_a_suggestion_another_word_none() {
        let known = ["text", "title", "createdAt", "user"];
        assert_eq!(nearest("txet", known), Some("text"));
        assert_eq!(nearest("created_at", known), Some("createdAt"));
        assert_eq!(nearest("TITEL", known), Some("title"));
        assert_eq!(nearest("banana", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), known), None);
    }

    #[test]
    fn long_name_is_truncated() {
        assert_eq!(truncate_name("text"), "text");
        assert!(truncate_name(&"é".repeat(10_000)).chars().count() == MAX_LETTERS + 1);
    }
}
