//! Input and result of leaves.

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::{ItemKey, Millis, SubmissionId};

use crate::{fields::FieldCache, item::Value, limits::Limits, logic::Mask, vocabulary::EntryName};

/// Item under evaluation.
pub(crate) struct EvalInput<'a> {
    pub(crate) fields: FieldCache<'a>,
    pub(crate) user: Option<&'a ItemKey>,
    pub(crate) now: Millis,
    pub(crate) submission: SubmissionId,
    pub(crate) limits: &'a Limits,
}

/// Outcome of a condition that facts have decided.
pub(crate) struct LeafDecision<E> {
    pub(crate) mask: Mask,
    pub(crate) explained: E,
    /// Reason of an errored outcome.
    pub(crate) reason: Option<String>,
}

/// Place of a word or pattern in a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    pub field: String,
    /// Index in a list or key in a map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<String>,
    /// Word or pattern as the rule writes it.
    pub sought: String,
    /// Bytes of the original text, on character boundaries.
    pub start: usize,
    pub end: usize,
    /// Original text at the place, shortened if long.
    pub found: String,
    /// Bank entry of the word or pattern, if it is from a bank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryName>,
}

/// Returns the distinct values at a path as a window reads them, and true if there are more than the limit. Without a path,
/// the only value is the item's user.
pub(crate) fn values_of<T: PartialEq>(
    slot: Option<usize>,
    input: &EvalInput<'_>,
    read: impl Fn(&Value<'_>) -> Option<T>,
) -> (Vec<T>, bool) {
    let Some(slot) = slot else {
        let user =
            input.user.map(|user| Value::Related { type_id: user.type_id.as_str(), id: user.id.as_str() });
        return (user.and_then(|user| read(&user)).into_iter().collect(), false);
    };
    let mut distinct_values = Vec::new();
    for (_, value) in input.fields.slot(slot).values.iter().flatten() {
        let Some(value) = read(value).filter(|value| !distinct_values.contains(value)) else { continue };
        if distinct_values.len() == input.limits.window_values {
            return (distinct_values, true);
        }
        distinct_values.push(value);
    }
    (distinct_values, false)
}
