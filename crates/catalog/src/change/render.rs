//! Writes a content as files that, applied again, change nothing.
//!
//! It keeps neither comments nor the files that the documents once stood in.

use tidegate_schemas::documents::{Document, DocumentKind, Format, render};

use super::File;
use crate::content::Content;

/// One YAML file a kind that has documents. Policies stand in the order of their creation.
pub(super) fn files(content: &Content) -> Vec<File> {
    let documents = content.documents();
    let place = |document: &Document| match document {
        Document::Policy(policy) => content.policy_order.iter().position(|key| *key == policy.key),
        _ => None,
    };
    let of_kind = |kind: DocumentKind| {
        let mut of_kind: Vec<&Document> = documents.iter().filter(|it| it.kind() == kind).collect();
        // Stable: the other kinds keep the order of their keys.
        of_kind.sort_by_key(|document| place(document));
        let texts: Vec<String> = of_kind.into_iter().map(|it| render(it, Format::Yaml)).collect();
        (!texts.is_empty()).then(|| (format!("{}.yaml", file_name(kind)), texts.join("---\n")))
    };
    DocumentKind::ALL.into_iter().filter_map(of_kind).collect()
}

fn file_name(kind: DocumentKind) -> &'static str {
    match kind {
        DocumentKind::ItemType => "item_types",
        DocumentKind::Policy => "policies",
        DocumentKind::Action => "actions",
        DocumentKind::Rule => "rules",
        DocumentKind::Endpoint => "endpoints",
        DocumentKind::Threshold => "thresholds",
        DocumentKind::Queue => "queues",
    }
}
