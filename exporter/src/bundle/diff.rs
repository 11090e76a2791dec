//! Differences between two bundles: elements of their lists are matched by id, everything else by its name.
//!
//! Neither the way of writing nor the order of elements counts as a difference.

use std::{
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    io::{self, Read},
};

use crate::{
    bundle::invalid_json::InvalidJson,
    json::{
        Limits, Position, Reader, Stop,
        canonical::{self, CanonicalError, Numbers},
    },
    storage::spill::{Spill, SpillOptions},
    unpack::Source,
};

/// Lists whose elements have ids.
pub const LISTS: [&str; 4] = ["phases", "items", "responses", "outcomes"];

/// Fate of an element: added, removed or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    Added,
    Removed,
    Changed,
}

/// An element that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// One of [`LISTS`].
    pub list: usize,
    pub change: Change,
    pub id: String,
    /// The fields that differ; none if all were added or removed.
    pub fields: Vec<String>,
}

/// Number of elements of a list that differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub added: u64,
    pub removed: u64,
    pub changed: u64,
    /// Number of changed elements by the field that differs.
    pub fields: BTreeMap<String, u64>,
}

/// Value outside the lists. Values of the summary and the data card are shown; others may be somebody's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// JSON Pointer.
    pub pointer: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// Differences between two bundles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    pub members: Vec<Member>,
    /// Totals of each list, in the order of [`LISTS`].
    pub totals: [Totals; 4],
    /// The first by list and id, no more than were asked for.
    pub elements: Vec<Element>,
}

impl Difference {
    pub fn is_nothing(&self) -> bool {
        self.members.is_empty() && self.totals.iter().all(|totals| *totals == Totals::default())
    }
}

/// Error with the document that caused it.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error("the first: {0}")]
    First(#[source] InvalidJson),
    #[error("the second: {0}")]
    Second(#[source] InvalidJson),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl DiffError {
    /// A stable word for the kind of fault.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::First(unfit) | Self::Second(unfit) => unfit.tag(),
            Self::Io(_) => "io",
        }
    }
}

type Members = BTreeMap<String, Vec<u8>>;

/// Compares two documents; at most `most` elements are listed.
///
/// # Errors
///
/// If one cannot be read, is not JSON, or has elements without an id.
pub fn diff(
    first: &mut dyn Source,
    second: &mut dyn Source,
    limits: Limits,
    room: &SpillOptions,
    most: usize,
) -> Result<Difference, DiffError> {
    let mut spill = Spill::new(room.clone());
    let before = read(first, 0, limits, &mut spill).map_err(DiffError::First)?;
    let after = read(second, 1, limits, &mut spill).map_err(DiffError::Second)?;
    let mut difference = Difference { members: members(&before, &after), ..Difference::default() };
    let mut found = Differences { totals: Default::default(), kept: BinaryHeap::new(), most };
    let mut group = Group::default();
    spill.finish(|key, rest, new| {
        if new {
            found.settle(&mut group);
            group.begin(key);
        }
        group.take(rest);
        Ok(())
    })?;
    found.settle(&mut group);
    difference.totals = found.totals;
    difference.elements = found.kept.into_sorted_vec();
    Ok(difference)
}

fn members(before: &Members, after: &Members) -> Vec<Member> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    differs
        .map(|name| {
            let told = name.starts_with("/summary/") || name.starts_with("/dataCard/");
            let value = |from: &Members| {
                let value = from.get(name).filter(|_| told)?;
                Some(String::from_utf8_lossy(value).into_owned())
            };
            Member { pointer: name.clone(), before: value(before), after: value(after) }
        })
        .collect()
}

