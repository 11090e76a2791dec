//! Differences between two contents, document by document.
//!
//! It does not show values: headers and addresses are secrets.

use std::{collections::BTreeMap, fmt};

use tidegate_schemas::documents::{Document, DocumentKind};

use crate::content::Content;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Added,
    Changed,
    Removed,
}

/// One document that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub kind: DocumentKind,
    pub key: String,
    pub how: How,
    /// True if the document gives child-safety material to a destination, before the change or after it.
    pub is_child_safety: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.how {
            How::Added => '+',
            How::Changed => '~',
            How::Removed => '-',
        };
        write!(f, "{sign} {}: {}", self.kind.name(), self.key)
    }
}

pub(super) fn between(before: &Content, after: &Content) -> Vec<Difference> {
    fn by_name(documents: &[Document]) -> BTreeMap<(DocumentKind, &str), &Document> {
        documents.iter().map(|document| ((document.kind(), document.key()), document)).collect()
    }
    let (before, after) = (before.documents(), after.documents());
    let (before, after) = (by_name(&before), by_name(&after));
    let sends = |documents: &BTreeMap<(DocumentKind, &str), &Document>, name: &(DocumentKind, &str)| {
        documents.get(name).is_some_and(|document| sends_child_safety(document))
    };
    let difference = |name: (DocumentKind, &str), how| Difference {
        kind: name.0,
        key: name.1.to_owned(),
        how,
        is_child_safety: sends(&before, &name) || sends(&after, &name),
    };
    let mut found: Vec<Difference> = after
        .iter()
        .filter_map(|(name, document)| match before.get(name) {
            None => Some(difference(*name, How::Added)),
            Some(old) if old != document => Some(difference(*name, How::Changed)),
            Some(_) => None,
        })
        .collect();
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    found.extend(gone.map(|name| difference(*name, How::Removed)));
    found.sort_by(|left, right| (left.kind, &left.key).cmp(&(right.kind, &right.key)));
    found
}

/// True if items of child safety leave the service for the destination of the document.
fn sends_child_safety(document: &Document) -> bool {
    match document {
        Document::Endpoint(endpoint) => endpoint.child_safety,
        Document::Signal(signal) => signal.child_safety,
        _ => false,
    }
}
