//! Folding: maps look-alike characters to the letter that a reader sees, so that disguised words are found. Each character
//! is mapped on its own, so a part of a text is mapped to a part of the folded text.

use std::sync::OnceLock;

use unicode_normalization::char::{decompose_compatible, is_combining_mark};
use unicode_security::skeleton;

/// Appends a character in lower case. A final sigma becomes a sigma, because its form depends on its neighbours.
pub(crate) fn push_lower(text: &mut String, character: char) {
    match character {
        'ς' => text.push('σ'),
        _ => text.extend(character.to_lowercase()),
    }
}

/// Appends the letters that a reader sees in a character: none for an invisible character or a mark.
pub(crate) fn push_folded(text: &mut String, character: char) {
    if let Some(byte) = ascii(character) {
        return text.push(FOLDED[usize::from(byte)].into());
    }
    match PAGES.get(u32::from(character) as usize / PAGE_SIZE) {
        Some(page) => text.push_str(page.get_or_init(|| Page::fold_page(character)).folded(character)),
        None => fold(text, character),
    }
}

/// Characters of a page. A page is folded as a whole at its first use, because most texts use few pages.
const PAGE_SIZE: usize = 256;

/// Pages up to the last one with look-alike letters. Beyond are only rare ideographs and tags.
static PAGES: [OnceLock<Page>; 0x2_0000 / PAGE_SIZE] = [const { OnceLock::new() }; 0x2_0000 / PAGE_SIZE];

/// Folded form of each character of a page.
struct Page {
    text: Box<str>,
    ends: [u16; PAGE_SIZE],
}

impl Page {
    /// Folds the page that contains a character.
    fn fold_page(character: char) -> Self {
        let first = u32::from(character) / 256 * 256;
        let (mut text, mut ends) = (String::new(), [0; PAGE_SIZE]);
        for (code, end) in (first..).zip(&mut ends) {
            // A surrogate is no character and is never looked up, so its form stays empty.
            if let Some(character) = char::from_u32(code) {
                fold(&mut text, character);
            }
            *end = u16::try_from(text.len()).unwrap_or(u16::MAX);
        }
        Self { text: text.into(), ends }
    }

    fn folded(&self, character: char) -> &str {
        let nth = u32::from(character) as usize % PAGE_SIZE;
        let start = nth.checked_sub(1).map_or(0, |previous| self.ends[previous]);
        self.text.get(start.into()..self.ends[nth].into()).unwrap_or_default()
    }
}

fn fold(text: &mut String, character: char) {
    // A syllable of Hangul would be decomposed into three letters, which writers do not use instead.
    if ('\u{ac00}'..='\u{d7a3}').contains(&character) {
        return text.push(character);
    }
    if let Some(replacement) = special_form(character) {
        return text.push_str(replacement);
    }
    decompose_compatible(character, |part| {
        for part in part.to_lowercase() {
            match (ascii(part), special_form(part), confusable(part)) {
                (None, Some(letters), _) => text.push_str(letters),
                (Some(byte), ..) | (None, None, Some(byte)) => text.push(FOLDED[usize::from(byte)].into()),
                // A mark only decorates the letter before it.
                (None, None, None) if is_combining_mark(part) => {}
                (None, None, None) => text.push(part),
            }
        }
    });
}

/// ASCII letter or digit that Unicode's list of confusables (UTS 39) assigns to a small letter or to its capital. Both need
/// the same folding, because words are searched by the folding of their lower case.
fn confusable(small: char) -> Option<u8> {
    let target = |character: char| {
        let mut bytes = [0; 4];
        let mut skeleton = skeleton(character.encode_utf8(&mut bytes)).fuse();
        let (first, rest) = (skeleton.next(), skeleton.next());
        first.filter(|_| rest.is_none()).and_then(ascii).filter(u8::is_ascii_alphanumeric)
    };
    target(small).or_else(|| {
        let mut capital = small.to_uppercase();
        let (first, rest) = (capital.next()?, capital.next());
        let is_pair = rest.is_none() && first != small && first.to_lowercase().eq([small]);
        target(first).filter(|_| is_pair)
    })
}

/// Folds an ASCII byte to one byte.
fn folded_byte(byte: u8) -> u8 {
    FOLDED[usize::from(byte & 0x7f)]
}

