//! `tidegate diff DIR`: lists the changes that `apply` would make. The exit code is 2 if there are any.
//!
//! It shows names only, because headers and addresses are secrets.

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
struct ValidateResponse {
    changes: Vec<Change>,
}

impl Diff {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let files = documents::read(&self.folder)?;
        let pull_state = PullState::read(&self.folder)?.filter(|_| !self.force);
        let client = self.connection.open()?;
        let mut body = json!({ "files": files, "prune": self.prune });
        expect_org(&mut body, pull_state.as_ref().and_then(|state| state.org.as_deref()));
        let response: ValidateResponse = client.post("/config/validate", &body).await?;
        response.changes.iter().for_each(print_line);
        Ok(if response.changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
    }
}
