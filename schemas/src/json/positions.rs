//! Sorts validation errors by the text positions of their JSON Pointers.

use std::collections::HashMap;

use super::{Kind, Node};
use crate::validation_error::ValidationErrors;

/// Ordinals of the members on the path to a value, outermost first. A container sorts before its members.
type Path = Vec<usize>;

/// Cache of pointer paths: the pointers of one request share most of their ancestors.
struct Positions<'a> {
    root: Node<'a>,
    positions: HashMap<String, (Path, Option<Node<'a>>)>,
}

impl<'a> Positions<'a> {
    fn new(root: Node<'a>) -> Self {
        Self { root, positions: HashMap::new() }
    }

    /// Returns the path of a pointer. A missing member sorts after its existing siblings.
    fn path_to(&mut self, pointer: &str) -> Path {
        self.locate(pointer).0
    }

    fn locate(&mut self, pointer: &str) -> (Path, Option<Node<'a>>) {
        let Some((parent, token)) = pointer.rsplit_once('/') else { return (Path::new(), Some(self.root)) };
        if let Some(cached) = self.positions.get(pointer) {
            return cached.clone();
        }
        let (mut path, parent) = self.locate(parent);
        let member = parent.and_then(|parent| find_member(parent, token));
        // Errors of missing members follow those of existing ones.
        path.push(member.map_or(usize::MAX, |(ordinal, _)| ordinal));
        let position = (path, member.map(|(_, node)| node));
        self.positions.insert(pointer.to_owned(), position.clone());
        position
    }
}

/// Sorts errors by the positions of their pointers in the text with this root.
pub fn in_order(errors: ValidationErrors, root: Node<'_>) -> ValidationErrors {
    let mut positions = Positions::new(root);
    errors.sorted_by_key(|pointer| positions.path_to(pointer))
}

fn find_member<'a>(parent: Node<'a>, token: &str) -> Option<(usize, Node<'a>)> {
    if parent.kind() == Kind::Array {
        let ordinal = token.parse().ok()?;
        return Some((ordinal, parent.elements().nth(ordinal)?));
    }
    // RFC 6901 requires this order: `~01` means `~1`.
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
    fn pointers_sort_in_text_order_with_missing_members_last() {
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
        found.sort_by_cached_key(|pointer| positions.path_to(pointer));
        assert_eq!(found, sorted);
    }
}
