//! Selection of columns (`--columns a,b`).

use std::collections::BTreeSet;

use tidegate_history::{Column, Dataset};
use tidegate_schemas::nearest::{hint, truncate_name};

use crate::error::ConvertError;

/// Columns that are written only if `--columns` names them: fields of items can be large and personal.
const OPTIONAL_COLUMNS: [(Dataset, &str); 1] = [(Dataset::Items, "data")];

/// Written columns with their positions in the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSelection {
    columns: Vec<Column>,
    positions: Vec<usize>,
    row_length: usize,
}

impl ColumnSelection {
    pub fn all(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), positions: (0..columns.len()).collect(), row_length: columns.len() }
    }

    /// All columns of a dataset except those that must be named.
    pub fn default_of(dataset: Dataset) -> Self {
        Self::filter(dataset.columns(), |column| !OPTIONAL_COLUMNS.contains(&(dataset, column.name)))
    }

    fn filter(columns: &[Column], is_selected: impl Fn(&Column) -> bool) -> Self {
        let positions: Vec<_> =
            (0..columns.len()).filter(|position| is_selected(&columns[*position])).collect();
        Self {
            columns: positions.iter().map(|position| columns[*position]).collect(),
            positions,
            row_length: columns.len(),
        }
    }

    /// Parses a list of names separated by commas. Files have the columns in this order.
    pub fn parse(columns: &[Column], list: &str) -> Result<Self, ConvertError> {
        let mut names = BTreeSet::new();
        let mut positions = Vec::new();
        for name in list.split(',').map(str::trim) {
            if name.is_empty() {
                return Err(ConvertError::Refused("--columns: a name is empty".to_owned()));
            }
            positions.push(find_column(columns, "--columns", name)?);
            if !names.insert(name) {
                return Err(ConvertError::Refused(format!("--columns: `{name}` is listed twice")));
            }
        }
        Ok(Self {
            columns: positions.iter().map(|position| columns[*position]).collect(),
            positions,
            row_length: columns.len(),
        })
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// True if a reader has to fill the column of this position.
    pub fn has_position(&self, position: usize) -> bool {
        self.positions.contains(&position)
    }

    /// Number of values in a row, selected or not.
    pub(super) fn row_length(&self) -> usize {
        self.row_length
    }

    /// Selected columns with their positions in rows.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Column, usize)> {
        self.columns.iter().zip(self.positions.iter().copied())
    }
}

/// Returns the position of a column, or an error that suggests a similar name.
pub(super) fn find_column(columns: &[Column], option: &str, name: &str) -> Result<usize, ConvertError> {
    columns.iter().position(|column| column.name == name).ok_or_else(|| {
        let names: Vec<_> = columns.iter().map(|column| column.name).collect();
        let suggestion = hint(name, names.iter().copied());
        let suggestion = if suggestion.is_empty() {
            format!(" The columns are {}.", names.join(", "))
        } else {
            suggestion
        };
        ConvertError::Refused(format!("{option}: unknown column `{}`.{suggestion}", truncate_name(name)))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_selected_in_the_order_of_the_list() {
        let columns = Dataset::Decisions.columns();
        let selection = ColumnSelection::parse(columns, "verdict, decisionId").unwrap();
        assert_eq!(
            selection.columns().iter().map(|it| it.name).collect::<Vec<_>>(),
            ["verdict", "decisionId"]
        );
        assert_eq!(selection.iter().map(|(_, position)| position).collect::<Vec<_>>(), [11, 0]);
        assert_eq!(selection.row_length(), columns.len());
    }

    #[test]
    fn fields_of_items_are_written_only_on_request() {
        let default = ColumnSelection::default_of(Dataset::Items);
        assert!(default.columns().iter().all(|column| column.name != "data"));
        assert_eq!(default.columns().len() + 1, Dataset::Items.columns().len());
        assert_eq!(default.row_length(), Dataset::Items.columns().len());
        let with_data = ColumnSelection::parse(Dataset::Items.columns(), "itemId,data").unwrap();
        assert!(with_data.has_position(12) && !with_data.has_position(0));
        let decisions = ColumnSelection::default_of(Dataset::Decisions);
        assert_eq!(decisions, ColumnSelection::all(Dataset::Decisions.columns()));
    }

    #[test]
    fn unknown_and_repeated_columns_are_refused() {
        let columns = Dataset::Decisions.columns();
        for (list, message) in [
            ("verdcit", "--columns: unknown column `verdcit`. Did you mean `verdict`?"),
            ("verdict,,class", "--columns: a name is empty"),
            ("", "--columns: a name is empty"),
            ("class,verdict,class", "--columns: `class` is listed twice"),
        ] {
            assert_eq!(ColumnSelection::parse(columns, list).unwrap_err().to_string(), message);
        }
        let error = ColumnSelection::parse(columns, "banana").unwrap_err().to_string();
        assert!(error.starts_with("--columns: unknown column `banana`. The columns are decisionId, rec"));
    }
}
