//! Fields of an item, read once for all rules: their values, their texts in the forms of searches, and the hosts in them.

use std::{borrow::Cow, cell::OnceCell};

use smallvec::SmallVec;
use tidegate_schemas::ids::TypeId;

use crate::{
    error::excerpt,
    hosts::{self, Host},
    item::{Fields, Value},
    limits::{OutOfSteps, Steps, to_u64},
    text::{
        View,
        derived::{Derived, Runs, is_ignored, lower},
        in_word,
    },
    vocabulary::{Addresses, Route},
};

/// Position of a value in its field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Element<'a> {
    Only,
    Index(usize),
    Key(&'a str),
}

impl Element<'_> {
    /// Name for an explanation. `None` for a single value.
    pub(crate) fn name(self, length: usize) -> Option<String> {
        match self {
            Self::Only => None,
            Self::Index(nth) => Some(nth.to_string()),
            Self::Key(key) => Some(excerpt(key, length).to_owned()),
        }
    }
}

pub(crate) type Values<'a> = SmallVec<[(Element<'a>, Value<'a>); 1]>;

/// Values of an item at one path.
pub(crate) struct Slot<'a> {
    /// `None` if absent.
    pub(crate) values: Option<Values<'a>>,
    /// Boxed, because most paths are never searched.
    texts: OnceCell<Box<Texts<'a>>>,
    lower: OnceCell<Box<Lower<'a>>>,
}

/// Texts by value in lower case, untruncated. Empty for values of another kind.
pub(crate) type Lower<'a> = [Cow<'a, str>];

