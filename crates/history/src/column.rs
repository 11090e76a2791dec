//! Columns of datasets.

/// Type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    Text,
    Integer,
    Boolean,
    /// Instant in UTC, in milliseconds.
    Time,
    /// List of texts.
    Texts,
    /// List of structs. Their members are texts, integers, booleans or times.
    Structs(&'static [Column]),
}

/// Column of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub column_type: ColumnType,
    pub is_nullable: bool,
    /// Meaning of the value, for the data dictionary.
    pub about: &'static str,
}

impl Column {
    pub(crate) const fn required(name: &'static str, column_type: ColumnType, about: &'static str) -> Self {
        Self { name, column_type, is_nullable: false, about }
    }

    pub(crate) const fn optional(name: &'static str, column_type: ColumnType, about: &'static str) -> Self {
        Self { name, column_type, is_nullable: true, about }
    }
}
