//! `tidegate apply DIR`: makes the documents in a folder the live configuration.
//!
//! Documents that are not in the folder stay, unless `--prune` says otherwise.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    documents::{self, Change},
    pull_state::PullState,
};
use crate::{
    client::{Client, Connection},
    output::{print_error, print_line},
};

#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// Folder with the documents
    folder: PathBuf,
    /// Wait up to 30 seconds until every running process uses the new configuration
    #[arg(long)]
    wait: bool,
    /// Delete live documents that are not in the folder
    #[arg(long)]
    prune: bool,
    /// Overwrite changes made since the folder was pulled, or the configuration of another organisation
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Applied {
    version: i64,
    /// Earlier versions do not tell it.
    org: Option<String>,
    changes: Vec<Change>,
    warnings: Vec<String>,
    new_secrets: Vec<String>,
}

#[derive(Deserialize)]
struct Waited {
    state: String,
    members: Option<usize>,
    others: Vec<String>,
}

impl Apply {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let files = documents::read(&self.folder)?;
        let pulled = PullState::read_complete(&self.folder)?;
        let expected = pulled.as_ref().filter(|_| !self.force);
        let client = self.connection.open()?;
        let mut body = json!({ "files": files, "prune": self.prune });
        if let Some(PullState { version, org, .. }) = expected {
            body["expectedVersion"] = json!(version);
            expect_org(&mut body, org.as_deref());
        }
        let applied: Applied = client.post("/config", &body).await?;
        for warning in &applied.warnings {
            print_error(format!("warning: {warning}"));
        }
        for change in &applied.changes {
            print_line(change);
        }
        for endpoint in &applied.new_secrets {
            print_line(format!(
                "the endpoint {endpoint} got a signing secret; its receiver verifies with it"
            ));
        }
        print_line(format!(
            "version {}{}",
            applied.version,
            if applied.changes.is_empty() { ", unchanged" } else { "" }
        ));
        if let Some(pulled) = pulled {
            if let (None, Some(org)) = (&pulled.org, &applied.org) {
                let folder = self.folder.display();
                print_error(format!(
                    "warning: {folder} did not say of which organisation it was pulled, so nothing held it back from \
                     another one; from now on it is `{org}`'s"
                ));
            }
            let org = applied.org.or(pulled.org);
            PullState { version: applied.version, org, ..pulled }.write(&self.folder)?;
        }
        if self.wait { wait(&client, applied.version).await } else { Ok(ExitCode::SUCCESS) }
    }
}

/// Earlier versions of the service do not know the member, and no folder that was pulled from them has it.
pub(super) fn expect_org(body: &mut Value, org: Option<&str>) {
    if let Some(org) = org {
        body["expectedOrg"] = json!(org);
    }
}

async fn wait(client: &Client, version: i64) -> anyhow::Result<ExitCode> {
    const WITHIN_MS: &str = "30000";
    let query = [("version", version.to_string()), ("withinMs", WITHIN_MS.to_owned())];
    let waited: Waited = client.get("/config/wait", &query).await?;
    if waited.state == "running" {
        print_line(format!("{} processes run it", waited.members.unwrap_or_default()));
        return Ok(ExitCode::SUCCESS);
    }
    for other in &waited.others {
        print_error(format!("{}: {other}", waited.state));
    }
    Ok(ExitCode::FAILURE)
}
