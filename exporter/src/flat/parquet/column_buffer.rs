//! Buffer of one column: the levels and values of its leaves.

use tidegate_history::{Column, ColumnType, Value};

use super::leaf::Leaf;

/// Buffered values of a column.
#[derive(Debug)]
pub(super) enum ColumnBuffer {
    Scalar(Leaf),
    List {
        /// Definition level of an empty list; null has level 0.
        empty_level: i16,
        /// One leaf, or one per member of a list of structs.
        leaves: Vec<Leaf>,
    },
}

impl ColumnBuffer {
    pub(super) fn new(column: &Column) -> Self {
        let empty_level = i16::from(column.is_nullable);
        match column.column_type {
            ColumnType::Texts => {
                Self::List { empty_level, leaves: vec![Leaf::new(ColumnType::Text, empty_level + 1, true)] }
            }
            ColumnType::Structs(members) => {
                let member_leaf = |member: &Column| {
                    let level = empty_level + 1 + i16::from(member.is_nullable);
                    Leaf::new(member.column_type, level, true)
                };
                Self::List { empty_level, leaves: members.iter().map(member_leaf).collect() }
            }
            scalar => Self::Scalar(Leaf::new(scalar, empty_level, false)),
        }
    }

    pub(super) fn leaves_mut(&mut self) -> &mut [Leaf] {
        match self {
            Self::Scalar(leaf) => std::slice::from_mut(leaf),
            Self::List { leaves, .. } => leaves,
        }
    }

    /// Appends a value, and returns the bytes that it takes in the buffer.
    pub(super) fn push(&mut self, value: &Value<'_>) -> usize {
        let (empty_level, leaves) = match self {
            Self::Scalar(leaf) => return leaf.push(value, 0, 0),
            Self::List { empty_level, leaves } => (*empty_level, leaves),
        };
        match value {
            Value::Texts(texts) if !texts.is_empty() => {
                let mut bytes = 0;
                for (at, text) in texts.iter().enumerate() {
                    bytes += leaves[0].push_text(text, i16::from(at > 0));
                }
                bytes
            }
            Value::Structs(structs) if !structs.is_empty() => {
                let mut bytes = 0;
                for (at, members) in structs.iter().enumerate() {
                    for (leaf, member) in leaves.iter_mut().zip(members) {
                        // A null member lies in an element, one level above an empty list.
                        bytes += leaf.push(member, empty_level + 1, i16::from(at > 0));
                    }
                }
                bytes
            }
            Value::Texts(_) | Value::Structs(_) => {
                leaves.iter_mut().map(|leaf| leaf.push_null(empty_level, 0)).sum()
            }
            _ => leaves.iter_mut().map(|leaf| leaf.push_null(0, 0)).sum(),
        }
    }
}
