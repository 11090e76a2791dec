//! Requests and results of `store migrate`.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// Lists missing tables and columns.
    Check,
    /// Creates missing tables and columns. Others stay, because the previous version may still run.
    Expand,
}

/// Declared part of the store that is missing, or was missing before the migration.
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
