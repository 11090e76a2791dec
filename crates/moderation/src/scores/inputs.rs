//! Inputs of models: the parts of an item that a signal sends.

use serde_json::{Map, Number, Value as Json, json};
use tidegate_catalog::ScoreSignal;
use tidegate_schemas::{
    documents::SignalInput,
    ids::ItemKey,
    item_types::{self, Field, Scalar, Value, Values},
};

/// Returns the inputs of an item for a model; each has its own score. Empty if the item has none.
pub(crate) fn model_inputs(
    signal: &ScoreSignal,
    fields: &[Field],
    key: &ItemKey,
    values: &Values,
) -> Vec<Json> {
    let is_sent = |name: &str| signal.fields.is_empty() || signal.fields.iter().any(|field| field == name);
    match signal.input {
        SignalInput::Text => {
            let mut texts = Vec::new();
            // Rules treat ids and URLs as text. A model receives them only if the document names their field.
            let is_prose = |field: &&Field| field.scalar == Scalar::String || !signal.fields.is_empty();
            for field in fields.iter().filter(|field| is_sent(&field.name)).filter(is_prose) {
                values.field(&field.name).into_iter().for_each(|value| collect_texts(value, &mut texts));
            }
            let text = texts.join("\n\n");
            if text.trim().is_empty() { Vec::new() } else { vec![text.into()] }
        }
        SignalInput::ImageUrl => {
            let media = values.media().into_iter();
            let pictures = media.filter(|medium| matches!(medium.scalar, Scalar::Image | Scalar::Media));
            let sent_pictures =
                pictures.filter(|medium| is_sent(medium.path.split('.').next().unwrap_or_default()));
            let mut urls: Vec<&str> = Vec::new();
            for medium in sent_pictures {
                // Equal pictures would be paid for twice.
                if !urls.contains(&medium.url) {
                    urls.push(medium.url);
                }
            }
            urls.into_iter().map(Json::from).collect()
        }
        SignalInput::Item => {
            let data: Map<String, Json> =
                values.iter().map(|(name, value)| (name.to_owned(), to_json(value))).collect();
            vec![json!({"id": key.id, "typeId": key.type_id, "data": data})]
        }
    }
}

fn collect_texts<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::List(values) => values.iter().for_each(|value| collect_texts(value, texts)),
        Value::Map(entries) => entries.iter().for_each(|(_, value)| collect_texts(value, texts)),
        value => texts.extend(value.as_text().filter(|text| !text.is_empty())),
    }
}

fn to_json(value: &Value) -> Json {
    match value {
        Value::Text(text) | Value::Geohash(text) | Value::Url(text) | Value::Media(text) => json!(text),
        Value::Number(item_types::Number::Int(number)) => {
            match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => json!(number),
                (_, Ok(number)) => json!(number),
                // JSON readers lose precision beyond 64 bits, so such a number is sent as text.
                _ => json!(number.to_string()),
            }
        }
        Value::Number(item_types::Number::Float(number)) => {
            Number::from_f64(*number).map_or(Json::Null, Json::Number)
        }
        Value::Bool(value) => json!(value),
        Value::DateTime(at) => json!(at.iso()),
        Value::Related(item) => json!({"id": item.id, "typeId": item.type_id}),
        Value::List(values) => values.iter().map(to_json).collect(),
        Value::Map(entries) => entries.iter().map(|(key, value)| (key.clone(), to_json(value))).collect(),
    }
}
