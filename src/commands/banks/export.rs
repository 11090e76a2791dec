//! `tidegate banks export`: writes all entries of a bank in the order of their ids, so that equal banks give equal files.
//!
//! Author and time of an entry are not written, because `import` would not keep them.

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_bank_exchange::join_labels;

use super::{PAGE, fetch_page, find_bank};
use crate::{client::Client, output::print_error};

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::commands) enum ExportFormat {
    /// Write the values alone, one per line
    Lines,
    Csv,
    Ndjson,
}

/// Fields of an entry that are written to a file.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExportedEntry {
    value: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    distance: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    disabled: bool,
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Origin {
    source: Option<String>,
    reference: Option<String>,
}

/// Returns the sources that list an entry: the entry is written once for each of them.
fn read_origins(entry: &Value) -> anyhow::Result<Vec<Origin>> {
    let mut origins: Vec<Origin> = entry.get("also").map(Vec::deserialize).transpose()?.unwrap_or_default();
    origins.push(Origin::deserialize(entry)?);
    // Sorted, because equal banks must give equal files.
    origins.sort_unstable();
    Ok(origins)
}

const COLUMNS: [&str; 8] =
    ["value", "labels", "source", "expires_at", "max_distance", "content_id", "note", "disabled"];

pub(super) async fn run(
    client: &Client,
    bank: &str,
    with_document: bool,
    format: ExportFormat,
) -> anyhow::Result<ExitCode> {
    find_bank(client, bank).await?;
    let mut out = BufWriter::new(io::stdout());
    if format == ExportFormat::Csv {
        out.write_all(&csv_row(COLUMNS.map(str::to_owned))?)?;
    }
    let mut cursor = None;
    loop {
        let page = fetch_page(client, bank, PAGE, cursor).await?;
        if with_document {
            for document_entry in page.document {
                write_entry(&mut out, &serde_json::from_value(document_entry)?, format)?;
            }
        } else if !page.document.is_empty() {
            let count = page.document.len();
            // On standard error: standard output is the exported file.
            print_error(format!(
                "{count} entries of the bank's document are left out: `--document` writes them"
            ));
        }
        for entry in page.items {
            let is_disabled = entry["enabled"] == Value::Bool(false);
            // Files only mark disabled entries, because most are enabled.
            let exported_entry =
                ExportedEntry { disabled: is_disabled, ..serde_json::from_value(entry.clone())? };
            // Lines contain values only, so further origins would repeat the same line.
            if format == ExportFormat::Lines {
                write_entry(&mut out, &exported_entry, format)?;
                continue;
            }
            for Origin { source, reference } in read_origins(&entry)? {
                write_entry(
                    &mut out,
                    &ExportedEntry { source, reference, ..exported_entry.clone() },
                    format,
                )?;
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a row as bytes. Writing them to the buffered output avoids a flush after each row.
fn csv_row(cells: [String; 8]) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(cells)?;
    Ok(writer.into_inner()?)
}

fn write_entry(out: &mut impl Write, entry: &ExportedEntry, format: ExportFormat) -> anyhow::Result<()> {
    match format {
        ExportFormat::Lines => writeln!(out, "{}", entry.value)?,
        ExportFormat::Ndjson => {
            serde_json::to_writer(&mut *out, entry)?;
            writeln!(out)?;
        }
        ExportFormat::Csv => {
            let optional = |text: &Option<String>| text.clone().unwrap_or_default();
            let row_bytes = csv_row([
                entry.value.clone(),
                join_labels(&entry.labels),
                optional(&entry.source),
                optional(&entry.expires_at),
                entry.distance.map(|distance| distance.to_string()).unwrap_or_default(),
                optional(&entry.reference),
                optional(&entry.note),
                if entry.disabled { "true".to_owned() } else { String::new() },
            ])?;
            out.write_all(&row_bytes)?;
        }
    }
    Ok(())
}
