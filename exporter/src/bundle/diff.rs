//! Compares two bundles: list elements are matched by id, other values by their path. Spelling and the order of
//! elements are not differences.

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

/// Names of the lists of elements with ids.
pub const LISTS: [&str; 4] = ["phases", "items", "responses", "outcomes"];

/// Kind of difference of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    Added,
    Removed,
    Changed,
}

/// Element that differs between the two bundles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// One of [`LISTS`].
    pub list: usize,
    pub change: Change,
    pub id: String,
    /// Names of the fields that differ; empty if the element was added or removed.
    pub fields: Vec<String>,
}

/// Numbers of differing elements of one list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub added: u64,
    pub removed: u64,
    pub changed: u64,
    /// Number of changed elements by differing field.
    pub fields: BTreeMap<String, u64>,
}

/// Differing value outside the lists. Its values are given only for the summary and the data card, since others can be
/// personal data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// JSON Pointer of the value.
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
    /// First elements by list and id, up to the requested number.
    pub elements: Vec<Element>,
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.totals.iter().all(|totals| *totals == Totals::default())
    }
}

/// Error, with the document that caused it.
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
    /// Stable identifier of the kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::First(error) | Self::Second(error) => error.tag(),
            Self::Io(_) => "io",
        }
    }
}

type MemberValues = BTreeMap<String, Vec<u8>>;

/// Compares two documents, and lists up to `most` differing elements.
///
/// # Errors
///
/// If a document cannot be read, is not JSON, or has elements without an id.
pub fn diff(
    first: &mut dyn Source,
    second: &mut dyn Source,
    limits: Limits,
    spill_options: &SpillOptions,
    most: usize,
) -> Result<Difference, DiffError> {
    let mut spill = Spill::new(spill_options.clone());
    let before = read_members(first, 0, limits, &mut spill).map_err(DiffError::First)?;
    let after = read_members(second, 1, limits, &mut spill).map_err(DiffError::Second)?;
    let mut difference = Difference { members: compare_members(&before, &after), ..Difference::default() };
    let mut collector =
        DifferenceCollector { totals: Default::default(), elements: BinaryHeap::new(), max_elements: most };
    let mut group = Group::default();
    spill.finish(|key, content, is_first| {
        if is_first {
            collector.add_group(&mut group);
            group.start(key);
        }
        group.add(content);
        Ok(())
    })?;
    collector.add_group(&mut group);
    difference.totals = collector.totals;
    difference.elements = collector.elements.into_sorted_vec();
    Ok(difference)
}

fn compare_members(before: &MemberValues, after: &MemberValues) -> Vec<Member> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differing_names = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    differing_names
        .map(|name| {
            // Other members can contain texts that people wrote.
            let may_show_values = name.starts_with("/summary/") || name.starts_with("/dataCard/");
            let value = |from: &MemberValues| {
                let value = from.get(name).filter(|_| may_show_values)?;
                Some(String::from_utf8_lossy(value).into_owned())
            };
            Member { pointer: name.clone(), before: value(before), after: value(after) }
        })
        .collect()
}

/// Returns the values outside the lists, and writes the elements of lists to the spill.
fn read_members(
    source: &mut dyn Source,
    side: u8,
    limits: Limits,
    spill: &mut Spill,
) -> Result<MemberValues, InvalidJson> {
    let mut reader = Reader::new(source.open()?, limits);
    let mut members = MemberValues::new();
    let outcome = read_document(&mut reader, side, spill, &mut members);
    match outcome {
        Ok(()) => Ok(members),
        Err(ReadError::Canonical(error)) => Err(InvalidJson::new(error, reader.position())),
        Err(ReadError::NotAnObject(at)) => {
            Err(InvalidJson::NotAnObject { at_line: at.line, offset: at.offset })
        }
        Err(ReadError::MissingId(list)) => {
            let at = reader.position();
            Err(InvalidJson::MissingId { list, at_line: at.line, offset: at.offset })
        }
    }
}

