//! Builds the CQL text of every operation on a declared table.

use crate::{ColumnDef, Mode, Order, Table};

/// Column of versioned tables with the operation id of each version, in addition to the declared columns.
pub(super) const OPS: &str = "ops";

/// Kind of statement. Together with a table it determines the text of the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StatementKind {
    /// Binds all cells, the write time, and the time to live if the table has one.
    Put,
    /// Binds the write time and the key cells.
    Delete,
    /// Binds the key cells.
    Get,
    /// Binds the key cells. Selects `ops` too, and is read serially.
    SerialGet,
    /// Binds all cells, `ops`, and the time to live if the table has one.
    InsertNew,
    /// Binds the time to live if the table has one, value cells, slot and id of the operation, key cells, expected version.
    Replace,
    /// Binds partition cells, `equal` clustering cells, and the bounds of the next column.
    Scan { equal: u8, low: Edge, high: Edge },
    /// Binds two tokens. Reads the rows above the first, up to and including the second.
    ScanAll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Edge {
    Open,
    Included,
    Excluded,
}

pub(super) fn statement_text(keyspace: &str, table: &Table, kind: StatementKind) -> String {
    let name = format!("{keyspace}.{}", table.name);
    let has_ttl = table.ttl.is_some();
    let columns = || column_list(table.columns);
    let key = || equality_conditions(table.key_columns());
    match kind {
        StatementKind::Put => {
            let values = placeholders(table.columns.len());
            let ttl_option = if has_ttl { " AND TTL ?" } else { "" };
            format!("INSERT INTO {name} ({}) VALUES ({values}) USING TIMESTAMP ?{ttl_option}", columns())
        }
        StatementKind::Delete => format!("DELETE FROM {name} USING TIMESTAMP ? WHERE {}", key()),
        StatementKind::Get => format!("SELECT {} FROM {name} WHERE {}", columns(), key()),
        StatementKind::SerialGet => format!("SELECT {}, {OPS} FROM {name} WHERE {}", columns(), key()),
        StatementKind::InsertNew => {
            // No write time: the servers assign the time of a conditional write.
            let values = placeholders(table.columns.len() + 1);
            let ttl_clause = if has_ttl { " USING TTL ?" } else { "" };
            format!("INSERT INTO {name} ({}, {OPS}) VALUES ({values}) IF NOT EXISTS{ttl_clause}", columns())
        }
        StatementKind::Replace => {
            let ttl_clause = if has_ttl { " USING TTL ?" } else { "" };
            // Sets the operation id of one version and keeps those of the others.
            let assignments = column_equations(table.value_columns(), ", ");
            format!(
                "UPDATE {name}{ttl_clause} SET {assignments}, {OPS}[?] = ? WHERE {} IF version = ?",
                key()
            )
        }
        StatementKind::Scan { equal, low, high } => {
            let equal_columns = table.partition + usize::from(equal);
            let mut text = format!(
                "SELECT {} FROM {name} WHERE {}",
                columns(),
                equality_conditions(&table.columns[..equal_columns])
            );
            for (edge, included, excluded) in [(low, ">=", ">"), (high, "<=", "<")] {
                let operator = match edge {
                    Edge::Open => continue,
                    Edge::Included => included,
                    Edge::Excluded => excluded,
                };
                text.push_str(&format!(" AND {} {operator} ?", table.columns[equal_columns].name));
            }
            text
        }
        StatementKind::ScanAll => {
            let token = format!("token({})", column_list(table.partition_columns()));
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
    text.push_str(&format!("PRIMARY KEY (({})", column_list(table.partition_columns())));
    for column in table.cluster_columns() {
        text.push_str(&format!(", {}", column.name));
    }
    text.push_str("))");
    let mut options = Vec::new();
    if table.cluster > 0 {
        let orders: Vec<String> = table
            .cluster_columns()
            .iter()
            .map(|column| format!("{} {}", column.name, order_keyword(column.order)))
            .collect();
        options.push(format!("CLUSTERING ORDER BY ({})", orders.join(", ")));
    }
    // Rows of such a table expire together, so whole files are dropped instead of compacted.
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

pub(super) fn order_keyword(order: Order) -> &'static str {
    match order {
        Order::Asc => "ASC",
        Order::Desc => "DESC",
    }
}

fn column_list(columns: &[ColumnDef]) -> String {
    let mut text = String::new();
    for (index, column) in columns.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        text.push_str(&format!("{comma}{}", column.name));
    }
    text
}

fn equality_conditions(columns: &[ColumnDef]) -> String {
    column_equations(columns, " AND ")
}

fn column_equations(columns: &[ColumnDef], separator: &str) -> String {
    let equations: Vec<String> = columns.iter().map(|column| format!("{} = ?", column.name)).collect();
    equations.join(separator)
}

fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Row as _;

    crate::table! { Fact Sighting in "seen" ttl Some(30 days), window 36 hours;
    partition { org: String, day: i32 } cluster { at: i64 [Desc], id: String [Asc] }
    values { n: Option<i64> } }
    crate::table! { Versioned Head in "heads" ttl Some(1 hours);
    partition { org: String } values { n: i64 } }

    #[test]
    fn declaration_determines_the_table_definition() {
        assert_eq!(
            create_table("ks", Sighting::TABLE),
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
    fn facts_have_a_write_time_and_conditional_writes_none() {
        assert_eq!(
            statement_text("ks", Sighting::TABLE, StatementKind::Put),
            "INSERT INTO ks.seen (org, day, at, id, n) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
        );
        assert_eq!(
            statement_text("ks", Head::TABLE, StatementKind::InsertNew),
            "INSERT INTO ks.heads (org, n, version, ops) VALUES (?, ?, ?, ?) IF NOT EXISTS USING TTL ?"
        );
        assert_eq!(
            statement_text("ks", Head::TABLE, StatementKind::Replace),
            "UPDATE ks.heads USING TTL ? SET n = ?, version = ?, ops[?] = ? WHERE org = ? IF version = ?"
        );
    }

    #[test]
    fn range_is_an_equal_prefix_and_bounds_on_the_next_column() {
        let kind = StatementKind::Scan { equal: 1, low: Edge::Excluded, high: Edge::Included };
        assert_eq!(
            statement_text("ks", Sighting::TABLE, kind),
            "SELECT org, day, at, id, n FROM ks.seen WHERE org = ? AND day = ? AND at = ? AND id > ? AND id <= ?"
        );
    }
}
