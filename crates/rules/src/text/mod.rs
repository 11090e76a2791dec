//! Forms in which texts are searched.

pub(crate) mod derived;
pub(crate) mod folding;

tidegate_schemas::string_enum! {
    /// Form in which a text is searched, from the finest to the coarsest.
    pub enum View {
        /// The text as sent.
        Raw = "raw",
        /// Each character in lower case, a final sigma as sigma. The default, except for regular expressions.
        Lower = "lower",
        /// Letters that a reader sees in look-alike characters: `fr33`, `ｆｒｅｅ` and Cyrillic look-alikes are `free`.
        Folded = "folded",
        /// Folded, with repeated letters written once. The text must repeat a letter at least as often as the word.
        Collapsed = "collapsed",
    }
}

/// True for the characters of `\w` in regular expressions, so that `words` and `\b` agree. Marks and joiners belong to a
/// word.
pub(crate) fn in_word(character: char) -> bool {
    // Most characters are ASCII, which needs no table.
    if character.is_ascii() {
        return character.is_ascii_alphanumeric() || character == '_';
    }
    regex_syntax::try_is_word_character(character).unwrap_or_else(|_| character.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use regex::Regex;

    use super::*;

    #[test]
    fn word_characters_are_those_of_patterns() {
        let word = Regex::new(r"^\w$").unwrap();
        let differ = |c: &char| in_word(*c) != word.is_match(c.encode_utf8(&mut [0; 4]));
        assert_eq!(('\0'..=char::MAX).find(differ), None);
    }
}
