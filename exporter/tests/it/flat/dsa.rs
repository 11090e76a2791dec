//! Tests of the profile `dsa`: statements of reasons.

use std::{collections::BTreeSet, fs};

use serde_json::{Value as Json, json};
use tidegate_exporter::flat::{
    Export, ExportOptions, ExportTarget, FlatFormat, Manifest,
    dsa::{self, UNKNOWN_FIELDS},
};
use tidegate_history::{Dataset, Value};
use tidegate_schemas::ids::Millis;

use super::rows::{DAY, decision};
use crate::support::Folder;

fn action(source: &'static str, child_safety: bool) -> Vec<Value<'static>> {
    let text = Value::text;
    vec![
        text("018f0000-7000-8000-000000000001"),
        Value::Time(Millis(DAY + 1)),
        Value::Time(Millis(DAY - 1)),
        text(source),
        text("hide"),
        text("post"),
        text("post-1"),
        text("user"),
        text("user-1"),
        Value::Integer(2),
        Value::Texts(vec!["spam".into()]),
        Value::Structs(vec![vec![text("links"), text("3")]]),
        Value::Null,
        text("submission"),
        Value::Null,
        Value::Null,
        Value::Boolean(child_safety),
    ]
}

fn write_statements(
    dataset: Dataset,
    rows: &[Vec<Value<'_>>],
    columns: Option<&str>,
) -> (Vec<Json>, Manifest) {
    let folder = Folder::new();
    let target = ExportTarget::File(folder.path("out"));
    let mut options = ExportOptions::new(dataset, target, FlatFormat::Ndjson);
    options.dsa = true;
    options.select_columns(columns).unwrap();
    let mut export = Export::open(options).unwrap();
    for row in rows {
        export.write_row(row).unwrap();
    }
    let manifest = export.finish().unwrap().manifest;
    let text = fs::read_to_string(folder.path("out")).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), manifest)
}

#[test]
fn actions_become_statements() {
    let rows = [
        action("rule", false),
        action("moderator", true),
        action("threshold", false),
        action("platform", false),
    ];
    let (statements, manifest) = write_statements(Dataset::Actions, &rows, None);
    assert_eq!(
        statements[0],
        json!({
            "puid": "018f0000-7000-8000-000000000001",
            "application_date": "2026-11-27",
            "category": null,
            "automated_detection": "Yes",
            "automated_decision": "AUTOMATED_DECISION_FULLY",
            "tidegate_source": "rule",
            "tidegate_action": "hide",
            "tidegate_policies": ["spam"],
            "tidegate_item_type_id": "post",
            "tidegate_item_id": "post-1",
            "tidegate_user_type_id": "user",
            "tidegate_user_id": "user-1",
            "tidegate_decision_id": null,
        })
    );
    let fields = |statement: &Json| {
        ["category", "automated_detection", "automated_decision"].map(|name| statement[name].clone())
    };
    assert_eq!(
        fields(&statements[1]),
        [
            json!("STATEMENT_CATEGORY_PROTECTION_OF_MINORS"),
            Json::Null,
            json!("AUTOMATED_DECISION_NOT_AUTOMATED")
        ]
    );
    assert_eq!(fields(&statements[2]), [Json::Null, Json::Null, json!("AUTOMATED_DECISION_FULLY")]);
    assert_eq!(fields(&statements[3]), [Json::Null, Json::Null, Json::Null]);
    assert_eq!((manifest.profile.as_deref(), manifest.rows), (Some("dsa"), 4));
    assert_eq!(manifest.unknown_fields, UNKNOWN_FIELDS);
}

#[test]
fn only_decisions_to_act_become_statements() {
    let mut appeal = decision(1, DAY);
    appeal[11] = Value::text("accept");
    // Decision 3 ignores its item.
    let rows = [decision(1, DAY), decision(3, DAY), appeal, decision(7, DAY)];
    let (statements, manifest) = write_statements(Dataset::Decisions, &rows, None);
    assert_eq!((statements.len(), manifest.rows), (2, 2));
    assert_eq!(statements[0]["tidegate_actions"], json!(["hide", "warn"]));
    assert_eq!(statements[0]["automated_decision"], "AUTOMATED_DECISION_NOT_AUTOMATED");
    assert_eq!(statements[1]["automated_decision"], Json::Null);
    // The moderator's words can name people, which a statement must not.
    assert!(!statements.iter().any(|statement| statement.to_string().contains("moderator1@")));
    let columns = Some("puid,application_date");
    let (statements, _) = write_statements(Dataset::Decisions, &rows[..1], columns);
    assert_eq!(
        statements[0],
        json!({ "puid": "018f00000001-7000-8000-000000000001", "application_date": "2026-11-27" })
    );
}

#[test]
fn fields_are_either_known_or_listed_as_unknown() {
    let unknown: BTreeSet<_> = UNKNOWN_FIELDS.iter().copied().collect();
    assert_eq!(unknown.len(), UNKNOWN_FIELDS.len());
    for dataset in [Dataset::Actions, Dataset::Decisions] {
        for column in dsa::columns(dataset).unwrap() {
            assert!(!unknown.contains(column.name), "{}", column.name);
        }
    }
    for dataset in Dataset::ALL.iter().filter(|it| !matches!(it, Dataset::Actions | Dataset::Decisions)) {
        let error = dsa::columns(*dataset).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("--profile dsa needs the dataset `actions` or `decisions`, not `{dataset}`")
        );
    }
}
