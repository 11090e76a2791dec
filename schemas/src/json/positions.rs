//! Positions in a text that JSON Pointers lead to, sorted in the order of the text.

use std::collections::HashMap;

use super::{Kind, Node};
use crate::validation_error::ValidationErrors;

/// Ordinals of the members on the path to a value, the outermost first: a container comes before its members.
type Path = Vec<usize>;

/// Paths of pointers, cached because pointers of one request share most of theirs.
struct Positions<'a> {
    root: Node<'a>,
    cached: HashMap<String, (Path, Option<Node<'a>>)>,
}

impl<'a> Positions<'a> {
    fn new(root: Node<'a>) -> Self {
        Self { root, cached: HashMap::new() }
    }

    /// Returns the path to a pointer. A missing member sorts behind all that exist beside it.
    fn of(&mut self, pointer: &str) -> Path {
        self.find(pointer).0
    }

    fn find(&mut self, pointer: &str) -> (Path, Option<Node<'a>>) {
        let Some((parent, token)) = pointer.rsplit_once('/') else { return (Path::new(), Some(self.root)) };
        if let Some(cached) = self.cached.get(pointer) {
            return cached.clone();
        }
        let (mut path, parent) = self.find(parent);
        let member = parent.and_then(|parent| member(parent, token));
        path.push(member.map_or(usize::MAX, |(ordinal, _)| ordinal));
        let found = (path, member.map(|(_, node)| node));
        self.cached.insert(pointer.to_owned(), found.clone());
        found
    }
}

/// Sorts errors by the positions that they point at, in the text with this root.
pub fn in_order(errors: ValidationErrors, root: Node<'_>) -> ValidationErrors {
    let mut positions = Positions::new(root);
    errors.sorted_by_key(|pointer| positions.of(pointer))
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

    use super::{super::scan, *};

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
        let mut positions = Positions::new(tape.root(text));
        found.sort_by_cached_key(|pointer| positions.of(pointer));
        assert_eq!(found, sorted);
    }
}
