//! Ids of value columns in the stored bytes, kept beside the data so that they never change.
//!
//! It does not touch a database: it compares a declaration with the descriptor that was stored for it.

use crate::{ColumnDef, Error, Kind, Mode, Order, Table};

/// Layout of a declared table's value columns in stored values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Ids by declared value column, the version left out.
    pub(crate) ids: Vec<u8>,
    pub(crate) kinds: Vec<Kind>,
    /// Declared column by id, if this version knows it.
    pub(crate) position: [Option<u8>; 256],
}

/// The stored descriptor: one line a fact, readable in a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    head: String,
    /// Id, name, type. Columns that a version no longer declares stay, so that their ids are not given away.
    values: Vec<(u8, String, String)>,
}

impl Descriptor {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut found = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["value", id, name, kind] => {
                    found.values.push((id.parse().ok()?, (*name).to_owned(), (*kind).to_owned()));
                }
                ["mode", _] | ["partition" | "cluster", ..] => {
                    found.head.push_str(line);
                    found.head.push('\n');
                }
                _ => return None,
            }
        }
        Some(found)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = self.head.clone();
        for (id, name, kind) in &self.values {
            text.push_str(&format!("value {id} {name} {kind}\n"));
        }
        text
    }

    /// The descriptor after this declaration, and the layout that follows from it.
    pub(crate) fn adopt(stored: Option<&Self>, table: &Table) -> Result<(Self, Layout), Error> {
        let fault = |detail: String| Error::Schema { table: table.name.to_owned(), detail };
        let head = head(table);
        let mut next = match stored {
            None => Self { head, values: Vec::new() },
            Some(stored) if stored.head == head => stored.clone(),
            Some(stored) => {
                let line = stored.head.lines().find(|line| !head.lines().any(|known| known == *line));
                return Err(fault(format!(
                    "its kind or key changed, and neither ever may: stored `{}`, declared `{}`",
                    line.unwrap_or_else(|| stored.head.trim_end()),
                    head.lines().find(|line| !stored.head.contains(line)).unwrap_or("nothing in its place"),
                )));
            }
        };
        let mut layout = Layout { ids: Vec::new(), kinds: Vec::new(), position: [None; 256] };
        for (index, column) in stored_columns(table).enumerate() {
            let id = match next.values.iter().find(|(_, name, _)| name == column.name) {
                Some((id, _, kind)) if kind == column.kind.cql() => *id,
                Some((_, _, kind)) => {
                    return Err(fault(format!(
                        "column {} is stored as {kind} and declared as {}: types never change",
                        column.name, column.kind
                    )));
                }
                None if stored.is_some() && !column.nullable => {
                    return Err(fault(format!(
                        "column {} was added and is not an Option, but rows written before have none",
                        column.name
                    )));
                }
                None => {
                    let id =
                        next.values.iter().map(|(id, _, _)| id).max().map_or(Some(0), |id| id.checked_add(1));
                    let id =
                        id.ok_or_else(|| fault("it had more than 256 columns in its life".to_owned()))?;
                    next.values.push((id, column.name.to_owned(), column.kind.cql().to_owned()));
                    id
                }
            };
            layout.ids.push(id);
            layout.kinds.push(column.kind);
            layout.position[usize::from(id)] = u8::try_from(index).ok();
        }
        Ok((next, layout))
    }
}

/// The value columns that lie among a value's cells: all but the version, which stands in the header.
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
    mod reordered_and_grown {
        crate::table! { Fact Thing in "things" ttl None;
        partition { org: String } cluster { at: i64 [Desc] }
        values { c: Option<bool>, b: Option<i64>, a: String } }
    }
    mod grown_by_a_column_that_is_never_null {
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
    fn a_column_keeps_its_id_when_others_come_before_it() {
        let (grown, layout) = Descriptor::adopt(Some(&stored()), reordered_and_grown::Thing::TABLE).unwrap();
        assert_eq!(layout.ids, [2, 1, 0]);
        let (_, old) = Descriptor::adopt(Some(&grown), first::Thing::TABLE).unwrap();
        assert_eq!(
            (old.ids, old.position[2]),
            (vec![0, 1], None),
            "an older version passes the new column over"
        );
    }

    #[test]
    fn what_may_never_change_is_refused_by_name() {
        let refusal = |table| Descriptor::adopt(Some(&stored()), table).unwrap_err().to_string();
        assert!(refusal(grown_by_a_column_that_is_never_null::Thing::TABLE).contains("column c"));
        assert!(
            refusal(other_type::Thing::TABLE).contains("column b is stored as bigint and declared as text")
        );
        assert!(refusal(other_key::Thing::TABLE).contains("stored `cluster at bigint desc`"));
    }
}
