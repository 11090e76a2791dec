//! `tidegate bundle inspect`: shows an overview of a bundle; free text only on request.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use tidegate_exporter::{
    bundle::{
        inspect::{self, ItemOptions, Overview, counts},
        invalid_json::InvalidJson,
    },
    plural::{format_count, format_wide_count},
};

use super::{Input, ReadLimits, schema::Constants, shorten};
use crate::output::{print_error, print_line};

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    input: Input,
    /// Show the texts that people wrote
    #[arg(long)]
    texts: bool,
    /// Maximum number of items to list, as far as --memory holds them; all are counted [default: 50, in JSON all]
    #[arg(long, value_name = "COUNT")]
    items: Option<usize>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    constants: Constants,
    #[command(flatten)]
    costs: ReadLimits,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

impl Inspect {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let name = self.input.name();
        let (naming, schema) = (self.constants.naming(), self.constants.schema_url()?);
        let (limits, room) = (self.costs.limits(), self.costs.spill_options());
        let max_items = self.items.unwrap_or(match self.format {
            Format::Text => 50,
            // JSON is read by programs, which expect all items.
            Format::Json => usize::MAX,
        });
        let options = ItemOptions { max_items, with_texts: self.texts };
        let result = inspect::inspect(&mut self.input.open(), naming, schema, options, limits, &room);
        let overview = match result {
            Ok(overview) => overview,
            Err(InvalidJson::Io(error)) => {
                return Err(error).with_context(|| format!("{name} cannot be read"));
            }
            Err(invalid_json) => return Ok(report_invalid(&name, &invalid_json)),
        };
        match self.format {
            // Without any readable content, only the error is printed.
            Format::Text if overview.read_error.is_some() && overview.is_empty() => {}
            Format::Text => print_line(render(&overview, &name).trim_end()),
            Format::Json => print_line(overview.to_json(&name)),
        }
        Ok(overview.read_error.map_or(ExitCode::SUCCESS, |invalid_json| report_invalid(&name, &invalid_json)))
    }
}

fn report_invalid(name: &str, invalid_json: &InvalidJson) -> ExitCode {
    print_error(format!("error: {name}: {invalid_json}"));
    ExitCode::FAILURE
}

fn render(overview: &Overview, name: &str) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    _ = writeln!(text, "{name}: {}", format_count(overview.bytes, "byte"));
    for (name, value) in &overview.head {
        match value {
            Value::Object(fields) => _ = writeln!(text, "{name}: {}", join_fields(fields)),
            value => _ = writeln!(text, "{name}: {}", quote(value)),
        }
    }
    for phase in &overview.phases {
        _ = writeln!(text, "phase: {}", join_fields(phase));
    }
    for artifact in &overview.artifacts {
        _ = writeln!(text, "made from: {}", join_fields(artifact));
    }
    for (kind, count) in &overview.outcomes {
        _ = writeln!(text, "outcomes: {count} {}", shorten(kind, MAX_FIELD_BYTES));
    }
    let unlinked = match overview.unlinked {
        0 => String::new(),
        count => format!(", {count} of them without a participant"),
    };
    // If no response names its participant, only the summary has their number.
    let summary = overview.head.get("summary").and_then(|summary| summary["participants"].as_u64());
    let participants = match summary {
        Some(summary_count) if overview.participants == 0 && summary_count > 0 => {
            format!("{} according to the summary", format_count(summary_count, "participant"))
        }
        _ => format_count(overview.participants, "participant"),
    };
    let rows = match overview.rows {
        rows if u128::from(rows) == overview.responses => String::new(),
        rows => format!(" in {}", format_count(rows, "row")),
    };
    _ = writeln!(
        text,
        "{participants}, {}, {}{rows}{unlinked}",
        format_count(overview.item_count(), "item"),
        format_wide_count(overview.responses, "response")
    );
    for item in &overview.items {
        let hidden_count = (item.suppressed_counts > 0)
            .then(|| format!("{} hidden", format_count(item.suppressed_counts, "count")));
        let counts = counts(&item.counts).into_iter().map(|(answer, count)| format!("{answer} {count}"));
        let counts = counts.chain(hidden_count).collect::<Vec<_>>().join(", ");
        let [id, status, origin] =
            [&item.id, &item.status, &item.origin].map(|field| shorten(field, MAX_FIELD_BYTES));
        _ = write!(text, "  {id}  {status}  {origin}  {counts}");
        if item.text.is_empty() {
            text.push('\n');
        } else {
            _ = writeln!(text, "\n      {}", item.text.escape_debug());
        }
    }
    if overview.unlisted_items > 0 {
        _ = writeln!(text, "  and {}", format_count(overview.unlisted_items, "more item"));
    }
    if let Some(invalid_json) = &overview.read_error {
        _ = writeln!(text, "The overview ends before {invalid_json}");
    }
    match overview.findings {
        0 => {}
        1 => _ = writeln!(text, "1 place is not as it should be: see tidegate bundle validate"),
        many => {
            _ = writeln!(text, "{many} places are not as they should be: see tidegate bundle validate");
        }
    }
    text
}

/// Maximum length in bytes of a field; texts that were asked for are shown in full.
const MAX_FIELD_BYTES: usize = 300;

fn join_fields(fields: &Map<String, Value>) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name} {}", quote(value))).collect();
    fields.join(", ")
}

/// Quotes a text, so that no control character reaches the terminal.
fn quote(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", shorten(text, MAX_FIELD_BYTES).escape_debug()),
        other => other.to_string(),
    }
}
