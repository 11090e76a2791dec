//! Looks up hashes in the banks of a running process, and prints the matches.

use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_schemas::names::OneLine;

use crate::{client::Client, output::print_line};

#[derive(Deserialize)]
struct LookUpResponse {
    matches: Vec<Match>,
    truncated: bool,
    suppressed: Vec<String>,
}

#[derive(Deserialize)]
struct Match {
    bank: String,
    entry: String,
    kind: String,
    distance: u32,
    labels: Vec<String>,
}

/// Prints one line per match, and returns their number. `hashes` are hexadecimal by kind; an empty `banks` means all.
pub(in crate::commands) async fn look_up(
    client: &Client,
    name: &str,
    hashes: &Value,
    banks: &[String],
) -> anyhow::Result<usize> {
    let response: LookUpResponse =
        client.post("/banks/match", &json!({"hashes": hashes, "banks": banks})).await?;
    for bank_match in &response.matches {
        let Match { bank, entry, kind, distance, labels } = bank_match;
        let line = format!("{name}  {bank}  {entry}  {kind}  {distance} bits  {}", labels.join(","));
        // Entries without labels would leave blanks at the end.
        print_line(OneLine(format_args!("{}", line.trim_end())));
    }
    if response.truncated {
        print_line(format!("{name}  and more"));
    }
    for bank in &response.suppressed {
        print_line(format!("{name}  not counted in {bank}: another bank takes it back"));
    }
    Ok(response.matches.len())
}
