//! Scans a JSON text once for syntax, UTF-8, duplicate keys, depth and lone surrogates. Only broken syntax and
//! excessive depth end the scan early.

use super::{ESCAPED, Entry, Node, Tape};
use crate::{
    nearest::truncate_name,
    validation_error::{Pointer, ValidationError, ValidationErrors, push_key},
};

/// Maximum nesting depth of a request's containers, the root included.
const MAX_DEPTH: usize = 64;

/// Maximum number of keys that are compared pairwise: for so few, a sort is slower.
const FEW_KEYS: usize = 12;

/// Checks a text and records the ranges of its values.
pub fn scan(text: &[u8]) -> Result<Tape, Vec<ValidationError>> {
    scan_at(text, &Pointer::Root)
}

/// Scans like [`scan`]. `base` is the pointer of the text in its request and prefixes the pointers of errors.
pub fn scan_at(text: &[u8], base: &Pointer<'_>) -> Result<Tape, Vec<ValidationError>> {
    scan_to(text, base, MAX_DEPTH)
}

/// Scans like [`scan_at`], with a limit of `depth` nested containers.
pub fn scan_to(text: &[u8], base: &Pointer<'_>, depth: usize) -> Result<Tape, Vec<ValidationError>> {
    let (text, validity) = check_utf8(text);
    let mut scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        base,
        max_depth: depth,
        // After a UTF-8 error the scan does not run; the end of the valid prefix is the position of the error.
        at: if validity.is_ok() { 0 } else { text.len() },
        // Sized for one value per twelve bytes, so that the tape of a typical request rarely grows.
        tape: Vec::with_capacity(text.len() / 12 + 8),
        open_containers: Vec::with_capacity(8),
        keys: Vec::with_capacity(32),
        faults: ValidationErrors::default(),
    };
    if let Err(stop) = validity.and_then(|()| scanner.run()) {
        let fault = scanner.describe_stop(&stop);
        scanner.faults.push(fault);
    }
    if scanner.faults.is_empty() { Ok(Tape(scanner.tape)) } else { Err(scanner.faults.into_vec()) }
}

/// Returns the readable prefix of the text, with an error if the text is too large or not UTF-8.
fn check_utf8(text: &[u8]) -> (&str, Result<(), Stop>) {
    // The top bit of an end offset is the flag for escapes.
    if text.len() >= ESCAPED as usize {
        return ("", Err(Stop::Huge));
    }
    match std::str::from_utf8(text) {
        Ok(text) => (text, Ok(())),
        Err(fault) => {
            (std::str::from_utf8(&text[..fault.valid_up_to()]).unwrap_or_default(), Err(Stop::Utf8))
        }
    }
}

/// Container with an end that is not scanned yet.
struct OpenContainer {
    entry: u32,
    is_object: bool,
    /// Index of the object's first key in `Scanner::keys`.
    first_key: usize,
    /// Index of the current array member.
    index: usize,
}

/// Fault that ends a scan.
enum Stop {
    Syntax(&'static str),
    Utf8,
    Deep,
    Huge,
}

struct Scanner<'a> {
    text: &'a str,
    /// Bytes of `text`.
    bytes: &'a [u8],
    base: &'a Pointer<'a>,
    max_depth: usize,
    at: usize,
    tape: Vec<Entry>,
    open_containers: Vec<OpenContainer>,
    /// Tape indices of the keys of all open objects; those of the innermost object are last.
    keys: Vec<u32>,
    faults: ValidationErrors,
}

