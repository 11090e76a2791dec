//! `tidegate check-config`: checks the settings and prints the effective ones.
//!
//! It reads the files that the settings name, but opens no connection: an unreachable server is not detected.

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
