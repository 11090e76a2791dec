//! Positions in a text that JSON Pointers lead to, sorted in the order of the text.
//!
//! It does not judge what stands there.

use std::collections::HashMap;

use super::json::{Kind, Node};

/// The ordinals of the members on the way, the outermost first: what holds another comes before it.
type Way = Vec<usize>;

/// Remembers the ways that it went: pointers of one request share most of theirs.
pub(super) struct Places<'a> {
    root: Node<'a>,
    known: HashMap<String, (Way, Option<Node<'a>>)>,
}

impl<'a> Places<'a> {
    pub(super) fn new(root: Node<'a>) -> Self {
        Self { root, known: HashMap::new() }
    }

    /// Returns the way to a pointer. A missing member sorts behind all that exist beside it.
    pub(super) fn of(&mut self, pointer: &str) -> Way {
        self.find(pointer).0
    }

    fn find(&mut self, pointer: &str) -> (Way, Option<Node<'a>>) {
        let Some((parent, token)) = pointer.rsplit_once('/') else { return (Way::new(), Some(self.root)) };
        if let Some(known) = self.known.get(pointer) {
            return known.clone();
        }
        let (mut way, parent) = self.find(parent);
        let member = parent.and_then(|parent| member(parent, token));
        way.push(member.map_or(usize::MAX, |(ordinal, _)| ordinal));
        let found = (way, member.map(|(_, node)| node));
        self.known.insert(pointer.to_owned(), found.clone());
        found
    }
}

fn member<'a>(parent: Node<'a>, token: &str) -> Option<(usize, Node<'a>)> {
    if parent.kind() == Kind::Array {
        let ordinal = token.parse().ok()?;
        return Some((ordinal, parent.elements().nth(ordinal)?));
    }
    let key = token.replace("~1", "/").replace("~0", "~");
    parent
        .entries()
        .enumerate()
        .find(|(_, (name, _))| *name == key)
        .map(|(ordinal, (_, value))| (ordinal, value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{super::json::scan, *};

    #[test]
    fn pointers_sort_as_their_text_does_and_missing_members_come_last() {
        let text = br#"{"z":{"b":1,"a/~b":[0,{"x":1},2,3,4,5,6,7,8,9,10]},"a":1}"#;
        let tape = scan(text).unwrap();
        let sorted = [
            "",
            "/z",
            "/z/b",
            "/z/a~1~0b",
            "/z/a~1~0b/1/x",
            "/z/a~1~0b/1/y",
            "/z/a~1~0b/2",
            "/z/a~1~0b/10",
            "/z/none",
            "/a",
            "/none",
        ];
        let mut found = sorted;
        found.reverse();
        let mut places = Places::new(tape.root(text));
        found.sort_by_cached_key(|pointer| places.of(pointer));
        assert_eq!(found, sorted);
    }
}
