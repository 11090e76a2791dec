//! Signal of a live configuration: builds requests to its model and reads scores from the responses. `egress`
//! sends the calls.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tidegate_rules::Scores;
use tidegate_schemas::{
    documents::{self, INPUT, SignalBatch, SignalInput, SignalOutput},
    hex,
    ids::SignalId,
};

use crate::{UnresolvedHeader, endpoint, secrets::SecretError};

/// Model that scores items, with its request and response formats.
#[derive(Clone)]
pub struct ScoreSignal {
    pub key: SignalId,
    pub url: String,
    pub input: SignalInput,
    /// Fields to send; empty means all fields of the input's kind.
    pub fields: Vec<String>,
    /// Time for which an answer is reused; `None` disables the cache.
    pub cache: Option<Duration>,
    pub timeout: Duration,
    pub cost: u32,
    /// True if child-safety items are sent to the model.
    pub child_safety: bool,
    headers: Vec<(String, String)>,
    variable_prefix: String,
    request: Map<String, Value>,
    output: SignalOutput,
    batch: Option<SignalBatch>,
}

/// Invalid answer of a model. The error is stored with items, so its text shows no part of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("the answer is no JSON")]
    NoJson,
    #[error("the answer has no number or text where the signal expects it")]
    Shape,
    #[error("the answer to a batch has not one entry for each input")]
    BatchLength,
}

impl AnswerError {
    pub fn tag(self) -> &'static str {
        match self {
            Self::NoJson => "no_json",
            Self::Shape => "shape",
            Self::BatchLength => "batch_length",
        }
    }
}

/// Greatest number of labels in one answer. A hostile answer of 1 MiB could contain a hundred thousand.
const MAX_LABELS: usize = 1_000;

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
            child_safety: document.child_safety,
            headers: document.headers.iter().map(pair).collect(),
            variable_prefix: variable_prefix.to_owned(),
            request: document.request.clone(),
            output: document.output.clone(),
            batch: document.batch.clone(),
        }
    }

    /// Returns the headers to send; see [`crate::Endpoint::resolve_headers`].
    pub fn resolve_headers(
        &self,
        variable: impl Fn(&str) -> Option<String>,
        open: impl Fn(&str, &str) -> Result<String, SecretError>,
    ) -> Result<Vec<(String, String)>, UnresolvedHeader> {
        endpoint::resolve_headers(&self.headers, &self.variable_prefix, variable, open)
    }

    pub(crate) fn check_references(&self) -> Vec<UnresolvedHeader> {
        endpoint::check_references(&self.headers, &self.variable_prefix)
    }

    pub(crate) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// True if the model accepts a list of inputs.
    pub fn takes_batches(&self) -> bool {
        self.batch.is_some()
    }

    /// Returns the greatest number of inputs in one call.
    pub fn inputs_per_call(&self) -> usize {
        self.batch.as_ref().map_or(1, |batch| usize::try_from(batch.max.get()).unwrap_or(usize::MAX))
    }

    /// Builds the request body for inputs; exactly one input unless the model accepts batches.
    pub fn body(&self, inputs: &[Value]) -> Bytes {
        let input = match (&self.batch, inputs) {
            (None, [one]) => one.clone(),
            _ => Value::Array(inputs.to_vec()),
        };
        let request = fill_template(&Value::Object(self.request.clone()), &input);
        serde_json::to_vec(&request).expect("JSON values have string keys").into()
    }

    /// Returns the digest under which the answer for one input is cached. It covers address and response
    /// format, so that a changed document invalidates the answer. Headers are not covered: a rotated key
    /// gives the same answers.
    pub fn digest(&self, body: &[u8]) -> String {
        let call_settings = match &self.batch {
            None => json!([self.url, self.output]),
            // The other inputs of a batch and its greatest size do not change the answer for an input.
            Some(batch) => json!([self.url, self.output, batch.answers]),
        };
        let call_settings = call_settings.to_string();
        let mut digest = Sha256::new();
        // The length separates the parts, so that no two pairs have the same bytes.
        digest.update(call_settings.len().to_be_bytes());
        digest.update(call_settings);
        digest.update(body);
        hex(&digest.finalize())
    }

    /// Reads the scores of each input from the answer to all of them. Fails if no input has scores.
    pub fn read(
        &self,
        answer: &[u8],
        inputs: usize,
    ) -> Result<Vec<Result<Scores, AnswerError>>, AnswerError> {
        let answer: Value = serde_json::from_slice(answer).map_err(|_| AnswerError::NoJson)?;
        let scores: Vec<_> = match &self.batch {
            None => vec![self.parse_scores(&answer)],
            Some(batch) => {
                let list = answer.pointer(&batch.answers).and_then(Value::as_array);
                let list = list.ok_or(AnswerError::Shape)?;
                // With another number of entries, they cannot be assigned to inputs.
                if list.len() != inputs {
                    return Err(AnswerError::BatchLength);
                }
                list.iter().map(|answer| self.parse_scores(answer)).collect()
            }
        };
        if scores.iter().all(Result::is_err) { Err(AnswerError::Shape) } else { Ok(scores) }
    }

    fn parse_scores(&self, answer: &Value) -> Result<Scores, AnswerError> {
        let number_at =
            |pointer: &String| answer.pointer(pointer).and_then(finite_number).ok_or(AnswerError::Shape);
        let overall_score = self.output.score.as_ref().map(number_at).transpose()?;
        let mut labels = HashMap::new();
        if let Some(pointer) = &self.output.labels_at {
            labels = parse_labels(answer.pointer(pointer).ok_or(AnswerError::Shape)?)?;
        }
        for (label, pointer) in &self.output.labels {
            labels.insert(label.clone(), number_at(pointer)?);
        }
        let text = |pointer: &String| answer.pointer(pointer).and_then(Value::as_str).map(Arc::from);
        let texts = self.output.text.iter().map(|pointer| text(pointer).ok_or(AnswerError::Shape));
        Ok(Scores { overall: overall_score, labels, texts: texts.collect::<Result<_, _>>()? })
    }
}

