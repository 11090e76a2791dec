//! Values of one object of the form, as the walk has read them.

use std::io::{self, Read, Write};

use crate::json::{Number, Position};

/// The most fields that an object of the form has, and what its totals and the sums of its groups take up.
const FIELDS: usize = 22;

#[derive(Clone, Copy, Debug, Default)]
enum CellValue {
    #[default]
    Nothing,
    Null,
    Text {
        start: usize,
        end: usize,
    },
    /// Index into the numbers, which are large and few.
    Number(usize),
    Flag(bool),
    /// A container, or a value that is not what the form wants.
    Other,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    at: Position,
    held: CellValue,
}

/// Fields are named by their place in the object's form.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) at: Position,
    /// Index in its list.
    pub(crate) index: u64,
    seen: u32,
    cells: [Cell; FIELDS],
    texts: Vec<u8>,
    numbers: Vec<Number>,
}

impl Row {
    #[inline]
    pub(crate) fn begin(&mut self, at: Position) {
        self.at = at;
        self.seen = 0;
        self.texts.clear();
        self.numbers.clear();
    }

    #[inline]
    pub(crate) fn has(&self, field: usize) -> bool {
        self.seen & (1 << field) != 0
    }

    fn held(&self, field: usize) -> CellValue {
        if self.has(field) { self.cells[field].held } else { CellValue::Nothing }
    }

    #[inline]
    pub(crate) fn text(&self, field: usize) -> Option<&[u8]> {
        match self.held(field) {
            CellValue::Text { start, end } => Some(&self.texts[start..end]),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn is_null(&self, field: usize) -> bool {
        matches!(self.held(field), CellValue::Null)
    }

    #[inline]
    pub(crate) fn number(&self, field: usize) -> Option<Number> {
        match self.held(field) {
            CellValue::Number(at) => self.numbers.get(at).copied(),
            _ => None,
        }
    }

    pub(crate) fn flag(&self, field: usize) -> Option<bool> {
        match self.held(field) {
            CellValue::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    /// Position of the field's value, or of its object if there is none.
    #[inline]
    pub(crate) fn position(&self, field: usize) -> Position {
        if self.has(field) { self.cells[field].at } else { self.at }
    }

    #[inline]
    pub(crate) fn put_text(&mut self, field: usize, at: Position, text: &[u8]) {
        let start = self.texts.len();
        self.texts.extend_from_slice(text);
        self.put(field, at, CellValue::Text { start, end: self.texts.len() });
    }

    #[inline]
    pub(crate) fn put_number(&mut self, field: usize, at: Position, number: Number) {
        self.put(field, at, CellValue::Number(self.numbers.len()));
        self.numbers.push(number);
    }

    /// A number that none of the object's fields holds, as long as there is room.
    pub(crate) fn put_more(&mut self, at: Position, number: Number) {
        let mut free = Self::MORE.filter(|field| !self.has(*field));
        if let Some(field) = free.next() {
            self.put_number(field, at, number);
        }
    }

    /// The places of such numbers.
    pub(crate) const MORE: std::ops::Range<usize> = 12..16;

    pub(crate) fn put_flag(&mut self, field: usize, at: Position, flag: bool) {
        self.put(field, at, CellValue::Flag(flag));
    }

    pub(crate) fn put_null(&mut self, field: usize, at: Position) {
        self.put(field, at, CellValue::Null);
    }

    pub(crate) fn put_other(&mut self, field: usize, at: Position) {
        self.put(field, at, CellValue::Other);
    }

    #[inline]
    fn put(&mut self, field: usize, at: Position, held: CellValue) {
        self.cells[field] = Cell { at, held };
        self.seen |= 1 << field;
    }

    /// Writes it for [`Row::load`]: of a number, only what it counts, if it counts anything; of flags nothing.
    pub(crate) fn store(&self, into: &mut impl Write) -> io::Result<()> {
        into.write_all(&self.index.to_le_bytes())?;
        into.write_all(&self.seen.to_le_bytes())?;
        store_position(self.at, into)?;
        for field in (0..FIELDS).filter(|field| self.has(*field)) {
            let cell = &self.cells[field];
            store_position(cell.at, into)?;
            match cell.held {
                CellValue::Text { start, end } => {
                    into.write_all(b"t")?;
                    into.write_all(&((end - start) as u64).to_le_bytes())?;
                    into.write_all(&self.texts[start..end])?;
                }
                // What is no count stays none.
                CellValue::Number(_) if !self.number(field).is_some_and(|it| it.whole && it.at_least(0)) => {
                    into.write_all(b"x")?;
                }
                CellValue::Number(_) => {
                    into.write_all(b"n")?;
                    let count = self.number(field).map_or(0, |number| number.count());
                    let count = u64::try_from(count).unwrap_or(u64::MAX);
                    into.write_all(&count.to_le_bytes())?;
                }
                CellValue::Null => into.write_all(b"0")?,
                CellValue::Flag(_) | CellValue::Other | CellValue::Nothing => into.write_all(b"x")?,
            }
        }
        Ok(())
    }

    pub(crate) fn load(&mut self, from: &mut impl Read) -> io::Result<()> {
        self.texts.clear();
        self.numbers.clear();
        self.index = load_word(from)?;
        let mut seen = [0; 4];
        from.read_exact(&mut seen)?;
        self.seen = u32::from_le_bytes(seen);
        self.at = load_position(from)?;
        for field in (0..FIELDS).filter(|field| self.seen & (1 << field) != 0) {
            let at = load_position(from)?;
            let mut kind = [0];
            from.read_exact(&mut kind)?;
            let held = match kind[0] {
                b't' => {
                    let (start, length) = (self.texts.len(), load_word(from)?);
                    let read = from.by_ref().take(length).read_to_end(&mut self.texts)?;
                    if read as u64 != length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    CellValue::Text { start, end: self.texts.len() }
                }
                b'n' => {
                    self.numbers.push(Number::small(load_word(from)?));
                    CellValue::Number(self.numbers.len() - 1)
                }
                b'0' => CellValue::Null,
                _ => CellValue::Other,
            };
            self.cells[field] = Cell { at, held };
        }
        Ok(())
    }
}

fn store_position(at: Position, into: &mut impl Write) -> io::Result<()> {
    into.write_all(&at.offset.to_le_bytes())?;
    into.write_all(&at.line.to_le_bytes())
}

fn load_position(from: &mut impl Read) -> io::Result<Position> {
    Ok(Position { offset: load_word(from)?, line: load_word(from)? })
}

fn load_word(from: &mut impl Read) -> io::Result<u64> {
    let mut word = [0; 8];
    from.read_exact(&mut word)?;
    Ok(u64::from_le_bytes(word))
}
