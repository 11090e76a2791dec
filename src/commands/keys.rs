//! `tidegate keys`: creates, lists, rotates and revokes API keys.
//!
//! A key is printed only once: when it is created, or replaces another one.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_schemas::{
    ids::Millis,
    names::{self, OneLine},
};

use crate::{client::Connection, output::print_line};

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Create a key and print it; it cannot be shown again
    Create {
        /// Name of the key, such as its purpose
        #[arg(long, default_value = "key", value_parser = name)]
        name: String,
        /// Scopes of the key: items:write, items:read, reports:write, appeals:write, policies:read, actions:write, admin,
        /// child_safety, review, exports:read; default: those that a platform needs. A moderator needs review
        #[arg(long, value_delimiter = ',')]
        scopes: Option<Vec<String>>,
        /// Days until the key expires; default: never
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        expires_in_days: Option<u64>,
        #[command(flatten)]
        connection: Connection,
    },
    /// List all keys, including revoked and expired ones
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Replace a key by a new one with the same scopes and end, and print it; it cannot be shown again
    Rotate {
        /// Id of the key, as `list` shows it
        id: String,
        /// Hours until the old key stops working
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        overlap_hours: u64,
        #[command(flatten)]
        connection: Connection,
    },
    /// Revoke a key at once
    Revoke {
        /// Id of the key, as `list` shows it
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Deserialize)]
struct CreateKeyResponse {
    key: String,
}

#[derive(Deserialize)]
struct KeyListResponse {
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

fn name(text: &str) -> Result<String, String> {
    if names::is_name(text) { Ok(text.to_owned()) } else { Err(format!("a key's name {}", names::RULE)) }
}

const HOUR_SECONDS: u64 = 3_600;
const DAY_SECONDS: u64 = 86_400;

impl Keys {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create { name, scopes, expires_in_days, connection } => {
                let expires_in_seconds = expires_in_days.map(|days| days.saturating_mul(DAY_SECONDS));
                let body = json!({ "name": name, "scopes": scopes, "expiresInSeconds": expires_in_seconds });
                let created: CreateKeyResponse = connection.open()?.post("/keys", &body).await?;
                print_line(created.key);
            }
            Self::List { connection } => {
                let response: KeyListResponse = connection.open()?.get("/keys", &[]).await?;
                let now = Millis::now();
                response.items.iter().for_each(|key| print_line(describe_key(key, now)));
            }
            Self::Rotate { id, overlap_hours, connection } => {
                let body = json!({ "overlapSeconds": overlap_hours.saturating_mul(HOUR_SECONDS) });
                let created: CreateKeyResponse =
                    connection.open()?.post(&format!("/keys/{id}/rotate"), &body).await?;
                print_line(created.key);
            }
            Self::Revoke { id, connection } => {
                let _response: Value =
                    connection.open()?.post(&format!("/keys/{id}/revoke"), &json!({})).await?;
                print_line("revoked; every process refuses it within 30 seconds");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn describe_key(key: &Key, now: Millis) -> String {
    let end = describe_end(key.revoked_at.as_deref(), key.expires_at.as_deref(), now);
    let last_used_at = key.last_used_at.as_deref().unwrap_or("never");
    let scopes = key.scopes.join(",");
    // Names of old keys may break the current rule for names.
    let Key { id, name, created_at, .. } = key;
    OneLine(format_args!("{id}  {name}  {scopes}  made {created_at}  used {last_used_at}  {end}")).to_string()
}

fn describe_end(revoked_at: Option<&str>, expires_at: Option<&str>, now: Millis) -> String {
    match (revoked_at, expires_at) {
        (Some(revoked_at), _) => format!("revoked {revoked_at}"),
        (None, Some(expired_at)) if is_past(expired_at, now) => format!("expired {expired_at}"),
        (None, Some(expires_at)) => format!("expires {expires_at}"),
        (None, None) => "active".to_owned(),
    }
}

/// True if an ISO time is in the past. The texts sort like the times; a time beyond the calendar has another form and is never past.
fn is_past(time: &str, now: Millis) -> bool {
    let now = now.iso();
    time.len() == now.len() && time.ends_with('Z') && time <= now.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_refused_and_old_ones_are_escaped() {
        assert!(name("app").is_ok() && name("").is_err() && name("a\nb").is_err());
        let key = Key {
            id: "1".to_owned(),
            name: "x\n2  admin\u{1b}[31m".to_owned(),
            scopes: vec!["admin".to_owned()],
            created_at: "then".to_owned(),
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
        };
        let line = describe_key(&key, Millis(0));
        assert_eq!(line, r"1  x\n2  admin\u001b[31m  admin  made then  used never  active");
    }

    #[test]
    fn key_is_described_with_its_end() {
        let now = Millis(1_700_000_000_000);
        let (before, after) = (Millis(now.0 - 1).iso(), Millis(now.0 + 1).iso());
        assert_eq!(describe_end(None, None, now), "active");
        assert_eq!(describe_end(None, Some(&after), now), format!("expires {after}"));
        assert_eq!(describe_end(None, Some(&before), now), format!("expired {before}"));
        assert_eq!(describe_end(None, Some(&now.iso()), now), format!("expired {}", now.iso()));
        assert_eq!(describe_end(Some(&before), Some(&before), now), format!("revoked {before}"));
        let never = Millis(i64::MAX).iso();
        assert_eq!(describe_end(None, Some(&never), now), format!("expires {never}"));
    }
}
