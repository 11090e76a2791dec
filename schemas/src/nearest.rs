//! Finds the known name that was probably meant by an unknown one.
//!
//! It does not decide which names are known.

use strsim::osa_distance;

/// A longer word is certainly no slip of one of our names, and the distance costs its length squared.
const LONGEST: usize = 64;

/// The closest of `known` to `word`, if it is close enough to be a slip of the pen.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = letters(word)?;
    let allowed = 1 + wanted.chars().count() / 4;
    known
        .into_iter()
        .filter_map(|name| Some((osa_distance(&wanted, &letters(name)?), name)))
        .filter(|&(steps, _)| steps <= allowed)
        .min()
        .map(|(_, name)| name)
}

/// Returns ` Did you mean ...?` or nothing, to append to a sentence.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|name| format!(" Did you mean `{name}`?")).unwrap_or_default()
}

/// A name for a message: whole when short, cut when a hostile client made it long.
pub fn shown(name: &str) -> std::borrow::Cow<'_, str> {
    match name.char_indices().nth(LONGEST) {
        None => name.into(),
        Some((end, _)) => format!("{}…", &name[..end]).into(),
    }
}

/// Returns the letters without case and separators, so that `createdat` and `created_at` are near `createdAt`.
fn letters(word: &str) -> Option<String> {
    if word.is_empty() || word.len() > LONGEST * 4 {
        return None;
    }
    let letters: String =
        word.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect();
    (letters.chars().count() <= LONGEST).then_some(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["text", "title", "createdAt", "user"];
        assert_eq!(nearest("txet", known), Some("text"));
        assert_eq!(nearest("created_at", known), Some("createdAt"));
        assert_eq!(nearest("TITEL", known), Some("title"));
        assert_eq!(nearest("banana", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), known), None);
    }

    #[test]
    fn a_long_name_is_cut_before_it_is_shown() {
        assert_eq!(shown("text"), "text");
        assert!(shown(&"é".repeat(10_000)).chars().count() == LONGEST + 1);
    }
}