/// Everything outside the lists; elements of the lists go to the spill.
fn read(
    source: &mut dyn Source,
    side: u8,
    limits: Limits,
    spill: &mut Spill,
) -> Result<Members, InvalidJson> {
    let mut reader = Reader::new(source.open()?, limits);
    let mut members = Members::new();
    let read = document(&mut reader, side, spill, &mut members);
    match read {
        Ok(()) => Ok(members),
        Err(DocumentError::Canonical(bad)) => Err(InvalidJson::new(bad, reader.position())),
        Err(DocumentError::NoObject(at)) => {
            Err(InvalidJson::NoObject { at_line: at.line, offset: at.offset })
        }
        Err(DocumentError::NoId(list)) => {
            let at = reader.position();
            Err(InvalidJson::NoId { list, at_line: at.line, offset: at.offset })
        }
    }
}

enum DocumentError {
    Canonical(CanonicalError),
    NoId(&'static str),
    NoObject(Position),
}

impl From<CanonicalError> for DocumentError {
    fn from(bad: CanonicalError) -> Self {
        Self::Canonical(bad)
    }
}

impl From<Stop> for DocumentError {
    fn from(stop: Stop) -> Self {
        Self::Canonical(stop.into())
    }
}

fn document<R: Read>(
    reader: &mut Reader<R>,
    side: u8,
    spill: &mut Spill,
    members: &mut Members,
) -> Result<(), DocumentError> {
    reader.mark()?;
    match reader.next()? {
        b'{' => {}
        b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
            return Err(DocumentError::NoObject(reader.position()));
        }
        _ => return Err(reader.unexpected().into()),
    }
    object(reader, 0, &mut |reader, name| {
        let list = LISTS.iter().position(|list| list.as_bytes() == name);
        match (list, reader.next()?) {
            // That there is one is something that is said, too, however much is in it.
            (Some(list), b'[') => {
                elements(reader, list, side, spill)?;
                put(members, &[name], b"[".to_vec(), reader.position())
            }
            (_, b'{') => {
                object(reader, 1, &mut |reader, inner| {
                    let mut held = Vec::new();
                    canonical::value(reader, Numbers::Exact, 2, &mut held)?;
                    put(members, &[name, inner], held, reader.position())
                })?;
                put(members, &[name], b"{".to_vec(), reader.position())
            }
            _ => {
                let mut held = Vec::new();
                canonical::value(reader, Numbers::Exact, 1, &mut held)?;
                put(members, &[name], held, reader.position())
            }
        }
    })?;
    if reader.peek()?.is_some() {
        return Err(CanonicalError::Trailing.into());
    }
    Ok(())
}

/// `end` is where the member ends.
fn put(members: &mut Members, names: &[&[u8]], value: Vec<u8>, end: Position) -> Result<(), DocumentError> {
    let mut pointer = String::new();
    for name in names {
        pointer.push('/');
        pointer.push_str(&String::from_utf8_lossy(name).replace('~', "~0").replace('/', "~1"));
    }
    let twice = members.insert(pointer, value).is_some();
    match names.last() {
        Some(name) if twice => Err(CanonicalError::Twice(name.to_vec(), end).into()),
        _ => Ok(()),
    }
}

/// Callback for a member whose name has been read.
type EachMember<'e, R> = dyn FnMut(&mut Reader<R>, &[u8]) -> Result<(), DocumentError> + 'e;

fn object<R: Read>(
    reader: &mut Reader<R>,
    depth: usize,
    each: &mut EachMember<'_, R>,
) -> Result<(), DocumentError> {
    if depth >= reader.limits().depth {
        return Err(CanonicalError::Large.into());
    }
    reader.pass();
    if reader.next()? == b'}' {
        reader.pass();
        return Ok(());
    }
    loop {
        let (name, _) = canonical::name(reader)?;
        each(reader, &name)?;
        if !canonical::another(reader, b'}')? {
            return Ok(());
        }
    }
}

