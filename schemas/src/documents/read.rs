//! Parses documents from YAML and JSON files and reports the errors of each document. References between documents are
//! checked in `set`.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic, thread,
};

use serde::de::DeserializeOwned;

use super::{
    Document, DocumentFault, DocumentKind, MissingReference, Origin, attached,
    recovery::{self, Reading},
    tree::{Shape, Step, Tree, render_path},
};
use crate::{json, nearest, validation_error::Pointer};

/// Readable documents of a set of files, with the errors of the others.
#[derive(Debug, Default)]
pub struct ParsedDocuments {
    pub documents: Vec<(Origin, Document)>,
    pub faults: Vec<DocumentFault>,
    /// Places of invalid values that were replaced or removed to read the rest of the document.
    substituted: Vec<(Origin, String)>,
    /// Keys of documents that could not be read.
    unread_keys: Vec<String>,
    /// Kinds of unreadable documents with unknown keys.
    torn_kinds: BTreeSet<DocumentKind>,
    /// True if a field of an item type may be defined in an unreadable document.
    may_lack_fields: bool,
}

impl ParsedDocuments {
    /// True if the error may be a consequence of an unreadable document or value.
    pub fn is_in_doubt(&self, fault: &DocumentFault) -> bool {
        let is_substituted = self.substituted.iter().any(|(origin, path)| {
            let rest = fault.path.strip_prefix(path.as_str());
            fault.origin == *origin
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        is_substituted
            || match &fault.missing {
                Some(MissingReference::Document(kind, key)) => {
                    self.torn_kinds.contains(kind) || self.unread_keys.contains(key)
                }
                Some(MissingReference::Field) => self.may_lack_fields,
                None => false,
            }
    }

    /// Adds the error of a file that could not be read.
    pub fn add_unreadable_file(&mut self, fault: DocumentFault) {
        // The entry file of a bank affects that bank only. Any other file may contain any documents.
        let names_file = |(origin, document): &&(Origin, Document)| {
            let file = attached::attached_file(origin, document);
            file.is_some_and(|file| file.is_ok_and(|file| file == fault.origin.file))
        };
        let before = self.substituted.len();
        self.substituted.extend(
            self.documents.iter().filter(names_file).map(|(origin, _)| (origin.clone(), "file".to_owned())),
        );
        if self.substituted.len() == before {
            self.note_unread(None, None);
        }
        self.faults.push(fault);
    }

    /// Records an unreadable document by its key and kind, as far as they are known.
    fn note_unread(&mut self, key: Option<String>, kind: Option<DocumentKind>) {
        self.may_lack_fields |= kind.is_none_or(|kind| kind == DocumentKind::ItemType);
        match (key, kind) {
            (Some(key), _) => self.unread_keys.push(key),
            (None, Some(kind)) => drop(self.torn_kinds.insert(kind)),
            // Any reference may point to the unreadable document, so no name is reported as missing.
            (None, None) => self.torn_kinds.extend(DocumentKind::ALL),
        }
    }
}

/// Parses all documents of files, given as name and text. Files ending in `.json` are JSON, others are YAML. A file
/// that a bank names contains its entries.
pub fn parse(
    files: &[(impl AsRef<str>, impl AsRef<str>)],
) -> Result<Vec<(Origin, Document)>, Vec<DocumentFault>> {
    let parsed = parse_all(files);
    if parsed.faults.is_empty() { Ok(parsed.documents) } else { Err(parsed.faults) }
}

/// Parses like [`parse`], and also returns the readable documents if there are errors, so that they can be checked too.
pub fn parse_all(files: &[(impl AsRef<str>, impl AsRef<str>)]) -> ParsedDocuments {
    let mut parsed = ParsedDocuments::default();
    let named_texts = files.iter().map(|(name, text)| (name.as_ref(), text.as_ref()));
    let (document_files, other_files): (Vec<_>, Vec<_>) =
        named_texts.partition(|(name, _)| attached::is_document(name));
    // Documents are read first, because banks decide which other files contain entries.
    for (name, text) in document_files {
        parsed.read_file(name, text);
    }
    let attached_names: BTreeSet<String> = parsed
        .documents
        .iter()
        .filter_map(|(origin, document)| attached::attached_file(origin, document)?.ok())
        .collect();
    let mut attached_texts = BTreeMap::new();
    for (name, text) in other_files {
        if attached_names.contains(name) {
            attached_texts.insert(name.to_owned(), text);
        } else {
            parsed.read_file(name, text);
        }
    }
    attached::read_attached_files(&mut parsed.documents, &attached_texts, &mut parsed.faults);
    parsed
}

impl ParsedDocuments {
    fn read_file(&mut self, name: &str, text: &str) {
        if name.to_ascii_lowercase().ends_with(".json") {
            match parse_json(name, text) {
                Ok(trees) => self.read_trees(name, trees, 0),
                Err(faults) => {
                    self.faults.extend(faults);
                    self.note_unread(None, None);
                }
            }
            return;
        }
        match parse_yaml(name, text) {
            Ok(trees) => self.read_trees(name, trees, 0),
            // The error of the whole file is dropped: the parts report it with their own lines.
            Err(_) => self.read_torn_yaml(name, text),
        }
    }

    /// Parses the documents of a file one by one, so that a document with invalid YAML does not hide the others.
    fn read_torn_yaml(&mut self, name: &str, text: &str) {
        let (mut index, mut torn_count) = (0, 0);
        for (lines_above, part) in split_yaml(text) {
            match parse_yaml(name, part) {
                Ok(mut trees) => {
                    trees.iter_mut().for_each(|tree| tree.shift_lines(lines_above));
                    let next = index + trees.len();
                    self.read_trees(name, trees, index);
                    index = next;
                }
                Err(mut faults) => {
                    for fault in &mut faults {
                        fault.origin.line = fault.origin.line.saturating_add(lines_above);
                        fault.origin.index = Some(index);
                        // The line in the parser's message counts from the start of the part, and the fault has the
                        // right one.
                        fault
                            .message
                            .truncate(fault.message.find(" at line ").unwrap_or(fault.message.len()));
                    }
                    self.faults.extend(faults);
                    let (kind, key) = parse_heading(part);
                    self.note_unread(key, kind);
                    index += 1;
                    torn_count += 1;
                    if torn_count == MAX_TORN_DOCUMENTS {
                        self.note_unread(None, None);
                        return;
                    }
                }
            }
        }
    }

    fn read_trees(&mut self, name: &str, trees: Vec<Tree>, first: usize) {
        for (index, tree) in (first..).zip(trees) {
            let origin = Origin { file: name.to_owned(), line: tree.line.unwrap_or(0), index: Some(index) };
            read_document(&origin, tree, self);
        }
    }
}

/// Maximum number of reported documents with invalid YAML per file.
const MAX_TORN_DOCUMENTS: usize = 100;

/// Splits a YAML text into documents, each with the number of lines above it.
fn split_yaml(text: &str) -> Vec<(u32, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut first, mut at) = (0, 0, 0);
    for (line, content) in (0..).zip(text.split_inclusive('\n')) {
        // `---` separates documents only if white space or the end of the line follows.
        let is_separator =
            content.strip_prefix("---").is_some_and(|rest| rest.trim_start() != rest || rest.is_empty());
        if is_separator && at > start {
            parts.push((first, &text[start..at]));
            (start, first) = (at, line);
        }
        at += content.len();
    }
    parts.push((first, &text[start..]));
    parts
}

/// Returns kind and key of a document with invalid YAML, as far as its first line is readable.
fn parse_heading(part: &str) -> (Option<DocumentKind>, Option<String>) {
    let mut lines = part.lines().map(|line| line.strip_prefix("---").unwrap_or(line).trim());
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let Some((kind, key)) = first.and_then(|first| first.split_once(':')) else { return (None, None) };
    let kind = DocumentKind::ALL.into_iter().find(|known| known.name() == kind.trim());
    let key = key.trim().trim_matches(['"', '\'']);
    (kind, (kind.is_some() && super::is_key(key)).then(|| key.to_owned()))
}

/// Maximum nesting depth of a document: 32 levels of conditions take twice as many mappings and lists, plus the last
/// condition. `tidegate-rules` reports conditions that are nested deeper. `serde_json` reads back at most 128 levels.
pub(super) const MAX_DEPTH: usize = 96;

/// Minimum budget for parts: even an empty text has events for the start and the end of a document.
const MIN_PARTS: usize = 16;

fn parse_yaml(name: &str, text: &str) -> Result<Vec<Tree>, Vec<DocumentFault>> {
    run_on_deep_stack(&|| parse_yaml_on_this_stack(name, text))
}

fn parse_yaml_on_this_stack(name: &str, text: &str) -> Result<Vec<Tree>, Vec<DocumentFault>> {
    // A text has at most as many parts as bytes, so only aliases, which repeat parts, can exceed this budget. Callers
    // limit the length of the text.
    let max_parts = text.len() + MIN_PARTS;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_documents: max_parts,
            max_nodes: max_parts,
            max_events: 2 * max_parts,
        },
        // Without it, `no` and `off` would be booleans, as in YAML 1.1.
        strict_booleans: true,
        // A snippet would show values, which can be secret headers.
        with_snippet: false,
    };
    let fault = |line: Option<u32>, message: String| {
        let origin = Origin { file: name.to_owned(), line: line.unwrap_or(0), index: None };
        vec![DocumentFault::new(&origin, "", message)]
    };
    let mut trees: Vec<Tree> = serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let line = error.location().and_then(|at| u32::try_from(at.line()).ok());
        let column = error.location().map_or(String::new(), |at| format!("column {}: ", at.column()));
        fault(line, column + &describe_yaml_error(error.without_snippet()))
    })?;
    let exact_numbers = trees.iter_mut().try_for_each(|tree| tree.read_exact_numbers(text));
    exact_numbers.map_err(|(line, message)| fault(line, message))?;
    Ok(trees)
}

