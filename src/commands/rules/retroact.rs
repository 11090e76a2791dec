//! `tidegate rules retroact`: applies live rules to items that were stored before the rules.
//!
//! The running service selects the items and stores the progress of the run; this command requests step after step at
//! the given rate, and prints the result.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidegate_moderation::reevaluation::retroact::Progress;
use tidegate_schemas::ids::Millis;

use super::backtest::{parse_time_or_age, show_progress};
use crate::{
    client::{Client, Connection},
    output::print_line,
};

#[derive(Debug, Args)]
pub(crate) struct Retroact {
    /// Live rules to apply
    #[arg(value_name = "RULE", required_unless_present_any = ["resume", "list"])]
    rules: Vec<String>,
    /// Start of the range of items: a time (2026-01-31T12:00:00Z) or an age (7d, 12h)
    #[arg(long, value_name = "WHEN", required_unless_present_any = ["resume", "list"])]
    since: Option<String>,
    /// End of the range; default: now
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Print the effects without acting
    #[arg(long)]
    dry_run: bool,
    /// Also act on items of child safety; needs the scope `child_safety`
    #[arg(long)]
    child_safety: bool,
    /// Continue the run with this id
    #[arg(long, value_name = "RUN", conflicts_with_all = ["rules", "since", "until", "dry_run", "child_safety"])]
    resume: Option<String>,
    /// List the runs
    #[arg(long, conflicts_with_all = ["rules", "since", "until", "dry_run", "child_safety", "resume"])]
    list: bool,
    /// Maximum items per second, so that new items are not delayed
    #[arg(long, value_name = "ITEMS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    per_second: u64,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    id: String,
    rules: BTreeMap<String, String>,
    since: String,
    until: String,
    dry_run: bool,
    finished_at: Option<String>,
    progress: Progress,
    through: String,
}

#[derive(Deserialize)]
struct Runs {
    items: Vec<Run>,
}

impl Retroact {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let now = Millis::now();
        let time = |text: &str| parse_time_or_age(text, now).map(Millis::iso);
        let (since, until) =
            (self.since.as_deref().map(time).transpose()?, self.until.as_deref().map(time).transpose()?);
        let client = self.connection.open()?;
        if self.list {
            let runs: Runs = client.get("/rules/retroactions", &[]).await?;
            runs.items.iter().for_each(|run| print_line(describe_run(run)));
            return Ok(ExitCode::SUCCESS);
        }
        let id = match self.resume {
            Some(id) => id,
            None => {
                let body = json!({
                    "rules": self.rules, "since": since, "until": until, "dryRun": self.dry_run,
                    "childSafety": self.child_safety,
                });
                let run: Run = client.post("/rules/retroactions", &body).await?;
                if !self.json {
                    // Printed at once, because an interrupted run is resumed by its id.
                    print_line(format!("run {}", run.id));
                }
                run.id
            }
        };
        let (run, raw) = run_steps(&client, &id, self.per_second)
            .await
            .with_context(|| format!("the run keeps its progress: continue it with `--resume {id}`"))?;
        if self.json {
            print_line(raw);
        } else {
            print_run(&run);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Requests steps until the run is finished.
async fn run_steps(client: &Client, id: &str, per_second: u64) -> anyhow::Result<(Run, Json)> {
    let mut sent_before = None;
    loop {
        let started_at = Instant::now();
        // Kept as received: `--json` prints fields that this version does not know.
        let raw: Json = client
            .post_in_turn(&format!("/rules/retroactions/{id}/step"), &json!({"most": per_second}))
            .await?;
        let run: Run = serde_json::from_value(raw.clone()).context("unexpected answer of the service")?;
        show_progress(&describe_run(&run));
        if run.finished_at.is_some() {
            show_progress("");
            return Ok((run, raw));
        }
        // Only steps that send items are slowed down: the sent items compete with new ones.
        let is_sending = !run.dry_run && sent_before != Some(run.progress.sent);
        sent_before = Some(run.progress.sent);
        if is_sending {
            tokio::time::sleep(Duration::from_secs(1).saturating_sub(started_at.elapsed())).await;
        }
    }
}

fn describe_run(run: &Run) -> String {
    let state = match (&run.finished_at, run.dry_run) {
        (Some(_), true) => "tried".to_owned(),
        (Some(_), false) => "done".to_owned(),
        (None, _) => format!("through {}", run.through),
    };
    let rules: Vec<_> = run.rules.keys().map(String::as_str).collect();
    format!(
        "{}  {}  {} until {}  {state}: {} items, {} match, {} sent",
        run.id,
        rules.join(","),
        run.since,
        run.until,
        run.progress.items,
        run.progress.matched,
        run.progress.sent
    )
}

fn print_run(run: &Run) {
    let Progress { items, unfit, superseded, matched, done_before, outside_rollout, sent, rules, actions } =
        &run.progress;
    let sent_verb = if run.dry_run { "would be sent again" } else { "were sent again" };
    print_line(format!(
        "{items} items from {} until {}: {matched} match, {sent} {sent_verb}",
        run.since, run.until
    ));
    for (count, label) in [
        (done_before, "were acted on before"),
        (outside_rollout, "are outside of the rollout"),
        (superseded, "were replaced by a newer version since"),
        (unfit, "do not fit their item type any more"),
    ] {
        if *count > 0 {
            print_line(format!("  {count} {label}"));
        }
    }
    rules.iter().for_each(|(rule, count)| print_line(format!("  rule {rule}: {count}")));
    actions.iter().for_each(|(action, count)| {
        print_line(format!("  action {action}: {count}, as far as limits allow"));
    });
}
