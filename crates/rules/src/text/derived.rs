//! Derived form of a text, with a mapping of its parts to the original. The forms of single characters are defined in
//! `folding`.

use std::{borrow::Cow, cell::OnceCell};

use super::{
    View,
    folding::{folded_bytes, push_folded, push_lower},
};

#[derive(Debug, Default)]
pub(crate) struct Derived<'a> {
    pub(crate) text: Cow<'a, str>,
    original: &'a str,
    /// Computed on demand, because most texts have no hit that must be mapped to the original.
    notes: OnceCell<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    /// Shifts where a character was not mapped to one of the same length. Between two shifts, offsets differ by a constant.
    shifts: Vec<Shift>,
    runs: Runs,
    /// Ranges of invisible characters in the original, with adjacent ones joined.
    invisible_ranges: Vec<(usize, usize)>,
}

/// Repeated letters: offset in the collapsed text and number of repetitions. Sorted; other letters occur once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Runs(Vec<(usize, u32)>);

#[derive(Debug)]
struct Shift {
    from: usize,
    to: usize,
    original_from: usize,
    original_to: usize,
    /// End of the last character in the shift that begins by repeating the letter before it.
    repeats: Option<usize>,
}

impl<'a> Derived<'a> {
    pub(crate) fn new(original: &'a str, view: View) -> Self {
        // These forms keep all offsets, so the notes stay empty.
        let plain = |text: Cow<'a, str>| Self { text, original, notes: OnceCell::from(Notes::default()) };
        match view {
            View::Raw => plain(original.into()),
            View::Lower if original.is_ascii() => plain(lower(original)),
            View::Folded if original.is_ascii() => {
                plain(String::from_utf8(folded_bytes(original.as_bytes())).unwrap_or_default().into())
            }
            View::Collapsed if original.is_ascii() => {
                // The fast path records no notes. They are computed from the original when a hit must be mapped.
                Self { text: collapse_ascii(original).into(), original, notes: OnceCell::new() }
            }
            View::Lower => Self::with_notes(original, map_text(original, push_lower)),
            View::Folded => Self::with_notes(original, map_text(original, push_folded)),
            View::Collapsed => Self::with_notes(original, collapse(original)),
        }
    }

    fn with_notes(original: &'a str, (text, notes): (String, Notes)) -> Self {
        Self { text: text.into(), original, notes: OnceCell::from(notes) }
    }

    fn notes(&self) -> &Notes {
        self.notes.get_or_init(|| collapse(self.original).1)
    }

    /// Smallest span of whole characters of the original from which this span is derived.
    pub(crate) fn origin(&self, start: usize, end: usize) -> (usize, usize) {
        let from = self.start(start);
        (from, if start < end { self.end(end) } else { from })
    }

    fn start(&self, offset: usize) -> usize {
        let shifts = &self.notes().shifts;
        let after = shifts.partition_point(|shift| shift.from <= offset);
        match after.checked_sub(1).map(|last| &shifts[last]) {
            None => offset,
            Some(shift) if offset < shift.to => shift.original_from,
            Some(shift) => shift.original_to + (offset - shift.to),
        }
    }

    fn end(&self, offset: usize) -> usize {
        let shifts = &self.notes().shifts;
        let after = shifts.partition_point(|shift| shift.from < offset);
        let mut end = match after.checked_sub(1).map(|last| &shifts[last]) {
            None => offset,
            Some(shift) if offset <= shift.to => shift.original_to,
            Some(shift) => shift.original_to + (offset - shift.to),
        };
        // A letter that repeats the one before it belongs to the run, with the invisible characters in between.
        for shift in shifts[after..].iter().take_while(|shift| shift.from == offset) {
            end = shift.repeats.unwrap_or(end);
        }
        end
    }

    /// Extends a span of the original by the invisible characters on both sides.
    pub(crate) fn extend_over_unseen(&self, start: usize, end: usize) -> (usize, usize) {
        let unseen = &self.notes().invisible_ranges;
        let extended_start = unseen.binary_search_by_key(&start, |(_, to)| *to).map(|nth| unseen[nth].0);
        let extended_end = unseen.binary_search_by_key(&end, |(from, _)| *from).map(|nth| unseen[nth].1);
        (extended_start.unwrap_or(start), extended_end.unwrap_or(end))
    }

    /// True if each letter is repeated here at least as often as in the word.
    pub(crate) fn has_runs(&self, word: &Runs, start: usize) -> bool {
        word.0.iter().all(|(offset, count)| self.notes().runs.at(start + offset) >= *count)
    }

