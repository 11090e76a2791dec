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
    /// Only check; exit code 2 if a file is not in canonical form
    #[arg(long)]
    check: bool,
}

/// Result of formatting a file.
#[derive(Debug, PartialEq, Eq)]
enum FormatResult {
    Canonical,
    Other(String),
    Commented,
}

impl Fmt {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let files = documents::read_documents(&self.folder)?;
        let mut forms = Vec::with_capacity(files.len());
        let mut faulty = false;
        // All files are formatted before the first is written, so a fault leaves the folder unchanged.
        for file in &files {
            match format_file(file) {
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
        let mut changed_files = 0;
        for (file, form) in files.iter().zip(forms) {
            match form {
                FormatResult::Canonical => {}
                FormatResult::Commented => {
                    print_error(format!("{}: has comments, so it stays as it is", file.name));
                }
                FormatResult::Other(text) => {
                    changed_files += 1;
                    print_line(&file.name);
                    if !self.check {
                        self.write(file, &text)?;
                    }
                }
            }
        }
        Ok(if self.check && changed_files > 0 { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
    }

    /// Writes through a temporary file: a crash leaves the old content or the new one.
    fn write(&self, file: &File, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(&file.name);
        let name =
            path.file_name().map(|name| format!(".{}.new", name.to_string_lossy())).unwrap_or_default();
        let temporary_path = path.with_file_name(name);
        fs::write(&temporary_path, text)
            // The rename would otherwise replace the permissions of the file.
            .and_then(|()| fs::set_permissions(&temporary_path, fs::metadata(&path)?.permissions()))
            .and_then(|()| fs::rename(&temporary_path, &path))
            .with_context(|| format!("{} cannot be written", path.display()))
    }
}

fn format_file(file: &File) -> Result<FormatResult, Vec<String>> {
    let to_messages = |faults: Vec<_>| faults.iter().map(ToString::to_string).collect::<Vec<_>>();
    let with_name = |text: &str| [(file.name.clone(), text.to_owned())];
    let documents = parse(&with_name(&file.text)).map_err(to_messages)?;
    let is_json = file.name.to_ascii_lowercase().ends_with(".json");
    let format = if is_json { Format::Json } else { Format::Yaml };
    let mut rendered = documents.iter().map(|(_, document)| render(document, format));
    let text = match (is_json, documents.len()) {
        // A single document in JSON is an object, not a list of one.
        (true, 1) => rendered.next().unwrap_or_default(),
        (true, _) => {
            let indented: Vec<String> = rendered.map(|text| text.trim_end().replace('\n', "\n  ")).collect();
            format!("[\n  {}\n]\n", indented.join(",\n  "))
        }
        (false, _) => rendered.collect::<Vec<_>>().join("---\n"),
    };
    // Guards against faults of the renderer: a text with another meaning must not replace the documents.
    let reparsed = parse(&with_name(&text)).map_err(to_messages)?;
    if documents.iter().map(|(_, document)| document).ne(reparsed.iter().map(|(_, document)| document)) {
        return Err(vec![format!("{}: its canonical form would have another meaning", file.name)]);
    }
    Ok(match text == file.text {
        true => FormatResult::Canonical,
        false if !is_json && has_comment(&file.text, &documents) => FormatResult::Commented,
        false => FormatResult::Other(text),
    })
}

/// Maximum number of `#` that are examined as the start of a comment. A text with more of them is assumed to have a comment.
const MAX_COMMENT_CANDIDATES: usize = 1_000;

/// True if the YAML has a comment: text from a `#` to the end of its line that can be removed without changing the
/// documents.
fn has_comment(yaml: &str, documents: &[(Origin, Document)]) -> bool {
    // A byte order mark is not whitespace, but a comment at the beginning of the text may follow it.
    let may_begin_comment = |index: &usize| {
        yaml[..*index]
            .chars()
            .next_back()
            .is_none_or(|previous| previous.is_whitespace() || previous == '\u{feff}')
    };
    let candidates: Vec<usize> =
        yaml.match_indices('#').map(|(index, _)| index).filter(may_begin_comment).collect();
    candidates.len() > MAX_COMMENT_CANDIDATES
        || candidates.into_iter().any(|index| {
            let end = yaml[index..].find(['\n', '\r']).map_or(yaml.len(), |line| index + line);
            let without_comment = format!("{}{}", &yaml[..index], &yaml[end..]);
            parse(&[("file.yaml", without_comment)]).is_ok_and(|left| {
                left.iter().map(|(_, document)| document).eq(documents.iter().map(|(_, document)| document))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formed(name: &str, text: &str) -> FormatResult {
        format_file(&File { name: name.to_owned(), text: text.to_owned() }).unwrap_or(FormatResult::Canonical)
    }

    #[test]
    fn formatting_is_stable_and_keeps_comments() {
        let loose = "rule: r\nwhen: {text: {in: [text], any_of: ['a #1 offer', b]}}\nstatus: live\n";
        let FormatResult::Other(text) = formed("rules.yaml", loose) else {
            panic!("{loose} is not canonical")
        };
        assert!(text.starts_with("rule: r\n") && text.contains("a #1 offer"), "{text}");
        assert_eq!(formed("rules.yaml", &text), FormatResult::Canonical);
        assert_eq!(formed("rules.yaml", &format!("# why\n{loose}")), FormatResult::Commented);
        assert_eq!(formed("rules.yaml", &format!("{loose}# why\n")), FormatResult::Commented);
        let block = "rule: r\nwhen:\n  text: {in: [text], any_of: [a]}\nname: |\n  one\n  # two\n";
        assert!(matches!(formed("rules.yaml", block), FormatResult::Other(text) if text.contains("# two")));
        assert_eq!(formed("rules.yaml", &format!("{block}status: live # why\n")), FormatResult::Commented);
        assert_eq!(formed("rules.yaml", &format!("\u{feff}# why\n{loose}")), FormatResult::Commented);
        assert_eq!(
            formed("rules.yaml", &format!("# why\r{}", loose.replace('\n', "\r"))),
            FormatResult::Commented
        );
        assert_eq!(
            formed("rules.yaml", &format!("# why\r\n{}", loose.replace('\n', "\r\n"))),
            FormatResult::Commented
        );
    }

    #[test]
    fn json_files_stay_json() {
        let one = r#"{"policy": "p", "name": "P"}"#;
        for text in [one.to_owned(), format!("[{one}, {}]", one.replace("\"p\"", "\"q\""))] {
            let FormatResult::Other(formatted) = formed("policies.json", &text) else {
                panic!("{text} is not canonical")
            };
            assert_eq!(formed("policies.json", &formatted), FormatResult::Canonical);
            assert_eq!(formatted.starts_with('['), text.starts_with('['));
        }
    }
}
