//! Makes characters visible that disguise text: replaces bidirectional controls and characters without a glyph by their code.
//!
//! Works on the finished page, so that no template can leave it out. Attributes stay unchanged, because values of form fields
//! must be sent back as they are.

use std::fmt::Write as _;

/// Replaces hidden characters in the text of a page. The page must escape `<` and `>` in its text and attributes, as `maud` does.
pub(super) fn reveal(page: String) -> String {
    // Most pages contain no hidden character and are returned without a copy.
    if !page.chars().any(is_hidden) {
        return page;
    }
    let mut revealed = String::with_capacity(page.len() + 1_024);
    let (mut in_tag, mut in_title, mut previous) = (false, false, '\0');
    let mut characters = page.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '<' => {
                in_tag = true;
                in_title = page[at..].starts_with("<title");
            }
            '>' => in_tag = false,
            _ => {}
        }
        let next = characters.clone().next().map_or('\0', |(_, next)| next);
        // Attributes are not changed: a form would send a mark back in the place of the character.
        if in_tag || !is_hidden(character) || belongs_to_neighbours(character, previous, next) {
            revealed.push(character);
        } else {
            let code = u32::from(character);
            let result = match in_title {
                // A title cannot contain elements.
                true => write!(revealed, "[U+{code:04X}]"),
                false => write!(revealed, "<span class=\"hidden-character\">U+{code:04X}</span>"),
            };
            result.expect("a string takes all text");
        }
        previous = character;
    }
    revealed
}

/// True for bidirectional controls and for characters without a glyph, except spaces and line breaks.
fn is_hidden(character: char) -> bool {
    matches!(u32::from(character),
        0x00..=0x08 | 0x0B | 0x0C | 0x0E..=0x1F | 0x7F..=0x9F | 0xAD
        | 0x034F | 0x061C | 0x115F | 0x1160 | 0x17B4 | 0x17B5 | 0x180B..=0x180F
        | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0x2800 | 0x3164
        | 0xFE00..=0xFE0F | 0xFEFF | 0xFFA0 | 0xFFF0..=0xFFFB
        | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0000..=0xE0FFF)
}

/// True for a joiner or variation selector that its neighbours need: in emoji, and between letters of joining scripts.
fn belongs_to_neighbours(character: char, previous: char, next: char) -> bool {
    match character {
        '\u{200C}' | '\u{200D}' if is_joining(previous) => true,
        '\u{200D}' => (is_pictograph(previous) || previous == '\u{FE0F}') && is_pictograph(next),
        '\u{FE0E}' | '\u{FE0F}' => is_pictograph(previous) || next == '\u{20E3}',
        _ => false,
    }
}

fn is_pictograph(character: char) -> bool {
    matches!(u32::from(character),
        0xA9 | 0xAE | 0x203C | 0x2049 | 0x2122 | 0x2139 | 0x2190..=0x2BFF | 0x3030 | 0x303D | 0x3297 | 0x3299
        | 0x1F000..=0x1FAFF)
}

/// True for letters of Arabic, Syriac, Mongolian and the scripts of India and Southeast Asia.
fn is_joining(character: char) -> bool {
    matches!(u32::from(character), 0x0620..=0x08FF | 0x0900..=0x0DFF | 0x1000..=0x109F | 0x1780..=0x18AF | 0xA840..=0xA87F)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(code: &str) -> String {
        format!("<span class=\"hidden-character\">{code}</span>")
    }

    #[test]
    fn hidden_characters_become_marks_in_text_only() {
        let page = "<title>a\u{202E}b</title><p title=\"\u{202E}x\">\u{202E}gnp.exe\u{200B}</p>\n<pre>a\tb\u{FEFF}</pre>";
        let expected = format!(
            "<title>a[U+202E]b</title><p title=\"\u{202E}x\">{}gnp.exe{}</p>\n<pre>a\tb{}</pre>",
            mark("U+202E"),
            mark("U+200B"),
            mark("U+FEFF"),
        );
        assert_eq!(reveal(page.to_owned()), expected);
        for hidden in [
            "\u{200D}",
            "\u{200C}",
            "\u{2066}",
            "\u{061C}",
            "\u{00AD}",
            "\u{7}",
            "\u{E0041}",
            "\u{2028}",
            "\u{FE0F}",
        ] {
            let revealed = reveal(format!("<p>pay{hidden}pal</p>"));
            assert!(!revealed.contains(hidden) && revealed.contains("pay<span"), "{revealed}");
        }
    }

    #[test]
    fn emoji_and_joining_scripts_stay_as_they_are() {
        for text in [
            "\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}",
            "\u{2764}\u{FE0F}\u{200D}\u{1F525}",
            "1\u{FE0F}\u{20E3}",
            "\u{0645}\u{06CC}\u{200C}\u{062E}\u{0648}\u{0627}\u{0647}\u{0645}",
            "\u{0915}\u{094D}\u{200D}\u{0937}",
            "\u{05E9}\u{05DC}\u{05D5}\u{05DD} a\u{301}",
        ] {
            let page = format!("<p>{text}</p>");
            assert_eq!(reveal(page.clone()), page);
        }
    }
}
