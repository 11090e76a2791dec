//! The published schemas: editors check conditions with them, inside of rules and windows, too.
#![allow(clippy::unwrap_used)]

use jsonschema::{Retrieve, Uri, Validator};
use serde_json::{Value as Json, json};
use tidegate_schemas::documents::{Document, DocumentKind, parse};

const GUIDE: &str = include_str!("../../../docs/guides/rules.md");
const CONDITION: &str = include_str!("../../../schemas/documents/condition.schema.json");

struct Beside;

impl Retrieve for Beside {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Json, Box<dyn std::error::Error + Send + Sync>> {
        assert!(uri.as_str().ends_with("/condition.schema.json"), "{uri}");
        Ok(serde_json::from_str(CONDITION)?)
    }
}

fn validator(kind: DocumentKind) -> Validator {
    let schema: Json = serde_json::from_str(kind.schema()).unwrap();
    jsonschema::options().with_base_uri("file:///documents/").with_retriever(Beside).build(&schema).unwrap()
}

#[test]
fn the_documents_of_the_guide_fit_the_published_schemas() {
    let (rules, windows) = (validator(DocumentKind::Rule), validator(DocumentKind::Window));
    let mut seen = (0, 0);
    for block in GUIDE.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        for (_, document) in parse(&[("block.yaml", block)]).unwrap() {
            let (schema, count) = match document {
                Document::Rule(_) => (&rules, &mut seen.0),
                Document::Window(_) => (&windows, &mut seen.1),
                _ => continue,
            };
            *count += 1;
            let faults: Vec<_> = schema.iter_errors(&json!(document)).map(|it| it.to_string()).collect();
            assert!(faults.is_empty(), "{block}: {faults:?}");
        }
    }
    assert!(seen.0 > 8 && seen.1 > 0, "{seen:?}");
}

#[test]
fn a_broken_condition_fits_no_published_schema() {
    let (rules, windows) = (validator(DocumentKind::Rule), validator(DocumentKind::Window));
    let sound = json!({"text": {"in": ["text"], "any_of": ["x"]}});
    for (condition, fits) in [
        (sound.clone(), true),
        (json!({"not": {"all": [sound]}}), true),
        (json!({}), false),
        (json!({"txet": {}}), false),
        (json!({"text": {"in": ["text"], "any": ["x"]}}), false),
        (json!({"all": []}), false),
        (json!({"all": [{"field": {"eq": 1}}]}), false),
        (json!({"not": [sound]}), false),
    ] {
        let rule = json!({"rule": "r", "when": condition});
        let window = json!({"window": "w", "over": "1d", "where": condition});
        assert_eq!((rules.is_valid(&rule), windows.is_valid(&window)), (fits, fits), "{condition}");
    }
}