    /// Returns a word in a view, and the repetitions that a text must have.
    pub(crate) fn word_with_runs(word: &str, view: View) -> (String, Runs) {
        let derived = Derived::new(word, view);
        let runs = derived.notes().runs.clone();
        (derived.text.into_owned(), runs)
    }
}

fn map_text(original: &str, push: impl Fn(&mut String, char)) -> (String, Notes) {
    let (mut text, mut notes) = (String::with_capacity(original.len()), Notes::default());
    for (at, character) in original.char_indices() {
        let (from, length) = (text.len(), character.len_utf8());
        push(&mut text, character);
        notes.record(&text, from, (at, at + length), false);
    }
    (text, notes)
}

/// Folds an ASCII text and removes repeated letters.
fn collapse_ascii(original: &str) -> String {
    const LOWER: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let mut text = folded_bytes(original.as_bytes());
    let Some(first) = text.first() else { return String::new() };
    // Byte before the next eight. It starts as a byte that differs from the first, so that the first is kept.
    let (mut length, mut previous) = (0, u64::from(first ^ 1));
    let full_bytes = text.len() / 8 * 8;
    for at in (0..full_bytes).step_by(8) {
        let Some(mut bytes) = text[at..].first_chunk().copied().map(u64::from_le_bytes) else { break };
        let differ = bytes ^ (bytes << 8 | previous);
        previous = bytes >> 56;
        // Highest bit of each byte that equals the one before it. No byte exceeds 127, so the addition never carries into
        // the next.
        let mut repeated_bits = !(differ + LOWER) & !LOWER;
        // In nearly every group at most one byte is removed, so this case has no branch that could be mispredicted.
        let mut kept_bytes = 8 - usize::from(repeated_bits != 0);
        bytes = without_lowest(bytes, repeated_bits);
        repeated_bits &= repeated_bits.wrapping_sub(1);
        while repeated_bits != 0 {
            repeated_bits >>= 8;
            bytes = without_lowest(bytes, repeated_bits);
            repeated_bits &= repeated_bits - 1;
            kept_bytes -= 1;
        }
        if let Some(room) = text[length..].first_chunk_mut() {
            *room = bytes.to_le_bytes();
        }
        length += kept_bytes;
    }
    for at in full_bytes..text.len() {
        let byte = text[at];
        if u64::from(byte) != previous {
            text[length] = byte;
            length += 1;
        }
        previous = byte.into();
    }
    text.truncate(length);
    String::from_utf8(text).unwrap_or_default()
}

/// Removes the byte that the lowest set bit of `marks` belongs to, or none if no bit is set.
fn without_lowest(bytes: u64, marks: u64) -> u64 {
    let below = ((marks & marks.wrapping_neg()) >> 7).wrapping_sub(1);
    bytes & below | bytes >> 8 & !below
}

fn collapse(original: &str) -> (String, Notes) {
    let (mut text, mut notes) = (String::with_capacity(original.len()), Notes::default());
    let (mut piece, mut last) = (String::new(), None);
    for (at, character) in original.char_indices() {
        piece.clear();
        push_folded(&mut piece, character);
        let (from, length) = (text.len(), character.len_utf8());
        let repeats = piece.chars().next().is_some_and(|first| last == Some(first));
        for letter in piece.chars() {
            if last == Some(letter) {
                notes.runs.add_repetition(text.len() - letter.len_utf8());
            } else {
                text.push(letter);
                last = Some(letter);
            }
        }
        notes.record(&text, from, (at, at + length), repeats);
    }
    (text, notes)
}

impl Notes {
    /// Records how a character of the original was mapped to the text from `from` on, unless offsets stay the same.
    fn record(&mut self, text: &str, from: usize, (at, original_to): (usize, usize), repeats: bool) {
        let to = text.len();
        // The character has no output and repeats no letter, so a reader does not see it.
        if from == to && !repeats {
            match self.invisible_ranges.last_mut() {
                Some((_, last)) if *last == at => *last = original_to,
                _ => self.invisible_ranges.push((at, original_to)),
            }
        }
        let repeats = repeats.then_some(original_to);
        match self.shifts.last_mut() {
            // Adjacent characters without output form one shift, because every search next to them must walk over their
            // shifts.
            Some(last) if from == to && (last.from, last.to) == (from, to) => {
                (last.original_to, last.repeats) = (original_to, repeats.or(last.repeats));
            }
            _ if repeats.is_some() || !keeps_length(&text[from..], original_to - at) => {
                self.shifts.push(Shift { from, to, original_from: at, original_to, repeats });
            }
            _ => {}
        }
    }
}

/// True if the piece is one character of this length, so that offsets stay the same.
fn keeps_length(piece: &str, length: usize) -> bool {
    piece.len() == length && piece.chars().nth(1).is_none()
}

