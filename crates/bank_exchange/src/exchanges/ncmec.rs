//! Reads hash sharing files of NCMEC, version 2 (XML).

use std::{collections::BTreeMap, io::BufRead};

use quick_xml::{Reader, XmlVersion, escape::resolve_xml_entity, events::Event, name::QName};
use tidegate_schemas::banks::BankKind;

use super::add;
use crate::{
    FileEntries, FileError,
    entry::{Change, FileEntry, Position, hash_kind},
    length_limit::{LengthLimit, LimitedReader, limit_length},
};

/// Fields of an image or a video. A withdrawn one has names only.
#[derive(Default)]
struct Record {
    /// Texts of `member`, `id` and `classification`.
    texts: BTreeMap<&'static str, String>,
    /// Name that the record has twice.
    repeated: Option<&'static str>,
    /// Element name and value.
    fingerprints: Vec<(String, String)>,
}

/// Returns the entries of an XML file. A record with several hashes of the kind is one entry for each.
pub(crate) fn ncmec_entries(file: impl BufRead + 'static, kind: BankKind) -> FileEntries {
    let (file, limit) = limit_length(file);
    let mut reader = Reader::from_reader(file);
    // An empty element then has a start and an end like any other.
    reader.config_mut().expand_empty_elements = true;
    let mut parser = NcmecParser { reader, limit, parents: Vec::new(), has_root: false };
    let mut number = 0;
    let mut position = Position { line: 1, record: None };
    let mut pending_changes: Vec<Change> = Vec::new();
    let mut is_finished = false;
    Box::new(std::iter::from_fn(move || {
        loop {
            if let Some(change) = pending_changes.pop() {
                return Some(Ok(FileEntry { position, change: Ok(change) }));
            }
            if is_finished {
                return None;
            }
            parser.limit.renew();
            match parser.next_record() {
                Ok(Some(OpenRecord { record, is_withdrawn, line, .. })) => {
                    number += 1;
                    position = Position { line, record: Some(number) };
                    match record.into_changes(kind, is_withdrawn) {
                        Ok(changes) => pending_changes = changes,
                        Err(reason) => return Some(Ok(FileEntry { position, change: Err(reason) })),
                    }
                }
                // Without this check, a file of another format would pass as an empty one.
                Ok(None) if number == 0 && !parser.has_root => {
                    is_finished = true;
                    return Some(Err(FileError::new(format!(
                        "it is none of NCMEC: it has no image, no video and no `{ROOT}`"
                    ))));
                }
                Ok(None) => is_finished = true,
                Err(error) => {
                    is_finished = true;
                    return Some(Err(error.at(format!("line {}", parser.limit.line()))));
                }
            }
        }
    }))
}

struct NcmecParser<R> {
    reader: Reader<LimitedReader<R>>,
    limit: LengthLimit,
    /// Open elements around the records.
    parents: Vec<String>,
    /// True once the outermost element has NCMEC's name: a file without records is valid then.
    has_root: bool,
}

const ROOT: &str = "queryResult";

/// Image or video that is being read.
struct OpenRecord {
    record: Record,
    is_withdrawn: bool,
    name: String,
    /// Line in which it begins.
    line: u64,
}

/// Returns a name without its name space.
fn local_name(name: QName<'_>) -> String {
    name.0.rsplit(':').next().unwrap_or(name.0).to_owned()
}

