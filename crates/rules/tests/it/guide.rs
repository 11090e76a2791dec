//! The guide for authors of rules: its documents must be valid, and its examples must have the stated results.

use std::sync::Arc;

use serde_json::Value as Json;
use tidegate_rules::{Bank, Limits, Plan, RuleSource, TestItem, TestResult, Vocabulary, run_tests};
use tidegate_schemas::{
    documents::{DocumentSet, parse},
    ids::{Millis, TypeId},
    item_types::{ItemType, Mode},
    validation_error::Pointer,
};

const GUIDE: &str = include_str!("../../../../docs/guides/rules.md");
const NOW: Millis = Millis(1_767_225_600_000);

fn documents() -> Vec<(String, String)> {
    let blocks = GUIDE.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
    blocks.enumerate().map(|(nth, text)| (format!("block-{}.yaml", nth + 1), text)).collect()
}

#[test]
fn examples_of_the_guide_pass() {
    let set = DocumentSet::collect(parse(documents().as_slice()).unwrap()).unwrap();
    set.validate().unwrap();
    let types: Arc<[TypeId]> = set.item_types.keys().cloned().collect();
    let item_types: Vec<_> =
        set.item_types.values().map(|(_, document)| ItemType::compile(document, "1", &types)).collect();
    let rules: Vec<Json> = set.rules.values().map(|(_, rule)| serde_json::to_value(rule).unwrap()).collect();
    let sources: Vec<_> = rules.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let mut vocabulary = Vocabulary::from_item_types(&item_types);
    for (_, window) in set.windows.values() {
        vocabulary.add_window(serde_json::to_value(window).unwrap());
    }
    for (key, (_, bank)) in &set.banks {
        vocabulary.add_bank(Bank { key: key.clone(), kind: bank.kind, entries: [].into() });
    }
    let plan = Plan::compile(&sources, &vocabulary, &Limits::default()).unwrap();
    let reports = run_tests(&plan, NOW, |type_id, data| {
        let item_type = item_types.iter().find(|item_type| item_type.key == *type_id).unwrap();
        let data = data.to_string();
        let values = item_type
            .check(data.as_bytes(), Mode::Partial, &Pointer::Root)
            .map_err(|errors| format!("{errors:?}"))?;
        let user = values.creator();
        Ok(TestItem { values: Box::new(values), user })
    });
    let wrong: Vec<_> = reports.iter().filter(|report| report.result != TestResult::Right).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let examples: usize = set.rules.values().map(|(_, rule)| rule.tests.len()).sum();
    assert!(reports.len() == examples && examples >= 41, "{} of {examples}", reports.len());
}
