//! Document of a review queue. A document with the key of a built-in queue changes the settings of that queue.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{is_false, period::Period};
use crate::ids::{ActionId, QueueId};

/// Highest priority of a job. There are few priorities, because each has its own index.
pub const MAX_PRIORITY: i64 = 9;

/// Maximum age for closing jobs automatically. Jobs are found by index entries of their queue, which expire after 400
/// days.
const MAX_AUTO_CLOSE_AGE: Period = Period::of_seconds(365 * 86_400);

/// Queue document, such as `queue: spam`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    #[serde(rename = "queue")]
    pub key: QueueId,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Purpose of the queue, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Class of the queue's jobs; `review` by default, and fixed for built-in queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<QueueClass>,
    /// Reviewers with access to its jobs; all by default.
    #[serde(default, skip_serializing_if = "Access::is_open")]
    pub access: Access,
    /// Actions that are not available for its jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden_actions: Vec<ActionId>,
    /// Required parts of a decision on its jobs.
    #[serde(default, skip_serializing_if = "DecisionRequirements::is_empty")]
    pub require: DecisionRequirements,
    /// Target for the age of a job at its decision; see [`Queue::target_age`] for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_age: Option<Period>,
    /// Age at which an unclaimed job is closed without a decision; never by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_close_after: Option<Period>,
    #[serde(default, skip_serializing_if = "QueueOrder::is_default")]
    pub order: QueueOrder,
}

document_enum! {
    /// Class of a queue's jobs. Jobs of different classes never share a queue.
    #[derive(Default)]
    pub enum QueueClass {
        #[default]
        Review = "review",
        Appeal = "appeal",
        ChildSafety = "child_safety",
    }
}

/// Reviewers with access to a queue, by name or by role. Without any name or role, all reviewers have access.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub people: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

impl Access {
    pub fn is_open(&self) -> bool {
        self.people.is_empty() && self.roles.is_empty()
    }

    /// True if a reviewer with these roles has access.
    pub fn admits(&self, reviewer: &str, roles: &[String]) -> bool {
        self.is_open()
            || self.people.iter().any(|person| person == reviewer)
            || self.roles.iter().any(|role| roles.contains(role))
    }
}

/// Required parts of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionRequirements {
    /// A reason, for all verdicts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reason: bool,
    /// At least one policy, if the decision takes actions.
    #[serde(default, skip_serializing_if = "is_false")]
    pub policy: bool,
}

impl DecisionRequirements {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Order in which jobs are claimed. The priority of a job is the sum of weighted signals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueOrder {
    /// Priority per level of the policies' severity.
    pub severity: u8,
    /// Priority per doubling of the number of different reporters.
    pub reporters: u8,
    /// Priority per day of waiting.
    #[serde(skip_serializing_if = "is_zero")]
    pub age: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// Age from which a job is claimed before all younger jobs, regardless of priority.
    pub max_wait: Period,
}

impl Default for QueueOrder {
    fn default() -> Self {
        Self { severity: 2, reporters: 1, age: 0, reach: None, max_wait: Period::of_seconds(2 * 86_400) }
    }
}

/// Contribution of a number of the item, such as its views, to the priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reach {
    /// Field with the number in the item's data.
    pub field: String,
    /// Priority per power of ten.
    pub weight: u8,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

impl QueueOrder {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Keys of the built-in queues, with the class of their jobs.
const BUILT_IN: [(&str, QueueClass); 3] = [
    ("default", QueueClass::Review),
    ("appeals", QueueClass::Appeal),
    (CHILD_SAFETY, QueueClass::ChildSafety),
];

/// Default queue of child-safety jobs.
const CHILD_SAFETY: &str = "child-safety";
const CHILD_SAFETY_TARGET: Period = Period::of_seconds(3_600);

/// Returns the class of a built-in queue.
pub fn built_in_class(key: &str) -> Option<QueueClass> {
    BUILT_IN.iter().find(|(built_in, _)| *built_in == key).map(|(_, class)| *class)
}

impl Queue {
    /// Creates a queue with default settings.
    pub fn plain(key: QueueId) -> Self {
        Self {
            key,
            name: None,
            description: None,
            class: None,
            access: Access::default(),
            hidden_actions: Vec::new(),
            require: DecisionRequirements::default(),
            target_age: None,
            auto_close_after: None,
            order: QueueOrder::default(),
        }
    }

    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.key.as_str())
    }

    pub fn class(&self) -> QueueClass {
        // Built-in queues keep their class; `check` reports a document that states another one.
        built_in_class(self.key.as_str()).or(self.class).unwrap_or_default()
    }

    /// Returns the target for the age of a job at its decision. The default is an hour for `child-safety`, none for
    /// other queues.
    pub fn target_age(&self) -> Option<Period> {
        self.target_age.or_else(|| (self.key.as_str() == CHILD_SAFETY).then_some(CHILD_SAFETY_TARGET))
    }

