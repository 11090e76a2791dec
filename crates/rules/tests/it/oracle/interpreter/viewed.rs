//! A text in a view, letter by letter, with its mapping to the original. The folding of the letters in these tests is
//! repeated here.

use std::sync::LazyLock;

use regex::Regex;
use tidegate_rules::View;

/// Letters of a text in a view, with the repetitions of each and its place in the original.
pub(super) struct Viewed {
    view: View,
    pub(super) text: String,
    /// By byte of the text.
    from: Vec<(usize, usize)>,
    times: Vec<u32>,
}

impl Viewed {
    pub(super) fn new(original: &str, view: View) -> Self {
        let mut viewed = Self { view, text: String::new(), from: Vec::new(), times: Vec::new() };
        for (at, character) in original.char_indices() {
            let view_form: String = match (view, character) {
                (View::Raw, _) => character.to_string(),
                (View::Lower, 'ς') => "σ".to_owned(),
                (View::Lower, _) => character.to_lowercase().collect(),
                (View::Folded | View::Collapsed, _) => folded(character),
            };
            for letter in view_form.chars() {
                let (last, end) = (viewed.text.chars().next_back(), at + character.len_utf8());
                if view == View::Collapsed && last == Some(letter) {
                    for byte in viewed.text.len() - letter.len_utf8()..viewed.text.len() {
                        viewed.from[byte].1 = end;
                        viewed.times[byte] += 1;
                    }
                    continue;
                }
                viewed.from.extend(std::iter::repeat_n((at, end), letter.len_utf8()));
                viewed.times.extend(std::iter::repeat_n(1, letter.len_utf8()));
                viewed.text.push(letter);
            }
        }
        viewed
    }

    pub(super) fn letters(&self) -> (&str, &[u32]) {
        (&self.text, &self.times)
    }

    pub(super) fn word(&self, word: &Self, whole: bool, original: &str) -> Option<(usize, usize)> {
        let text = &self.text;
        let places =
            (0..text.len()).filter(|at| text.is_char_boundary(*at) && text[*at..].starts_with(&word.text));
        let mut places = places.map(|at| (at, at + word.text.len()));
        places.find(|(start, end)| {
            let often =
                self.times[*start..*end].iter().zip(&word.times).all(|(times, wanted)| times >= wanted);
            let (before, after) = if self.view <= View::Lower {
                (text[..*start].to_owned(), text[*end..].to_owned())
            } else {
                let (start, end) = self.original(*start, *end, original.len());
                let visible =
                    |part: &str| part.chars().filter(|c| !folded(*c).is_empty()).collect::<String>();
                (visible(&original[..start]), visible(&original[end..]))
            };
            let neighbours = [before.chars().next_back(), after.chars().next()];
            often && (!whole || !neighbours.into_iter().flatten().any(in_word))
        })
    }

    /// Characters of the original that a part of the view is derived from.
    pub(super) fn original(&self, start: usize, end: usize, length: usize) -> (usize, usize) {
        let from = self.from.get(start).map_or(length, |(from, _)| *from);
        (from, if start == end { from } else { self.from[end - 1].1 })
    }
}

/// Characters beyond ASCII that are folded to themselves.
const PLAIN: &str = "月日本語👨👩👍🏽❤☃カ한국\u{1112}\u{1161}שمر";

/// Folded form of the characters in these tests.
fn folded(character: char) -> String {
    let lower = match character {
        // The last one is the mark of a half-width voiced syllable, which becomes an ordinary mark in full width.
        '\u{200b}' | '\u{200d}' | '\u{202e}' | '\u{2063}' | '\u{206a}' | '\u{2066}' | '\u{feff}'
        | '\u{fe0f}' | '\u{20e3}' | '\u{301}' | '\u{307}' | '\u{323}' | '\u{5b8}' | '\u{64e}' | 'ﾞ' => {
            return String::new();
        }
        'ﬁ' => "fi".to_owned(),
        'ﬃ' => "ffi".to_owned(),
        '№' => "no".to_owned(),
        '㎜' => "mm".to_owned(),
        '㏈' => "db".to_owned(),
        '㊊' => "月".to_owned(),
        '…' => "...".to_owned(),
        '％' => "%".to_owned(),
        '－' => "-".to_owned(),
        'ｆ' | 'Ｆ' => "f".to_owned(),
        'ｒ' | 'Ｒ' => "r".to_owned(),
        'ｶ' => "カ".to_owned(),
        '🇩' => "d".to_owned(),
        'ß' | 'ẞ' => "ss".to_owned(),
        'Ü' | 'ü' => "u".to_owned(),
        'é' | 'É' | '🇪' => "e".to_owned(),
        'İ' | 'ı' => "i".to_owned(),
        'Σ' | 'σ' | 'ς' => "o".to_owned(),
        'Ａ' | 'ａ' | '\u{1d41a}' => "a".to_owned(),
        _ if PLAIN.contains(character) => character.to_string(),
        _ => character.to_lowercase().collect(),
    };
    let ascii = |letter: char| match letter {
        'l' | '1' | '!' | '|' => 'i',
        '0' => 'o',
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '7' | '+' => 't',
        '8' => 'b',
        '9' => 'g',
        other => other,
    };
    assert!(
        lower.chars().all(|one| one.is_ascii() || PLAIN.contains(one)),
        "{character} is new to these tests"
    );
    lower.chars().map(ascii).collect()
}

/// True if the folded views remove the character.
pub(super) fn is_unseen(character: char) -> bool {
    folded(character).is_empty()
}

pub(super) fn in_word(character: char) -> bool {
    static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\w$").unwrap());
    WORD.is_match(character.encode_utf8(&mut [0; 4]))
}

pub(super) fn lower(text: &str) -> String {
    Viewed::new(text, View::Lower).text
}
