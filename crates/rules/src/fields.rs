//! Fields of an item, read once for all rules: their values, the forms in which their texts are searched, the hosts that
//! they name.

use std::{borrow::Cow, cell::OnceCell};

use smallvec::SmallVec;
use tidegate_schemas::ids::TypeId;

use crate::{
    error::excerpt,
    hosts::{self, Host},
    item::{Fields, Value},
    limits::{OutOfSteps, Steps, wide},
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
    /// Name in an explanation; `None` for a single value.
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
    /// `None`: absent.
    pub(crate) values: Option<Values<'a>>,
    /// Boxed, because most paths are never searched.
    texts: OnceCell<Box<Texts<'a>>>,
    lower: OnceCell<Box<Lower<'a>>>,
}

/// Texts by value in lower case, uncut; empty if it is none.
pub(crate) type Lower<'a> = [Cow<'a, str>];

struct Texts<'a> {
    /// Cut to the limit, with their position among the values.
    cut: SmallVec<[(usize, &'a str); 1]>,
    truncated: bool,
    derived: [OnceCell<SmallVec<[Derived<'a>; 1]>>; 3],
    hosts: OnceCell<Vec<Vec<Host<'a>>>>,
}

/// One text in the form that was asked for.
#[derive(Clone, Copy)]
pub(crate) struct ViewedText<'s, 'a> {
    pub(crate) element: Element<'a>,
    pub(crate) original: &'a str,
    pub(crate) text: &'s str,
    derived: Option<&'s Derived<'a>>,
    folded: bool,
}

impl ViewedText<'_, '_> {
    /// The smallest span of whole characters of the original that gave rise to this span of the view.
    pub(crate) fn origin(&self, start: usize, end: usize) -> (usize, usize) {
        self.derived.map_or((start, end), |derived| derived.origin(start, end))
    }

    /// No word character on either side, whatever the span itself begins and ends with.
    pub(crate) fn stands_alone(&self, start: usize, end: usize, in_word: fn(char) -> bool) -> bool {
        if !self.folded {
            let beside = [self.text[..start].chars().next_back(), self.text[end..].chars().next()];
            return !beside.into_iter().flatten().any(in_word);
        }
        // In a folded text an exclamation mark may have become a letter, so the original says where a word ends.
        let (start, end) = self.origin(start, end);
        let (start, end) = self.derived.map_or((start, end), |derived| derived.with_unseen(start, end));
        let beside = [self.original[..start].chars().next_back(), self.original[end..].chars().next()];
        !beside.into_iter().flatten().any(in_word)
    }

    /// True if each letter stands here at least as often as in a word.
    pub(crate) fn has_runs(&self, word: &Runs, start: usize) -> bool {
        word.is_empty() || self.derived.is_some_and(|derived| derived.has_runs(word, start))
    }
}

/// All slots of one item, each read and put into a form at most once, and only if somebody asks.
pub(crate) struct FieldCache<'a> {
    fields: &'a dyn Fields,
    paths: &'a [Path],
    /// Those of all item types, and which one the item is of.
    addresses: Option<(&'a Addresses, &'a TypeId)>,
    /// Boxed, so that a path nobody asks for costs one empty word.
    slots: Vec<OnceCell<Box<Slot<'a>>>>,
    text_bytes: usize,
}

/// A path that rules read, with the ways in which item types understand it.
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
                values: self.paths[slot].routes.iter().find_map(|route| read(self.fields, route)),
                texts: OnceCell::new(),
                lower: OnceCell::new(),
            })
        })
    }

    /// The texts at a path as comparisons that ignore case read them. Whoever asks first pays for all.
    pub(crate) fn lower(&self, slot: usize, steps: &mut Steps) -> Result<&Lower<'a>, OutOfSteps> {
        let slot = self.slot(slot);
        if let Some(lower) = slot.lower.get() {
            return Ok(lower);
        }
        let text = |value: &Value<'a>| if let Value::Text(text) = value { *text } else { "" };
        let texts = || slot.values.iter().flatten().map(|(_, value)| text(value));
        steps.take_shared(texts().map(|text| wide(text.len()) / 16).sum())?;
        Ok(slot.lower.get_or_init(|| texts().map(lower).collect()))
    }

    /// The texts at a path, in the form asked for.
    pub(crate) fn texts(&self, slot: usize, view: View) -> impl Iterator<Item = ViewedText<'_, 'a>> {
        let (texts, values) = self.cut(slot);
        let place = match view {
            View::Raw => None,
            View::Lower => Some(0),
            View::Folded => Some(1),
            View::Collapsed => Some(2),
        };
        let derive = || texts.cut.iter().map(|(_, text)| Derived::new(text, view)).collect();
        let derived = place.map(|place: usize| texts.derived[place].get_or_init(derive));
        texts.cut.iter().enumerate().map(move |(nth, (value, original))| {
            let derived = derived.map(|derived| &derived[nth]);
            let text = derived.map_or(*original, |derived| &*derived.text);
            ViewedText { element: values[*value].0, original, text, derived, folded: view > View::Lower }
        })
    }

    /// The texts at a path, and the hosts that each names. Whoever asks first pays for all.
    pub(crate) fn hosts<'s>(
        &'s self,
        slot: usize,
        steps: &mut Steps,
    ) -> Result<impl Iterator<Item = (ViewedText<'s, 'a>, &'s [Host<'a>])> + use<'s, 'a>, OutOfSteps> {
        let (texts, _) = self.cut(slot);
        if texts.hosts.get().is_none() {
            steps.take_shared(texts.cut.iter().map(|(_, text)| hosts::work(text)).sum())?;
        }
        let find = |text: &'a str| {
            let folds = text.contains(hosts::LEFT_OUT) && self.is_address(slot);
            if folds { hosts::of_address(text) } else { hosts::all(text) }
        };
        let hosts = texts.hosts.get_or_init(|| texts.cut.iter().map(|(_, text)| find(text)).collect());
        Ok(self.texts(slot, View::Raw).zip(hosts.iter().map(Vec::as_slice)))
    }

    /// True if each text at a path is one address in the item's type.
    fn is_address(&self, slot: usize) -> bool {
        let fields = self.addresses.and_then(|(of, type_id)| of.get(type_id));
        fields.is_some_and(|fields| self.paths[slot].routes.iter().any(|route| fields.contains(&route.field)))
    }

    /// The texts at a path, and all values.
    fn cut(&self, number: usize) -> (&Texts<'a>, &[(Element<'a>, Value<'a>)]) {
        let slot = self.slot(number);
        let values = slot.values.as_deref().unwrap_or_default();
        let make = || Box::new(cut(values, self.text_bytes, || self.is_address(number)));
        (slot.texts.get_or_init(make), values)
    }

    /// Those of these paths whose text is longer than what is searched.
    pub(crate) fn truncated(&self, slots: &[usize]) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        for slot in slots.iter().filter(|slot| self.cut(**slot).0.truncated) {
            // Item types may understand one path in several ways, each with a slot of its own.
            let path = self.path(*slot);
            if !paths.iter().any(|known| known == path) {
                paths.push(path.to_owned());
            }
        }
        paths
    }
}

