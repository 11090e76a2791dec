//! The published schemas: editors check conditions with them, inside of rules and windows, too.

use jsonschema::{Retrieve, Uri, Validator};
use serde_json::{Value as Json, json};
use tidegate_rules::{Limits, syntax};
use tidegate_schemas::documents::{Document, DocumentKind, parse};

const GUIDE: &str = include_str!("../../../../docs/guides/rules.md");
const CONDITION: &str = include_str!("../../../../schemas/documents/condition.schema.json");

struct LocalSchemas;

impl Retrieve for LocalSchemas {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Json, Box<dyn std::error::Error + Send + Sync>> {
        assert!(uri.as_str().ends_with("/condition.schema.json"), "{uri}");
        Ok(serde_json::from_str(CONDITION)?)
    }
}

fn validator(kind: DocumentKind) -> Validator {
    let schema: Json = serde_json::from_str(kind.schema()).unwrap();
    jsonschema::options()
        .with_base_uri("file:///documents/")
        .with_retriever(LocalSchemas)
        .build(&schema)
        .unwrap()
}

#[test]
fn the_documents_of_the_guide_fit_the_published_schemas() {
    let (rules, windows) = (validator(DocumentKind::Rule), validator(DocumentKind::Window));
    let mut counts = (0, 0);
    for block in GUIDE.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        for (_, document) in parse(&[("block.yaml", block)]).unwrap() {
            let (schema, count) = match document {
                Document::Rule(_) => (&rules, &mut counts.0),
                Document::Window(_) => (&windows, &mut counts.1),
                _ => continue,
            };
            *count += 1;
            let errors: Vec<_> = schema.iter_errors(&json!(document)).map(|it| it.to_string()).collect();
            assert!(errors.is_empty(), "{block}: {errors:?}");
        }
    }
    assert!(counts.0 > 8 && counts.1 > 0, "{counts:?}");
}

#[test]
fn null_is_absent_for_schema_and_reader() {
    let schema = validator(DocumentKind::Rule);
    let conditions = [
        (
            json!({"text": {"in": ["text"], "any_of": ["x"], "words": null, "view": null, "word": null, "min_distinct": null}}),
            true,
        ),
        (json!({"text": {"in": ["text"], "any_of": null, "regex": "x"}, "all": null, "not": null}), true),
        (json!({"text": {"in": ["text"], "any_of": null}}), false),
        (json!({"text": null}), false),
        (json!({"text": {"in": null, "any_of": ["x"]}}), false),
        (json!({"all": [null]}), false),
        (
            json!({"field": {"path": "a", "eq": null, "gte": 3, "lt": null, "of": null, "ignore_case": null}}),
            true,
        ),
        (json!({"field": {"path": "a", "exists": true, "in": null, "contains": null}}), true),
        (json!({"field": {"path": "a", "eq": null}}), false),
        (json!({"field": {"path": "a", "of": "any"}}), false),
        (json!({"strikes": {"gte": 3, "gt": null, "within": null}}), true),
        (json!({"strikes": {"gte": null}}), false),
        (json!({"count": {"window": "w", "gte": null, "gt": 2}}), true),
        (json!({"count": {"window": "w", "gte": 1, "gt": 2}}), false),
        (json!({"media": {"in": ["image"], "state": null, "bank": "b"}}), true),
        (json!({"media": {"in": ["image"], "state": null}}), false),
        (json!({"score": {"model": "m", "label": null, "gt": 0.5, "lt": null}}), true),
        (json!({"score": {"model": "m", "label": "l", "gt": null}}), false),
        (json!({"model_text": {"model": "m", "words": ["x"], "regex": null, "view": null}}), true),
        (json!({"model_text": {"model": "m", "words": null}}), false),
        (json!({"model_text": {"in": ["text"], "words": ["x"]}}), false),
        (json!({"geo": {"in": ["place"], "lat": null, "lng": null, "cells": "u33", "within": null}}), true),
        (
            json!({"geo": {"lat": "a", "lng": "b", "in": null, "within": {"lat": 1, "lng": 2, "m": null, "km": 1}}}),
            true,
        ),
        (json!({"geo": {"in": ["place"], "lat": "a", "cells": "u33"}}), false),
        (json!({"geo": {"in": ["place"], "cells": null}}), false),
        (json!({"domain": {"in": ["text"], "any_of": null, "bank": "b"}}), true),
        (json!({"domain": {"in": ["text"], "bank": null}}), false),
        (json!({"expr": "1 < 2", "any": null}), true),
        (json!({"rule": "other", "expr": null}), true),
        (json!({"rule": null}), false),
        (json!({"rule": 5}), false),
    ];
    for (condition, fits) in conditions {
        let rule = json!({"rule": "r", "when": condition});
        assert_eq!(schema.is_valid(&rule), fits, "schema: {condition}");
        let read = syntax::parse(&rule, &Limits::default());
        assert_eq!(read.is_ok(), fits, "reader: {condition}: {read:?}");
    }
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
