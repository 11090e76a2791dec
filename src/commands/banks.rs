//! `tidegate banks`: adds, lists, switches and removes entries of banks.
//!
//! A bank itself is a document (`tidegate apply`).

mod read;

use std::{
    fs,
    io::{self, Read as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};

use self::read::{Format, Line};
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
    /// List entries of a bank, one JSON object a line
    Show {
        bank: String,
        /// How many at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// Add the entries of a file: lines, CSV or NDJSON; lines that cannot be entries are named, the rest is added
    Import {
        bank: String,
        /// `-` reads standard input
        file: PathBuf,
        /// By the file's name if left out: `.csv`, `.ndjson`, `.jsonl`, or else one entry a line
        #[arg(long, value_enum)]
        format: Option<Format>,
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
        /// Where they come from
        #[arg(long)]
        source: Option<String>,
        /// When they end, such as 2026-12-31T00:00:00Z
        #[arg(long)]
        expires_at: Option<String>,
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
    kind: String,
    enabled: bool,
    revision: i64,
    changed_at: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Value>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Taken {
    added: usize,
    changed: usize,
    unchanged: usize,
    rejected: Vec<Rejected>,
}

#[derive(Deserialize)]
struct Rejected {
    index: usize,
    reason: String,
}

#[derive(Deserialize)]
struct Found {
    found: usize,
    missing: usize,
}

/// What one request may list.
const PAGE: usize = 1_000;

/// What one request adds: the rules are compiled with it, so few large ones are better.
const BATCH: usize = 10_000;
const BATCH_BYTES: usize = 2 << 20;

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
            Self::Import { bank, file, format, connection } => {
                let format = format.unwrap_or_else(|| Format::of(&file));
                let text = if file.as_os_str() == "-" {
                    let mut text = String::new();
                    io::stdin().lock().read_to_string(&mut text).map(|_| text)
                } else {
                    fs::read_to_string(&file)
                };
                let text = text.with_context(|| format!("cannot read {}", file.display()))?;
                import(&connection.open()?, &bank, &text, format).await
            }
            Self::Add { bank, values, labels, source, expires_at, connection } => {
                let entry = |value: &String| json!({"value": value, "labels": labels, "source": source, "expiresAt": expires_at});
                let body = json!({"entries": values.iter().map(entry).collect::<Vec<_>>()});
                let taken: Taken = connection.open()?.post(&format!("/banks/{bank}/entries"), &body).await?;
                for rejected in &taken.rejected {
                    complain(format!("{}: {}", values[rejected.index], rejected.reason));
                }
                Ok(told(&Sum::of(&taken)))
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
    if found.missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn show(client: &Client, bank: &str, limit: usize) -> anyhow::Result<ExitCode> {
    let (mut left, mut cursor) = (limit, None::<String>);
    while left > 0 {
        let mut query = vec![("limit", left.min(PAGE).to_string())];
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let page: Page = client.get(&format!("/banks/{bank}/entries"), &query).await?;
        left = left.saturating_sub(page.items.len());
        page.items.iter().for_each(say);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What became of a file's entries; the numbers add up to how many there were.
#[derive(Default)]
struct Sum {
    added: usize,
    changed: usize,
    unchanged: usize,
    rejected: usize,
}

impl Sum {
    fn of(taken: &Taken) -> Self {
        let Taken { added, changed, unchanged, rejected } = taken;
        Self { added: *added, changed: *changed, unchanged: *unchanged, rejected: rejected.len() }
    }

    fn add(&mut self, other: &Self) {
        self.added += other.added;
        self.changed += other.changed;
        self.unchanged += other.unchanged;
        self.rejected += other.rejected;
    }
}

fn told(sum: &Sum) -> ExitCode {
    let Sum { added, changed, unchanged, rejected } = sum;
    let all = added + changed + unchanged + rejected;
    say(format!(
        "{all} entries: {added} added, {changed} changed, {unchanged} there already, {rejected} refused"
    ));
    if *rejected == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn import(client: &Client, bank: &str, text: &str, format: Format) -> anyhow::Result<ExitCode> {
    let mut sum = Sum::default();
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for Line { number, entry } in read::lines(text, format)? {
        match entry {
            Ok(entry) => {
                bytes += entry.to_string().len();
                batch.push((number, entry));
            }
            Err(reason) => {
                complain(format!("line {number}: {reason}"));
                sum.rejected += 1;
            }
        }
        if batch.len() >= BATCH || bytes >= BATCH_BYTES {
            sum.add(&send(client, bank, std::mem::take(&mut batch)).await?);
            bytes = 0;
        }
    }
    sum.add(&send(client, bank, batch).await?);
    Ok(told(&sum))
}

async fn send(client: &Client, bank: &str, batch: Vec<(u64, Value)>) -> anyhow::Result<Sum> {
    if batch.is_empty() {
        return Ok(Sum::default());
    }
    let (numbers, entries): (Vec<u64>, Vec<Value>) = batch.into_iter().unzip();
    let taken: Taken = client.post(&format!("/banks/{bank}/entries"), &json!({"entries": entries})).await?;
    for rejected in &taken.rejected {
        complain(format!("line {}: {}", numbers[rejected.index], rejected.reason));
    }
    Ok(Sum::of(&taken))
}