/// Reads a number; `None` if it is not finite.
fn finite_number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

/// Reads an object of numbers by label, or a list of objects with `label` and `score`.
fn parse_labels(value: &Value) -> Result<HashMap<String, f64>, AnswerError> {
    let labels: Option<HashMap<_, _>> = match value {
        Value::Object(map) if map.len() <= MAX_LABELS => {
            map.iter().map(|(label, value)| Some((label.clone(), finite_number(value)?))).collect()
        }
        Value::Array(list) if list.len() <= MAX_LABELS => {
            let parse_label =
                |it: &Value| Some((it.get("label")?.as_str()?.to_owned(), finite_number(it.get("score")?)?));
            list.iter().map(parse_label).collect()
        }
        _ => None,
    };
    labels.filter(|labels| !labels.is_empty()).ok_or(AnswerError::Shape)
}

/// Fills the input into a template. A text equal to the placeholder becomes the input itself; a placeholder
/// within a text is replaced by the input's text.
fn fill_template(template: &Value, input: &Value) -> Value {
    match template {
        Value::String(text) if text == INPUT => input.clone(),
        Value::String(text) if text.contains(INPUT) => {
            let inner = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
            text.replace(INPUT, &inner).into()
        }
        Value::Array(list) => list.iter().map(|it| fill_template(it, input)).collect(),
        Value::Object(map) => map.iter().map(|(key, it)| (key.clone(), fill_template(it, input))).collect(),
        other => other.clone(),
    }
}

