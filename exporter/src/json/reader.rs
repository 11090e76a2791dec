//! Tokenizer that reads through a window: positions of tokens, and no more in memory than one string.
//!
//! The grammar of containers is left to the caller.

use std::io::{self, Read};

use super::{
    Limits,
    number::{LONGEST, Number},
    text::{Flaw, Text, unescape},
};

const WINDOW: usize = 256 << 10;
/// Zeros behind the window's end, so that a search may look at this many bytes at a time.
const PAD: usize = 16;

/// Position in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// Bytes before it.
    pub(crate) offset: u64,
    /// Line number, from 1.
    pub(crate) line: u64,
}

/// Why nothing more is read.
#[derive(Debug)]
pub(crate) enum Stop {
    Invalid(Why, Position),
    Io(io::Error),
    /// Reader has what it wanted.
    Enough,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Something else than JSON.
    Unexpected,
    Truncated,
    Deep,
    /// Another encoding than UTF-8 altogether.
    Encoding,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub(crate) struct Reader<R> {
    from: R,
    /// `window[at..end]` is read and not passed yet; `PAD` zeros follow.
    window: Vec<u8>,
    at: usize,
    end: usize,
    /// Bytes before the window.
    passed: u64,
    line: u64,
    unescaped: Vec<u8>,
    limits: Limits,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(from: R, limits: Limits) -> Self {
        let window = vec![0; WINDOW + PAD];
        Self { from, window, at: 0, end: 0, passed: 0, line: 1, unescaped: Vec::new(), limits }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline]
    pub(crate) fn position(&self) -> Position {
        Position { offset: self.passed + self.at as u64, line: self.line }
    }

    /// Reads past a byte-order mark; where it stood, if there was one.
    pub(crate) fn mark(&mut self) -> Result<bool, Stop> {
        while self.end < 3 && self.fill(0)? {}
        let start = &self.window[..self.end.min(3)];
        if matches!(start, [0xfe, 0xff, ..] | [0xff, 0xfe, ..] | [0, _, ..] | [_, 0, ..]) {
            return Err(Stop::Invalid(Why::Encoding, self.position()));
        }
        let marked = start == [0xef, 0xbb, 0xbf];
        if marked {
            self.at = 3;
        }
        Ok(marked)
    }

    /// The next byte that is no white space, or nothing at the end.
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<Option<u8>, Stop> {
        let byte = self.window[self.at];
        if byte > b' ' { Ok(Some(byte)) } else { self.skip() }
    }

    fn skip(&mut self) -> Result<Option<u8>, Stop> {
        loop {
            match self.window[self.at] {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                // Behind the end.
                0 if self.at == self.end => {
                    if !self.fill(self.at)? {
                        return Ok(None);
                    }
                }
                byte => return Ok(Some(byte)),
            }
        }
    }

    /// Returns the next byte like `peek`; the end of the text is an error.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<u8, Stop> {
        match self.peek()? {
            Some(byte) => Ok(byte),
            None => Err(Stop::Invalid(Why::Truncated, self.position())),
        }
    }

