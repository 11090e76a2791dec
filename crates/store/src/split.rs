//! Parts of a whole table that can be read independently. Each engine splits in its own order of rows.

/// Part of a table. The parts returned by [`crate::Store::splits`] hold every row exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split(pub(crate) Extent);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    /// Key bytes of the embedded engine: from `low`, before `high`.
    Keys {
        low: Option<Vec<u8>>,
        high: Option<Vec<u8>>,
    },
    /// CQL tokens: above `after`, up to `upto`.
    Tokens {
        after: i64,
        upto: i64,
    },
}

impl Split {
    /// The whole table in one part, on any engine.
    pub fn whole_table() -> Self {
        Self(Extent::Whole)
    }
}
