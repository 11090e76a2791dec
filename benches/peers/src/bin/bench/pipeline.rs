//! The whole pipeline in one process on embedded data: accepted, evaluated, stored.
//!
//! An item counts when the processor has stored its evaluation; afterwards a sample is read back through the API.

use std::{collections::BTreeMap, time::Instant};

use anyhow::{Result, ensure};
use tidegate_benches::{
    installation::{Installation, UP},
    items::{TEXTS, id},
    table::{median, print, spread, thousands},
};

use crate::{
    Place,
    load::{End, Load},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Items of a round
    #[arg(long, default_value_t = 200_000)]
    items: u64,
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Where a profile of the rounds goes: needs `perf`
    #[arg(long)]
    profile: Option<std::path::PathBuf>,
}

const A_REQUEST: usize = 100;
/// Items that are read back after the rounds.
const SAMPLE: u64 = 500;

/// One round of an installation.
pub(crate) struct Round {
    pub(crate) items: u64,
    /// From the first request to the last evaluation.
    pub(crate) seconds: f64,
    /// From the first request to the last answer.
    pub(crate) accepted: f64,
    /// Of all its processes.
    pub(crate) cpu: f64,
}

impl Round {
    pub(crate) fn rate(&self) -> f64 {
        self.items as f64 / self.seconds
    }

    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu * 1e6 / self.items as f64
    }
}

/// An installation that is given items.
pub(crate) struct Subject {
    pub(crate) installation: Installation,
    /// The process that evaluates.
    pub(crate) role: &'static str,
    /// The number of the next item, and so how many were given.
    pub(crate) next: u64,
}

impl Subject {
    pub(crate) async fn round(&mut self, items: u64, connections: usize) -> Result<Round> {
        let before = self.cpu()?;
        let began = Instant::now();
        let load = Load {
            address: &self.installation.api,
            key: &self.installation.key,
            connections,
            items: A_REQUEST,
            next: &mut self.next,
        };
        let sent = load.run(End::Items(items)).await?;
        self.installation.until_processed(self.role, self.next).await?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(Round { items: sent.acknowledged, seconds, accepted: sent.seconds, cpu: self.cpu()? - before })
    }

    pub(crate) fn cpu(&self) -> Result<f64> {
        self.installation.processes.values().map(|process| process.cpu_seconds()).sum()
    }

    /// Reads items back: each is evaluated, and no rule matched.
    pub(crate) async fn check_sample(&self) -> Result<()> {
        for (text, matched) in self.matches().await? {
            ensure!(matched == serde_json::json!([]), "text {text}: {matched}");
        }
        Ok(())
    }

    /// Reads items back, each evaluated: by text, which rules matched.
    pub(crate) async fn matches(&self) -> Result<BTreeMap<usize, serde_json::Value>> {
        let mut matches = BTreeMap::new();
        for nth in 0..SAMPLE.min(self.next) {
            let number = nth * (self.next / SAMPLE).max(1);
            // Which text an item has depends on which connection sent it: the one that fits is found.
            let mut found = None;
            for text in texts(number) {
                let path = format!("/api/v1/items/post/{}", id(number, text));
                let answer = self.installation.platform("GET", &path, None).await?;
                if answer.status == 200 {
                    found = Some((text, answer.json()));
                    break;
                }
            }
            let Some((text, found)) = found else { anyhow::bail!("item {number} is not stored") };
            ensure!(found["state"] == "evaluated", "item {number}: {found}");
            matches.insert(text, found["matchedRules"].clone());
        }
        Ok(matches)
    }
}

/// The texts that an item of this number may have: its place in the request is known, its connection is not.
fn texts(number: u64) -> impl Iterator<Item = usize> {
    let place = usize::try_from(number % A_REQUEST as u64).unwrap_or(0);
    (0..=TEXTS / A_REQUEST).map(move |nth| nth * A_REQUEST + place)
}

pub(crate) async fn run(place: &Place, args: &Args) -> Result<()> {
    let installation = Installation::embedded(&place.repository, &place.binary).await?;
    let mut subject = Subject { installation, role: UP, next: 0 };
    subject.round(args.items / 10, args.connections).await?;
    let mut profiler = match &args.profile {
        Some(path) => {
            let id = subject.installation.processes[UP].id.to_string();
            let mut perf = tokio::process::Command::new("perf");
            perf.args(["record", "-q", "-F", "499", "-p", &id, "-o"]).arg(path).kill_on_drop(true);
            Some(perf.spawn()?)
        }
        None => None,
    };
    let mut rounds = Vec::new();
    for nth in 1..=args.rounds {
        let round = subject.round(args.items, args.connections).await?;
        eprintln!(
            "round {nth}: {} items, accepted in {:.2} s, evaluated in {:.2} s, {:.2} s of CPU",
            round.items, round.accepted, round.seconds, round.cpu
        );
        rounds.push(round);
    }
    if let Some(perf) = &mut profiler {
        let id = perf.id().unwrap_or_default().to_string();
        tokio::process::Command::new("kill").args(["-INT", &id]).status().await?;
        perf.wait().await?;
    }
    subject.check_sample().await?;
    let resident = subject.installation.processes[UP].resident_mib()?;
    let cpu: Vec<f64> = rounds.iter().map(Round::cpu_micros).collect();
    let (low, high) = spread(&cpu);
    println!("### Whole pipeline, embedded, {A_REQUEST} a request, the demo's rules\n");
    print(
        &[
            "items/s",
            "CPU µs an item",
            "lowest to highest",
            "items per CPU-second",
            "resident MiB afterwards",
        ],
        &[vec![
            thousands(median(rounds.iter().map(Round::rate).collect())),
            format!("{:.1}", median(cpu.clone())),
            format!("{low:.1} to {high:.1}"),
            thousands(1e6 / median(cpu)),
            format!("{resident:.0}"),
        ]],
    );
    subject.installation.stop_all().await
}
