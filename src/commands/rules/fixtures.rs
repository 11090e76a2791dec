//! Reads the fixture of a line: the rules that the item must match, and the facts that the evaluation may use.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use tidegate_catalog::Compiled;
use tidegate_rules::ExampleFacts;

/// Keys of an item and of a fixture.
const KEYS: [&str; 9] =
    ["id", "typeId", "typeVersion", "typeSchemaVariant", "type", "data", "on", "name", "expect"];

#[derive(Debug)]
pub(super) struct Fixture {
    pub(super) expect: BTreeSet<String>,
    pub(super) facts: ExampleFacts,
}

/// Reads a line: its name, and its fixture or all faults with their places.
pub(super) fn read(config: &Compiled, line: &[u8]) -> (Option<String>, Result<Fixture, String>) {
    match serde_json::from_slice::<Json>(line) {
        Ok(line) => (line["name"].as_str().map(str::to_owned), parse_fixture(config, &line)),
        Err(error) => (None, Err(format!("no JSON: {error}"))),
    }
}

fn parse_fixture(config: &Compiled, line: &Json) -> Result<Fixture, String> {
    let (expect, mut errors) = parse_expected_rules(line);
    if line.get("name").is_some_and(|name| !name.is_string()) {
        errors.push("/name: expected a text".to_owned());
    }
    let facts = config.example_facts(line, &KEYS).unwrap_or_else(|fact_faults| {
        errors.extend(fact_faults.into_iter().map(|error| format!("{}: {}", error.pointer, error.detail)));
        ExampleFacts::default()
    });
    if errors.is_empty() { Ok(Fixture { expect, facts }) } else { Err(errors.join("; ")) }
}

fn parse_expected_rules(line: &Json) -> (BTreeSet<String>, Vec<String>) {
    let Some(list) = line.get("expect").and_then(Json::as_array) else {
        let error =
            "/expect: a list of the rules that the item matches is needed; an empty one if it matches none";
        return (BTreeSet::new(), vec![error.to_owned()]);
    };
    let (mut rules, mut errors) = (BTreeSet::new(), Vec::new());
    for (nth, rule) in list.iter().enumerate() {
        match rule.as_str() {
            Some(rule) => drop(rules.insert(rule.to_owned())),
            None => errors.push(format!("/expect/{nth}: expected the key of a rule, not {rule}")),
        }
    }
    (rules, errors)
}
