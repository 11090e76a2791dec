//! `tidegate org`: creates organisations.
//!
//! It needs the token of `server.json`, because a key belongs to one organisation.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::{client::Connection, output::print_line};

#[derive(Debug, Subcommand)]
pub(crate) enum Org {
    /// Create an organisation; create its first key with `tidegate keys create --org ID`
    Create {
        /// Id of the organisation; it cannot be changed later
        id: String,
        /// Display name; default: the id
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
}

impl Org {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self::Create { id, name, connection } = self;
        let _created: Value = connection.open()?.post("/orgs", &json!({ "id": id, "name": name })).await?;
        print_line(format!("created {id}; its first key: tidegate keys create --org {id}"));
        Ok(ExitCode::SUCCESS)
    }
}
