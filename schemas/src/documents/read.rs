//! Reads documents out of files, YAML or JSON, and finds everything that is wrong with each by itself.
//!
//! It does not look from one document to another; see `set`.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic, thread,
};

use serde::de::DeserializeOwned;

use super::{
    Document, DocumentFault, DocumentKind, Missing, Origin, attached,
    recovery::{self, Reading},
    tree::{Shape, Step, Tree, shown},
};
use crate::{json, nearest, validation_error::Pointer};

/// Documents of a set of files, as far as they can be read.
#[derive(Debug, Default)]
pub struct Parsed {
    pub documents: Vec<(Origin, Document)>,
    pub faults: Vec<DocumentFault>,
    /// Places where a value was put in or left out so that the rest of the document could be read.
    substituted: Vec<(Origin, String)>,
    /// Keys of documents that are not among these.
    unread: Vec<String>,
    /// Kinds of which there may be documents that not even the key is known of.
    torn: BTreeSet<DocumentKind>,
    /// A field of an item type may be missing.
    fields_missing: bool,
}

impl Parsed {
    /// True if the error may be a consequence of something that could not be read.
    pub fn is_in_doubt(&self, fault: &DocumentFault) -> bool {
        let is_mended = self.substituted.iter().any(|(origin, path)| {
            let rest = fault.path.strip_prefix(path.as_str());
            fault.origin == *origin
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        is_mended
            || match &fault.missing {
                Some(Missing::Document(kind, key)) => self.torn.contains(kind) || self.unread.contains(key),
                Some(Missing::Field) => self.fields_missing,
                None => false,
            }
    }

    /// There is a file that could not be read, with any documents.
    pub fn lacks(&mut self, unread: DocumentFault) {
        // Of a bank whose file it is, the file is not missing; of one that was named by nobody, anything may be.
        let is_its = |(origin, document): &&(Origin, Document)| {
            let file = attached::wanted(origin, document);
            file.is_some_and(|file| file.is_ok_and(|file| file == unread.origin.file))
        };
        let before = self.substituted.len();
        self.substituted.extend(
            self.documents.iter().filter(is_its).map(|(origin, _)| (origin.clone(), "file".to_owned())),
        );
        if self.substituted.len() == before {
            self.unread(None, None);
        }
        self.faults.push(unread);
    }

    /// There is a document, and this is all that is known of its key.
    fn unread(&mut self, key: Option<String>, kind: Option<DocumentKind>) {
        self.fields_missing |= kind.is_none_or(|kind| kind == DocumentKind::ItemType);
        match (key, kind) {
            (Some(key), _) => self.unread.push(key),
            (None, Some(kind)) => drop(self.torn.insert(kind)),
            (None, None) => self.torn.extend(DocumentKind::ALL),
        }
    }
}

/// Reads every document of every file: name and text. A name ending in `.json` means JSON, any other YAML, unless a bank
/// names the file: then it holds entries of the bank.
pub fn parse(
    files: &[(impl AsRef<str>, impl AsRef<str>)],
) -> Result<Vec<(Origin, Document)>, Vec<DocumentFault>> {
    let parsed = parse_all(files);
    if parsed.faults.is_empty() { Ok(parsed.documents) } else { Err(parsed.faults) }
}

/// Parses like [`parse`], and returns what can be read even if there are errors, so that it can be checked too.
pub fn parse_all(files: &[(impl AsRef<str>, impl AsRef<str>)]) -> Parsed {
    let mut parsed = Parsed::default();
    let named = files.iter().map(|(name, text)| (name.as_ref(), text.as_ref()));
    let (likely, others): (Vec<_>, Vec<_>) = named.partition(|(name, _)| attached::is_document(name));
    for (name, text) in likely {
        parsed.file(name, text);
    }
    let wanted: BTreeSet<String> = parsed
        .documents
        .iter()
        .filter_map(|(origin, document)| attached::wanted(origin, document)?.ok())
        .collect();
    let mut attached = BTreeMap::new();
    for (name, text) in others {
        if wanted.contains(name) {
            attached.insert(name.to_owned(), text);
        } else {
            parsed.file(name, text);
        }
    }
    attached::read_in(&mut parsed.documents, &attached, &mut parsed.faults);
    parsed
}

impl Parsed {
    fn file(&mut self, name: &str, text: &str) {
        if name.to_ascii_lowercase().ends_with(".json") {
            match json_trees(name, text) {
                Ok(trees) => self.trees(name, trees, 0),
                Err(faults) => {
                    self.faults.extend(faults);
                    self.unread(None, None);
                }
            }
            return;
        }
        match yaml_trees(name, text) {
            Ok(trees) => self.trees(name, trees, 0),
            Err(_) => self.torn_yaml(name, text),
        }
    }

    /// One by one: a document that is no YAML does not hide the others.
    fn torn_yaml(&mut self, name: &str, text: &str) {
        let (mut index, mut found) = (0, 0);
        for (above, part) in yaml_parts(text) {
            match yaml_trees(name, part) {
                Ok(mut trees) => {
                    trees.iter_mut().for_each(|tree| tree.shift(above));
                    let next = index + trees.len();
                    self.trees(name, trees, index);
                    index = next;
                }
                Err(mut faults) => {
                    for fault in &mut faults {
                        fault.origin.line = fault.origin.line.saturating_add(above);
                        fault.origin.index = Some(index);
                        // It counts from the beginning of the part.
                        fault
                            .message
                            .truncate(fault.message.find(" at line ").unwrap_or(fault.message.len()));
                    }
                    self.faults.extend(faults);
                    let (kind, key) = beginning(part);
                    self.unread(key, kind);
                    index += 1;
                    found += 1;
                    if found == MOST_TORN {
                        self.unread(None, None);
                        return;
                    }
                }
            }
        }
    }

    fn trees(&mut self, name: &str, trees: Vec<Tree>, first: usize) {
        for (index, tree) in (first..).zip(trees) {
            let origin = Origin { file: name.to_owned(), line: tree.line.unwrap_or(0), index: Some(index) };
            document(&origin, tree, self);
        }
    }
}

/// Torn documents of one file that are told.
const MOST_TORN: usize = 100;

/// The documents of a YAML text, each with the number of lines above it.
fn yaml_parts(text: &str) -> Vec<(u32, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut first, mut at) = (0, 0, 0);
    for (line, content) in (0..).zip(text.split_inclusive('\n')) {
        let marks =
            content.strip_prefix("---").is_some_and(|rest| rest.trim_start() != rest || rest.is_empty());
        if marks && at > start {
            parts.push((first, &text[start..at]));
            (start, first) = (at, line);
        }
        at += content.len();
    }
    parts.push((first, &text[start..]));
    parts
}

/// Kind and key of a document that is no YAML, as far as its first line is whole.
fn beginning(part: &str) -> (Option<DocumentKind>, Option<String>) {
    let mut lines = part.lines().map(|line| line.strip_prefix("---").unwrap_or(line).trim());
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let Some((kind, key)) = first.and_then(|first| first.split_once(':')) else { return (None, None) };
    let kind = DocumentKind::ALL.into_iter().find(|known| known.name() == kind.trim());
    let key = key.trim().trim_matches(['"', '\'']);
    (kind, (kind.is_some() && super::is_key(key)).then(|| key.to_owned()))
}

/// Greatest nesting depth of a document: 32 levels of conditions take twice as many mappings and lists, plus the last
/// condition. Reporting too many conditions is up to the rule reader. The depth stays below what `serde_json` reads
/// back.
pub(super) const MAX_DEPTH: usize = 96;

/// Also an empty text is a document, with a beginning and an end.
const LEAST_PARTS: usize = 16;

fn yaml_trees(name: &str, text: &str) -> Result<Vec<Tree>, Vec<DocumentFault>> {
    on_a_deep_stack(&|| yaml_trees_here(name, text))
}

fn yaml_trees_here(name: &str, text: &str) -> Result<Vec<Tree>, Vec<DocumentFault>> {
    // What is written out has at most as many parts as the text has bytes, and how long a text may be is for others to
    // say. Only what aliases repeat has bounds of its own.
    let most = text.len() + LEAST_PARTS;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_documents: most,
            max_nodes: most,
            max_events: 2 * most,
        },
        strict_booleans: true,
        with_snippet: false,
    };
    let fault = |line: Option<u32>, message: String| {
        let origin = Origin { file: name.to_owned(), line: line.unwrap_or(0), index: None };
        vec![DocumentFault::new(&origin, "", message)]
    };
    let mut trees: Vec<Tree> = serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let line = error.location().and_then(|at| u32::try_from(at.line()).ok());
        let column = error.location().map_or(String::new(), |at| format!("column {}: ", at.column()));
        fault(line, column + &said(error.without_snippet()))
    })?;
    let exact = trees.iter_mut().try_for_each(|tree| tree.exact(text));
    exact.map_err(|(line, why)| fault(line, why))?;
    Ok(trees)
}

