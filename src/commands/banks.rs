//! `tidegate banks`: adds, lists, switches and removes entries of banks, and looks hashes up in them.
//!
//! A bank itself is a document (`tidegate apply`).

mod export;
mod import;
mod look_up;
mod progress;
mod sum;

use std::{path::PathBuf, process::ExitCode};

use anyhow::anyhow;
use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_bank_exchange::Format;
use tidegate_schemas::banks::{BankKind, HashKind};

pub(in crate::commands) use self::look_up::look_up;
use self::sum::Sum;
use crate::{
    client::{Client, Connection},
    output::{complain, say},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Banks {
    /// List the banks
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// List entries of a bank, one JSON object a line; first those of its document, as `inDocument`
    Show {
        bank: String,
        /// Greatest number of entries
        #[arg(long, default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// Add the entries of a file; what cannot be an entry is named with its line, the rest is added
    Import {
        bank: String,
        /// `-` reads standard input
        file: PathBuf,
        /// Format of the file; by default from its name: `.csv`, `.ndjson`, `.jsonl`, `.xml`, or else one entry a line
        #[arg(long, value_enum)]
        format: Option<Format>,
        /// Keep how far it is in FILE.resume, and go on from there if it broke off before
        #[arg(long)]
        resume: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Write all entries of a bank to standard output, in an order that stays; `import` reads it
    Export {
        bank: String,
        /// Write first the entries that the bank's document holds
        #[arg(long)]
        document: bool,
        #[arg(long, value_enum, default_value_t = export::Shape::Ndjson)]
        format: export::Shape,
        #[command(flatten)]
        connection: Connection,
    },
    /// Look up hashes in the banks, as the running service does
    Match {
        /// Hashes in hexadecimal digits
        #[arg(required = true)]
        hashes: Vec<String>,
        /// Kind of the hashes
        #[arg(long, value_parser = HashKind::ALL.map(HashKind::name))]
        kind: String,
        /// Look in these banks only
        #[arg(long = "bank")]
        banks: Vec<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Add entries, or change what stands beside them
    Add {
        bank: String,
        #[arg(required = true)]
        values: Vec<String>,
        /// Shown with every match
        #[arg(long, value_delimiter = ',')]
        labels: Vec<String>,
        /// Source of the entries
        #[arg(long)]
        source: Option<String>,
        /// Time at which the entries expire, such as 2026-12-31T00:00:00Z
        #[arg(long)]
        expires_at: Option<String>,
        /// Bits that may differ, in place of the bank's; of hashes that are compared by likeness
        #[arg(long)]
        distance: Option<u32>,
        /// Name of the entries at their source; for hashes
        #[arg(long)]
        reference: Option<String>,
        /// Why they are there; of hashes
        #[arg(long)]
        note: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove entries
    Remove {
        bank: String,
        #[arg(required = true)]
        values: Vec<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Switch entries on again, or the whole bank if none is named
    Enable {
        bank: String,
        values: Vec<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Switch entries off, or the whole bank if none is named
    Disable {
        bank: String,
        values: Vec<String>,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Deserialize)]
struct Listed {
    items: Vec<Bank>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bank {
    id: String,
    /// A server of before does not say.
    #[serde(default)]
    org: String,
    #[serde(default)]
    org_since: Option<String>,
    kind: String,
    enabled: bool,
    revision: i64,
    changed_at: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Value>,
    next: Option<String>,
    /// Entries of the bank's document, on the first page; an older server sends none.
    #[serde(default)]
    document: Vec<Value>,
}

#[derive(Deserialize)]
struct Taken {
    added: usize,
    changed: usize,
    unchanged: usize,
    rejected: Vec<Rejected>,
    /// A server of before has none.
    #[serde(default)]
    warnings: Vec<String>,
    revision: i64,
}

impl Taken {
    fn tell_warnings(&self) {
        self.warnings.iter().for_each(|warning| complain(format!("warning: {warning}")));
    }
}

#[derive(Deserialize)]
struct Rejected {
    index: usize,
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    found: usize,
    missing: usize,
    #[serde(default)]
    in_document: usize,
}

/// Result of withdrawing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Missing,
    Changed,
    Removed,
}

#[derive(Deserialize)]
struct Outcomes {
    outcomes: Vec<Outcome>,
}

/// Greatest number of entries in one request.
const PAGE: usize = 1_000;

impl Banks {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { connection } => {
                let listed: Listed = connection.open()?.get("/banks", &[]).await?;
                for bank in listed.items {
                    let state = if bank.enabled { "on" } else { "off" };
                    let changed = bank.changed_at.as_deref().unwrap_or("never");
                    say(format!(
                        "{}  {}  {state}  revision {}  changed {changed}",
                        bank.id, bank.kind, bank.revision
                    ));
                }
                Ok(ExitCode::SUCCESS)
            }
            Self::Show { bank, limit, connection } => show(&connection.open()?, &bank, limit).await,
            Self::Import { bank, file, format, resume, connection } => {
                let format = format.unwrap_or_else(|| Format::of(&file));
                import::run(&connection.open()?, &bank, &file, format, resume).await
            }
            Self::Export { bank, document, format, connection } => {
                export::run(&connection.open()?, &bank, document, format).await
            }
            Self::Match { hashes, kind, banks, connection } => {
                let client = connection.open()?;
                let mut found = 0;
                for hash in &hashes {
                    found += look_up(&client, hash, &json!({ &*kind: hash }), &banks).await?;
                }
                say(format!("{found} matches"));
                Ok(ExitCode::SUCCESS)
            }
            Self::Add { bank, values, labels, source, expires_at, distance, reference, note, connection } => {
                let labels = Some(labels).filter(|labels| !labels.is_empty());
                let entry = |value: &String| {
                    json!({
                        "value": value, "labels": labels, "source": source, "expiresAt": expires_at,
                        "distance": distance, "reference": reference, "note": note,
                    })
                };
                let body = json!({"entries": values.iter().map(entry).collect::<Vec<_>>()});
                let taken: Taken = connection.open()?.post(&format!("/banks/{bank}/entries"), &body).await?;
                for rejected in &taken.rejected {
                    complain(format!("{}: {}", values[rejected.index], rejected.reason));
                }
                taken.tell_warnings();
                Ok(Sum::of(&taken).told())
            }
            Self::Remove { bank, values, connection } => {
                let path = format!("/banks/{bank}/entries/remove");
                let found: Found = connection.open()?.post(&path, &json!({"values": values})).await?;
                Ok(said("removed", &found))
            }
            Self::Enable { bank, values, connection } => switch(connection, &bank, &values, "enable").await,
            Self::Disable { bank, values, connection } => switch(connection, &bank, &values, "disable").await,
        }
    }
}

async fn switch(
    connection: Connection,
    bank: &str,
    values: &[String],
    how: &str,
) -> anyhow::Result<ExitCode> {
    let client = connection.open()?;
    if values.is_empty() {
        let _bank: Value = client.post(&format!("/banks/{bank}/{how}"), &json!({})).await?;
        say(format!("{bank}: {how}d"));
        return Ok(ExitCode::SUCCESS);
    }
    let found: Found =
        client.post(&format!("/banks/{bank}/entries/{how}"), &json!({"values": values})).await?;
    Ok(said(&format!("{how}d"), &found))
}

fn said(how: &str, found: &Found) -> ExitCode {
    say(format!("{} {how}, {} not there", found.found, found.missing));
    // What is in the document is on whatever is said of rows.
    let stays = if how == "enabled" { 0 } else { found.in_document };
    if stays > 0 {
        complain(format!("{stays} of them count until the bank's document is changed: it holds them"));
    }
    if found.missing == 0 && stays == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn show(client: &Client, bank: &str, limit: usize) -> anyhow::Result<ExitCode> {
    let (mut left, mut cursor) = (limit, None);
    while left > 0 {
        let page = page(client, bank, left.min(PAGE), cursor.take()).await?;
        let in_document = page.document.into_iter().map(|mut held| {
            held["inDocument"] = json!(true);
            held
        });
        let all: Vec<_> = in_document.chain(page.items).take(left).collect();
        left -= all.len();
        all.iter().for_each(say);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn page(client: &Client, bank: &str, limit: usize, cursor: Option<String>) -> anyhow::Result<Page> {
    let mut query = vec![("limit", limit.to_string())];
    query.extend(cursor.map(|cursor| ("cursor", cursor)));
    client.get(&format!("/banks/{bank}/entries"), &query).await
}

async fn known(client: &Client, bank: &str) -> anyhow::Result<(Bank, BankKind)> {
    let listed: Listed = client.get("/banks", &[]).await?;
    let found = listed.items.into_iter().find(|it| it.id == bank);
    let found = found.ok_or_else(|| anyhow!("there is no bank `{bank}`"))?;
    let kind = serde_json::from_value(Value::String(found.kind.clone()))
        .map_err(|_| anyhow!("the bank is of a kind that is not known here"))?;
    Ok((found, kind))
}
