//! `tidegate lint DIR`, also `tidegate rules lint DIR`: checks documents by themselves, with the rules' own examples; needs no server.
//!
//! What only the service knows, such as documents that are not in the folder, it cannot check.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use tidegate_catalog::change;
use tidegate_schemas::ids::Millis;

use super::{SettingsFile, documents};
use crate::output::{complain, counted, say};

#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// The folder of documents
    folder: PathBuf,
    #[command(flatten)]
    file: SettingsFile,
}

impl Lint {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let settings = self.file.load(Vec::new())?.settings.catalog;
        let files: Vec<_> =
            documents::read(&self.folder)?.into_iter().map(|file| (file.name, file.text)).collect();
        match change::lint(&files, &settings, Millis::now()) {
            Ok(warnings) => {
                warnings.iter().for_each(|warning| complain(format!("warning: {warning}")));
                let are = if files.len() == 1 { "is" } else { "are" };
                say(format!("{} {are} well", counted(files.len(), "file")));
                Ok(ExitCode::SUCCESS)
            }
            Err(faults) => {
                faults.iter().for_each(complain);
                complain(counted(faults.len(), "fault"));
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
