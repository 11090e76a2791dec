//! Parquet schema of columns. Lists have the standard three levels, so that null, an empty list and a list of one differ.

use std::fmt::Write as _;

use tidegate_history::{Column, ColumnType};

/// Schema as a Parquet message.
pub(super) fn message_text(columns: &[Column]) -> String {
    let mut message = "message rows {\n".to_owned();
    columns.iter().for_each(|column| write_field(&mut message, column));
    message + "}"
}

fn write_field(message: &mut String, column: &Column) {
    let Column { name, .. } = column;
    let repetition = if column.is_nullable { "optional" } else { "required" };
    let list_start = format!("{repetition} group {name} (LIST) {{ repeated group list {{ ");
    match column.column_type {
        ColumnType::Text => push_field(message, format_args!("{repetition} binary {name} (UTF8);")),
        ColumnType::Integer => push_field(message, format_args!("{repetition} int64 {name};")),
        ColumnType::Boolean => push_field(message, format_args!("{repetition} boolean {name};")),
        ColumnType::Time => {
            push_field(message, format_args!("{repetition} int64 {name} (TIMESTAMP(MILLIS,true));"));
        }
        ColumnType::Texts => {
            push_field(message, format_args!("{list_start}required binary element (UTF8); }} }}"));
        }
        ColumnType::Structs(members) => {
            push_field(message, format_args!("{list_start}required group element {{"));
            members.iter().for_each(|member| write_field(message, member));
            push_field(message, format_args!("}} }} }}"));
        }
    }
}

fn push_field(message: &mut String, field: std::fmt::Arguments<'_>) {
    writeln!(message, "{field}").expect("a string has no limit");
}
