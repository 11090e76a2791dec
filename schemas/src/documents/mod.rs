//! Documents that configure an organisation: fields, parser, writer and cross-references. Storage and compilation are
//! in `tidegate-catalog`, the syntax of conditions is in `tidegate-rules`.

#[macro_use]
mod document_enum;

mod action;
mod attached;
mod bank;
pub mod document_error;
mod endpoint;
mod item_type;
mod period;
mod policy;
mod queue;
mod read;
mod recovery;
mod render;
mod routing;
mod rule;
mod rule_life;
mod set;
mod signal;
mod threshold;
mod tree;
mod window;

use serde::Serialize;

pub use action::{Action, ActionKind, ActionStrikes, Parameter, ParameterType};
pub use attached::named_files;
pub use bank::{Bank, Quarantine};
pub use document_error::{DocumentFault, MissingReference, Origin};
pub use endpoint::{Endpoint, Event};
pub use item_type::{FieldDocument, ItemType};
pub use period::Period;
pub use policy::{Policy, Severity};
pub use queue::{
    Access, DecisionRequirements, MAX_PRIORITY, Queue, QueueClass, QueueOrder, Reach, built_in_class,
};
pub use read::{ParsedDocuments, parse, parse_all};
pub use render::{Format, render};
pub use routing::{Routing, RoutingEntry, RoutingList};
pub use rule::{Expectation, Rule, RuleAction, Status, SubmissionOrigin, Test};
pub use rule_life::{OnError, Percent, Rollout, RolloutBy, RuleLimits};
pub use set::DocumentSet;
pub use signal::{INPUT, Signal, SignalBatch, SignalInput, SignalOutput};
pub use threshold::Threshold;
pub use window::Window;

/// Document of any kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Document {
    ItemType(ItemType),
    Policy(Policy),
    Action(Action),
    Rule(Rule),
    Endpoint(Endpoint),
    Threshold(Threshold),
    Queue(Queue),
    Routing(Routing),
    Window(Window),
    Bank(Bank),
    Signal(Signal),
}

/// Kind of a document. Its name is the first key of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DocumentKind {
    ItemType,
    Policy,
    Action,
    Rule,
    Endpoint,
    Threshold,
    Queue,
    Routing,
    Window,
    Bank,
    Signal,
}

impl DocumentKind {
    pub const ALL: [Self; 11] = [
        Self::ItemType,
        Self::Policy,
        Self::Action,
        Self::Rule,
        Self::Endpoint,
        Self::Threshold,
        Self::Queue,
        Self::Routing,
        Self::Window,
        Self::Bank,
        Self::Signal,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ItemType => "item_type",
            Self::Policy => "policy",
            Self::Action => "action",
            Self::Rule => "rule",
            Self::Endpoint => "endpoint",
            Self::Threshold => "threshold",
            Self::Queue => "queue",
            Self::Routing => "routing",
            Self::Window => "window",
            Self::Bank => "bank",
            Self::Signal => "signal",
        }
    }

    /// Returns the published JSON Schema of the kind.
    pub fn schema(self) -> &'static str {
        match self {
            Self::ItemType => include_str!("../../documents/item_type.schema.json"),
            Self::Policy => include_str!("../../documents/policy.schema.json"),
            Self::Action => include_str!("../../documents/action.schema.json"),
            Self::Rule => include_str!("../../documents/rule.schema.json"),
            Self::Endpoint => include_str!("../../documents/endpoint.schema.json"),
            Self::Threshold => include_str!("../../documents/threshold.schema.json"),
            Self::Queue => include_str!("../../documents/queue.schema.json"),
            Self::Routing => include_str!("../../documents/routing.schema.json"),
            Self::Window => include_str!("../../documents/window.schema.json"),
            Self::Bank => include_str!("../../documents/bank.schema.json"),
            Self::Signal => include_str!("../../documents/signal.schema.json"),
        }
    }
}

impl Document {
    pub fn kind(&self) -> DocumentKind {
        match self {
            Self::ItemType(_) => DocumentKind::ItemType,
            Self::Policy(_) => DocumentKind::Policy,
            Self::Action(_) => DocumentKind::Action,
            Self::Rule(_) => DocumentKind::Rule,
            Self::Endpoint(_) => DocumentKind::Endpoint,
            Self::Threshold(_) => DocumentKind::Threshold,
            Self::Queue(_) => DocumentKind::Queue,
            Self::Routing(_) => DocumentKind::Routing,
            Self::Window(_) => DocumentKind::Window,
            Self::Bank(_) => DocumentKind::Bank,
            Self::Signal(_) => DocumentKind::Signal,
        }
    }

    /// Returns the key, which is unique within the kind.
    pub fn key(&self) -> &str {
        match self {
            Self::ItemType(document) => document.key.as_str(),
            Self::Policy(document) => &document.key,
            Self::Action(document) => document.key.as_str(),
            Self::Rule(document) => document.key.as_str(),
            Self::Endpoint(document) => document.key.as_str(),
            Self::Threshold(document) => &document.key,
            Self::Queue(document) => document.key.as_str(),
            Self::Routing(document) => &document.key,
            Self::Window(document) => document.key.as_str(),
            Self::Bank(document) => document.key.as_str(),
            Self::Signal(document) => document.key.as_str(),
        }
    }

    /// Checks the document without its references. Returns path and message of each error.
    fn check(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        // Keys are parts of paths, log keys and store keys.
        if !is_key(self.key()) {
            faults.push((self.kind().name().to_owned(), KEY_FORM.to_owned()));
        }
        match self {
            Self::ItemType(document) => document.check(&mut faults),
            Self::Action(document) => document.check(&mut faults),
            Self::Threshold(document) => document.check(&mut faults),
            Self::Rule(document) => document.limits.check(&mut faults),
            Self::Window(document) => document.check(&mut faults),
            Self::Bank(document) => document.check(&mut faults),
            Self::Signal(document) => document.check(&mut faults),
            Self::Queue(document) => document.check(&mut faults),
            Self::Routing(document) => document.check(&mut faults),
            Self::Policy(_) | Self::Endpoint(_) => {}
        }
        faults
    }
}

// Uses the parser for files, so that stored documents are validated in the same way.
impl<'de> serde::Deserialize<'de> for Document {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        let parsed = parse(&[("document.json", text.get())]).map_err(|faults| {
            let all: Vec<String> = faults.iter().map(ToString::to_string).collect();
            serde::de::Error::custom(all.join("; "))
        })?;
        match <[_; 1]>::try_from(parsed) {
            Ok([(_, document)]) => Ok(document),
            Err(_) => Err(serde::de::Error::custom("exactly one document was expected")),
        }
    }
}

const KEY_FORM: &str =
    "A key begins with a letter or digit and has at most 64 letters, digits, `_`, `.` and `-`.";

/// True if a text can be the key of a document.
pub fn is_key(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(value: &bool) -> bool {
    !*value
}