/// A level of YAML takes the parser tens of kilobytes of stack in a build without optimization.
const STACK: usize = 16 << 20;

fn on_a_deep_stack<T: Send>(read: &(dyn Fn() -> T + Sync)) -> T {
    thread::scope(|scope| {
        let deep = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, read);
        match deep.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(read)) => read,
            Ok(Err(panic)) => panic::resume_unwind(panic),
            // No thread is to be had: most documents need none.
            Err(_) => read(),
        }
    })
}

/// Describes the error of a YAML text in our words.
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
        Error::InvalidScalar { .. } => "the value is not what its tag says: leave the tag away".to_owned(),
        Error::InvalidUtf8Input => "it is no UTF-8".to_owned(),
        _ => {
            "this is no YAML, here or just before: look at brackets, quotes, colons and how far lines stand in"
                .to_owned()
        }
    }
}

/// One document, or a list of them.
fn json_trees(name: &str, text: &str) -> Result<Vec<Tree>, Vec<DocumentFault>> {
    let origin = Origin { file: name.to_owned(), line: 0, index: None };
    // YAML says itself that a byte order mark may stand first; of JSON each program thinks otherwise.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tape = json::scan_to(text.as_bytes(), &Pointer::Root, MAX_DEPTH).map_err(
        |faults| -> Vec<DocumentFault> {
            faults.iter().map(|fault| DocumentFault::new(&origin, "", fault.to_string())).collect()
        },
    )?;
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line = |at: usize| u32::try_from(ends.partition_point(|end| *end < at) + 1).unwrap_or(0);
    let root = Tree::of_json(tape.root(text.as_bytes()), &line)
        .map_err(|(line, why)| vec![DocumentFault::new(&Origin { line, ..origin }, "", why)])?;
    Ok(match root.shape {
        Shape::List(documents) => documents,
        _ => vec![root],
    })
}

