//! Avro binary encoding of values. Input is untrusted: counts and lengths are checked against the remaining bytes.
//! Schemas are compared in `evolution`.

use std::{borrow::Cow, fmt};

use bytes::Bytes;
use uuid::Uuid;

use crate::ids::{
    ActionId, AppealId, CauseId, ConfigVersion, DecisionId, EndpointId, EventId, ItemId, ItemKey, JobId,
    Millis, OrgId, PolicyId, ReportId, SubmissionId, TypeId,
};

/// Error for a datum that does not match its schema. It states the place, never the content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed record `{}`{}: {}", .0.record, self.describe_place(), .0.error)]
pub struct RecordDecodeError(Box<ErrorPlace>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct ErrorPlace {
    record: Cow<'static, str>,
    /// Steps of the path, innermost first: each caller appends its step to the returned error.
    path: Vec<Step>,
    error: AvroError,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(Cow<'static, str>),
    Index(usize),
}

/// Kind of decoding error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AvroError {
    #[error("the datum ends early")]
    Truncated,
    #[error("a length is negative or larger than the remaining bytes")]
    Length,
    #[error("a block announces more entries than can follow, or another size than it has")]
    Block,
    #[error("an integer is longer than 64 bits")]
    Varint,
    #[error("an integer is out of range")]
    Range,
    #[error("a boolean is neither 0 nor 1")]
    Boolean,
    #[error("a union has no such branch")]
    Branch,
    #[error("an enum has no such symbol")]
    Symbol,
    #[error("a string is not UTF-8")]
    Utf8,
    #[error("bytes follow the datum")]
    Trailing,
    #[error("values are nested too deeply")]
    Depth,
    #[error("the writer's schema cannot be read as the reader's: {0}")]
    Unresolvable(String),
}

impl AvroError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Length => "bad_length",
            Self::Block => "bad_block",
            Self::Varint => "bad_varint",
            Self::Range => "out_of_range",
            Self::Boolean => "bad_boolean",
            Self::Branch => "unknown_branch",
            Self::Symbol => "unknown_symbol",
            Self::Utf8 => "not_utf8",
            Self::Trailing => "trailing_bytes",
            Self::Depth => "too_deep",
            Self::Unresolvable(_) => "unresolvable",
        }
    }
}

impl RecordDecodeError {
    #[cold]
    pub(super) fn new(error: AvroError) -> Self {
        // Boxed, because the results of all readers would otherwise have the size of the error.
        Self(Box::new(ErrorPlace { record: Cow::Borrowed("unnamed"), path: Vec::new(), error }))
    }

    #[cold]
    pub(super) fn at_field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.0.path.push(Step::Field(field.into()));
        self
    }

    #[cold]
    pub(super) fn at_index(mut self, index: usize) -> Self {
        self.0.path.push(Step::Index(index));
        self
    }

    #[cold]
    pub(super) fn of(mut self, record: impl Into<Cow<'static, str>>) -> Self {
        self.0.record = record.into();
        self
    }

    pub fn record(&self) -> &str {
        &self.0.record
    }

    /// Returns a path such as `items[3].data`; empty for the whole datum.
    pub fn path(&self) -> String {
        self.0.path.iter().rev().fold(String::new(), |path, step| match step {
            Step::Index(index) => format!("{path}[{index}]"),
            Step::Field(field) if path.is_empty() => field.to_string(),
            Step::Field(field) => format!("{path}.{field}"),
        })
    }

    fn describe_place(&self) -> String {
        if self.0.path.is_empty() { String::new() } else { format!(" at `{}`", self.path()) }
    }

    pub fn error(&self) -> &AvroError {
        &self.0.error
    }

    pub fn tag(&self) -> &'static str {
        self.0.error.tag()
    }
}

