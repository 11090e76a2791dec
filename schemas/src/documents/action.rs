//! Document of an action. Actions are carried out in `tidegate-moderation`.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

use super::{is_false, queue::QueueClass};
use crate::{
    ids::{ActionId, EndpointId, QueueId},
    nearest::hint,
};

/// Action document, such as `action: limit_reach`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    #[serde(rename = "action")]
    pub key: ActionId,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub kind: ActionKind,
    /// Endpoint of the callback; by default all endpoints that accept the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointId>,
    /// Queue of the job; by default `default`, or `child-safety` for a job of child safety.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueId>,
    /// Strikes for the item's creator.
    #[serde(default, skip_serializing_if = "ActionStrikes::is_none")]
    pub strikes: ActionStrikes,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
}

/// Strikes of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionStrikes {
    Points(u32),
    /// Strikes of the violated policy with the most strikes.
    FromPolicies,
}

/// Word in the document for strikes of the violated policies.
const FROM_POLICIES: &str = "policies";

impl ActionStrikes {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for ActionStrikes {
    fn default() -> Self {
        Self::Points(0)
    }
}

impl Serialize for ActionStrikes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Points(points) => serializer.serialize_u32(*points),
            Self::FromPolicies => serializer.serialize_str(FROM_POLICIES),
        }
    }
}

impl<'de> Deserialize<'de> for ActionStrikes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Number(number) => {
                number.as_u64().and_then(|number| number.try_into().ok()).map(Self::Points)
            }
            Value::String(word) if word == FROM_POLICIES => Some(Self::FromPolicies),
            _ => None,
        }
        .ok_or_else(|| D::Error::custom("expected a whole number from 0 to 4294967295, or `policies`"))
    }
}

/// Effect of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// Calls the platform back.
    Callback,
    /// Opens a job for moderators.
    EnqueueReview,
    /// Opens a job for the child-safety team.
    EnqueueChildSafety,
}

impl ActionKind {
    /// Returns the class of the job that the action opens. `None` for a callback.
    pub fn queue_class(self) -> Option<QueueClass> {
        match self {
            Self::Callback => None,
            Self::EnqueueReview => Some(QueueClass::Review),
            Self::EnqueueChildSafety => Some(QueueClass::ChildSafety),
        }
    }
}

/// Parameter of an action. Its value is set by a rule, a threshold or a moderator that takes the action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: ParameterType,
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    /// Choices of SELECT and MULTISELECT.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ParameterType {
    String,
    Number,
    Boolean,
    Select,
    Multiselect,
}

impl Parameter {
    fn accepts(&self, value: &Value) -> Result<(), String> {
        let is_option =
            |text: Option<&str>| text.is_some_and(|text| self.options.iter().any(|one| one == text));
        let is_valid = match self.kind {
            ParameterType::String => value.is_string(),
            ParameterType::Number => value.is_number(),
            ParameterType::Boolean => value.is_boolean(),
            ParameterType::Select => is_option(value.as_str()),
            ParameterType::Multiselect => {
                value.as_array().is_some_and(|values| values.iter().all(|value| is_option(value.as_str())))
            }
        };
        let expected_value = match self.kind {
            ParameterType::String => "a string",
            ParameterType::Number => "a number",
            ParameterType::Boolean => "true or false",
            ParameterType::Select => "one of its options",
            ParameterType::Multiselect => "a list of its options",
        };
        if is_valid { Ok(()) } else { Err(format!("The parameter `{}` takes {expected_value}.", self.name)) }
    }
}

impl Action {
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.key.as_str())
    }

    /// Checks arguments against the parameters of the action. Returns one message per error.
    pub fn check_parameters(&self, arguments: &BTreeMap<String, Value>) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, value) in arguments {
            match self.parameters.iter().find(|parameter| parameter.name == *name) {
                Some(parameter) => faults.extend(parameter.accepts(value).err()),
                None => {
                    let suggestion =
                        hint(name, self.parameters.iter().map(|parameter| parameter.name.as_str()));
                    faults.push(format!("The action `{}` has no parameter `{name}`.{suggestion}", self.key));
                }
            }
        }
        for parameter in &self.parameters {
            // A default satisfies a required parameter.
            if parameter.required && parameter.default.is_none() && !arguments.contains_key(&parameter.name) {
                faults.push(format!("The action `{}` needs the parameter `{}`.", self.key, parameter.name));
            }
        }
        faults
    }

    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        // A setting without effect is refused, because its author expects one.
        if self.kind != ActionKind::Callback && self.endpoint.is_some() {
            faults.push(("endpoint".into(), "Only an action of kind `callback` has an endpoint.".into()));
        }
        if self.kind == ActionKind::Callback && self.queue.is_some() {
            let message = "Only an action of kind `enqueue_review` or `enqueue_child_safety` has a queue.";
            faults.push(("queue".into(), message.into()));
        }
        let mut names = HashSet::new();
        for (index, parameter) in self.parameters.iter().enumerate() {
            let mut fault =
                |at: &str, message: String| faults.push((format!("parameters[{index}].{at}"), message));
            if !super::is_key(&parameter.name) {
                fault("name", super::KEY_FORM.to_owned());
            }
            // Arguments are stored by name.
            if !names.insert(&parameter.name) {
                fault("name", format!("There is another parameter `{}`.", parameter.name));
            }
            let selects = matches!(parameter.kind, ParameterType::Select | ParameterType::Multiselect);
            // Reports both errors: a choice without options, and options of another type.
            if selects == parameter.options.is_empty() {
                fault("options", "SELECT and MULTISELECT need options, and only they have them.".into());
            }
            if let Some(Err(message)) = parameter.default.as_ref().map(|value| parameter.accepts(value)) {
                fault("default", message);
            }
        }
    }
}