/// Bytes that are left out at most, so that a text does not end with the half of a word; those of unseen signs do not
/// count.
const HALF: usize = 1 << 10;

/// Returns the end of the part of a text that is searched: before the word or host that the limit falls into, because
/// half of one would look like a whole one. One that is longer than `HALF` is cut all the same.
fn end_of(text: &str, most: usize, unseen: fn(char) -> bool) -> usize {
    let end = text.floor_char_boundary(most);
    let whole = |c: char| in_word(c) || hosts::is_part(c) || unseen(c);
    let behind = &text[end..text.floor_char_boundary(end.saturating_add(HALF))];
    if behind.chars().find(|c| !unseen(*c)).is_some_and(|c| !whole(c)) || end == text.len() {
        return end;
    }
    let mut left_out = 0;
    for (at, c) in text[..end].char_indices().rev() {
        left_out += if unseen(c) { 0 } else { c.len_utf8() };
        if left_out > HALF {
            return end;
        }
        if !whole(c) {
            return at + c.len_utf8();
        }
    }
    0
}

/// The same for an address, of which no more than this is read, and how much that is: what is left out of it wherever
/// it stands counts for nothing.
fn end_of_address(text: &str, most: usize) -> (usize, usize) {
    let counts = |byte: &u8| !hosts::LEFT_OUT.contains(&char::from(*byte));
    let beyond = text.bytes().enumerate().filter(|(_, byte)| counts(byte)).nth(most);
    let unseen = |c: char| is_ignored(c) || hosts::LEFT_OUT.contains(&c);
    let end = beyond.map_or(text.len(), |(beyond, _)| end_of(text, beyond, unseen));
    (end, text[..end].bytes().filter(counts).count())
}

fn cut<'a>(values: &[(Element<'a>, Value<'a>)], most: usize, is_address: impl Fn() -> bool) -> Texts<'a> {
    let derived = [const { OnceCell::new() }; 3];
    let mut texts = Texts { cut: SmallVec::new(), truncated: false, derived, hosts: OnceCell::new() };
    let length = |(_, value): &(_, Value<'_>)| if let Value::Text(text) = value { text.len() } else { 0 };
    let is_address = values.iter().map(length).sum::<usize>() > most && is_address();
    let (mut left, mut some_empty) = (most, false);
    for (nth, (_, value)) in values.iter().enumerate() {
        let Value::Text(text) = value else { continue };
        let (end, counted) = if is_address {
            end_of_address(text, left)
        } else {
            let end = end_of(text, left, is_ignored);
            (end, end)
        };
        if end < text.len() {
            texts.truncated = true;
        }
        // Whatever is found in an empty text is found in the first: further ones would cost time for nothing.
        let first = text.is_empty() && !std::mem::replace(&mut some_empty, true);
        if end > 0 || first {
            texts.cut.push((nth, &text[..end]));
        }
        // A text that had to be cut ends the search: a shorter one behind it must not slip in.
        left = if end < text.len() { 0 } else { left - counted };
    }
    texts
}

fn read<'a>(fields: &'a dyn Fields, route: &Route) -> Option<Values<'a>> {
    let value = fields.field(&route.field)?;
    let Some(inside) = &route.inside else {
        return Some(match value {
            Value::List(list) => {
                list.into_iter().enumerate().map(|(nth, value)| (Element::Index(nth), value)).collect()
            }
            Value::Map(map) => map.into_iter().map(|(key, value)| (Element::Key(key), value)).collect(),
            one => SmallVec::from_iter([(Element::Only, one)]),
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
        one => part(&one).map(|part| SmallVec::from_iter([(Element::Only, part)])),
    }
}