/// Reads values from the front of a datum, without reading or allocating beyond the remaining bytes.
pub(crate) struct Reader<'a> {
    datum: &'a Bytes,
    remaining: &'a [u8],
    /// Type of the previous item. Items of a record mostly share their type, so its text is allocated once.
    last_type: Option<TypeId>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(datum: &'a Bytes) -> Self {
        Self { datum, remaining: datum, last_type: None }
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, RecordDecodeError> {
        let (&byte, rest) =
            self.remaining.split_first().ok_or_else(|| RecordDecodeError::new(AvroError::Truncated))?;
        self.remaining = rest;
        Ok(byte)
    }

    #[inline]
    pub(super) fn long(&mut self) -> Result<i64, RecordDecodeError> {
        let first = self.byte()?;
        let mut zigzag = u64::from(first & 0x7f);
        // Most lengths and numbers have a single byte.
        if first < 0x80 {
            return Ok(unzigzag(zigzag));
        }
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            // The tenth byte holds only bit 63.
            if shift == 63 && byte > 1 {
                break;
            }
            zigzag |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(unzigzag(zigzag));
            }
        }
        Err(RecordDecodeError::new(AvroError::Varint))
    }

    pub(super) fn int(&mut self) -> Result<i32, RecordDecodeError> {
        i32::try_from(self.long()?).map_err(|_| RecordDecodeError::new(AvroError::Range))
    }

    pub(super) fn boolean(&mut self) -> Result<bool, RecordDecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(RecordDecodeError::new(AvroError::Boolean)),
        }
    }

    /// Reads the index of one of `count` symbols or branches.
    #[inline]
    pub(crate) fn index(&mut self, count: usize, error: AvroError) -> Result<usize, RecordDecodeError> {
        match usize::try_from(self.long()?) {
            Ok(index) if index < count => Ok(index),
            _ => Err(RecordDecodeError::new(error)),
        }
    }

    #[inline]
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], RecordDecodeError> {
        let (bytes, rest) = self
            .remaining
            .split_at_checked(length)
            .ok_or_else(|| RecordDecodeError::new(AvroError::Truncated))?;
        self.remaining = rest;
        Ok(bytes)
    }

    #[inline]
    pub(super) fn slice(&mut self) -> Result<&'a [u8], RecordDecodeError> {
        match usize::try_from(self.long()?) {
            // The comparison precedes the slice, so a forged length allocates no memory.
            Ok(length) if length <= self.remaining.len() => self.take(length),
            _ => Err(RecordDecodeError::new(AvroError::Length)),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, RecordDecodeError> {
        std::str::from_utf8(self.slice()?).map_err(|_| RecordDecodeError::new(AvroError::Utf8))
    }

    /// Calls `entry` for each entry of an array, with the number of remaining entries in the block, including this one.
    /// An entry has at least `min_bytes` bytes.
    pub(super) fn entries(
        &mut self,
        min_bytes: usize,
        mut entry: impl FnMut(&mut Self, usize) -> Result<(), RecordDecodeError>,
    ) -> Result<(), RecordDecodeError> {
        let mut index = 0;
        loop {
            let count = self.long()?;
            // A negative count is followed by the size of the block, which lets readers skip the block.
            let size = if count < 0 { Some(self.long()?) } else { None };
            let count = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
            if count == 0 {
                return Ok(());
            }
            // Checked before the loop, so that a forged count of 2^63 ends at once.
            if count > self.remaining.len() / min_bytes.max(1) {
                return Err(RecordDecodeError::new(AvroError::Block));
            }
            let before = self.remaining.len();
            for entries_left in (1..=count).rev() {
                entry(self, entries_left).map_err(|malformed| malformed.at_index(index))?;
                index += 1;
            }
            // A wrong size would make readers that skip the block continue at another place.
            if size.is_some_and(|size| usize::try_from(size) != Ok(before - self.remaining.len())) {
                return Err(RecordDecodeError::new(AvroError::Block));
            }
        }
    }

    pub(super) fn end(&self) -> Result<(), RecordDecodeError> {
        // Further bytes mean that writer and reader use different schemas.
        if self.remaining.is_empty() { Ok(()) } else { Err(RecordDecodeError::new(AvroError::Trailing)) }
    }
}

