//! Typed values of columns, and their conversion from and to Rust types.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use tidegate_schemas::ids::Millis;
use uuid::Uuid;

/// Type of a column, common to both engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    BigInt,
    Int,
    Bool,
    Double,
    Uuid,
    Timestamp,
    Blob,
}

impl Kind {
    /// The name of the type in CQL, which is also its name in the embedded engine's descriptors.
    pub const fn cql(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::BigInt => "bigint",
            Self::Int => "int",
            Self::Bool => "boolean",
            Self::Double => "double",
            Self::Uuid => "uuid",
            Self::Timestamp => "timestamp",
            Self::Blob => "blob",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.cql())
    }
}

/// One value of one row. Text is borrowed and blobs are shared, so that neither is copied on its way to an engine.
#[derive(Clone, PartialEq)]
pub enum Cell<'a> {
    Null,
    Text(Cow<'a, str>),
    BigInt(i64),
    Int(i32),
    Bool(bool),
    Double(f64),
    Uuid(Uuid),
    /// Milliseconds since 1970.
    Timestamp(i64),
    Blob(Bytes),
}

impl Cell<'_> {
    pub fn kind(&self) -> Option<Kind> {
        Some(match self {
            Self::Null => return None,
            Self::Text(_) => Kind::Text,
            Self::BigInt(_) => Kind::BigInt,
            Self::Int(_) => Kind::Int,
            Self::Bool(_) => Kind::Bool,
            Self::Double(_) => Kind::Double,
            Self::Uuid(_) => Kind::Uuid,
            Self::Timestamp(_) => Kind::Timestamp,
            Self::Blob(_) => Kind::Blob,
        })
    }

    pub fn into_owned(self) -> Cell<'static> {
        match self {
            Self::Null => Cell::Null,
            Self::Text(text) => Cell::Text(Cow::Owned(text.into_owned())),
            Self::BigInt(number) => Cell::BigInt(number),
            Self::Int(number) => Cell::Int(number),
            Self::Bool(yes) => Cell::Bool(yes),
            Self::Double(number) => Cell::Double(number),
            Self::Uuid(id) => Cell::Uuid(id),
            Self::Timestamp(at) => Cell::Timestamp(at),
            Self::Blob(bytes) => Cell::Blob(bytes),
        }
    }
}

// Prints only the kind: the value may be content of users or a secret, which must not reach a log.
impl fmt::Debug for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().map_or("null", Kind::cql))
    }
}

/// Reason why a stored cell is no value of the column's Rust type. It never contains the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Mismatch(pub &'static str);

impl Mismatch {
    pub const NULL: Self = Self("null in a column that is never null");
    pub const KIND: Self = Self("another type than declared");
}

/// Rust type of a column.
pub trait Column: Sized + Send + Sync {
    const KIND: Kind;
    const NULLABLE: bool = false;

    fn cell(&self) -> Cell<'_>;
    fn from_cell(cell: Cell<'_>) -> Result<Self, Mismatch>;
}

/// Column that may be part of a key: never null, with the same total order in both engines.
pub trait KeyColumn: Column + Clone {}

impl<T: Column> Column for Option<T> {
    const KIND: Kind = T::KIND;
    const NULLABLE: bool = true;

    fn cell(&self) -> Cell<'_> {
        self.as_ref().map_or(Cell::Null, Column::cell)
    }

    fn from_cell(cell: Cell<'_>) -> Result<Self, Mismatch> {
        match cell {
            Cell::Null => Ok(None),
            cell => T::from_cell(cell).map(Some),
        }
    }
}

macro_rules! plain_column {
    ($($rust:ty => $kind:ident($bind:ident) $to:expr, $from:expr;)*) => {$(
        impl Column for $rust {
            const KIND: Kind = Kind::$kind;

            fn cell(&self) -> Cell<'_> {
                let $bind = self;
                Cell::$kind($to)
            }

            fn from_cell(cell: Cell<'_>) -> Result<Self, Mismatch> {
                match cell {
                    Cell::$kind($bind) => Ok($from),
                    Cell::Null => Err(Mismatch::NULL),
                    _ => Err(Mismatch::KIND),
                }
            }
        }
    )*};
}