enum ReadError {
    Canonical(CanonicalError),
    MissingId(&'static str),
    NotAnObject(Position),
}

impl From<CanonicalError> for ReadError {
    fn from(error: CanonicalError) -> Self {
        Self::Canonical(error)
    }
}

impl From<Stop> for ReadError {
    fn from(stop: Stop) -> Self {
        Self::Canonical(stop.into())
    }
}

fn read_document<R: Read>(
    reader: &mut Reader<R>,
    side: u8,
    spill: &mut Spill,
    members: &mut MemberValues,
) -> Result<(), ReadError> {
    reader.skip_byte_order_mark()?;
    match reader.next()? {
        b'{' => {}
        b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
            return Err(ReadError::NotAnObject(reader.position()));
        }
        _ => return Err(reader.unexpected_error().into()),
    }
    read_object(reader, 0, &mut |reader, name| {
        let list = LISTS.iter().position(|list| list.as_bytes() == name);
        match (list, reader.next()?) {
            // A missing list, an empty list and an empty object are different content, so the presence of a list is
            // recorded like a value.
            (Some(list), b'[') => {
                read_elements(reader, list, side, spill)?;
                insert_member(members, &[name], b"[".to_vec(), reader.position())
            }
            (_, b'{') => {
                read_object(reader, 1, &mut |reader, inner| {
                    let mut value = Vec::new();
                    canonical::write_value(reader, Numbers::Exact, 2, &mut value)?;
                    insert_member(members, &[name, inner], value, reader.position())
                })?;
                // Recorded like the presence of a list, because an empty object differs from a missing one.
                insert_member(members, &[name], b"{".to_vec(), reader.position())
            }
            _ => {
                let mut value = Vec::new();
                canonical::write_value(reader, Numbers::Exact, 1, &mut value)?;
                insert_member(members, &[name], value, reader.position())
            }
        }
    })?;
    if reader.peek()?.is_some() {
        return Err(CanonicalError::TrailingData.into());
    }
    Ok(())
}

/// Adds the value at the path `names`. `end` is the position after the member, for the error of a duplicate.
fn insert_member(
    members: &mut MemberValues,
    names: &[&[u8]],
    value: Vec<u8>,
    end: Position,
) -> Result<(), ReadError> {
    let mut pointer = String::new();
    for name in names {
        pointer.push('/');
        pointer.push_str(&String::from_utf8_lossy(name).replace('~', "~0").replace('/', "~1"));
    }
    let is_duplicate = members.insert(pointer, value).is_some();
    match names.last() {
        Some(name) if is_duplicate => Err(CanonicalError::DuplicateName(name.to_vec(), end).into()),
        _ => Ok(()),
    }
}

/// Callback for each member of an object, called after the name and colon were read.
type MemberHandler<'e, R> = dyn FnMut(&mut Reader<R>, &[u8]) -> Result<(), ReadError> + 'e;

fn read_object<R: Read>(
    reader: &mut Reader<R>,
    depth: usize,
    handle_member: &mut MemberHandler<'_, R>,
) -> Result<(), ReadError> {
    if depth >= reader.limits().depth {
        return Err(CanonicalError::TooLarge.into());
    }
    reader.advance();
    if reader.next()? == b'}' {
        reader.advance();
        return Ok(());
    }
    loop {
        let (name, _) = canonical::read_name(reader)?;
        handle_member(reader, &name)?;
        if !canonical::skip_separator(reader, b'}')? {
            return Ok(());
        }
    }
}

