//! `tidegate audit`: lists requests to the admin API with author and result.

use std::process::ExitCode;

use clap::Subcommand;

use super::list;
use crate::client::Connection;

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// List requests that changed something or showed a secret, newest first, one JSON object per line
    List {
        /// Show requests from this time on, such as 2026-01-31T12:00:00Z
        #[arg(long)]
        since: Option<String>,
        /// Show requests before this time
        #[arg(long)]
        until: Option<String>,
        /// Show only requests of this key or person
        #[arg(long)]
        actor: Option<String>,
        /// Show only requests of this route, such as `/keys/{id}/rotate` or `POST /keys`
        #[arg(long)]
        action: Option<String>,
        /// Show only requests to paths with this prefix, such as `/banks/words`
        #[arg(long)]
        object: Option<String>,
        /// Maximum number to list
        #[arg(long, default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
}

impl Audit {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self::List { since, until, actor, action, object, limit, connection } = self;
        let options =
            [("since", since), ("until", until), ("actor", actor), ("action", action), ("object", object)];
        let filters: Vec<_> = options.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        list::print(&connection.open()?, "/audit", &filters, limit).await?;
        Ok(ExitCode::SUCCESS)
    }
}
