//! `tidegate users`: shows strikes, jobs, items and reports of a user of the platform.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

use super::list;
use crate::{client::Connection, output::print_line};

#[derive(Debug, Subcommand)]
pub(crate) enum Users {
    /// Show a user's strikes, standing, newest jobs, actions and the outcome of their reports as JSON
    Show {
        #[command(flatten)]
        user: User,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the items that a user made, newest first, one JSON object per line
    Items {
        #[command(flatten)]
        user: User,
        /// Maximum number to list
        #[arg(long, default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the jobs about a user and their items, newest first, one JSON object per line
    Jobs {
        #[command(flatten)]
        user: User,
        /// Maximum number to list
        #[arg(long, default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the reports by a user, or of a user and their items, newest first, one JSON object per line
    Reports {
        #[command(flatten)]
        user: User,
        /// Reports that the user made, or reports of the user and their items
        #[arg(long, value_enum, default_value_t = Side::Made)]
        side: Side,
        /// Maximum number to list
        #[arg(long, default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
}

/// A user of the platform.
#[derive(Debug, Args)]
pub(crate) struct User {
    /// Item type of the user
    type_id: String,
    /// Id of the user
    id: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Side {
    Made,
    Received,
}

impl Users {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Show { user, connection } => {
                let user: Value = connection.open()?.get(&user.path("")?, &[]).await?;
                print_line(&user);
            }
            Self::Items { user, limit, connection } => {
                list::print(&connection.open()?, &user.path("/items")?, &[], limit).await?;
            }
            Self::Jobs { user, limit, connection } => {
                list::print(&connection.open()?, &user.path("/jobs")?, &[], limit).await?;
            }
            Self::Reports { user, side, limit, connection } => {
                let side = if matches!(side, Side::Made) { "made" } else { "received" };
                let filters = [("side", side.to_owned())];
                list::print(&connection.open()?, &user.path("/reports")?, &filters, limit).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl User {
    /// Returns the path of the user or of one of their lists. The id is escaped, because it may contain any character.
    fn path(&self, list: &str) -> anyhow::Result<String> {
        let path = || {
            let mut url = reqwest::Url::parse("http://localhost/users").ok()?;
            url.path_segments_mut().ok()?.push(&self.type_id).push(&self.id);
            Some(format!("{}{list}", url.path()))
        };
        path().context("type and id do not form an address")
    }
}
