//! The one pass over a text: syntax, UTF-8, duplicate keys, depth, lone surrogates.
//!
//! It does not stop at the first duplicate or lone surrogate; only broken syntax and depth end it.

use super::{ESCAPED, Entry, Node, Tape};
use crate::{
    nearest::shown,
    validation_error::{Pointer, ValidationError, ValidationErrors, push_key},
};

/// Containers of a request may be nested this deep, the root included.
const MAX_DEPTH: usize = 64;

/// Up to this many keys of one object are compared pairwise, without a detour through a sort.
const FEW_KEYS: usize = 12;

/// Checks a whole text and records where its values lie.
pub fn scan(text: &[u8]) -> Result<Tape, Vec<ValidationError>> {
    scan_at(text, &Pointer::Root)
}

/// Scans like [`scan`], for a text at `base` of a request.
pub fn scan_at(text: &[u8], base: &Pointer<'_>) -> Result<Tape, Vec<ValidationError>> {
    scan_to(text, base, MAX_DEPTH)
}

/// Scans like [`scan_at`], for a text whose containers may be nested `depth` deep.
pub fn scan_to(text: &[u8], base: &Pointer<'_>, depth: usize) -> Result<Tape, Vec<ValidationError>> {
    let (text, all) = valid(text);
    let mut scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        base,
        depth,
        at: if all.is_ok() { 0 } else { text.len() },
        tape: Vec::with_capacity(text.len() / 12 + 8),
        open: Vec::with_capacity(8),
        keys: Vec::with_capacity(32),
        faults: ValidationErrors::default(),
    };
    if let Err(stop) = all.and_then(|()| scanner.run()) {
        let fault = scanner.stopped(&stop);
        scanner.faults.push(fault);
    }
    if scanner.faults.is_empty() { Ok(Tape(scanner.tape)) } else { Err(scanner.faults.into_vec()) }
}

