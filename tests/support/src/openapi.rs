//! The published OpenAPI document as a judge: requests, answers and webhooks against its schemas.
//!
//! Answers and callbacks of the service are checked against closed schemas: an undescribed member is an error.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use jsonschema::{Draft, Validator};
use serde_json::{Map, Value, json};

static CONTRACT: LazyLock<Contract> = LazyLock::new(|| {
    let text = include_str!("../../../schemas/openapi.json");
    Contract::new(serde_json::from_str(text).expect("schemas/openapi.json is JSON"))
});

/// Returns the contract of `schemas/openapi.json`.
pub fn contract() -> &'static Contract {
    &CONTRACT
}

pub struct Contract {
    document: Value,
    open: Validators,
    closed: Validators,
}

impl Contract {
    pub fn new(document: Value) -> Self {
        let components = &document["components"];
        let (open, closed) = (Validators::new(components.clone()), Validators::new(closed(components)));
        Self { document, open, closed }
    }

    pub fn document(&self) -> &Value {
        &self.document
    }

    /// Checks an instance against a named schema, with further members allowed.
    pub fn check(&self, schema: &str, instance: &Value) -> Result<(), String> {
        self.open.check(&json!({ "$ref": format!("#/components/schemas/{schema}") }), instance)
    }

    /// Checks the body of a request that the service takes. A route without a described body is an error.
    pub fn check_request(&self, method: &str, path: &str, body: &Value) -> Result<(), String> {
        let operation =
            self.operation(method, path).ok_or_else(|| format!("{method} {path} is not described"))?;
        match operation.pointer("/requestBody/content/application~1json/schema") {
            Some(schema) => self.open.check(schema, body),
            None => Err(format!("{method} {path} has no described body")),
        }
    }

    /// Checks the answer of a route. Routes and methods outside of the document are not checked.
    pub fn check_answer(&self, method: &str, path: &str, status: u16, body: &Value) -> Result<(), String> {
        let Some(operation) = self.operation(method, path) else { return Ok(()) };
        let answer = operation["responses"]
            .get(status.to_string())
            .ok_or_else(|| format!("{method} {path}: status {status} is not described"))?;
        let answer = match answer["$ref"].as_str() {
            Some(reference) => self.resolved(reference)?,
            None => answer,
        };
        let content = answer["content"].as_object().and_then(|content| content.values().next());
        match content {
            Some(content) => self.closed.check(&content["schema"], body),
            None if body.is_null() => Ok(()),
            None => Err(format!("{method} {path}: {status} is described without a body")),
        }
        .map_err(|error| format!("{method} {path}, {status}: {error}"))
    }

    /// Checks the body of a webhook of its `type`.
    pub fn check_webhook(&self, body: &Value) -> Result<(), String> {
        let kind = body["type"].as_str().ok_or("the body has no `type`")?;
        let webhook = self.document["webhooks"].get(kind).ok_or_else(|| format!("no webhook `{kind}`"))?;
        let schema = webhook
            .pointer("/post/requestBody/content/application~1json/schema")
            .ok_or_else(|| format!("webhook `{kind}` has no body"))?;
        self.closed.check(schema, body)
    }

    fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
        let paths = self.document["paths"].as_object()?;
        let entry = paths.iter().find(|(template, _)| is_at(template.trim_end_matches('/'), path));
        entry.and_then(|(_, operations)| operations.get(method.to_ascii_lowercase()))
    }

    fn resolved(&self, reference: &str) -> Result<&Value, String> {
        let target = reference.strip_prefix('#').and_then(|pointer| self.document.pointer(pointer));
        target.ok_or_else(|| format!("{reference} leads nowhere"))
    }
}

/// True if the path is one of the template.
fn is_at(template: &str, path: &str) -> bool {
    let (mut template_parts, mut path_parts) = (template.split('/'), path.split('/'));
    loop {
        match (template_parts.next(), path_parts.next()) {
            (None, None) => return true,
            (Some(template), Some(part)) if template == part || template.starts_with('{') => {}
            _ => return false,
        }
    }
}

/// Compiled schemas, each once.
struct Validators {
    components: Value,
    compiled: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Validators {
    fn new(components: Value) -> Self {
        Self { components, compiled: Mutex::default() }
    }

    fn check(&self, schema: &Value, instance: &Value) -> Result<(), String> {
        let validator = self.validator(schema)?;
        let errors: Vec<String> = validator
            .iter_errors(instance)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }

    fn validator(&self, schema: &Value) -> Result<Arc<Validator>, String> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let name = schema.to_string();
        if let Some(validator) = compiled.get(&name) {
            return Ok(Arc::clone(validator));
        }
        let full_schema = json!({ "allOf": [schema], "components": self.components });
        let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
        let validator = Arc::new(options.build(&full_schema).map_err(|error| format!("{name}: {error}"))?);
        compiled.insert(name, Arc::clone(&validator));
        Ok(validator)
    }
}

/// Returns the schemas with objects closed to undescribed members.
fn closed(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(closed).collect(),
        Value::Object(members) => {
            let mut members: Map<_, _> =
                members.iter().map(|(name, value)| (name.clone(), closed(value))).collect();
            let is_object = members.get("type").is_some_and(|kind| kind == "object");
            if is_object
                && members.contains_key("properties")
                && !members.contains_key("additionalProperties")
            {
                members.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            Value::Object(members)
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn undescribed_member_of_an_answer_is_rejected() {
        let created = json!({"reportId": "00000000-0000-0000-0000-000000000001"});
        contract().check_answer("POST", "/api/v1/report/", 201, &created).unwrap();
        let more = json!({"reportId": "00000000-0000-0000-0000-000000000001", "more": 1});
        assert!(contract().check_answer("POST", "/api/v1/report", 201, &more).unwrap_err().contains("more"));
        assert!(contract().check_answer("POST", "/api/v1/report", 418, &created).is_err());
        assert!(contract().check_webhook(&json!({"type": "action.manual"})).is_err());
    }

    #[test]
    fn path_is_found_by_its_template() {
        let nothing = Value::Null;
        assert!(contract().check_answer("GET", "/api/v1/items/post/a?wait=1s", 200, &nothing).is_err());
        assert!(contract().check_answer("GET", "/api/v1/items/post", 200, &nothing).is_ok());
        assert!(contract().check_request("POST", "/api/v1/nothing", &nothing).is_err());
    }
}