fn document(origin: &Origin, tree: Tree, parsed: &mut Parsed) {
    let kind = match kind(&tree) {
        Ok(kind) => kind,
        Err(message) => {
            parsed.faults.push(DocumentFault::new(origin, "", message));
            // Whatever it should be, one of these is its key.
            parsed.fields_missing = true;
            if let Shape::Map(entries) = tree.shape {
                parsed.unread.extend(entries.into_iter().filter_map(|(_, value)| match value.shape {
                    Shape::Text(key) if super::is_key(&key) => Some(key),
                    _ => None,
                }));
            }
            return;
        }
    };
    match kind {
        DocumentKind::ItemType => read(origin, (kind, tree), Document::ItemType, parsed),
        DocumentKind::Policy => read(origin, (kind, tree), Document::Policy, parsed),
        DocumentKind::Action => read(origin, (kind, tree), Document::Action, parsed),
        DocumentKind::Rule => read(origin, (kind, tree), Document::Rule, parsed),
        DocumentKind::Endpoint => read(origin, (kind, tree), Document::Endpoint, parsed),
        DocumentKind::Threshold => read(origin, (kind, tree), Document::Threshold, parsed),
        DocumentKind::Queue => read(origin, (kind, tree), Document::Queue, parsed),
        DocumentKind::Routing => read(origin, (kind, tree), Document::Routing, parsed),
        DocumentKind::Window => read(origin, (kind, tree), Document::Window, parsed),
        DocumentKind::Bank => read(origin, (kind, tree), Document::Bank, parsed),
        DocumentKind::Signal => read(origin, (kind, tree), Document::Signal, parsed),
    }
}

fn kind(tree: &Tree) -> Result<DocumentKind, String> {
    let Shape::Map(entries) = &tree.shape else {
        return Err("a document is a mapping whose first key names its kind".to_owned());
    };
    let Some((first, _)) = entries.first() else {
        return Err("the document is empty".to_owned());
    };
    let names = || DocumentKind::ALL.iter().map(|kind| kind.name());
    if let Some(kind) = DocumentKind::ALL.into_iter().find(|kind| kind.name() == first) {
        return Ok(kind);
    }
    // Perhaps the kind is there, only not in the first place.
    Err(match entries.iter().find(|(key, _)| names().any(|name| name == key)) {
        Some((kind, _)) => {
            format!("the first key names the kind: put `{kind}` before `{}`", nearest::shown(first))
        }
        None => format!(
            "`{}` is no kind of document.{}",
            nearest::shown(first),
            match nearest::hint(first, names()) {
                near if near.is_empty() => format!(" There are {}.", names().collect::<Vec<_>>().join(", ")),
                near => near,
            }
        ),
    })
}

fn read<T: DeserializeOwned>(
    origin: &Origin,
    (kind, mut tree): (DocumentKind, Tree),
    wrap: impl Fn(T) -> Document,
    parsed: &mut Parsed,
) {
    let written = match &tree.shape {
        Shape::Map(entries) => entries.first().map(|(kind, key)| (kind.clone(), key.shape.clone())),
        _ => None,
    };
    let before = tree.clone();
    let Reading { document, misfits, substituted } = recovery::read(&mut tree);
    for (path, message) in misfits {
        let line = before.line_at(&path);
        parsed.faults.push(DocumentFault { line, ..DocumentFault::new(origin, shown(&path), message) });
    }
    let first = written.as_ref().map(|(kind, _)| vec![Step::Key(kind.clone())]);
    let has_key = !substituted.iter().any(|path| Some(path) == first.as_ref());
    let Some(document) = document.map(wrap).filter(|_| has_key) else {
        let key = match written {
            Some((_, Shape::Text(key))) => Some(key),
            _ => None,
        };
        parsed.unread(key, Some(kind));
        return;
    };
    parsed.fields_missing |= document.kind() == DocumentKind::ItemType && !substituted.is_empty();
    parsed.substituted.extend(substituted.iter().map(|path| (origin.clone(), shown(path))));
    for (path, message) in document.check() {
        let line = tree.line_at(&steps(&path));
        let fault = DocumentFault { line, ..DocumentFault::new(origin, path, message) };
        if !parsed.is_in_doubt(&fault) {
            parsed.faults.push(fault);
        }
    }
    parsed.documents.push((origin.clone(), document));
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
