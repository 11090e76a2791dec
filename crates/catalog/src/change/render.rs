//! Renders a content as files that make no difference when applied again. Comments and the original files are
//! not stored.

use tidegate_schemas::documents::{Document, DocumentKind, Format, render};

use super::File;
use crate::content::Content;

/// Greatest number of documents in one file, well below the limit of the parser.
const MAX_FILE_DOCUMENTS: usize = 500;
const MAX_FILE_BYTES: usize = 1 << 20;

/// Renders YAML files by kind. Policies keep the order of their creation.
pub(super) fn render_files(content: &Content) -> Vec<File> {
    let documents = content.documents();
    let creation_index = |document: &Document| match document {
        Document::Policy(policy) => content.policy_order.iter().position(|key| *key == policy.key),
        _ => None,
    };
    let render_kind = |kind: DocumentKind| {
        let mut kind_documents: Vec<&Document> = documents.iter().filter(|it| it.kind() == kind).collect();
        // The stable sort leaves other kinds ordered by key.
        kind_documents.sort_by_key(|document| creation_index(document));
        name_files(
            file_name(kind),
            pack_into_files(kind_documents.into_iter().map(|it| render(it, Format::Yaml))),
        )
    };
    DocumentKind::ALL.into_iter().flat_map(render_kind).collect()
}

fn pack_into_files(documents: impl Iterator<Item = String>) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    let mut count = 0;
    for document in documents {
        match files.last_mut() {
            Some(file) if count < MAX_FILE_DOCUMENTS && file.len() + document.len() < MAX_FILE_BYTES => {
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

fn name_files(name: &str, files: Vec<String>) -> Vec<File> {
    let is_single_file = files.len() == 1;
    let name_file = |(index, text): (usize, String)| match is_single_file {
        true => (format!("{name}.yaml"), text),
        false => (format!("{name}-{:04}.yaml", index + 1), text),
    };
    files.into_iter().enumerate().map(name_file).collect()
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