    fn auto_close_faults(&self, age: Period) -> impl Iterator<Item = String> + use<> {
        let class_error = match self.class() {
            QueueClass::Review => None,
            QueueClass::Appeal => Some(
                "A queue of appeals cannot close jobs automatically, because users wait for an answer. Remove the setting.",
            ),
            QueueClass::ChildSafety => {
                Some("A queue of child safety cannot close jobs automatically. Remove the setting.")
            }
        };
        let zero_error = (age.seconds() == 0)
            .then_some("The age must be at least one second. Remove the setting to keep jobs open.");
        // Index entries are the only way to find old jobs.
        let length_error = (age > MAX_AUTO_CLOSE_AGE).then(|| {
            format!(
                "The age may be at most {MAX_AUTO_CLOSE_AGE}, because index entries of older jobs expire."
            )
        });
        // Jobs must not be closed while reviewers are still within their target.
        let later_target = self.target_age.filter(|target| age < *target);
        let early_error = later_target
            .map(|target| format!("Jobs would be closed before the `target_age` of {target} is over."));
        [class_error, zero_error]
            .into_iter()
            .flatten()
            .map(str::to_owned)
            .chain(length_error)
            .chain(early_error)
    }

    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        let mut fault = |path: &str, message: String| faults.push((path.to_owned(), message));
        if let (Some(fixed), Some(class)) = (built_in_class(self.key.as_str()), self.class)
            && fixed != class
        {
            let fixed = fixed.as_str();
            fault("class", format!("The queue `{}` holds jobs of the class `{fixed}` only.", self.key));
        }
        if self.target_age.is_some_and(|age| age.seconds() == 0) {
            fault("target_age", "The target must be at least one second.".into());
        }
        for message in self.auto_close_after.iter().flat_map(|age| self.auto_close_faults(*age)) {
            fault("auto_close_after", message);
        }
        if self.order.max_wait.seconds() == 0 {
            fault("order.max_wait", "The maximum wait must be at least one second.".into());
        }
        let weights = [
            ("severity", self.order.severity),
            ("reporters", self.order.reporters),
            ("age", self.order.age),
            ("reach.weight", self.order.reach.as_ref().map_or(0, |reach| reach.weight)),
        ];
        for (name, weight) in weights.into_iter().filter(|(_, weight)| i64::from(*weight) > MAX_PRIORITY) {
            fault(
                &format!("order.{name}"),
                format!("A weight is between 0 and {MAX_PRIORITY}, not {weight}."),
            );
        }
        for (list, names) in [("people", &self.access.people), ("roles", &self.access.roles)] {
            // A repeated name is most likely a typing error for another person.
            let mut unique_names = HashSet::new();
            for (index, name) in names.iter().enumerate() {
                if name.trim().is_empty() || !unique_names.insert(name) {
                    fault(&format!("access.{list}[{index}]"), "A name must not be blank or repeated.".into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::documents::{Document, parse};

    fn faults(text: &str) -> Vec<String> {
        match parse(&[("q.yaml", text)]) {
            Ok(_) => Vec::new(),
            Err(faults) => faults.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn queue_settings_are_checked_at_their_places() {
        for (text, expected) in [
            ("queue: appeals\nclass: review\n", "`appeals` holds jobs of the class `appeal` only"),
            ("queue: q\ntarget_age: 0s\n", "target_age"),
            ("queue: q\norder: {severity: 10}\n", "order.severity"),
            ("queue: q\norder: {max_wait: 0h}\n", "order.max_wait"),
            ("queue: q\naccess: {people: [ada, ada]}\n", "access.people[1]"),
            ("queue: q\nauto_close_after: 0s\n", "auto_close_after: The age must be at least one second"),
            ("queue: q\nauto_close_after: 366d\n", "auto_close_after: The age may be at most 365d"),
            ("queue: q\nauto_close_after: 4h\ntarget_age: 1d\n", "before the `target_age` of 1d is over"),
            (
                "queue: q\nclass: child_safety\nauto_close_after: 30d\n",
                "A queue of child safety cannot close jobs",
            ),
            ("queue: child-safety\nauto_close_after: 30d\n", "A queue of child safety cannot close jobs"),
            ("queue: appeals\nauto_close_after: 30d\n", "because users wait for an answer"),
        ] {
            let found = faults(text).join("\n");
            assert!(found.contains(expected), "{text}: {found}");
        }
    }

    #[test]
    fn access_is_by_person_or_role_and_open_by_default() {
        let text = "queue: q\naccess: {people: [ada], roles: [lead]}\n";
        let Document::Queue(queue) = parse(&[("q.yaml", text)]).unwrap().remove(0).1 else {
            panic!("a queue")
        };
        assert!(queue.access.admits("ada", &[]));
        assert!(queue.access.admits("bob", &["lead".to_owned()]));
        assert!(!queue.access.admits("bob", &["guest".to_owned()]));
        assert!(super::Access::default().admits("bob", &[]));
    }
}