impl<R: BufRead> NcmecParser<R> {
    fn next_record(&mut self) -> Result<Option<OpenRecord>, FileError> {
        let mut buffer = Vec::new();
        // Open elements within the record, and the text of the innermost one so far.
        let (mut path, mut content): (Vec<String>, _) = (Vec::new(), String::new());
        let mut open_record: Option<OpenRecord> = None;
        loop {
            buffer.clear();
            let line = self.limit.line();
            match self.reader.read_event_into(&mut buffer)? {
                Event::Start(start) => {
                    let name = local_name(start.name());
                    match &mut open_record {
                        Some(OpenRecord { record, .. }) => {
                            // Feedback further down names other members; only the member that lists the record counts.
                            if path.is_empty() && name == "member" {
                                let id = start
                                    .attributes()
                                    .flatten()
                                    .find(|attribute| local_name(attribute.key) == "id");
                                let id = id
                                    .map(|attribute| attribute.normalized_value(XmlVersion::Implicit1_0))
                                    .transpose()?;
                                record.set_text("member", &id.unwrap_or_default());
                            }
                            path.push(name);
                            content.clear();
                        }
                        None if matches!(
                            name.as_str(),
                            "image" | "video" | "deletedImage" | "deletedVideo"
                        ) =>
                        {
                            let is_withdrawn = name.starts_with("deleted");
                            open_record =
                                Some(OpenRecord { record: Record::default(), is_withdrawn, name, line });
                        }
                        None => {
                            self.has_root |= self.parents.is_empty() && name == ROOT;
                            self.parents.push(name);
                        }
                    }
                }
                // The parser may split a text into several events.
                Event::Text(text) => content.push_str(&text),
                Event::CData(text) => content.push_str(&text),
                Event::GeneralRef(name) => match name.resolve_char_ref()? {
                    Some(letter) => content.push(letter),
                    None => match resolve_xml_entity(&name) {
                        Some(text) => content.push_str(text),
                        None => {
                            return Err(FileError::new(format!("the entity `&{};` is not defined", &*name)));
                        }
                    },
                },
                Event::End(end) => {
                    let name = local_name(end.name());
                    match &mut open_record {
                        Some(OpenRecord { name: open_name, .. }) if path.is_empty() && *open_name == name => {
                            return Ok(open_record);
                        }
                        Some(OpenRecord { record, .. }) => {
                            record.set_by_path(&path, content.trim());
                            path.pop();
                        }
                        None => drop(self.parents.pop()),
                    }
                    content.clear();
                }
                Event::Eof if open_record.is_some() => {
                    return Err(FileError::new("the file ends within an entry"));
                }
                Event::Eof => match self.parents.last() {
                    Some(name) => return Err(FileError::new(format!("the file ends within `{name}`"))),
                    None => return Ok(None),
                },
                _ => {}
            }
        }
    }
}

impl Record {
    fn set_by_path(&mut self, path: &[String], text: &str) {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["id"] => self.set_text("id", text),
            ["classification"] => self.set_text("classification", text),
            ["fingerprints", name] if !text.is_empty() => {
                self.fingerprints.push(((*name).to_owned(), text.to_owned()));
            }
            _ => {}
        }
    }

    fn set_text(&mut self, key: &'static str, text: &str) {
        // Of two values neither is known to be right, so the record is refused later.
        if self.texts.insert(key, text.to_owned()).is_some() {
            self.repeated.get_or_insert(key);
        }
    }

    fn into_changes(mut self, kind: BankKind, is_withdrawn: bool) -> Result<Vec<Change>, String> {
        if let Some(repeated) = self.repeated {
            return Err(format!("it has `{repeated}` twice"));
        }
        let mut take = |key: &str| self.texts.remove(key).filter(|text| !text.is_empty());
        let id = take("id").ok_or("it has no `id`")?;
        let source = format!("ncmec:{}", take("member").unwrap_or_default());
        // A withdrawn record has no fingerprints, so its earlier entries are found by its id.
        if is_withdrawn {
            return Ok(vec![Change::WithdrawByReference { source, reference: id }]);
        }
        let labels: Vec<String> = take("classification").into_iter().collect();
        let fingerprints = self.fingerprints.iter().map(|(name, value)| {
            if hash_kind(name) != kind.hash_kind() {
                return Change::OtherKind;
            }
            add(value, &source, Some(id.clone()), &labels)
        });
        let mut changes: Vec<_> = fingerprints.collect();
        if changes.is_empty() {
            return Err("it has no fingerprints".to_owned());
        }
        // The caller pops the changes from the end.
        changes.reverse();
        Ok(changes)
    }
}
