//! `tidegate banks`: adds, lists, enables, disables and removes entries of banks, and looks up hashes.
//!
//! A bank itself is a document (`tidegate apply`).

mod counts;
mod export;
mod import;
mod look_up;
mod progress;

use std::{path::PathBuf, process::ExitCode};

use anyhow::anyhow;
use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_bank_exchange::Format;
use tidegate_schemas::banks::{BankKind, HashKind};

use self::counts::ImportCounts;
pub(in crate::commands) use self::look_up::look_up;
use crate::{
    client::{Client, Connection},
    output::{print_error, print_line},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Banks {
    /// List the banks
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// List the entries of a bank, one JSON object per line; those of its document first, marked `inDocument`
    Show {
        bank: String,
        /// Maximum number of entries
        #[arg(long, default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// Add the entries of a file; invalid entries are reported with their line, all others are added
    Import {
        bank: String,
        /// File to import; `-` reads standard input
        file: PathBuf,
        /// Format of the file; default: by extension (.csv, .ndjson, .jsonl, .xml), otherwise one entry per line
        #[arg(long, value_enum)]
        format: Option<Format>,
        /// Store the progress in FILE.resume, and continue an interrupted import
        #[arg(long)]
        resume: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Write all entries of a bank to standard output in a stable order, in a form that `import` reads
    Export {
        bank: String,
        /// Include the entries of the bank's document; they come first
        #[arg(long)]
        document: bool,
        #[arg(long, value_enum, default_value_t = export::ExportFormat::Ndjson)]
        format: export::ExportFormat,
        #[command(flatten)]
        connection: Connection,
    },
    /// Look up hashes in the banks of the running service
    Match {
        /// Hashes in hexadecimal
        #[arg(required = true)]
        hashes: Vec<String>,
        /// Kind of the hashes
        #[arg(long, value_parser = HashKind::ALL.map(HashKind::name))]
        kind: String,
        /// Search only these banks
        #[arg(long = "bank")]
        banks: Vec<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Add entries, or change the labels, source and other fields of existing ones
    Add {
        bank: String,
        #[arg(required = true)]
        values: Vec<String>,
        /// Labels, shown with every match
        #[arg(long, value_delimiter = ',')]
        labels: Vec<String>,
        /// Source of the entries
        #[arg(long)]
        source: Option<String>,
        /// Time at which the entries expire, such as 2026-12-31T00:00:00Z
        #[arg(long)]
        expires_at: Option<String>,
        /// Maximum number of differing bits for a match, instead of the bank's; only for perceptual hashes
        #[arg(long)]
        distance: Option<u32>,
        /// Id of the entries at their source; only for hashes
        #[arg(long)]
        reference: Option<String>,
        /// Reason for the entries; only for hashes
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
    /// Enable entries, or the whole bank if no entry is named
    Enable {
        bank: String,
        values: Vec<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Disable entries, or the whole bank if no entry is named
    Disable {
        bank: String,
        values: Vec<String>,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Deserialize)]
struct BankListResponse {
    items: Vec<Bank>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bank {
    id: String,
    /// Not sent by older servers.
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
    /// Entries of the bank's document, on the first page. Not sent by older servers.
    #[serde(default)]
    document: Vec<Value>,
}

#[derive(Deserialize)]
struct AddResult {
    added: usize,
    changed: usize,
    unchanged: usize,
    rejected: Vec<RejectedEntry>,
    /// Not sent by older servers.
    #[serde(default)]
    warnings: Vec<String>,
    revision: i64,
}

impl AddResult {
    fn print_warnings(&self) {
        self.warnings.iter().for_each(|warning| print_error(format!("warning: {warning}")));
    }
}

#[derive(Deserialize)]
struct RejectedEntry {
    index: usize,
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SwitchResult {
    found: usize,
    missing: usize,
    #[serde(default)]
    in_document: usize,
}

/// Result of withdrawing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WithdrawResult {
    Missing,
    Changed,
    Removed,
}

#[derive(Deserialize)]
struct WithdrawResults {
    outcomes: Vec<WithdrawResult>,
}

/// Maximum number of entries in one request.
const PAGE: usize = 1_000;

impl Banks {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { connection } => {
                let response: BankListResponse = connection.open()?.get("/banks", &[]).await?;
                for bank in response.items {
                    let state = if bank.enabled { "on" } else { "off" };
                    let changed_at = bank.changed_at.as_deref().unwrap_or("never");
                    print_line(format!(
                        "{}  {}  {state}  revision {}  changed {changed_at}",
                        bank.id, bank.kind, bank.revision
                    ));
                }
                Ok(ExitCode::SUCCESS)
            }
            Self::Show { bank, limit, connection } => show(&connection.open()?, &bank, limit).await,
            Self::Import { bank, file, format, resume, connection } => {
                let format = format.unwrap_or_else(|| Format::from_path(&file));
                import::run(&connection.open()?, &bank, &file, format, resume).await
            }
            Self::Export { bank, document, format, connection } => {
                export::run(&connection.open()?, &bank, document, format).await
            }
            Self::Match { hashes, kind, banks, connection } => {
                let client = connection.open()?;
                let mut match_count = 0;
                for hash in &hashes {
                    match_count += look_up(&client, hash, &json!({ &*kind: hash }), &banks).await?;
                }
                print_line(format!("{match_count} matches"));
                Ok(ExitCode::SUCCESS)
            }
            Self::Add { bank, values, labels, source, expires_at, distance, reference, note, connection } => {
                // An empty list would remove the labels of existing entries; `null` keeps them.
                let labels = Some(labels).filter(|labels| !labels.is_empty());
                let entry = |value: &String| {
                    json!({
                        "value": value, "labels": labels, "source": source, "expiresAt": expires_at,
                        "distance": distance, "reference": reference, "note": note,
                    })
                };
                let body = json!({"entries": values.iter().map(entry).collect::<Vec<_>>()});
                let result: AddResult =
                    connection.open()?.post(&format!("/banks/{bank}/entries"), &body).await?;
                // A rejection has the position of its entry in the request.
                for rejection in &result.rejected {
                    print_error(format!("{}: {}", values[rejection.index], rejection.reason));
                }
                result.print_warnings();
                Ok(ImportCounts::from_result(&result).print())
            }
            Self::Remove { bank, values, connection } => {
                let path = format!("/banks/{bank}/entries/remove");
                let result: SwitchResult = connection.open()?.post(&path, &json!({"values": values})).await?;
                Ok(print_switch_result("removed", &result))
            }
            Self::Enable { bank, values, connection } => {
                switch_entries(connection, &bank, &values, "enable").await
            }
            Self::Disable { bank, values, connection } => {
                switch_entries(connection, &bank, &values, "disable").await
            }
        }
    }
}

async fn switch_entries(
    connection: Connection,
    bank: &str,
    values: &[String],
    action: &str,
) -> anyhow::Result<ExitCode> {
    let client = connection.open()?;
    if values.is_empty() {
        let _bank: Value = client.post(&format!("/banks/{bank}/{action}"), &json!({})).await?;
        print_line(format!("{bank}: {action}d"));
        return Ok(ExitCode::SUCCESS);
    }
    let result: SwitchResult =
        client.post(&format!("/banks/{bank}/entries/{action}"), &json!({"values": values})).await?;
    Ok(print_switch_result(&format!("{action}d"), &result))
}

fn print_switch_result(action: &str, result: &SwitchResult) -> ExitCode {
    print_line(format!("{} {action}, {} not there", result.found, result.missing));
    // Disabling a stored entry has no effect on an equal entry of the bank's document.
    let still_listed = if action == "enabled" { 0 } else { result.in_document };
    if still_listed > 0 {
        print_error(format!(
            "{still_listed} of them count until the bank's document is changed, because it lists them"
        ));
    }
    if result.missing == 0 && still_listed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn show(client: &Client, bank: &str, limit: usize) -> anyhow::Result<ExitCode> {
    let (mut remaining, mut cursor) = (limit, None);
    while remaining > 0 {
        let page = fetch_page(client, bank, remaining.min(PAGE), cursor.take()).await?;
        // These entries come in addition to those of the page, so both together may exceed the limit.
        let in_document = page.document.into_iter().map(|mut entry| {
            entry["inDocument"] = json!(true);
            entry
        });
        let entries: Vec<_> = in_document.chain(page.items).take(remaining).collect();
        remaining -= entries.len();
        entries.iter().for_each(print_line);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn fetch_page(
    client: &Client,
    bank: &str,
    limit: usize,
    cursor: Option<String>,
) -> anyhow::Result<Page> {
    let mut query = vec![("limit", limit.to_string())];
    query.extend(cursor.map(|cursor| ("cursor", cursor)));
    client.get(&format!("/banks/{bank}/entries"), &query).await
}

async fn find_bank(client: &Client, bank: &str) -> anyhow::Result<(Bank, BankKind)> {
    let response: BankListResponse = client.get("/banks", &[]).await?;
    let bank_info = response.items.into_iter().find(|candidate| candidate.id == bank);
    let bank_info = bank_info.ok_or_else(|| anyhow!("there is no bank `{bank}`"))?;
    let kind = serde_json::from_value(Value::String(bank_info.kind.clone()))
        .map_err(|_| anyhow!("this version does not know the kind of the bank"))?;
    Ok((bank_info, kind))
}
