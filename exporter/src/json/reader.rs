//! Tokenizer over a sliding window that holds at most one string. Callers (`canonical`, `bundle::validate::walk`) parse
//! the grammar of containers.

use std::io::{self, Read};

use super::{
    Limits,
    number::{MAX_NUMBER_BYTES, Number},
    text::{Flaw, Text, unescape},
};

const WINDOW_BYTES: usize = 256 << 10;
/// Zero bytes after the content of the window. [`find_special_byte`] loads blocks of this size without a bounds check
/// for each byte.
const PADDING_BYTES: usize = 16;

/// Position in the unpacked text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// Number of bytes before the position.
    pub(crate) offset: u64,
    /// Line number, from 1.
    pub(crate) line: u64,
}

/// Reason for the end of reading before the end of the text.
#[derive(Debug)]
pub(crate) enum Stop {
    Invalid(InvalidReason, Position),
    Io(io::Error),
    /// The receiver of the content needs no more of it, or failed with an error of its own.
    StoppedByCaller,
}

/// Error after which the rest of the text cannot be tokenized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidReason {
    /// Byte that JSON does not allow at this position.
    Unexpected,
    Truncated,
    TooDeep,
    /// UTF-16 or UTF-32 instead of UTF-8.
    Encoding,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Tokenizer of one JSON text.
pub(crate) struct Reader<R> {
    source: R,
    /// `window[cursor..filled]` holds the unread bytes; `PADDING_BYTES` zeros follow.
    window: Vec<u8>,
    cursor: usize,
    filled: usize,
    /// Offset of the window in the text, in bytes.
    window_offset: u64,
    line: u64,
    unescape_buffer: Vec<u8>,
    limits: Limits,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(source: R, limits: Limits) -> Self {
        let window = vec![0; WINDOW_BYTES + PADDING_BYTES];
        Self {
            source,
            window,
            cursor: 0,
            filled: 0,
            window_offset: 0,
            line: 1,
            unescape_buffer: Vec::new(),
            limits,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline]
    pub(crate) fn position(&self) -> Position {
        Position { offset: self.window_offset + self.cursor as u64, line: self.line }
    }

    /// Skips a UTF-8 byte-order mark; true if there was one. The marks of UTF-16 and UTF-32 are an error.
    pub(crate) fn skip_byte_order_mark(&mut self) -> Result<bool, Stop> {
        while self.filled < 3 && self.fill_window(0)? {}
        let start = &self.window[..self.filled.min(3)];
        // JSON in UTF-8 has no zero among its first two bytes; UTF-16 and UTF-32 have one even without a mark. Reported
        // here, because the tokenizer would only find an unexpected byte.
        if matches!(start, [0xfe, 0xff, ..] | [0xff, 0xfe, ..] | [0, _, ..] | [_, 0, ..]) {
            return Err(Stop::Invalid(InvalidReason::Encoding, self.position()));
        }
        let has_mark = start == [0xef, 0xbb, 0xbf];
        if has_mark {
            self.cursor = 3;
        }
        Ok(has_mark)
    }

    /// Returns the next byte after white space without consuming it; `None` at the end of the text.
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<Option<u8>, Stop> {
        let byte = self.window[self.cursor];
        if byte > b' ' { Ok(Some(byte)) } else { self.skip_whitespace() }
    }

    fn skip_whitespace(&mut self) -> Result<Option<u8>, Stop> {
        loop {
            match self.window[self.cursor] {
                b'\n' => {
                    self.line += 1;
                    self.cursor += 1;
                }
                b' ' | b'\t' | b'\r' => self.cursor += 1,
                // Zero of the padding, not a zero byte of the text.
                0 if self.cursor == self.filled => {
                    if !self.fill_window(self.cursor)? {
                        return Ok(None);
                    }
                }
                byte => return Ok(Some(byte)),
            }
        }
    }

    /// Returns the same byte as `peek`, and an error at the end of the text.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<u8, Stop> {
        match self.peek()? {
            Some(byte) => Ok(byte),
            None => Err(Stop::Invalid(InvalidReason::Truncated, self.position())),
        }
    }