/// The text as far as it can be read, and why that is not all of it.
fn valid(text: &[u8]) -> (&str, Result<(), Stop>) {
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

/// A container whose end was not seen yet.
struct Open {
    entry: u32,
    object: bool,
    /// Start of an object's keys in `Scanner::keys`.
    keys: usize,
    /// Index of the array member that is being read.
    index: usize,
}

/// Why the text cannot be read further.
enum Stop {
    Syntax(&'static str),
    Utf8,
    Deep,
    Huge,
}

struct Scanner<'a> {
    text: &'a str,
    /// Its bytes.
    bytes: &'a [u8],
    base: &'a Pointer<'a>,
    depth: usize,
    at: usize,
    tape: Vec<Entry>,
    open: Vec<Open>,
    /// The tape entries of the keys of all open objects, the innermost object's last.
    keys: Vec<u32>,
    faults: ValidationErrors,
}

impl Scanner<'_> {
    fn run(&mut self) -> Result<(), Stop> {
        if self.peek().is_none() {
            return Err(Stop::Syntax("a JSON value was expected, but there is nothing"));
        }
        'value: loop {
            match self.peek() {
                Some(b'{') => {
                    self.open(true)?;
                    if self.peek() != Some(b'}') {
                        self.key("expected a key in quotes or `}`")?;
                        continue 'value;
                    }
                }
                Some(b'[') => {
                    self.open(false)?;
                    if self.peek() != Some(b']') {
                        continue 'value;
                    }
                }
                Some(b'"') => {
                    self.string()?;
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.word(b"true")?,
                Some(b'f') => self.word(b"false")?,
                Some(b'n') => self.word(b"null")?,
                Some(_) => return Err(Stop::Syntax("expected a value")),
                None => return Err(Stop::Syntax("expected a value, but the text ends")),
            }
            // A value is complete, or a container has just been opened and is empty.
            loop {
                let next = self.peek();
                let Some(open) = self.open.last_mut() else {
                    return match next {
                        None => Ok(()),
                        Some(_) => Err(Stop::Syntax("expected the end: there is more after the value")),
                    };
                };
                match (next, open.object) {
                    (Some(b','), true) => {
                        self.at += 1;
                        self.key("expected a key in quotes after `,`")?;
                        continue 'value;
                    }
                    (Some(b','), false) => {
                        self.at += 1;
                        open.index += 1;
                        continue 'value;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => self.close(),
                    (_, true) => return Err(Stop::Syntax("expected `,` or `}`")),
                    (_, false) => return Err(Stop::Syntax("expected `,` or `]`")),
                }
            }
        }
    }

    /// The next byte that is no white space, not consumed.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "`valid` bounds the text below 2 GiB")]
    fn push(&mut self, start: usize, end: usize, flags: u32) {
        let next = self.tape.len() as u32 + 1;
        self.tape.push(Entry { start: start as u32, end: end as u32 | flags, next });
    }

    #[allow(clippy::cast_possible_truncation, reason = "`valid` bounds the text below 2 GiB")]
    fn open(&mut self, object: bool) -> Result<(), Stop> {
        if self.open.len() == self.depth {
            return Err(Stop::Deep);
        }
        self.open.push(Open { entry: self.tape.len() as u32, object, keys: self.keys.len(), index: 0 });
        self.push(self.at, self.at, 0);
        self.at += 1;
        Ok(())
    }

    #[allow(clippy::cast_possible_truncation, reason = "`valid` bounds the text below 2 GiB")]
    fn close(&mut self) {
        self.at += 1;
        let Some(open) = self.open.pop() else { return };
        if open.object {
            self.find_duplicates(open.keys);
        }
        let next = self.tape.len() as u32;
        let entry = &mut self.tape[open.entry as usize];
        entry.end = self.at as u32;
        entry.next = next;
    }

    /// A key and its colon.
    #[allow(clippy::cast_possible_truncation, reason = "`valid` bounds the text below 2 GiB")]
    fn key(&mut self, expected: &'static str) -> Result<(), Stop> {
        if self.peek() != Some(b'"') {
            return Err(Stop::Syntax(expected));
        }
        let key = self.tape.len() as u32;
        self.keys.push(key);
        // A key that is broken off is not on the tape yet, so no pointer may lead through it.
        if let Err(stop) = self.string() {
            self.keys.pop();
            return Err(stop);
        }
        if self.peek() != Some(b':') {
            return Err(Stop::Syntax("expected `:` after the key"));
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), Stop> {
        let start = self.at;
        let mut flags = 0;
        let mut lone = false;
        self.at += 1;
        loop {
            self.skip_plain();
            match self.bytes.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    flags = ESCAPED;
                    lone |= self.escape()?;
                }
                Some(byte) if *byte < 0x20 => {
                    return Err(Stop::Syntax("a control character in a string must be escaped"));
                }
                Some(_) => self.at += 1,
                None => return Err(Stop::Syntax("the text ends inside a string")),
            }
        }
        self.at += 1;
        self.push(start, self.at, flags);
        if lone {
            let pointer = self.pointer();
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

    /// Passes eight bytes at a time while none of them ends a string, escapes, or is a control character.
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
                // Only the lowest hit is certain: a borrow may mark the byte after it.
                self.at += special.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
    }

    /// Reads an escape and returns true if it is a surrogate without its partner.
    fn escape(&mut self) -> Result<bool, Stop> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(false)
            }
            Some(b'u') => {
                let unit = self.unit(self.at + 2)?;
                self.at += 6;
                match unit {
                    0xd800..=0xdbff => {
                        if self.bytes.get(self.at..self.at + 2) == Some(b"\\u")
                            && (0xdc00..=0xdfff).contains(&self.unit(self.at + 2)?)
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

    fn unit(&self, at: usize) -> Result<u16, Stop> {
        let digits = self.bytes.get(at..at + 4).ok_or(Stop::Syntax("the text ends inside an escape"))?;
        digits.iter().try_fold(0, |unit: u16, digit| {
            let value = char::from(*digit)
                .to_digit(16)
                .and_then(|value| u16::try_from(value).ok())
                .ok_or(Stop::Syntax("`\\u` needs four hexadecimal digits"))?;
            Ok(unit << 4 | value)
        })
    }

    fn number(&mut self) -> Result<(), Stop> {
        let start = self.at;
        let is = |at: usize, wanted: u8| self.bytes.get(at) == Some(&wanted);
        let digits = |mut at: usize| {
            let from = at;
            while self.bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            (at > from).then_some(at)
        };
        let mut at = start + usize::from(is(start, b'-'));
        let whole = at;
        at = digits(at).ok_or(Stop::Syntax("a number needs a digit after `-`"))?;
        if is(whole, b'0') && at > whole + 1 {
            return Err(Stop::Syntax("a number may not begin with 0"));
        }
        if is(at, b'.') {
            at = digits(at + 1).ok_or(Stop::Syntax("a number needs a digit after `.`"))?;
        }
        if is(at, b'e') || is(at, b'E') {
            at += 1;
            at += usize::from(is(at, b'+') || is(at, b'-'));
            at = digits(at).ok_or(Stop::Syntax("a number needs a digit in its exponent"))?;
        }
        self.at = at;
        self.push(start, at, 0);
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Stop> {
        let start = self.at;
        if !self.bytes[start..].starts_with(word) {
            return Err(Stop::Syntax("expected a value"));
        }
        self.at += word.len();
        self.push(start, self.at, 0);
        Ok(())
    }

    /// Reports the keys from there on that stand twice, and forgets them all.
    fn find_duplicates(&mut self, from: usize) {
        let mut again: Vec<u32> = Vec::new();
        {
            let keys = &mut self.keys[from..];
            let (text, bytes, tape) = (self.text, self.bytes, &self.tape[..]);
            let name = |at: u32| Node { text, tape, at }.unquoted();
            let plain = |entry: Entry| {
                (entry.end & ESCAPED == 0).then(|| &bytes[entry.start as usize..entry.end as usize])
            };
            let same = |a: u32, b: u32| match (plain(tape[a as usize]), plain(tape[b as usize])) {
                (Some(a), Some(b)) => a == b,
                _ => name(a) == name(b),
            };
            if keys.len() <= FEW_KEYS {
                for (i, &key) in keys.iter().enumerate() {
                    if keys[..i].iter().any(|&earlier| same(earlier, key)) {
                        again.push(key);
                    }
                }
            } else {
                // A sort stays fast whatever keys a client chooses; a hash table could be made to collide.
                keys.sort_unstable_by(|&a, &b| name(a).cmp(&name(b)).then(a.cmp(&b)));
                again.extend(
                    keys.windows(2).filter(|pair| name(pair[0]) == name(pair[1])).map(|pair| pair[1]),
                );
                again.sort_unstable();
            }
        }
        self.keys.truncate(from);
        if again.is_empty() {
            return;
        }
        // The object is closed and its keys are gone: the pointer leads to it, and the key is added.
        let parent = self.pointer();
        for key in again {
            let name = Node { text: self.text, tape: &self.tape, at: key }.unquoted();
            let mut pointer = parent.clone().unwrap_or_default();
            push_key(&mut pointer, &name);
            self.faults.push(ValidationError {
                pointer: (!pointer.is_empty()).then_some(pointer),
                ..ValidationError::invalid(
                    &Pointer::Root,
                    "Duplicate key",
                    format!("The key `{}` stands more than once in one object.", shown(&name)),
                )
            });
        }
    }

    /// Returns the pointer to the current position, through all open containers.
    fn pointer(&self) -> Option<String> {
        let mut pointer = self.base.render().unwrap_or_default();
        for (depth, open) in self.open.iter().enumerate() {
            let fits = if open.object {
                let end = self.open.get(depth + 1).map_or(self.keys.len(), |inner| inner.keys);
                match self.keys[open.keys..end].last() {
                    Some(&key) if (key as usize) < self.tape.len() => {
                        let key = Node { text: self.text, tape: &self.tape, at: key };
                        push_key(&mut pointer, &key.unquoted())
                    }
                    _ => false,
                }
            } else {
                push_key(&mut pointer, &open.index.to_string())
            };
            if !fits {
                break;
            }
        }
        (!pointer.is_empty()).then_some(pointer)
    }

    fn stopped(&self, stop: &Stop) -> ValidationError {
        let seen = &self.bytes[..self.at.min(self.bytes.len())];
        let line = 1 + seen.iter().filter(|byte| **byte == b'\n').count();
        let begin = seen.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // Continuation bytes are no characters of their own.
        let column = 1 + seen[begin..].iter().filter(|byte| **byte & 0xc0 != 0x80).count();
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
                    self.depth
                ),
            ),
            Stop::Huge => ("Malformed JSON", "The text is longer than 2 GiB.".to_owned()),
        };
        ValidationError { pointer: self.pointer(), ..ValidationError::invalid(&Pointer::Root, title, detail) }
    }
}
