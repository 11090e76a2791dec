//! Holds the values of one object of the form after the walk has read it.

use std::io::{self, Read, Write};

use crate::json::{Number, Position};

/// Slots of a row: the maximum number of fields of an object, followed by totals and group sums of an outcome.
const MAX_FIELDS: usize = 22;

/// Value of a field. Texts are ranges of `Row::texts`.
#[derive(Clone, Copy, Debug, Default)]
enum CellValue {
    #[default]
    Missing,
    Null,
    Text {
        start: usize,
        end: usize,
    },
    /// Index into `Row::numbers`. Numbers are large and few, so cells do not contain them.
    Number(usize),
    Flag(bool),
    /// Container, or a value of the wrong type.
    Other,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    at: Position,
    value: CellValue,
}

/// Values of one object by the index of their field in the form. Reused for many objects, to save allocations.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) at: Position,
    /// Index of the object in its list.
    pub(crate) index: u64,
    /// Bit set of the fields with a value. Cells of other fields are stale.
    present_fields: u32,
    cells: [Cell; MAX_FIELDS],
    texts: Vec<u8>,
    numbers: Vec<Number>,
}

impl Row {
    #[inline]
    pub(crate) fn begin(&mut self, at: Position) {
        self.at = at;
        self.present_fields = 0;
        self.texts.clear();
        self.numbers.clear();
    }

    #[inline]
    pub(crate) fn has(&self, field: usize) -> bool {
        self.present_fields & (1 << field) != 0
    }

    fn value(&self, field: usize) -> CellValue {
        if self.has(field) { self.cells[field].value } else { CellValue::Missing }
    }

    #[inline]
    pub(crate) fn text(&self, field: usize) -> Option<&[u8]> {
        match self.value(field) {
            CellValue::Text { start, end } => Some(&self.texts[start..end]),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn is_null(&self, field: usize) -> bool {
        matches!(self.value(field), CellValue::Null)
    }

    #[inline]
    pub(crate) fn number(&self, field: usize) -> Option<Number> {
        match self.value(field) {
            CellValue::Number(at) => self.numbers.get(at).copied(),
            _ => None,
        }
    }

    pub(crate) fn flag(&self, field: usize) -> Option<bool> {
        match self.value(field) {
            CellValue::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    /// Position of the field's value, or of the object if the field is missing.
    #[inline]
    pub(crate) fn position(&self, field: usize) -> Position {
        if self.has(field) { self.cells[field].at } else { self.at }
    }

    #[inline]
    pub(crate) fn put_text(&mut self, field: usize, at: Position, text: &[u8]) {
        let start = self.texts.len();
        self.texts.extend_from_slice(text);
        self.set(field, at, CellValue::Text { start, end: self.texts.len() });
    }

    #[inline]
    pub(crate) fn put_number(&mut self, field: usize, at: Position, number: Number) {
        self.set(field, at, CellValue::Number(self.numbers.len()));
        self.numbers.push(number);
    }

    /// Stores a total from an unknown member, if one of the [`Row::TOTALS`] is free.
    pub(crate) fn put_total(&mut self, at: Position, number: Number) {
        let mut free_fields = Self::TOTALS.filter(|field| !self.has(*field));
        if let Some(field) = free_fields.next() {
            self.put_number(field, at, number);
        }
    }

    /// Slots of totals.
    pub(crate) const TOTALS: std::ops::Range<usize> = 12..16;

    pub(crate) fn put_flag(&mut self, field: usize, at: Position, flag: bool) {
        self.set(field, at, CellValue::Flag(flag));
    }

    pub(crate) fn put_null(&mut self, field: usize, at: Position) {
        self.set(field, at, CellValue::Null);
    }

    pub(crate) fn put_other(&mut self, field: usize, at: Position) {
        self.set(field, at, CellValue::Other);
    }

    #[inline]
    fn set(&mut self, field: usize, at: Position, value: CellValue) {
        self.cells[field] = Cell { at, value };
        self.present_fields |= 1 << field;
    }

    /// Encodes the row for [`Row::load`]. Numbers that are not counts, and flags, lose their value: no check of
    /// deferred rows needs them.
    pub(crate) fn store(&self, into: &mut impl Write) -> io::Result<()> {
        into.write_all(&self.index.to_le_bytes())?;
        into.write_all(&self.present_fields.to_le_bytes())?;
        store_position(self.at, into)?;
        for field in (0..MAX_FIELDS).filter(|field| self.has(*field)) {
            let cell = &self.cells[field];
            store_position(cell.at, into)?;
            match cell.value {
                CellValue::Text { start, end } => {
                    into.write_all(b"t")?;
                    into.write_all(&((end - start) as u64).to_le_bytes())?;
                    into.write_all(&self.texts[start..end])?;
                }
                // A number that is not a count is stored like another type, so that it does not become one.
                CellValue::Number(_)
                    if !self.number(field).is_some_and(|number| number.is_whole && number.is_at_least(0)) =>
                {
                    into.write_all(b"x")?;
                }
                CellValue::Number(_) => {
                    into.write_all(b"n")?;
                    let count = self.number(field).map_or(0, |number| number.saturating_count());
                    let count = u64::try_from(count).unwrap_or(u64::MAX);
                    into.write_all(&count.to_le_bytes())?;
                }
                CellValue::Null => into.write_all(b"0")?,
                CellValue::Flag(_) | CellValue::Other | CellValue::Missing => into.write_all(b"x")?,
            }
        }
        Ok(())
    }

    pub(crate) fn load(&mut self, from: &mut impl Read) -> io::Result<()> {
        self.texts.clear();
        self.numbers.clear();
        self.index = load_word(from)?;
        let mut field_bits = [0; 4];
        from.read_exact(&mut field_bits)?;
        self.present_fields = u32::from_le_bytes(field_bits);
        self.at = load_position(from)?;
        for field in (0..MAX_FIELDS).filter(|field| self.present_fields & (1 << field) != 0) {
            let at = load_position(from)?;
            let mut kind = [0];
            from.read_exact(&mut kind)?;
            let value = match kind[0] {
                b't' => {
                    // The length is not used as a capacity, or damaged data could request any amount of memory.
                    let (start, length) = (self.texts.len(), load_word(from)?);
                    let read_bytes = from.by_ref().take(length).read_to_end(&mut self.texts)?;
                    if read_bytes as u64 != length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    CellValue::Text { start, end: self.texts.len() }
                }
                b'n' => {
                    self.numbers.push(Number::from_u64(load_word(from)?));
                    CellValue::Number(self.numbers.len() - 1)
                }
                b'0' => CellValue::Null,
                _ => CellValue::Other,
            };
            self.cells[field] = Cell { at, value };
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
