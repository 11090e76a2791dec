//! Tables created and extended on a server, and two versions running side by side.

use tidegate_schemas::ids::OrgId;
use tidegate_store::{Difference, Error, Migration, WriteTime, cql};
use tidegate_test_support::servers;

use crate::fixture::{connect, settings, table};

mod before {
    tidegate_store::table! { Fact Note in "notes" ttl None;
    partition { org: tidegate_schemas::ids::OrgId } values { text: String } }
}
mod now {
    tidegate_store::table! { Fact Note in "notes" ttl None;
    partition { org: tidegate_schemas::ids::OrgId } values { lang: Option<String>, text: String } }
    tidegate_store::table! { Versioned Head in "heads" ttl None;
    partition { org: tidegate_schemas::ids::OrgId } values { n: i64 } }
}
mod retyped {
    tidegate_store::table! { Fact Note in "notes" ttl None;
    partition { org: tidegate_schemas::ids::OrgId } values { text: i64 } }
}

#[tokio::test]
async fn tables_are_migrated_and_two_versions_run_side_by_side() {
    let Some(address) = servers::cql("store contract, migrations") else { return };
    let settings = settings(&address);
    let [old_tables, new_tables] =
        [&[table::<before::Note>()][..], &[table::<now::Note>(), table::<now::Head>()]];
    let old_store = connect(&settings, old_tables).await;
    let expected_differences = [Difference::Keyspace(settings.keyspace.clone()), Difference::Table("notes")];
    assert_eq!(old_store.migrate(Migration::Check).await.unwrap(), expected_differences);
    let unasked = cql::Settings { replication: None, ..settings.clone() };
    let error = connect(&unasked, old_tables).await.migrate(Migration::Expand).await.unwrap_err();
    assert!(matches!(error, Error::Settings(_)), "{error}");
    assert_eq!(old_store.migrate(Migration::Expand).await.unwrap(), expected_differences);
    assert_eq!(old_store.migrate(Migration::Check).await.unwrap(), []);
    let first = before::Note { org: OrgId::new("old"), text: "t".to_owned() };
    old_store.put_rows(WriteTime(1), std::slice::from_ref(&first)).await.unwrap();

    let new_store = connect(&settings, new_tables).await;
    let expected_differences =
        [Difference::Column { table: "notes", column: "lang" }, Difference::Table("heads")];
    assert_eq!(new_store.migrate(Migration::Check).await.unwrap(), expected_differences);
    assert_eq!(new_store.migrate(Migration::Expand).await.unwrap(), expected_differences);
    assert_eq!(new_store.migrate(Migration::Check).await.unwrap(), []);
    let note = new_store.get::<now::Note>(&now::Note::key("old")).await.unwrap();
    assert_eq!(note, Some(now::Note { org: OrgId::new("old"), lang: None, text: "t".to_owned() }));

    let second = now::Note { org: OrgId::new("new"), lang: Some("ß".to_owned()), text: "t".to_owned() };
    new_store.put_rows(WriteTime(1), std::slice::from_ref(&second)).await.unwrap();
    assert_eq!(
        old_store.migrate(Migration::Check).await.unwrap(),
        [],
        "an additional column is no difference"
    );
    let note = old_store.get::<before::Note>(&before::Note::key("new")).await.unwrap();
    assert_eq!(note, Some(before::Note { org: OrgId::new("new"), text: "t".to_owned() }));

    let retyped = connect(&settings, &[table::<retyped::Note>()]).await;
    for mode in [Migration::Check, Migration::Expand] {
        let error = retyped.migrate(mode).await.unwrap_err();
        assert!(error.to_string().contains("notes: column text is text and declared as bigint"), "{error}");
    }
    let session =
        scylla::client::session_builder::SessionBuilder::new().known_nodes(&settings.contact_points);
    let session = Box::pin(session.build()).await.unwrap();
    session.query_unpaged(format!("DROP KEYSPACE {}", settings.keyspace), ()).await.unwrap();
}
