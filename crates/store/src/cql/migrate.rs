//! Creates missing keyspaces, tables and columns, or lists them.
//!
//! Tables and columns are never removed or retyped. Any difference but a missing or an additional column is an error.

use std::collections::{BTreeMap, HashMap};

use super::{
    Engine, faults,
    settings::Replication,
    statements::{self, OPS},
    unreadable,
};
use crate::{Difference, Error, Migration, Mode, Table};

/// A column as the server describes it.
#[derive(Clone, Debug)]
struct ExistingColumn {
    kind: String,
    role: String,
    position: i32,
    order: String,
}

impl Engine {
    pub(crate) async fn migrate(&self, mode: Migration) -> Result<Vec<Difference>, Error> {
        let keyspace = &self.0.settings.keyspace;
        let mut differences = Vec::new();
        if !self.has_keyspace().await? {
            differences.push(Difference::Keyspace(keyspace.clone()));
            match (mode, &self.0.settings.replication) {
                (Migration::Expand, Some(replication)) => {
                    self.run_statement(&create_keyspace(keyspace, replication)).await?;
                }
                (Migration::Expand, None) => {
                    return Err(Error::Settings(format!(
                        "keyspace {keyspace} does not exist and cannot be created: set `replication`"
                    )));
                }
                (Migration::Check, _) => {}
            }
        }
        // Read after the keyspace exists, so a new keyspace simply has no columns.
        let mut existing = self.read_columns().await?;
        for table in &self.0.tables {
            let table_differences = find_missing_columns(table, existing.remove(table.name))?;
            for difference in &table_differences {
                if mode == Migration::Expand {
                    self.run_statement(&remedy_statement(keyspace, table, difference)).await?;
                }
            }
            differences.extend(table_differences);
        }
        Ok(differences)
    }

    async fn has_keyspace(&self) -> Result<bool, Error> {
        let query = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let answer = self
            .0
            .session
            .query_unpaged(query, (&self.0.settings.keyspace,))
            .await
            .map_err(faults::from_execution)?;
        Ok(answer.into_rows_result().map_err(unreadable)?.rows_num() > 0)
    }

    async fn read_columns(&self) -> Result<HashMap<String, BTreeMap<String, ExistingColumn>>, Error> {
        let query = "SELECT table_name, column_name, type, kind, position, clustering_order \
                     FROM system_schema.columns WHERE keyspace_name = ?";
        let answer = self
            .0
            .session
            .query_unpaged(query, (&self.0.settings.keyspace,))
            .await
            .map_err(faults::from_execution)?;
        let answer = answer.into_rows_result().map_err(unreadable)?;
        let mut tables: HashMap<String, BTreeMap<String, ExistingColumn>> = HashMap::new();
        for row in answer.rows::<(String, String, String, String, i32, String)>().map_err(unreadable)? {
            let (table, column, kind, role, position, order) = row.map_err(unreadable)?;
            tables.entry(table).or_default().insert(column, ExistingColumn { kind, role, position, order });
        }
        Ok(tables)
    }

    async fn run_statement(&self, text: &str) -> Result<(), Error> {
        tracing::info!(statement = text, "changing the store's tables");
        self.0.session.query_unpaged(text, ()).await.map_err(faults::from_execution)?;
        Ok(())
    }
}

/// Returns the declared columns that the existing table lacks. Any other difference is an error.
fn find_missing_columns(
    table: &'static Table,
    existing: Option<BTreeMap<String, ExistingColumn>>,
) -> Result<Vec<Difference>, Error> {
    let Some(existing) = existing else { return Ok(vec![Difference::Table(table.name)]) };
    let schema_error = |detail: String| Err(Error::Schema { table: table.name.to_owned(), detail });
    let key_count = table.key_columns().len();
    let mut missing_columns = Vec::new();
    for (index, column) in table.columns.iter().enumerate() {
        let (role, position) = if index < table.partition {
            ("partition_key", index)
        } else if index < key_count {
            ("clustering", index - table.partition)
        } else {
            ("regular", 0)
        };
        let Some(existing_column) = existing.get(column.name) else {
            if role != "regular" {
                return schema_error(format!("key column {} is missing, and keys never change", column.name));
            }
            // Rows written before the column was added have no cell for it.
            if !column.nullable {
                return schema_error(format!(
                    "column {} was added and is not an Option, but rows written before have none",
                    column.name
                ));
            }
            missing_columns.push(Difference::Column { table: table.name, column: column.name });
            continue;
        };
        if existing_column.kind != column.kind.cql() {
            return schema_error(format!(
                "column {} is {} and declared as {}: types never change",
                column.name, existing_column.kind, column.kind
            ));
        }
        if existing_column.role != role
            // The server reports position -1 for regular columns.
            || (role != "regular" && usize::try_from(existing_column.position) != Ok(position))
        {
            return schema_error(format!(
                "column {} is {} {} and declared as {role} {position}: keys never change",
                column.name, existing_column.role, existing_column.position
            ));
        }
        let order = statements::order_keyword(column.order);
        if role == "clustering" && !existing_column.order.eq_ignore_ascii_case(order) {
            return schema_error(format!(
                "column {} is clustered {} and declared {order}",
                column.name, existing_column.order
            ));
        }
    }
    for (name, column) in &existing {
        // A regular or static column that is not declared belongs to a newer version, which may run beside this one.
        if column.role != "regular"
            && column.role != "static"
            && !table.key_columns().iter().any(|key| key.name == name)
        {
            return schema_error(format!(
                "column {name} is part of its key and not declared: keys never change"
            ));
        }
    }
    // Replacements write `ops`, so they would fail on a table of facts.
    if table.mode == Mode::Versioned && !existing.contains_key(OPS) {
        return schema_error("it is declared as versioned, but was made for facts".to_owned());
    }
    Ok(missing_columns)
}