/// Folds many ASCII bytes at once.
pub(crate) fn folded_bytes(original: &[u8]) -> Vec<u8> {
    const PIECE_BYTES: usize = 16;
    let mut folded = original.to_vec();
    let mut pieces = folded.chunks_exact_mut(PIECE_BYTES);
    for piece in &mut pieces {
        // Letters and common signs need no table. A piece with any other sign uses the table for all of its bytes.
        let signs = |byte: u8| {
            let common = byte == b',' || byte == b'.';
            u8::from(byte.wrapping_sub(b'!') < 32) & u8::from(!common) | u8::from(byte == b'|')
        };
        if piece.iter().fold(0, |some, byte| some | signs(*byte)) == 0 {
            for byte in piece {
                let lower = byte.to_ascii_lowercase();
                *byte = if lower == b'l' { b'i' } else { lower };
            }
        } else {
            piece.iter_mut().for_each(|byte| *byte = folded_byte(*byte));
        }
    }
    pieces.into_remainder().iter_mut().for_each(|byte| *byte = folded_byte(*byte));
    folded
}

fn ascii(character: char) -> Option<u8> {
    u8::try_from(character).ok().filter(u8::is_ascii)
}

/// `l`, `i`, `1`, `!` and `|` look alike in one typeface or another, so all of them become `i`.
static FOLDED: [u8; 128] = {
    let mut table = [0; 128];
    let mut byte = 0;
    while byte < 128 {
        table[byte as usize] = match byte {
            b'0' => b'o',
            b'1' | b'l' | b'L' | b'!' | b'|' => b'i',
            b'3' => b'e',
            b'4' | b'@' => b'a',
            b'5' | b'$' => b's',
            b'7' | b'+' => b't',
            b'8' => b'b',
            b'9' => b'g',
            other => other.to_ascii_lowercase(),
        };
        byte += 1;
    }
    table
};

/// Letters for a character beyond ASCII that the list of confusables lacks or maps differently. Capital and small letter are
/// treated alike, by the one that deceives more. Letters with marks, wide, circled, slanted or raised letters and ligatures
/// need no line, because their decompositions cover them.
fn special_form(character: char) -> Option<&'static str> {
    Some(match character {
        // Invisible: joiners, directions, soft hyphens, variation selectors, tags, fillers.
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{e0000}'..='\u{e0fff}' => "",
        'ᴀ' => "a",
        'ʙ' | 'ƀ' => "b",
        'ϲ' | 'Ϲ' | '¢' | 'ƈ' => "c",
        'ᴅ' | 'đ' | 'Đ' | 'ð' | 'Ð' | 'ɗ' => "d",
        'є' | 'Є' | 'ᴇ' | '€' | 'ə' | 'ɛ' => "e",
        'ꜰ' | 'ƒ' => "f",
        'ɢ' => "g",
        'ʜ' | 'ħ' | 'Ħ' => "h",
        'ʟ' | 'ł' | 'Ł' | '£' | 'ƚ' => "i",
        'ᴊ' => "j",
        'ᴋ' => "k",
        'ᴍ' => "m",
        'п' | 'П' | 'ν' | 'Ν' | 'ɴ' => "n",
        'ς' | 'ø' | 'Ø' | '○' | '●' | '◯' => "o",
        'ᴘ' => "p",
        'ᴛ' | 'ŧ' | 'Ŧ' => "t",
        'ω' | 'Ω' => "w",
        '✕' | '✖' => "x",
        'υ' | 'Υ' | '¥' => "y",
        'ƶ' => "z",
        'ß' | 'ẞ' => "ss",
        'æ' | 'Æ' => "ae",
        'œ' | 'Œ' => "oe",
        '✱' | '✲' | '∗' => "*",
        '‐'..='―' | '−' => "-",
        '‘'..='‟' => "'",
        // Letters of flags, and letters in black squares and circles.
        '\u{1f1e6}'..='\u{1f1ff}' => letter(character, '\u{1f1e6}'),
        '\u{1f150}'..='\u{1f169}' => letter(character, '\u{1f150}'),
        '\u{1f170}'..='\u{1f189}' => letter(character, '\u{1f170}'),
        _ => return None,
    })
}

