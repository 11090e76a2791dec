//! `tidegate lint DIR`, also `tidegate rules lint DIR`: checks documents by themselves, with the rules' own examples; needs no server.
//!
//! What only the service knows, such as documents that are not in the folder, it cannot check.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use tidegate_catalog::change;
use tidegate_schemas::ids::Millis;

use super::{SettingsFile, documents};
use crate::output::{counted, print_error, print_line};

#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// Folder with the documents
    folder: PathBuf,
    /// List all errors and warnings, not only the first hundred of each kind
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    file: SettingsFile,
}

/// Number of errors, and of warnings of one kind, that are listed without `--all`.
const LISTED: usize = 100;

impl Lint {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let settings = self.file.load(Vec::new())?.settings.catalog;
        let (files, unread) = documents::read_what_can_be(&self.folder)?;
        let files: Vec<_> = files.into_iter().map(|file| (file.name, file.text)).collect();
        let each = if self.all { usize::MAX } else { LISTED };
        match change::lint(&files, &unread, &settings, Millis::now(), each) {
            Ok(warnings) => {
                warnings.listed.iter().for_each(|warning| print_error(format!("warning: {warning}")));
                let are = if files.len() == 1 { "is" } else { "are" };
                let with = match warnings.total {
                    0 => String::new(),
                    total => format!(", with {}", counted(total, "warning")),
                };
                print_line(format!("{} {are} well{with}", counted(files.len(), "file")));
                Ok(ExitCode::SUCCESS)
            }
            Err(faults) => {
                faults.iter().take(each).for_each(print_error);
                if faults.len() > each {
                    print_error(format!("and {} more: `--all` lists them", faults.len() - each));
                }
                print_error(counted(faults.len(), "fault"));
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