pub(crate) fn decode_datum<F: Field>(datum: &Bytes) -> Result<F, RecordDecodeError> {
    let mut reader = Reader::new(datum);
    let value = F::read(&mut reader)?;
    reader.end().map(|()| value)
}

#[inline]
pub(crate) fn write_long(out: &mut Vec<u8>, value: i64) {
    let mut zigzag = zigzag(value);
    while zigzag >= 0x80 {
        out.push(zigzag.to_le_bytes()[0] | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag.to_le_bytes()[0]);
}

pub(crate) const fn long_size(value: i64) -> usize {
    (u64::BITS - (zigzag(value) | 1).leading_zeros()).div_ceil(7) as usize
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

const fn unzigzag(zigzag: u64) -> i64 {
    (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed()
}

fn length(count: usize) -> i64 {
    i64::try_from(count).expect("a length in memory is at most isize::MAX")
}

fn write_slice(out: &mut Vec<u8>, slice: &[u8]) {
    write_long(out, length(slice.len()));
    out.extend_from_slice(slice);
}

fn slice_size(slice: &[u8]) -> usize {
    long_size(length(slice.len())) + slice.len()
}

/// Value with an Avro encoding.
pub(crate) trait Field: Sized {
    /// Minimum encoded size in bytes. It bounds the possible number of entries in the remaining bytes of an array.
    const MIN_BYTES: usize;

    fn size(&self) -> usize;
    fn write(&self, out: &mut Vec<u8>);
    fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError>;

    /// Formats the value for `Debug`: bytes as their length, and text as its length if `hidden`, because logs must not
    /// contain payload.
    fn show(&self, f: &mut fmt::Formatter<'_>, hidden: bool) -> fmt::Result;
}

pub(crate) struct FieldDebug<'a, F> {
    pub(crate) field: &'a F,
    pub(crate) hidden: bool,
}

impl<F: Field> fmt::Debug for FieldDebug<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.field.show(f, self.hidden)
    }
}

impl Field for bool {
    const MIN_BYTES: usize = 1;

    fn size(&self) -> usize {
        1
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError> {
        from.boolean()
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, _hidden: bool) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Field for i64 {
    const MIN_BYTES: usize = 1;

    fn size(&self) -> usize {
        long_size(*self)
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_long(out, *self);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError> {
        from.long()
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, _hidden: bool) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Field for i32 {
    const MIN_BYTES: usize = 1;

    fn size(&self) -> usize {
        long_size(i64::from(*self))
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_long(out, i64::from(*self));
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError> {
        from.int()
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, _hidden: bool) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Field for String {
    const MIN_BYTES: usize = 1;

    fn size(&self) -> usize {
        slice_size(self.as_bytes())
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_slice(out, self.as_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError> {
        from.text().map(Self::from)
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, hidden: bool) -> fmt::Result {
        if hidden { write!(f, "{} bytes", self.len()) } else { fmt::Debug::fmt(self, f) }
    }
}

impl Field for Bytes {
    const MIN_BYTES: usize = 1;

    fn size(&self) -> usize {
        slice_size(self)
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_slice(out, self);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError> {
        // Shares the memory of the datum instead of copying `data`.
        from.slice().map(|slice| from.datum.slice_ref(slice))
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, _hidden: bool) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl<F: Field> Field for Option<F> {
    const MIN_BYTES: usize = 1;

    fn size(&self) -> usize {
        1 + self.as_ref().map_or(0, F::size)
    }

    fn write(&self, out: &mut Vec<u8>) {
        // The union is `["null", T]` in all schemas, so the branch is 0 or 1.
        write_long(out, i64::from(self.is_some()));
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError> {
        match from.index(2, AvroError::Branch)? {
            0 => Ok(None),
            _ => F::read(from).map(Some),
        }
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, hidden: bool) -> fmt::Result {
        fmt::Debug::fmt(&self.as_ref().map(|field| FieldDebug { field, hidden }), f)
    }
}

impl<F: Field> Field for Vec<F> {
    const MIN_BYTES: usize = 1;

    fn size(&self) -> usize {
        // An array ends with a block of zero entries, which is one byte.
        let end = 1;
        if self.is_empty() {
            return end;
        }
        long_size(length(self.len())) + self.iter().map(F::size).sum::<usize>() + end
    }

    fn write(&self, out: &mut Vec<u8>) {
        if !self.is_empty() {
            write_long(out, length(self.len()));
            for entry in self {
                entry.write(out);
            }
        }
        write_long(out, 0);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError> {
        let mut entries = Self::new();
        from.entries(F::MIN_BYTES, |from, entries_left| {
            if entries.len() == entries.capacity() {
                // A forged count must not allocate more memory than the remaining datum occupies.
                entries.reserve(entries_left.min(from.remaining.len() / size_of::<F>()).max(1));
            }
            entries.push(F::read(from)?);
            Ok(())
        })?;
        Ok(entries)
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, hidden: bool) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|field| FieldDebug { field, hidden })).finish()
    }
}

macro_rules! text_fields {
    ($($Id:ty),* $(,)?) => {$(
        impl Field for $Id {
            const MIN_BYTES: usize = 1;

            fn size(&self) -> usize {
                slice_size(self.as_str().as_bytes())
            }

            fn write(&self, out: &mut Vec<u8>) {
                write_slice(out, self.as_str().as_bytes());
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError> {
                from.text().map(Self::new)
            }

            fn show(&self, f: &mut fmt::Formatter<'_>, _hidden: bool) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    )*};
}

text_fields! { OrgId, ItemId, PolicyId, ActionId, EndpointId, AppealId }

impl Field for TypeId {
    const MIN_BYTES: usize = 1;

    fn size(&self) -> usize {
        slice_size(self.as_str().as_bytes())
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_slice(out, self.as_str().as_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError> {
        let text = from.text()?;
        match &from.last_type {
            // The clone shares the text of the previous item.
            Some(last) if last.as_str() == text => Ok(last.clone()),
            _ => Ok(from.last_type.insert(Self::new(text)).clone()),
        }
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, _hidden: bool) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

// The schema type is `fixed` without the logical type `uuid`: apache-avro expects a length before a `uuid` of 16 bytes.
macro_rules! uuid_fields {
    ($($Id:ident),* $(,)?) => {$(
        impl Field for $Id {
            const MIN_BYTES: usize = 16;

            fn size(&self) -> usize {
                Self::MIN_BYTES
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError> {
                let bytes = from.take(Self::MIN_BYTES)?;
                Uuid::from_slice(bytes).map(Self).map_err(|_| RecordDecodeError::new(AvroError::Length))
            }

            fn show(&self, f: &mut fmt::Formatter<'_>, _hidden: bool) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    )*};
}

uuid_fields! { SubmissionId, EventId, CauseId, JobId, ReportId, DecisionId }

macro_rules! long_fields {
    ($($Id:ident),* $(,)?) => {$(
        impl Field for $Id {
            const MIN_BYTES: usize = 1;

            fn size(&self) -> usize {
                long_size(self.0)
            }

            fn write(&self, out: &mut Vec<u8>) {
                write_long(out, self.0);
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError> {
                from.long().map(Self)
            }

            fn show(&self, f: &mut fmt::Formatter<'_>, _hidden: bool) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    )*};
}

long_fields! { Millis, ConfigVersion }

impl Field for ItemKey {
    const MIN_BYTES: usize = TypeId::MIN_BYTES + ItemId::MIN_BYTES;

    fn size(&self) -> usize {
        self.type_id.size() + self.id.size()
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.type_id.write(out);
        self.id.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RecordDecodeError> {
        let type_id = TypeId::read(from).map_err(|malformed| malformed.at_field("type_id"))?;
        let id = ItemId::read(from).map_err(|malformed| malformed.at_field("id"))?;
        Ok(Self { type_id, id })
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, _hidden: bool) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
