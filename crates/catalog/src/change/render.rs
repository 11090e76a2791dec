//! Writes a content as files that, applied again, change nothing.
//!
//! It keeps neither comments nor the files that the documents once stood in.

use tidegate_schemas::documents::{Document, DocumentKind, Format, render};

use super::File;
use crate::content::Content;

/// Number of documents in one file, well below what the reader of files accepts.
const FILE_DOCUMENTS: usize = 500;
const FILE_BYTES: usize = 1 << 20;

/// YAML files by kind. Policies stand in the order of their creation, and file names in that of the documents.
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
        named(file_name(kind), pack(of_kind.into_iter().map(|it| render(it, Format::Yaml))))
    };
    DocumentKind::ALL.into_iter().flat_map(of_kind).collect()
}

fn pack(documents: impl Iterator<Item = String>) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    let mut count = 0;
    for document in documents {
        match files.last_mut() {
            Some(file) if count < FILE_DOCUMENTS && file.len() + document.len() < FILE_BYTES => {
                file.push_str("---\n");
                file.push_str(&document);
                count += 1;
            }
            _ => {
                files.push(document);
                count = 1;
            }
        }
    }
    files
}

fn named(name: &str, files: Vec<String>) -> Vec<File> {
    let alone = files.len() == 1;
    let numbered = |(place, text): (usize, String)| match alone {
        true => (format!("{name}.yaml"), text),
        false => (format!("{name}-{:04}.yaml", place + 1), text),
    };
    files.into_iter().enumerate().map(numbered).collect()
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
        DocumentKind::Routing => "routing",
        DocumentKind::Window => "windows",
        DocumentKind::Bank => "banks",
        DocumentKind::Signal => "signals",
    }
}
