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
    let difference = |(kind, key): (DocumentKind, &str), how| Difference { kind, key: key.to_owned(), how };
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