struct Texts<'a> {
    /// Truncated to the limit, with their position among the values.
    searched: SmallVec<[(usize, &'a str); 1]>,
    is_truncated: bool,
    derived: [OnceCell<SmallVec<[Derived<'a>; 1]>>; 3],
    hosts: OnceCell<Vec<Vec<Host<'a>>>>,
}

/// Text in one of the forms of a search.
#[derive(Clone, Copy)]
pub(crate) struct ViewedText<'s, 'a> {
    pub(crate) element: Element<'a>,
    pub(crate) original: &'a str,
    pub(crate) text: &'s str,
    derived: Option<&'s Derived<'a>>,
    is_folded: bool,
}

impl ViewedText<'_, '_> {
    /// Smallest span of whole characters of the original from which this span of the view is derived.
    pub(crate) fn origin(&self, start: usize, end: usize) -> (usize, usize) {
        self.derived.map_or((start, end), |derived| derived.origin(start, end))
    }

    /// True if neither neighbour of the span is a word character.
    pub(crate) fn stands_alone(&self, start: usize, end: usize, in_word: fn(char) -> bool) -> bool {
        if !self.is_folded {
            let neighbours = [self.text[..start].chars().next_back(), self.text[end..].chars().next()];
            return !neighbours.into_iter().flatten().any(in_word);
        }
        // Folding can turn an exclamation mark into a letter, so the original decides where a word ends.
        let (start, end) = self.origin(start, end);
        let (start, end) =
            self.derived.map_or((start, end), |derived| derived.extend_over_unseen(start, end));
        let neighbours = [self.original[..start].chars().next_back(), self.original[end..].chars().next()];
        !neighbours.into_iter().flatten().any(in_word)
    }

    /// True if each letter is repeated here at least as often as in the word.
    pub(crate) fn has_runs(&self, word: &Runs, start: usize) -> bool {
        word.is_empty() || self.derived.is_some_and(|derived| derived.has_runs(word, start))
    }
}

/// Slots of one item. Each is read and converted at most once, on demand.
pub(crate) struct FieldCache<'a> {
    fields: &'a dyn Fields,
    paths: &'a [Path],
    /// Addresses of all item types, and the type of the item.
    addresses: Option<(&'a Addresses, &'a TypeId)>,
    /// Boxed, so that an unused path costs one empty word.
    slots: Vec<OnceCell<Box<Slot<'a>>>>,
    text_bytes: usize,
}

/// Path that rules read, with its routes in the item types.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    pub(crate) name: String,
    pub(crate) routes: Vec<Route>,
}

impl<'a> FieldCache<'a> {
    pub(crate) fn new(
        fields: &'a dyn Fields,
        paths: &'a [Path],
        addresses: Option<(&'a Addresses, &'a TypeId)>,
        text_bytes: usize,
    ) -> Self {
        Self {
            fields,
            paths,
            addresses,
            slots: std::iter::repeat_with(OnceCell::new).take(paths.len()).collect(),
            text_bytes,
        }
    }

    pub(crate) fn path(&self, slot: usize) -> &'a str {
        &self.paths[slot].name
    }

    pub(crate) fn slot(&self, slot: usize) -> &Slot<'a> {
        self.slots[slot].get_or_init(|| {
            Box::new(Slot {
                values: self.paths[slot].routes.iter().find_map(|route| read_values(self.fields, route)),
                texts: OnceCell::new(),
                lower: OnceCell::new(),
            })
        })
    }

    /// Texts at a path in lower case, for comparisons that ignore case. The first caller is charged for all.
    pub(crate) fn lower_texts(&self, slot: usize, steps: &mut Steps) -> Result<&Lower<'a>, OutOfSteps> {
        let slot = self.slot(slot);
        if let Some(lower) = slot.lower.get() {
            return Ok(lower);
        }
        let text = |value: &Value<'a>| if let Value::Text(text) = value { *text } else { "" };
        let texts = || slot.values.iter().flatten().map(|(_, value)| text(value));
        steps.take_shared(texts().map(|text| to_u64(text.len()) / 16).sum())?;
        Ok(slot.lower.get_or_init(|| texts().map(lower).collect()))
    }

    /// Texts at a path in one form.
    pub(crate) fn texts(&self, slot: usize, view: View) -> impl Iterator<Item = ViewedText<'_, 'a>> {
        let (texts, values) = self.searched_texts(slot);
        let place = match view {
            View::Raw => None,
            View::Lower => Some(0),
            View::Folded => Some(1),
            View::Collapsed => Some(2),
        };
        let derive = || texts.searched.iter().map(|(_, text)| Derived::new(text, view)).collect();
        let derived = place.map(|place: usize| texts.derived[place].get_or_init(derive));
        texts.searched.iter().enumerate().map(move |(nth, (value, original))| {
            let derived = derived.map(|derived| &derived[nth]);
            let text = derived.map_or(*original, |derived| &*derived.text);
            ViewedText { element: values[*value].0, original, text, derived, is_folded: view > View::Lower }
        })
    }

    /// Texts at a path, with the hosts in each. The first caller is charged for all.
    pub(crate) fn hosts<'s>(
        &'s self,
        slot: usize,
        steps: &mut Steps,
    ) -> Result<impl Iterator<Item = (ViewedText<'s, 'a>, &'s [Host<'a>])> + use<'s, 'a>, OutOfSteps> {
        let (texts, _) = self.searched_texts(slot);
        if texts.hosts.get().is_none() {
            steps.take_shared(texts.searched.iter().map(|(_, text)| hosts::search_steps(text)).sum())?;
        }
        let find = |text: &'a str| {
            let folds = text.contains(hosts::REMOVED_CHARS) && self.is_address(slot);
            if folds { hosts::hosts_of_address(text) } else { hosts::find_hosts(text) }
        };
        let hosts = texts.hosts.get_or_init(|| texts.searched.iter().map(|(_, text)| find(text)).collect());
        Ok(self.texts(slot, View::Raw).zip(hosts.iter().map(Vec::as_slice)))
    }

    /// True if each text at the path is one address in the item's type.
    fn is_address(&self, slot: usize) -> bool {
        let fields = self.addresses.and_then(|(owners, type_id)| owners.get(type_id));
        fields.is_some_and(|fields| self.paths[slot].routes.iter().any(|route| fields.contains(&route.field)))
    }

    /// Searched texts at a path, and all of its values.
    fn searched_texts(&self, number: usize) -> (&Texts<'a>, &[(Element<'a>, Value<'a>)]) {
        let slot = self.slot(number);
        let values = slot.values.as_deref().unwrap_or_default();
        let make = || Box::new(truncate_texts(values, self.text_bytes, || self.is_address(number)));
        (slot.texts.get_or_init(make), values)
    }

    /// Paths with a text that is longer than the searched part.
    pub(crate) fn truncated_paths(&self, slots: &[usize]) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        for slot in slots.iter().filter(|slot| self.searched_texts(**slot).0.is_truncated) {
            // Item types may resolve a path differently, and each resolution has its own slot.
            let path = self.path(*slot);
            if !paths.iter().any(|listed_path| listed_path == path) {
                paths.push(path.to_owned());
            }
        }
        paths
    }
}

/// Maximum bytes that are dropped to avoid a partial word at the end of a text. Bytes of invisible characters do not count.
const MAX_DROPPED_BYTES: usize = 1 << 10;

