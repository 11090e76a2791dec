//! `tidegate run-exports`: runs scheduled exports only, beside the processes of a service that shares its store.
//!
//! `tidegate up` runs the schedules as well.

use std::process::ExitCode;

use clap::Args;

use super::{SettingsFile, create_override};
use crate::{run_exports, runtime};

#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub(crate) struct RunExports {
    #[command(flatten)]
    file: SettingsFile,
    /// Folder for files before they are sent, unless export.work_folder names one
    #[arg(long, value_name = "DIR")]
    data: Option<std::path::PathBuf>,
    /// Address of /livez, /readyz, /metrics and /buildinfo
    #[arg(long, value_name = "ADDRESS")]
    ops_listen: Option<String>,
}

impl RunExports {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let data = self.data.map(|folder| folder.display().to_string());
        let overrides = [
            create_override(&["data", "folder"], "--data", data),
            create_override(&["ops", "listen"], "--ops-listen", self.ops_listen),
        ];
        let loaded = self.file.load(overrides.into_iter().flatten().collect())?.check_exports_start()?;
        runtime::run(loaded.settings.runtime, run_exports::run(loaded))
    }
}