impl Scanner<'_> {
    fn run(&mut self) -> Result<(), Stop> {
        if self.peek().is_none() {
            return Err(Stop::Syntax("expected a JSON value, but the text is empty"));
        }
        'value: loop {
            match self.peek() {
                Some(b'{') => {
                    self.open_container(true)?;
                    if self.peek() != Some(b'}') {
                        self.read_key("expected a key in quotes or `}`")?;
                        continue 'value;
                    }
                }
                Some(b'[') => {
                    self.open_container(false)?;
                    if self.peek() != Some(b']') {
                        continue 'value;
                    }
                }
                Some(b'"') => {
                    self.read_string()?;
                }
                Some(b'-' | b'0'..=b'9') => self.read_number()?,
                Some(b't') => self.read_word(b"true")?,
                Some(b'f') => self.read_word(b"false")?,
                Some(b'n') => self.read_word(b"null")?,
                Some(_) => return Err(Stop::Syntax("expected a value")),
                None => return Err(Stop::Syntax("expected a value, but the text ends")),
            }
            // Here a value is complete, or the container that was just opened is empty.
            loop {
                let next = self.peek();
                let Some(open) = self.open_containers.last_mut() else {
                    return match next {
                        None => Ok(()),
                        Some(_) => Err(Stop::Syntax("expected the end of the text after the value")),
                    };
                };
                match (next, open.is_object) {
                    (Some(b','), true) => {
                        self.at += 1;
                        self.read_key("expected a key in quotes after `,`")?;
                        continue 'value;
                    }
                    (Some(b','), false) => {
                        self.at += 1;
                        open.index += 1;
                        continue 'value;
                    }
                    // The end of a container completes a value of its parent, so the loop continues without a new
                    // value.
                    (Some(b'}'), true) | (Some(b']'), false) => self.close_container(),
                    (_, true) => return Err(Stop::Syntax("expected `,` or `}`")),
                    (_, false) => return Err(Stop::Syntax("expected `,` or `]`")),
                }
            }
        }
    }

    /// Returns the next byte that is not white space, without consuming it.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "`check_utf8` bounds the text below 2 GiB")]
    fn push_entry(&mut self, start: usize, end: usize, flags: u32) {
        // For a container, `close_container` replaces end and next.
        let next = self.tape.len() as u32 + 1;
        self.tape.push(Entry { start: start as u32, end: end as u32 | flags, next });
    }

    #[allow(clippy::cast_possible_truncation, reason = "`check_utf8` bounds the text below 2 GiB")]
    fn open_container(&mut self, is_object: bool) -> Result<(), Stop> {
        // Nested containers of a hostile text would otherwise overflow the stack of recursive readers.
        if self.open_containers.len() == self.max_depth {
            return Err(Stop::Deep);
        }
        self.open_containers.push(OpenContainer {
            entry: self.tape.len() as u32,
            is_object,
            first_key: self.keys.len(),
            index: 0,
        });
        self.push_entry(self.at, self.at, 0);
        self.at += 1;
        Ok(())
    }

    #[allow(clippy::cast_possible_truncation, reason = "`check_utf8` bounds the text below 2 GiB")]
    fn close_container(&mut self) {
        self.at += 1;
        let Some(open) = self.open_containers.pop() else { return };
        if open.is_object {
            self.report_duplicates(open.first_key);
        }
        let next = self.tape.len() as u32;
        let entry = &mut self.tape[open.entry as usize];
        entry.end = self.at as u32;
        entry.next = next;
    }

    /// Reads a key and its colon.
    #[allow(clippy::cast_possible_truncation, reason = "`check_utf8` bounds the text below 2 GiB")]
    fn read_key(&mut self, expected: &'static str) -> Result<(), Stop> {
        if self.peek() != Some(b'"') {
            return Err(Stop::Syntax(expected));
        }
        let key = self.tape.len() as u32;
        self.keys.push(key);
        // A truncated key is not on the tape yet, so the error's pointer must not include it.
        if let Err(stop) = self.read_string() {
            self.keys.pop();
            return Err(stop);
        }
        if self.peek() != Some(b':') {
            return Err(Stop::Syntax("expected `:` after the key"));
        }
        self.at += 1;
        Ok(())
    }

    fn read_string(&mut self) -> Result<(), Stop> {
        let start = self.at;
        let mut flags = 0;
        let mut has_lone_surrogate = false;
        self.at += 1;
        loop {
            self.skip_plain();
            match self.bytes.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    flags = ESCAPED;
                    has_lone_surrogate |= self.read_escape()?;
                }
                // JSON requires escapes for control characters; a raw line end usually means a missing quote.
                Some(byte) if *byte < 0x20 => {
                    return Err(Stop::Syntax("a control character in a string must be escaped"));
                }
                Some(_) => self.at += 1,
                None => return Err(Stop::Syntax("the text ends inside a string")),
            }
        }
        self.at += 1;
        self.push_entry(start, self.at, flags);
        if has_lone_surrogate {
            let pointer = self.current_pointer();
            self.faults.push(ValidationError {
                pointer,
                ..ValidationError::invalid(
                    &Pointer::Root,
                    "Invalid Unicode",
                    "A string holds an escaped surrogate without its partner, which is no character.",
                )
            });
        }
        Ok(())
    }

    /// Skips eight bytes at a time while none of them is a quote, a backslash or a control character.
    fn skip_plain(&mut self) {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const TOPS: u64 = ONES << 7;
        let equals = |word: u64, byte: u8| {
            let difference = word ^ (ONES * u64::from(byte));
            difference.wrapping_sub(ONES) & !difference & TOPS
        };
        while let Some(chunk) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<8>) {
            let word = u64::from_le_bytes(*chunk);
            let control = word.wrapping_sub(ONES * 0x20) & !word & TOPS;
            let special = equals(word, b'"') | equals(word, b'\\') | control;
            if special != 0 {
                // Only the lowest hit is exact: the borrow of the subtraction can mark the byte after it.
                self.at += special.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
    }

    /// Reads an escape. Returns true if it is a surrogate without its partner.
    fn read_escape(&mut self) -> Result<bool, Stop> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(false)
            }
            Some(b'u') => {
                let unit = self.read_code_unit(self.at + 2)?;
                self.at += 6;
                match unit {
                    0xd800..=0xdbff => {
                        if self.bytes.get(self.at..self.at + 2) == Some(b"\\u")
                            && (0xdc00..=0xdfff).contains(&self.read_code_unit(self.at + 2)?)
                        {
                            self.at += 6;
                            return Ok(false);
                        }
                        Ok(true)
                    }
                    0xdc00..=0xdfff => Ok(true),
                    _ => Ok(false),
                }
            }
            _ => Err(Stop::Syntax("unknown escape in a string")),
        }
    }

    fn read_code_unit(&self, at: usize) -> Result<u16, Stop> {
        let digits = self.bytes.get(at..at + 4).ok_or(Stop::Syntax("the text ends inside an escape"))?;
        digits.iter().try_fold(0, |unit: u16, digit| {
            let value = char::from(*digit)
                .to_digit(16)
                .and_then(|value| u16::try_from(value).ok())
                .ok_or(Stop::Syntax("`\\u` needs four hexadecimal digits"))?;
            Ok(unit << 4 | value)
        })
    }

    fn read_number(&mut self) -> Result<(), Stop> {
        let start = self.at;
        let is_byte = |at: usize, expected: u8| self.bytes.get(at) == Some(&expected);
        let skip_digits = |mut at: usize| {
            let from = at;
            while self.bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            (at > from).then_some(at)
        };
        let mut at = start + usize::from(is_byte(start, b'-'));
        let integer_start = at;
        at = skip_digits(at).ok_or(Stop::Syntax("a number needs a digit after `-`"))?;
        // JSON forbids leading zeros.
        if is_byte(integer_start, b'0') && at > integer_start + 1 {
            return Err(Stop::Syntax("a number may not begin with 0"));
        }
        if is_byte(at, b'.') {
            at = skip_digits(at + 1).ok_or(Stop::Syntax("a number needs a digit after `.`"))?;
        }
        if is_byte(at, b'e') || is_byte(at, b'E') {
            at += 1;
            at += usize::from(is_byte(at, b'+') || is_byte(at, b'-'));
            at = skip_digits(at).ok_or(Stop::Syntax("a number needs a digit in its exponent"))?;
        }
        self.at = at;
        self.push_entry(start, at, 0);
        Ok(())
    }

    fn read_word(&mut self, word: &[u8]) -> Result<(), Stop> {
        let start = self.at;
        if !self.bytes[start..].starts_with(word) {
            return Err(Stop::Syntax("expected a value"));
        }
        self.at += word.len();
        self.push_entry(start, self.at, 0);
        Ok(())
    }

    /// Reports repeated keys among those from index `from` on, and removes these keys from the stack.
    fn report_duplicates(&mut self, from: usize) {
        let mut duplicates: Vec<u32> = Vec::new();
        {
            let keys = &mut self.keys[from..];
            let (text, bytes, tape) = (self.text, self.bytes, &self.tape[..]);
            let name = |at: u32| Node { text, tape, index: at }.unquoted();
            // Keys without escapes are compared as bytes, without decoding.
            let plain = |entry: Entry| {
                (entry.end & ESCAPED == 0).then(|| &bytes[entry.start as usize..entry.end as usize])
            };
            let is_same = |a: u32, b: u32| match (plain(tape[a as usize]), plain(tape[b as usize])) {
                (Some(a), Some(b)) => a == b,
                _ => name(a) == name(b),
            };
            if keys.len() <= FEW_KEYS {
                for (i, &key) in keys.iter().enumerate() {
                    if keys[..i].iter().any(|&earlier| is_same(earlier, key)) {
                        duplicates.push(key);
                    }
                }
            } else {
                // A client cannot choose keys that slow a sort down; colliding keys would slow a hash table down.
                keys.sort_unstable_by(|&a, &b| name(a).cmp(&name(b)).then(a.cmp(&b)));
                duplicates.extend(
                    keys.windows(2).filter(|pair| name(pair[0]) == name(pair[1])).map(|pair| pair[1]),
                );
                duplicates.sort_unstable();
            }
        }
        // Removed before the pointers are built, which lead to the last key of each open object.
        self.keys.truncate(from);
        if duplicates.is_empty() {
            return;
        }
        // The object is closed and its keys are removed, so the pointer ends at the object and the key is appended.
        let parent = self.current_pointer();
        for key in duplicates {
            let name = Node { text: self.text, tape: &self.tape, index: key }.unquoted();
            let mut pointer = parent.clone().unwrap_or_default();
            push_key(&mut pointer, &name);
            self.faults.push(ValidationError {
                pointer: (!pointer.is_empty()).then_some(pointer),
                ..ValidationError::invalid(
                    &Pointer::Root,
                    "Duplicate key",
                    format!("The key `{}` occurs more than once in one object.", truncate_name(&name)),
                )
            });
        }
    }

    /// Returns the pointer to the current position, through all open containers.
    fn current_pointer(&self) -> Option<String> {
        let mut pointer = self.base.render().unwrap_or_default();
        for (depth, open) in self.open_containers.iter().enumerate() {
            let is_complete = if open.is_object {
                let end =
                    self.open_containers.get(depth + 1).map_or(self.keys.len(), |inner| inner.first_key);
                match self.keys[open.first_key..end].last() {
                    // A key that is still being read has no tape entry.
                    Some(&key) if (key as usize) < self.tape.len() => {
                        let key = Node { text: self.text, tape: &self.tape, index: key };
                        push_key(&mut pointer, &key.unquoted())
                    }
                    _ => false,
                }
            } else {
                push_key(&mut pointer, &open.index.to_string())
            };
            if !is_complete {
                break;
            }
        }
        (!pointer.is_empty()).then_some(pointer)
    }

    fn describe_stop(&self, stop: &Stop) -> ValidationError {
        let scanned = &self.bytes[..self.at.min(self.bytes.len())];
        let line = 1 + scanned.iter().filter(|byte| **byte == b'\n').count();
        let line_start = scanned.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // UTF-8 continuation bytes do not count as columns.
        let column = 1 + scanned[line_start..].iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        let (title, detail) = match stop {
            Stop::Syntax(expected) => {
                ("Malformed JSON", format!("Line {line}, column {column}: {expected}."))
            }
            Stop::Utf8 => {
                ("Malformed JSON", format!("Line {line}, column {column}: the text is not valid UTF-8."))
            }
            Stop::Deep => (
                "JSON nested too deeply",
                format!(
                    "Line {line}, column {column}: objects and arrays may be nested {} deep at most.",
                    self.max_depth
                ),
            ),
            Stop::Huge => ("Malformed JSON", "The text is longer than 2 GiB.".to_owned()),
        };
        ValidationError {
            pointer: self.current_pointer(),
            ..ValidationError::invalid(&Pointer::Root, title, detail)
        }
    }
}