    /// Consumes the byte that `next` returned.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.cursor += 1;
    }

    #[inline]
    pub(crate) fn expect(&mut self, expected: u8) -> Result<(), Stop> {
        if self.next()? == expected {
            self.advance();
            return Ok(());
        }
        Err(self.unexpected_error())
    }

    /// Skips an array or object by counting brackets outside strings. Its opening bracket is the byte that `next`
    /// returned.
    pub(crate) fn skip_container(&mut self) -> Result<(), Stop> {
        let mut open_brackets = 0_u64;
        loop {
            match self.next()? {
                b'"' => {
                    self.read_string()?;
                    continue;
                }
                b'[' | b'{' => open_brackets += 1,
                b']' | b'}' => open_brackets -= 1,
                _ => {}
            }
            self.advance();
            if open_brackets == 0 {
                return Ok(());
            }
        }
    }

    pub(crate) fn unexpected_error(&self) -> Stop {
        Stop::Invalid(InvalidReason::Unexpected, self.position())
    }

    /// Skips `"name":` if the window continues with exactly these bytes, and returns whether it did. Other spellings
    /// and names at the end of the window are left to the slow path of the caller.
    #[inline]
    pub(crate) fn skip_name(&mut self, name: &str) -> bool {
        let length = name.len();
        let Some(upcoming_bytes) = self.window.get(self.cursor..self.cursor + length + 3) else {
            return false;
        };
        let is_same = upcoming_bytes[0] == b'"'
            && upcoming_bytes[length + 1] == b'"'
            && upcoming_bytes[length + 2] == b':'
            && upcoming_bytes[1..=length] == *name.as_bytes();
        if is_same {
            self.cursor += length + 3;
        }
        is_same
    }

    /// Reads `true`, `false` or `null`. Its first letter is the byte that `next` returned.
    pub(crate) fn expect_literal(&mut self, literal: &'static str) -> Result<(), Stop> {
        while self.filled - self.cursor < literal.len() && self.fill_window(self.cursor)? {}
        let upcoming_bytes = &self.window[self.cursor..self.filled.min(self.cursor + literal.len())];
        let matching_bytes =
            upcoming_bytes.iter().zip(literal.as_bytes()).take_while(|(left, right)| left == right).count();
        if matching_bytes == literal.len() {
            self.cursor += matching_bytes;
            return Ok(());
        }
        let reason = if matching_bytes == upcoming_bytes.len() {
            InvalidReason::Truncated
        } else {
            InvalidReason::Unexpected
        };
        self.cursor += matching_bytes;
        Err(Stop::Invalid(reason, self.position()))
    }

    /// Reads a number, starting at the byte that `next` returned; `None` if it is longer than [`MAX_NUMBER_BYTES`].
    #[inline]
    pub(crate) fn read_number(&mut self) -> Result<Option<Number>, Stop> {
        // Fast path: nearly all numbers have a few digits and end inside the window.
        let mut value = 0;
        let mut digits = 0;
        loop {
            let byte = self.window[self.cursor + digits];
            if byte.is_ascii_digit() && digits < 7 {
                value = value * 10 + u64::from(byte - b'0');
                digits += 1;
                continue;
            }
            let ends_here = digits > 0 && matches!(byte, b',' | b'}' | b']' | b'\n' | b' ');
            // A leading zero is invalid JSON, which the slow path reports.
            if ends_here && (digits == 1 || self.window[self.cursor] != b'0') {
                self.cursor += digits;
                return Ok(Some(Number::from_u64(value)));
            }
            return self.read_any_number();
        }
    }

    fn read_any_number(&mut self) -> Result<Option<Number>, Stop> {
        let token = self.read_number_text()?;
        Ok(token.and_then(Number::parse))
    }

    /// Reads a number as `read_number` does, and returns its characters.
    pub(crate) fn read_number_text(&mut self) -> Result<Option<&[u8]>, Stop> {
        let mut length = 0;
        let mut is_too_long = false;
        loop {
            if self.cursor + length == self.filled && !self.fill_window(self.cursor)? {
                break;
            }
            match self.window[self.cursor + length] {
                b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E' => length += 1,
                _ => break,
            }
            // Digits of an overlong number are consumed in pieces, so that the window does not grow with the number.
            if length > MAX_NUMBER_BYTES {
                is_too_long = true;
                self.cursor += length;
                length = 0;
            }
        }
        let start = self.cursor;
        let is_cut_by_end = start + length == self.filled;
        if !is_too_long && Number::parse(&self.window[start..start + length]).is_none() {
            if is_cut_by_end {
                self.cursor = self.filled;
                return Err(Stop::Invalid(InvalidReason::Truncated, self.position()));
            }
            return Err(self.unexpected_error());
        }
        self.cursor += length;
        Ok(if is_too_long { None } else { Some(&self.window[start..start + length]) })
    }

    /// Reads a string. Its opening quote is the byte that `next` returned.
    #[inline]
    pub(crate) fn read_string(&mut self) -> Result<Text<'_>, Stop> {
        self.cursor += 1;
        let scan = self.find_closing_quote()?;
        let start = self.cursor;
        self.cursor = scan.end + 1;
        let raw = &self.window[start..scan.end];
        let mut flaws = scan.flaws;
        if flaws & Flaw::Long as u8 != 0 || raw.len() > self.limits.string {
            // The cut may split a character or an escape, so encoding and escapes of a cut string are not checked.
            let raw = &raw[..raw.len().min(self.limits.string)];
            return Ok(Text { bytes: raw, flaws: Flaw::Long as u8, is_ascii: false });
        }
        if !scan.is_ascii && std::str::from_utf8(raw).is_err() {
            flaws |= Flaw::Encoding as u8;
        }
        if !scan.has_escapes {
            return Ok(Text { bytes: raw, flaws, is_ascii: scan.is_ascii });
        }
        flaws |= unescape(raw, &mut self.unescape_buffer);
        let is_ascii = self.unescape_buffer.is_ascii();
        Ok(Text { bytes: &self.unescape_buffer, flaws, is_ascii })
    }

    /// Finds the closing quote of the string at the cursor, and keeps the whole string in the window.
    #[inline]
    fn find_closing_quote(&mut self) -> Result<StringScan, Stop> {
        let mut scan = StringScan { end: self.cursor, flaws: 0, has_escapes: false, is_ascii: true };
        loop {
            let (end, is_ascii) = find_special_byte(&self.window, scan.end);
            scan.end = end;
            scan.is_ascii &= is_ascii;
            if scan.end >= self.filled {
                scan = self.read_more(scan)?;
                continue;
            }
            match self.window[scan.end] {
                b'"' => return Ok(scan),
                b'\\' => {
                    scan.has_escapes = true;
                    if scan.end + 1 == self.filled {
                        scan = self.read_more(scan)?;
                    }
                    // Only an escaped quote or backslash matters here: it must not end the string. `unescape` checks
                    // the others.
                    scan.end += if matches!(self.window[scan.end + 1], b'"' | b'\\') { 2 } else { 1 };
                }
                byte => {
                    if byte == b'\n' {
                        self.line += 1;
                    }
                    scan.flaws |= Flaw::Control as u8;
                    scan.end += 1;
                }
            }
        }
    }

    /// Reads more of an unfinished string. Of an overlong string only the beginning stays in the window.
    #[cold]
    fn read_more(&mut self, mut scan: StringScan) -> Result<StringScan, Stop> {
        scan.end = scan.end.min(self.filled);
        let length = scan.end - self.cursor;
        if length > self.limits.string {
            let kept_bytes = self.limits.string.min(length);
            scan.flaws |= Flaw::Long as u8;
            // Later bytes overwrite the dropped ones. The tail starts with the first half of an escape that the window
            // cuts.
            let is_inside_escape = scan.has_escapes && scan.end < self.filled;
            let tail: Vec<u8> = self.window[scan.end..self.filled].to_vec();
            self.window_offset += (length - kept_bytes) as u64;
            self.window[self.cursor + kept_bytes..self.cursor + kept_bytes + tail.len()]
                .copy_from_slice(&tail);
            self.filled = self.cursor + kept_bytes + tail.len();
            self.zero_padding();
            scan.end = self.cursor + kept_bytes;
            debug_assert!(
                !is_inside_escape || !tail.is_empty(),
                "the first half of an escape is in the tail"
            );
        }
        let scanned_bytes = scan.end - self.cursor;
        if !self.fill_window(self.cursor)? {
            self.cursor = self.filled;
            return Err(Stop::Invalid(InvalidReason::Truncated, self.position()));
        }
        scan.end = self.cursor + scanned_bytes;
        Ok(scan)
    }

    /// Reads more bytes and keeps those from `keep_from` on; false at the end of the text. The cursor keeps its byte.
    #[cold]
    fn fill_window(&mut self, keep_from: usize) -> Result<bool, Stop> {
        if keep_from > 0 {
            self.window.copy_within(keep_from..self.filled, 0);
            self.filled -= keep_from;
            self.cursor -= keep_from;
            self.window_offset += keep_from as u64;
        }
        // The kept bytes fill the window. Only a string longer than the window reaches this, up to `Limits::string`.
        if self.filled + PADDING_BYTES == self.window.len() {
            let length = self.window.len();
            self.window.resize(length * 2, 0);
        }
        let capacity = self.window.len() - PADDING_BYTES;
        let read_bytes = loop {
            match self.source.read(&mut self.window[self.filled..capacity]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.filled += read_bytes;
        self.zero_padding();
        Ok(read_bytes > 0)
    }

    fn zero_padding(&mut self) {
        self.window[self.filled..self.filled + PADDING_BYTES].fill(0);
    }
}

/// Scan of a string up to `end`.
#[derive(Clone, Copy)]
struct StringScan {
    end: usize,
    flaws: u8,
    has_escapes: bool,
    is_ascii: bool,
}

/// Lowest bit of each byte of a word.
const LOWEST_BITS: u64 = u64::MAX / 255;
/// Highest bit of each byte of a word.
const HIGHEST_BITS: u64 = LOWEST_BITS << 7;

/// Returns the offset of the first quote, backslash or control character, and true if all bytes before it are ASCII.
// Reads 16 bytes at a time: strings are most of a bundle's bytes.
#[inline]
fn find_special_byte(window: &[u8], from: usize) -> (usize, bool) {
    let (mut offset, mut non_ascii_bits) = (from, 0);
    while let Some(bytes) =
        window.get(offset..offset + PADDING_BYTES).and_then(|bytes| bytes.first_chunk::<PADDING_BYTES>())
    {
        let word = |at: usize| bytes[at..at + 8].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let words = [word(0), word(8)];
        let marks = words.map(|word| {
            mark_equal_bytes(word, b'"') | mark_equal_bytes(word, b'\\') | mark_control_bytes(word)
        });
        if marks[0] | marks[1] == 0 {
            non_ascii_bits |= words[0] | words[1];
            offset += PADDING_BYTES;
            continue;
        }
        for (word, marks) in words.into_iter().zip(marks) {
            if marks == 0 {
                non_ascii_bits |= word;
                offset += 8;
                continue;
            }
            let plain_bytes = marks.trailing_zeros() / 8;
            non_ascii_bits |= word & ((1 << (8 * plain_bytes)) - 1);
            offset += plain_bytes as usize;
            break;
        }
        break;
    }
    (offset, non_ascii_bits & HIGHEST_BITS == 0)
}

// Both functions set the highest bit of each matching byte. A borrow can set further bits above the lowest match, which
// is the only one that callers use.

#[inline]
fn mark_equal_bytes(word: u64, byte: u8) -> u64 {
    let difference = word ^ (LOWEST_BITS * byte as u64);
    difference.wrapping_sub(LOWEST_BITS) & !difference & HIGHEST_BITS
}

#[inline]
fn mark_control_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOWEST_BITS * 0x20) & !word & HIGHEST_BITS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Source that returns a few bytes for each read.
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
            let text = reader.read_string().unwrap();
            all.push((String::from_utf8_lossy(text.bytes).into_owned(), text.flaws));
        }
        assert_eq!(reader.position().offset, text.len() as u64);
        all
    }

    #[test]
    fn strings_do_not_depend_on_read_sizes() {
        let text = "\"\"\n \"a\" \"seven77\" \"eight888\" \"über \\\"q\\\" \\\\\"  \"\\u00e9\\ud83d\\ude00\" \"tab\tin\"";
        let expected = strings(text, usize::MAX, Limits::default());
        assert_eq!(expected[4].0, "über \"q\" \\");
        assert_eq!(expected[5].0, "é😀");
        assert_eq!(expected[6], ("tab\tin".to_owned(), Flaw::Control as u8));
        for drip in 1..20 {
            assert_eq!(strings(text, drip, Limits::default()), expected, "{drip}");
        }
    }

    #[test]
    fn overlong_string_is_cut_and_next_string_is_complete() {
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
    fn literals_and_numbers_do_not_depend_on_read_sizes() {
        let text = "true null 12 -0.5e3,0 1234567890123 false";
        for drip in 1..9 {
            let mut reader = Reader::new(Drips(text.as_bytes(), drip), Limits::default());
            reader.next().unwrap();
            reader.expect_literal("true").unwrap();
            reader.next().unwrap();
            reader.expect_literal("null").unwrap();
            let mut doubles = Vec::new();
            for _ in 0..4 {
                if reader.next().unwrap() == b',' {
                    reader.advance();
                    reader.next().unwrap();
                }
                doubles.push(reader.read_number().unwrap().unwrap().double);
            }
            assert_eq!(doubles, [12.0, -500.0, 0.0, 1_234_567_890_123.0]);
            reader.next().unwrap();
            assert!(matches!(
                reader.expect_literal("fals!"),
                Err(Stop::Invalid(InvalidReason::Unexpected, _))
            ));
        }
    }
}