/// Returns the end of the searched part of a text: before the word or host at the limit, because a part of it would look
/// like a whole one. One that is longer than `MAX_DROPPED_BYTES` is split.
fn find_end(text: &str, limit: usize, is_invisible: fn(char) -> bool) -> usize {
    let end = text.floor_char_boundary(limit);
    let is_word_part = |c: char| in_word(c) || hosts::is_part(c) || is_invisible(c);
    let next_text = &text[end..text.floor_char_boundary(end.saturating_add(MAX_DROPPED_BYTES))];
    if next_text.chars().find(|c| !is_invisible(*c)).is_some_and(|c| !is_word_part(c)) || end == text.len() {
        return end;
    }
    let mut dropped_bytes = 0;
    for (at, c) in text[..end].char_indices().rev() {
        dropped_bytes += if is_invisible(c) { 0 } else { c.len_utf8() };
        if dropped_bytes > MAX_DROPPED_BYTES {
            return end;
        }
        if !is_word_part(c) {
            return at + c.len_utf8();
        }
    }
    0
}

/// Does the same for an address. Also returns the number of bytes that count: characters that browsers remove do not.
fn find_address_end(text: &str, limit: usize) -> (usize, usize) {
    let is_counted = |byte: &u8| !hosts::REMOVED_CHARS.contains(&char::from(*byte));
    let limit_byte = text.bytes().enumerate().filter(|(_, byte)| is_counted(byte)).nth(limit);
    let is_invisible = |c: char| is_ignored(c) || hosts::REMOVED_CHARS.contains(&c);
    let end = limit_byte.map_or(text.len(), |(beyond, _)| find_end(text, beyond, is_invisible));
    (end, text[..end].bytes().filter(is_counted).count())
}

fn truncate_texts<'a>(
    values: &[(Element<'a>, Value<'a>)],
    limit: usize,
    is_address: impl Fn() -> bool,
) -> Texts<'a> {
    let derived = [const { OnceCell::new() }; 3];
    let mut texts = Texts { searched: SmallVec::new(), is_truncated: false, derived, hosts: OnceCell::new() };
    let length = |(_, value): &(_, Value<'_>)| if let Value::Text(text) = value { text.len() } else { 0 };
    // The type of the field matters only for texts that must be truncated.
    let is_address = values.iter().map(length).sum::<usize>() > limit && is_address();
    let (mut remaining_bytes, mut has_empty) = (limit, false);
    for (nth, (_, value)) in values.iter().enumerate() {
        let Value::Text(text) = value else { continue };
        let (end, counted_bytes) = if is_address {
            find_address_end(text, remaining_bytes)
        } else {
            let end = find_end(text, remaining_bytes, is_ignored);
            (end, end)
        };
        if end < text.len() {
            texts.is_truncated = true;
        }
        // Every match in an empty text is also found in the first one, so further ones would only cost time.
        let is_first_empty = text.is_empty() && !std::mem::replace(&mut has_empty, true);
        if end > 0 || is_first_empty {
            texts.searched.push((nth, &text[..end]));
        }
        // A truncated text ends the search: a shorter one after it must not be searched instead.
        remaining_bytes = if end < text.len() { 0 } else { remaining_bytes - counted_bytes };
    }
    texts
}

fn read_values<'a>(fields: &'a dyn Fields, route: &Route) -> Option<Values<'a>> {
    let value = fields.field(&route.field)?;
    let Some(inside) = &route.inside else {
        return Some(match value {
            Value::List(list) => {
                list.into_iter().enumerate().map(|(nth, value)| (Element::Index(nth), value)).collect()
            }
            Value::Map(map) => map.into_iter().map(|(key, value)| (Element::Key(key), value)).collect(),
            scalar => SmallVec::from_iter([(Element::Only, scalar)]),
        });
    };
    let part = |value: &Value<'a>| match (value, inside.as_str()) {
        (Value::Related { id, .. }, "id") => Some(Value::Text(id)),
        (Value::Related { type_id, .. }, "typeId") => Some(Value::Text(type_id)),
        _ => None,
    };
    match value {
        Value::Map(map) => {
            let (_, value) = map.into_iter().find(|(key, _)| key == inside)?;
            Some(SmallVec::from_iter([(Element::Only, value)]))
        }
        Value::List(list) => {
            let parts = list.iter().enumerate();
            Some(parts.filter_map(|(nth, value)| Some((Element::Index(nth), part(value)?))).collect())
        }
        scalar => part(&scalar).map(|part| SmallVec::from_iter([(Element::Only, part)])),
    }
}
