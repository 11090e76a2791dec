//! Input and result of leaves.

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::{ItemKey, Millis, SubmissionId};

use crate::{fields::FieldCache, item::Value, limits::Limits, logic::Mask, vocabulary::EntryName};

/// An item under evaluation.
pub(crate) struct EvalInput<'a> {
    pub(crate) fields: FieldCache<'a>,
    pub(crate) user: Option<&'a ItemKey>,
    pub(crate) now: Millis,
    pub(crate) submission: SubmissionId,
    pub(crate) limits: &'a Limits,
}

/// A condition that facts have decided.
pub(crate) struct Settled<E> {
    pub(crate) mask: Mask,
    pub(crate) explained: E,
    /// The reason for which it is errored.
    pub(crate) reason: Option<String>,
}

/// A place in a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    pub field: String,
    /// Index in a list or key in a map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<String>,
    /// The word or pattern as the rule has it.
    pub sought: String,
    /// Bytes of the original text, on character boundaries.
    pub start: usize,
    pub end: usize,
    /// The original text there; shortened if long.
    pub found: String,
    /// The bank's entry that is sought, if it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryName>,
}

/// Values at a path as a window reads them, each once, and true if there are more than may be; without a path the
/// item's user.
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
    let mut known = Vec::new();
    for (_, value) in input.fields.slot(slot).values.iter().flatten() {
        let Some(value) = read(value).filter(|value| !known.contains(value)) else { continue };
        if known.len() == input.limits.window_values {
            return (known, true);
        }
        known.push(value);
    }
    (known, false)
}
