//! Assigns the ids of value columns in stored values, and compares a declaration with the stored descriptor of its table.

use crate::{ColumnDef, Error, Kind, Mode, Order, Table};

/// Layout of a declared table's value columns in stored values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Ids by declared value column, without the version.
    pub(crate) ids: Vec<u8>,
    pub(crate) kinds: Vec<Kind>,
    /// Index of the declared value column by id; `None` for the ids of columns that this version does not declare.
    pub(crate) column_by_id: [Option<u8>; 256],
}

/// Stored description of a table, as lines of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Lines with the mode of the table and its key columns.
    head: String,
    /// Id, name and type. Columns that are no longer declared stay, so that their ids are not reused.
    values: Vec<(u8, String, String)>,
}

impl Descriptor {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut descriptor = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["value", id, name, kind] => {
                    descriptor.values.push((id.parse().ok()?, (*name).to_owned(), (*kind).to_owned()));
                }
                ["mode", _] | ["partition" | "cluster", ..] => {
                    descriptor.head.push_str(line);
                    descriptor.head.push('\n');
                }
                _ => return None,
            }
        }
        Some(descriptor)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = self.head.clone();
        for (id, name, kind) in &self.values {
            text.push_str(&format!("value {id} {name} {kind}\n"));
        }
        text
    }

    /// Returns the descriptor extended by the declaration, and the layout of the declared columns.
    pub(crate) fn adopt(stored: Option<&Self>, table: &Table) -> Result<(Self, Layout), Error> {
        let schema_error = |detail: String| Error::Schema { table: table.name.to_owned(), detail };
        let head = head(table);
        let mut updated = match stored {
            None => Self { head, values: Vec::new() },
            Some(stored) if stored.head == head => stored.clone(),
            Some(stored) => {
                let line = stored.head.lines().find(|line| !head.lines().any(|known| known == *line));
                return Err(schema_error(format!(
                    "its kind or key changed, which is not supported: stored `{}`, declared `{}`",
                    line.unwrap_or_else(|| stored.head.trim_end()),
                    head.lines().find(|line| !stored.head.contains(line)).unwrap_or("nothing in its place"),
                )));
            }
        };
        let mut layout = Layout { ids: Vec::new(), kinds: Vec::new(), column_by_id: [None; 256] };
        for (index, column) in stored_columns(table).enumerate() {
            let id = match updated.values.iter().find(|(_, name, _)| name == column.name) {
                // An id never changes, because stored rows contain it.
                Some((id, _, kind)) if kind == column.kind.cql() => *id,
                Some((_, _, kind)) => {
                    return Err(schema_error(format!(
                        "column {} is stored as {kind} and declared as {}: types never change",
                        column.name, column.kind
                    )));
                }
                None if stored.is_some() && !column.nullable => {
                    return Err(schema_error(format!(
                        "column {} was added and is not an Option, but rows written before have none",
                        column.name
                    )));
                }
                None => {
                    let id = updated
                        .values
                        .iter()
                        .map(|(id, _, _)| id)
                        .max()
                        .map_or(Some(0), |id| id.checked_add(1));
                    let id =
                        // Ids of removed columns are not reused, so they can run out.
                        id.ok_or_else(|| schema_error("it had more than 256 columns in its life".to_owned()))?;
                    updated.values.push((id, column.name.to_owned(), column.kind.cql().to_owned()));
                    id
                }
            };
            layout.ids.push(id);
            layout.kinds.push(column.kind);
            layout.column_by_id[usize::from(id)] = u8::try_from(index).ok();
        }
        Ok((updated, layout))
    }
}

/// Value columns that are stored as cells: all but the version, which is stored in the header.
fn stored_columns(table: &Table) -> impl Iterator<Item = &'static ColumnDef> {
    let columns = table.value_columns();
    let versions = usize::from(table.mode == Mode::Versioned);
    columns[..columns.len() - versions].iter()
}

fn head(table: &Table) -> String {
    let mut text = match table.mode {
        Mode::Fact | Mode::View => "mode fact\n".to_owned(),
        Mode::Versioned => "mode versioned\n".to_owned(),
    };
    let mut line = |role: &str, column: &ColumnDef| {
        let order = if column.order == Order::Desc { "desc" } else { "asc" };
        text.push_str(&format!("{role} {} {} {order}\n", column.name, column.kind));
    };
    table.partition_columns().iter().for_each(|column| line("partition", column));
    table.cluster_columns().iter().for_each(|column| line("cluster", column));
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Row as _;

    mod first {
        crate::table! { Fact Thing in "things" ttl None;
        partition { org: String } cluster { at: i64 [Desc] } values { a: String, b: Option<i64> } }
    }
    mod reordered_and_extended {
        crate::table! { Fact Thing in "things" ttl None;
        partition { org: String } cluster { at: i64 [Desc] }
        values { c: Option<bool>, b: Option<i64>, a: String } }
    }
    mod extended_by_a_required_column {
        crate::table! { Fact Thing in "things" ttl None;
        partition { org: String } cluster { at: i64 [Desc] } values { a: String, b: Option<i64>, c: bool } }
    }
    mod other_type {
        crate::table! { Fact Thing in "things" ttl None;
        partition { org: String } cluster { at: i64 [Desc] } values { a: String, b: Option<String> } }
    }
    mod other_key {
        crate::table! { Fact Thing in "things" ttl None;
        partition { org: String } cluster { at: i64 [Asc] } values { a: String, b: Option<i64> } }
    }

    fn stored() -> Descriptor {
        let (descriptor, _) = Descriptor::adopt(None, first::Thing::TABLE).unwrap();
        Descriptor::parse(&descriptor.text()).unwrap()
    }

    #[test]
    fn column_keeps_its_id_when_others_precede_it() {
        let (extended, layout) =
            Descriptor::adopt(Some(&stored()), reordered_and_extended::Thing::TABLE).unwrap();
        assert_eq!(layout.ids, [2, 1, 0]);
        let (_, old) = Descriptor::adopt(Some(&extended), first::Thing::TABLE).unwrap();
        assert_eq!(
            (old.ids, old.column_by_id[2]),
            (vec![0, 1], None),
            "an older version passes the new column over"
        );
    }

    #[test]
    fn changed_keys_and_types_are_refused_by_name() {
        let refusal = |table| Descriptor::adopt(Some(&stored()), table).unwrap_err().to_string();
        assert!(refusal(extended_by_a_required_column::Thing::TABLE).contains("column c"));
        assert!(
            refusal(other_type::Thing::TABLE).contains("column b is stored as bigint and declared as text")
        );
        assert!(refusal(other_key::Thing::TABLE).contains("stored `cluster at bigint desc`"));
    }
}
