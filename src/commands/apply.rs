//! `tidegate apply DIR`: makes the documents in a folder the live configuration.
//!
//! Live documents that are not in the folder are kept, unless `--prune` is given.

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
struct ApplyResponse {
    version: i64,
    /// Not sent by older servers.
    org: Option<String>,
    changes: Vec<Change>,
    warnings: Vec<String>,
    new_secrets: Vec<String>,
}

#[derive(Deserialize)]
struct WaitResponse {
    state: String,
    members: Option<usize>,
    others: Vec<String>,
}

impl Apply {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let files = documents::read(&self.folder)?;
        let pull_state = PullState::read_complete(&self.folder)?;
        let expected_state = pull_state.as_ref().filter(|_| !self.force);
        let client = self.connection.open()?;
        let mut body = json!({ "files": files, "prune": self.prune });
        // The service refuses another version, because `apply` would overwrite changes that others made since the pull.
        if let Some(PullState { version, org, .. }) = expected_state {
            body["expectedVersion"] = json!(version);
            expect_org(&mut body, org.as_deref());
        }
        let response: ApplyResponse = client.post("/config", &body).await?;
        for warning in &response.warnings {
            print_error(format!("warning: {warning}"));
        }
        for change in &response.changes {
            print_line(change);
        }
        for endpoint in &response.new_secrets {
            print_line(format!(
                "the endpoint {endpoint} got a signing secret; its receiver verifies with it"
            ));
        }
        print_line(format!(
            "version {}{}",
            response.version,
            if response.changes.is_empty() { ", unchanged" } else { "" }
        ));
        // A folder that was never pulled gets no state, so its next `apply` expects no version either.
        if let Some(pull_state) = pull_state {
            // Folders pulled from older servers do not name their organisation, so the server could not compare it.
            if let (None, Some(org)) = (&pull_state.org, &response.org) {
                let folder = self.folder.display();
                print_error(format!(
                    "warning: {folder} has no record of its organisation, so this was not checked; \
                     it is recorded as `{org}` now"
                ));
            }
            let org = response.org.or(pull_state.org);
            PullState { version: response.version, org, ..pull_state }.write(&self.folder)?;
        }
        if self.wait { wait_until_running(&client, response.version).await } else { Ok(ExitCode::SUCCESS) }
    }
}

/// Adds the expected organisation, if the folder names one. Older servers refuse the member, and folders pulled from them name none.
pub(super) fn expect_org(body: &mut Value, org: Option<&str>) {
    if let Some(org) = org {
        body["expectedOrg"] = json!(org);
    }
}

async fn wait_until_running(client: &Client, version: i64) -> anyhow::Result<ExitCode> {
    const TIMEOUT_MS: &str = "30000";
    let query = [("version", version.to_string()), ("withinMs", TIMEOUT_MS.to_owned())];
    let response: WaitResponse = client.get("/config/wait", &query).await?;
    if response.state == "running" {
        print_line(format!("{} processes run it", response.members.unwrap_or_default()));
        return Ok(ExitCode::SUCCESS);
    }
    for process in &response.others {
        print_error(format!("{}: {process}", response.state));
    }
    Ok(ExitCode::FAILURE)
}
