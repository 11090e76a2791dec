//! Reads documents out of files, YAML or JSON, and finds everything that is wrong with each by itself.
//!
//! It does not look from one document to another; see `set`.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use super::{
    Document, DocumentFault, DocumentKind, Origin, attached,
    tree::{Misfit, Shape, Step, Tree, shown},
};
use crate::{
    nearest,
    wire::{Pointer, json},
};

/// Reads every document of every file: name and text. A name ending in `.json` means JSON, any other YAML, unless a bank
/// names the file: then it holds entries of the bank.
pub fn parse(
    files: &[(impl AsRef<str>, impl AsRef<str>)],
) -> Result<Vec<(Origin, Document)>, Vec<DocumentFault>> {
    let mut documents = Vec::new();
    let mut faults = Vec::new();
    let named = files.iter().map(|(name, text)| (name.as_ref(), text.as_ref()));
    let (likely, others): (Vec<_>, Vec<_>) = named.partition(|(name, _)| attached::is_document(name));
    let read = |name: &str, text: &str, documents: &mut Vec<_>, faults: &mut Vec<_>| {
        let trees = if name.to_ascii_lowercase().ends_with(".json") {
            json_trees(name, text)
        } else {
            yaml_trees(name, text)
        };
        match trees {
            Err(found) => faults.extend(found),
            Ok(trees) => {
                for (index, tree) in trees.into_iter().enumerate() {
                    let origin = Origin { file: name.to_owned(), line: tree.line.unwrap_or(0), index };
                    match document(&origin, tree) {
                        Ok(document) => documents.push((origin, document)),
                        Err(found) => faults.extend(found),
                    }
                }
            }
        }
    };
    for (name, text) in likely {
        read(name, text, &mut documents, &mut faults);
    }
    let wanted: BTreeSet<String> =
        documents.iter().filter_map(|(origin, document)| attached::wanted(origin, document)?.ok()).collect();
    let mut attached = BTreeMap::new();
    for (name, text) in others {
        if wanted.contains(name) {
            attached.insert(name.to_owned(), text);
        } else {
            read(name, text, &mut documents, &mut faults);
        }
    }
    attached::read_in(&mut documents, &attached, &mut faults);
    if faults.is_empty() { Ok(documents) } else { Err(faults) }
}

/// Also an empty text is a document, with a beginning and an end.
const LEAST_PARTS: usize = 16;

fn yaml_trees(name: &str, text: &str) -> Result<Vec<Tree>, Vec<DocumentFault>> {
    // What is written out has at most as many parts as the text has bytes, and how long a text may be is for others to
    // say. Only what aliases repeat has bounds of its own.
    let most = text.len() + LEAST_PARTS;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: json::MAX_DEPTH,
            max_documents: most,
            max_nodes: most,
            max_events: 2 * most,
        },
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let line = error.location().and_then(|at| u32::try_from(at.line()).ok());
        let origin = Origin { file: name.to_owned(), line: line.unwrap_or(0), index: 0 };
        let column = error.location().map_or(String::new(), |at| format!("column {}: ", at.column()));
        vec![DocumentFault::new(&origin, "", column + &said(error.without_snippet()))]
    })
}

/// What is wrong with a YAML text, in our words.
fn said(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key `{}` occurs twice", nearest::shown(key))
        }
        Error::DuplicateMappingKey { .. } => "a key occurs twice".to_owned(),
        Error::UnknownAnchor { .. } => "there is no anchor of this name before it".to_owned(),
        Error::AliasError { error, .. } => said(error),
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "it is nested too deep, or its aliases repeat too much".to_owned()
        }
        Error::NonFiniteFloat { .. } => "a number must be finite".to_owned(),
        Error::InvalidUtf8Input => "it is no UTF-8".to_owned(),
        _ => {
            "this is no YAML, here or just before: look at brackets, quotes, colons and how far lines stand in"
                .to_owned()
        }
    }
}