fn letter(character: char, first: char) -> &'static str {
    const LETTERS: &str = "abcdefghijkimnopqrstuvwxyz";
    let nth = (u32::from(character) - u32::from(first)) as usize;
    LETTERS.get(nth..=nth).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> String {
        let mut folded = String::new();
        text.chars().for_each(|character| push_folded(&mut folded, character));
        folded
    }

    #[test]
    fn disguised_word_is_folded_to_the_plain_word() {
        let plain = folded("free money");
        for disguised in [
            "FREE MONEY",
            "fr33 m0ney",
            "ƒrée möney",
            "Ｆｒｅｅ ｍｏｎｅｙ",
            "𝓯𝓻𝓮𝓮 𝓶𝓸𝓷𝓮𝔂",
            "ⓕⓡⓔⓔ ⓜⓞⓝⓔⓨ",
            "🅵🆁🅴🅴 🅼🅾🅽🅴🆈",
            "fr\u{200b}ee mo\u{ad}ney",
            "fгее мопеу",
            "ꜰʀᴇᴇ ᴍᴏɴᴇʏ",
            "f\u{336}r\u{336}e\u{336}e\u{336} money",
        ] {
            let found = folded(disguised);
            assert_eq!(found, plain, "{disguised}");
        }
        assert_eq!(folded("h3||0"), folded("hello"));
        assert_eq!(folded("STRAẞE ﬁne Ǆ"), "strasse fine dz");
        assert_eq!(folded("İstanbul ISTANBUL ıstanbul"), "istanbui istanbui istanbui");
        assert_eq!(
            (folded("日本語 한글"), folded("👨\u{200d}👩")),
            ("日本語 한글".to_owned(), "👨👩".to_owned())
        );
    }

    #[test]
    fn bytes_are_folded_together_as_one_by_one() {
        for nth in 0..=127_u8 {
            let mut text = *b"Hallo, World. all of it has letters only aA\x7fzZ[`{^";
            for at in [0, 5, 15, 16, 30, 47] {
                text[at] = nth;
                let one_by_one: Vec<u8> = text.iter().map(|byte| folded_byte(*byte)).collect();
                assert_eq!(folded_bytes(&text), one_by_one, "{nth} at {at}");
            }
        }
    }

    #[test]
    fn folding_is_idempotent() {
        for character in '\0'..='\u{1ffff}' {
            let mut once = String::new();
            push_folded(&mut once, character);
            assert_eq!(folded(&once), once, "{character} {:x}", u32::from(character));
            // The scan searches words in the folded text by the folding of their lower case.
            let mut lower = String::new();
            push_lower(&mut lower, character);
            assert_eq!(folded(&lower), once, "{character} {:x}", u32::from(character));
        }
    }

    /// Rows of the list of confusables with one character as source, not in ASCII, and one ASCII letter as target. The
    /// library has the list of Unicode 18.
    fn single_letter_rows() -> impl Iterator<Item = (char, char)> {
        ('\u{80}'..=char::MAX).filter_map(|character| {
            let mut skeleton = skeleton(character.encode_utf8(&mut [0; 4])).collect::<Vec<_>>().into_iter();
            let (first, rest) = (skeleton.next()?, skeleton.next());
            (rest.is_none() && first.is_ascii_alphabetic()).then_some((character, first))
        })
    }

    #[test]
    fn every_confusable_of_a_letter_is_folded_to_it() {
        let (mut rows, mut other) = (0, String::new());
        for (character, target) in single_letter_rows() {
            rows += 1;
            if folded(&character.to_string()) != folded(&target.to_string()) {
                other.push(character);
            }
        }
        assert!(rows > 1_400, "{rows}");
        // The others, decomposed or by their capitals: a long s, the Greek nu and upsilon with their mathematical forms, an
        // upright dash, and letters of Warang Citi with different confusables for capital and small letter.
        assert_eq!(other, "ſνυ︱𑢦𑢵𑢼𝛎𝛖𝜈𝜐𝝂𝝊𝝼𝞄𝞶𝞾");
        for (disguised, plain) in [("ᏚᏟᎪᎷ", "scam"), ("ꓢꓚꓮꓟ", "scam"), ("ϳꭎѕ", "jus")] {
            assert_eq!(folded(disguised), folded(plain));
        }
    }
}
