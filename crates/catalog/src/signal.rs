//! A signal as the service runs it: requests to its model, and the numbers in the answers.
//!
//! It sends nothing, and keeps no answer.

use std::{collections::HashMap, fmt, time::Duration};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tidegate_rules::Scores;
use tidegate_schemas::{
    documents::{self, INPUT, SignalInput, SignalOutput},
    hex,
    ids::SignalId,
};

use crate::{Unresolved, endpoint, secrets::SecretError};

/// A model that scores items, and how it is asked.
#[derive(Clone)]
pub struct ScoreSignal {
    pub key: SignalId,
    pub url: String,
    pub input: SignalInput,
    /// Fields that are sent; all of the input's kind if there are none.
    pub fields: Vec<String>,
    /// Time for which an answer is used again; none if it is not.
    pub cache: Option<Duration>,
    pub timeout: Duration,
    pub cost: u32,
    headers: Vec<(String, String)>,
    variable_prefix: String,
    request: Map<String, Value>,
    output: SignalOutput,
}

/// An answer without the numbers that the signal's document promises. It is stored with items, so it shows nothing of
/// the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("the answer is no JSON")]
    NoJson,
    #[error("the answer has no number where the signal expects it")]
    Shape,
}

impl AnswerError {
    pub fn tag(self) -> &'static str {
        match self {
            Self::NoJson => "no_json",
            Self::Shape => "shape",
        }
    }
}

/// Labels of one answer that are read. A hostile answer of 1 MiB could name a hundred thousand.
const LABELS: usize = 1_000;

impl ScoreSignal {
    pub(crate) fn new(document: &documents::Signal, variable_prefix: &str) -> Self {
        let pair = |(name, value): (&String, &String)| (name.clone(), value.clone());
        Self {
            key: document.key.clone(),
            url: document.url.clone(),
            input: document.input,
            fields: document.fields.clone(),
            cache: Some(document.cache.duration()).filter(|cache| !cache.is_zero()),
            timeout: document.timeout.duration(),
            cost: document.cost,
            headers: document.headers.iter().map(pair).collect(),
            variable_prefix: variable_prefix.to_owned(),
            request: document.request.clone(),
            output: document.output.clone(),
        }
    }

    /// Returns the headers to send; see [`crate::Endpoint::resolve_headers`].
    pub fn resolve_headers(
        &self,
        variable: impl Fn(&str) -> Option<String>,
        open: impl Fn(&str, &str) -> Result<String, SecretError>,
    ) -> Result<Vec<(String, String)>, Unresolved> {
        endpoint::resolve_headers(&self.headers, &self.variable_prefix, variable, open)
    }

    pub(crate) fn check_references(&self) -> Vec<Unresolved> {
        endpoint::check_references(&self.headers, &self.variable_prefix)
    }

    pub(crate) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Returns the body of the request for an input.
    pub fn body(&self, input: &Value) -> Bytes {
        let filled = fill(&Value::Object(self.request.clone()), input);
        serde_json::to_vec(&filled).expect("JSON values have string keys").into()
    }

    /// Returns the digest under which the answer for a body is kept. It covers how the model is asked and read, so that
    /// a changed document asks anew. Headers are no part of it: a rotated key gives the same answers.
    pub fn digest(&self, body: &[u8]) -> String {
        let how = json!([self.url, self.output]).to_string();
        let mut digest = Sha256::new();
        digest.update(how.len().to_be_bytes());
        digest.update(how);
        digest.update(body);
        hex(&digest.finalize())
    }

    /// Reads the numbers of an answer.
    pub fn read(&self, answer: &[u8]) -> Result<Scores, AnswerError> {
        let answer: Value = serde_json::from_slice(answer).map_err(|_| AnswerError::NoJson)?;
        let at = |pointer: &String| answer.pointer(pointer).and_then(number).ok_or(AnswerError::Shape);
        let whole = self.output.score.as_ref().map(at).transpose()?;
        let mut labels = HashMap::new();
        if let Some(pointer) = &self.output.labels_at {
            labels = listed(answer.pointer(pointer).ok_or(AnswerError::Shape)?)?;
        }
        for (label, pointer) in &self.output.labels {
            labels.insert(label.clone(), at(pointer)?);
        }
        Ok(Scores { whole, labels })
    }
}

/// A finite number; models write nothing else.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

/// Reads an object of numbers by label, or a list of objects with `label` and `score`.
fn listed(value: &Value) -> Result<HashMap<String, f64>, AnswerError> {
    let labels: Option<HashMap<_, _>> = match value {
        Value::Object(map) if map.len() <= LABELS => {
            map.iter().map(|(label, value)| Some((label.clone(), number(value)?))).collect()
        }
        Value::Array(list) if list.len() <= LABELS => {
            let labelled =
                |it: &Value| Some((it.get("label")?.as_str()?.to_owned(), number(it.get("score")?)?));
            list.iter().map(labelled).collect()
        }
        _ => None,
    };
    labels.filter(|labels| !labels.is_empty()).ok_or(AnswerError::Shape)
}

/// A text that is the placeholder alone becomes the input; inside a longer text it becomes the input's text.
fn fill(template: &Value, input: &Value) -> Value {
    match template {
        Value::String(text) if text == INPUT => input.clone(),
        Value::String(text) if text.contains(INPUT) => {
            let inner = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
            text.replace(INPUT, &inner).into()
        }
        Value::Array(list) => list.iter().map(|it| fill(it, input)).collect(),
        Value::Object(map) => map.iter().map(|(key, it)| (key.clone(), fill(it, input))).collect(),
        other => other.clone(),
    }
}

