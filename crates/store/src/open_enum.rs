//! Column of a `string_enum!` to which a newer version may add variants.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Serialize, Serializer};

use crate::{Cell, Column, Kind, Mismatch};

/// Variant of a `string_enum!`, or a stored string that this version does not define. Such a string is shown and written
/// back unchanged, so a row of a newer version stays readable during an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenEnum<E> {
    Known(E),
    Unknown(String),
}

impl<E: Copy> OpenEnum<E> {
    /// Returns the variant, or `None` for an unknown string.
    pub fn as_known(&self) -> Option<E> {
        match self {
            Self::Known(variant) => Some(*variant),
            Self::Unknown(_) => None,
        }
    }
}

impl<E: FromStr> OpenEnum<E> {
    /// Parses a stored string. An unknown one is kept.
    pub fn parse(text: impl Into<String> + AsRef<str>) -> Self {
        // An error would hide the whole row from the older processes of an upgrade.
        text.as_ref().parse().map_or_else(|_| Self::Unknown(text.into()), Self::Known)
    }
}

impl<E> From<E> for OpenEnum<E> {
    fn from(variant: E) -> Self {
        Self::Known(variant)
    }
}

impl<E: PartialEq> PartialEq<E> for OpenEnum<E> {
    fn eq(&self, variant: &E) -> bool {
        matches!(self, Self::Known(known) if known == variant)
    }
}

impl<E: fmt::Display> fmt::Display for OpenEnum<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(variant) => variant.fmt(f),
            Self::Unknown(text) => f.pad(text),
        }
    }
}

impl<E: fmt::Display> Serialize for OpenEnum<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<E: Column + FromStr> Column for OpenEnum<E> {
    const KIND: Kind = Kind::Text;

    fn cell(&self) -> Cell<'_> {
        match self {
            Self::Known(variant) => variant.cell(),
            Self::Unknown(text) => Cell::Text(Cow::Borrowed(text)),
        }
    }

    fn from_cell(cell: Cell<'_>) -> Result<Self, Mismatch> {
        match cell {
            Cell::Text(text) => Ok(Self::parse(text)),
            Cell::Null => Err(Mismatch::NULL),
            _ => Err(Mismatch::KIND),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_schemas::string_enum;

    use super::*;

    string_enum! {
        enum Colour {
            Red = "red",
        }
    }

    crate::string_column!(Colour);

    #[test]
    fn unknown_string_is_kept() {
        let red = OpenEnum::<Colour>::from_cell(Cell::Text("red".into())).unwrap();
        assert!(red == Colour::Red && red.as_known() == Some(Colour::Red));
        let scarlet = OpenEnum::<Colour>::from_cell(Cell::Text("scarlet".into())).unwrap();
        assert!(scarlet != Colour::Red && scarlet.as_known().is_none());
        assert_eq!(
            (scarlet.to_string(), scarlet.cell()),
            ("scarlet".to_owned(), Cell::Text("scarlet".into()))
        );
        assert_eq!(OpenEnum::<Colour>::from_cell(Cell::Null), Err(Mismatch::NULL));
    }
}
