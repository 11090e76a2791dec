//! Makes the keyspace, tables and columns that the declarations ask for, or says what is missing.
//!
//! It never removes or retypes: a table that lies otherwise than declared is refused by name.

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
struct Existing {
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
                    self.run(&create_keyspace(keyspace, replication)).await?;
                }
                (Migration::Expand, None) => {
                    return Err(Error::Settings(format!(
                        "keyspace {keyspace} does not exist, and `replication` does not say how to make it"
                    )));
                }
                (Migration::Check, _) => {}
            }
        }
        let mut existing = self.columns().await?;
        for table in &self.0.tables {
            let missing = compare(table, existing.remove(table.name))?;
            for difference in &missing {
                if mode == Migration::Expand {
                    self.run(&remedy(keyspace, table, difference)).await?;
                }
            }
            differences.extend(missing);
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
            .map_err(faults::execution)?;
        Ok(answer.into_rows_result().map_err(unreadable)?.rows_num() > 0)
    }

    async fn columns(&self) -> Result<HashMap<String, BTreeMap<String, Existing>>, Error> {
        let query = "SELECT table_name, column_name, type, kind, position, clustering_order \
                     FROM system_schema.columns WHERE keyspace_name = ?";
        let answer = self
            .0
            .session
            .query_unpaged(query, (&self.0.settings.keyspace,))
            .await
            .map_err(faults::execution)?;
        let answer = answer.into_rows_result().map_err(unreadable)?;
        let mut tables: HashMap<String, BTreeMap<String, Existing>> = HashMap::new();
        for row in answer.rows::<(String, String, String, String, i32, String)>().map_err(unreadable)? {
            let (table, column, kind, role, position, order) = row.map_err(unreadable)?;
            tables.entry(table).or_default().insert(column, Existing { kind, role, position, order });
        }
        Ok(tables)
    }

    async fn run(&self, text: &str) -> Result<(), Error> {
        tracing::info!(statement = text, "changing the store's tables");
        self.0.session.query_unpaged(text, ()).await.map_err(faults::execution)?;
        Ok(())
    }
}

/// Returns the columns that the declared table has and the existing one lacks. Any other difference is an error.
fn compare(
    table: &'static Table,
    existing: Option<BTreeMap<String, Existing>>,
) -> Result<Vec<Difference>, Error> {
    let Some(existing) = existing else { return Ok(vec![Difference::Table(table.name)]) };
    let fault = |detail: String| Err(Error::Schema { table: table.name.to_owned(), detail });
    let keys = table.key_columns().len();
    let mut missing = Vec::new();
    for (index, column) in table.columns.iter().enumerate() {
        let (role, position) = if index < table.partition {
            ("partition_key", index)
        } else if index < keys {
            ("clustering", index - table.partition)
        } else {
            ("regular", 0)
        };
        let Some(found) = existing.get(column.name) else {
            if role != "regular" {
                return fault(format!("key column {} is missing, and keys never change", column.name));
            }
            if !column.nullable {
                return fault(format!(
                    "column {} was added and is not an Option, but rows written before have none",
                    column.name
                ));
            }
            missing.push(Difference::Column { table: table.name, column: column.name });
            continue;
        };
        if found.kind != column.kind.cql() {
            return fault(format!(
                "column {} is {} and declared as {}: types never change",
                column.name, found.kind, column.kind
            ));
        }
        if found.role != role || (role != "regular" && usize::try_from(found.position) != Ok(position)) {
            return fault(format!(
                "column {} is {} {} and declared as {role} {position}: keys never change",
                column.name, found.role, found.position
            ));
        }
        let order = statements::order(column.order);
        if role == "clustering" && !found.order.eq_ignore_ascii_case(order) {
            return fault(format!(
                "column {} is clustered {} and declared {order}",
                column.name, found.order
            ));
        }
    }
    for (name, found) in &existing {
        if found.role != "regular"
            && found.role != "static"
            && !table.key_columns().iter().any(|key| key.name == name)
        {
            return fault(format!("column {name} is part of its key and not declared: keys never change"));
        }
    }
    if table.mode == Mode::Versioned && !existing.contains_key(OPS) {
        return fault("it is declared as versioned, but was made for facts".to_owned());
    }
    Ok(missing)
}

fn remedy(keyspace: &str, table: &Table, difference: &Difference) -> String {
    match difference {
        Difference::Column { column, .. }
            if let Some(column) = table.columns.iter().find(|known| known.name == *column) =>
        {
            statements::add_column(keyspace, table, column)
        }
        _ => statements::create_table(keyspace, table),
    }
}

fn create_keyspace(keyspace: &str, replication: &Replication) -> String {
    let copies = match replication {
        Replication::Simple(copies) => format!("'class': 'SimpleStrategy', 'replication_factor': {copies}"),
        Replication::Datacenters(centers) => {
            let each: Vec<String> =
                centers.iter().map(|(name, copies)| format!(", '{name}': {copies}")).collect();
            format!("'class': 'NetworkTopologyStrategy'{}", each.concat())
        }
    };
    format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {{{copies}}}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Row as _;

    crate::table! { Fact Thing in "things" ttl None;
    partition { org: String } cluster { at: i64 [Desc] } values { a: String, b: Option<i64> } }

    fn existing(columns: &[(&str, &str, &str, i32, &str)]) -> Option<BTreeMap<String, Existing>> {
        let column = |(name, kind, role, position, order): &(&str, &str, &str, i32, &str)| {
            let [kind, role, order] = [kind, role, order].map(|text| (*text).to_owned());
            ((*name).to_owned(), Existing { kind, role, position: *position, order })
        };
        Some(columns.iter().map(column).collect())
    }

    const ORG: (&str, &str, &str, i32, &str) = ("org", "text", "partition_key", 0, "none");
    const AT: (&str, &str, &str, i32, &str) = ("at", "bigint", "clustering", 0, "desc");
    const A: (&str, &str, &str, i32, &str) = ("a", "text", "regular", -1, "none");
    const B: (&str, &str, &str, i32, &str) = ("b", "bigint", "regular", -1, "none");

    #[test]
    fn what_is_missing_is_listed_and_what_is_more_is_tolerated() {
        assert_eq!(compare(Thing::TABLE, None).unwrap(), [Difference::Table("things")]);
        let newer = ("c", "blob", "regular", -1, "none");
        assert_eq!(compare(Thing::TABLE, existing(&[ORG, AT, A, B, newer])).unwrap(), []);
        assert_eq!(
            compare(Thing::TABLE, existing(&[ORG, AT, A])).unwrap(),
            [Difference::Column { table: "things", column: "b" }]
        );
    }

    #[test]
    fn what_may_never_change_is_refused_by_name() {
        let refusal = |columns: &[_]| compare(Thing::TABLE, existing(columns)).unwrap_err().to_string();
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