fn read_elements<R: Read>(
    reader: &mut Reader<R>,
    list: usize,
    side: u8,
    spill: &mut Spill,
) -> Result<(), ReadError> {
    reader.advance();
    if reader.next()? == b']' {
        reader.advance();
        return Ok(());
    }
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let (mut key, mut content) = (Vec::new(), Vec::new());
    loop {
        if reader.next()? != b'{' {
            return Err(ReadError::MissingId(LISTS[list]));
        }
        fields.clear();
        read_object(reader, 2, &mut |reader, name| {
            let mut value = Vec::new();
            canonical::write_value(reader, Numbers::Exact, 3, &mut value)?;
            fields.push((name.to_vec(), value));
            Ok(())
        })?;
        // The order of members is no difference, and repeated names become neighbours.
        fields.sort();
        if let Some(pair) = fields.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(CanonicalError::DuplicateName(pair[0].0.clone(), reader.position()).into());
        }
        let id = fields.iter().find(|(name, _)| name == b"id").map(|(_, value)| &**value);
        // An id is a string; numbers and null have no quotes.
        let Some([b'"', id @ .., b'"']) = id else { return Err(ReadError::MissingId(LISTS[list])) };
        key.clear();
        key.push(u8::try_from(list).unwrap_or_default());
        key.extend_from_slice(id);
        encode_fields(&fields, side, &mut content);
        spill.push(&key, &content).map_err(|error| CanonicalError::Stop(error.into()))?;
        if !canonical::skip_separator(reader, b']')? {
            return Ok(());
        }
    }
}

/// Encodes an element's content, followed by its side. Counts and lengths are in front, so that no content is a prefix
/// of another one and elements with equal content are neighbours in the sorted order, regardless of their side.
fn encode_fields(fields: &[(Vec<u8>, Vec<u8>)], side: u8, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&(fields.len() as u64).to_be_bytes());
    for part in fields.iter().flat_map(|(name, value)| [name, value]) {
        into.extend_from_slice(&(part.len() as u64).to_be_bytes());
        into.extend_from_slice(part);
    }
    into.push(side);
}

fn decode_fields(content: &[u8]) -> BTreeMap<&[u8], &[u8]> {
    let mut content = content.get(size_of::<u64>()..).unwrap_or_default();
    let mut next_part = || {
        let (length, rest) = content.split_first_chunk()?;
        let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        content = rest;
        Some(part)
    };
    let mut fields = BTreeMap::new();
    while let Some(name) = next_part()
        && let Some(value) = next_part()
    {
        fields.insert(name, value);
    }
    fields
}

/// Elements of both bundles with one id. Valid bundles have at most one each.
#[derive(Debug, Default)]
struct Group {
    list: usize,
    id: Vec<u8>,
    /// Content of the current records, and their number on each side.
    content: Vec<u8>,
    counts: [u64; 2],
    /// Number of elements on each side without an equal element on the other, and the content of the first.
    unmatched: [u64; 2],
    first_unmatched: [Option<Vec<u8>>; 2],
}

impl Group {
    fn start(&mut self, key: &[u8]) {
        let (list, id) = key.split_first().unwrap_or((&0, &[]));
        *self = Self { list: usize::from(*list), id: id.to_vec(), ..Self::default() };
    }

    fn add(&mut self, record: &[u8]) {
        let Some((side, content)) = record.split_last() else { return };
        if content != self.content {
            self.settle_content();
            self.content.clear();
            self.content.extend_from_slice(content);
        }
        self.counts[usize::from(*side & 1)] += 1;
    }

    fn settle_content(&mut self) {
        // Equal elements of a repeated id are paired first. The others count as changed, then as added or removed.
        let pair_count = self.counts[0].min(self.counts[1]);
        for side in [0, 1] {
            let surplus = self.counts[side] - pair_count;
            self.unmatched[side] += surplus;
            if surplus > 0 && self.first_unmatched[side].is_none() {
                self.first_unmatched[side] = Some(self.content.clone());
            }
        }
        self.counts = [0; 2];
    }
}

struct DifferenceCollector {
    totals: [Totals; 4],
    elements: BinaryHeap<Element>,
    max_elements: usize,
}

