//! Checks that a row fits its columns, so that the formats need not.

use tidegate_history::{Column, ColumnType, Value};

use super::ColumnSelection;
use crate::timestamp::{MAX_MILLIS, MIN_MILLIS};

/// Checks the selected values of a row. The error is a text for a message, without the value.
pub(super) fn check_row(selection: &ColumnSelection, row: &[Value<'_>]) -> Result<(), String> {
    if row.len() != selection.row_length() {
        return Err(format!("the row has {} values instead of {}", row.len(), selection.row_length()));
    }
    for (column, position) in selection.iter() {
        check_value(column, &row[position])
            .map_err(|mismatch| format!("column `{}` {mismatch}", column.name))?;
    }
    Ok(())
}

fn check_value(column: &Column, value: &Value<'_>) -> Result<(), &'static str> {
    match (column.column_type, value) {
        (_, Value::Null) if column.is_nullable => Ok(()),
        (_, Value::Null) => Err("has no value"),
        (ColumnType::Text, Value::Text(_))
        | (ColumnType::Integer, Value::Integer(_))
        | (ColumnType::Boolean, Value::Boolean(_))
        | (ColumnType::Texts, Value::Texts(_)) => Ok(()),
        (ColumnType::Time, Value::Time(time)) if (MIN_MILLIS..=MAX_MILLIS).contains(&time.0) => Ok(()),
        (ColumnType::Time, Value::Time(_)) => Err("is not a time of the years 0000 to 9999"),
        (ColumnType::Structs(members), Value::Structs(structs)) => {
            for values in structs {
                if values.len() != members.len() {
                    return Err("has a struct with a wrong number of members");
                }
                for (member, value) in members.iter().zip(values) {
                    check_value(member, value)?;
                }
            }
            Ok(())
        }
        _ => Err("has a value of another type"),
    }
}
