//! Values of rows.

use std::borrow::Cow;

use tidegate_schemas::ids::Millis;

/// Value of one column in one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    Text(Cow<'a, str>),
    Integer(i64),
    Boolean(bool),
    Time(Millis),
    Texts(Vec<Cow<'a, str>>),
    /// Structs with their members in the order of the column's declaration.
    Structs(Vec<Vec<Self>>),
}

impl<'a> Value<'a> {
    pub fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }

    pub fn optional_text(text: Option<impl Into<Cow<'a, str>>>) -> Self {
        text.map_or(Self::Null, Self::text)
    }

    pub fn optional_time(time: Option<Millis>) -> Self {
        time.map_or(Self::Null, Self::Time)
    }
}
