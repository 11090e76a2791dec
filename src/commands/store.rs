//! `tidegate store migrate`: creates the tables and columns that this version needs.
//!
//! It opens the store itself, because the service does not start without its tables.

use std::process::ExitCode;

use clap::Subcommand;
use tidegate_store::{Migration, Store as Tables};

use super::SettingsFile;
use crate::{
    output::{DIFFERENT, print_line},
    settings::StoreEngine,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Create missing tables and columns; processes of the previous version keep running
    Migrate {
        /// Only print missing tables and columns (exit code 2 if there are any)
        #[arg(long, conflicts_with = "expand")]
        check: bool,
        /// Create missing tables and columns, without other changes; the default
        #[arg(long)]
        expand: bool,
        #[command(flatten)]
        file: SettingsFile,
    },
}

impl Store {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        // `--expand` is the default; the flag only makes scripts explicit.
        let Self::Migrate { check, expand: _, file } = self;
        let settings = file.load(Vec::new())?.settings.store;
        // The embedded store creates its tables itself, and is locked while the service runs.
        if settings.engine == StoreEngine::Embedded {
            print_line("store.engine = embedded: its tables are created when it is opened");
            return Ok(ExitCode::SUCCESS);
        }
        let tables = Tables::open_cql(settings.cql).await?;
        let mode = if check { Migration::Check } else { Migration::Expand };
        let differences = tables.migrate(mode).await?;
        for difference in &differences {
            print_line(format!("{} {difference}", if check { "missing" } else { "created" }));
        }
        tables.close().await?;
        if differences.is_empty() {
            print_line("the tables are as this version needs them");
        }
        Ok(if check && !differences.is_empty() { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
    }
}