impl Runs {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add_repetition(&mut self, at: usize) {
        match self.0.last_mut() {
            Some((last, count)) if *last == at => *count += 1,
            _ => self.0.push((at, 2)),
        }
    }

    fn at(&self, at: usize) -> u32 {
        self.0.binary_search_by_key(&at, |(at, _)| *at).map_or(1, |nth| self.0[nth].1)
    }
}

/// Lower case of a text, without a mapping to the original.
pub(crate) fn lower(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        let changes = text.bytes().any(|byte| byte.is_ascii_uppercase());
        return if changes { text.to_ascii_lowercase().into() } else { text.into() };
    }
    let mut lower = String::with_capacity(text.len());
    text.chars().for_each(|character| push_lower(&mut lower, character));
    lower.into()
}

/// Form of a word in a view. A part of a text is mapped to a part of the text's view, and a word found in a finer view is
/// found in each coarser one too.
pub(crate) fn word_in_view(word: &str, view: View) -> String {
    Derived::word_with_runs(word, view).0
}

/// True if the folded views remove the character.
pub(crate) fn is_ignored(character: char) -> bool {
    let mut folded = String::new();
    push_folded(&mut folded, character);
    folded.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_a_view_map_to_whole_characters() {
        let texts = [
            "",
            "aab",
            "helllooo",
            "AaAb",
            "İİ İx",
            "straẞe",
            "æe",
            "aæ",
            "ææ",
            "a\u{200b}a\u{200b}b",
            "ﬁﬁ",
            "\u{200b}",
            "ßs",
            "日日本",
            "e\u{301}e",
            "👨\u{200d}👩",
            "ꜱs",
            "\u{301}",
            "ㅤa",
            "①1",
            "1①",
            "x²²2",
        ];
        for original in texts {
            for view in [View::Raw, View::Lower, View::Folded, View::Collapsed] {
                let derived = Derived::new(original, view);
                let edges: Vec<_> =
                    (0..=derived.text.len()).filter(|at| derived.text.is_char_boundary(*at)).collect();
                for (nth, start) in edges.iter().enumerate() {
                    for end in &edges[nth..] {
                        let (from, to) = derived.origin(*start, *end);
                        assert!(
                            original.get(from..to).is_some(),
                            "{original:?} {view:?} {start}..{end}: {from}..{to}"
                        );
                        // A search in the part alone finds the same as in the complete text.
                        let part = word_in_view(&original[from..to], view);
                        assert!(
                            part.contains(&derived.text[*start..*end]),
                            "{original:?} {view:?}: {part:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn invisible_characters_are_skipped_at_once() {
        let unseen = "\u{200b}\u{301}".repeat(10_000);
        for (view, text, notes) in [
            (View::Folded, format!("a{unseen}hit{unseen}b{unseen}"), 3),
            (View::Collapsed, format!("a{unseen}hit{unseen}b{unseen}"), 3),
            (View::Collapsed, format!("a{}b{}", "\u{200b}a".repeat(10_000), "b".repeat(10_000)), 2),
        ] {
            let derived = Derived::new(&text, view);
            assert_eq!(derived.notes().shifts.len(), notes, "{view:?}");
        }
        let text = format!("a{unseen}hit{unseen}b");
        for view in [View::Folded, View::Collapsed] {
            let derived = Derived::new(&text, view);
            let (start, end) = derived.origin(1, 4);
            assert_eq!(&text[start..end], "hit");
            assert_eq!(derived.extend_over_unseen(start, end), (1, text.len() - 1));
            assert_eq!(derived.extend_over_unseen(0, 1), (0, start));
        }
    }

    #[test]
    fn fast_collapse_equals_collapse_by_character() {
        let mut seed = 1_u64;
        for length in 0..400 {
            let letter = |_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Repetitions from rare to all.
                char::from(b"abcdefghijklmnop1!"[(seed >> 33) as usize % (1 + length % 18)])
            };
            let original: String = (0..length / 3).map(letter).collect();
            assert_eq!(collapse_ascii(&original), collapse(&original).0, "{original}");
        }
    }

    #[test]
    fn run_extends_to_its_last_letter() {
        let derived = Derived::new("say heeeyyy you", View::Collapsed);
        let start = derived.text.find("hey").unwrap_or_default();
        assert_eq!(derived.origin(start, start + 3), (4, 11));
        let (_, once) = Derived::word_with_runs("hey", View::Collapsed);
        let (_, thrice) = Derived::word_with_runs("heyyy", View::Collapsed);
        let (_, often) = Derived::word_with_runs("heyyyy", View::Collapsed);
        assert!(derived.has_runs(&once, start) && derived.has_runs(&thrice, start));
        assert!(!derived.has_runs(&often, start));
    }
}