plain_column! {
    String => Text(text) Cow::Borrowed(text.as_str()), text.into_owned();
    Arc<str> => Text(text) Cow::Borrowed(&**text), Arc::from(&*text);
    i64 => BigInt(number) *number, number;
    i32 => Int(number) *number, number;
    bool => Bool(yes) *yes, yes;
    f64 => Double(number) *number, number;
    Uuid => Uuid(id) *id, id;
    Millis => Timestamp(at) at.0, Millis(at);
    Bytes => Blob(bytes) bytes.clone(), bytes;
}

impl KeyColumn for String {}
impl KeyColumn for Arc<str> {}
impl KeyColumn for i64 {}
impl KeyColumn for i32 {}
impl KeyColumn for bool {}
impl KeyColumn for Uuid {}
impl KeyColumn for Millis {}

/// Makes text newtypes (`as_str`, `From<&str>`) columns.
#[macro_export]
macro_rules! text_column {
    ($($name:ty),* $(,)?) => {$(
        impl $crate::Column for $name {
            const KIND: $crate::Kind = $crate::Kind::Text;

            fn cell(&self) -> $crate::Cell<'_> {
                $crate::Cell::Text(::std::borrow::Cow::Borrowed(self.as_str()))
            }

            fn from_cell(cell: $crate::Cell<'_>) -> ::std::result::Result<Self, $crate::Mismatch> {
                match cell {
                    $crate::Cell::Text(text) => Ok(Self::from(&*text)),
                    $crate::Cell::Null => Err($crate::Mismatch::NULL),
                    _ => Err($crate::Mismatch::KIND),
                }
            }
        }
        impl $crate::KeyColumn for $name {}
    )*};
}

/// Makes newtypes over a public `Uuid` columns.
#[macro_export]
macro_rules! uuid_column {
    ($($name:ident),* $(,)?) => {$(
        impl $crate::Column for $name {
            const KIND: $crate::Kind = $crate::Kind::Uuid;

            fn cell(&self) -> $crate::Cell<'_> {
                $crate::Cell::Uuid(self.0)
            }

            fn from_cell(cell: $crate::Cell<'_>) -> ::std::result::Result<Self, $crate::Mismatch> {
                match cell {
                    $crate::Cell::Uuid(id) => Ok(Self(id)),
                    $crate::Cell::Null => Err($crate::Mismatch::NULL),
                    _ => Err($crate::Mismatch::KIND),
                }
            }
        }
        impl $crate::KeyColumn for $name {}
    )*};
}

/// Makes newtypes over a public `i64` columns.
#[macro_export]
macro_rules! bigint_column {
    ($($name:ident),* $(,)?) => {$(
        impl $crate::Column for $name {
            const KIND: $crate::Kind = $crate::Kind::BigInt;

            fn cell(&self) -> $crate::Cell<'_> {
                $crate::Cell::BigInt(self.0)
            }

            fn from_cell(cell: $crate::Cell<'_>) -> ::std::result::Result<Self, $crate::Mismatch> {
                match cell {
                    $crate::Cell::BigInt(number) => Ok(Self(number)),
                    $crate::Cell::Null => Err($crate::Mismatch::NULL),
                    _ => Err($crate::Mismatch::KIND),
                }
            }
        }
        impl $crate::KeyColumn for $name {}
    )*};
}

/// Makes enums of `tidegate_schemas::string_enum!` text columns: an operator reads the variant's string with cqlsh.
///
/// ```
/// tidegate_schemas::string_enum! {
///     pub enum State { Accepted = "accepted", Evaluated = "evaluated" }
/// }
/// tidegate_store::string_column!(State);
/// ```
#[macro_export]
macro_rules! string_column {
    ($($name:ty),* $(,)?) => {$(
        impl $crate::Column for $name {
            const KIND: $crate::Kind = $crate::Kind::Text;

            fn cell(&self) -> $crate::Cell<'_> {
                $crate::Cell::Text(::std::borrow::Cow::Borrowed(self.as_str()))
            }

            fn from_cell(cell: $crate::Cell<'_>) -> ::std::result::Result<Self, $crate::Mismatch> {
                match cell {
                    $crate::Cell::Text(text) => {
                        text.parse().map_err(|_| $crate::Mismatch("unknown name, perhaps of a newer version"))
                    }
                    $crate::Cell::Null => Err($crate::Mismatch::NULL),
                    _ => Err($crate::Mismatch::KIND),
                }
            }
        }
        impl $crate::KeyColumn for $name {}
    )*};
}
