//! `tidegate diff DIR`: lists what `apply` would change. The exit code is 2 if there are changes.
//!
//! It shows names, not values: headers and addresses are secrets.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::{
    apply::expect_org,
    documents::{self, Change},
    pull_state::PullState,
};
use crate::{
    client::Connection,
    output::{DIFFERENT, print_line},
};

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Folder with the documents
    folder: PathBuf,
    /// Include the documents that `apply --prune` would delete
    #[arg(long)]
    prune: bool,
    /// Compare even if the folder was pulled from another organisation
    #[arg(long)]
    force: bool,
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
        let pulled = PullState::read(&self.folder)?.filter(|_| !self.force);
        let client = self.connection.open()?;
        let mut body = json!({ "files": files, "prune": self.prune });
        expect_org(&mut body, pulled.as_ref().and_then(|pulled| pulled.org.as_deref()));
        let checked: Checked = client.post("/config/validate", &body).await?;
        checked.changes.iter().for_each(print_line);
        Ok(if checked.changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
    }
}
