//! Data dictionary: the datasets and their columns as JSON.

use serde::Serialize;
use tidegate_catalog::Scope;
use tidegate_history::{Column, ColumnType, Dataset};

/// Entries of the audit name child-safety jobs, also where they are not marked as such.
pub(super) fn needs_child_safety(dataset: Dataset) -> bool {
    dataset == Dataset::Audit
}

/// True for a column that an export without `columns` has. Content of items is exported on request only.
pub(super) fn is_default(dataset: Dataset, column: &Column) -> bool {
    !(dataset == Dataset::Items && column.name == "data")
}

#[derive(Serialize)]
pub(super) struct DatasetResponse {
    dataset: Dataset,
    /// Scopes that a key needs.
    scopes: Vec<&'static str>,
    columns: Vec<ColumnResponse>,
}

#[derive(Serialize)]
struct ColumnResponse {
    name: &'static str,
    #[serde(rename = "type")]
    type_name: &'static str,
    nullable: bool,
    /// False if the column is exported only if `columns` names it.
    default: bool,
    about: &'static str,
    /// Members of a struct.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<ColumnResponse>,
}

impl DatasetResponse {
    pub(super) fn new(dataset: Dataset) -> Self {
        let mut scopes = vec![Scope::ExportsRead.name()];
        if needs_child_safety(dataset) {
            scopes.push(Scope::ChildSafety.name());
        }
        let columns = dataset.columns().iter();
        let columns = columns.map(|column| ColumnResponse::new(column, is_default(dataset, column)));
        Self { dataset, scopes, columns: columns.collect() }
    }
}

impl ColumnResponse {
    fn new(column: &Column, is_default: bool) -> Self {
        let members = match column.column_type {
            ColumnType::Structs(members) => members,
            _ => &[],
        };
        Self {
            name: column.name,
            type_name: name_type(column.column_type),
            nullable: column.is_nullable,
            default: is_default,
            about: column.about,
            members: members.iter().map(|member| Self::new(member, true)).collect(),
        }
    }
}

const fn name_type(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Text => "text",
        ColumnType::Integer => "integer",
        ColumnType::Boolean => "boolean",
        ColumnType::Time => "time",
        ColumnType::Texts => "texts",
        ColumnType::Structs(_) => "structs",
    }
}
