//! `tidegate diff DIR`: what `apply` would change; the exit code tells whether anything.
//!
//! It shows names, not values: headers and addresses are secrets.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::{
    apply::expect_org,
    documents::{self, Change},
    pulled::Pulled,
};
use crate::{
    client::Connection,
    output::{DIFFERENT, say},
};

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The folder of documents
    folder: PathBuf,
    /// Compare as `apply --prune` would
    #[arg(long)]
    prune: bool,
    /// Compare also with another organisation than the one that the folder was pulled from
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
        let pulled = Pulled::read(&self.folder)?.filter(|_| !self.force);
        let client = self.connection.open()?;
        let mut body = json!({ "files": files, "prune": self.prune });
        expect_org(&mut body, pulled.as_ref().and_then(|pulled| pulled.org.as_deref()));
        let checked: Checked = client.post("/config/validate", &body).await?;
        checked.changes.iter().for_each(say);
        Ok(if checked.changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
    }
}
