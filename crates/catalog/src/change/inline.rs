//! Runs the examples of rules, which must match as their author states.

use serde_json::Value as Json;
use tidegate_rules::{Fields, Number, TestItem, TestReport, TestResult, Value, run_tests};
use tidegate_schemas::{
    documents::DocumentFault,
    hint,
    ids::{ItemKey, Millis, TypeId},
    item_types::{self, Mode, Values},
    nearest::truncate_name,
    validation_error::Pointer,
};

use crate::{Compiled, content::Content};

/// Runs the examples of all rules.
pub fn run_examples(compiled: &Compiled, now: Millis) -> Vec<TestReport> {
    run_tests(compiled.plan(), now, |type_id, data| parse_example(compiled, type_id, data))
}

/// Returns a fault for each example with another result than expected.
pub(super) fn find_failed_examples(
    compiled: &Compiled,
    content: &Content,
    now: Millis,
) -> Vec<DocumentFault> {
    let failed_examples = run_examples(compiled, now).into_iter().filter_map(|report| {
        let message = match report.result {
            TestResult::Right => return None,
            TestResult::Missed => "The rule does not match this example, and should.".to_owned(),
            TestResult::Matched => "The rule matches this example, and should not.".to_owned(),
            TestResult::Errored(reason) => {
                format!("The rule cannot be evaluated for this example: {reason}.")
            }
            TestResult::Unreadable(reason) => format!("This example cannot be read: {reason}"),
        };
        let (origin, _) = content.set.rules.get(&report.rule)?;
        Some(DocumentFault::new(origin, format!("tests[{}]", report.test), message))
    });
    failed_examples.collect()
}

fn parse_example(compiled: &Compiled, type_id: &TypeId, data: &Json) -> Result<TestItem, String> {
    let item_type =
        compiled.item_type(type_id).ok_or_else(|| format!("there is no item type `{type_id}`."))?;
    // The rule engine ignores unknown fields, so an example with a misspelt field would pass without testing
    // its rule.
    let names = data.as_object().into_iter().flat_map(|data| data.keys());
    let unknown_field = |name: &String| {
        let suggestion = hint(name, item_type.fields().iter().map(|field| &*field.name));
        format!("unknown field `{}` in item type `{type_id}`.{suggestion}", truncate_name(name))
    };
    let unknown_fields: Vec<_> =
        names.filter(|name| item_type.field(name).is_none()).take(3).map(unknown_field).collect();
    if !unknown_fields.is_empty() {
        return Err(unknown_fields.join(" "));
    }
    let data = data.to_string();
    let values = item_type
        .check(data.as_bytes(), Mode::Partial, &Pointer::Root)
        .map_err(|faults| faults.iter().take(3).map(ToString::to_string).collect::<Vec<_>>().join(" "))?;
    let user = item_type.creator(&ItemKey::new(type_id.clone(), "example"), data.as_bytes());
    Ok(TestItem { values: Box::new(CheckedFields(values)), user })
}

/// Adapter that gives rules access to checked values.
struct CheckedFields(Values);

impl Fields for CheckedFields {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        self.0.field(name).map(convert_value)
    }
}

fn convert_value(value: &item_types::Value) -> Value<'_> {
    use item_types::Value as Typed;
    match value {
        Typed::Text(text) | Typed::Geohash(text) | Typed::Url(text) | Typed::Media(text) => Value::Text(text),
        Typed::Number(item_types::Number::Int(whole)) => Value::Number(Number::Whole(*whole)),
        Typed::Number(item_types::Number::Float(fraction)) => Value::Number(Number::from(*fraction)),
        Typed::Bool(value) => Value::Boolean(*value),
        Typed::DateTime(time) => Value::Datetime(*time),
        Typed::Related(item) => Value::Related { type_id: item.type_id.as_str(), id: item.id.as_str() },
        Typed::List(values) => Value::List(values.iter().map(convert_value).collect()),
        Typed::Map(entries) => {
            Value::Map(entries.iter().map(|(key, value)| (&**key, convert_value(value))).collect())
        }
    }
}
