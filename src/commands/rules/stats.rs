//! `tidegate rules stats`: prints matches of each rule version, and the decisions of moderators on them.
//!
//! The running service counts; this command only prints.

use std::process::ExitCode;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tidegate_schemas::ids::Millis;

use super::backtest::Span;
use crate::{client::Connection, output::print_line};

#[derive(Debug, Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    span: Span,
    /// Show only this rule
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Deserialize)]
struct StatsResponse {
    items: Vec<Map<String, Json>>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    rule: String,
    version: String,
    hits: i64,
    acted: i64,
    background: i64,
    rollout: i64,
    limit: i64,
    cooldown: i64,
    alarm: i64,
    errored: i64,
    confirmed: i64,
    rejected: i64,
    overturned: i64,
    precision: Option<f64>,
    alarmed_at: Option<String>,
}

impl Stats {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let (since, until) = self.span.resolve(Millis::now())?;
        let mut query = vec![("since", since.iso()), ("until", until.iso())];
        query.extend(self.rule.map(|rule| ("rule", rule)));
        let response: StatsResponse = self.connection.open()?.get("/rules/stats", &query).await?;
        let is_empty = response.items.is_empty();
        for item in response.items {
            // Printed as received, with fields that this version does not know.
            if self.json {
                print_line(Json::Object(item));
            } else {
                print_rule(&serde_json::from_value(Json::Object(item))?);
            }
        }
        if is_empty && !self.json {
            print_line("no rule matched anything in this time");
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_rule(line: &Line) {
    let suppressed = [
        ("in the background", line.background),
        ("outside its rollout", line.rollout),
        ("above its limit", line.limit),
        ("in a cooldown", line.cooldown),
        ("after its alarm", line.alarm),
    ];
    let suppressed_notes = suppressed
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| format!(", {count} {reason}"));
    let errored = if line.errored > 0 { format!(", {} not evaluated", line.errored) } else { String::new() };
    print_line(format!(
        "{} ({}): {} hits, acted on {}{}{errored}",
        line.rule,
        line.version,
        line.hits,
        line.acted,
        suppressed_notes.collect::<String>()
    ));
    if let Some(precision) = line.precision {
        print_line(format!(
            "  moderators confirmed {}, rejected {}, overturned {}: {:.0} %",
            line.confirmed,
            line.rejected,
            line.overturned,
            precision * 100.0
        ));
    }
    if let Some(alarmed_at) = &line.alarmed_at {
        print_line(format!(
            "  it acts no more since {alarmed_at}: it matched more often in an hour than was expected"
        ));
    }
}