// An address may carry a secret in its query.
impl fmt::Debug for ScoreSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScoreSignal")
            .field("key", &self.key)
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{Compiled, Settings, change};

    fn compile(documents: &str) -> Result<Compiled, String> {
        let files = [("all.yaml".to_owned(), documents.to_owned())];
        let told =
            |faults: Vec<_>| faults.iter().map(ToString::to_string).collect::<Vec<String>>().join("\n");
        change::lint(&files, &[], &Settings::default(), tidegate_schemas::ids::Millis(0), 9).map_err(told)?;
        change::offline(&files, &Settings::default()).map(|(compiled, _)| compiled).map_err(told)
    }

    fn signal(rest: &str) -> ScoreSignal {
        let text = format!("signal: s\nurl: https://m.example/\ninput: text\n{rest}");
        (**compile(&text).unwrap().signal("s").unwrap()).clone()
    }

    #[test]
    fn input_takes_its_place_in_the_request() {
        let body = |rest: &str, input: Value| -> Value {
            serde_json::from_slice(&signal(&format!("output: {{score: /s}}\n{rest}")).body(&input)).unwrap()
        };
        assert_eq!(body("", json!("a\"b")), json!({"input": "a\"b"}));
        let nested = "request: {a: [{b: '${input}'}, 1], c: 'x ${input} y'}";
        assert_eq!(body(nested, json!("t")), json!({"a": [{"b": "t"}, 1], "c": "x t y"}));
        assert_eq!(body(nested, json!("${input}"))["c"], json!("x ${input} y"), "filled in once");
        assert_eq!(body(nested, json!({"k": 1}))["a"][0]["b"], json!({"k": 1}));
    }

    #[test]
    fn numbers_are_read_where_the_document_says() {
        let read = |rest: &str, answer: &str| signal(rest).read(answer.as_bytes());
        let both = "output: {score: /r/0/s, labels: {toxic: /r/0/t}}";
        let scores = read(both, r#"{"r":[{"s":0.25,"t":1}]}"#).unwrap();
        assert_eq!((scores.whole, scores.labels["toxic"]), (Some(0.25), 1.0));
        let list = read("output: {labels_at: /0}", r#"[[{"label":"hate","score":0.5}]]"#).unwrap();
        assert_eq!((list.whole, list.labels["hate"]), (None, 0.5));
        for (answer, tag) in [
            ("<html>", "no_json"),
            ("", "no_json"),
            (r#"{"r":[{"s":NaN,"t":1}]}"#, "no_json"),
            (r#"{"r":[{"s":1e999,"t":1}]}"#, "shape"),
            ("null", "shape"),
            (r#"{"r":[{"s":"0.5","t":1}]}"#, "shape"),
            (r#"{"r":[{"s":0.5}]}"#, "shape"),
        ] {
            assert_eq!(read(both, answer).unwrap_err().tag(), tag, "{answer}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(read(both, &deep).unwrap_err(), AnswerError::NoJson);
        for answer in ["{\"l\":{}}", "{\"l\":[{\"label\":\"a\"}]}", "{\"l\":{\"a\":\"1\"}}", "{\"l\":7}"] {
            assert_eq!(read("output: {labels_at: /l}", answer).unwrap_err(), AnswerError::Shape, "{answer}");
        }
    }

    #[test]
    fn digest_depends_on_request_and_reading_only() {
        let (one, other) = (signal("output: {score: /s}"), signal("output: {score: /t}"));
        assert_eq!(one.digest(b"a"), signal("output: {score: /s}\ncost: 9").digest(b"a"));
        assert_ne!(one.digest(b"a"), one.digest(b"b"));
        assert_ne!(one.digest(b"a"), other.digest(b"a"));
    }

    const TYPE: &str = "item_type: post\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n---\n";

    #[test]
    fn faults_of_signals_and_scores_name_the_place() {
        let signal = |rest: &str| format!("---\nsignal: s\nurl: https://m.example/\ninput: text\n{rest}\n");
        let rule = |score: &str| format!("rule: r\nwhen: {{not: {{any: [{{score: {score}}}]}}}}\n");
        let good = signal("output: {score: /s}");
        let labelled = signal("output: {labels: {toxic: /t}}");
        for (documents, expected) in [
            (rule("{model: t, gte: 1}") + &good, "when.not.any[0].score.model: There is no signal `t`"),
            (
                rule("{model: s, gte: 1}") + &labelled,
                "when.not.any[0].score: The signal `s` has numbers for labels only",
            ),
            (
                rule("{model: s, label: toxc, gte: 1}") + &labelled,
                "score.label: The signal `s` has no label `toxc`",
            ),
            (signal("output: {}"), "output: A signal needs a number"),
            (signal("output: {score: s}"), "output.score: A JSON pointer"),
            (signal("output: {score: /s}\nrequest: {text: hello}"), "request: The request has no `${input}`"),
            (signal("output: {score: /s}\ncache: 31d"), "cache: Answers are kept for 30 days"),
            (signal("output: {score: /s}\ntimeout: 61s"), "timeout: A call may take"),
            (signal("output: {score: /s}\nfields: [txet]"), "fields[0]: No item type has a field `txet`"),
            (signal("output: {score: /s}\nheaders: {Host: a}"), "headers"),
            (signal("output: {score: /s}\nheaders: {X-Key: '${PATH}'}"), "headers"),
            ("signal: s\nurl: ftp://m.example/\ninput: text\noutput: {score: /s}\n".to_owned(), "url"),
        ] {
            let told = compile(&format!("{TYPE}{documents}")).unwrap_err();
            assert!(told.contains(expected), "{documents}: {told}");
        }
        compile(&format!("{TYPE}{}{good}", rule("{model: s, gte: 1}"))).unwrap();
    }
}
