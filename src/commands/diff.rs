//! `tidegate diff DIR`: what `apply` would change; the exit code tells whether anything.
//!
//! It shows names, not values: headers and addresses are secrets.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::documents::{self, Change};
use crate::{
    client::Connection,
    output::{DIFFERENT, say},
};

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The folder of documents
    folder: PathBuf,
    /// As `apply --prune` would
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Deserialize)]
struct Checked {
    changes: Vec<Change>,
}

impl Diff {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let files = documents::read(&self.folder)?;
        let client = self.connection.open()?;
        let body = json!({ "files": files, "prune": self.prune });
        let checked: Checked = client.post("/config/validate", &body).await?;
        checked.changes.iter().for_each(say);
        Ok(if checked.changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
    }
}
