//! Requests and results of `store migrate`.
//!
//! It does not change tables; the engines do.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// Say what is missing.
    Check,
    /// Make what is missing. What is more stays: the version before runs on.
    Expand,
}

/// Something that the declarations have and the store has not, or had not before it was expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    Keyspace(String),
    Table(&'static str),
    Column { table: &'static str, column: &'static str },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keyspace(name) => write!(f, "keyspace {name}"),
            Self::Table(name) => write!(f, "table {name}"),
            Self::Column { table, column } => write!(f, "column {column} of table {table}"),
        }
    }
}