fn remedy_statement(keyspace: &str, table: &Table, difference: &Difference) -> String {
    match difference {
        Difference::Column { column, .. }
            if let Some(column) = table.columns.iter().find(|declared| declared.name == *column) =>
        {
            statements::add_column(keyspace, table, column)
        }
        _ => statements::create_table(keyspace, table),
    }
}

fn create_keyspace(keyspace: &str, replication: &Replication) -> String {
    let options = match replication {
        Replication::Simple(copies) => format!("'class': 'SimpleStrategy', 'replication_factor': {copies}"),
        Replication::Datacenters(centers) => {
            let copies_by_center: Vec<String> =
                centers.iter().map(|(name, copies)| format!(", '{name}': {copies}")).collect();
            format!("'class': 'NetworkTopologyStrategy'{}", copies_by_center.concat())
        }
    };
    format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {{{options}}}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Row as _;

    crate::table! { Fact Thing in "things" ttl None;
    partition { org: String } cluster { at: i64 [Desc] } values { a: String, b: Option<i64> } }

    fn existing(columns: &[(&str, &str, &str, i32, &str)]) -> Option<BTreeMap<String, ExistingColumn>> {
        let column = |(name, kind, role, position, order): &(&str, &str, &str, i32, &str)| {
            let [kind, role, order] = [kind, role, order].map(|text| (*text).to_owned());
            ((*name).to_owned(), ExistingColumn { kind, role, position: *position, order })
        };
        Some(columns.iter().map(column).collect())
    }

    const ORG: (&str, &str, &str, i32, &str) = ("org", "text", "partition_key", 0, "none");
    const AT: (&str, &str, &str, i32, &str) = ("at", "bigint", "clustering", 0, "desc");
    const A: (&str, &str, &str, i32, &str) = ("a", "text", "regular", -1, "none");
    const B: (&str, &str, &str, i32, &str) = ("b", "bigint", "regular", -1, "none");

    #[test]
    fn missing_columns_are_listed_and_extra_ones_tolerated() {
        assert_eq!(find_missing_columns(Thing::TABLE, None).unwrap(), [Difference::Table("things")]);
        let newer = ("c", "blob", "regular", -1, "none");
        assert_eq!(find_missing_columns(Thing::TABLE, existing(&[ORG, AT, A, B, newer])).unwrap(), []);
        assert_eq!(
            find_missing_columns(Thing::TABLE, existing(&[ORG, AT, A])).unwrap(),
            [Difference::Column { table: "things", column: "b" }]
        );
    }

    #[test]
    fn changed_keys_and_types_are_refused_by_name() {
        let refusal =
            |columns: &[_]| find_missing_columns(Thing::TABLE, existing(columns)).unwrap_err().to_string();
        assert!(refusal(&[ORG, AT, B]).contains("column a was added and is not an Option"));
        assert!(refusal(&[ORG, AT, A, ("b", "text", "regular", -1, "none")]).contains("column b is text"));
        assert!(
            refusal(&[ORG, ("at", "bigint", "clustering", 0, "asc"), A, B])
                .contains("column at is clustered asc")
        );
        assert!(
            refusal(&[ORG, AT, A, B, ("z", "int", "clustering", 1, "asc")])
                .contains("column z is part of its key")
        );
        assert!(refusal(&[ORG, A, B]).contains("key column at is missing"));
    }
}