/// Stack size of the parser. In a build without optimization, a level of YAML takes tens of kilobytes.
const STACK_BYTES: usize = 16 << 20;

fn run_on_deep_stack<T: Send>(read: &(dyn Fn() -> T + Sync)) -> T {
    thread::scope(|scope| {
        let reader = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, read);
        match reader.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(read)) => read,
            // A panic of the parser is a defect and must not look like an invalid document.
            Ok(Err(panic)) => panic::resume_unwind(panic),
            // Without a further thread the current stack is used, which suffices for most documents.
            Err(_) => read(),
        }
    })
}

/// Describes a YAML error without the parser's text, which can quote values.
fn describe_yaml_error(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key `{}` occurs twice", nearest::truncate_name(key))
        }
        Error::DuplicateMappingKey { .. } => "a key occurs twice".to_owned(),
        Error::UnknownAnchor { .. } => "the alias has no anchor before it".to_owned(),
        Error::AliasError { error, .. } => describe_yaml_error(error),
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "the document is nested too deeply, or its aliases repeat too much".to_owned()
        }
        Error::NonFiniteFloat { .. } => "a number must be finite".to_owned(),
        Error::InvalidScalar { .. } => "the value does not match its tag: remove the tag".to_owned(),
        Error::InvalidUtf8Input => "the text is not valid UTF-8".to_owned(),
        _ => "invalid YAML, here or just before: check brackets, quotes, colons and indentation".to_owned(),
    }
}

