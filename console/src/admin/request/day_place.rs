//! Cursor of lists with rows stored by day.

use std::{fmt, str::FromStr};

use tidegate_store::Cursor;

/// End of a page: a day and a cursor within it. As text: `<day>~<cursor>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DayPlace {
    pub(crate) day: i64,
    /// Cursor within the day; `None` before its first row.
    pub(crate) after: Option<Cursor>,
}

impl fmt::Display for DayPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~", self.day)?;
        self.after.as_ref().map_or(Ok(()), |after| write!(f, "{after}"))
    }
}

impl FromStr for DayPlace {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (day, after) = text.split_once('~').ok_or(())?;
        // The start of a day has no cursor of the store.
        let after = if after.is_empty() { None } else { Some(after.parse().map_err(drop)?) };
        Ok(Self { day: day.parse().map_err(drop)?, after })
    }
}
