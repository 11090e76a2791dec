//! Origins of an entry: each source that lists it, with its name there. A withdrawal by one source leaves the entry to
//! the others.
//!
//! What has no source is one's own, and no exchange takes it back.

use serde::{Deserialize, Serialize};

use super::Entry;

/// Greatest number of origins. Beyond it an entry counts as the organisation's own too, so it stays rather than
/// disappearing with a source that was not recorded.
const MOST: usize = 32;

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
pub enum Withdrawn {
    Removed,
    /// Others list it still.
    Changed,
    /// It was not there, or not from them.
    Missing,
}

/// Parts of an entry that the request gives: `None` leaves a part as it is, and a blank text clears it.
pub(super) struct Named {
    pub(super) source: Option<String>,
    pub(super) reference: Option<String>,
}

pub(super) fn text(new: Option<String>, old: Option<&String>) -> Option<String> {
    match new {
        Some(new) => Some(new).filter(|new| !new.trim().is_empty()),
        None => old.cloned(),
    }
}

impl Named {
    /// The first origin, and the others.
    pub(super) fn over(self, old: Option<&Entry>) -> (Origin, Vec<Origin>) {
        let Self { source, reference } = self;
        let Some(old) = old else {
            return (Origin { source: text(source, None), reference: text(reference, None) }, Vec::new());
        };
        let mut first = Origin { source: old.source.clone(), reference: old.reference.clone() };
        let mut also = old.also.clone();
        match source {
            None if first.source.is_some() => {
                if reference.as_ref().is_some_and(|it| it.trim().is_empty()) {
                    first.reference = None;
                    also.retain(|it| it.source != first.source);
                }
                own(&mut also, reference);
                (first, also)
            }
            Some(named) if !named.trim().is_empty() => {
                let takes_out = reference.as_ref().is_some_and(|it| it.trim().is_empty());
                let is_told = reference.is_some() && !takes_out;
                let new = Origin { source: Some(named), reference: text(reference, None) };
                let is_theirs = |it: &Origin| it.source == new.source;
                let is_known = |it: &Origin| if is_told { *it == new } else { !takes_out && is_theirs(it) };
                if is_known(&first) || also.iter().any(is_known) {
                    return (first, also);
                }
                // What had no name has one now, or what had one has none.
                let is_replaced = |it: &Origin| is_theirs(it) && (takes_out || it.reference.is_none());
                also.retain(|it| !is_replaced(it));
                if !is_replaced(&first) {
                    add(&mut also, first);
                }
                (new, also)
            }
            source => {
                let takes_out = source.is_some();
                also.retain(|it| it.source.is_some());
                let before = first.reference.as_ref().filter(|_| !takes_out || first.source.is_none());
                (Origin { source: None, reference: text(reference, before) }, also)
            }
        }
    }
}

/// Whoever hands in an entry without a source lists it, too.
fn own(also: &mut Vec<Origin>, reference: Option<String>) {
    match also.iter_mut().find(|it| it.source.is_none()) {
        Some(own) => own.reference = text(reference, own.reference.as_ref()),
        None => {
            also.push(Origin { source: None, reference: text(reference, None) });
            also.sort_unstable();
        }
    }
}

fn add(also: &mut Vec<Origin>, origin: Origin) {
    if also.len() >= MOST {
        return own(also, None);
    }
    also.push(origin);
    also.sort_unstable();
}

impl Entry {
    /// Returns the entry without one of its origins, or `None` if it was the last.
    pub(super) fn without(&self, origin: &Origin) -> (Withdrawn, Option<Self>) {
        let mut left = self.clone();
        if let Some(at) = left.also.iter().position(|it| it == origin) {
            left.also.remove(at);
            return (Withdrawn::Changed, Some(left));
        }
        if (&self.source, &self.reference) != (&origin.source, &origin.reference) {
            return (Withdrawn::Missing, Some(left));
        }
        let next = match left.also.pop() {
            Some(next) => next,
            // Whoever lists it again does not switch it on.
            None if !self.enabled => Origin::default(),
            None => return (Withdrawn::Removed, None),
        };
        (left.source, left.reference) = (next.source, next.reference);
        (Withdrawn::Changed, Some(left))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_schemas::{
        banks::BankKind,
        ids::{BankId, Millis},
    };

    use super::{super::entry::Given, *};

    fn given(old: Option<&Entry>, source: Option<&str>, reference: Option<&str>) -> Entry {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let value = "00".repeat(16);
        let given = Given { value, source: owned(source), reference: owned(reference), ..Given::default() };
        let checked = given.check((&BankId::new("b"), BankKind::Md5), &Default::default()).unwrap();
        checked.over(old, "me", Millis(1))
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
    fn whoever_listed_an_entry_is_known_after_a_round_trip() {
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
    fn what_is_switched_off_stays_off_when_the_last_who_lists_it_takes_it_back() {
        let on = given(None, Some("a"), Some("1"));
        let theirs = Origin { source: on.source.clone(), reference: on.reference.clone() };
        assert_eq!(on.without(&theirs), (Withdrawn::Removed, None));
        let off = Entry { enabled: false, ..on };
        let (told, left) = off.without(&theirs);
        let left = left.unwrap();
        assert_eq!((told, left.source.as_ref(), left.enabled), (Withdrawn::Changed, None, false));
        assert!(!given(Some(&left), Some("a"), Some("1")).enabled);
    }
}