/// One document, or a list of them.
fn json_trees(name: &str, text: &str) -> Result<Vec<Tree>, Vec<DocumentFault>> {
    let origin = Origin { file: name.to_owned(), line: 0, index: 0 };
    let tape = json::scan_at(text.as_bytes(), &Pointer::Root).map_err(|faults| -> Vec<DocumentFault> {
        faults.iter().map(|fault| DocumentFault::new(&origin, "", fault.to_string())).collect()
    })?;
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line = |at: usize| u32::try_from(ends.partition_point(|end| *end < at) + 1).unwrap_or(0);
    let root = Tree::of_json(tape.root(text.as_bytes()), &line)
        .map_err(|message| vec![DocumentFault::new(&origin, "", message)])?;
    Ok(match root.shape {
        Shape::List(documents) => documents,
        _ => vec![root],
    })
}

fn document(origin: &Origin, tree: Tree) -> Result<Document, Vec<DocumentFault>> {
    let whole = |message: String| vec![DocumentFault::new(origin, "", message)];
    let Shape::Map(entries) = &tree.shape else {
        return Err(whole("a document is a mapping whose first key names its kind".to_owned()));
    };
    let Some((first, _)) = entries.first() else {
        return Err(whole("the document is empty".to_owned()));
    };
    let names = || DocumentKind::ALL.iter().map(|kind| kind.name());
    let Some(kind) = DocumentKind::ALL.into_iter().find(|kind| kind.name() == first) else {
        // Perhaps the kind is there, only not in the first place.
        let message = match entries.iter().find(|(key, _)| names().any(|name| name == key)) {
            Some((kind, _)) => {
                format!("the first key names the kind: put `{kind}` before `{}`", nearest::shown(first))
            }
            None => format!(
                "`{}` is no kind of document.{}",
                nearest::shown(first),
                match nearest::hint(first, names()) {
                    near if near.is_empty() =>
                        format!(" There are {}.", names().collect::<Vec<_>>().join(", ")),
                    near => near,
                }
            ),
        };
        return Err(whole(message));
    };
    match kind {
        DocumentKind::ItemType => read(origin, tree, Document::ItemType),
        DocumentKind::Policy => read(origin, tree, Document::Policy),
        DocumentKind::Action => read(origin, tree, Document::Action),
        DocumentKind::Rule => read(origin, tree, Document::Rule),
        DocumentKind::Endpoint => read(origin, tree, Document::Endpoint),
        DocumentKind::Threshold => read(origin, tree, Document::Threshold),
        DocumentKind::Queue => read(origin, tree, Document::Queue),
        DocumentKind::Window => read(origin, tree, Document::Window),
        DocumentKind::Bank => read(origin, tree, Document::Bank),
    }
}

/// Goes on past each unknown field, so that all of them are found in one run.
fn read<T: DeserializeOwned>(
    origin: &Origin,
    mut tree: Tree,
    wrap: impl Fn(T) -> Document,
) -> Result<Document, Vec<DocumentFault>> {
    let mut faults = Vec::new();
    let fault = |path: String, line: Option<u32>, message: String| DocumentFault {
        origin: origin.clone(),
        line,
        path,
        message,
    };
    loop {
        match T::deserialize(&tree) {
            Ok(document) => {
                let document = wrap(document);
                for (path, message) in document.check() {
                    let line = tree.line_at(&steps(&path));
                    faults.push(fault(path, line, message));
                }
                return if faults.is_empty() { Ok(document) } else { Err(faults) };
            }
            Err(misfit) => {
                let path = misfit.path();
                let Misfit { message, unknown_field, .. } = misfit;
                faults.push(fault(shown(&path), tree.line_at(&path), message));
                if !(unknown_field && tree.remove(&path)) {
                    return Err(faults);
                }
            }
        }
    }
}

/// Reads a path that one of our own checks has written: `fields[2].type`.
fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (key, rest) = part.split_once('[').unwrap_or((part, ""));
        steps.push(Step::Key(key.to_owned()));
        steps.extend(rest.trim_end_matches(']').parse().ok().map(Step::Index));
    }
    steps
}
