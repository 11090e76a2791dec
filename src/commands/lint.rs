//! `tidegate lint DIR`, also `tidegate rules lint DIR`: checks documents and the rules' own examples without a server.
//!
//! Checks against data of the service, such as documents outside of the folder, are left out.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use tidegate_catalog::change;
use tidegate_schemas::ids::Millis;

use super::{SettingsFile, documents};
use crate::output::{format_count, print_error, print_line};

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

/// Maximum number of errors, and of warnings of one kind, that are listed without `--all`.
const MAX_LISTED: usize = 100;

impl Lint {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let settings = self.file.load(Vec::new())?.settings.catalog;
        let (files, unreadable_files) = documents::read_with_faults(&self.folder)?;
        let files: Vec<_> = files.into_iter().map(|file| (file.name, file.text)).collect();
        let max_listed = if self.all { usize::MAX } else { MAX_LISTED };
        match change::lint_files(&files, &unreadable_files, &settings, Millis::now(), max_listed) {
            Ok(warnings) => {
                warnings
                    .listed_warnings
                    .iter()
                    .for_each(|warning| print_error(format!("warning: {warning}")));
                let verb = if files.len() == 1 { "is" } else { "are" };
                let warnings_note = match warnings.total {
                    0 => String::new(),
                    total => format!(", with {}", format_count(total, "warning")),
                };
                print_line(format!("{} {verb} valid{warnings_note}", format_count(files.len(), "file")));
                Ok(ExitCode::SUCCESS)
            }
            Err(faults) => {
                faults.iter().take(max_listed).for_each(print_error);
                if faults.len() > max_listed {
                    print_error(format!("and {} more: `--all` lists them", faults.len() - max_listed));
                }
                print_error(format_count(faults.len(), "fault"));
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
