//! Typed ranges of rows within a partition, given by a prefix of the clustering key. The engines read them.

use std::{fmt, marker::PhantomData, ops::Bound, ops::RangeBounds, str::FromStr};

use crate::{Cell, Column, Error, KeyColumn};

/// A tuple of key columns.
pub trait Cells: Clone + Send + Sync {
    fn cells<'a>(&'a self, out: &mut Vec<Cell<'a>>);
}

/// Tuple of the first columns of the clustering key `C`, or of all of them.
pub trait PrefixOf<C>: Cells {}

/// Prefix of `C` that is followed by at least one more column.
pub trait ProperPrefixOf<C>: PrefixOf<C> {
    type NextColumn: Column;
}

impl Cells for () {
    fn cells<'a>(&'a self, _: &mut Vec<Cell<'a>>) {}
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),+))*) => {$(
        impl<$($name: KeyColumn),+> Cells for ($($name,)+) {
            fn cells<'a>(&'a self, out: &mut Vec<Cell<'a>>) {
                $(out.push(self.$index.cell());)+
            }
        }
    )*};
}

tuples! {
    (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5) (A 0, B 1, C 2, D 3, E 4, F 5, G 6) (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

macro_rules! prefixes {
    ($([$($all:ident)+] ($($part:ident)*) then $next:ident;)*) => {$(
        impl<$($all: KeyColumn),+> PrefixOf<($($all,)+)> for ($($part,)*) {}
        impl<$($all: KeyColumn),+> ProperPrefixOf<($($all,)+)> for ($($part,)*) {
            type NextColumn = $next;
        }
    )*};
}

prefixes! {
    [A] () then A;
    [A B] () then A; [A B] (A) then B;
    [A B C] () then A; [A B C] (A) then B; [A B C] (A B) then C;
    [A B C D] () then A; [A B C D] (A) then B; [A B C D] (A B) then C; [A B C D] (A B C) then D;
    [A B C D E] () then A; [A B C D E] (A) then B; [A B C D E] (A B) then C; [A B C D E] (A B C) then D;
    [A B C D E] (A B C D) then E;
}

macro_rules! full_prefixes {
    ($(($($all:ident)+))*) => {$(
        impl<$($all: KeyColumn),+> PrefixOf<($($all,)+)> for ($($all,)+) {}
    )*};
}

// The whole key is a prefix too, but no column follows it.
full_prefixes! { (A) (A B) (A B C) (A B C D) (A B C D E) }
impl PrefixOf<()> for () {}

/// A range of one partition's rows, forward in the table's order.
///
/// ```ignore
/// RowRange::all()
/// RowRange::with_prefix((day,))            // rows with this prefix of the clustering key
/// RowRange::range((day,), from..to)        // rows with the prefix and the next column in the range
/// RowRange::starting_at(instant)           // rows with a first clustering column of at least `instant`
/// RowRange::all().limit(50).after(cursor)  // up to 50 rows after a cursor
/// ```
///
/// Bounds limit values and do not depend on the order of the column: on a `[Desc]` column, `starting_at(first)` returns the
/// row with the greatest value first and the row with `first` last.
#[derive(Clone, Debug)]
pub struct RowRange<C> {
    pub(crate) span: Span,
    pub(crate) limit: Option<usize>,
    pub(crate) page_rows: Option<usize>,
    marker: PhantomData<fn() -> C>,
}

/// Untyped form of a range, read by the engines.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) prefix: Vec<Cell<'static>>,
    /// Bounds of the column after the prefix.
    pub(crate) low: Bound<Cell<'static>>,
    pub(crate) high: Bound<Cell<'static>>,
    pub(crate) after: Option<Cursor>,
}

impl<C> RowRange<C> {
    pub fn all() -> Self {
        Self {
            span: Span { prefix: Vec::new(), low: Bound::Unbounded, high: Bound::Unbounded, after: None },
            limit: None,
            page_rows: None,
            marker: PhantomData,
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "a tuple made for this call")]
    pub fn with_prefix<P: PrefixOf<C>>(prefix: P) -> Self {
        let mut range = Self::all();
        range.span.prefix = owned_cells(&prefix);
        range
    }

    pub fn range<P: ProperPrefixOf<C>>(prefix: P, next: impl RangeBounds<P::NextColumn>) -> Self {
        let bound = |bound: Bound<&P::NextColumn>| bound.map(|value| value.cell().into_owned());
        let mut range = Self::with_prefix(prefix);
        range.span.low = bound(next.start_bound());
        range.span.high = bound(next.end_bound());
        range
    }

    pub fn starting_at<T>(first: T) -> Self
    where
        (): ProperPrefixOf<C, NextColumn = T>,
    {
        Self::range((), first..)
    }

    pub fn ending_before<T>(end: T) -> Self
    where
        (): ProperPrefixOf<C, NextColumn = T>,
    {
        Self::range((), ..end)
    }

    /// Limits the total number of rows.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Sets the number of rows a page, instead of the engine's setting.
    #[must_use]
    pub fn page_size(mut self, rows: usize) -> Self {
        // A page of 0 rows would look like the end of the range.
        self.page_rows = Some(rows.max(1));
        self
    }

    /// Starts after the cursor of an earlier scan of the same range.
    #[must_use]
    pub fn after(mut self, cursor: impl Into<Option<Cursor>>) -> Self {
        self.span.after = cursor.into();
        self
    }
}

pub(crate) fn owned_cells(tuple: &impl Cells) -> Vec<Cell<'static>> {
    let mut cells = Vec::new();
    tuple.cells(&mut cells);
    cells.into_iter().map(Cell::into_owned).collect()
}

/// Position after a row of a partition: the clustering key of that row, in the embedded engine's key encoding.
///
/// Clients may hold it as text. It names no partition and is checked against the table: a forged cursor reaches other
/// rows of the same partition at most, or is refused as [`Error::BadCursor`].
#[derive(Clone, PartialEq, Eq)]
pub struct Cursor(pub(crate) Vec<u8>);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({} bytes)", self.0.len())
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.as_bytes();
        // Keys hold at most 65,535 bytes, so longer text is refused before it is decoded.
        if !digits.len().is_multiple_of(2) || digits.len() > 2 * usize::from(u16::MAX) {
            return Err(Error::BadCursor);
        }
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(Error::BadCursor),
        };
        digits
            .chunks_exact(2)
            .map(|pair| Ok(nibble(pair[0])? << 4 | nibble(pair[1])?))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}
