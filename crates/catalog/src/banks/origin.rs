//! Origins of an entry: the sources that list it, with its name at each. A withdrawal removes one origin, and
//! the entry with the last one.
//!
//! An origin without a source stands for the organisation itself. Exchanges never withdraw it.

use serde::{Deserialize, Serialize};

use super::Entry;

/// Greatest number of origins. Beyond it, the entry is marked as listed by the organisation itself: it must
/// not disappear when its recorded sources withdraw while an unrecorded one still lists it.
const MAX_ORIGINS: usize = 32;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// Result of withdrawing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WithdrawalResult {
    Removed,
    /// Other origins still list it.
    Changed,
    /// The entry did not exist, or had another origin.
    Missing,
}

/// Origin in a request. `None` keeps a field, and a blank text clears it.
pub(super) struct OriginUpdate {
    pub(super) source: Option<String>,
    pub(super) reference: Option<String>,
}

pub(super) fn updated_text(new: Option<String>, old: Option<&String>) -> Option<String> {
    match new {
        Some(text) => Some(text).filter(|new| !new.trim().is_empty()),
        None => old.cloned(),
    }
}

impl OriginUpdate {
    /// Merges the origin into those of the stored entry. Returns the first origin and the others.
    pub(super) fn apply_to(self, old: Option<&Entry>) -> (Origin, Vec<Origin>) {
        let Self { source, reference } = self;
        let Some(old) = old else {
            return (
                Origin { source: updated_text(source, None), reference: updated_text(reference, None) },
                Vec::new(),
            );
        };
        let mut first = Origin { source: old.source.clone(), reference: old.reference.clone() };
        let mut also = old.also.clone();
        match source {
            // No source in the request: the organisation lists the entry too, beside the source that is
            // stored first.
            None if first.source.is_some() => {
                if reference.as_ref().is_some_and(|it| it.trim().is_empty()) {
                    first.reference = None;
                    also.retain(|it| it.source != first.source);
                }
                add_own_origin(&mut also, reference);
                (first, also)
            }
            Some(source_name) if !source_name.trim().is_empty() => {
                let clears_reference = reference.as_ref().is_some_and(|it| it.trim().is_empty());
                let sets_reference = reference.is_some() && !clears_reference;
                let new_origin =
                    Origin { source: Some(source_name), reference: updated_text(reference, None) };
                let has_same_source = |it: &Origin| it.source == new_origin.source;
                let is_listed = |it: &Origin| {
                    if sets_reference { *it == new_origin } else { !clears_reference && has_same_source(it) }
                };
                // Already listed under this reference, or under any if the request gives none.
                if is_listed(&first) || also.iter().any(is_listed) {
                    return (first, also);
                }
                // The source renamed the entry or cleared its name there, so the earlier origin is replaced.
                let is_replaced =
                    |it: &Origin| has_same_source(it) && (clears_reference || it.reference.is_none());
                also.retain(|it| !is_replaced(it));
                if !is_replaced(&first) {
                    add_origin(&mut also, first);
                }
                (new_origin, also)
            }
            source => {
                let clears_source = source.is_some();
                // The organisation becomes the first origin, so it must not be among the others too.
                also.retain(|it| it.source.is_some());
                let previous_reference =
                    first.reference.as_ref().filter(|_| !clears_source || first.source.is_none());
                (Origin { source: None, reference: updated_text(reference, previous_reference) }, also)
            }
        }
    }
}

/// Adds the organisation itself as an origin, or updates its reference.
fn add_own_origin(also: &mut Vec<Origin>, reference: Option<String>) {
    match also.iter_mut().find(|it| it.source.is_none()) {
        Some(own_origin) => own_origin.reference = updated_text(reference, own_origin.reference.as_ref()),
        None => {
            also.push(Origin { source: None, reference: updated_text(reference, None) });
            also.sort_unstable();
        }
    }
}

fn add_origin(also: &mut Vec<Origin>, origin: Origin) {
    if also.len() >= MAX_ORIGINS {
        return add_own_origin(also, None);
    }
    also.push(origin);
    also.sort_unstable();
}

impl Entry {
    /// Returns the entry without one of its origins, or `None` if it was the last.
    pub(super) fn without_origin(&self, origin: &Origin) -> (WithdrawalResult, Option<Self>) {
        let mut remaining_entry = self.clone();
        if let Some(index) = remaining_entry.also.iter().position(|it| it == origin) {
            remaining_entry.also.remove(index);
            return (WithdrawalResult::Changed, Some(remaining_entry));
        }
        if (&self.source, &self.reference) != (&origin.source, &origin.reference) {
            return (WithdrawalResult::Missing, Some(remaining_entry));
        }
        let next = match remaining_entry.also.pop() {
            Some(next) => next,
            // A disabled entry is kept without a source: removing it would let the next import enable it again.
            None if !self.enabled => Origin::default(),
            None => return (WithdrawalResult::Removed, None),
        };
        (remaining_entry.source, remaining_entry.reference) = (next.source, next.reference);
        (WithdrawalResult::Changed, Some(remaining_entry))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_schemas::{
        banks::BankKind,
        ids::{BankId, Millis},
    };

    use super::{super::entry::EntryInput, *};

    fn given(old: Option<&Entry>, source: Option<&str>, reference: Option<&str>) -> Entry {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let value = "00".repeat(16);
        let given =
            EntryInput { value, source: owned(source), reference: owned(reference), ..EntryInput::default() };
        let checked = given.validate((&BankId::new("b"), BankKind::Md5), &Default::default()).unwrap();
        checked.into_entry(old, "me", Millis(1))
    }

    fn origins(entry: &Entry) -> Vec<Origin> {
        let first = Origin { source: entry.source.clone(), reference: entry.reference.clone() };
        let mut all = entry.also.clone();
        all.push(first);
        all.sort_unstable();
        all
    }

    /// Round trip through `export` and `import`.
    #[test]
    fn origins_survive_export_and_import() {
        const SOURCES: [Option<&str>; 4] = [None, Some("a"), Some("b"), Some("")];
        const REFERENCES: [Option<&str>; 4] = [None, Some("1"), Some("2"), Some("")];
        for mut seed in 0..16_usize.pow(4) {
            let mut entry: Option<Entry> = None;
            for _ in 0..4 {
                let (source, reference) = (SOURCES[seed % 4], REFERENCES[seed / 4 % 4]);
                entry = Some(given(entry.as_ref(), source, reference));
                seed /= 16;
            }
            let before = origins(entry.as_ref().unwrap());
            let copy = before.iter().fold(None, |copy: Option<Entry>, it| {
                Some(given(copy.as_ref(), it.source.as_deref(), it.reference.as_deref()))
            });
            assert_eq!(origins(&copy.unwrap()), before);
        }
    }

    #[test]
    fn disabled_entry_stays_disabled_after_its_last_withdrawal() {
        let on = given(None, Some("a"), Some("1"));
        let theirs = Origin { source: on.source.clone(), reference: on.reference.clone() };
        assert_eq!(on.without_origin(&theirs), (WithdrawalResult::Removed, None));
        let off = Entry { enabled: false, ..on };
        let (told, left) = off.without_origin(&theirs);
        let left = left.unwrap();
        assert_eq!((told, left.source.as_ref(), left.enabled), (WithdrawalResult::Changed, None, false));
        assert!(!given(Some(&left), Some("a"), Some("1")).enabled);
    }
}
