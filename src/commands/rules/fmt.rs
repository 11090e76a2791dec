//! `tidegate rules fmt`: rewrites the documents of a folder in canonical form, as `pull` writes them.
//!
//! Files with comments are reported and left alone: the canonical form has no comments.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Args;
use tidegate_schemas::documents::{Document, Format, Origin, parse, render};

use crate::{
    commands::documents::{self, File},
    output::{DIFFERENT, print_error, print_line},
};

#[derive(Debug, Args)]
pub(crate) struct Fmt {
    /// Folder with the documents
    #[arg(long = "config", value_name = "DIR")]
    folder: PathBuf,
    /// Write nothing; exit code 2 if a file is not in canonical form
    #[arg(long)]
    check: bool,
}

/// Result of formatting a file.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    Canonical,
    Other(String),
    Commented,
}

impl Fmt {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let files = documents::read_documents(&self.folder)?;
        let mut forms = Vec::with_capacity(files.len());
        let mut faulty = false;
        // Nothing is written before everything is read.
        for file in &files {
            match form(file) {
                Ok(form) => forms.push(form),
                Err(faults) => {
                    faulty = true;
                    faults.iter().for_each(print_error);
                }
            }
        }
        if faulty {
            return Ok(ExitCode::FAILURE);
        }
        let mut written = 0;
        for (file, form) in files.iter().zip(forms) {
            match form {
                Form::Canonical => {}
                Form::Commented => print_error(format!("{}: has comments, so it stays as it is", file.name)),
                Form::Other(text) => {
                    written += 1;
                    print_line(&file.name);
                    if !self.check {
                        self.write(file, &text)?;
                    }
                }
            }
        }
        Ok(if self.check && written > 0 { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
    }

    /// Writes through a temporary file: a crash leaves the old content or the new one.
    fn write(&self, file: &File, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(&file.name);
        let name =
            path.file_name().map(|name| format!(".{}.new", name.to_string_lossy())).unwrap_or_default();
        let new = path.with_file_name(name);
        fs::write(&new, text)
            .and_then(|()| fs::set_permissions(&new, fs::metadata(&path)?.permissions()))
            .and_then(|()| fs::rename(&new, &path))
            .with_context(|| format!("{} cannot be written", path.display()))
    }
}

fn form(file: &File) -> Result<Form, Vec<String>> {
    let said = |faults: Vec<_>| faults.iter().map(ToString::to_string).collect::<Vec<_>>();
    let named = |text: &str| [(file.name.clone(), text.to_owned())];
    let documents = parse(&named(&file.text)).map_err(said)?;
    let is_json = file.name.to_ascii_lowercase().ends_with(".json");
    let format = if is_json { Format::Json } else { Format::Yaml };
    let mut each = documents.iter().map(|(_, document)| render(document, format));
    let text = match (is_json, documents.len()) {
        (true, 1) => each.next().unwrap_or_default(),
        (true, _) => {
            let each: Vec<String> = each.map(|text| text.trim_end().replace('\n', "\n  ")).collect();
            format!("[\n  {}\n]\n", each.join(",\n  "))
        }
        (false, _) => each.collect::<Vec<_>>().join("---\n"),
    };
    // What cannot be read back as the same documents must not take their place.
    let again = parse(&named(&text)).map_err(said)?;
    if documents.iter().map(|(_, document)| document).ne(again.iter().map(|(_, document)| document)) {
        return Err(vec![format!("{}: its canonical form would mean something else", file.name)]);
    }
    Ok(match text == file.text {
        true => Form::Canonical,
        false if !is_json && has_comment(&file.text, &documents) => Form::Commented,
        false => Form::Other(text),
    })
}

/// Places where a comment could begin that are looked at; a text with more of them is taken to have one.
const MOST_PLACES: usize = 1_000;

/// True if the YAML has a comment: text from a `#` to the end of its line that can be removed without changing the
/// documents.
fn has_comment(yaml: &str, documents: &[(Origin, Document)]) -> bool {
    // A byte order mark is no space, and stands before what is at the beginning all the same.
    let begins = |at: &usize| {
        yaml[..*at].chars().next_back().is_none_or(|before| before.is_whitespace() || before == '\u{feff}')
    };
    let places: Vec<usize> = yaml.match_indices('#').map(|(at, _)| at).filter(begins).collect();
    places.len() > MOST_PLACES
        || places.into_iter().any(|at| {
            let end = yaml[at..].find(['\n', '\r']).map_or(yaml.len(), |line| at + line);
            let without = format!("{}{}", &yaml[..at], &yaml[end..]);
            parse(&[("file.yaml", without)]).is_ok_and(|left| {
                left.iter().map(|(_, document)| document).eq(documents.iter().map(|(_, document)| document))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formed(name: &str, text: &str) -> Form {
        form(&File { name: name.to_owned(), text: text.to_owned() }).unwrap_or(Form::Canonical)
    }

    #[test]
    fn a_file_is_written_once_and_comments_stay() {
        let loose = "rule: r\nwhen: {text: {in: [text], any_of: ['a #1 offer', b]}}\nstatus: live\n";
        let Form::Other(text) = formed("rules.yaml", loose) else { panic!("{loose} is not canonical") };
        assert!(text.starts_with("rule: r\n") && text.contains("a #1 offer"), "{text}");
        assert_eq!(formed("rules.yaml", &text), Form::Canonical);
        assert_eq!(formed("rules.yaml", &format!("# why\n{loose}")), Form::Commented);
        assert_eq!(formed("rules.yaml", &format!("{loose}# why\n")), Form::Commented);
        let block = "rule: r\nwhen:\n  text: {in: [text], any_of: [a]}\nname: |\n  one\n  # two\n";
        assert!(matches!(formed("rules.yaml", block), Form::Other(text) if text.contains("# two")));
        assert_eq!(formed("rules.yaml", &format!("{block}status: live # why\n")), Form::Commented);
        assert_eq!(formed("rules.yaml", &format!("\u{feff}# why\n{loose}")), Form::Commented);
        assert_eq!(formed("rules.yaml", &format!("# why\r{}", loose.replace('\n', "\r"))), Form::Commented);
        assert_eq!(
            formed("rules.yaml", &format!("# why\r\n{}", loose.replace('\n', "\r\n"))),
            Form::Commented
        );
    }

    #[test]
    fn json_stays_json_whether_it_holds_one_document_or_several() {
        let one = r#"{"policy": "p", "name": "P"}"#;
        for text in [one.to_owned(), format!("[{one}, {}]", one.replace("\"p\"", "\"q\""))] {
            let Form::Other(formatted) = formed("policies.json", &text) else {
                panic!("{text} is not canonical")
            };
            assert_eq!(formed("policies.json", &formatted), Form::Canonical);
            assert_eq!(formatted.starts_with('['), text.starts_with('['));
        }
    }
}
