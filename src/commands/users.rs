//! `tidegate users`: shows what is known about a user of the platform.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use serde_json::Value;

use crate::{client::Connection, output::print_line};

#[derive(Debug, Subcommand)]
pub(crate) enum Users {
    /// Show a user's strikes, standing, jobs, actions and the outcome of their reports as JSON
    Show {
        /// Item type of the user
        type_id: String,
        /// Id of the user
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
}

impl Users {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self::Show { type_id, id, connection } = self;
        let path = path(&type_id, &id).context("type and id make no address")?;
        let user: Value = connection.open()?.get(&path, &[]).await?;
        print_line(&user);
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the path of a user, whose id may hold any character.
fn path(type_id: &str, id: &str) -> Option<String> {
    let mut url = reqwest::Url::parse("http://localhost/users").ok()?;
    url.path_segments_mut().ok()?.push(type_id).push(id);
    Some(url.path().to_owned())
}