// The query of an address may contain a secret.
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
        change::lint_files(&files, &[], &Settings::default(), tidegate_schemas::ids::Millis(0), 9)
            .map_err(told)?;
        change::compile_offline(&files, &Settings::default()).map(|(compiled, _)| compiled).map_err(told)
    }

    fn signal(rest: &str) -> ScoreSignal {
        let text = format!("signal: s\nurl: https://m.example/\ninput: text\n{rest}");
        (**compile(&text).unwrap().signal("s").unwrap()).clone()
    }

    fn one(mut all: Vec<Result<Scores, AnswerError>>) -> Scores {
        all.remove(0).unwrap()
    }

    #[test]
    fn input_replaces_its_placeholder() {
        let body = |rest: &str, input: Value| -> Value {
            serde_json::from_slice(&signal(&format!("output: {{score: /s}}\n{rest}")).body(&[input])).unwrap()
        };
        assert_eq!(body("", json!("a\"b")), json!({"input": "a\"b"}));
        let nested = "request: {a: [{b: '${input}'}, 1], c: 'x ${input} y'}";
        assert_eq!(body(nested, json!("t")), json!({"a": [{"b": "t"}, 1], "c": "x t y"}));
        assert_eq!(body(nested, json!("${input}"))["c"], json!("x ${input} y"), "filled in once");
        assert_eq!(body(nested, json!({"k": 1}))["a"][0]["b"], json!({"k": 1}));
    }

    #[test]
    fn scores_are_read_from_the_configured_pointers() {
        let read = |rest: &str, answer: &str| signal(rest).read(answer.as_bytes(), 1).map(one);
        let both = "output: {score: /r/0/s, labels: {toxic: /r/0/t}}";
        let scores = read(both, r#"{"r":[{"s":0.25,"t":1}]}"#).unwrap();
        assert_eq!((scores.overall, scores.labels["toxic"]), (Some(0.25), 1.0));
        let list = read("output: {labels_at: /0}", r#"[[{"label":"hate","score":0.5}]]"#).unwrap();
        assert_eq!((list.overall, list.labels["hate"]), (None, 0.5));
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
        let spoken = |answer: &str| read("output: {text: /t}", answer).map(|it| it.texts);
        assert_eq!(spoken(r#"{"t":"so be it"}"#), Ok(vec!["so be it".into()]));
        assert_eq!(spoken(r#"{"t":""}"#), Ok(vec!["".into()]), "nothing was said");
        for answer in [r#"{"t":null}"#, r#"{"t":["a"]}"#, r#"{"t":7}"#, "{}"] {
            assert_eq!(spoken(answer), Err(AnswerError::Shape), "{answer}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(read(both, &deep).unwrap_err(), AnswerError::NoJson);
        for answer in ["{\"l\":{}}", "{\"l\":[{\"label\":\"a\"}]}", "{\"l\":{\"a\":\"1\"}}", "{\"l\":7}"] {
            assert_eq!(read("output: {labels_at: /l}", answer).unwrap_err(), AnswerError::Shape, "{answer}");
        }
    }

    #[test]
    fn batches_are_lists_in_the_order_of_the_inputs() {
        let of = |rest: &str| signal(&format!("output: {{score: /s}}\n{rest}"));
        let plain = of("");
        let batched = of("batch: {max: 2, answers: /r}");
        let body = |inputs: &[Value]| {
            serde_json::from_slice::<Value>(&batched.body(inputs)).unwrap()["input"].clone()
        };
        assert_eq!(body(&[json!("a"), json!("b")]), json!(["a", "b"]));
        assert_eq!(body(&[json!("a")]), json!(["a"]), "a list of one");
        let read = |answer: &str, inputs: usize| batched.read(answer.as_bytes(), inputs);
        let read_all = read(r#"{"r":[{"s":1},{"t":1},{"s":0.5}]}"#, 3).unwrap();
        let whole =
            |scores: &Result<Scores, AnswerError>| scores.as_ref().map(|it| it.overall).map_err(|e| *e);
        let expected = [Ok(Some(1.0)), Err(AnswerError::Shape), Ok(Some(0.5))];
        assert_eq!(read_all.iter().map(whole).collect::<Vec<_>>(), expected);
        for (answer, error) in [
            (r#"{"r":[{"s":1}]}"#, AnswerError::BatchLength),
            (r#"{"r":[{"s":1},{"s":1},{"s":1}]}"#, AnswerError::BatchLength),
            (r#"{"r":[]}"#, AnswerError::BatchLength),
            (r#"{"r":{"s":1}}"#, AnswerError::Shape),
            (r#"[{"s":1},{"s":1}]"#, AnswerError::Shape),
            (r#"{"r":[{"s":"1"},{"t":1}]}"#, AnswerError::Shape),
        ] {
            assert_eq!(read(answer, 2).unwrap_err(), error, "{answer}");
        }
        let whole = of("batch: {max: 9}");
        assert!(whole.read(br#"[{"s":1}]"#, 1).unwrap()[0].is_ok());
        assert_ne!(batched.digest(b"a"), whole.digest(b"a"), "what is read is another place");
        assert_ne!(plain.digest(b"a"), whole.digest(b"a"));
        assert_eq!(whole.digest(b"a"), of("batch: {max: 3}").digest(b"a"));
    }

    #[test]
    fn digest_covers_request_and_response_format_only() {
        let (one, other) = (signal("output: {score: /s}"), signal("output: {score: /t}"));
        assert_eq!(one.digest(b"a"), signal("output: {score: /s}\ncost: 9").digest(b"a"));
        assert_ne!(one.digest(b"a"), one.digest(b"b"));
        assert_ne!(one.digest(b"a"), other.digest(b"a"));
        let (spoken, elsewhere) =
            (signal("output: {score: /s, text: /t}"), signal("output: {score: /s, text: /u}"));
        assert_ne!(one.digest(b"a"), spoken.digest(b"a"));
        assert_ne!(spoken.digest(b"a"), elsewhere.digest(b"a"));
    }

    const TYPE: &str = "item_type: post\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n---\n";

    #[test]
    fn faults_of_signals_and_scores_name_the_field() {
        let signal = |rest: &str| format!("---\nsignal: s\nurl: https://m.example/\ninput: text\n{rest}\n");
        let rule = |score: &str| format!("rule: r\nwhen: {{not: {{any: [{{score: {score}}}]}}}}\n");
        let searched = |text: &str| format!("rule: r\nwhen: {{not: {{model_text: {text}}}}}\n");
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
            (signal("output: {}"), "output: A signal needs a score or a text"),
            (signal("output: {text: t}"), "output.text: A JSON pointer"),
            (
                rule("{model: s, gte: 1}") + &signal("output: {text: /t}"),
                "score: The signal `s` has a text and no numbers: use `model_text`",
            ),
            (
                searched("{model: s, words: [x]}") + &good,
                "when.not.model_text: The signal `s` has no text: add `output.text`",
            ),
            (searched("{model: t, words: [x]}") + &good, "when.not.model_text.model: There is no signal `t`"),
            (signal("output: {score: s}"), "output.score: A JSON pointer"),
            (signal("output: {score: /s}\nrequest: {text: hello}"), "request: The request has no `${input}`"),
            (
                signal("output: {score: /s}\nbatch: {max: 2}\nrequest: {text: 'say ${input}'}"),
                "request: With `batch` the input is a list",
            ),
            (signal("output: {score: /s}\nbatch: {max: 2, answers: r}"), "batch.answers: A JSON pointer"),
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
        let spoken = signal("output: {text: /t}");
        compile(&format!("{TYPE}{}{spoken}", searched("{model: s, words: [x]}"))).unwrap();
    }
}