fn elements<R: Read>(
    reader: &mut Reader<R>,
    list: usize,
    side: u8,
    spill: &mut Spill,
) -> Result<(), DocumentError> {
    reader.pass();
    if reader.next()? == b']' {
        reader.pass();
        return Ok(());
    }
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let (mut key, mut rest) = (Vec::new(), Vec::new());
    loop {
        if reader.next()? != b'{' {
            return Err(DocumentError::NoId(LISTS[list]));
        }
        fields.clear();
        object(reader, 2, &mut |reader, name| {
            let mut held = Vec::new();
            canonical::value(reader, Numbers::Exact, 3, &mut held)?;
            fields.push((name.to_vec(), held));
            Ok(())
        })?;
        fields.sort();
        if let Some(pair) = fields.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(CanonicalError::Twice(pair[0].0.clone(), reader.position()).into());
        }
        let id = fields.iter().find(|(name, _)| name == b"id").map(|(_, value)| &**value);
        let Some([b'"', id @ .., b'"']) = id else { return Err(DocumentError::NoId(LISTS[list])) };
        key.clear();
        key.push(u8::try_from(list).unwrap_or_default());
        key.extend_from_slice(id);
        encode(&fields, side, &mut rest);
        spill.push(&key, &rest).map_err(|error| CanonicalError::Stop(error.into()))?;
        if !canonical::another(reader, b']')? {
            return Ok(());
        }
    }
}

/// Numbers and lengths first, so that no content begins with another one: elements of the same content are neighbours in
/// order, whichever side they are of.
fn encode(fields: &[(Vec<u8>, Vec<u8>)], side: u8, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&(fields.len() as u64).to_be_bytes());
    for part in fields.iter().flat_map(|(name, value)| [name, value]) {
        into.extend_from_slice(&(part.len() as u64).to_be_bytes());
        into.extend_from_slice(part);
    }
    into.push(side);
}

fn decode(content: &[u8]) -> BTreeMap<&[u8], &[u8]> {
    let mut content = content.get(size_of::<u64>()..).unwrap_or_default();
    let mut part = || {
        let (length, rest) = content.split_first_chunk()?;
        let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        content = rest;
        Some(part)
    };
    let mut fields = BTreeMap::new();
    while let Some(name) = part()
        && let Some(value) = part()
    {
        fields.insert(name, value);
    }
    fields
}

/// The elements of one id, of both sides; there should be one of each.
#[derive(Debug, Default)]
struct Group {
    list: usize,
    id: Vec<u8>,
    /// Content that is being counted, and the surplus of either side.
    content: Vec<u8>,
    surplus: [u64; 2],
    /// Number of elements on each side without an equal on the other, and the first of them.
    left: [u64; 2],
    first: [Option<Vec<u8>>; 2],
}

impl Group {
    fn begin(&mut self, key: &[u8]) {
        let (list, id) = key.split_first().unwrap_or((&0, &[]));
        *self = Self { list: usize::from(*list), id: id.to_vec(), ..Self::default() };
    }

    fn take(&mut self, rest: &[u8]) {
        let Some((side, content)) = rest.split_last() else { return };
        if content != self.content {
            self.count();
            self.content.clear();
            self.content.extend_from_slice(content);
        }
        self.surplus[usize::from(*side & 1)] += 1;
    }

    fn count(&mut self) {
        let equal = self.surplus[0].min(self.surplus[1]);
        for side in [0, 1] {
            let more = self.surplus[side] - equal;
            self.left[side] += more;
            if more > 0 && self.first[side].is_none() {
                self.first[side] = Some(self.content.clone());
            }
        }
        self.surplus = [0; 2];
    }
}

struct Differences {
    totals: [Totals; 4],
    kept: BinaryHeap<Element>,
    most: usize,
}

