//! Reads the entry files of banks into their documents. Callers read the files and pass names and texts.

use std::collections::BTreeMap;

use super::{Bank, Document, DocumentFault, Origin, parse_all};

/// Maximum number of reported errors per file.
const MAX_REPORTED_FAULTS: usize = 100;

/// True for a name with the ending of a document file, in either case. Other files are read as documents unless a bank
/// names them.
pub(super) fn is_document(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending))
}

/// Returns the names of the entry files of all readable banks. Errors in other documents are ignored here, so that they
/// do not make an entry file look missing.
pub fn named_files(files: &[(impl AsRef<str>, impl AsRef<str>)]) -> Vec<String> {
    let documents =
        files.iter().flat_map(|(name, text)| parse_all(&[(name.as_ref(), text.as_ref())]).documents);
    let mut names: Vec<_> =
        documents.filter_map(|(origin, document)| attached_file(&origin, &document)?.ok()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the entry file of a bank, relative to the folder of the documents. `Err` if the file lies outside of that
/// folder.
pub(super) fn attached_file(origin: &Origin, document: &Document) -> Option<Result<String, ()>> {
    match document {
        Document::Bank(Bank { file: Some(file), .. }) => Some(resolve_path(&origin.file, file).ok_or(())),
        _ => None,
    }
}

fn resolve_path(document: &str, file: &str) -> Option<String> {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    // An absolute path leads out of the folder of the documents.
    if file.is_empty() || file.starts_with('/') {
        return None;
    }
    let mut path: Vec<&str> = folder.split('/').filter(|step| !step.is_empty()).collect();
    for step in file.split('/') {
        match step {
            "" | "." => {}
            // A path that leaves the folder of the documents is refused: it could name any file of the server.
            ".." => drop(path.pop()?),
            step => path.push(step),
        }
    }
    Some(path.join("/"))
}

/// Replaces the file names of banks by the entries of the files. The name of a missing file stays, so that the check
/// of references reports it.
pub(super) fn read_attached_files(
    documents: &mut [(Origin, Document)],
    attached: &BTreeMap<String, &str>,
    faults: &mut Vec<DocumentFault>,
) {
    for (origin, document) in documents {
        let name = match attached_file(origin, document) {
            None => continue,
            Some(Err(())) => {
                let message = "The file must lie in the folder of the documents.";
                faults.push(DocumentFault::new(origin, "file", message));
                continue;
            }
            Some(Ok(name)) => name,
        };
        if let (Some(text), Document::Bank(bank)) = (attached.get(&name), document) {
            read_entries(&name, text, bank, faults);
            // Stored documents contain the entries, because the file exists only on the author's machine.
            bank.file = None;
        }
    }
}

/// Reads one entry per line, without blank lines.
fn read_entries(name: &str, text: &str, bank: &mut Bank, faults: &mut Vec<DocumentFault>) {
    // Editors put a byte order mark first, which would become part of the first entry.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut fault_count = 0;
    for (line, entry) in (1..).zip(text.lines()).filter(|(_, entry)| !entry.trim().is_empty()) {
        match bank.kind.canonical(entry) {
            Ok(_) => bank.entries.push(entry.to_owned()),
            Err(reason) => {
                fault_count += 1;
                // A file in the wrong format can have a million invalid lines.
                if fault_count <= MAX_REPORTED_FAULTS {
                    let origin = Origin { file: name.to_owned(), line, index: None };
                    let message = format!("The entry is invalid in a {} bank: {reason}.", bank.kind.name());
                    faults.push(DocumentFault::new(&origin, "", message));
                }
            }
        }
    }
    if fault_count > MAX_REPORTED_FAULTS {
        let origin = Origin { file: name.to_owned(), line: 0, index: None };
        let message = format!("{} more entries are invalid.", fault_count - MAX_REPORTED_FAULTS);
        faults.push(DocumentFault::new(&origin, "", message));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::documents::parse;

    const BANK: &str = "bank: words\nkind: text\nentries: [own]\nfile: lists/words.txt\n";

    fn banks(files: &[(&str, &str)]) -> Result<Vec<Bank>, Vec<DocumentFault>> {
        let documents = parse(files)?.into_iter().filter_map(|(_, document)| match document {
            Document::Bank(bank) => Some(bank),
            _ => None,
        });
        Ok(documents.collect())
    }

    #[test]
    fn entry_file_is_resolved_relative_to_its_document() {
        let files = [("sub/banks.yaml", BANK), ("sub/lists/words.txt", "\u{feff}one\r\n\ntwo\n")];
        assert_eq!(named_files(&files[..1]), ["sub/lists/words.txt"]);
        let bank = banks(&files).unwrap().remove(0);
        assert_eq!((bank.entries, bank.file), (vec!["own".into(), "one".into(), "two".into()], None));
    }

    #[test]
    fn missing_file_name_stays_and_outside_path_is_refused() {
        let alone = banks(&[("banks.yaml", BANK)]).unwrap().remove(0);
        assert_eq!(alone.file.as_deref(), Some("lists/words.txt"));
        for file in ["../words.txt", "/etc/words.txt", "a/../../words.txt"] {
            let text = BANK.replace("lists/words.txt", file);
            let faults = banks(&[("banks.yaml", &text)]).unwrap_err();
            assert!(faults[0].to_string().contains("in the folder of the documents"), "{faults:?}");
        }
    }

    #[test]
    fn invalid_entry_is_reported_with_its_line() {
        let files = [
            ("b.yaml", "bank: b\nkind: domain\nfile: d.txt\n"),
            ("d.txt", "ok.example\nhttp://no.example/a\n"),
        ];
        let faults = banks(&files).unwrap_err();
        assert!(faults[0].to_string().starts_with("d.txt:2:"), "{}", faults[0]);
    }
}
