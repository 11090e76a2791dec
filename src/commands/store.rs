//! `tidegate store migrate`: creates the tables and columns that this version needs.
//!
//! It opens the store itself, because the service does not start without its tables.

use std::process::ExitCode;

use clap::Subcommand;
use tidegate_moderation::history_backfill::{self, BackfillProgress};
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
    /// Write history events for rows of earlier versions, so that exports include them; the service may run meanwhile
    ///
    /// An interrupted run continues with the first unfinished part. Run it once after an upgrade, when no process of the
    /// previous version is left.
    BackFill {
        #[command(flatten)]
        file: SettingsFile,
    },
}

impl Store {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        // `--expand` is the default; the flag only makes scripts explicit.
        let (check, file) = match self {
            Self::Migrate { check, expand: _, file } => (check, file),
            Self::BackFill { file } => return back_fill(&file).await,
        };
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

async fn back_fill(file: &SettingsFile) -> anyhow::Result<ExitCode> {
    let settings = file.load(Vec::new())?.settings.store;
    if settings.engine == StoreEngine::Embedded {
        print_line("store.engine = embedded: `tidegate up` writes the events itself when it starts");
        return Ok(ExitCode::SUCCESS);
    }
    let tables = Tables::open_cql(settings.cql).await?;
    history_backfill::run(&tables, |progress| {
        let BackfillProgress { source, part, parts, rows } = progress;
        print_line(format!("{source}: part {part} of {parts}, {rows} rows"));
    })
    .await?;
    tables.close().await?;
    print_line("every row of earlier versions has its history events");
    Ok(ExitCode::SUCCESS)
}
