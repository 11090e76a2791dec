//! Document of a routing list, which chooses the queue of a job. Conditions are compiled in `tidegate-rules`.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{is_key, queue::QueueClass};
use crate::{
    ids::{QueueId, TypeId},
    nearest::hint,
    string_enum,
};

string_enum! {
    /// Cause of jobs with a separate routing list. Its string is the key of the list's document.
    pub enum RoutingList {
        Reports = "reports",
        /// Reviews requested by rules.
        Rules = "rules",
        Appeals = "appeals",
    }
}

impl RoutingList {
    /// Returns the class of the routed jobs.
    pub fn class(self) -> QueueClass {
        match self {
            Self::Reports | Self::Rules => QueueClass::Review,
            Self::Appeals => QueueClass::Appeal,
        }
    }

    /// Returns the queue for jobs without a matching entry.
    pub fn default_queue(self) -> QueueId {
        QueueId::new(match self {
            Self::Reports | Self::Rules => "default",
            Self::Appeals => "appeals",
        })
    }
}

/// Routing document, such as `routing: reports`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routing {
    #[serde(rename = "routing")]
    pub key: String,
    /// Entries in order; the first match decides.
    pub entries: Vec<RoutingEntry>,
}

/// Entry of a routing list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutingEntry {
    /// Name in the display of jobs; the entry's number by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Item types of the entry; all by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub item_types: Vec<TypeId>,
    /// Condition; without one the entry always matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Value>,
    pub queue: QueueId,
}

impl RoutingEntry {
    /// True if this entry matches all jobs that the other entry matches. Conditions are compared as JSON, not by
    /// meaning.
    fn covers(&self, other: &Self) -> bool {
        let covers_types = self.item_types.is_empty()
            || (!other.item_types.is_empty()
                && other.item_types.iter().all(|it| self.item_types.contains(it)));
        covers_types && (self.when.is_none() || self.when == other.when)
    }
}

impl Routing {
    /// Returns the list of the document. `None` for an unknown key.
    pub fn list(&self) -> Option<RoutingList> {
        self.key.parse().ok()
    }

    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        if self.list().is_none() {
            let list_names = RoutingList::ALL.iter().map(|list| list.as_str());
            let suggestion = hint(&self.key, list_names);
            faults.push((
                "routing".into(),
                format!("A routing list is `reports`, `rules` or `appeals`, not `{}`.{suggestion}", self.key),
            ));
        }
        let mut names = HashSet::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let mut fault =
                |at: &str, message: String| faults.push((format!("entries[{index}]{at}"), message));
            if let Some(name) = &entry.name {
                if !is_key(name) {
                    fault(".name", super::KEY_FORM.to_owned());
                }
                if !names.insert(name) {
                    fault(".name", format!("There is another entry `{name}`."));
                }
            }
            // An entry without effect is most likely in the wrong place of the list.
            if let Some(earlier) = self.entries[..index].iter().position(|earlier| earlier.covers(entry)) {
                let message =
                    format!("The entry is never reached: `entries[{earlier}]` matches all its jobs.");
                fault("", message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::documents::parse;

    fn faults(text: &str) -> String {
        match parse(&[("r.yaml", text)]) {
            Ok(_) => String::new(),
            Err(faults) => faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        }
    }

    #[test]
    fn routing_entries_that_are_never_reached_are_refused() {
        let entry = |text: &str| format!("  - {{{text}, queue: q}}\n");
        let list = |entries: &[&str]| {
            format!("routing: reports\nentries:\n{}", entries.iter().map(|it| entry(it)).collect::<String>())
        };
        let a = "when: {field: a, op: eq, value: 1}";
        let b = "when: {field: b, op: eq, value: 1}";
        assert_eq!(faults(&list(&[a, b, "item_types: [post]"])), "");
        assert!(faults(&list(&[a, b, a])).contains("`entries[0]` matches all its jobs"));
        assert!(
            faults(&list(&["item_types: [post]", &format!("item_types: [post], {a}")]))
                .contains("entries[1]")
        );
        assert_eq!(faults(&list(&[&format!("item_types: [post], {a}"), a])), "");
        assert!(faults("routing: report\nentries: []\n").contains("Did you mean `reports`"));
    }
}
