//! The CQL text of every operation on a declared table.
//!
//! It does not prepare or run statements.

use crate::{ColumnDef, Mode, Order, Table};

/// The column that keeps which operation wrote which version, beside the declared columns of a versioned table.
pub(super) const OPS: &str = "ops";

/// A kind of statement. With a table it is a text, and a prepared statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// All cells, write time, and the time to live where there is one.
    Put,
    /// Write time, key cells.
    Delete,
    /// Key cells.
    Get,
    /// Key cells; gives `ops` too, and is read serially.
    Settle,
    /// All cells, `ops`, and the time to live where there is one.
    InsertNew,
    /// Time to live where there is one, value cells, slot and id of the operation, key cells, version.
    Replace,
    /// Partition cells, equal clustering cells, bounds of the next column.
    Scan { equal: u8, low: Edge, high: Edge },
    /// Two tokens: above the first, up to the second.
    ScanAll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Edge {
    Open,
    Included,
    Excluded,
}

pub(super) fn text(keyspace: &str, table: &Table, shape: Shape) -> String {
    let name = format!("{keyspace}.{}", table.name);
    let ttl = table.ttl.is_some();
    let columns = || list(table.columns);
    let key = || equals(table.key_columns());
    match shape {
        Shape::Put => {
            let marks = marks(table.columns.len());
            let ttl = if ttl { " AND TTL ?" } else { "" };
            format!("INSERT INTO {name} ({}) VALUES ({marks}) USING TIMESTAMP ?{ttl}", columns())
        }
        Shape::Delete => format!("DELETE FROM {name} USING TIMESTAMP ? WHERE {}", key()),
        Shape::Get => format!("SELECT {} FROM {name} WHERE {}", columns(), key()),
        Shape::Settle => format!("SELECT {}, {OPS} FROM {name} WHERE {}", columns(), key()),
        Shape::InsertNew => {
            let marks = marks(table.columns.len() + 1);
            let ttl = if ttl { " USING TTL ?" } else { "" };
            format!("INSERT INTO {name} ({}, {OPS}) VALUES ({marks}) IF NOT EXISTS{ttl}", columns())
        }
        Shape::Replace => {
            let ttl = if ttl { " USING TTL ?" } else { "" };
            let set: Vec<String> =
                table.value_columns().iter().map(|column| format!("{} = ?", column.name)).collect();
            format!("UPDATE {name}{ttl} SET {}, {OPS}[?] = ? WHERE {} IF version = ?", set.join(", "), key())
        }
        Shape::Scan { equal, low, high } => {
            let fixed = table.partition + usize::from(equal);
            let mut text =
                format!("SELECT {} FROM {name} WHERE {}", columns(), equals(&table.columns[..fixed]));
            for (edge, included, excluded) in [(low, ">=", ">"), (high, "<=", "<")] {
                let sign = match edge {
                    Edge::Open => continue,
                    Edge::Included => included,
                    Edge::Excluded => excluded,
                };
                text.push_str(&format!(" AND {} {sign} ?", table.columns[fixed].name));
            }
            text
        }
        Shape::ScanAll => {
            let token = format!("token({})", list(table.partition_columns()));
            format!("SELECT {} FROM {name} WHERE {token} > ? AND {token} <= ?", columns())
        }
    }
}