    /// Passes the byte that `next` has given.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.at += 1;
    }

    #[inline]
    pub(crate) fn expect(&mut self, wanted: u8) -> Result<(), Stop> {
        if self.next()? == wanted {
            self.pass();
            return Ok(());
        }
        Err(self.unexpected())
    }

    /// Passes an array or object, whose bracket `next` has given, by its brackets and strings alone.
    pub(crate) fn pass_nested(&mut self) -> Result<(), Stop> {
        let mut open = 0_u64;
        loop {
            match self.next()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'[' | b'{' => open += 1,
                b']' | b'}' => open -= 1,
                _ => {}
            }
            self.pass();
            if open == 0 {
                return Ok(());
            }
        }
    }

    pub(crate) fn unexpected(&self) -> Stop {
        Stop::Invalid(Why::Unexpected, self.position())
    }

    /// Skips this name and its colon, if they come next.
    #[inline]
    pub(crate) fn name(&mut self, name: &str) -> bool {
        let length = name.len();
        let Some(there) = self.window.get(self.at..self.at + length + 3) else { return false };
        let same = there[0] == b'"'
            && there[length + 1] == b'"'
            && there[length + 2] == b':'
            && there[1..=length] == *name.as_bytes();
        if same {
            self.at += length + 3;
        }
        same
    }

    /// `true`, `false` or `null`, whose first letter `next` has given.
    pub(crate) fn word(&mut self, word: &'static str) -> Result<(), Stop> {
        while self.end - self.at < word.len() && self.fill(self.at)? {}
        let there = &self.window[self.at..self.end.min(self.at + word.len())];
        let same = there.iter().zip(word.as_bytes()).take_while(|(left, right)| left == right).count();
        if same == word.len() {
            self.at += same;
            return Ok(());
        }
        let why = if same == there.len() { Why::Truncated } else { Why::Unexpected };
        self.at += same;
        Err(Stop::Invalid(why, self.position()))
    }

    /// A number, whose first character `next` has given; nothing, if it is too long to be kept.
    #[inline]
    pub(crate) fn number(&mut self) -> Result<Option<Number>, Stop> {
        // Nearly all are a few digits and end inside the window.
        let mut value = 0;
        let mut digits = 0;
        loop {
            let byte = self.window[self.at + digits];
            if byte.is_ascii_digit() && digits < 7 {
                value = value * 10 + u64::from(byte - b'0');
                digits += 1;
                continue;
            }
            let plain = digits > 0 && matches!(byte, b',' | b'}' | b']' | b'\n' | b' ');
            if plain && (digits == 1 || self.window[self.at] != b'0') {
                self.at += digits;
                return Ok(Some(Number::small(value)));
            }
            return self.any_number();
        }
    }

    fn any_number(&mut self) -> Result<Option<Number>, Stop> {
        let token = self.number_text()?;
        Ok(token.and_then(Number::parse))
    }

    /// Reads a number like `number` and returns its characters.
    pub(crate) fn number_text(&mut self) -> Result<Option<&[u8]>, Stop> {
        let mut length = 0;
        let mut long = false;
        loop {
            if self.at + length == self.end && !self.fill(self.at)? {
                break;
            }
            match self.window[self.at + length] {
                b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E' => length += 1,
                _ => break,
            }
            if length > LONGEST {
                long = true;
                self.at += length;
                length = 0;
            }
        }
        let start = self.at;
        let ended = start + length == self.end;
        if !long && Number::parse(&self.window[start..start + length]).is_none() {
            if ended {
                self.at = self.end;
                return Err(Stop::Invalid(Why::Truncated, self.position()));
            }
            return Err(self.unexpected());
        }
        self.at += length;
        Ok(if long { None } else { Some(&self.window[start..start + length]) })
    }

    /// A string, whose opening quote `next` has given.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<Text<'_>, Stop> {
        self.at += 1;
        let found = self.closing()?;
        let start = self.at;
        self.at = found.end + 1;
        let raw = &self.window[start..found.end];
        let mut flaws = found.flaws;
        if flaws & Flaw::Long as u8 != 0 || raw.len() > self.limits.string {
            // It may be cut within a character or an escape.
            let raw = &raw[..raw.len().min(self.limits.string)];
            return Ok(Text { bytes: raw, flaws: Flaw::Long as u8, ascii: false });
        }
        if !found.ascii && std::str::from_utf8(raw).is_err() {
            flaws |= Flaw::Encoding as u8;
        }
        if !found.escaped {
            return Ok(Text { bytes: raw, flaws, ascii: found.ascii });
        }
        flaws |= unescape(raw, &mut self.unescaped);
        let ascii = self.unescaped.is_ascii();
        Ok(Text { bytes: &self.unescaped, flaws, ascii })
    }

    /// Finds the quote that ends the string that begins at `self.at`, with all of it in the window.
    #[inline]
    fn closing(&mut self) -> Result<StringEnd, Stop> {
        let mut found = StringEnd { end: self.at, flaws: 0, escaped: false, ascii: true };
        loop {
            let (end, ascii) = plain(&self.window, found.end);
            found.end = end;
            found.ascii &= ascii;
            if found.end >= self.end {
                found = self.more(found)?;
                continue;
            }
            match self.window[found.end] {
                b'"' => return Ok(found),
                b'\\' => {
                    found.escaped = true;
                    if found.end + 1 == self.end {
                        found = self.more(found)?;
                    }
                    // What is escaped is looked at when it is taken out; here it must not end the string.
                    found.end += if matches!(self.window[found.end + 1], b'"' | b'\\') { 2 } else { 1 };
                }
                byte => {
                    if byte == b'\n' {
                        self.line += 1;
                    }
                    found.flaws |= Flaw::Control as u8;
                    found.end += 1;
                }
            }
        }
    }

    /// Reads on inside a string; of one that is too long only the beginning is kept.
    #[cold]
    fn more(&mut self, mut found: StringEnd) -> Result<StringEnd, Stop> {
        found.end = found.end.min(self.end);
        let length = found.end - self.at;
        if length > self.limits.string {
            let kept = self.limits.string.min(length);
            found.flaws |= Flaw::Long as u8;
            // The reading goes on over what is not kept; an escape keeps its first half.
            let escaped = found.escaped && found.end < self.end;
            let tail: Vec<u8> = self.window[found.end..self.end].to_vec();
            self.passed += (length - kept) as u64;
            self.window[self.at + kept..self.at + kept + tail.len()].copy_from_slice(&tail);
            self.end = self.at + kept + tail.len();
            self.seal();
            found.end = self.at + kept;
            debug_assert!(!escaped || !tail.is_empty(), "the first half of an escape is in the tail");
        }
        let into = found.end - self.at;
        if !self.fill(self.at)? {
            self.at = self.end;
            return Err(Stop::Invalid(Why::Truncated, self.position()));
        }
        found.end = self.at + into;
        Ok(found)
    }

    /// Reads on, keeping everything from `from`; false at the end. `at` moves along.
    #[cold]
    fn fill(&mut self, from: usize) -> Result<bool, Stop> {
        if from > 0 {
            self.window.copy_within(from..self.end, 0);
            self.end -= from;
            self.at -= from;
            self.passed += from as u64;
        }
        if self.end + PAD == self.window.len() {
            let length = self.window.len();
            self.window.resize(length * 2, 0);
        }
        let room = self.window.len() - PAD;
        let count = loop {
            match self.from.read(&mut self.window[self.end..room]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.end += count;
        self.seal();
        Ok(count > 0)
    }

    fn seal(&mut self) {
        self.window[self.end..self.end + PAD].fill(0);
    }
}

/// A string between its quotes.
#[derive(Clone, Copy)]
struct StringEnd {
    end: usize,
    flaws: u8,
    escaped: bool,
    ascii: bool,
}

const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES << 7;

/// Offset of the first byte that a string cannot hold as it is, and true if all before it are ASCII.
#[inline]
fn plain(window: &[u8], from: usize) -> (usize, bool) {
    let (mut at, mut high) = (from, 0);
    while let Some(bytes) = window.get(at..at + PAD).and_then(|bytes| bytes.first_chunk::<PAD>()) {
        let word = |at: usize| bytes[at..at + 8].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let words = [word(0), word(8)];
        let marks = words.map(|word| equal(word, b'"') | equal(word, b'\\') | below_space(word));
        if marks[0] | marks[1] == 0 {
            high |= words[0] | words[1];
            at += PAD;
            continue;
        }
        for (word, marks) in words.into_iter().zip(marks) {
            if marks == 0 {
                high |= word;
                at += 8;
                continue;
            }
            let before = marks.trailing_zeros() / 8;
            high |= word & ((1 << (8 * before)) - 1);
            at += before as usize;
            break;
        }
        break;
    }
    (at, high & HIGH == 0)
}

// Each marks the bytes it looks for by their highest bit; marks above the lowest one may be wrong.

#[inline]
fn equal(word: u64, byte: u8) -> u64 {
    let zero = word ^ (ONES * byte as u64);
    zero.wrapping_sub(ONES) & !zero & HIGH
}

#[inline]
fn below_space(word: u64) -> u64 {
    word.wrapping_sub(ONES * 0x20) & !word & HIGH
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Gives a few bytes at a time.
    struct Drips<'a>(&'a [u8], usize);

    impl Read for Drips<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(into.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn strings(text: &str, drip: usize, limits: Limits) -> Vec<(String, u8)> {
        let mut reader = Reader::new(Drips(text.as_bytes(), drip), limits);
        let mut all = Vec::new();
        while reader.peek().unwrap().is_some() {
            let text = reader.string().unwrap();
            all.push((String::from_utf8_lossy(text.bytes).into_owned(), text.flaws));
        }
        assert_eq!(reader.position().offset, text.len() as u64);
        all
    }

    #[test]
    fn strings_are_the_same_however_the_bytes_arrive() {
        let text = "\"\"\n \"a\" \"seven77\" \"eight888\" \"über \\\"q\\\" \\\\\"  \"\\u00e9\\ud83d\\ude00\" \"tab\tin\"";
        let whole = strings(text, usize::MAX, Limits::default());
        assert_eq!(whole[4].0, "über \"q\" \\");
        assert_eq!(whole[5].0, "é😀");
        assert_eq!(whole[6], ("tab\tin".to_owned(), Flaw::Control as u8));
        for drip in 1..20 {
            assert_eq!(strings(text, drip, Limits::default()), whole, "{drip}");
        }
    }

    #[test]
    fn a_string_that_is_too_long_is_passed_and_the_next_one_is_whole() {
        let long = "x".repeat(1_000_000) + "\\\"" + &"y".repeat(700_001);
        let text = format!("\"{long}\" \"after\"");
        for drip in [7_777, 100_000, usize::MAX] {
            let read = strings(&text, drip, Limits { string: 1000, ..Limits::default() });
            assert_eq!(read.len(), 2);
            assert!(read[0].1 & Flaw::Long as u8 != 0 && read[0].0.starts_with("xxx"));
            assert_eq!(read[1], ("after".to_owned(), 0));
        }
    }

    #[test]
    fn words_and_numbers_end_where_they_end() {
        let text = "true null 12 -0.5e3,0 1234567890123 false";
        for drip in 1..9 {
            let mut reader = Reader::new(Drips(text.as_bytes(), drip), Limits::default());
            reader.next().unwrap();
            reader.word("true").unwrap();
            reader.next().unwrap();
            reader.word("null").unwrap();
            let mut doubles = Vec::new();
            for _ in 0..4 {
                if reader.next().unwrap() == b',' {
                    reader.pass();
                    reader.next().unwrap();
                }
                doubles.push(reader.number().unwrap().unwrap().double);
            }
            assert_eq!(doubles, [12.0, -500.0, 0.0, 1_234_567_890_123.0]);
            reader.next().unwrap();
            assert!(matches!(reader.word("fals!"), Err(Stop::Invalid(Why::Unexpected, _))));
        }
    }
}
