//! `tidegate check-config`: would the service start with these settings, and which are they?
//!
//! It reads the files that the settings name and opens nothing else: an address that answers nobody is not found here.

use std::process::ExitCode;

use clap::Args;

use super::SettingsFile;
use crate::{output::print_line, settings::show};

#[derive(Debug, Args)]
pub(crate) struct CheckConfig {
    #[command(flatten)]
    file: SettingsFile,
}

impl CheckConfig {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let loaded = self.file.load_to_start(Vec::new())?;
        print_line(show(&loaded)?.trim_end());
        Ok(ExitCode::SUCCESS)
    }
}
