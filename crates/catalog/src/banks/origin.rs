//! Who lists an entry, and under which name: what is taken back by one of them stays for the others.
//!
//! What has no source is one's own, and no exchange takes it back.

use serde::{Deserialize, Serialize};

use super::Entry;

/// Beyond them an entry counts as one's own, too: it stays rather than being forgotten by somebody who is not kept.
const MOST: usize = 32;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// What became of an entry that somebody takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Withdrawn {
    Removed,
    /// Others list it still.
    Changed,
    /// It was not there, or not from them.
    Missing,
}

/// What a given entry says of it: `None` is nothing, and a blank text takes out.
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
                }
                own(&mut also, reference);
                (first, also)
            }
            Some(named) if !named.trim().is_empty() => {
                let is_same = first.source.as_ref() == Some(&named);
                let takes_out = is_same && reference.as_ref().is_some_and(|it| it.trim().is_empty());
                let reference = text(reference, first.reference.as_ref().filter(|_| is_same));
                let new = Origin { source: Some(named), reference };
                if new == first || also.contains(&new) {
                    return (first, also);
                }
                if !takes_out {
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
    /// Without one of its origins; `None`: it was the last.
    pub(super) fn without(&self, origin: &Origin) -> (Withdrawn, Option<Self>) {
        let mut left = self.clone();
        if let Some(at) = left.also.iter().position(|it| it == origin) {
            left.also.remove(at);
            return (Withdrawn::Changed, Some(left));
        }
        if (&self.source, &self.reference) != (&origin.source, &origin.reference) {
            return (Withdrawn::Missing, Some(left));
        }
        let Some(next) = left.also.pop() else { return (Withdrawn::Removed, None) };
        (left.source, left.reference) = (next.source, next.reference);
        (Withdrawn::Changed, Some(left))
    }
}
