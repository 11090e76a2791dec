//! `tidegate keys`: makes, lists and ends API keys.
//!
//! A key is printed once, when it is made.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{client::Connection, output::say};

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Make a key, and print it once
    Create {
        /// What the key is for
        #[arg(long, default_value = "key")]
        name: String,
        /// What it may do: items:write, items:read, reports:write, appeals:write, policies:read, admin; those that a
        /// platform needs if left out
        #[arg(long, value_delimiter = ',')]
        scopes: Option<Vec<String>>,
        /// After so many days it ends by itself
        #[arg(long)]
        expires_in_days: Option<u64>,
        #[command(flatten)]
        connection: Connection,
    },
    /// List keys, the ended ones included
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// End a key
    Revoke {
        /// Its id, as `list` shows it
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Deserialize)]
struct Created {
    key: String,
}

#[derive(Deserialize)]
struct Listed {
    items: Vec<Key>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Key {
    id: String,
    name: String,
    scopes: Vec<String>,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    last_used_at: Option<String>,
}

const DAY_SECONDS: u64 = 86_400;

impl Keys {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create { name, scopes, expires_in_days, connection } => {
                let expires = expires_in_days.map(|days| days.saturating_mul(DAY_SECONDS));
                let body = json!({ "name": name, "scopes": scopes, "expiresInSeconds": expires });
                let created: Created = connection.open()?.post("/keys", &body).await?;
                say(created.key);
            }
            Self::List { connection } => {
                let listed: Listed = connection.open()?.get("/keys", &[]).await?;
                listed.items.iter().for_each(show);
            }
            Self::Revoke { id, connection } => {
                let _nothing: Value =
                    connection.open()?.post(&format!("/keys/{id}/revoke"), &json!({})).await?;
                say("revoked; every process refuses it within 30 seconds");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show(key: &Key) {
    let end = match (&key.revoked_at, &key.expires_at) {
        (Some(at), _) => format!("revoked {at}"),
        (None, Some(at)) => format!("expires {at}"),
        (None, None) => "active".to_owned(),
    };
    let used = key.last_used_at.as_deref().unwrap_or("never");
    let scopes = key.scopes.join(",");
    say(format!("{}  {}  {scopes}  made {}  used {used}  {end}", key.id, key.name, key.created_at));
}
