//! Compares two contents document by document. Values are left out, because headers and addresses are secrets.

use std::{collections::BTreeMap, fmt};

use tidegate_schemas::documents::{ActionKind, Document, DocumentKind, QueueClass, built_in_class};

use crate::content::Content;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    Added,
    Changed,
    Removed,
}

/// Document that a change adds, changes or removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub kind: DocumentKind,
    pub key: String,
    pub difference_kind: DifferenceKind,
    /// True if the change needs the scope `child_safety`: the document sends child-safety material to a destination, hands items
    /// over to the child-safety team, or restricts access to its jobs.
    pub is_child_safety: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.difference_kind {
            DifferenceKind::Added => '+',
            DifferenceKind::Changed => '~',
            DifferenceKind::Removed => '-',
        };
        write!(f, "{sign} {}: {}", self.kind.name(), self.key)
    }
}

pub(super) fn compare_contents(before: &Content, after: &Content) -> Vec<Difference> {
    fn index_by_name(documents: &[Document]) -> BTreeMap<(DocumentKind, &str), &Document> {
        documents.iter().map(|document| ((document.kind(), document.key()), document)).collect()
    }
    let (before, after) = (before.documents(), after.documents());
    let (before, after) = (index_by_name(&before), index_by_name(&after));
    let shares_child_safety = |documents: &BTreeMap<(DocumentKind, &str), &Document>,
                               name: &(DocumentKind, &str)| {
        documents.get(name).is_some_and(|document| sends_child_safety(document))
    };
    let difference = |name: (DocumentKind, &str), how| Difference {
        kind: name.0,
        key: name.1.to_owned(),
        difference_kind: how,
        is_child_safety: shares_child_safety(&before, &name)
            || shares_child_safety(&after, &name)
            || before.get(&name).is_some_and(|document| serves_child_safety_team(document))
            || is_built_in_child_safety_queue(name),
    };
    let mut differences: Vec<Difference> = after
        .iter()
        .filter_map(|(name, document)| match before.get(name) {
            None => Some(difference(*name, DifferenceKind::Added)),
            Some(old) if old != document => Some(difference(*name, DifferenceKind::Changed)),
            Some(_) => None,
        })
        .collect();
    let removed_names = before.keys().filter(|name| !after.contains_key(*name));
    differences.extend(removed_names.map(|name| difference(*name, DifferenceKind::Removed)));
    differences.sort_by(|left, right| (left.kind, &left.key).cmp(&(right.kind, &right.key)));
    differences
}

/// True for the built-in queue of the child-safety team. It exists without a document, so even an added document can restrict it
/// to other roles.
fn is_built_in_child_safety_queue((kind, key): (DocumentKind, &str)) -> bool {
    kind == DocumentKind::Queue && built_in_class(key) == Some(QueueClass::ChildSafety)
}

/// True if child-safety jobs depend on the document. Asked of documents in force only, because adding another queue or action does
/// not affect existing jobs.
fn serves_child_safety_team(document: &Document) -> bool {
    match document {
        Document::Queue(queue) => queue.class() == QueueClass::ChildSafety,
        Document::Action(action) => action.kind == ActionKind::EnqueueChildSafety,
        _ => false,
    }
}

/// True if the document's destination receives child-safety items.
fn sends_child_safety(document: &Document) -> bool {
    match document {
        Document::Endpoint(endpoint) => endpoint.child_safety,
        Document::Signal(signal) => signal.child_safety,
        _ => false,
    }
}