impl Differences {
    fn settle(&mut self, group: &mut Group) {
        group.count();
        let [before, after] = group.left;
        let changed = before.min(after);
        if before == 0 && after == 0 {
            return;
        }
        let Some(totals) = self.totals.get_mut(group.list) else { return };
        totals.changed += changed;
        totals.removed += before - changed;
        totals.added += after - changed;
        let change = match (before, after) {
            (_, 0) => Change::Removed,
            (0, _) => Change::Added,
            _ => Change::Changed,
        };
        let mut fields = Vec::new();
        if let [Some(before), Some(after)] = &group.first {
            let (before, after) = (decode(before), decode(after));
            let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
            for name in names.into_iter().filter(|name| before.get(*name) != after.get(*name)) {
                let name = String::from_utf8_lossy(name).into_owned();
                // Only names of the form are few for certain.
                let known = totals.fields.len() < 1_000 || totals.fields.contains_key(&name);
                if known {
                    *totals.fields.entry(name.clone()).or_default() += changed;
                }
                fields.push(name);
            }
        }
        let id = String::from_utf8_lossy(&group.id).into_owned();
        self.kept.push(Element { list: group.list, change, id, fields });
        if self.kept.len() > self.most {
            self.kept.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn compared(first: &str, second: &str, memory: usize) -> Difference {
        let room = SpillOptions { memory, folder: std::env::temp_dir() };
        diff(&mut first.as_bytes(), &mut second.as_bytes(), Limits::default(), &room, 3).unwrap()
    }

    #[test]
    fn elements_are_matched_by_id_whatever_their_order_and_writing() {
        let first = r#"{"kind":"k","items":[{"id":"a","text":"x","n":1},{"id":"b","n":2},{"id":"c"}],"summary":{"items":3}}"#;
        let same = r#"{"summary":{"items":3.0},"items":[{"id":"c"},{"n":2e0,"id":"\u0062"},{"n":1,"text":"x","id":"a"}],"kind":"k"}"#;
        assert!(compared(first, same, 1 << 20).is_nothing());
        let other = r#"{"kind":"l","items":[{"id":"a","text":"y","n":1,"m":0},{"id":"b","n":2},{"id":"d"}],"summary":{"items":4}}"#;
        let difference = compared(first, other, 1 << 20);
        let members: Vec<_> =
            difference.members.iter().map(|it| (&*it.pointer, it.after.as_deref())).collect();
        assert_eq!(members, [("/kind", None), ("/summary/items", Some("4"))]);
        let totals = &difference.totals[1];
        assert_eq!((totals.added, totals.removed, totals.changed), (1, 1, 1));
        let told: Vec<_> =
            difference.elements.iter().map(|it| (it.change, &*it.id, it.fields.join(","))).collect();
        let wanted = [(Change::Added, "d", ""), (Change::Removed, "c", ""), (Change::Changed, "a", "m,text")];
        assert_eq!(told, wanted.map(|(change, id, fields)| (change, id, fields.to_owned())));
    }

    #[test]
    fn empty_list_differs_from_missing_list_and_from_object() {
        for list in LISTS {
            let ways = ["{}".to_owned()]
                .into_iter()
                .chain(["[]", "{}", "null", "0"].map(|value| format!(r#"{{"{list}":{value}}}"#)));
            let ways: Vec<_> = ways.collect();
            for (at, first) in ways.iter().enumerate() {
                for (other, second) in ways.iter().enumerate() {
                    let difference = compared(first, second, 1 << 20);
                    assert_eq!(difference.is_nothing(), at == other, "{first} {second}");
                    if at != other {
                        assert_eq!(difference.members[0].pointer, format!("/{list}"));
                    }
                }
            }
        }
        assert!(!compared("{}", r#"{"summary":{}}"#, 0).is_nothing());
        let more = r#"{"items":[{"id":"a"}]}"#;
        assert_eq!(compared(r#"{"items":[]}"#, more, 0).members, []);
        let room = SpillOptions { memory: 0, folder: std::env::temp_dir() };
        let twice = r#"{"items":[],"items":[]}"#;
        diff(&mut twice.as_bytes(), &mut more.as_bytes(), Limits::default(), &room, 3).unwrap_err();
    }

    #[test]
    fn an_id_that_stands_twice_is_matched_as_often_as_it_can_be() {
        let first = r#"{"items":[{"id":"a","n":1},{"id":"a","n":1},{"id":"a","n":2}]}"#;
        let second = r#"{"items":[{"id":"a","n":2},{"id":"a","n":3},{"id":"a","n":1}]}"#;
        let totals = &compared(first, second, 0).totals[1];
        assert_eq!((totals.added, totals.removed, totals.changed), (0, 0, 1));
        assert_eq!(totals.fields, BTreeMap::from([("n".to_owned(), 1)]));
    }

    #[test]
    fn repeated_id_is_no_difference_of_a_document_from_itself() {
        let document = r#"{"items":[{"id":"a"},{"id":"a","n":1}]}"#;
        assert_eq!(compared(document, document, 0), Difference::default());
    }

    /// An element by its id and which of its fields have which value.
    type Drawn = (String, BTreeMap<String, u8>);

    fn written(elements: &[Drawn]) -> String {
        let element = |(id, fields): &Drawn| {
            let fields: String = fields.iter().map(|(name, value)| format!(r#","{name}":{value}"#)).collect();
            format!(r#"{{"id":"{id}"{fields}}}"#)
        };
        format!(r#"{{"items":[{}]}}"#, elements.iter().map(element).collect::<Vec<_>>().join(","))
    }

    proptest! {
        #[test]
        fn diff_ignores_order_and_counts_differences(
            (elements, shuffled) in prop::collection::vec(
                ("[a\u{0}-\u{1}]{0,2}", prop::collection::btree_map("[i-k]{1,2}", 0..3_u8, 0..4)), 0..12
            ).prop_map(|mut drawn: Vec<Drawn>| {
                // Control characters have to be escaped.
                for (id, _) in &mut drawn {
                    *id = id.replace('\u{0}', "\\u0000").replace('\u{1}', "\\u0001");
                }
                drawn
            }).prop_flat_map(|drawn| (Just(drawn.clone()), Just(drawn).prop_shuffle())),
            memory in prop::sample::select(vec![0, 1 << 20]),
        ) {
            let (first, second) = (written(&elements), written(&shuffled));
            prop_assert_eq!(compared(&first, &first, memory), Difference::default());
            prop_assert_eq!(compared(&first, &second, memory), Difference::default());
            if let Some((_, others)) = shuffled.split_first() {
                let totals = &compared(&first, &written(others), memory).totals[1];
                prop_assert_eq!((totals.added, totals.removed, totals.changed), (0, 1, 0));
            }
        }
    }

    #[test]
    fn large_numbers_are_not_rounded_away() {
        let with = |n: &str| format!(r#"{{"responses":[{{"id":"a","count":{n}}}]}}"#);
        assert!(!compared(&with("9007199254740993"), &with("9007199254740992"), 0).is_nothing());
    }

    #[test]
    fn long_lists_need_no_more_memory_than_they_are_given() {
        let list = |last: u32| {
            let all: Vec<_> =
                (0..20_000).map(|at| format!(r#"{{"id":"r{at}","count":{}}}"#, at % last)).collect();
            format!(r#"{{"responses":[{}]}}"#, all.join(","))
        };
        let difference = compared(&list(1000), &list(1001), 0);
        let same = (0..20_000_u32).filter(|at| at % 1000 == at % 1001).count() as u64;
        assert_eq!(difference.totals[2].changed, 20_000 - same);
        assert_eq!(difference.elements.len(), 3);
        assert_eq!(difference, compared(&list(1000), &list(1001), 1 << 30));
    }

    #[test]
    fn what_cannot_be_matched_is_refused() {
        let room = SpillOptions { memory: 0, folder: std::env::temp_dir() };
        let good = r#"{"items":[]}"#;
        for (bad, tag) in [
            (r#"{"items":[{"id":1}]}"#, "no_id"),
            (r#"{"items":[7]}"#, "no_id"),
            ("[]", "no_object"),
            ("{", "content"),
        ] {
            let failed =
                diff(&mut good.as_bytes(), &mut bad.as_bytes(), Limits::default(), &room, 3).unwrap_err();
            assert!(matches!(failed, DiffError::Second(_)) && failed.tag() == tag, "{bad}: {failed}");
        }
    }
}
