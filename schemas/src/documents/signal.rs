//! Document of a signal: a model that scores items, with its request and the pointers into its response. Responses are
//! read in `tidegate-catalog`.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{is_false, period::Period};
use crate::ids::SignalId;

/// Placeholder for the input in a request template.
pub const INPUT: &str = "${input}";

/// Signal document, such as `signal: toxicity`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signal {
    #[serde(rename = "signal")]
    pub key: SignalId,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub url: String,
    /// Headers of every request. A value can be a reference such as `${CALLBACK_MODEL_KEY}`; a literal value is stored
    /// and returned encrypted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    pub input: SignalInput,
    /// Fields that are sent; by default all fields of the input's kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Template of the request body, with [`INPUT`] as the placeholder.
    #[serde(default = "default_request", skip_serializing_if = "is_default_request")]
    pub request: Map<String, Value>,
    pub output: SignalOutput,
    /// Present if the model accepts a list of inputs and responds with a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<SignalBatch>,
    /// Time for which a response is reused for the same input.
    #[serde(default = "default_cache", skip_serializing_if = "is_default_cache")]
    pub cache: Period,
    /// Timeout of a call.
    #[serde(default = "default_timeout", skip_serializing_if = "is_default_timeout")]
    pub timeout: Period,
    /// Relative cost of a call. If a rule depends on several models, the cheapest is called first.
    #[serde(default = "default_cost", skip_serializing_if = "is_default_cost")]
    pub cost: u32,
    /// True if child-safety items are sent to the model. Only callers with the scope `child_safety` may change such a
    /// signal.
    #[serde(default, skip_serializing_if = "is_false")]
    pub child_safety: bool,
}

/// Part of an item that is sent to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalInput {
    /// Texts of the fields, joined by empty lines.
    Text,
    /// Addresses of the pictures, each as a separate input.
    ImageUrl,
    /// Whole item: `id`, `typeId` and `data`.
    Item,
}

/// JSON pointers to the scores and the text in a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalOutput {
    /// Score of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<String>,
    /// Scores of labels, each with its own pointer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Object of scores by label, or list of objects with `label` and `score`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels_at: Option<String>,
    /// Text about the input, such as a transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Calls with several inputs. [`INPUT`] is replaced by the list of inputs, even if there is only one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalBatch {
    /// Maximum number of inputs per call.
    pub max: NonZeroU32,
    /// JSON pointer to the list of results, in the order of the inputs; the whole response by default. The pointers of
    /// [`SignalOutput`] are relative to each result.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answers: String,
}

const DEFAULT_CACHE: Period = Period::of_seconds(86_400);
const DEFAULT_TIMEOUT: Period = Period::of_seconds(10);
const DEFAULT_COST: u32 = 1;
/// Maximum cache time: rows of responses expire after it.
const MAX_CACHE: Period = Period::of_seconds(30 * 86_400);
/// Maximum timeout, which exceeds the time that an item in `items-slow` waits for a score.
const MAX_TIMEOUT: Period = Period::of_seconds(60);

fn default_request() -> Map<String, Value> {
    Map::from_iter([("input".to_owned(), json!(INPUT))])
}

fn is_default_request(request: &Map<String, Value>) -> bool {
    *request == default_request()
}

fn default_cache() -> Period {
    DEFAULT_CACHE
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_default_cache(cache: &Period) -> bool {
    *cache == DEFAULT_CACHE
}

fn default_timeout() -> Period {
    DEFAULT_TIMEOUT
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_default_timeout(timeout: &Period) -> bool {
    *timeout == DEFAULT_TIMEOUT
}

fn default_cost() -> u32 {
    DEFAULT_COST
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_default_cost(cost: &u32) -> bool {
    *cost == DEFAULT_COST
}

impl Signal {
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.key.as_str())
    }

    /// Returns the labels in responses. `None` if the document does not list all of them.
    pub fn known_labels(&self) -> Option<BTreeSet<&str>> {
        self.output.labels_at.is_none().then(|| self.output.labels.keys().map(String::as_str).collect())
    }

    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        let mut fault = |path: &str, message: &str| faults.push((path.to_owned(), message.to_owned()));
        let output = &self.output;
        if !output.has_numbers() && output.text.is_none() {
            fault(
                "output",
                "A signal needs a score or a text: add `score`, `labels`, `labels_at` or `text`.",
            );
        }
        let labels = output.labels.iter().map(|(label, pointer)| (format!("output.labels.{label}"), pointer));
        let score = output.score.iter().map(|pointer| ("output.score".to_owned(), pointer));
        let labels_at = output.labels_at.iter().map(|pointer| ("output.labels_at".to_owned(), pointer));
        let answers = self.batch.iter().map(|batch| ("batch.answers".to_owned(), &batch.answers));
        let text = output.text.iter().map(|pointer| ("output.text".to_owned(), pointer));
        for (path, pointer) in score.chain(labels).chain(labels_at).chain(text).chain(answers) {
            if !pointer.is_empty() && !pointer.starts_with('/') {
                fault(&path, "A JSON pointer is empty or begins with `/`, such as `/results/0/score`.");
            }
        }
        if !self.request.values().any(|value| any_text(value, &|text| text.contains(INPUT))) {
            fault("request", "The request has no `${input}`, so the model would not see the item.");
        }
        // A list cannot be inserted into the middle of a text.
        if self.batch.is_some() && self.request.values().any(|value| any_text(value, &is_mixed)) {
            fault(
                "request",
                "With `batch` the input is a list: `${input}` must be the whole text, not a part of it.",
            );
        }
        if self.cache > MAX_CACHE {
            fault("cache", "Answers are kept for 30 days at most.");
        }
        // A zero would fail each call at once.
        if self.timeout.seconds() == 0 || self.timeout > MAX_TIMEOUT {
            fault("timeout", "A call may take from one second to 60.");
        }
        // A setting without effect is refused, because its author may expect that other fields are not sent.
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

fn any_text(value: &Value, fits: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => fits(text),
        Value::Array(list) => list.iter().any(|value| any_text(value, fits)),
        Value::Object(map) => map.values().any(|value| any_text(value, fits)),
        _ => false,
    }
}

/// True if the text contains the placeholder and other characters.
fn is_mixed(text: &str) -> bool {
    text != INPUT && text.contains(INPUT)
}

// Header values are secrets, and an address can contain one in its query, so both are left out.
impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signal")
            .field("key", &self.key)
            .field("headers", &self.headers.keys())
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}