/// Parses a JSON document, or a list of documents.
fn parse_json(name: &str, text: &str) -> Result<Vec<Tree>, Vec<DocumentFault>> {
    let origin = Origin { file: name.to_owned(), line: 0, index: None };
    // The YAML parser skips a byte order mark; the JSON scan refuses it, although editors write it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tape = json::scan_to(text.as_bytes(), &Pointer::Root, MAX_DEPTH).map_err(
        |faults| -> Vec<DocumentFault> {
            faults.iter().map(|fault| DocumentFault::new(&origin, "", fault.to_string())).collect()
        },
    )?;
    let line_ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line = |at: usize| u32::try_from(line_ends.partition_point(|end| *end < at) + 1).unwrap_or(0);
    let root = Tree::of_json(tape.root(text.as_bytes()), &line)
        .map_err(|(line, message)| vec![DocumentFault::new(&Origin { line, ..origin }, "", message)])?;
    Ok(match root.shape {
        Shape::List(documents) => documents,
        _ => vec![root],
    })
}

fn read_document(origin: &Origin, tree: Tree, parsed: &mut ParsedDocuments) {
    let kind = match document_kind(&tree) {
        Ok(kind) => kind,
        Err(message) => {
            parsed.faults.push(DocumentFault::new(origin, "", message));
            // The kind is unknown, so any text among the values may be the key of the document.
            parsed.may_lack_fields = true;
            if let Shape::Map(entries) = tree.shape {
                parsed.unread_keys.extend(entries.into_iter().filter_map(|(_, value)| match value.shape {
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

fn document_kind(tree: &Tree) -> Result<DocumentKind, String> {
    let Shape::Map(entries) = &tree.shape else {
        return Err("a document must be a mapping with its kind as the first key".to_owned());
    };
    let Some((first, _)) = entries.first() else {
        return Err("the document is empty".to_owned());
    };
    let names = || DocumentKind::ALL.iter().map(|kind| kind.name());
    if let Some(kind) = DocumentKind::ALL.into_iter().find(|kind| kind.name() == first) {
        return Ok(kind);
    }
    // A common mistake: the kind is present, but is not the first key.
    Err(match entries.iter().find(|(key, _)| names().any(|name| name == key)) {
        Some((kind, _)) => {
            format!("the first key names the kind: put `{kind}` before `{}`", nearest::truncate_name(first))
        }
        None => format!(
            "`{}` is not a kind of document.{}",
            nearest::truncate_name(first),
            match nearest::hint(first, names()) {
                suggestion if suggestion.is_empty() =>
                    format!(" Known kinds are {}.", names().collect::<Vec<_>>().join(", ")),
                suggestion => suggestion,
            }
        ),
    })
}

fn read<T: DeserializeOwned>(
    origin: &Origin,
    (kind, mut tree): (DocumentKind, Tree),
    wrap: impl Fn(T) -> Document,
    parsed: &mut ParsedDocuments,
) {
    let first_entry = match &tree.shape {
        Shape::Map(entries) => entries.first().map(|(kind, key)| (kind.clone(), key.shape.clone())),
        _ => None,
    };
    // Recovery changes the tree, but errors need the lines of the original.
    let original = tree.clone();
    let Reading { document, misfits, substituted } = recovery::read(&mut tree);
    for (path, message) in misfits {
        let line = original.line_at(&path);
        parsed.faults.push(DocumentFault { line, ..DocumentFault::new(origin, render_path(&path), message) });
    }
    let key_path = first_entry.as_ref().map(|(kind, _)| vec![Step::Key(kind.clone())]);
    let has_key = !substituted.iter().any(|path| Some(path) == key_path.as_ref());
    let Some(document) = document.map(wrap).filter(|_| has_key) else {
        let key = match first_entry {
            Some((_, Shape::Text(key))) => Some(key),
            _ => None,
        };
        parsed.note_unread(key, Some(kind));
        return;
    };
    parsed.may_lack_fields |= document.kind() == DocumentKind::ItemType && !substituted.is_empty();
    parsed.substituted.extend(substituted.iter().map(|path| (origin.clone(), render_path(path))));
    for (path, message) in document.check() {
        let line = tree.line_at(&parse_path(&path));
        let fault = DocumentFault { line, ..DocumentFault::new(origin, path, message) };
        // Replaced values can cause further errors, which are not errors of the author.
        if !parsed.is_in_doubt(&fault) {
            parsed.faults.push(fault);
        }
    }
    parsed.documents.push((origin.clone(), document));
}

/// Parses a path that a check of this crate has written, such as `fields[2].type`.
fn parse_path(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (key, rest) = part.split_once('[').unwrap_or((part, ""));
        steps.push(Step::Key(key.to_owned()));
        steps.extend(rest.trim_end_matches(']').parse().ok().map(Step::Index));
    }
    steps
}
