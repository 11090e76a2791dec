//! Texts in the forms in which they are searched.

pub(crate) mod derived;
pub(crate) mod folding;

tidegate_schemas::string_enum! {
    /// Form in which a text is searched, from the finest to the coarsest.
    pub enum View {
        /// The text as it was sent.
        Raw = "raw",
        /// Each character in lower case, a final sigma as sigma. The default, except for regular expressions.
        Lower = "lower",
        /// Letters for which a reader takes other characters: `fr33`, `ｆｒｅｅ` and Cyrillic look-alikes are `free`.
        Folded = "folded",
        /// Folded, with letters that stand several times in a row once; a word must have no more of them than the text.
        Collapsed = "collapsed",
    }
}

/// True for what `\w` stands for in regular expressions, so that `words` and `\b` agree: marks and joiners belong to a
/// word.
pub(crate) fn in_word(character: char) -> bool {
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
    fn a_word_ends_where_patterns_say_that_it_does() {
        let word = Regex::new(r"^\w$").unwrap();
        let differ = |c: &char| in_word(*c) != word.is_match(c.encode_utf8(&mut [0; 4]));
        assert_eq!(('\0'..=char::MAX).find(differ), None);
    }
}