impl DifferenceCollector {
    fn add_group(&mut self, group: &mut Group) {
        group.settle_content();
        let [before, after] = group.unmatched;
        let changed_count = before.min(after);
        // Each element with this id has an equal one on the other side.
        if before == 0 && after == 0 {
            return;
        }
        let Some(totals) = self.totals.get_mut(group.list) else { return };
        totals.changed += changed_count;
        totals.removed += before - changed_count;
        totals.added += after - changed_count;
        let change = match (before, after) {
            (_, 0) => Change::Removed,
            (0, _) => Change::Added,
            _ => Change::Changed,
        };
        let mut fields = Vec::new();
        if let [Some(before), Some(after)] = &group.first_unmatched {
            let (before, after) = (decode_fields(before), decode_fields(after));
            let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
            for name in names.into_iter().filter(|name| before.get(*name) != after.get(*name)) {
                let name = String::from_utf8_lossy(name).into_owned();
                // Field names of an invalid bundle are unlimited, so the map of totals is bounded.
                let is_counted = totals.fields.len() < 1_000 || totals.fields.contains_key(&name);
                if is_counted {
                    *totals.fields.entry(name.clone()).or_default() += changed_count;
                }
                fields.push(name);
            }
        }
        let id = String::from_utf8_lossy(&group.id).into_owned();
        self.elements.push(Element { list: group.list, change, id, fields });
        // The heap keeps the smallest elements: the first by list and id.
        if self.elements.len() > self.max_elements {
            self.elements.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn compare(first: &str, second: &str, memory: usize) -> Difference {
        let spill_options = SpillOptions { memory, folder: std::env::temp_dir() };
        diff(&mut first.as_bytes(), &mut second.as_bytes(), Limits::default(), &spill_options, 3).unwrap()
    }

    #[test]
    fn elements_are_matched_by_id_in_any_order_and_spelling() {
        let first = r#"{"kind":"k","items":[{"id":"a","text":"x","n":1},{"id":"b","n":2},{"id":"c"}],"summary":{"items":3}}"#;
        let respelled = r#"{"summary":{"items":3.0},"items":[{"id":"c"},{"n":2e0,"id":"\u0062"},{"n":1,"text":"x","id":"a"}],"kind":"k"}"#;
        assert!(compare(first, respelled, 1 << 20).is_empty());
        let changed_document = r#"{"kind":"l","items":[{"id":"a","text":"y","n":1,"m":0},{"id":"b","n":2},{"id":"d"}],"summary":{"items":4}}"#;
        let difference = compare(first, changed_document, 1 << 20);
        let members: Vec<_> =
            difference.members.iter().map(|member| (&*member.pointer, member.after.as_deref())).collect();
        assert_eq!(members, [("/kind", None), ("/summary/items", Some("4"))]);
        let totals = &difference.totals[1];
        assert_eq!((totals.added, totals.removed, totals.changed), (1, 1, 1));
        let elements: Vec<_> = difference
            .elements
            .iter()
            .map(|element| (element.change, &*element.id, element.fields.join(",")))
            .collect();
        let expected =
            [(Change::Added, "d", ""), (Change::Removed, "c", ""), (Change::Changed, "a", "m,text")];
        assert_eq!(elements, expected.map(|(change, id, fields)| (change, id, fields.to_owned())));
    }

    #[test]
    fn empty_list_differs_from_missing_list_and_from_object() {
        for list in LISTS {
            let documents = ["{}".to_owned()]
                .into_iter()
                .chain(["[]", "{}", "null", "0"].map(|value| format!(r#"{{"{list}":{value}}}"#)));
            let documents: Vec<_> = documents.collect();
            for (index, first) in documents.iter().enumerate() {
                for (other_index, second) in documents.iter().enumerate() {
                    let difference = compare(first, second, 1 << 20);
                    assert_eq!(difference.is_empty(), index == other_index, "{first} {second}");
                    if index != other_index {
                        assert_eq!(difference.members[0].pointer, format!("/{list}"));
                    }
                }
            }
        }
        assert!(!compare("{}", r#"{"summary":{}}"#, 0).is_empty());
        let one_item = r#"{"items":[{"id":"a"}]}"#;
        assert_eq!(compare(r#"{"items":[]}"#, one_item, 0).members, []);
        let spill_options = SpillOptions { memory: 0, folder: std::env::temp_dir() };
        let twice = r#"{"items":[],"items":[]}"#;
        diff(&mut twice.as_bytes(), &mut one_item.as_bytes(), Limits::default(), &spill_options, 3)
            .unwrap_err();
    }

    #[test]
    fn repeated_ids_match_their_equal_elements_first() {
        let first = r#"{"items":[{"id":"a","n":1},{"id":"a","n":1},{"id":"a","n":2}]}"#;
        let second = r#"{"items":[{"id":"a","n":2},{"id":"a","n":3},{"id":"a","n":1}]}"#;
        let totals = &compare(first, second, 0).totals[1];
        assert_eq!((totals.added, totals.removed, totals.changed), (0, 0, 1));
        assert_eq!(totals.fields, BTreeMap::from([("n".to_owned(), 1)]));
    }

    #[test]
    fn document_with_repeated_id_equals_itself() {
        let document = r#"{"items":[{"id":"a"},{"id":"a","n":1}]}"#;
        assert_eq!(compare(document, document, 0), Difference::default());
    }

    /// Element as its id and the values of its fields.
    type DrawnElement = (String, BTreeMap<String, u8>);

    fn to_document(elements: &[DrawnElement]) -> String {
        let element = |(id, fields): &DrawnElement| {
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
            ).prop_map(|mut drawn: Vec<DrawnElement>| {
                // JSON strings cannot contain control characters.
                for (id, _) in &mut drawn {
                    *id = id.replace('\u{0}', "\\u0000").replace('\u{1}', "\\u0001");
                }
                drawn
            }).prop_flat_map(|drawn| (Just(drawn.clone()), Just(drawn).prop_shuffle())),
            memory in prop::sample::select(vec![0, 1 << 20]),
        ) {
            let (first, second) = (to_document(&elements), to_document(&shuffled));
            prop_assert_eq!(compare(&first, &first, memory), Difference::default());
            prop_assert_eq!(compare(&first, &second, memory), Difference::default());
            if let Some((_, remaining_elements)) = shuffled.split_first() {
                let totals = &compare(&first, &to_document(remaining_elements), memory).totals[1];
                prop_assert_eq!((totals.added, totals.removed, totals.changed), (0, 1, 0));
            }
        }
    }

    #[test]
    fn large_numbers_are_not_rounded_away() {
        let with = |n: &str| format!(r#"{{"responses":[{{"id":"a","count":{n}}}]}}"#);
        assert!(!compare(&with("9007199254740993"), &with("9007199254740992"), 0).is_empty());
    }

    #[test]
    fn long_lists_are_compared_within_the_memory_limit() {
        let list = |last: u32| {
            let all: Vec<_> =
                (0..20_000).map(|at| format!(r#"{{"id":"r{at}","count":{}}}"#, at % last)).collect();
            format!(r#"{{"responses":[{}]}}"#, all.join(","))
        };
        let difference = compare(&list(1000), &list(1001), 0);
        let unchanged = (0..20_000_u32).filter(|at| at % 1000 == at % 1001).count() as u64;
        assert_eq!(difference.totals[2].changed, 20_000 - unchanged);
        assert_eq!(difference.elements.len(), 3);
        assert_eq!(difference, compare(&list(1000), &list(1001), 1 << 30));
    }

    #[test]
    fn document_with_unmatchable_elements_is_refused() {
        let spill_options = SpillOptions { memory: 0, folder: std::env::temp_dir() };
        let good = r#"{"items":[]}"#;
        for (bad, tag) in [
            (r#"{"items":[{"id":1}]}"#, "no_id"),
            (r#"{"items":[7]}"#, "no_id"),
            ("[]", "no_object"),
            ("{", "content"),
        ] {
            let error = diff(&mut good.as_bytes(), &mut bad.as_bytes(), Limits::default(), &spill_options, 3)
                .unwrap_err();
            assert!(matches!(error, DiffError::Second(_)) && error.tag() == tag, "{bad}: {error}");
        }
    }
}