pub(super) fn create_table(keyspace: &str, table: &Table) -> String {
    let mut text = format!("CREATE TABLE IF NOT EXISTS {keyspace}.{} (", table.name);
    for column in table.columns {
        text.push_str(&format!("{} {}, ", column.name, column.kind));
    }
    if table.mode == Mode::Versioned {
        text.push_str(&format!("{OPS} map<int, uuid>, "));
    }
    text.push_str(&format!("PRIMARY KEY (({})", list(table.partition_columns())));
    for column in table.cluster_columns() {
        text.push_str(&format!(", {}", column.name));
    }
    text.push_str("))");
    let mut options = Vec::new();
    if table.cluster > 0 {
        let orders: Vec<String> = table
            .cluster_columns()
            .iter()
            .map(|column| format!("{} {}", column.name, order(column.order)))
            .collect();
        options.push(format!("CLUSTERING ORDER BY ({})", orders.join(", ")));
    }
    if let Some(window) = table.time_window {
        let hours = window.as_secs().div_ceil(3_600).max(1);
        let (unit, size) = if hours % 24 == 0 { ("DAYS", hours / 24) } else { ("HOURS", hours) };
        options.push(format!(
            "compaction = {{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': '{unit}', \
             'compaction_window_size': {size}}}"
        ));
    }
    if !options.is_empty() {
        text.push_str(&format!(" WITH {}", options.join(" AND ")));
    }
    text
}

pub(super) fn add_column(keyspace: &str, table: &Table, column: &ColumnDef) -> String {
    format!("ALTER TABLE {keyspace}.{} ADD {} {}", table.name, column.name, column.kind)
}

pub(super) fn order(order: Order) -> &'static str {
    match order {
        Order::Asc => "ASC",
        Order::Desc => "DESC",
    }
}

fn list(columns: &[ColumnDef]) -> String {
    let mut text = String::new();
    for (index, column) in columns.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        text.push_str(&format!("{comma}{}", column.name));
    }
    text
}

fn equals(columns: &[ColumnDef]) -> String {
    let parts: Vec<String> = columns.iter().map(|column| format!("{} = ?", column.name)).collect();
    parts.join(" AND ")
}

fn marks(count: usize) -> String {
    vec!["?"; count].join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Row as _;

    crate::table! { Fact Seen in "seen" ttl Some(30 days), window 36 hours;
    partition { org: String, day: i32 } cluster { at: i64 [Desc], id: String [Asc] }
    values { n: Option<i64> } }
    crate::table! { Versioned Head in "heads" ttl Some(1 hours);
    partition { org: String } values { n: i64 } }

    #[test]
    fn a_declaration_says_how_its_table_is_made() {
        assert_eq!(
            create_table("ks", Seen::TABLE),
            "CREATE TABLE IF NOT EXISTS ks.seen (org text, day int, at bigint, id text, n bigint, \
             PRIMARY KEY ((org, day), at, id)) WITH CLUSTERING ORDER BY (at DESC, id ASC) AND compaction = \
             {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS', 'compaction_window_size': 36}"
        );
        assert_eq!(
            create_table("ks", Head::TABLE),
            "CREATE TABLE IF NOT EXISTS ks.heads (org text, n bigint, version bigint, ops map<int, uuid>, \
             PRIMARY KEY ((org)))"
        );
    }

    #[test]
    fn facts_carry_a_write_time_and_conditions_never_do() {
        assert_eq!(
            text("ks", Seen::TABLE, Shape::Put),
            "INSERT INTO ks.seen (org, day, at, id, n) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
        );
        assert_eq!(
            text("ks", Head::TABLE, Shape::InsertNew),
            "INSERT INTO ks.heads (org, n, version, ops) VALUES (?, ?, ?, ?) IF NOT EXISTS USING TTL ?"
        );
        assert_eq!(
            text("ks", Head::TABLE, Shape::Replace),
            "UPDATE ks.heads USING TTL ? SET n = ?, version = ?, ops[?] = ? WHERE org = ? IF version = ?"
        );
    }

    #[test]
    fn a_range_is_equality_on_a_prefix_and_bounds_on_the_next_column() {
        let shape = Shape::Scan { equal: 1, low: Edge::Excluded, high: Edge::Included };
        assert_eq!(
            text("ks", Seen::TABLE, shape),
            "SELECT org, day, at, id, n FROM ks.seen WHERE org = ? AND day = ? AND at = ? AND id > ? AND id <= ?"
        );
    }
}
