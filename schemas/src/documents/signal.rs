//! The document of a signal: a model that scores items, how it is asked, and where its answer has numbers and text.
//!
//! It does not judge the address, and it does not read answers; the catalog does.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{is_false, period::Period};
use crate::ids::SignalId;

/// Text of a request's template that the input takes the place of.
pub const INPUT: &str = "${input}";

/// `signal: toxicity`
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signal {
    #[serde(rename = "signal")]
    pub key: SignalId,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub url: String,
    /// Sent with every request. A value may be a reference such as `${CALLBACK_MODEL_KEY}`; one that is written out is
    /// kept and given back sealed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    pub input: SignalInput,
    /// Fields that are sent; all of the input's kind by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Body of a request, with [`INPUT`] in the place of the input.
    #[serde(default = "usual_request", skip_serializing_if = "is_usual_request")]
    pub request: Map<String, Value>,
    pub output: SignalOutput,
    /// Present if the model takes a list of inputs and answers with a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<SignalBatch>,
    /// Time for which an answer is used again for the same input.
    #[serde(default = "usual_cache", skip_serializing_if = "is_usual_cache")]
    pub cache: Period,
    /// Time for a whole call.
    #[serde(default = "usual_timeout", skip_serializing_if = "is_usual_timeout")]
    pub timeout: Period,
    /// Relative cost of a call: of several models that a rule still depends on, the cheapest is asked first.
    #[serde(default = "usual_cost", skip_serializing_if = "is_usual_cost")]
    pub cost: u32,
    /// True if items of child safety are sent to the model. Only callers with the scope `child_safety` may change such a
    /// signal.
    #[serde(default, skip_serializing_if = "is_false")]
    pub child_safety: bool,
}

/// Part of an item that a model is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalInput {
    /// The texts of its fields, joined by empty lines.
    Text,
    /// The address of each of its pictures, each an input of its own.
    ImageUrl,
    /// The whole item: `id`, `typeId` and `data`.
    Item,
}

/// JSON pointers to the numbers and the text in an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalOutput {
    /// The number for the whole input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<String>,
    /// The numbers of labels, each at its own place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// An object of numbers by label, or a list of objects with `label` and `score`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels_at: Option<String>,
    /// A text about the whole input, such as a transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Call with several inputs: [`INPUT`] becomes the list of them, also if there is only one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalBatch {
    /// Most inputs of one call.
    pub max: NonZeroU32,
    /// JSON pointer to the list of answers, in the order of the inputs; the whole answer by default. The pointers of
    /// [`SignalOutput`] begin at each of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answers: String,
}

const USUAL_CACHE: Period = Period::of_seconds(86_400);
const USUAL_TIMEOUT: Period = Period::of_seconds(10);
const USUAL_COST: u32 = 1;
/// Rows of answers expire after this time.
const LONGEST_CACHE: Period = Period::of_seconds(30 * 86_400);
/// Longer than an item waits for it on its slow way.
const LONGEST_TIMEOUT: Period = Period::of_seconds(60);

fn usual_request() -> Map<String, Value> {
    Map::from_iter([("input".to_owned(), json!(INPUT))])
}

fn is_usual_request(request: &Map<String, Value>) -> bool {
    *request == usual_request()
}

fn usual_cache() -> Period {
    USUAL_CACHE
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_usual_cache(cache: &Period) -> bool {
    *cache == USUAL_CACHE
}

fn usual_timeout() -> Period {
    USUAL_TIMEOUT
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_usual_timeout(timeout: &Period) -> bool {
    *timeout == USUAL_TIMEOUT
}

fn usual_cost() -> u32 {
    USUAL_COST
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_usual_cost(cost: &u32) -> bool {
    *cost == USUAL_COST
}

impl Signal {
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.key.as_str())
    }

    /// Labels that answers have, if the document names them all.
    pub fn known_labels(&self) -> Option<BTreeSet<&str>> {
        self.output.labels_at.is_none().then(|| self.output.labels.keys().map(String::as_str).collect())
    }

    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        let mut fault = |path: &str, message: &str| faults.push((path.to_owned(), message.to_owned()));
        let output = &self.output;
        if !output.has_numbers() && output.text.is_none() {
            fault(
                "output",
                "A signal needs a number or a text: add `score`, `labels`, `labels_at` or `text`.",
            );
        }
        let named = output.labels.iter().map(|(label, pointer)| (format!("output.labels.{label}"), pointer));
        let score = output.score.iter().map(|pointer| ("output.score".to_owned(), pointer));
        let labels_at = output.labels_at.iter().map(|pointer| ("output.labels_at".to_owned(), pointer));
        let answers = self.batch.iter().map(|batch| ("batch.answers".to_owned(), &batch.answers));
        let text = output.text.iter().map(|pointer| ("output.text".to_owned(), pointer));
        for (path, pointer) in score.chain(named).chain(labels_at).chain(text).chain(answers) {
            if !pointer.is_empty() && !pointer.starts_with('/') {
                fault(&path, "A JSON pointer is empty or begins with `/`, such as `/results/0/score`.");
            }
        }
        if !self.request.values().any(|value| has(value, &|text| text.contains(INPUT))) {
            fault("request", "The request has no `${input}`, so the model would not see the item.");
        }
        if self.batch.is_some() && self.request.values().any(|value| has(value, &is_mixed)) {
            fault(
                "request",
                "With `batch` the input is a list: let `${input}` be the whole text, not a part of one.",
            );
        }
        if self.cache > LONGEST_CACHE {
            fault("cache", "Answers are kept for 30 days at most.");
        }
        if self.timeout.seconds() == 0 || self.timeout > LONGEST_TIMEOUT {
            fault("timeout", "A call may take from one second to 60.");
        }
        if self.input == SignalInput::Item && !self.fields.is_empty() {
            fault("fields", "The whole item is sent: remove the fields, or choose the input `text`.");
        }
    }
}

impl SignalOutput {
    pub fn has_numbers(&self) -> bool {
        self.score.is_some() || !self.labels.is_empty() || self.labels_at.is_some()
    }
}

fn has(value: &Value, fits: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => fits(text),
        Value::Array(list) => list.iter().any(|value| has(value, fits)),
        Value::Object(map) => map.values().any(|value| has(value, fits)),
        _ => false,
    }
}

/// True if the text has the input and something beside it.
fn is_mixed(text: &str) -> bool {
    text != INPUT && text.contains(INPUT)
}

// Header values are secrets, and an address may carry one in its query.
impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signal")
            .field("key", &self.key)
            .field("headers", &self.headers.keys())
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}
